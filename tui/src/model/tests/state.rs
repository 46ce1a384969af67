//! What a shim says of itself, its losses and its names, and what becomes of the connection to it.

use super::*;
use gtop_protocol::message::{self, HostBuffers, Severity};
use gtop_protocol::viewer::Halted;

#[test]
fn a_process_is_who_its_hello_says() {
    let snapshot = fed(|s| vec![s.hello()]);
    let process = &snapshot.processes[0];
    let identity = &process.identity;
    assert_eq!((identity.pid, identity.inner_pid), (844, Some(42)));
    assert_eq!((identity.name.as_str(), identity.command.as_str()), ("Engine␛Core", "vllm serve x"));
    assert_eq!(identity.environment, [("RANK".to_owned(), "3".to_owned())]);
    assert_eq!(process.cupti.as_ref().map(|cupti| cupti.verdict.name()), Some("defective"));
    assert_eq!(process.validity.rate_total, None, "no records, no rate");
}

#[test]
fn rates_are_unknown_while_the_shim_is_silent() {
    let silent = |s: &mut Stream| {
        s.frame(FrameKind::State, |w| {
            State {
                state: StateCode::Silent as u8,
                reason: 9,
                error: 39,
                detail: b"nsys",
                ..Default::default()
            }
            .write(w)
        })
    };
    let snapshot = fed(|s| vec![s.hello(), s.kernels(&[kernel(1, BASE, BASE + 1)]), silent(s)]);
    let process = &snapshot.processes[0];
    assert_eq!((process.state, process.validity.rate_total), (StateCode::Silent, None));
    assert_eq!(process.validity.rate_windows, [None; 3]);
    let reason = process.reason.as_deref().unwrap();
    assert_eq!(reason, "CUPTI has gone quiet (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED 39): nsys");
    assert!(snapshot.events.iter().any(|event| event.topic == "state" && event.text.contains("silent")));
}

#[test]
fn a_silence_that_is_over_leaves_its_kernels_unknown() {
    let enters = |s: &mut Stream, state: StateCode| {
        s.frame(FrameKind::State, |w| State { state: state as u8, ..Default::default() }.write(w))
    };
    let snapshot = fed(|s| {
        let before = s.kernels(&[kernel(1, BASE, BASE + 10), kernel(1, BASE + 20, BASE + 30)]);
        let silent = enters(s, StateCode::Silent);
        let after = s.kernels(&[kernel(1, BASE + 500, BASE + 510), kernel(1, BASE + 520, BASE + 530)]);
        vec![s.hello(), before, silent, after, enters(s, StateCode::Armed)]
    });
    let silences = snapshot.processes[0]
        .untraced
        .iter()
        .filter(|stretch| stretch.why == crate::model::snapshot::Why::Silent);
    let told: Vec<_> = silences.map(|stretch| (stretch.kind, stretch.from, stretch.to)).collect();
    assert_eq!(told, [(Kind::Kernel, BASE + 30, BASE + 500)]);
}

#[test]
fn quiet_after_a_rhythm_is_said_where_nothing_tells_it_from_idleness() {
    let (mut model, conn, mut stream) = model();
    let armed = stream
        .frame(FrameKind::State, |w| State { state: StateCode::Armed as u8, ..Default::default() }.write(w));
    for frame in [stream.hello(), stream.kinds(&[Kind::Kernel]), armed] {
        feed(&mut model, conn, &frame, at(1));
    }
    model.link(conn, Link::Up, at(1));
    for second in 2..5 {
        feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE + second, BASE + second + 1)]), at(second));
    }
    let seen = |model: &mut Model, second| {
        let process = model.snapshot(at(second)).processes.remove(0);
        (process.state, process.quiet, process.reason)
    };
    assert_eq!(seen(&mut model, 5), (StateCode::Armed, None, None));
    let (state, quiet, reason) = seen(&mut model, 8);
    assert_eq!((state, quiet), (StateCode::Armed, Some(4.0)));
    assert!(reason.unwrap().contains("gtop cannot tell"));
    feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE + 9, BASE + 10)]), at(9));
    assert_eq!(seen(&mut model, 9), (StateCode::Armed, None, None));
}

