//! Each rule with what makes it speak, and with what must not.

mod rules;

use gtop_protocol::lifecycle::{CAPTURE_OPEN, Event, What};
use gtop_protocol::message::{Observers, PoolState};
use gtop_protocol::{Kind, KindSet};

use super::*;
use crate::model::lifecycle::Wait;
use crate::model::place::{Extent, Piece, Place};
use crate::model::snapshot::{Device, LaneKey};
use crate::model::streams::StreamKey;
use crate::model::time::Moment;

const MIB: u64 = 1 << 20;
const LANE: LaneKey = LaneKey::Graphs { device: 0, context: 1, stream: 7 };

/// A process made by hand, its times in seconds.
struct Case {
    work: Work,
    lifecycle: Lifecycle,
    memory: Trend,
    kinds: Kinds,
    verdict: Option<Verdict>,
    pools: Vec<Pool>,
    device: Option<Device>,
}

impl Case {
    fn new() -> Self {
        Self {
            work: Work::new(1 << 20),
            lifecycle: Lifecycle::default(),
            memory: Trend::default(),
            kinds: Kinds { enabled: KindSet::SAFE, ..Kinds::default() },
            verdict: None,
            pools: Vec::new(),
            device: None,
        }
    }

    fn at(&self, second: u64) -> Vec<Finding> {
        all(&Facts {
            now: second * SECOND,
            work: &self.work,
            lifecycle: &self.lifecycle,
            kinds: &self.kinds,
            verdict: self.verdict,
            cure: "",
            pools: &self.pools,
            memory: self.memory.last().map(|_| &self.memory),
            memory_total: Some(140_000 * MIB),
            unified: self.device.as_ref(),
        })
    }

    fn rules(&self, second: u64) -> Vec<&'static str> {
        self.at(second).into_iter().map(|finding| finding.rule).collect()
    }

    fn finding(&self, rule: &str, second: u64) -> Option<Finding> {
        self.at(second).into_iter().find(|finding| finding.rule == rule)
    }

    fn has(&self, rule: &str, second: u64) -> bool {
        self.finding(rule, second).is_some()
    }

    /// The finding of a rule: its sentence, and its evidence in one text.
    fn said(&self, rule: &str, second: u64) -> Option<(String, String)> {
        let finding = self.finding(rule, second)?;
        Some((finding.sentence, finding.evidence.join("; ")))
    }

    fn say(&mut self, second: u64, what: What, event: Event) {
        let event = Event { time: (second * SECOND).into(), what: what as u8, context: 1.into(), ..event };
        self.lifecycle.apply(&event, self.work.graphs.launches());
    }

    /// A graph of nodes of these types, and the executable graph made of it; both have the id as their handle.
    fn exec(&mut self, second: u64, id: u32, nodes: &[(u32, u32)]) {
        let (graph, of) = (u64::from(id) + 0x1_0000, u64::from(id));
        let object = Event { object: graph.into(), id: (id + 0x1_0000).into(), ..Event::default() };
        self.say(second, What::GraphCreated, object);
        for (node_type, count) in nodes {
            let run = Event { count: (*count).into(), detail: (*node_type).into(), ..object };
            self.say(second, What::Nodes, run);
        }
        let made = Event { object: of.into(), id: id.into(), other: graph.into(), ..Event::default() };
        self.say(second, What::ExecCreated, made);
        self.say(second, What::GraphDestroyed, object);
    }

    fn destroy(&mut self, second: u64, id: u32) {
        let event = Event { object: u64::from(id).into(), id: id.into(), ..Event::default() };
        self.say(second, What::ExecDestroyed, event);
    }

    /// Work in a graph, or beside graphs.
    fn run(&mut self, graph: u32, correlation: u64, start: u64, end: u64) {
        let place = Place { stream: StreamKey { device: Some(0), context: 1, stream: 7 }, graph };
        let piece = Piece { start, end, correlation, node: 0, detail: 0, kernel: 0 };
        if graph != 0 {
            self.work.graphs.add(graph, LANE, &[piece], Moment::of_record(start));
        }
        self.work.steps.add(&place, &[piece], &Extent::of(&[piece]));
        self.work.steps.settle(true);
    }

    fn launch(&mut self, second: u64, id: u32) {
        let correlation = self.work.graphs.launches() + 1;
        self.run(id, correlation, second * SECOND, second * SECOND + 1_000);
    }

    fn remember(&mut self, second: u64, bytes: u64) {
        self.memory.add(second * SECOND, bytes);
    }
}

