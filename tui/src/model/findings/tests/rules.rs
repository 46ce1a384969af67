//! Findings that need more than one part of the model: each with what makes it, and with nearly the same that must not.

use gtop_protocol::lifecycle::IN_CAPTURE;

use super::*;

#[test]
fn nodes_whose_kind_is_off_are_said_before_the_first_replay() {
    let mut known = Case::new();
    known.exec(1, 5, &[(0, 10), (1, 2), (2, 1)]);
    known.verdict = Some(Verdict::Defective);
    assert!(!known.has("uncovered_nodes", 2), "all three kinds are on");
    known.kinds.enabled = [Kind::Kernel, Kind::Memcpy].into_iter().collect();
    let finding = known.finding("uncovered_nodes", 2).unwrap();
    assert!(finding.sentence.starts_with("graph 5 has 1 copy or memset node "), "{}", finding.sentence);
    known.kinds.enabled = [Kind::Kernel].into_iter().collect();
    assert!(known.finding("uncovered_nodes", 2).unwrap().sentence.contains("has 3 copy or memset nodes"));
    let next = |known: &Case| known.finding("uncovered_nodes", 3).unwrap().next;
    assert!(next(&known).starts_with("Switch memcpy and memset on before"), "{}", next(&known));
    known.launch(2, 5);
    assert!(
        next(&known).contains("undoes nothing any more. Restart"),
        "from the first replay on: {}",
        next(&known)
    );
    known.verdict = Some(Verdict::Sound);
    assert!(!known.has("uncovered_nodes", 2), "this CUPTI gives them back");
}

#[test]
fn a_kind_that_cupti_refused_is_found_with_the_error_and_what_helps() {
    let mut known = Case::new();
    assert!(!known.has("kind_refused", 2), "all are on");
    known.kinds.enabled = [Kind::Kernel, Kind::Memset].into_iter().collect();
    assert!(!known.has("kind_refused", 2), "it was switched off");
    (known.kinds.refused, known.kinds.error) = (KindSet::EMPTY.with(Kind::Memcpy), Some(35));
    let finding = known.finding("kind_refused", 2).unwrap();
    let said = "CUPTI refused memcpy (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES 35)";
    assert!(finding.sentence.starts_with(said), "{}", finding.sentence);
    assert!(finding.next.contains("CAP_SYS_ADMIN") && finding.evidence.is_empty(), "{finding:?}");
    known.verdict = Some(Verdict::Sound);
    assert!(known.finding("kind_refused", 2).unwrap().evidence.is_empty(), "a sound one does not leak");
    known.verdict = Some(Verdict::Defective);
    let evidence = known.finding("kind_refused", 2).unwrap().evidence;
    assert!(evidence[0].contains("kernel is on without memcpy"), "{evidence:?}");
    known.kinds.error = Some(8);
    assert!(!known.finding("kind_refused", 2).unwrap().next.contains("CAP_SYS_ADMIN"));
}

