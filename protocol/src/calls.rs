//! The driver calls that are watched, one by one, and what their results mean.
//!
//! Callback ids are those of `cupti_driver_cbid.h`, which only ever grows; a CUPTI that does not know one refuses it.

use crate::node_type;

/// What a call is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// `cuStreamBeginCapture` and its kin.
    Begin,
    /// `cuStreamEndCapture`.
    End,
    /// `cuGraphInstantiate` and its kin.
    Instantiate,
    /// `cuGraphExecUpdate`.
    Update,
    /// `cuGraphLaunch`.
    LaunchGraph,
    /// `cuGraphUpload`.
    Upload,
    /// `cuGraphExecDestroy`.
    DestroyExec,
    /// `cuGraphDestroy`.
    DestroyGraph,
    /// A kernel's launch.
    LaunchKernel,
    /// A call that waits for the device, or asks how far it is.
    Wait,
    /// An allocation.
    Allocate,
    /// Pins memory of the host that is there already.
    Register,
    /// A free that waits for all that runs.
    Free,
    /// A free that waits for nothing.
    Release,
    /// Sets what a node of an executable graph does, or whether it does it.
    SetNode,
    /// `cuMemPoolCreate`.
    CreatePool,
    /// `cuMemPoolDestroy`.
    DestroyPool,
    /// `cuStreamCreate` and its kin.
    CreateStream,
    /// `cuEventCreate`.
    CreateEvent,
    /// `cuEventDestroy`.
    DestroyEvent,
    /// `cuGraphClone`.
    Clone,
    /// `cuGraphDestroyNode`, which takes a node out of a graph.
    RemoveNode,
    /// Loads code.
    Load,
    /// `cuEventRecord`.
    Mark,
    /// `cuStreamWaitEvent`.
    Join,
    /// Any other call that adds a node of this type (`CUgraphNodeType`), to a graph or to a capture. But for those of
    /// which [`Call::points`], [`Call::adds_graphs`] or [`Call::sizes_nodes`] holds it is watched only where CUPTI does
    /// not tell the types of nodes itself, and only for what type a node that is made in it has.
    Node(u8),
    /// `cuGraphAddNode`, whose parameters say the type; else as [`Self::Node`].
    NodeByParameters,
}

impl Sort {
    /// Whether calls of this sort are watched for the types of nodes, and for nothing else but what [`Call::points`],
    /// [`Call::adds_graphs`] and [`Call::sizes_nodes`] say.
    #[must_use]
    pub const fn is_for_types(self) -> bool {
        matches!(self, Self::Node(_) | Self::NodeByParameters)
    }

    /// Whether the driver makes and destroys graphs of its own within calls of this sort (measured: an executable graph
    /// has two under it).
    #[must_use]
    pub const fn has_inner_graphs(self) -> bool {
        matches!(self, Self::Instantiate | Self::Update | Self::DestroyExec)
    }
}

/// A driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// `CUPTI_DRIVER_TRACE_CBID_…`.
    pub code: u32,
    /// The function's name, for people.
    pub name: &'static str,
    /// What it is watched for.
    pub sort: Sort,
}

impl Call {
    /// The type (`CUgraphNodeType`) of a node that is made within this call, as far as the call's name says it.
    #[must_use]
    pub const fn node_type(&self) -> Option<u8> {
        match self.sort {
            Sort::LaunchKernel => Some(0),
            Sort::Join => Some(6),
            Sort::Mark => Some(7),
            Sort::Allocate if matches!(self.code, 598 | 599 | 611 | 612) => Some(10),
            Sort::Release if matches!(self.code, 600 | 601) => Some(11),
            Sort::Node(node_type) => Some(node_type),
            _ => None,
        }
    }

    /// Whether a copy of this call stays within the device, as far as the call's name says it: no copy to or from the host
    /// does, and of one between devices, or between addresses of any kind, it is not known.
    #[must_use]
    pub const fn copies_within_device(&self) -> Option<bool> {
        match self.code {
            281 | 423 => Some(true),
            277 | 279 | 283 | 293 | 419..=422 => Some(false),
            _ => None,
        }
    }

