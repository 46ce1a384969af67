//! The parameters of watched calls.
#![expect(unsafe_code, reason = "parameters are C structures, read by offset; `abi` tests the offsets")]

use core::ffi::c_void;
use gtop_protocol::calls::{Call, Sort};
use gtop_protocol::lifecycle::{BLOCKING, Event, NOT_BLOCKING};

/// Attributes of a launch that are looked at.
const MOST_ATTRIBUTES: usize = 16;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTER_DIMENSION: u32 = 4;
/// Where a `CUDA_MEM_ALLOC_NODE_PARAMS` has its size, and where a `CUgraphNodeParams` with one in it does.
const NODE_BYTES: usize = 104;
const ANY_NODE_BYTES: usize = 120;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `sizeof(CUlaunchAttribute)`.
const ATTRIBUTE_LEN: usize = 72;

/// A structure of the application or the driver.
#[derive(Clone, Copy)]
pub(super) struct Parameters(*const u8);

impl Parameters {
    /// # Safety
    /// Null, or a structure as the driver's headers say, readable while this lives, whose pointers are null or
    /// readable as far as the calls below follow them.
    pub(super) const unsafe fn new(structure: *const c_void) -> Self {
        Self(structure.cast())
    }

    fn read<T: Copy + Default>(self, offset: usize) -> T {
        if self.0.is_null() {
            return T::default();
        }
        // SAFETY: within the structure, by the promise made in `new`; nothing is said of its alignment.
        unsafe { self.0.wrapping_add(offset).cast::<T>().read_unaligned() }
    }

    fn u64(self, offset: usize) -> u64 {
        self.read(offset)
    }

    fn u32(self, offset: usize) -> u32 {
        self.read(offset)
    }

    /// What the pointer at this offset points to; nothing lies in the first page.
    fn behind(self, offset: usize) -> Self {
        let pointer = self.u64(offset);
        Self(if pointer < 4096 { core::ptr::null() } else { pointer as usize as *const u8 })
    }
}

/// Takes out of the parameters what the event of the call tells. What the call was to write is looked at only if it
/// went well.
pub(super) fn read(call: &Call, result: u32, from: Parameters, event: &mut Event) {
    let ok = result == 0;
    let given = |from: Parameters| if ok { from.u64(0) } else { 0 };
    match call.sort {
        Sort::Begin => {
            event.stream = from.u64(0).into();
            event.detail = match call.code {
                495 | 496 => 0,
                720 | 721 => from.u32(40),
                _ => from.u32(8),
            }
            .into();
        }
        Sort::End => {
            event.stream = from.u64(0).into();
            event.object = given(from.behind(8)).into();
        }
        Sort::Instantiate => {
            event.object = given(from.behind(0)).into();
            event.other = from.u64(8).into();
            if matches!(call.code, 656 | 657) {
                event.detail = from.behind(16).u32(24).into();
            }
        }
        Sort::Update => {
            event.object = from.u64(0).into();
            event.other = from.u64(8).into();
            // The driver writes the reason of a failure, unless it could not even begin.
            event.detail = match call.code {
                561 => from.behind(24).u32(0),
                _ => from.behind(16).u32(0),
            }
            .into();
        }
        Sort::LaunchGraph | Sort::Upload => {
            event.object = from.u64(0).into();
            event.stream = from.u64(8).into();
        }
        Sort::DestroyExec
        | Sort::DestroyGraph
        | Sort::DestroyPool
        | Sort::Free
        | Sort::Release
        | Sort::SetNode => {
            event.object = from.u64(0).into();
        }
        Sort::Node(_) if call.points() => copy(call, from, event),
        Sort::LaunchKernel => launch(call, from, event),
        Sort::Allocate => {
            // `cuMemCreate` gives a handle, no address.
            if call.code != 549 {
                event.object = given(from.behind(0)).into();
            }
            event.bytes = match call.code {
                244 => from.u64(16).saturating_mul(from.u64(24)),
                _ => from.u64(8),
            }
            .into();
        }
        Sort::Register => event.bytes = from.u64(8).into(),
        Sort::CreatePool => event.object = given(from.behind(0)).into(),
        Sort::Wait => {
            if matches!(call.code, 126 | 440 | 125 | 439) {
                event.stream = from.u64(0).into();
            }
            if matches!(call.code, 276 | 397) {
                event.bytes = from.u64(16).into();
            }
        }
        Sort::Mark => (event.object, event.stream) = (from.u64(0).into(), from.u64(8).into()),
        Sort::Join => (event.stream, event.object) = (from.u64(0).into(), from.u64(8).into()),
        Sort::Load
        | Sort::CreateStream
        | Sort::CreateEvent
        | Sort::DestroyEvent
        | Sort::RemoveNode
        | Sort::Clone
        | Sort::Node(_)
        | Sort::NodeByParameters => {}
    }
}

