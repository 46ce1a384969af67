//! The little of the CUDA driver API that a load needs: one device, a few streams, two kernels, copies, graphs.
//! Only libcuda is loaded, at run time; libcudart and libcupti never are, so that what is watched stays as it was.
#![expect(unsafe_code, reason = "the driver API is a C API")]

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::fmt;
use std::ptr;

use cudarc::driver::{DriverError, sys};
use serde::{Deserialize, Serialize};

/// What one operation moves or fills, bytes.
const TRANSFER: usize = 64 << 10;
/// How many numbers [`Op::Increment`] adds to.
const NUMBERS: c_uint = 1 << 20;
const BLOCK: c_uint = 256;
/// Room for a device's name, bytes.
const NAME: c_int = 128;
/// Streams of a device; each has buffers of its own.
const STREAMS: usize = 3;

/// One thing the GPU is asked to do, on a stream or as a graph node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A kernel that does nothing.
    Empty,
    /// A kernel that takes a few microseconds.
    Increment,
    /// A copy from pinned host memory.
    HtoD,
    /// A copy to pinned host memory.
    DtoH,
    /// A copy within the device.
    DtoD,
    /// A fill.
    Memset,
}

/// A driver call that failed, or a driver that is not there.
#[derive(Debug)]
pub enum Failure {
    /// There is no libcuda to load.
    NoDriver,
    /// The driver is there but no device is.
    NoDevice,
    /// This call said this.
    Call(&'static str, DriverError),
}

impl Failure {
    /// Whether nothing is wrong but that the machine has no GPU.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NoDriver | Self::NoDevice => true,
            Self::Call(call, DriverError(error)) => {
                let absent = [sys::CUresult::CUDA_ERROR_NO_DEVICE, sys::CUresult::CUDA_ERROR_STUB_LIBRARY];
                *call == "cuInit" && absent.contains(error)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => write!(f, "no libcuda.so.1: this machine has no NVIDIA driver"),
            Self::NoDevice => write!(f, "the NVIDIA driver sees no device"),
            Self::Call(call, error) => {
                let name = error.error_name().map_or("unknown error".into(), CStr::to_string_lossy);
                write!(f, "{call}: {name} ({})", error.0 as u32)
            }
        }
    }
}

/// Calls a function of the driver; a failure carries the function's name.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles are live and of this device's context, which is current on the one thread that calls;
        // pointers are to locals or to memory of the length that is passed along, see each caller.
        unsafe { sys::$function($($argument),*) }.result().map_err(|error| Failure::Call(stringify!($function), error))
    };
}

/// Begins to use CUDA; gives the CUDA version the driver supports and how many devices there are.
fn begin() -> Result<(c_int, c_int), Failure> {
    // SAFETY: loading libcuda has no precondition. cudarc would panic at the first call without this check.
    if !unsafe { sys::is_culib_present() } {
        return Err(Failure::NoDriver);
    }
    cu!(cuInit(0))?;
    let (mut driver, mut count) = (0, 0);
    cu!(cuDriverGetVersion(&raw mut driver))?;
    cu!(cuDeviceGetCount(&raw mut count))?;
    Ok((driver, count))
}

fn device_name(handle: sys::CUdevice) -> Result<String, Failure> {
    let mut name = [0u8; NAME as usize];
    cu!(cuDeviceGetName(name.as_mut_ptr().cast(), NAME, handle))?;
    Ok(CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned())
}

/// One device as CUDA tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Its compute capability, major and minor.
    pub capability: (i32, i32),
}