    /// Whether graphs may be made in the call for a node that it adds: child graphs, and bodies of conditional nodes.
    #[must_use]
    pub const fn adds_graphs(&self) -> bool {
        match self.sort {
            Sort::Node(node_type) => node_type::holds_graphs(node_type as u32),
            sort => matches!(sort, Sort::NodeByParameters),
        }
    }

    /// Whether the call is watched by a CUPTI that tells the types of nodes itself, or does not.
    #[must_use]
    pub const fn is_watched(&self, tells_node_types: bool) -> bool {
        let types_alone =
            self.sort.is_for_types() && !(self.points() || self.adds_graphs() || self.sizes_nodes());
        !(tells_node_types && types_alone)
    }

    /// Whether its parameters say how much a node allocates that is made of it.
    #[must_use]
    pub const fn sizes_nodes(&self) -> bool {
        matches!(self.code, 598 | 599 | 611 | 612 | 638 | 712 | 723)
    }

    /// Whether this handle stands for the legacy default stream in this call, a launch.
    #[must_use]
    pub const fn is_legacy(&self, stream: u64) -> bool {
        // In the variants for per-thread default streams 0 is one of those.
        stream == 1 || (stream == 0 && !matches!(self.code, 442 | 653 | 478 | 515))
    }

    /// Whether it allocates memory on devices, or managed memory.
    #[must_use]
    pub const fn allocates_on_devices(&self) -> bool {
        matches!(self.sort, Sort::Allocate) && !matches!(self.code, 271 | 294)
    }

    /// Whether the call says where a node that is made of it reads and writes: copies and memory sets of one piece that
    /// do not wait.
    #[must_use]
    pub const fn points(&self) -> bool {
        matches!(self.code, 277 | 279 | 281 | 306 | 418 | 421..=423 | 216 | 218 | 220 | 428..=430)
    }
}

const fn call(code: u32, name: &'static str, sort: Sort) -> Call {
    Call { code, name, sort }
}

