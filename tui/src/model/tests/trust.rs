//! Clocks that jump, records that cannot be, and what each of them counts as.

use gtop_protocol::lifecycle::{self, Event, What};

use super::*;
use crate::model::snapshot::MemoryStep;

fn clock(stream: &mut Stream, pair: Clock) -> Vec<u8> {
    stream.frame(FrameKind::Clock, |w| pair.write(w))
}

fn pair(realtime: u64, monotonic: u64, boottime: u64, cupti: u64) -> Clock {
    Clock { realtime, monotonic, boottime, cupti, error: 900 }
}

#[test]
fn a_suspend_ends_a_session_and_is_no_idleness() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    let wall = 50_000 * SECOND;
    feed(&mut model, conn, &clock(&mut stream, pair(wall, 100 * SECOND, 100 * SECOND, 100 * SECOND)), at(1));
    let busy = |from: u64| -> Vec<Kernel> {
        (0..10).map(|i| kernel(1, from + i * 100_000_000, from + i * 100_000_000 + 50_000_000)).collect()
    };
    feed(&mut model, conn, &stream.kernels(&busy(100 * SECOND)), at(2));
    let share = |model: &mut Model, second| {
        let row = model.snapshot(at(second)).processes[0].streams[0];
        row.busy_ns as f64 / row.span_ns as f64
    };
    let before = share(&mut model, 2);
    feed(
        &mut model,
        conn,
        &clock(&mut stream, pair(wall + 3601 * SECOND, 101 * SECOND, 3701 * SECOND, 3701 * SECOND)),
        at(3),
    );
    feed(&mut model, conn, &stream.kernels(&busy(3701 * SECOND + SECOND / 2)), at(4));
    let after = share(&mut model, 4);
    assert!((before - after).abs() < 0.2, "{before} and {after}");
    let snapshot = model.snapshot(at(4));
    assert_eq!(snapshot.processes[0].clock_jumps, 1);
    let said: Vec<_> = snapshot.events.iter().filter(|event| event.topic == "clock").collect();
    assert!(
        said.iter().any(|event| event.text.contains("clock jump +3600.0 s")
            && event.text.contains("suspended for 3600.0 s")),
        "{said:?}"
    );
}

#[test]
fn a_clock_of_another_domain_is_said_and_mapped() {
    let wall = 1_618_299_047_442_206_100;
    let monotonic = 14_317_211_549_313;
    let with = |cupti: u64| fed(|s| vec![s.hello(), clock(s, pair(wall, monotonic, monotonic + 90, cupti))]);
    let snapshot = with(monotonic);
    let process = &snapshot.processes[0];
    let kernel = monotonic + 5_000_000;
    let mapped = crate::model::time::wall_time(process.clock.as_ref(), kernel);
    assert!(mapped.abs_diff(wall + 5_000_000) < 1_000_000, "{mapped}");
    assert!(snapshot.events.iter().any(|event| event.text.contains("CUPTI's clock is monotonic")));
    let snapshot = with(wall - monotonic);
    assert!(
        snapshot.events.iter().any(|event| event.topic == "clock" && event.text.contains("14317.21 s off")),
        "{:?}",
        snapshot.events
    );
    assert!(with(wall).events.iter().all(|event| event.topic != "clock"), "the usual is not worth a word");
}

#[test]
fn an_end_that_came_late_is_suspect_and_time_is_counted_once() {
    let times = [(0, 1_600_000_000), (30_000, 61_000), (70_000, 90_000)];
    let snapshot = fed(|s| {
        let kernels: Vec<Kernel> =
            (1..).zip(times).map(|(name, (start, end))| kernel(name, BASE + start, BASE + end)).collect();
        vec![s.hello(), s.kernels(&kernels)]
    });
    let process = &snapshot.processes[0];
    assert_eq!(process.notes.overlong, 1);
    let suspect: Vec<_> = process.kernels.iter().map(|row| (row.id, row.overlong)).collect();
    assert_eq!(suspect, [(1, 1), (2, 0), (3, 0)]);
    assert_eq!(process.streams[0].busy_ns, 1_600_000_000);
    assert_eq!(process.kernels[0].max_ns, 1_600_000_000, "the value itself is kept");
}

