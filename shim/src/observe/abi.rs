//! What CUPTI hands to callbacks: structures of `cupti_callbacks.h`, `generated_cuda_meta.h` and `cuda.h`, the same
//! since CUDA 12.0. Parameters are read by offset, as each call's structure begins with its arguments in order.

use core::ffi::{c_char, c_void};

/// Values of `CUpti_CallbackDomain`.
pub(super) const DOMAIN_DRIVER: u32 = 1;
pub(super) const DOMAIN_RESOURCE: u32 = 3;

/// `CUPTI_API_ENTER`.
pub(super) const ENTER: u32 = 0;

/// Values of `CUpti_CallbackIdResource`.
pub(super) mod resource {
    pub(crate) const CONTEXT_CREATED: u32 = 1;
    pub(crate) const CONTEXT_DESTROY_STARTING: u32 = 2;
    pub(crate) const STREAM_CREATED: u32 = 3;
    pub(crate) const STREAM_DESTROY_STARTING: u32 = 4;
    pub(crate) const MODULE_LOADED: u32 = 6;
    pub(crate) const MODULE_UNLOAD_STARTING: u32 = 7;
    pub(crate) const GRAPH_CREATED: u32 = 9;
    pub(crate) const GRAPH_DESTROY_STARTING: u32 = 10;
    pub(crate) const GRAPH_CLONED: u32 = 11;
    pub(crate) const NODE_CREATED: u32 = 13;
    pub(crate) const NODE_DESTROY_STARTING: u32 = 14;
    pub(crate) const DEPENDENCY_CREATED: u32 = 15;
    pub(crate) const EXEC_CREATED: u32 = 18;
    pub(crate) const EXEC_DESTROY_STARTING: u32 = 19;
    pub(crate) const NODE_CLONED: u32 = 20;

    /// Those that are watched.
    pub(crate) const ALL: [u32; 15] = [
        CONTEXT_CREATED,
        CONTEXT_DESTROY_STARTING,
        STREAM_CREATED,
        STREAM_DESTROY_STARTING,
        MODULE_LOADED,
        MODULE_UNLOAD_STARTING,
        GRAPH_CREATED,
        GRAPH_DESTROY_STARTING,
        GRAPH_CLONED,
        NODE_CREATED,
        NODE_DESTROY_STARTING,
        DEPENDENCY_CREATED,
        EXEC_CREATED,
        EXEC_DESTROY_STARTING,
        NODE_CLONED,
    ];
}

/// `CUpti_CallbackData`.
#[repr(C)]
pub(super) struct CallbackData {
    pub(super) site: u32,
    pub(super) function: *const c_char,
    pub(super) parameters: *const c_void,
    pub(super) returned: *const c_void,
    pub(super) symbol: *const c_char,
    pub(super) context: *mut c_void,
    pub(super) context_id: u32,
    pub(super) own: *mut u64,
    pub(super) correlation: u32,
}

/// `CUpti_ResourceData`.
#[repr(C)]
pub(super) struct ResourceData {
    pub(super) context: *mut c_void,
    pub(super) stream: *mut c_void,
    pub(super) descriptor: *const c_void,
}

/// `CUpti_GraphData`.
#[repr(C)]
pub(super) struct GraphData {
    pub(super) graph: *mut c_void,
    pub(super) original_graph: *mut c_void,
    pub(super) node: *mut c_void,
    pub(super) original_node: *mut c_void,
    pub(super) node_type: u32,
    pub(super) dependency: *mut c_void,
    pub(super) exec: *mut c_void,
}

/// `CUpti_ModuleResourceData`.
#[repr(C)]
pub(super) struct ModuleData {
    pub(super) id: u32,
    pub(super) size: usize,
    pub(super) code: *const c_char,
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use cudarc::cupti::sys;
    use cudarc::driver::sys as cuda;
    use gtop_protocol::calls::{CALLS, Sort};

    macro_rules! same {
        ($ours:ident.$field:ident, $theirs:ident.$other:ident) => {
            assert_eq!(offset_of!($ours, $field), offset_of!(sys::$theirs, $other), stringify!($ours.$field));
        };
    }