#[test]
fn a_failed_capture_that_keeps_its_memory_is_told_with_how_much() {
    for (after, kept) in [(1_300, true), (1_000, false)] {
        let mut case = Case::new();
        (1..60).for_each(|second| {
            let mib = if second < 11 {
                1_000
            } else if second < 15 {
                1_300
            } else {
                after
            };
            case.remember(second, mib * MIB);
        });
        let event = Event { stream: 0x77.into(), thread: 5.into(), ..Event::default() };
        case.say(10, What::CaptureBegun, event);
        case.say(12, What::CaptureEnded, Event { result: 901.into(), ..event });
        assert!(!case.rules(15).contains(&"failed_capture_keeps_memory"), "it may still come back");
        let said = case.said("failed_capture_keeps_memory", 40);
        assert_eq!(said.is_some(), kept, "{said:?}");
        assert!(said.is_none_or(|(sentence, _)| sentence.contains("+300 MiB not returned")));
        assert!(case.rules(40).contains(&"capture_failed"));
    }
}

#[test]
fn memory_that_grows_with_graphs_is_told_beside_them() {
    let mut case = Case::new();
    for step in 1..=60u32 {
        let second = 10 + u64::from(step);
        case.exec(second, step, &[(0, 10)]);
        case.launch(second, step);
        case.remember(second, 1_000 * MIB + u64::from(step) * 797 * MIB / 100);
        assert!(step < 20 || case.rules(second).contains(&"exec_graphs_grow"), "step {step}");
    }
    let (sentence, evidence) = case.said("exec_graphs_grow", 70).unwrap();
    assert!(sentence.contains("→ 60") && evidence.contains("meanwhile +46"), "{sentence} {evidence}");
    // Requests that take next to nothing, and make no graph.
    let mut case = Case::new();
    case.exec(10, 1, &[(0, 10)]);
    for step in 1..=60u64 {
        case.launch(10 + step, 1);
        case.remember(10 + step, 1_000 * MIB + step * MIB / 30);
    }
    assert_eq!(case.rules(70), <[&str; 0]>::default());
}

#[test]
fn graphs_that_stay_while_memory_climbs_are_not_what_grows() {
    let mut case = Case::new();
    (1..=256).for_each(|id| case.exec(5, id, &[(0, 10)]));
    case.launch(6, 1);
    (257..=742).for_each(|id| case.exec(8, id, &[(0, 10)]));
    for second in 9..400 {
        (1..=742).filter(|id| id % 100 == 1).for_each(|id| case.launch(second, id));
        case.remember(second, 10_000 * MIB + second / 30 * 90_000_000);
    }
    let (sentence, _) = case.said("memory_grows_graphs_flat", 399).unwrap();
    assert!(sentence.contains("742 graphs stay alive"), "{sentence}");
    let rules = case.rules(399);
    assert!(!rules.contains(&"exec_graphs_grow") && !rules.contains(&"graphs_never_destroyed"), "{rules:?}");
    // Shapes that come and go: eight stay.
    let mut case = Case::new();
    for id in 1..=338u32 {
        case.exec(u64::from(id), id, &[(0, 10)]);
        case.launch(u64::from(id), id);
        if id > 8 {
            case.destroy(u64::from(id), id - 8);
        }
    }
    let rules = case.rules(338);
    assert!(!rules.contains(&"exec_graphs_grow"), "{rules:?}");
}