/// Every call that is watched. `ptsz` and `ptds` are the variants for per-thread default streams.
pub const CALLS: &[Call] = &[
    call(495, "cuStreamBeginCapture", Sort::Begin),
    call(496, "cuStreamBeginCapture_ptsz", Sort::Begin),
    call(539, "cuStreamBeginCapture_v2", Sort::Begin),
    call(540, "cuStreamBeginCapture_v2_ptsz", Sort::Begin),
    call(720, "cuStreamBeginCaptureToGraph", Sort::Begin),
    call(721, "cuStreamBeginCaptureToGraph_ptsz", Sort::Begin),
    call(497, "cuStreamEndCapture", Sort::End),
    call(498, "cuStreamEndCapture_ptsz", Sort::End),
    call(513, "cuGraphInstantiate", Sort::Instantiate),
    call(578, "cuGraphInstantiate_v2", Sort::Instantiate),
    call(643, "cuGraphInstantiateWithFlags", Sort::Instantiate),
    call(656, "cuGraphInstantiateWithParams", Sort::Instantiate),
    call(657, "cuGraphInstantiateWithParams_ptsz", Sort::Instantiate),
    call(561, "cuGraphExecUpdate", Sort::Update),
    call(696, "cuGraphExecUpdate_v2", Sort::Update),
    call(514, "cuGraphLaunch", Sort::LaunchGraph),
    call(515, "cuGraphLaunch_ptsz", Sort::LaunchGraph),
    call(580, "cuGraphUpload", Sort::Upload),
    call(581, "cuGraphUpload_ptsz", Sort::Upload),
    call(516, "cuGraphExecDestroy", Sort::DestroyExec),
    call(517, "cuGraphDestroy", Sort::DestroyGraph),
    call(307, "cuLaunchKernel", Sort::LaunchKernel),
    call(442, "cuLaunchKernel_ptsz", Sort::LaunchKernel),
    call(652, "cuLaunchKernelEx", Sort::LaunchKernel),
    call(653, "cuLaunchKernelEx_ptsz", Sort::LaunchKernel),
    call(477, "cuLaunchCooperativeKernel", Sort::LaunchKernel),
    call(478, "cuLaunchCooperativeKernel_ptsz", Sort::LaunchKernel),
    call(17, "cuCtxSynchronize", Sort::Wait),
    call(800, "cuCtxSynchronize_v2", Sort::Wait),
    call(126, "cuStreamSynchronize", Sort::Wait),
    call(440, "cuStreamSynchronize_ptsz", Sort::Wait),
    call(121, "cuEventSynchronize", Sort::Wait),
    call(120, "cuEventQuery", Sort::Wait),
    call(125, "cuStreamQuery", Sort::Wait),
    call(439, "cuStreamQuery_ptsz", Sort::Wait),
    call(276, "cuMemcpyHtoD_v2", Sort::Wait),
    call(397, "cuMemcpyHtoD_v2_ptds", Sort::Wait),
    call(278, "cuMemcpyDtoH_v2", Sort::Wait),
    call(398, "cuMemcpyDtoH_v2_ptds", Sort::Wait),
    call(305, "cuMemcpy", Sort::Wait),
    call(408, "cuMemcpy_ptds", Sort::Wait),
    call(280, "cuMemcpyDtoD_v2", Sort::Wait),
    call(399, "cuMemcpyDtoD_v2_ptds", Sort::Wait),
    call(318, "cuMemcpyPeer", Sort::Wait),
    call(409, "cuMemcpyPeer_ptds", Sort::Wait),
    call(287, "cuMemcpy2D_v2", Sort::Wait),
    call(405, "cuMemcpy2D_v2_ptds", Sort::Wait),
    call(288, "cuMemcpy2DUnaligned_v2", Sort::Wait),
    call(406, "cuMemcpy2DUnaligned_v2_ptds", Sort::Wait),
    call(290, "cuMemcpy3D_v2", Sort::Wait),
    call(407, "cuMemcpy3D_v2_ptds", Sort::Wait),
    call(249, "cuMemsetD8_v2", Sort::Wait),
    call(411, "cuMemsetD8_v2_ptds", Sort::Wait),
    call(250, "cuMemsetD16_v2", Sort::Wait),
    call(412, "cuMemsetD16_v2_ptds", Sort::Wait),
    call(251, "cuMemsetD32_v2", Sort::Wait),
    call(413, "cuMemsetD32_v2_ptds", Sort::Wait),
    call(252, "cuMemsetD2D8_v2", Sort::Wait),
    call(414, "cuMemsetD2D8_v2_ptds", Sort::Wait),
    call(253, "cuMemsetD2D16_v2", Sort::Wait),
    call(415, "cuMemsetD2D16_v2_ptds", Sort::Wait),
    call(254, "cuMemsetD2D32_v2", Sort::Wait),
    call(416, "cuMemsetD2D32_v2_ptds", Sort::Wait),
    call(123, "cuEventElapsedTime", Sort::Wait),
    call(780, "cuEventElapsedTime_v2", Sort::Wait),
    call(243, "cuMemAlloc_v2", Sort::Allocate),
    call(244, "cuMemAllocPitch_v2", Sort::Allocate),
    call(371, "cuMemAllocManaged", Sort::Allocate),
    call(549, "cuMemCreate", Sort::Allocate),
    call(598, "cuMemAllocAsync", Sort::Allocate),
    call(599, "cuMemAllocAsync_ptsz", Sort::Allocate),
    call(611, "cuMemAllocFromPoolAsync", Sort::Allocate),
    call(612, "cuMemAllocFromPoolAsync_ptsz", Sort::Allocate),
    call(271, "cuMemHostAlloc_v2", Sort::Allocate),
    call(294, "cuMemAllocHost_v2", Sort::Allocate),
    call(245, "cuMemFree_v2", Sort::Free),
    call(38, "cuMemFreeHost", Sort::Free),
    call(550, "cuMemRelease", Sort::Release),
    call(600, "cuMemFreeAsync", Sort::Release),
    call(601, "cuMemFreeAsync_ptsz", Sort::Release),
    call(562, "cuGraphExecMemcpyNodeSetParams", Sort::SetNode),
    call(563, "cuGraphExecMemsetNodeSetParams", Sort::SetNode),
    call(586, "cuGraphExecChildGraphNodeSetParams", Sort::SetNode),
    call(650, "cuGraphNodeSetEnabled", Sort::SetNode),
    call(714, "cuGraphExecNodeSetParams", Sort::SetNode),
    call(607, "cuMemPoolCreate", Sort::CreatePool),
    call(608, "cuMemPoolDestroy", Sort::DestroyPool),
    call(119, "cuEventRecord", Sort::Mark),
    call(441, "cuEventRecord_ptsz", Sort::Mark),
    call(587, "cuEventRecordWithFlags", Sort::Mark),
    call(588, "cuEventRecordWithFlags_ptsz", Sort::Mark),
    call(295, "cuStreamWaitEvent", Sort::Join),
    call(436, "cuStreamWaitEvent_ptsz", Sort::Join),
    call(124, "cuStreamCreate", Sort::CreateStream),
    call(367, "cuStreamCreateWithPriority", Sort::CreateStream),
    call(118, "cuEventCreate", Sort::CreateEvent),
    call(122, "cuEventDestroy", Sort::DestroyEvent),
    call(325, "cuEventDestroy_v2", Sort::DestroyEvent),
    call(522, "cuGraphDestroyNode", Sort::RemoveNode),
    call(523, "cuGraphClone", Sort::Clone),
    call(18, "cuModuleLoad", Sort::Load),
    call(19, "cuModuleLoadData", Sort::Load),
    call(20, "cuModuleLoadDataEx", Sort::Load),
    call(21, "cuModuleLoadFatBinary", Sort::Load),
    call(678, "cuLibraryLoadData", Sort::Load),
    call(679, "cuLibraryLoadFromFile", Sort::Load),
    call(301, "cuMemHostRegister", Sort::Register),
    call(379, "cuMemHostRegister_v2", Sort::Register),
    call(306, "cuMemcpyAsync", Sort::Node(1)),
    call(418, "cuMemcpyAsync_ptsz", Sort::Node(1)),
    call(277, "cuMemcpyHtoDAsync_v2", Sort::Node(1)),
    call(421, "cuMemcpyHtoDAsync_v2_ptsz", Sort::Node(1)),
    call(279, "cuMemcpyDtoHAsync_v2", Sort::Node(1)),
    call(422, "cuMemcpyDtoHAsync_v2_ptsz", Sort::Node(1)),
    call(281, "cuMemcpyDtoDAsync_v2", Sort::Node(1)),
    call(423, "cuMemcpyDtoDAsync_v2_ptsz", Sort::Node(1)),
    call(319, "cuMemcpyPeerAsync", Sort::Node(1)),
    call(426, "cuMemcpyPeerAsync_ptsz", Sort::Node(1)),
    call(289, "cuMemcpy2DAsync_v2", Sort::Node(1)),
    call(424, "cuMemcpy2DAsync_v2_ptsz", Sort::Node(1)),
    call(291, "cuMemcpy3DAsync_v2", Sort::Node(1)),
    call(425, "cuMemcpy3DAsync_v2_ptsz", Sort::Node(1)),
    call(321, "cuMemcpy3DPeerAsync", Sort::Node(1)),
    call(427, "cuMemcpy3DPeerAsync_ptsz", Sort::Node(1)),
    call(293, "cuMemcpyHtoAAsync_v2", Sort::Node(1)),
    call(419, "cuMemcpyHtoAAsync_v2_ptsz", Sort::Node(1)),
    call(283, "cuMemcpyAtoHAsync_v2", Sort::Node(1)),
    call(420, "cuMemcpyAtoHAsync_v2_ptsz", Sort::Node(1)),
    call(216, "cuMemsetD8Async", Sort::Node(2)),
    call(428, "cuMemsetD8Async_ptsz", Sort::Node(2)),
    call(218, "cuMemsetD16Async", Sort::Node(2)),
    call(429, "cuMemsetD16Async_ptsz", Sort::Node(2)),
    call(220, "cuMemsetD32Async", Sort::Node(2)),
    call(430, "cuMemsetD32Async_ptsz", Sort::Node(2)),
    call(222, "cuMemsetD2D8Async", Sort::Node(2)),
    call(431, "cuMemsetD2D8Async_ptsz", Sort::Node(2)),
    call(224, "cuMemsetD2D16Async", Sort::Node(2)),
    call(432, "cuMemsetD2D16Async_ptsz", Sort::Node(2)),
    call(226, "cuMemsetD2D32Async", Sort::Node(2)),
    call(433, "cuMemsetD2D32Async_ptsz", Sort::Node(2)),
    call(527, "cuLaunchHostFunc", Sort::Node(3)),
    call(528, "cuLaunchHostFunc_ptsz", Sort::Node(3)),
    call(504, "cuGraphAddMemcpyNode", Sort::Node(1)),
    call(506, "cuGraphAddMemsetNode", Sort::Node(2)),
    call(530, "cuGraphAddHostNode", Sort::Node(3)),
    call(525, "cuGraphAddChildGraphNode", Sort::Node(4)),
    call(526, "cuGraphAddEmptyNode", Sort::Node(5)),
    call(590, "cuGraphAddEventWaitNode", Sort::Node(6)),
    call(589, "cuGraphAddEventRecordNode", Sort::Node(7)),
    call(618, "cuGraphAddExternalSemaphoresSignalNode", Sort::Node(8)),
    call(621, "cuGraphAddExternalSemaphoresWaitNode", Sort::Node(9)),
    call(638, "cuGraphAddMemAllocNode", Sort::Node(10)),
    call(639, "cuGraphAddMemFreeNode", Sort::Node(11)),
    call(669, "cuGraphAddBatchMemOpNode", Sort::Node(12)),
    call(712, "cuGraphAddNode", Sort::NodeByParameters),
    call(723, "cuGraphAddNode_v2", Sort::NodeByParameters),
];