    #[test]
    fn structures_are_those_of_the_header() {
        assert_eq!(size_of::<CallbackData>(), size_of::<sys::CUpti_CallbackData>());
        assert_eq!(size_of::<ResourceData>(), size_of::<sys::CUpti_ResourceData>());
        assert_eq!(size_of::<GraphData>(), size_of::<sys::CUpti_GraphData>());
        assert_eq!(size_of::<ModuleData>(), size_of::<sys::CUpti_ModuleResourceData>());
        same!(CallbackData.site, CUpti_CallbackData.callbackSite);
        same!(CallbackData.function, CUpti_CallbackData.functionName);
        same!(CallbackData.parameters, CUpti_CallbackData.functionParams);
        same!(CallbackData.returned, CUpti_CallbackData.functionReturnValue);
        same!(CallbackData.symbol, CUpti_CallbackData.symbolName);
        same!(CallbackData.context, CUpti_CallbackData.context);
        same!(CallbackData.context_id, CUpti_CallbackData.contextUid);
        same!(CallbackData.own, CUpti_CallbackData.correlationData);
        same!(CallbackData.correlation, CUpti_CallbackData.correlationId);
        same!(ResourceData.context, CUpti_ResourceData.context);
        same!(ResourceData.stream, CUpti_ResourceData.resourceHandle);
        same!(ResourceData.descriptor, CUpti_ResourceData.resourceDescriptor);
        same!(GraphData.graph, CUpti_GraphData.graph);
        same!(GraphData.original_graph, CUpti_GraphData.originalGraph);
        same!(GraphData.node, CUpti_GraphData.node);
        same!(GraphData.original_node, CUpti_GraphData.originalNode);
        same!(GraphData.node_type, CUpti_GraphData.nodeType);
        same!(GraphData.dependency, CUpti_GraphData.dependency);
        same!(GraphData.exec, CUpti_GraphData.graphExec);
        same!(ModuleData.id, CUpti_ModuleResourceData.moduleId);
        same!(ModuleData.size, CUpti_ModuleResourceData.cubinSize);
        same!(ModuleData.code, CUpti_ModuleResourceData.pCubin);
    }

    #[test]
    fn resource_ids_are_those_of_the_header() {
        use sys::CUpti_CallbackIdResource as theirs;
        let header = [
            theirs::CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
            theirs::CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
            theirs::CUPTI_CBID_RESOURCE_STREAM_CREATED,
            theirs::CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING,
            theirs::CUPTI_CBID_RESOURCE_MODULE_LOADED,
            theirs::CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
            theirs::CUPTI_CBID_RESOURCE_GRAPH_CREATED,
            theirs::CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING,
            theirs::CUPTI_CBID_RESOURCE_GRAPH_CLONED,
            theirs::CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
            theirs::CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING,
            theirs::CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_CREATED,
            theirs::CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,
            theirs::CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
            theirs::CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
        ];
        assert_eq!(resource::ALL, header.map(|id| id as u32));
    }

    macro_rules! codes {
        ($($name:ident)*) => {
            [$((stringify!($name), sys::CUpti_driver_api_trace_cbid_enum::$name as u32)),*]
        };
    }