#[test]
fn the_balance_counts_every_loss_by_its_cause_and_says_it() {
    let loss = Loss {
        walked: 3310,
        joined_walked: 1000,
        queue_full: 1286,
        offered: 1024,
        cupti_dropped: 5,
        ..Default::default()
    };
    let kernels: Vec<_> = (0..1024).map(|i| kernel(1, BASE + i, BASE + i + 1)).collect();
    let snapshot = fed(|s| vec![s.hello(), s.kernels(&kernels), s.frame(FrameKind::Loss, |w| loss.write(w))]);
    let records = &snapshot.processes[0].records;
    assert_eq!((records.delivered, records.shown, records.lost_queue_full), (2310, 1024, 1286));
    assert!(records.balances());
    assert_eq!(records.lost(), 1291);
    let event = snapshot.events.iter().find(|event| event.topic == "loss").unwrap();
    assert!(event.text.starts_with("1,291 records lost; in all: queue full 1,286"), "{}", event.text);
    assert!(event.text.ends_with("less comes"), "{}", event.text);
    // In a recording nothing can be done about it any more.
    let mut model = Model::new(SourceKind::File, "run.gtop");
    let (conn, mut stream) = (model.add(844), Stream::default());
    for frame in [stream.hello(), stream.frame(FrameKind::Loss, |w| loss.write(w))] {
        feed(&mut model, conn, &frame, at(1));
    }
    let snapshot = model.snapshot(at(1));
    let event = snapshot.events.iter().find(|event| event.topic == "loss").unwrap();
    assert!(event.text.ends_with("dropped by CUPTI 5"), "{}", event.text);
}

#[test]
fn a_gap_in_the_sequence_is_said_and_a_damaged_frame_left_out() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    stream.seq += 3;
    feed(&mut model, conn, &stream.frame(FrameKind::Clock, |w| w.u32(7).and_then(|()| w.u8(1))), at(2));
    let text = |wanted: &str| {
        let events = model.snapshot(at(2)).events;
        events.iter().find(|event| event.topic == wanted).map(|event| event.text.clone())
    };
    let mut text = text;
    assert!(text("gap").unwrap().starts_with("3 frames were dropped"));
    assert_eq!(text("damage").unwrap(), "a damaged Clock frame was left out");
}

#[test]
fn a_link_that_breaks_and_comes_back_is_said_and_goes_on_counting() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    model.link(conn, Link::Up, at(1));
    feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE, BASE + 1); 10]), at(1));
    model.link(conn, Link::Lost { since: 5, retries: 0 }, at(2));
    model.link(conn, Link::Lost { since: 5, retries: 1 }, at(3));
    model.link(conn, Link::Up, at(4));
    let mut again = Stream::default();
    feed(&mut model, conn, &again.hello(), at(4));
    feed(&mut model, conn, &again.kernels(&[kernel(1, BASE, BASE + 1); 5]), at(4));
    let loss = Loss { walked: 500, joined_walked: 495, ..Default::default() };
    feed(&mut model, conn, &again.frame(FrameKind::Loss, |w| loss.write(w)), at(4));
    model.link(conn, Link::Ended("process 844 ended".into()), at(5));
    let snapshot = model.snapshot(at(5));
    assert_eq!((snapshot.processes[0].records.shown, snapshot.processes[0].records.delivered), (15, 15));
    let links: Vec<_> = snapshot
        .events
        .iter()
        .filter(|event| event.topic == "link")
        .map(|event| event.text.as_str())
        .collect();
    assert_eq!(links, ["the connection was lost; trying again", "connected again", "process 844 ended"]);
    assert!(snapshot.events.iter().all(|event| event.topic != "gap"), "numbers begin anew");
    assert_eq!(snapshot.source.link, Link::Ended("process 844 ended".into()));
}