/// The name of a driver call that is watched, by its callback id.
#[must_use]
pub fn call_name(code: u32) -> &'static str {
    by_code(code).map_or("a driver call", |call| call.name)
}

/// The watched call with this callback id.
#[must_use]
pub fn by_code(code: u32) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.code == code)
}

/// The name of a `CUresult` that calls fail with (`cuda.h`), for people.
#[must_use]
pub const fn result_name(result: u32) -> &'static str {
    match result {
        0 => "success",
        1 => "invalid value",
        2 => "out of memory",
        3 => "not initialised",
        4 => "the driver is shutting down",
        100 => "no device",
        200 => "invalid image",
        201 => "invalid context",
        209 => "no code for this device",
        218 => "invalid PTX",
        222 => "unsupported PTX version",
        400 => "invalid handle",
        500 => "not found",
        600 => "not ready",
        700 => "illegal address",
        701 => "too many resources asked for",
        702 => "the kernel ran too long",
        709 => "the context was destroyed",
        715 => "illegal instruction",
        719 => "launch failure",
        720 => "the cooperative launch is too large",
        800 => "not permitted",
        801 => "not supported",
        900 => "not permitted while a stream captures",
        901 => "the capture was invalidated by an earlier error",
        902 => "captures would merge",
        903 => "the capture is not that of this stream",
        904 => "the capture has unjoined work",
        905 => "a dependency would cross the capture's bounds",
        906 => "it would depend on the legacy stream, which cannot be captured",
        907 => "an event recorded in a capture is used outside it",
        908 => "the capture was begun by another thread",
        909 => "timed out",
        910 => "the update would change the executable graph too much",
        912 => "invalid cluster size",
        913 => "the function is not loaded",
        999 => "unknown error",
        _ => "error",
    }
}

