//! Findings that need more than one part of the model: each with what makes it, and with nearly the same that must not.

use gtop_protocol::KindSet;
use gtop_protocol::cupti::Verdict;
use gtop_protocol::lifecycle::{CAPTURE_OPEN, Event, IN_CAPTURE, What};

use super::super::findings::{self, Facts};
use super::super::lifecycle::Lifecycle;
use super::super::place::{Piece, Place};
use super::super::snapshot::Finding;
use super::super::streams::StreamKey;
use super::super::trend::Trend;
use super::super::work::Work;
use super::*;

const MIB: u64 = 1 << 20;

/// What is known of a process.
struct Known {
    work: Work,
    lifecycle: Lifecycle,
    memory: Trend,
    kinds: KindSet,
    verdict: Verdict,
}

impl Known {
    fn new() -> Self {
        Self {
            work: Work::new(1 << 20),
            lifecycle: Lifecycle::default(),
            memory: Trend::default(),
            kinds: KindSet::SAFE,
            verdict: Verdict::Sound,
        }
    }

    fn say(&mut self, what: What, second: u64, event: Event) {
        let event = Event { what: what as u8, time: (second * SECOND).into(), ..event };
        self.lifecycle.apply(&event, self.work.graphs.launches());
    }

    /// An executable graph with nodes of these types, made of a graph that is destroyed.
    fn exec(&mut self, id: u32, second: u64, nodes: &[(u32, u32)]) {
        let (graph, exec) = (u64::from(id) + 1000, u64::from(id));
        let of = Event { object: graph.into(), id: (id + 1000).into(), ..Event::default() };
        self.say(What::GraphCreated, second, of);
        for (node_type, count) in nodes {
            self.say(
                What::Nodes,
                second,
                Event { detail: (*node_type).into(), count: (*count).into(), ..of },
            );
        }
        let made = Event { object: exec.into(), id: id.into(), other: graph.into(), ..Event::default() };
        self.say(What::ExecCreated, second, made);
        self.say(What::GraphDestroyed, second, of);
    }

    /// Work in a graph, or beside graphs.
    fn run(&mut self, graph: u32, correlation: u64, start: u64, end: u64) {
        let place = Place { stream: StreamKey { device: Some(0), context: 1, stream: 7 }, graph };
        let piece = Piece { start, end, correlation, node: 0, detail: 0, kernel: 0 };
        if graph != 0 {
            let lane = LaneKey::Graphs { device: 0, context: 1, stream: 7 };
            self.work.graphs.add(graph, lane, &[piece], Moment { wall: start, steady: start });
        }
        self.work.steps.add(&place, &[piece]);
        self.work.steps.settle(true);
    }

    fn launch(&mut self, graph: u32, second: u64) {
        let correlation = self.work.graphs.launches() + 1;
        self.run(graph, correlation, second * SECOND, second * SECOND + 1000);
    }

    fn found(&self, second: u64) -> Vec<Finding> {
        findings::all(&Facts {
            now: second * SECOND,
            work: &self.work,
            lifecycle: &self.lifecycle,
            kinds: self.kinds,
            verdict: Some(self.verdict),
            cure: "",
            pools: &[],
            memory: self.memory.last().map(|_| &self.memory),
            memory_total: Some(140_000 * MIB),
        })
    }

    fn finding(&self, rule: &str, second: u64) -> Option<Finding> {
        self.found(second).into_iter().find(|finding| finding.rule == rule)
    }

    fn has(&self, rule: &str, second: u64) -> bool {
        self.finding(rule, second).is_some()
    }
}

#[test]
fn nodes_whose_kind_is_off_are_said_before_the_first_replay() {
    let mut known = Known::new();
    known.exec(5, 1, &[(0, 10), (1, 2), (2, 1)]);
    known.verdict = Verdict::Defective;
    assert!(!known.has("uncovered_nodes", 2), "all three kinds are on");
    known.kinds = [Kind::Kernel, Kind::Memcpy].into_iter().collect();
    let finding = known.finding("uncovered_nodes", 2).unwrap();
    assert!(finding.sentence.starts_with("graph 5 has 1 copy or memset node "), "{}", finding.sentence);
    known.kinds = [Kind::Kernel].into_iter().collect();
    assert!(known.finding("uncovered_nodes", 2).unwrap().sentence.contains("has 3 copy or memset nodes"));
    known.verdict = Verdict::Sound;
    assert!(!known.has("uncovered_nodes", 2), "this CUPTI gives them back");
}

