//! The driver calls that the troubles need. What is made is given back only where a trouble says so: that is the point.
#![expect(clippy::unused_self, reason = "each call needs the device whose context is current")]
#![expect(unsafe_code, reason = "the driver API is a C API")]

use std::ffi::{CString, c_uint, c_void};
use std::fmt::{Debug, Write as _};
use std::ptr::{self, null_mut};

use cudarc::driver::sys;

/// Calls a function of the driver; a failure is its name and what it said.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles are live unless a trouble is about just that; pointers are to locals.
        unsafe { sys::$function($($argument),*) }
            .result()
            .map_err(|error| format!("{}: {} ({})", stringify!($function), name_of(&error), error.0 as u32))
    };
}

fn name_of(error: &impl Debug) -> String {
    format!("{error:?}")
}

const NOTHING: &str = ".version 7.0\n.target sm_75\n.address_size 64\n\
    .visible .entry gtop_trouble_empty() { ret; }\n\
    .visible .entry gtop_trouble_busy(.param .u32 p_n) { .reg .b32 %r<4>; .reg .pred %p; \
    ld.param.u32 %r0, [p_n]; mov.u32 %r1, %clock; L: mov.u32 %r2, %clock; sub.u32 %r3, %r2, %r1; \
    setp.lt.u32 %p, %r3, %r0; @%p bra L; ret; }\n";

/// Device 0 with its primary context.
pub(crate) struct Gpu {
    device: sys::CUdevice,
    context: sys::CUcontext,
    empty: sys::CUfunction,
    busy: sys::CUfunction,
}

// SAFETY: a context and its functions may be used by any thread.
unsafe impl Sync for Gpu {}

/// A kernel of a module of its own.
#[derive(Clone, Copy)]
pub(crate) struct Kernel(sys::CUfunction);

/// A second context.
pub(crate) struct Other(sys::CUcontext);

/// A stream of its own.
pub(crate) struct Stream(sys::CUstream);

/// An executable graph; lost, not destroyed, when it goes out of scope.
pub(crate) struct Exec(sys::CUgraphExec);

impl Gpu {
    /// Opens it; `None` when there is no GPU.
    pub(crate) fn open() -> Result<Option<Self>, String> {
        // SAFETY: loading libcuda has no precondition.
        if !unsafe { sys::is_culib_present() } || cu!(cuInit(0)).is_err() {
            return Ok(None);
        }
        let (mut device, mut context) = (0, null_mut());
        cu!(cuDeviceGet(&raw mut device, 0))?;
        cu!(cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        cu!(cuCtxSetCurrent(context))?;
        let (empty, busy) = functions()?;
        Ok(Some(Self { device, context, empty, busy }))
    }

    pub(crate) fn load_module(&self) -> Result<(), String> {
        functions().map(|_| ())
    }

    pub(crate) fn stream(&self) -> Result<Stream, String> {
        self.stream_of(sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING)
    }

    /// A stream that waits for the legacy default stream, and for which that waits.
    pub(crate) fn blocking_stream(&self) -> Result<Stream, String> {
        self.stream_of(sys::CUstream_flags_enum::CU_STREAM_DEFAULT)
    }

    fn stream_of(&self, flags: sys::CUstream_flags_enum) -> Result<Stream, String> {
        let mut stream = null_mut();
        cu!(cuStreamCreate(&raw mut stream, flags as c_uint)).map(|()| Stream(stream))
    }

    pub(crate) fn event(&self) -> Result<sys::CUevent, String> {
        let mut event = null_mut();
        cu!(cuEventCreate(&raw mut event, 2)).map(|()| event)
    }

    pub(crate) fn tiny(&self, stream: &Stream) -> Result<(), String> {
        self.launch(stream, [1, 1, 1], [32, 1, 1], 0)
    }

    /// Some ten microseconds of work: 20,000 cycles, counted, since a loop of nothing is compiled away.
    pub(crate) fn busy(&self, stream: &Stream) -> Result<(), String> {
        let mut cycles = 20_000u32;
        let mut arguments = [(&raw mut cycles).cast::<c_void>()];
        let (arguments, none) = (arguments.as_mut_ptr(), null_mut());
        cu!(cuLaunchKernel(self.busy, 1, 1, 1, 32, 1, 1, 0, stream.0, arguments, none))
    }

    pub(crate) fn launch(
        &self,
        stream: &Stream,
        [gx, gy, gz]: [c_uint; 3],
        [bx, by, bz]: [c_uint; 3],
        shared: c_uint,
    ) -> Result<(), String> {
        cu!(cuLaunchKernel(self.empty, gx, gy, gz, bx, by, bz, shared, stream.0, null_mut(), null_mut()))
    }

    /// The same with another kernel.
    pub(crate) fn launch_of(
        &self,
        Kernel(kernel): Kernel,
        stream: &Stream,
        [gx, gy, gz]: [c_uint; 3],
        [bx, by, bz]: [c_uint; 3],
        shared: c_uint,
    ) -> Result<(), String> {
        let mut out = 0u64;
        let mut arguments = [(&raw mut out).cast::<c_void>()];
        let arguments = arguments.as_mut_ptr();
        cu!(cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream.0, arguments, null_mut()))
    }