#[test]
fn each_anomaly_has_its_counter_in_any_order() {
    use Validity::{ForeignClock, Future, Inverted, Sentinel, Zero, ZeroEnd, ZeroStart};
    let classes = [Zero, ZeroStart, ZeroEnd, Inverted, Sentinel, ForeignClock, Future];
    let mut kernels: Vec<Kernel> = (0..9_000u64)
        .map(|i| {
            let start = BASE + i * 100;
            let note = match i % 90 {
                0 => Notes::OVERLAP,
                1 => Notes::ZERO_LENGTH,
                2 => Notes::OUT_OF_ORDER,
                _ => 0,
            };
            Kernel {
                notes: note,
                ..kernel(1, start, if note == Notes::ZERO_LENGTH { start } else { start + 50 })
            }
        })
        .collect();
    kernels.extend(classes.iter().flat_map(|class| (0..100).map(|i| bad(*class, BASE + i, BASE + i + 1))));
    let shown = |kernels: &[Kernel]| {
        let snapshot = fed(|s| {
            let mut frames = vec![s.hello()];
            frames.extend(kernels.chunks(500).map(|part| s.kernels(part)));
            frames
        });
        let process = &snapshot.processes[0];
        for class in classes {
            assert_eq!(process.validity.total[class as usize], 100, "{class:?}");
        }
        let notes = process.notes;
        assert_eq!((notes.overlap, notes.zero_length, notes.out_of_order), (100, 100, 100));
        assert_eq!(process.validity.kinds[0].total, [9_700, 700]);
        let slices: Vec<_> = process.lanes[0].slices.iter().map(|slice| (slice.start, slice.end)).collect();
        slices
    };
    let one = shown(&kernels);
    // A fixed shuffle: 6,389 and the number of records have no common factor.
    let count = kernels.len();
    let mixed: Vec<Kernel> = (0..count).map(|i| kernels[i * 6_389 % count]).collect();
    assert_eq!(one, shown(&mixed));
    assert_eq!(one.len(), 9_000);
}

#[test]
fn sessions_whose_first_records_carry_another_clock_are_counted_not_dropped() {
    let snapshot = fed(|s| {
        let mut frames = vec![s.hello()];
        for round in 1..=5u64 {
            let kernels: Vec<Kernel> = (0..50)
                .map(|i| {
                    let start = BASE + round * SECOND + i * 1000;
                    let foreign = start - 100_000_000_000_000;
                    if i < round {
                        bad(Validity::ForeignClock, foreign, foreign + 500)
                    } else {
                        kernel(1, start, start + 500)
                    }
                })
                .collect();
            frames.push(s.kernels(&kernels));
        }
        frames
    });
    let validity = &snapshot.processes[0].validity;
    assert_eq!((validity.total[Validity::ForeignClock as usize], validity.total[0]), (15, 235));
    assert_eq!(snapshot.processes[0].records.shown, 250);
}

#[test]
fn device_buffers_that_fill_are_said_to_be_cuptis_memory_before_a_record_is_bad() {
    const MIB: u64 = 1 << 20;
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(0));
    let kinds = stream.kinds(&[Kind::Kernel]);
    feed(&mut model, conn, &kinds, at(0));
    // The program's memory is flat; each second another device buffer is filled with 100,000 kernels.
    let found = |snapshot: &Snapshot| {
        snapshot.processes[0].findings.iter().find(|finding| finding.rule == "device_buffers").cloned()
    };
    let mut first = None;
    for second in 1..=9u64 {
        let buffers = 3 + second;
        let mut list = vec![0; 256];
        let mut w = Writer::new(&mut list);
        processes::write_one(&mut w, 42, Some((12_700 + 4 * buffers) * MIB), b"vllm").unwrap();
        let len = w.len();
        list.truncate(len);
        let total = Some(24_000 * MIB);
        let sample = DeviceSample { memory_total: total, processes: &list, ..DeviceSample::default() };
        model.device_sample(&sample, at(second));
        let pool = Pool {
            context: 1,
            limit: 250,
            computed: Some(buffers),
            state: PoolState::Leaking as u8,
            since: Some(BASE + SECOND),
            slots_used: buffers * 100_000,
            slots_total: 25_000_000,
            exhausts_in: Some((250 - buffers) * SECOND),
            ..Pool::default()
        };
        let frame = stream.frame(FrameKind::Pools, |w| pools::write_one(w, &pool));
        feed(&mut model, conn, &frame, at(second));
        feed(&mut model, conn, &stream.kernels(&[kernel(1, BASE, BASE + 10)]), at(second));
        let snapshot = model.snapshot(at(second));
        assert_eq!(snapshot.processes[0].validity.rate_total, Some(0.0));
        first = first.or_else(|| found(&snapshot).map(|_| second));
    }
    assert_eq!(first, Some(1), "at once, and with no invalid record yet");
    let snapshot = model.snapshot(at(11));
    let finding = found(&snapshot).unwrap();
    assert!(finding.sentence.contains("12 of 250 in use, about 48 MiB of device memory"), "{finding:?}");
    let evidence = finding.evidence.join("; ");
    assert!(evidence.contains("used up in 238 s") && evidence.contains("meanwhile +32 MiB"), "{evidence}");
    let told = |model: &mut Model| {
        let events = model.snapshot(at(11)).events;
        let of = events.iter().map(|event| event.topic.clone()).filter(|topic| topic != "state");
        of.collect::<Vec<_>>()
    };
    assert_eq!(told(&mut model), ["device_buffers"], "whoever comes late has not heard the shim say it");
    let notice = Notice { time: at(2).wall, severity: 1, topic: b"pool", text: b"context 1 leaks" };
    feed(&mut model, conn, &stream.frame(FrameKind::Notice, |w| notice.write(w)), at(11));
    assert_eq!(told(&mut model), ["pool"], "once");
}