#[test]
fn what_is_used_after_it_was_destroyed_is_said_and_a_launch_that_fails_otherwise_is_not() {
    let refused = |object: u64, code: u32| Event {
        object: object.into(),
        code: code.into(),
        result: 400.into(),
        ..Event::default()
    };
    let mut known = Known::new();
    known.exec(5, 1, &[(0, 10)]);
    known.say(What::LaunchFailed, 2, refused(5, 514));
    assert!(!known.has("launch_after_destroy", 3), "it is alive");
    known.say(What::ExecDestroyed, 10, Event { object: 5.into(), ..Event::default() });
    assert!(!known.has("launch_after_destroy", 11));
    known.say(What::LaunchFailed, 12, refused(5, 514));
    known.say(What::ExecDestroyFailed, 13, refused(5, 516));
    let launched = known.finding("launch_after_destroy", 15).unwrap();
    assert_eq!(launched.sentence, "graph 5, which was destroyed 5 s ago, is launched");
    assert!(launched.evidence[0].starts_with("cuGraphLaunch on thread"), "{:?}", launched.evidence);
    assert!(known.has("destroy_after_destroy", 15));
    // Its graph went before, and once.
    assert!(known.finding("destroy_after_destroy", 15).unwrap().evidence[1].starts_with("1 such"));
}

#[test]
fn memory_that_grows_while_graphs_do_not_is_no_fault_of_theirs() {
    // 256 graphs at the start, 742 after the first request, and so they stay; memory takes 90 MiB more each step.
    let grown = |step: u64| {
        let mut known = Known::new();
        (0..256).for_each(|id| known.exec(id + 1, 1, &[(0, 4)]));
        known.launch(1, 20);
        (256..742).for_each(|id| known.exec(id + 1, 30, &[(0, 4)]));
        for second in 0..600u64 {
            if second % 60 == 30 && second > 30 {
                // Churn that leaves the number as it is.
                known.launch(1, second);
                known.exec(2000, second, &[(0, 4)]);
                known.say(What::ExecDestroyed, second, Event { object: 2000.into(), ..Event::default() });
            }
            known.memory.add(second * SECOND, 1000 * MIB + second / 10 * step * MIB);
        }
        known
    };
    let known = grown(90);
    let finding = known.finding("memory_grows_graphs_flat", 600).unwrap();
    assert!(finding.sentence.starts_with("graphs flat, memory growing: +"), "{}", finding.sentence);
    assert!(finding.sentence.ends_with("while 742 graphs stay alive"), "{}", finding.sentence);
    assert!(!known.has("exec_graphs_grow", 600), "warm-up is no leak");
    assert!(!grown(0).has("memory_grows_graphs_flat", 600));
}

#[test]
fn a_request_that_keeps_a_graph_is_a_leak_and_one_that_keeps_none_is_not() {
    // 60 requests: each keeps a graph and 7.97 MiB, or none and 0.033 MiB.
    let requests = |keeps: bool, kib: u64, many: u64| {
        let mut known = Known::new();
        known.exec(1, 1, &[(0, 4)]);
        for request in 1..=many {
            let second = 5 * request;
            known.launch(1, second);
            if keeps {
                known.exec(1 + request as u32, second + 1, &[(0, 4)]);
            }
            known.memory.add(second * SECOND, 1000 * MIB + request * (kib << 10));
        }
        known
    };
    let rule = "exec_graphs_grow";
    let found = requests(true, 8161, 20).finding(rule, 102).unwrap();
    assert!(found.sentence.starts_with("executable graphs grow without end: "), "{}", found.sentence);
    let memory = |finding: &Finding| finding.evidence.iter().find(|line| line.contains("memory")).cloned();
    let all = requests(true, 8161, 60);
    // From the second request on, when the first was kept: 59 × 7.97 MiB.
    assert_eq!(
        memory(&all.finding(rule, 302).unwrap()).as_deref(),
        Some("memory of the process meanwhile +470 MiB")
    );
    let none = requests(false, 34, 60);
    assert!(none.found(302).iter().all(|finding| !finding.rule.contains("grow")), "{:?}", none.found(302));
}

#[test]
fn a_pool_that_reserves_what_nobody_uses_is_said() {
    let of = |used: u64, reserved: u64| {
        let mut known = Known::new();
        let event = Event { node: (used * MIB).into(), bytes: (reserved * MIB).into(), ..Event::default() };
        known.say(What::DeviceMemory, 1, event);
        known.finding("pool_memory_unused", 2)
    };
    let finding = of(100, 1124).unwrap();
    assert!(finding.sentence.contains(" 1024 MiB that is not in use"), "{}", finding.sentence);
    assert!(of(1000, 1124).is_none() && of(0, 0).is_none());
}