/// The type of the node that `cuGraphAddNode` adds.
pub(super) fn node_type(call: &Call, from: Parameters) -> u8 {
    let structure = if call.code == 712 { from.behind(32) } else { from.behind(40) };
    u8::try_from(structure.u32(0)).unwrap_or(u8::MAX)
}

/// The stream that a kernel or a graph is launched on; `None` where the parameters do not say.
pub(super) fn launched_on(call: &Call, from: Parameters) -> Option<u64> {
    let (from, at) = match call.sort {
        Sort::LaunchGraph => (from, 8),
        _ if matches!(call.code, 652 | 653) => (from.behind(0), 32),
        _ => (from, 40),
    };
    (!from.0.is_null()).then(|| from.u64(at))
}

/// What a call that creates a stream says of it: the `detail` of [`What::StreamCreated`].
///
/// [`What::StreamCreated`]: gtop_protocol::lifecycle::What::StreamCreated
pub(super) fn stream_created(from: Parameters) -> u32 {
    match from.u32(8) {
        _ if from.0.is_null() => 0,
        flags if flags & NON_BLOCKING != 0 => NOT_BLOCKING,
        _ => BLOCKING,
    }
}

/// How much a node allocates that the call adds or, in a capture, becomes; of `cuGraphAddNode` one that allocates.
pub(super) fn node_bytes(call: &Call, from: Parameters) -> u64 {
    match call.code {
        598 | 599 | 611 | 612 => from.u64(8),
        638 => from.behind(32).u64(NODE_BYTES),
        712 => from.behind(32).u64(ANY_NODE_BYTES),
        723 => from.behind(40).u64(ANY_NODE_BYTES),
        _ => 0,
    }
}

/// Where a copy or memory set goes and comes from.
fn copy(call: &Call, from: Parameters, event: &mut Event) {
    let element = match call.code {
        216 | 428 => 1,
        218 | 429 => 2,
        220 | 430 => 4,
        _ => 0,
    };
    event.object = from.u64(0).into();
    if element == 0 {
        event.other = from.u64(8).into();
    }
    event.bytes = from.u64(16).saturating_mul(element.max(1)).into();
    event.stream = from.u64(24).into();
}