/// The CUDA version the driver supports (13000 for 13.0), and every device this process may use. Makes no context.
pub fn survey() -> Result<(i32, Vec<Gpu>), Failure> {
    let (driver, count) = begin()?;
    let one = |index| {
        let (mut handle, mut capability) = (0, (0, 0));
        cu!(cuDeviceGet(&raw mut handle, index))?;
        let [major, minor] = [
            sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        cu!(cuDeviceGetAttribute(&raw mut capability.0, major, handle))?;
        cu!(cuDeviceGetAttribute(&raw mut capability.1, minor, handle))?;
        Ok(Gpu { name: device_name(handle)?, capability })
    };
    (0..count).map(one).collect::<Result<_, _>>().map(|devices| (driver, devices))
}

/// A stream and the memory that operations on it work on.
#[derive(Debug)]
struct Lane {
    stream: sys::CUstream,
    numbers: sys::CUdeviceptr,
    from: sys::CUdeviceptr,
    to: sys::CUdeviceptr,
    host: *mut c_void,
}

/// An instantiated graph.
#[derive(Debug)]
pub struct Graph(sys::CUgraphExec);

impl Drop for Graph {
    fn drop(&mut self) {
        // A failure here shows up again in the next call that is checked.
        let _ = cu!(cuGraphExecDestroy(self.0));
    }
}

/// The first device with its primary context, current on the thread that opened it.
#[derive(Debug)]
pub struct Device {
    /// The device's name.
    pub name: String,
    /// The CUDA version the driver supports, 13000 for 13.0.
    pub driver: i32,
    handle: sys::CUdevice,
    empty: sys::CUfunction,
    increment: sys::CUfunction,
    lanes: Vec<Lane>,
}

impl Device {
    /// Opens device 0, compiles the kernels and makes the streams and their memory.
    pub fn open() -> Result<Self, Failure> {
        let (driver, count) = begin()?;
        let mut handle = 0;
        if count == 0 {
            return Err(Failure::NoDevice);
        }
        cu!(cuDeviceGet(&raw mut handle, 0))?;
        let name = device_name(handle)?;

        let mut context = ptr::null_mut();
        cu!(cuDevicePrimaryCtxRetain(&raw mut context, handle))?;
        cu!(cuCtxSetCurrent(context))?;

        let mut module = ptr::null_mut();
        let ptx = CString::new(include_str!("kernels.ptx")).unwrap_or_default();
        cu!(cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()))?;
        let function = |name: &CStr| {
            let mut function = ptr::null_mut();
            cu!(cuModuleGetFunction(&raw mut function, module, name.as_ptr())).map(|()| function)
        };
        let (empty, increment) = (function(c"gtop_empty")?, function(c"gtop_increment")?);
        let lanes = (0..STREAMS).map(|_| Lane::new()).collect::<Result<_, _>>()?;
        Ok(Self { name, driver, handle, empty, increment, lanes })
    }

    /// Asks for `op` on stream `lane`, 0 to 2; a node of the graph instead while that stream is captured.
    pub fn enqueue(&self, lane: usize, op: Op) -> Result<(), Failure> {
        let lane = &self.lanes[lane];
        match op {
            Op::Empty => launch(self.empty, (1, 32), lane.stream, &mut []),
            Op::Increment => {
                let (mut numbers, mut count) = (lane.numbers, NUMBERS);
                let mut arguments = [(&raw mut numbers).cast(), (&raw mut count).cast()];
                launch(self.increment, (NUMBERS.div_ceil(BLOCK), BLOCK), lane.stream, &mut arguments)
            }
            Op::HtoD => cu!(cuMemcpyHtoDAsync_v2(lane.to, lane.host.cast_const(), TRANSFER, lane.stream)),
            Op::DtoH => cu!(cuMemcpyDtoHAsync_v2(lane.host, lane.from, TRANSFER, lane.stream)),
            Op::DtoD => cu!(cuMemcpyDtoDAsync_v2(lane.to, lane.from, TRANSFER, lane.stream)),
            Op::Memset => cu!(cuMemsetD8Async(lane.to, 0, TRANSFER, lane.stream)),
        }
    }

    /// A graph of `ops` one after the other, captured on stream 0.
    pub fn instantiate(&self, ops: &[Op]) -> Result<Graph, Failure> {
        let stream = self.lanes[0].stream;
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        cu!(cuStreamBeginCapture_v2(stream, mode))?;
        let asked = ops.iter().try_for_each(|&op| self.enqueue(0, op));
        let mut graph = ptr::null_mut();
        let captured = cu!(cuStreamEndCapture(stream, &raw mut graph));
        asked?;
        captured?;
        let mut exec = ptr::null_mut();
        let instantiated = cu!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        cu!(cuGraphDestroy(graph))?;
        instantiated?;
        Ok(Graph(exec))
    }

    /// Replays `graph` once on stream 0.
    pub fn replay(&self, graph: &Graph) -> Result<(), Failure> {
        cu!(cuGraphLaunch(graph.0, self.lanes[0].stream))
    }

    /// Free and total memory of the device, bytes, whoever uses the rest.
    pub fn memory(&self) -> Result<(u64, u64), Failure> {
        let (mut free, mut total) = (0, 0);
        cu!(cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Waits until everything asked for is done.
    pub fn synchronize(&self) -> Result<(), Failure> {
        self.lanes.iter().try_for_each(|lane| cu!(cuStreamSynchronize(lane.stream)))
    }

    /// Gives the context back, which ends streams, memory and kernels with it.
    pub fn close(self) -> Result<(), Failure> {
        cu!(cuDevicePrimaryCtxRelease_v2(self.handle))
    }
}

impl Lane {
    fn new() -> Result<Self, Failure> {
        let mut stream = ptr::null_mut();
        // Non-blocking: the default stream must not order the three.
        cu!(cuStreamCreate(&raw mut stream, sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint))?;
        let memory = |bytes| {
            let mut address = 0;
            cu!(cuMemAlloc_v2(&raw mut address, bytes)).map(|()| address)
        };
        let mut host = ptr::null_mut();
        cu!(cuMemAllocHost_v2(&raw mut host, TRANSFER))?;
        let numbers = memory(NUMBERS as usize * size_of::<u32>())?;
        Ok(Self { stream, numbers, from: memory(TRANSFER)?, to: memory(TRANSFER)?, host })
    }
}

/// Launches `function` on `blocks` blocks of `threads` threads; the driver copies what `arguments` point to.
fn launch(
    function: sys::CUfunction,
    (blocks, threads): (c_uint, c_uint),
    stream: sys::CUstream,
    arguments: &mut [*mut c_void],
) -> Result<(), Failure> {
    let (arguments, none) = (arguments.as_mut_ptr(), ptr::null_mut());
    cu!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, none))
}