#[test]
fn memory_that_graphs_keep_after_they_are_destroyed_is_summed_up() {
    let mut case = Case::new();
    for cycle in 1..=10u32 {
        let second = 10 * u64::from(cycle);
        case.remember(second - 1, 1_000 * MIB + u64::from(cycle - 1) * 100 * MIB);
        case.exec(second, cycle, &[(10, 1)]);
        case.launch(second, cycle);
        case.destroy(second + 1, cycle);
    }
    case.remember(105, 2_000 * MIB);
    let (sentence, evidence) = case.said("memory_kept_after_destroy", 106).unwrap();
    assert!(sentence.contains("10 executable graphs"), "{sentence}");
    assert!(evidence.contains("meanwhile +1,000 MiB") && !evidence.contains("allocated"), "{evidence}");
    // The same where each node says what it asks for.
    let mut case = Case::new();
    for cycle in 1..=10u32 {
        let graph = Event { object: 1.into(), id: 1.into(), ..Event::default() };
        case.say(1, What::GraphCreated, graph);
        let nodes = Event { detail: 10.into(), count: 1.into(), bytes: (100 * MIB).into(), ..graph };
        case.say(1, What::Nodes, nodes);
        let exec = Event { object: 9.into(), id: cycle.into(), other: 1.into(), ..Event::default() };
        case.say(2, What::ExecCreated, exec);
        case.say(2, What::GraphDestroyed, graph);
        case.say(3, What::ExecDestroyed, exec);
    }
    let (_, evidence) = case.said("memory_kept_after_destroy", 4).unwrap();
    assert!(evidence.contains("their nodes allocated 1,000 MiB"), "{evidence}");
    // What frees as often as it allocates keeps nothing.
    let mut case = Case::new();
    let graph = Event { object: 1.into(), id: 1.into(), ..Event::default() };
    case.say(1, What::GraphCreated, graph);
    for node_type in [10u32, 11] {
        case.say(1, What::Nodes, Event { detail: node_type.into(), count: 1.into(), ..graph });
    }
    let exec = Event { object: 9.into(), id: 9.into(), other: 1.into(), ..Event::default() };
    case.say(2, What::ExecCreated, exec);
    case.say(3, What::ExecDestroyed, exec);
    assert!(!case.rules(10).contains(&"memory_kept_after_destroy"));
}

#[test]
fn graphs_that_nobody_launches_any_more_are_told_while_others_are() {
    let with = |graphs: u32, launched_until: u64| {
        let mut case = Case::new();
        (1..=graphs).for_each(|id| case.exec(1, id, &[(0, 10)]));
        case.launch(launched_until, 999);
        case.rules(100).contains(&"never_launched_again")
    };
    assert!(with(8, 100));
    assert!(!with(7, 100), "few");
    assert!(!with(8, 20), "nothing at all is launched");
}

#[test]
fn a_wait_while_the_device_stands_still_is_told() {
    let with = |wait: (u64, u64)| {
        let mut case = Case::new();
        let place = Place { stream: StreamKey { device: Some(0), context: 1, stream: 7 }, graph: 41 };
        // Busy for 20 ms, still for 100, busy again.
        for (correlation, at) in [(1, 0), (2, 120)] {
            let start = SECOND + at * 1_000_000;
            let piece = Piece { start, end: start + 20_000_000, correlation, node: 0, detail: 0, kernel: 0 };
            case.work.steps.add(&place, &[piece], &Extent::of(&[piece]));
        }
        case.work.steps.settle(true);
        let [begin, end] = [wait.0, wait.1].map(|ms| SECOND + ms * 1_000_000);
        case.lifecycle.waits.push(Wait { code: 17, thread: 5, begin, end });
        case.rules(2).contains(&"idle_in_wait")
    };
    assert!(with((15, 110)), "it waits for nothing most of the time");
    assert!(!with((0, 25)), "it waits for work");
}

#[test]
fn modules_loaded_in_a_capture_or_late_are_told() {
    let loaded = Event { thread: 5.into(), bytes: 4096.into(), ..Event::default() };
    let mut case = Case::new();
    case.say(1, What::ModuleLoaded, loaded);
    assert!(case.rules(2).is_empty(), "before anything is launched");
    case.say(2, What::ModuleLoaded, Event { flags: CAPTURE_OPEN, ..loaded });
    assert_eq!(case.rules(3), ["lazy_load_in_capture"]);
    let with = |late: u64, loading: u8| {
        let mut case = Case::new();
        case.lifecycle.observers = Some(Observers { loading, ..Observers::default() });
        case.launch(1, 999);
        (0..late).for_each(|_| case.say(3, What::ModuleLoaded, loaded));
        case.said("lazy_load_late", 4)
    };
    assert_eq!(with(7, 2), None);
    assert!(with(8, 2).is_some_and(|(_, evidence)| evidence.contains("loads lazily")));
    assert!(with(8, 1).is_some_and(|(_, evidence)| evidence.contains("loads eagerly")));
}

