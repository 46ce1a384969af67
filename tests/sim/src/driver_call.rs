//! Calls of the driver that do nothing but be called back: a capture that fails, an update that is refused, a launch
//! with too large a block.
#![allow(unsafe_code, reason = "parameters are C structures")]

use crate::callbacks::{call_back, handle};
use crate::cupti::Cupti;
use crate::scenario::{ScenarioError, Step};
use std::ffi::CStr;

/// The functions there are, with their callback ids.
const FUNCTIONS: [(&CStr, u32); 26] = [
    (c"cuStreamBeginCapture_v2", 539),
    (c"cuStreamEndCapture", 497),
    (c"cuGraphInstantiateWithFlags", 643),
    (c"cuGraphExecUpdate_v2", 696),
    (c"cuGraphLaunch", 514),
    (c"cuGraphLaunch_ptsz", 515),
    (c"cuGraphUpload", 580),
    (c"cuGraphExecDestroy", 516),
    (c"cuGraphDestroy", 517),
    (c"cuMemAlloc_v2", 243),
    (c"cuStreamSynchronize", 126),
    (c"cuEventQuery", 120),
    (c"cuLaunchKernel", 307),
    (c"cuMemPoolCreate", 607),
    (c"cuMemPoolDestroy", 608),
    (c"cuEventRecord", 119),
    (c"cuStreamWaitEvent", 295),
    (c"cuMemFree_v2", 245),
    (c"cuMemsetD8Async", 216),
    (c"cuMemcpyDtoD_v2", 280),
    (c"cuMemHostRegister_v2", 379),
    (c"cuModuleLoadData", 19),
    (c"cuLibraryLoadFromFile", 679),
    (c"cuEventElapsedTime", 123),
    (c"cuEventCreate", 118),
    (c"cuEventDestroy_v2", 325),
];

/// One call.
#[derive(Clone)]
pub(crate) struct DriverCall {
    name: &'static CStr,
    id: u32,
    result: u32,
    detail: u32,
    stream: u32,
    bytes: u64,
    address: u64,
    symbol: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    pub(crate) ns: u64,
    /// The graph whose executable it is about.
    pub(crate) of: Option<usize>,
    /// The id of that executable.
    pub(crate) graph: u32,
}

impl DriverCall {
    /// A call that goes well.
    pub(crate) fn new(name: &str, stream: u32) -> Self {
        let (name, id) = function(name).unwrap_or((c"", 0));
        Self {
            name,
            id,
            result: 0,
            detail: 0,
            stream,
            bytes: 0,
            address: 0,
            symbol: 0,
            grid: [1; 3],
            block: [1; 3],
            shared: 0,
            ns: 1_000,
            of: None,
            graph: 0,
        }
    }

    /// The same call about the executable graph with this id.
    pub(crate) const fn about(mut self, graph: u32) -> Self {
        self.graph = graph;
        self
    }

    /// The same call of so many bytes.
    pub(crate) const fn of_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// The call that a step describes.
    ///
    /// # Errors
    /// There is no such function here.
    pub(crate) fn from_step(
        name: &str,
        step: &Step,
        stream: u32,
        of: Option<usize>,
        cupti: &Cupti,
    ) -> Result<Self, ScenarioError> {
        if function(name).is_none() {
            let known: Vec<_> = FUNCTIONS.iter().map(|(name, _)| name.to_string_lossy()).collect();
            return Err(ScenarioError(format!("`{name}` cannot be called; there are {}", known.join(", "))));
        }
        let plain = Self::new(name, step.stream.unwrap_or(stream));
        Ok(Self {
            result: step.result.unwrap_or(0),
            detail: step.detail.unwrap_or(0),
            bytes: step.bytes.unwrap_or(0),
            address: step.address.unwrap_or(0),
            symbol: step.symbol.as_ref().map_or(0, |name| crate::program::name_address(name, cupti)),
            grid: step.grid.unwrap_or([1; 3]),
            block: step.block.unwrap_or([1; 3]),
            shared: step.shared.map_or(0, |[_, dynamic]| dynamic),
            ns: step.ns.unwrap_or(plain.ns),
            of,
            ..plain
        })
    }

    /// Calls the subscriber back at its begin and its end.
    pub(crate) fn call_back(&self, cupti: &Cupti, context: usize) {
        if !cupti.calls_back() {
            return;
        }
        let stream = (handle::STREAM + self.stream as usize) as u64;
        let exec = (handle::EXEC + self.graph as usize) as u64;
        let graph = (handle::GRAPH + (self.graph | handle::SOURCE) as usize) as u64;
        let address = |value: &u64| std::ptr::from_ref(value) as u64;
        let (given_exec, given_graph) = (exec, if self.result == 0 { graph } else { 0 });
        let update = u64::from(self.detail);
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [gx, gy, gz] = self.grid;
        let [bx, by, bz] = self.block;
        let parameters: Vec<u64> = match self.id {
            539 => vec![stream, u64::from(self.detail)],
            497 => vec![stream, address(&given_graph)],
            643 => vec![address(&given_exec), graph, 0],
            696 => vec![exec, graph, address(&update)],
            514 | 515 | 580 => vec![exec, stream],
            516 | 608 => vec![exec],
            517 => vec![graph],
            243 => vec![address(&self.address), self.bytes],
            245 => vec![self.address],
            216 => vec![self.address, 0, self.bytes, stream],
            126 => vec![stream],
            307 => vec![1, word(gx, gy), word(gz, bx), word(by, bz), u64::from(self.shared), stream, 0, 0],
            607 => vec![address(&given_exec), 0],
            119 => vec![u64::from(self.detail), stream],
            295 => vec![stream, u64::from(self.detail), 0],
            _ => vec![0; 4],
        };
        call_back(cupti, context, (self.id, self.name), &parameters, self.result, self.symbol);
    }
}

fn function(name: &str) -> Option<(&'static CStr, u32)> {
    FUNCTIONS.iter().find(|(known, _)| known.to_bytes() == name.as_bytes()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::cupti::sys::CUpti_driver_api_trace_cbid_enum as header;

    macro_rules! codes {
        ($($name:ident)*) => {
            [$((stringify!($name), header::$name as u32)),*]
        };
    }

    #[test]
    fn the_ids_are_those_of_the_header() {
        let header = codes! {
            CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2 CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture
            CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2
            CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz
            CUPTI_DRIVER_TRACE_CBID_cuGraphUpload CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy
            CUPTI_DRIVER_TRACE_CBID_cuGraphDestroy CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2
            CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize CUPTI_DRIVER_TRACE_CBID_cuEventQuery
            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate
            CUPTI_DRIVER_TRACE_CBID_cuMemPoolDestroy CUPTI_DRIVER_TRACE_CBID_cuEventRecord
            CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2
            CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2
            CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2 CUPTI_DRIVER_TRACE_CBID_cuModuleLoadData
            CUPTI_DRIVER_TRACE_CBID_cuLibraryLoadFromFile CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime
            CUPTI_DRIVER_TRACE_CBID_cuEventCreate CUPTI_DRIVER_TRACE_CBID_cuEventDestroy_v2
        };
        for ((ours, id), (theirs, code)) in FUNCTIONS.iter().zip(header) {
            assert_eq!(
                (format!("CUPTI_DRIVER_TRACE_CBID_{}", ours.to_str().unwrap()), *id),
                (theirs.to_owned(), code)
            );
        }
    }
}