    #[test]
    fn call_ids_are_those_of_the_header() {
        let header = codes! {
            CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2 CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate_v2
            CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams
            CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2
            CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuGraphUpload CUPTI_DRIVER_TRACE_CBID_cuGraphUpload_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy CUPTI_DRIVER_TRACE_CBID_cuGraphDestroy
            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize_v2
            CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize CUPTI_DRIVER_TRACE_CBID_cuEventQuery
            CUPTI_DRIVER_TRACE_CBID_cuStreamQuery CUPTI_DRIVER_TRACE_CBID_cuStreamQuery_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemcpy CUPTI_DRIVER_TRACE_CBID_cuMemcpy_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeer CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeer_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DUnaligned_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DUnaligned_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemcpy3D_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpy3D_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD8_v2 CUPTI_DRIVER_TRACE_CBID_cuMemsetD8_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD16_v2 CUPTI_DRIVER_TRACE_CBID_cuMemsetD16_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD32_v2 CUPTI_DRIVER_TRACE_CBID_cuMemsetD32_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8_v2 CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16_v2 CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32_v2 CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32_v2_ptds
            CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime_v2
            CUPTI_DRIVER_TRACE_CBID_cuStreamCreate CUPTI_DRIVER_TRACE_CBID_cuStreamCreateWithPriority
            CUPTI_DRIVER_TRACE_CBID_cuEventCreate CUPTI_DRIVER_TRACE_CBID_cuEventDestroy
            CUPTI_DRIVER_TRACE_CBID_cuEventDestroy_v2 CUPTI_DRIVER_TRACE_CBID_cuGraphDestroyNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphClone
            CUPTI_DRIVER_TRACE_CBID_cuModuleLoad CUPTI_DRIVER_TRACE_CBID_cuModuleLoadData
            CUPTI_DRIVER_TRACE_CBID_cuModuleLoadFatBinary CUPTI_DRIVER_TRACE_CBID_cuLibraryLoadFromFile
            CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2
            CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2 CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2
            CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged CUPTI_DRIVER_TRACE_CBID_cuMemCreate
            CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc_v2 CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2
            CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2 CUPTI_DRIVER_TRACE_CBID_cuMemRelease
            CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost
            CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemcpyNodeSetParams
            CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemsetNodeSetParams
            CUPTI_DRIVER_TRACE_CBID_cuGraphExecChildGraphNodeSetParams
            CUPTI_DRIVER_TRACE_CBID_cuGraphNodeSetEnabled CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams
            CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate CUPTI_DRIVER_TRACE_CBID_cuMemPoolDestroy
            CUPTI_DRIVER_TRACE_CBID_cuEventRecord CUPTI_DRIVER_TRACE_CBID_cuEventRecord_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuEventRecordWithFlags CUPTI_DRIVER_TRACE_CBID_cuEventRecordWithFlags_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuModuleLoadDataEx CUPTI_DRIVER_TRACE_CBID_cuLibraryLoadData
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DAsync_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DAsync_v2_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DPeerAsync CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DPeerAsync_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoAAsync_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoAAsync_v2_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoHAsync_v2 CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoHAsync_v2_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8Async CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8Async_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16Async CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16Async_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32Async CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32Async_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuLaunchHostFunc CUPTI_DRIVER_TRACE_CBID_cuLaunchHostFunc_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemcpyNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemsetNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddHostNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddChildGraphNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddEmptyNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddEventWaitNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddEventRecordNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddExternalSemaphoresSignalNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddExternalSemaphoresWaitNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemAllocNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemFreeNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddBatchMemOpNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode
            CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2
        };
        let ours: Vec<_> =
            CALLS.iter().map(|call| (format!("CUPTI_DRIVER_TRACE_CBID_{}", call.name), call.code)).collect();
        assert_eq!(ours.len(), header.len());
        for (name, code) in header {
            assert!(ours.contains(&(name.to_owned(), code)), "{name} {code}");
        }
    }