/// Whether a call that fails like this breaks captures, or says that one would be broken by it: 900, and 902 to 907
/// but for 904, which is no call's but the end's. 901 says that a capture was broken before.
#[must_use]
pub const fn breaks_captures(result: u32) -> bool {
    matches!(result, 900 | 902 | 903 | 905..=907)
}

/// Whether this answer to `cuStreamEndCapture` means that the capture is over: not when its arguments are invalid, or
/// when it was begun by another thread (908).
#[must_use]
pub const fn ends_capture(result: u32) -> bool {
    !matches!(result, 1 | 908)
}

/// Why an update of an executable graph failed (`CUgraphExecUpdateResult`).
#[must_use]
pub const fn update_result_name(result: u32) -> &'static str {
    match result {
        0 => "success",
        2 => "the topology changed",
        3 => "a node's type changed",
        4 => "a kernel's function changed",
        5 => "parameters changed that cannot be updated",
        6 => "not supported",
        7 => "a function changed in a way that is not supported",
        8 => "attributes changed that cannot be updated",
        _ => "an error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_and_name_is_listed_once() {
        for (i, call) in CALLS.iter().enumerate() {
            assert!(CALLS[i + 1..].iter().all(|other| other.code != call.code && other.name != call.name));
        }
    }
    #[test]
    fn a_copy_s_direction_is_in_its_name() {
        for call in CALLS.iter().filter(|call| call.node_type() == Some(1)) {
            let direction = call.name.trim_start_matches("cuMemcpy").get(..4).unwrap_or_default();
            let within = match direction {
                "DtoD" => Some(true),
                "HtoD" | "DtoH" | "HtoA" | "AtoH" => Some(false),
                _ => None,
            };
            assert_eq!(call.copies_within_device(), within, "{}", call.name);
        }
    }

    #[test]
    fn no_stream_is_the_legacy_one_unless_the_call_is_for_per_thread_ones() {
        let launches = |call: &&Call| matches!(call.sort, Sort::LaunchKernel | Sort::LaunchGraph);
        for call in CALLS.iter().filter(launches) {
            let per_thread = call.name.ends_with("_ptsz");
            let legacy = [0, 1, 2, 0x70_0000].map(|stream| call.is_legacy(stream));
            assert_eq!(legacy, [!per_thread, true, false, false], "{}", call.name);
        }
    }

    #[test]
    fn what_adds_graphs_is_watched_by_every_cupti() {
        let watched = |tells_node_types: bool| {
            let calls = CALLS.iter().filter(move |call| call.is_watched(tells_node_types));
            calls.map(|call| call.name).collect::<Vec<_>>()
        };
        assert_eq!(watched(false).len(), CALLS.len());
        let with_types = watched(true);
        let added =
            ["cuGraphAddChildGraphNode", "cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2"];
        for name in added.into_iter().chain(["cuLaunchKernel"]) {
            assert!(with_types.contains(&name), "{name}");
        }
        for name in ["cuGraphAddHostNode", "cuGraphAddMemFreeNode", "cuLaunchHostFunc"] {
            assert!(!with_types.contains(&name), "{name}");
        }
    }

    #[test]
    fn what_points_is_copies_and_memory_sets_of_one_piece() {
        let points: Vec<&str> = CALLS.iter().filter(|call| call.points()).map(|call| call.name).collect();
        assert_eq!(points.len(), 14);
        for name in points {
            let name = name.trim_end_matches("_ptsz").trim_end_matches("_v2");
            let direction = name.trim_start_matches("cuMemcpy").trim_end_matches("Async");
            let width = name.trim_start_matches("cuMemsetD").trim_end_matches("Async");
            assert!(
                matches!(direction, "" | "HtoD" | "DtoH" | "DtoD") || matches!(width, "8" | "16" | "32"),
                "{name}"
            );
        }
    }
}