#[test]
fn a_capture_that_failed_has_the_memory_step_seen_during_it() {
    const MIB: u64 = 1 << 20;
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(0));
    let mut said = Vec::new();
    for second in 0..20u64 {
        let mut list = vec![0; 64];
        let mut w = Writer::new(&mut list);
        let bytes = if (3..9).contains(&second) { 1_300 * MIB } else { 1_000 * MIB };
        processes::write_one(&mut w, 42, Some(bytes), b"python").unwrap();
        let len = w.len();
        list.truncate(len);
        model.device_sample(&DeviceSample { processes: &list, ..DeviceSample::default() }, at(second));
        let what = match second {
            2 => Some((What::CaptureBegun, 0)),
            4 => Some((What::CaptureEnded, 901)),
            _ => None,
        };
        if let Some((what, result)) = what {
            let event = Event {
                what: what as u8,
                result: result.into(),
                stream: 7.into(),
                thread: 5.into(),
                time: at(second).wall.into(),
                ..Event::default()
            };
            let frame = stream.frame(FrameKind::Lifecycle, |w| {
                lifecycle::write_head(w)?;
                w.bytes(event.as_bytes())
            });
            feed(&mut model, conn, &frame, at(second));
        }
        let capture = model.snapshot(at(second)).processes[0].graphs_view.captures.first().cloned();
        let step = capture.and_then(|capture| capture.memory);
        if said.last() != Some(&step) {
            said.push(step);
        }
    }
    let step = |kept| Some(MemoryStep { taken: 300 * MIB.cast_signed(), kept });
    assert_eq!(said, [None, step(None), step(Some(0))], "it came back");
}

#[test]
fn a_clock_that_is_set_back_an_hour_is_told_and_nothing_is_idle_or_lost() {
    let (mut model, conn, mut stream) = model();
    feed(&mut model, conn, &stream.hello(), at(1));
    let wall = 50_000 * SECOND;
    let mono = |second: u64| second * SECOND;
    // CUPTI's clock is the host's realtime and is set back with it.
    feed(&mut model, conn, &clock(&mut stream, pair(wall, mono(100), mono(100), wall)), at(1));
    let busy = |from: u64| -> Vec<Kernel> {
        (0..10).map(|i| kernel(1, from + i * 100_000_000, from + i * 100_000_000 + 50_000_000)).collect()
    };
    feed(&mut model, conn, &stream.kernels(&busy(wall)), at(2));
    let back = wall - 3599 * SECOND;
    feed(&mut model, conn, &clock(&mut stream, pair(back, mono(101), mono(101), back)), at(3));
    feed(&mut model, conn, &stream.kernels(&busy(back)), at(4));
    let snapshot = model.snapshot(at(4));
    let process = &snapshot.processes[0];
    assert_eq!((process.clock_jumps, process.validity.rate_total), (1, Some(0.0)));
    assert_eq!((process.records.kernel, process.kernels[0].calls), (20, 20));
    assert_eq!(process.kernels[0].total_ns, 20 * 50_000_000);
    let row = process.streams[0];
    let share = row.busy_ns as f64 / row.span_ns as f64;
    assert!((0.4..=0.6).contains(&share), "busy {} of {}", row.busy_ns, row.span_ns);
    let said: Vec<_> = snapshot.events.iter().filter(|event| event.topic == "clock").collect();
    assert!(said.iter().any(|event| event.text.contains("clock jump -3600.0 s")), "{said:?}");
}