#[test]
fn what_is_used_after_it_was_destroyed_is_said_and_a_launch_that_fails_otherwise_is_not() {
    let refused = |object: u64, code: u32| Event {
        object: object.into(),
        code: code.into(),
        result: 400.into(),
        ..Event::default()
    };
    let mut known = Case::new();
    known.exec(1, 5, &[(0, 10)]);
    known.say(2, What::LaunchFailed, refused(5, 514));
    assert!(!known.has("launch_after_destroy", 3), "it is alive");
    known.say(10, What::ExecDestroyed, Event { object: 5.into(), ..Event::default() });
    assert!(!known.has("launch_after_destroy", 11));
    known.say(12, What::LaunchFailed, refused(5, 514));
    known.say(13, What::ExecDestroyFailed, refused(5, 516));
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
        let mut known = Case::new();
        (0..256).for_each(|id| known.exec(1, id + 1, &[(0, 4)]));
        known.launch(20, 1);
        (256..742).for_each(|id| known.exec(30, id + 1, &[(0, 4)]));
        for second in 0..600u64 {
            if second % 60 == 30 && second > 30 {
                // Churn that leaves the number as it is.
                known.launch(second, 1);
                known.exec(second, 2000, &[(0, 4)]);
                known.say(second, What::ExecDestroyed, Event { object: 2000.into(), ..Event::default() });
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
        let mut known = Case::new();
        known.exec(1, 1, &[(0, 4)]);
        for request in 1..=many {
            let second = 5 * request;
            known.launch(second, 1);
            if keeps {
                known.exec(second + 1, 1 + request as u32, &[(0, 4)]);
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
    assert!(none.at(302).iter().all(|finding| !finding.rule.contains("grow")), "{:?}", none.at(302));
}

#[test]
fn a_pool_that_reserves_what_nobody_uses_is_said() {
    let of = |used: u64, reserved: u64| {
        let mut known = Case::new();
        let event = Event { node: (used * MIB).into(), bytes: (reserved * MIB).into(), ..Event::default() };
        known.say(1, What::DeviceMemory, event);
        known.finding("pool_memory_unused", 2)
    };
    let finding = of(100, 1124).unwrap();
    assert!(finding.sentence.contains(" 1,024 MiB that is not in use"), "{}", finding.sentence);
    assert!(of(1000, 1124).is_none() && of(0, 0).is_none());
}

#[test]
fn launches_on_the_legacy_stream_are_told_while_a_stream_that_waits_for_it_works() {
    use gtop_protocol::lifecycle::{BLOCKING, NOT_BLOCKING};
    // Streams of context 1 with these details, the second of which is destroyed; one works until a second; and in which
    // context so many thousand launches a second go on.
    let with = |detail: u32, works_until: u64, seconds: u64, context: u32| {
        let mut known = Case::new();
        for (handle, id) in [(0x70u64, 13u32), (0x71, 14)] {
            let stream =
                Event { object: handle.into(), id: id.into(), detail: detail.into(), ..Event::default() };
            known.say(1, What::StreamCreated, stream);
        }
        known.say(2, What::StreamDestroyed, Event { object: 0x71.into(), ..Event::default() });
        for id in [13u32, 14] {
            let key = StreamKey { device: Some(0), context: 1, stream: id };
            let (start, end) = (SECOND, works_until * SECOND);
            let piece = Piece { start, end, correlation: 1, node: 0, detail: 0, kernel: 0 };
            known.work.streams.add(key, &[piece], &Extent::of(&[piece]), |_| ());
        }
        for second in 100..100 + seconds {
            let event = Event {
                time: (second * SECOND).into(),
                what: What::LegacyLaunches as u8,
                context: context.into(),
                count: 4096.into(),
                ..Event::default()
            };
            known.lifecycle.apply(&event, 0);
        }
        known.said("legacy_stream", 110)
    };
    let (sentence, evidence) = with(BLOCKING, 105, 10, 1).unwrap();
    assert!(sentence.contains("context 1 while stream 13 works"), "{sentence}");
    assert!(evidence.contains("40,960 such launches in 10 s; 1 stream that"), "{evidence}");
    assert_eq!(with(NOT_BLOCKING, 105, 10, 1), None);
    assert_eq!(with(0, 105, 10, 1), None, "nobody said whether it waits");
    assert_eq!(with(BLOCKING, 99, 10, 1), None, "it does not work any more");
    assert_eq!(with(BLOCKING, 105, 4, 1), None, "a start");
    assert_eq!(with(BLOCKING, 105, 10, 2), None, "another context's");
}

#[test]
fn code_that_is_loaded_late_is_told_with_when() {
    let mut known = Case::new();
    let load = |known: &mut Case, second: u64, flags: u8| {
        known.say(second, What::ModuleLoaded, Event { flags, bytes: 4096.into(), ..Event::default() });
    };
    // Before the first launch of a graph nothing is late.
    (0..20).for_each(|_| load(&mut known, 1, 0));
    known.exec(2, 5, &[(0, 4)]);
    known.launch(3, 5);
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
    assert!(known.finding("lazy_load_in_capture", 9).unwrap().evidence[0].contains("4,096 bytes"));
}

/// A capture that ends so after two seconds, and the memory of the process: before it, with it, and 10 s after it.
fn capture(result: u32, [before, within, after]: [u64; 3]) -> Case {
    let mut known = Case::new();
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
    known.say(9, What::CaptureBegun, of(0));
    known.say(11, What::CaptureEnded, of(result));
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
    let mut known = Case::new();
    (1..=12).for_each(|id| known.exec(1, id, &[(0, 4)]));
    let launch_all = |known: &mut Case, ids: std::ops::RangeInclusive<u32>, second| {
        ids.for_each(|id| known.launch(second, id));
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
        let mut known = Case::new();
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
        let mut known = Case::new();
        for cycle in 1..=10u32 {
            known.exec(u64::from(cycle), cycle, nodes);
            let exec = Event { object: u64::from(cycle).into(), ..Event::default() };
            known.say(u64::from(cycle), What::ExecDestroyed, exec);
        }
        known.finding("memory_kept_after_destroy", 20)
    };
    let finding = cycles(&[(0, 3), (ALLOCATE, 1)]).unwrap();
    assert!(finding.sentence.contains("10 executable graphs"), "{}", finding.sentence);
    assert!(cycles(&[(0, 3), (ALLOCATE, 1), (FREE, 1)]).is_none());
}