    /// A kernel that keeps 200 values at once, so that a thread of it has all the registers there can be.
    pub(crate) fn hungry(&self) -> Result<Kernel, String> {
        let mut text = String::from(
            ".version 7.0\n.target sm_75\n.address_size 64\n\
             .visible .entry gtop_trouble_hungry(.param .u64 p_out) { .reg .b32 %r<201>; .reg .b64 %d; .reg .pred %p; \
             ld.param.u64 %d, [p_out]; setp.eq.u64 %p, %d, 0; @%p ret;\n",
        );
        // Loaded one by one, each with a use after all of them are.
        for i in 0..200 {
            let _ = writeln!(text, "ld.volatile.global.u32 %r{i}, [%d+{}];", i * 4);
        }
        for i in 0..200 {
            let _ = writeln!(text, "st.volatile.global.u32 [%d+{}], %r{i};", (199 - i) * 4);
        }
        text.push_str("ret; }\n");
        let mut module = null_mut();
        let ptx = CString::new(text).unwrap_or_default();
        cu!(cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()))?;
        let mut kernel = null_mut();
        cu!(cuModuleGetFunction(&raw mut kernel, module, c"gtop_trouble_hungry".as_ptr()))?;
        Ok(Kernel(kernel))
    }

    /// A cooperative launch of so many blocks.
    pub(crate) fn cooperative(&self, stream: &Stream, blocks: c_uint) -> Result<(), String> {
        cu!(cuLaunchCooperativeKernel(self.empty, blocks, 1, 1, 1024, 1, 1, 0, stream.0, null_mut()))
    }

    /// A launch of one cluster of so many blocks.
    pub(crate) fn cluster(&self, stream: &Stream, blocks: c_uint) -> Result<(), String> {
        // SAFETY: all zeros are valid values of both to fill.
        let (mut config, mut attribute): (sys::CUlaunchConfig, sys::CUlaunchAttribute) =
            unsafe { std::mem::zeroed() };
        attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim =
            sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 };
        (config.gridDimX, config.gridDimY, config.gridDimZ) = (blocks, 1, 1);
        (config.blockDimX, config.blockDimY, config.blockDimZ) = (32, 1, 1);
        (config.hStream, config.attrs, config.numAttrs) = (stream.0, &raw mut attribute, 1);
        cu!(cuLaunchKernelEx(&raw const config, self.empty, null_mut(), null_mut()))
    }

    /// Loads what is no code.
    pub(crate) fn load_nonsense(&self) -> Result<(), String> {
        let mut module = null_mut();
        cu!(cuModuleLoadData(&raw mut module, c"this is no code".as_ptr().cast()))
    }

    /// Makes another context, which is current from then on.
    pub(crate) fn other_context(&self) -> Result<Other, String> {
        let mut other = null_mut();
        cu!(cuCtxCreate_v4(&raw mut other, null_mut(), 0, self.device))?;
        Ok(Other(other))
    }

    /// Back to the first context.
    pub(crate) fn leave(&self, Other(other): Other) -> Result<(), String> {
        cu!(cuCtxSetCurrent(self.context))?;
        cu!(cuCtxDestroy_v2(other))
    }

    /// Allocates on a thread that has no context yet.
    pub(crate) fn allocate_here(&self, bytes: usize) -> Result<sys::CUdeviceptr, String> {
        cu!(cuCtxSetCurrent(self.context))?;
        self.allocate(bytes)
    }

    /// Takes the last node out of a graph.
    pub(crate) fn remove_last_node(&self, graph: sys::CUgraph) -> Result<(), String> {
        let mut nodes = [null_mut(); 64];
        let mut count = nodes.len();
        cu!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count))?;
        let last = count.checked_sub(1).and_then(|last| nodes.get(last).copied());
        cu!(cuGraphDestroyNode(last.unwrap_or_default()))?;
        println!("nodes={}", count.saturating_sub(1));
        Ok(())
    }

    /// A graph of kernels and child graphs, in this order: `None` is a kernel.
    pub(crate) fn graph_of(&self, parts: &[Option<sys::CUgraph>]) -> Result<sys::CUgraph, String> {
        let mut graph = null_mut();
        cu!(cuGraphCreate(&raw mut graph, 0))?;
        // SAFETY: all zeros is a valid value to fill.
        let mut kernel: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        kernel.func = self.empty;
        (kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) = (1, 1, 1);
        (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) = (32, 1, 1);
        let (mut node, mut before) = (null_mut(), None);
        for part in parts {
            let after = before.as_ref().map_or(ptr::null(), ptr::from_ref);
            let count = usize::from(before.is_some());
            match part {
                Some(child) => cu!(cuGraphAddChildGraphNode(&raw mut node, graph, after, count, *child))?,
                None => cu!(cuGraphAddKernelNode_v2(&raw mut node, graph, after, count, &raw const kernel))?,
            }
            before = Some(node);
        }
        Ok(graph)
    }

    pub(crate) fn clone_of(&self, graph: sys::CUgraph) -> Result<sys::CUgraph, String> {
        let mut clone = null_mut();
        cu!(cuGraphClone(&raw mut clone, graph)).map(|()| clone)
    }

    /// Memory from the device's pool.
    pub(crate) fn allocate_from_pool(
        &self,
        stream: &Stream,
        bytes: usize,
    ) -> Result<sys::CUdeviceptr, String> {
        let mut address = 0;
        cu!(cuMemAllocAsync(&raw mut address, bytes, stream.0)).map(|()| address)
    }

    /// Memory that is mapped into virtual addresses.
    pub(crate) fn map(&self, bytes: usize) -> Result<sys::CUdeviceptr, String> {
        // SAFETY: all zeros are valid values to fill.
        let (mut what, mut access): (sys::CUmemAllocationProp, sys::CUmemAccessDesc) =
            unsafe { std::mem::zeroed() };
        what.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        what.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        access.location = what.location;
        access.flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let (mut handle, mut address) = (0, 0);
        cu!(cuMemCreate(&raw mut handle, bytes, &raw const what, 0))?;
        cu!(cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0))?;
        cu!(cuMemMap(address, bytes, 0, handle, 0))?;
        cu!(cuMemSetAccess(address, bytes, &raw const access, 1))?;
        Ok(address)
    }

    /// A graph of so many kernels, captured.
    pub(crate) fn capture(&self, stream: &Stream, kernels: usize) -> Result<sys::CUgraph, String> {
        stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        (0..kernels).try_for_each(|_| self.tiny(stream))?;
        stream.end_capture()
    }

    pub(crate) fn instantiate(&self, graph: sys::CUgraph) -> Result<Exec, String> {
        let mut exec = null_mut();
        cu!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)).map(|()| Exec(exec))
    }

    pub(crate) fn destroy_graph(&self, graph: sys::CUgraph) -> Result<(), String> {
        cu!(cuGraphDestroy(graph))
    }

    pub(crate) fn destroy_exec(&self, exec: sys::CUgraphExec) -> Result<(), String> {
        cu!(cuGraphExecDestroy(exec))
    }

    /// An executable graph of so many kernels, its graph destroyed.
    pub(crate) fn exec(&self, stream: &Stream, kernels: usize) -> Result<Exec, String> {
        let graph = self.capture(stream, kernels)?;
        let exec = self.instantiate(graph)?;
        self.destroy_graph(graph)?;
        Ok(exec)
    }

    pub(crate) fn exec_that_allocates(
        &self,
        stream: &Stream,
        bytes: usize,
        frees: bool,
    ) -> Result<Exec, String> {
        stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let mut address = 0;
        cu!(cuMemAllocAsync(&raw mut address, bytes, stream.0))?;
        cu!(cuMemsetD8Async(address, 0, bytes, stream.0))?;
        if frees {
            cu!(cuMemFreeAsync(address, stream.0))?;
        }
        let graph = stream.end_capture()?;
        let exec = self.instantiate(graph)?;
        self.destroy_graph(graph)?;
        Ok(exec)
    }

    /// An executable graph of a memory set and a kernel.
    pub(crate) fn exec_that_sets(
        &self,
        stream: &Stream,
        address: sys::CUdeviceptr,
        bytes: usize,
    ) -> Result<Exec, String> {
        stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        cu!(cuMemsetD8Async(address, 0, bytes, stream.0))?;
        self.tiny(stream)?;
        let graph = stream.end_capture()?;
        let exec = self.instantiate(graph)?;
        self.destroy_graph(graph)?;
        Ok(exec)
    }

    pub(crate) fn update(&self, exec: &Exec, graph: sys::CUgraph) -> Result<(), String> {
        // SAFETY: all zeros is a valid value to fill.
        let mut info: sys::CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
        cu!(cuGraphExecUpdate_v2(exec.0, graph, &raw mut info))
    }

    pub(crate) fn trim(&self) -> Result<(), String> {
        cu!(cuDeviceGraphMemTrim(self.device))
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<sys::CUdeviceptr, String> {
        let mut address = 0;
        cu!(cuMemAlloc_v2(&raw mut address, bytes)).map(|()| address)
    }

    pub(crate) fn free(&self, address: sys::CUdeviceptr) -> Result<(), String> {
        cu!(cuMemFree_v2(address))
    }
}