#[test]
fn state_that_comes_again_replaces_itself() {
    let snapshot = fed(|s| {
        let pool = |limit| Pool {
            limit,
            context: 1,
            device: u16::MAX,
            cause: 1,
            exhausts_in: Some(SECOND / 2),
            ..Default::default()
        };
        let notice = Notice { time: 3, severity: 2, topic: b"mark", text: b"a\x07b" };
        vec![
            s.hello(),
            s.hello(),
            s.frame(FrameKind::Pools, |w| {
                pools::write_one(w, &pool(8)).and_then(|()| pools::write_one(w, &pool(9)))
            }),
            s.frame(FrameKind::Pools, |w| pools::write_one(w, &pool(250))),
            s.frame(FrameKind::Clock, |w| Clock { realtime: 5, cupti: 5, ..Default::default() }.write(w)),
            s.frame(FrameKind::Notice, |w| notice.write(w)),
        ]
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.pools.len(), 1);
    assert_eq!(
        (process.pools[0].limit, process.pools[0].device, process.pools[0].exhausts_in),
        (250, None, Some(0.5))
    );
    assert!(process.pools[0].cause.is_some());
    assert_eq!(process.clock.map(|clock| clock.cupti), Some(5));
    assert_eq!((snapshot.events[0].text.as_str(), snapshot.events[0].pid), ("a␇b", Some(844)));
}

#[test]
fn names_that_come_after_their_records_reach_every_row() {
    let snapshot = fed(|s| {
        vec![
            s.hello(),
            s.kernels(&[kernel(4, BASE, BASE + 10)]),
            s.frame(FrameKind::Names, |w| names::write_one(w, 4, b"_Z4gemmPf")),
        ]
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.kernels[0].name.full, "gemm(float*)");
    let detail = process.lanes[0].slices.iter().next().unwrap().detail;
    assert_eq!(process.details.get(detail).map(|detail| detail.name.short.as_str()), Some("gemm"));
}

#[test]
fn many_gaps_are_one_event_in_ten_seconds() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    for _ in 0..50 {
        stream.seq += 3;
        feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE, BASE + 1)]), at(2));
    }
    stream.seq += 3;
    feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE, BASE + 1)]), at(20));
    let events = model.snapshot(at(20)).events;
    let gaps: Vec<&str> =
        events.iter().filter(|event| event.topic == "gap").map(|event| event.text.as_str()).collect();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert!(gaps[1].starts_with("150 frames"), "{gaps:?}");
}

#[test]
fn time_goes_on_without_records_and_what_is_off_or_unheard_is_not_known() {
    let (mut model, conn, mut stream) = model();
    let (kernel_on, off) = (stream.kinds(&[Kind::Kernel, Kind::Memcpy]), stream.kinds(&[Kind::Memcpy]));
    let armed = stream
        .frame(FrameKind::State, |w| State { state: StateCode::Armed as u8, ..Default::default() }.write(w));
    let second = BASE + 100 * SECOND;
    let half: Vec<_> =
        (0..100).map(|i| kernel(1, second + i * 10_000_000, second + i * 10_000_000 + 5_000_000)).collect();
    let kernels = stream.kernels(&half);
    feed(&mut model, conn, &[stream.hello(), armed, kernel_on, kernels].concat(), at(101));
    model.link(conn, Link::Up, at(101));
    let newest = second + 995_000_000;
    let until = |model: &mut Model, second| model.snapshot(at(second)).processes[0].until;
    assert_eq!(until(&mut model, 101), newest, "records come late: that is no idleness");
    assert_eq!(until(&mut model, 104), BASE + 103 * SECOND);
    let rate = |model: &mut Model, second| model.snapshot(at(second)).processes[0].kernels[0].per_second;
    assert_eq!(rate(&mut model, 102), None, "there was no whole second yet");
    assert_eq!(rate(&mut model, 103), Some(0.0));
    // Records without believable times are placed where they came.
    let zero = stream.kernels(&[bad(Validity::Zero, 0, 0)]);
    feed(&mut model, conn, &zero, at(105));
    let process = model.snapshot(at(105)).processes.remove(0);
    assert_eq!(process.invalid_at[0].time, BASE + 104 * SECOND);
    assert_eq!((process.untraced.iter().any(|of| of.kind == Kind::Kernel), process.unheard), (false, None));
    feed(&mut model, conn, &off, at(106));
    let process = model.snapshot(at(108)).processes.remove(0);
    let blank = process.untraced.iter().find(|of| of.kind == Kind::Kernel).unwrap();
    assert_eq!((blank.from, blank.to), (BASE + 106 * SECOND, u64::MAX));
    assert_eq!(process.kernels[0].per_second, None);
    assert_eq!(model.snapshot(at(121)).processes[0].unheard, Some(15.0));
    model.link(conn, Link::Lost { since: 0, retries: 1 }, at(122));
    let process = model.snapshot(at(130)).processes.remove(0);
    assert_eq!((process.until, process.unheard), (0, None), "the badge says that the connection is lost");
}