/// The grid and all else a kernel was launched with.
fn launch(call: &Call, from: Parameters, event: &mut Event) {
    let extended = matches!(call.code, 652 | 653);
    // The plain calls have the function before, the extended ones a structure of their own.
    let (from, at) = if extended { (from.behind(0), 0) } else { (from, 8) };
    let three = |first: usize| [0, 4, 8].map(|offset: usize| from.u32(first.saturating_add(offset)).into());
    event.grid = three(at);
    event.block = three(at.saturating_add(12));
    event.bytes = u64::from(from.u32(at.saturating_add(24))).into();
    event.stream = from.u64(at.saturating_add(32)).into();
    if !extended {
        return;
    }
    let (attributes, count) = (from.behind(40), (from.u32(48) as usize).min(MOST_ATTRIBUTES));
    if attributes.0.is_null() {
        return;
    }
    for i in 0..count {
        let at = i.saturating_mul(ATTRIBUTE_LEN);
        if attributes.u32(at) == CLUSTER_DIMENSION {
            let dimension = |offset: usize| attributes.u32(at.saturating_add(offset));
            let blocks = dimension(8).saturating_mul(dimension(12)).saturating_mul(dimension(16));
            event.count = blocks.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::cupti::sys;
    use cudarc::driver::sys as cuda;
    use gtop_protocol::calls::CALLS;

    fn told<T>(code: u32, result: u32, parameters: &T) -> Event {
        let call = CALLS.iter().find(|call| call.code == code).unwrap();
        let mut event = Event::default();
        // SAFETY: structures of the driver's own headers, alive here.
        read(call, result, unsafe { Parameters::new(core::ptr::from_ref(parameters).cast()) }, &mut event);
        event
    }

    #[test]
    fn what_the_headers_structures_hold_is_told() {
        let begin = sys::cuStreamBeginCapture_v2_params_st {
            hStream: 0x70_0000 as _,
            mode: cuda::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        let event = told(539, 0, &begin);
        assert_eq!((event.stream.get(), event.detail.get()), (0x70_0000, 2));
        let mut graph: cuda::CUgraph = 0x90_0000 as _;
        let end = sys::cuStreamEndCapture_params_st { hStream: 0x70_0000 as _, phGraph: &raw mut graph };
        assert_eq!((told(497, 0, &end).object.get(), told(497, 901, &end).object.get()), (0x90_0000, 0));
        let mut info: cuda::CUgraphExecUpdateResultInfo = unsafe { core::mem::zeroed() };
        info.result = cuda::CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        let update = sys::cuGraphExecUpdate_v2_params_st {
            hGraphExec: 0xe0_0000 as _,
            hGraph: graph,
            resultInfo: &raw mut info,
        };
        let event = told(696, 910, &update);
        assert_eq!((event.object.get(), event.other.get(), event.detail.get()), (0xe0_0000, 0x90_0000, 2));
    }

    #[test]
    fn what_a_node_allocates_is_where_the_header_says() {
        use std::mem::offset_of;
        assert_eq!(NODE_BYTES, offset_of!(cuda::CUDA_MEM_ALLOC_NODE_PARAMS_v1_st, bytesize));
        let of_any = offset_of!(cuda::CUgraphNodeParams_st, __bindgen_anon_1);
        let bytes = offset_of!(cuda::CUDA_MEM_ALLOC_NODE_PARAMS_v2_st, bytesize);
        assert_eq!(ANY_NODE_BYTES, of_any + bytes);
        let call = |code: u32| CALLS.iter().find(|call| call.code == code).unwrap();
        let size = |code: u32, parameters: &[u64]| {
            // SAFETY: numbers, and pointers to what lives here.
            node_bytes(call(code), unsafe { Parameters::new(parameters.as_ptr().cast()) })
        };
        let mut node = [0u64; 16];
        node[13] = 5 << 20;
        assert_eq!(size(638, &[0, 0, 0, 0, node.as_ptr() as u64]), 5 << 20);
        let mut any = [0u64; 18];
        any[15] = 6 << 20;
        assert_eq!(size(712, &[0, 0, 0, 0, any.as_ptr() as u64]), 6 << 20);
        assert_eq!(size(723, &[0, 0, 0, 0, 0, any.as_ptr() as u64]), 6 << 20);
        assert_eq!([598, 599, 611, 612].map(|code| size(code, &[0, 7 << 20, 0, 0])), [7 << 20; 4]);
        assert_eq!((size(639, &[0; 8]), size(638, &[0; 8])), (0, 0));
    }

    #[test]
    fn streams_are_where_the_header_says() {
        use std::mem::offset_of;
        assert_eq!(NON_BLOCKING, cuda::CUstream_flags::CU_STREAM_NON_BLOCKING as u32);
        assert_eq!(8, offset_of!(sys::cuStreamCreate_params_st, Flags));
        assert_eq!(8, offset_of!(sys::cuStreamCreateWithPriority_params_st, flags));
        assert_eq!(8, offset_of!(sys::cuGraphLaunch_params_st, hStream));
        assert_eq!(40, offset_of!(sys::cuLaunchKernel_params_st, hStream));
        assert_eq!(40, offset_of!(sys::cuLaunchCooperativeKernel_params_st, hStream));
        assert_eq!(32, offset_of!(cuda::CUlaunchConfig, hStream));
        let call = |code: u32| CALLS.iter().find(|call| call.code == code).unwrap();
        let parameters = [9, 1u64, 0, 0, 0, 7];
        // SAFETY: numbers, and pointers to what lives here.
        let from = |of: &[u64]| unsafe { Parameters::new(of.as_ptr().cast()) };
        assert_eq!(
            (launched_on(call(307), from(&parameters)), launched_on(call(514), from(&parameters))),
            (Some(7), Some(1))
        );
        let config = [0u64, 0, 0, 0, 5];
        assert_eq!(launched_on(call(652), from(&[config.as_ptr() as u64])), Some(5));
        assert_eq!(launched_on(call(652), from(&[0])), None, "nothing says that it is no stream's");
        assert_eq!([[0, 0], [0, 1]].map(|of| stream_created(from(&of))), [BLOCKING, NOT_BLOCKING]);
        // SAFETY: null.
        let nothing = unsafe { Parameters::new(core::ptr::null()) };
        assert_eq!((launched_on(call(307), nothing), stream_created(nothing)), (None, 0));
    }

    #[test]
    fn a_launch_is_told_by_both_kinds_of_call() {
        // SAFETY: structures of numbers and pointers.
        let mut config: cuda::CUlaunchConfig = unsafe { core::mem::zeroed() };
        let mut attribute: cuda::CUlaunchAttribute = unsafe { core::mem::zeroed() };
        attribute.id = cuda::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim = cuda::CUlaunchAttributeValue_union__bindgen_ty_1 { x: 8, y: 2, z: 1 };
        (config.gridDimX, config.gridDimY, config.gridDimZ) = (9, 8, 7);
        (config.blockDimX, config.blockDimY, config.blockDimZ) = (2048, 1, 1);
        (config.sharedMemBytes, config.attrs, config.numAttrs) = (300_000, &raw mut attribute, 1);
        let extended = sys::cuLaunchKernelEx_params_st {
            config: (&raw const config).cast(),
            f: core::ptr::null_mut(),
            kernelParams: core::ptr::null_mut(),
            extra: core::ptr::null_mut(),
        };
        let event = told(652, 1, &extended);
        assert_eq!(event.grid.map(zerocopy::U32::get), [9, 8, 7]);
        assert_eq!(event.block.map(zerocopy::U32::get), [2048, 1, 1]);
        assert_eq!((event.bytes.get(), event.count.get()), (300_000, 16));
        // SAFETY: as above.
        let mut plain: sys::cuLaunchKernel_params_st = unsafe { core::mem::zeroed() };
        (plain.gridDimX, plain.blockDimZ, plain.sharedMemBytes, plain.hStream) =
            (5, 65, 4096, 0x70_0000 as _);
        let event = told(307, 1, &plain);
        assert_eq!((event.grid[0].get(), event.block[2].get()), (5, 65));
        assert_eq!((event.bytes.get(), event.stream.get()), (4096, 0x70_0000));
    }

    #[test]
    fn absent_parameters_tell_nothing() {
        for call in CALLS {
            let mut event = Event::default();
            // SAFETY: null.
            read(call, 0, unsafe { Parameters::new(core::ptr::null()) }, &mut event);
            assert_eq!(event, Event::default(), "{}", call.name);
        }
    }
}