#[test]
fn code_that_is_loaded_late_is_told_with_when() {
    let mut known = Known::new();
    let load = |known: &mut Known, second: u64, flags: u8| {
        known.say(What::ModuleLoaded, second, Event { flags, bytes: 4096.into(), ..Event::default() });
    };
    // Before the first launch of a graph nothing is late.
    (0..20).for_each(|_| load(&mut known, 1, 0));
    known.exec(5, 2, &[(0, 4)]);
    known.launch(5, 3);
    (0..7).for_each(|_| load(&mut known, 4, 0));
    assert!(!known.has("lazy_load_late", 9) && !known.has("lazy_load_in_capture", 9));
    load(&mut known, 5, 0);
    let finding = known.finding("lazy_load_late", 9).unwrap();
    assert!(
        finding.sentence.starts_with("8 modules were loaded after the first graph"),
        "{}",
        finding.sentence
    );
    assert_eq!(finding.evidence[0], "the last one 4 s ago");
    load(&mut known, 6, CAPTURE_OPEN);
    assert!(known.finding("lazy_load_in_capture", 9).unwrap().evidence[0].contains("4096 bytes"));
}

/// A capture that ends so after two seconds, and the memory of the process: before it, with it, and 10 s after it.
fn capture(result: u32, [before, within, after]: [u64; 3]) -> Known {
    let mut known = Known::new();
    let of = |result: u32| Event {
        stream: 0x70.into(),
        thread: 5.into(),
        result: result.into(),
        flags: IN_CAPTURE | CAPTURE_OPEN,
        ..Event::default()
    };
    for second in 0..40 {
        let bytes = match second {
            0..10 => before,
            10..20 => within,
            _ => after,
        };
        known.memory.add(second * SECOND, bytes * MIB);
    }
    known.say(What::CaptureBegun, 9, of(0));
    known.say(What::CaptureEnded, 11, of(result));
    known
}

#[test]
fn a_failed_capture_that_keeps_its_memory_is_said_once_that_has_not_come_back() {
    let rule = "failed_capture_keeps_memory";
    let kept = capture(901, [1000, 1300, 1300]);
    assert!(!kept.has(rule, 15), "it may come back yet");
    let finding = kept.finding(rule, 39).unwrap();
    assert!(finding.sentence.contains("+300 MiB not returned"), "{}", finding.sentence);
    assert!(!capture(901, [1000, 1300, 1000]).has(rule, 39), "it came back");
    assert!(!capture(0, [1000, 1300, 1300]).has(rule, 39), "the capture went well");
    // What another process takes on the same device is not in this one's memory.
    assert!(!capture(901, [1000, 1000, 1000]).has(rule, 39));
}

#[test]
fn graphs_that_are_not_launched_any_more_are_said_while_others_are() {
    let mut known = Known::new();
    (1..=12).for_each(|id| known.exec(id, 1, &[(0, 4)]));
    let launch_all = |known: &mut Known, ids: std::ops::RangeInclusive<u32>, second| {
        ids.for_each(|id| known.launch(id, second));
    };
    launch_all(&mut known, 1..=12, 2);
    launch_all(&mut known, 1..=1, 100);
    let finding = known.finding("never_launched_again", 110).unwrap();
    assert!(finding.sentence.starts_with("11 executable graphs"), "{}", finding.sentence);
    assert!(!known.has("never_launched_again", 200), "the server rests");
    launch_all(&mut known, 1..=5, 190);
    assert!(!known.has("never_launched_again", 200), "seven are too few");
}

#[test]
fn a_long_wait_for_a_device_that_idles_is_said() {
    let waited = |busy_until: u64| {
        let mut known = Known::new();
        let ms = SECOND / 1000;
        // 200 ms between two launches, of which the device is busy until so many.
        known.run(5, 1, 1000 * ms, 1010 * ms);
        known.run(0, 2, 1010 * ms, (1010 + busy_until) * ms);
        known.run(5, 3, 1210 * ms, 1220 * ms);
        let wait = Event { code: 126.into(), ns: (205 * ms).into(), ..Event::default() };
        let event = Event { what: What::LongWait as u8, time: (1215 * ms).into(), ..wait };
        known.lifecycle.apply(&event, 2);
        known.finding("idle_in_wait", 2)
    };
    let finding = waited(1).unwrap();
    assert!(
        finding.sentence.ends_with("ms that the host sat in cuStreamSynchronize"),
        "{}",
        finding.sentence
    );
    assert!(waited(199).is_none(), "it had work");
}

#[test]
fn memory_that_graphs_allocated_and_nothing_freed_is_said_of_each() {
    const ALLOCATE: u32 = 10;
    const FREE: u32 = 11;
    let cycles = |nodes: &[(u32, u32)]| {
        let mut known = Known::new();
        for cycle in 1..=10u32 {
            known.exec(cycle, u64::from(cycle), nodes);
            let exec = Event { object: u64::from(cycle).into(), ..Event::default() };
            known.say(What::ExecDestroyed, u64::from(cycle), exec);
        }
        known.finding("memory_kept_after_destroy", 20)
    };
    let finding = cycles(&[(0, 3), (ALLOCATE, 1)]).unwrap();
    assert!(finding.sentence.contains("10 executable graphs"), "{}", finding.sentence);
    assert!(cycles(&[(0, 3), (ALLOCATE, 1), (FREE, 1)]).is_none());
}