#[test]
fn what_is_stopped_or_no_longer_heard_is_not_called_idle() {
    let (mut model, conn, mut stream) = model();
    let armed = stream
        .frame(FrameKind::State, |w| State { state: StateCode::Armed as u8, ..Default::default() }.write(w));
    let mut beat = |ms| {
        stream.frame(FrameKind::HostBuffers, |w| HostBuffers { beat_ms: ms, ..Default::default() }.write(w))
    };
    let frames = [armed, beat(500)].concat();
    feed(&mut model, conn, &frames, at(1));
    model.link(conn, Link::Up, at(1));
    let later = |ms: u64| Moment { wall: at(1).wall + ms * 1_000_000, steady: at(1).steady + ms * 1_000_000 };
    let seen = |model: &mut Model, ms| {
        let process = model.snapshot(later(ms)).processes.remove(0);
        (process.unheard, process.halt.map(|halt| (halt.cause, halt.seconds)))
    };
    assert_eq!(seen(&mut model, 1_400), (None, None));
    assert_eq!(seen(&mut model, 1_500), (Some(1.5), None), "three beats are missing");
    // One thread in the kernel explains silence and is none by itself.
    model.halt(conn, Halted::Blocked, later(1_500));
    assert_eq!(seen(&mut model, 2_000), (Some(2.0), Some((Halted::Blocked, 0.5))));
    feed(&mut model, conn, &beat(500), later(2_000));
    assert_eq!(seen(&mut model, 2_100), (None, None));
    model.halt(conn, Halted::Stopped, later(2_200));
    assert_eq!(seen(&mut model, 2_300), (None, Some((Halted::Stopped, 0.1))), "that is known at once");
    model.halt(conn, Halted::No, later(4_200));
    assert_eq!(seen(&mut model, 4_200).1, None);
    let said = model.snapshot(later(4_200)).events;
    let said: Vec<&str> =
        said.iter().filter(|event| event.topic == "halt").map(|e| e.text.as_str()).collect();
    assert!(said[0].starts_with("stopped by a signal") && said[1] == "goes on after 2.0 s", "{said:?}");
    // One that does not say how often it speaks does so every ten seconds.
    feed(&mut model, conn, &beat(0), later(5_000));
    assert_eq!((seen(&mut model, 16_900).0, seen(&mut model, 17_000).0), (None, Some(12.0)));
    model.link(conn, Link::Ended("over".to_owned()), later(18_000));
    model.halt(conn, Halted::Stopped, later(18_000));
    assert_eq!(seen(&mut model, 19_000), (None, None));
}

#[test]
fn lost_frames_leave_a_blank_and_the_steps_go_on() {
    const MS: u64 = 1_000_000;
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    model.link(conn, Link::Up, at(1));
    // A launch each 4 ms, ten to a frame; every other frame is lost.
    for frame in 0..60u64 {
        let launches: Vec<_> = (frame * 10..frame * 10 + 10)
            .map(|step| {
                let start = BASE + SECOND + step * 4 * MS;
                Kernel { graph: 41.into(), correlation: step.into(), ..kernel(1, start, start + 3 * MS) }
            })
            .collect();
        let bytes = stream.kernels(&launches);
        if frame % 2 == 0 {
            feed(&mut model, conn, &bytes, at(2));
        }
    }
    let process = model.snapshot(at(4)).processes.remove(0);
    assert_eq!(process.lost.len(), 29);
    let (from, to) = process.lost[0];
    assert_eq!((from - BASE - SECOND, to - BASE - SECOND), (39 * MS, 80 * MS));
    assert_eq!((process.steps[0].p50_ns, process.steps[0].p99_ns), (4 * MS, 4 * MS));
}

#[test]
fn a_rate_is_not_known_once_the_pool_is_full_or_while_only_windows_are_seen() {
    let (mut model, conn, mut stream) = model();
    let armed = stream
        .frame(FrameKind::State, |w| State { state: StateCode::Armed as u8, ..Default::default() }.write(w));
    let frames = [stream.hello(), armed, stream.kinds(&[Kind::Kernel])].concat();
    feed(&mut model, conn, &frames, at(1));
    model.link(conn, Link::Up, at(1));
    for second in 2..6 {
        let graph =
            Kernel { graph: 41.into(), ..kernel(1, BASE + second * SECOND, BASE + second * SECOND + 9) };
        feed(&mut model, conn, &stream.kernels(&[graph]), at(second));
    }
    let rates = |model: &mut Model| {
        let process = model.snapshot(at(6)).processes.remove(0);
        [process.kernels[0].per_second, process.by_graph[0].per_second]
    };
    let windows = |stream: &mut Stream, budget_ppm| {
        let said = message::Sampling { budget_ppm, time: BASE, ..Default::default() };
        stream.frame(FrameKind::Sampling, |w| said.write(w))
    };
    let pool = |stream: &mut Stream, state: PoolState| {
        let pool = Pool { context: 1, limit: 250, state: state as u8, ..Default::default() };
        stream.frame(FrameKind::Pools, |w| pools::write_one(w, &pool))
    };
    assert_eq!(rates(&mut model), [Some(1.0); 2]);
    feed(&mut model, conn, &windows(&mut stream, 10_000), at(6));
    assert_eq!(rates(&mut model), [None; 2], "a window tells of no second");
    feed(&mut model, conn, &windows(&mut stream, 0), at(6));
    assert_eq!(rates(&mut model), [Some(1.0); 2]);
    feed(&mut model, conn, &pool(&mut stream, PoolState::Leaking), at(6));
    assert_eq!(rates(&mut model), [Some(1.0); 2]);
    feed(&mut model, conn, &pool(&mut stream, PoolState::Exhausted), at(6));
    assert_eq!(rates(&mut model), [None; 2]);
}