#[test]
fn using_a_graph_after_its_end_is_told_and_a_failed_launch_alone_is_not() {
    let failed =
        Event { object: 1.into(), id: 1.into(), result: 400.into(), thread: 5.into(), ..Event::default() };
    let mut case = Case::new();
    case.exec(1, 1, &[(0, 10)]);
    case.say(2, What::LaunchFailed, failed);
    assert!(!case.rules(3).contains(&"launch_after_destroy"), "it is alive");
    case.destroy(3, 1);
    case.say(4, What::LaunchFailed, failed);
    let (sentence, evidence) = case.said("launch_after_destroy", 5).unwrap();
    assert!(
        sentence.contains("graph 1, which was destroyed 2 s ago") && evidence.contains("thread 5"),
        "{sentence}"
    );
    assert!(!case.rules(5).contains(&"destroy_after_destroy"));
    case.say(5, What::ExecDestroyFailed, failed);
    assert!(case.rules(6).contains(&"destroy_after_destroy"));
}

#[test]
fn nodes_whose_kind_is_off_are_told_before_the_first_replay_as_surely_as_is_known() {
    let with = |node_type: u32, kinds: KindSet, verdict: Verdict, pool: Option<(PoolState, bool)>| {
        let mut case = Case::new();
        (case.kinds.enabled, case.verdict) = (kinds, Some(verdict));
        case.exec(1, 7, &[(node_type, 3)]);
        let of = |(state, in_doubt)| Pool { state, in_doubt, ..Pool::default() };
        case.pools.extend(pool.map(of));
        (0..2_000).for_each(|_| case.launch(2, 7));
        case.at(3)
            .into_iter()
            .find(|finding| finding.rule == "uncovered_nodes")
            .map(|finding| finding.severity)
    };
    let kernel = KindSet::EMPTY.with(Kind::Kernel);
    let bad = Verdict::Defective;
    assert_eq!(with(2, kernel, bad, None), Some(Severity::Alarm), "memory sets");
    assert_eq!(with(1, kernel, bad, None), Some(Severity::Warning), "copies that may be of the host");
    assert_eq!(with(1, kernel, bad, Some((PoolState::Unknown, true))), Some(Severity::Warning));
    assert_eq!(with(1, kernel, bad, Some((PoolState::Leaking, false))), Some(Severity::Alarm), "it shows");
    assert_eq!(
        with(1, kernel, bad, Some((PoolState::Unknown, false))),
        None,
        "replayed, and it does not leak"
    );
    assert_eq!(with(0, kernel, bad, None), None);
    assert_eq!(with(1, KindSet::SAFE, bad, None), None);
    assert_eq!(with(2, kernel, Verdict::Sound, None), None);
}

#[test]
fn a_pool_that_reserves_much_more_than_is_used_is_told_and_sizes_have_no_sign() {
    let with = |reserved: u64, used: u64| {
        let mut case = Case::new();
        let event = Event { node: used.into(), bytes: reserved.into(), ..Event::default() };
        case.say(1, What::DeviceMemory, event);
        case.said("pool_memory_unused", 2)
    };
    let (sentence, evidence) = with(1_024 * MIB, 100 * MIB).unwrap();
    assert!(
        sentence.contains("reserves 924 MiB") && evidence == "reserved 1,024 MiB, used 100 MiB",
        "{sentence}"
    );
    assert_eq!(with(1_024 * MIB, 600 * MIB), None);
    assert_eq!((mib(512 * MIB), change(-5 * MIB.cast_signed())), ("512 MiB".to_owned(), "−5 MiB".to_owned()));
}

#[test]
fn a_machine_whose_one_memory_runs_out_is_an_alarm_once_it_swaps() {
    let with = |available: u64, swap_per_minute: Option<i64>| {
        let mut case = Case::new();
        case.device = Some(Device {
            unified: true,
            memory_total: Some(121_856 * MIB),
            host_available: Some(available),
            swap_used: Some(2_048 * MIB),
            swap_per_minute,
            ..Device::default()
        });
        let finding = case.finding("host_memory_low", 2)?;
        Some((finding.severity, finding.sentence, finding.evidence.concat()))
    };
    let (severity, sentence, evidence) = with(95 * MIB, Some(4 << 30)).unwrap();
    assert_eq!(severity, Severity::Alarm);
    assert!(
        sentence.ends_with("95 MiB of 121,856 MiB are left, and swap grows by 4,096 MiB a minute"),
        "{sentence}"
    );
    assert_eq!(evidence, "2,048 MiB of swap are in use, +4,096 MiB a minute");
    for steady in [None, Some(0), Some(-(4 << 30))] {
        assert_eq!(with(95 * MIB, steady).map(|said| said.0), Some(Severity::Warning), "{steady:?}");
    }
    assert_eq!(with(60_000 * MIB, Some(4 << 30)), None);
    assert!(!Case::new().has("host_memory_low", 2), "a device with a memory of its own");
}