fn functions() -> Result<(sys::CUfunction, sys::CUfunction), String> {
    let mut module = null_mut();
    let ptx = CString::new(NOTHING).unwrap_or_default();
    cu!(cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()))?;
    let (mut empty, mut busy) = (null_mut(), null_mut());
    cu!(cuModuleGetFunction(&raw mut empty, module, c"gtop_trouble_empty".as_ptr()))?;
    cu!(cuModuleGetFunction(&raw mut busy, module, c"gtop_trouble_busy".as_ptr()))?;
    Ok((empty, busy))
}

extern "C" fn sleep_a_little(_: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_millis(200));
}

impl Stream {
    /// The default stream of whatever context is current.
    pub(crate) const fn default_one() -> Self {
        Self(null_mut())
    }

    pub(crate) fn synchronize(&self) -> Result<(), String> {
        cu!(cuStreamSynchronize(self.0))
    }

    pub(crate) fn begin_capture(&self, mode: sys::CUstreamCaptureMode) -> Result<(), String> {
        cu!(cuStreamBeginCapture_v2(self.0, mode))
    }

    pub(crate) fn end_capture(&self) -> Result<sys::CUgraph, String> {
        let mut graph = null_mut();
        cu!(cuStreamEndCapture(self.0, &raw mut graph)).map(|()| graph)
    }

    pub(crate) fn record(&self, event: sys::CUevent) -> Result<(), String> {
        cu!(cuEventRecord(event, self.0))
    }

    pub(crate) fn wait(&self, event: sys::CUevent) -> Result<(), String> {
        cu!(cuStreamWaitEvent(self.0, event, 0))
    }

    /// The device waits while the host sleeps 200 ms.
    pub(crate) fn sleep_on_host(&self) -> Result<(), String> {
        cu!(cuLaunchHostFunc(self.0, Some(sleep_a_little), ptr::null_mut()))
    }
}

impl Exec {
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), String> {
        cu!(cuGraphLaunch(self.0, stream.0))
    }

    pub(crate) fn destroy(self) -> Result<(), String> {
        cu!(cuGraphExecDestroy(self.0))
    }

    pub(crate) const fn handle(&self) -> sys::CUgraphExec {
        self.0
    }
}