#[test]
fn one_thing_is_told_once() {
    type Made<'a> = &'a dyn Fn(&mut Stream) -> Vec<u8>;
    let told = |frames: &[Made<'_>]| -> Vec<String> {
        let (mut model, conn, mut stream) = model();
        let hello = stream.hello();
        feed(&mut model, conn, &hello, at(10));
        for frame in frames {
            let bytes = frame(&mut stream);
            feed(&mut model, conn, &bytes, at(10));
        }
        model.snapshot(at(10)).events.iter().map(|event| event.topic.clone()).collect()
    };
    let notice = |severity, topic: &'static [u8]| {
        move |s: &mut Stream| {
            let notice = Notice { time: at(9).wall, severity, topic, text: b"words" };
            s.frame(FrameKind::Notice, |w| notice.write(w))
        }
    };
    let alarm = Severity::Alarm as u8;
    let enters = |state: StateCode, reason: u16| {
        move |s: &mut Stream| {
            let state = State { state: state as u8, reason, ..Default::default() };
            s.frame(FrameKind::State, |w| state.write(w))
        }
    };
    let [arming, armed, resting] =
        [StateCode::Arming, StateCode::Armed, StateCode::Resting].map(|state| enters(state, 0));
    assert_eq!(told(&[&arming]), ["arming"], "it may take long");
    assert_eq!(told(&[&arming, &notice(0, b"armed"), &armed]), ["armed"]);
    assert_eq!(told(&[&notice(0, b"armed"), &armed, &resting, &arming, &armed]), ["armed", "state"]);
    let silent = enters(StateCode::Silent, 8);
    assert_eq!(told(&[&silent, &notice(alarm, b"silent")]), ["state"]);
    assert_eq!(told(&[&notice(alarm, b"silent"), &silent]), ["state"]);
    assert_eq!(told(&[&silent, &notice(0, b"silent")]), ["silent", "state"], "that they come again is news");

    let loss = |s: &mut Stream| {
        let loss = Loss { walked: 9, queue_full: 4, offered: 5, dropped: 5, ..Default::default() };
        s.frame(FrameKind::Loss, |w| loss.write(w))
    };
    let gap = |s: &mut Stream| {
        s.seq += 3;
        s.frame(FrameKind::Records, |_| Ok(()))
    };
    for frames in [
        [&loss as Made<'_>, &gap, &notice(1, b"loss")],
        [&notice(1, b"loss"), &gap, &loss],
        [&gap, &loss, &notice(1, b"loss")],
    ] {
        assert_eq!(told(&frames), ["loss"]);
    }
    assert_eq!(told(&[&gap]), ["gap"]);
}

#[test]
fn an_error_is_named_once_and_a_command_has_the_process_in_it() {
    let reason = |state: StateCode, reason: u16, detail: &'static [u8]| {
        let snapshot = fed(|s| {
            let state = State { state: state as u8, reason, error: 39, detail, ..Default::default() };
            vec![s.hello(), s.frame(FrameKind::State, |w| state.write(w))]
        });
        snapshot.processes[0].reason.clone().unwrap()
    };
    let detail =
        b"cuptiSubscribe: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39); it calls itself \"nsys\"";
    let busy = reason(StateCode::Unavailable, 1, detail);
    assert_eq!(busy.matches("MULTIPLE_SUBSCRIBERS").count(), 1, "{busy}");
    assert!(busy.starts_with("busy: another tool holds CUPTI: cuptiSubscribe") && busy.ends_with("\"nsys\""));
    let tainted = reason(StateCode::Tainted, 0, b"say yes: gtop ctl --attach PID arm --yes");
    assert!(tainted.ends_with("gtop ctl --attach 844 arm --yes"), "{tainted}");
}