    #[test]
    fn parameters_lie_where_they_are_read() {
        use sys::*;
        assert_eq!(offset_of!(cuStreamBeginCapture_v2_params_st, mode), 8);
        assert_eq!(offset_of!(cuStreamBeginCaptureToGraph_params_st, mode), 40);
        assert_eq!(offset_of!(cuStreamEndCapture_params_st, phGraph), 8);
        assert_eq!(offset_of!(cuGraphInstantiateWithFlags_params_st, hGraph), 8);
        assert_eq!(offset_of!(cuGraphInstantiateWithParams_params_st, instantiateParams), 16);
        assert_eq!(offset_of!(cuda::CUDA_GRAPH_INSTANTIATE_PARAMS_st, result_out), 24);
        assert_eq!(offset_of!(cuGraphExecUpdate_params_st, updateResult_out), 24);
        assert_eq!(offset_of!(cuGraphExecUpdate_v2_params_st, resultInfo), 16);
        assert_eq!(offset_of!(cuda::CUgraphExecUpdateResultInfo_st, result), 0);
        assert_eq!(offset_of!(cuGraphLaunch_params_st, hStream), 8);
        assert_eq!(offset_of!(cuGraphUpload_params_st, hStream), 8);
        let plain = [
            offset_of!(cuLaunchKernel_params_st, gridDimX),
            offset_of!(cuLaunchKernel_params_st, blockDimX),
            offset_of!(cuLaunchKernel_params_st, sharedMemBytes),
            offset_of!(cuLaunchKernel_params_st, hStream),
        ];
        let cooperative = [
            offset_of!(cuLaunchCooperativeKernel_params_st, gridDimX),
            offset_of!(cuLaunchCooperativeKernel_params_st, blockDimX),
            offset_of!(cuLaunchCooperativeKernel_params_st, sharedMemBytes),
            offset_of!(cuLaunchCooperativeKernel_params_st, hStream),
        ];
        let config = [
            offset_of!(cuda::CUlaunchConfig_st, gridDimX) + 8,
            offset_of!(cuda::CUlaunchConfig_st, blockDimX) + 8,
            offset_of!(cuda::CUlaunchConfig_st, sharedMemBytes) + 8,
            offset_of!(cuda::CUlaunchConfig_st, hStream) + 8,
        ];
        assert_eq!([plain, cooperative, config], [[8, 20, 32, 40]; 3]);
        assert_eq!(offset_of!(cuda::CUlaunchConfig_st, attrs), 40);
        assert_eq!(offset_of!(cuda::CUlaunchConfig_st, numAttrs), 48);
        assert_eq!(
            (size_of::<cuda::CUlaunchAttribute>(), offset_of!(cuda::CUlaunchAttribute, value)),
            (72, 8)
        );
        assert_eq!(cuda::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION as u32, 4);
        assert_eq!(
            (
                offset_of!(cuEventRecord_params_st, hStream),
                offset_of!(cuEventRecordWithFlags_params_st, hStream)
            ),
            (8, 8)
        );
        assert_eq!(offset_of!(cuStreamWaitEvent_params_st, hEvent), 8);
        assert_eq!(offset_of!(cuMemAlloc_v2_params_st, bytesize), 8);
        assert_eq!(offset_of!(cuMemAllocManaged_params_st, bytesize), 8);
        assert_eq!(offset_of!(cuMemAllocAsync_params_st, bytesize), 8);
        assert_eq!(offset_of!(cuMemAllocFromPoolAsync_params_st, bytesize), 8);
        assert_eq!(offset_of!(cuMemCreate_params_st, size), 8);
        assert_eq!(offset_of!(cuMemAllocPitch_v2_params_st, WidthInBytes), 16);
        assert_eq!(offset_of!(cuMemAllocPitch_v2_params_st, Height), 24);
        assert_eq!(offset_of!(cuMemHostAlloc_params_st, bytesize), 8);
        assert_eq!(offset_of!(cuMemAllocHost_v2_params_st, bytesize), 8);
        assert_eq!(
            (offset_of!(cuMemFree_v2_params_st, dptr), offset_of!(cuMemFreeHost_params_st, p)),
            (0, 0)
        );
        let copies = [
            [
                offset_of!(cuMemcpyHtoDAsync_v2_params_st, srcHost),
                offset_of!(cuMemcpyHtoDAsync_v2_params_st, ByteCount),
                offset_of!(cuMemcpyHtoDAsync_v2_params_st, hStream),
            ],
            [
                offset_of!(cuMemcpyDtoHAsync_v2_params_st, srcDevice),
                offset_of!(cuMemcpyDtoHAsync_v2_params_st, ByteCount),
                offset_of!(cuMemcpyDtoHAsync_v2_params_st, hStream),
            ],
            [
                offset_of!(cuMemcpyDtoDAsync_v2_params_st, srcDevice),
                offset_of!(cuMemcpyDtoDAsync_v2_params_st, ByteCount),
                offset_of!(cuMemcpyDtoDAsync_v2_params_st, hStream),
            ],
            [
                offset_of!(cuMemcpyAsync_params_st, src),
                offset_of!(cuMemcpyAsync_params_st, ByteCount),
                offset_of!(cuMemcpyAsync_params_st, hStream),
            ],
        ];
        assert_eq!(copies, [[8, 16, 24]; 4]);
        assert_eq!(offset_of!(cuMemcpyHtoD_v2_params_st, ByteCount), 16);
        assert_eq!(offset_of!(cuMemHostRegister_v2_params_st, bytesize), 8);
        let sets = [
            [
                offset_of!(cuMemsetD8Async_params_st, dstDevice),
                offset_of!(cuMemsetD8Async_params_st, N),
                offset_of!(cuMemsetD8Async_params_st, hStream),
            ],
            [
                offset_of!(cuMemsetD16Async_params_st, dstDevice),
                offset_of!(cuMemsetD16Async_params_st, N),
                offset_of!(cuMemsetD16Async_params_st, hStream),
            ],
            [
                offset_of!(cuMemsetD32Async_params_st, dstDevice),
                offset_of!(cuMemsetD32Async_params_st, N),
                offset_of!(cuMemsetD32Async_params_st, hStream),
            ],
        ];
        assert_eq!(sets, [[0, 16, 24]; 3]);
        assert!(CALLS.iter().any(|call| call.sort == Sort::Load));
    }
}
