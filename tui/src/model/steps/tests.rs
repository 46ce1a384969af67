//! Steps of launches made by hand.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

#[derive(Clone, Copy)]
struct Record {
    start: u64,
    end: u64,
    correlation: u64,
    graph: u32,
    is_kernel: bool,
}

impl Record {
    fn piece(self) -> place::Piece {
        let Self { start, end, correlation, is_kernel, .. } = self;
        let kernel = if is_kernel { 0 } else { u32::MAX };
        place::Piece { start, end, correlation, node: 0, detail: 0, kernel }
    }
}

fn add(steps: &mut Steps, device: Option<u32>, context: u32, record: Record) {
    let place = Place { stream: StreamKey { device, context, stream: 7 }, graph: record.graph };
    steps.add(&place, &[record.piece()], &Extent::of(&[record.piece()]));
}

/// When a graph is launched, which, and the spans of its kernels from there.
type Launched<'a> = (u64, u32, &'a [(u64, u64)]);

/// Feeds launches, each a start, a graph and the spans of its kernels, and what ran outside graphs.
fn fed(launches: &[Launched<'_>], eager: &[(u64, u64)]) -> Steps {
    let mut pieces = Vec::new();
    for (i, (at, graph, spans)) in launches.iter().enumerate() {
        let piece = |(from, to): &(u64, u64)| Record {
            start: at + from,
            end: at + to,
            correlation: i as u64 + 1,
            graph: *graph,
            is_kernel: true,
        };
        pieces.extend(spans.iter().map(piece));
    }
    pieces.extend(eager.iter().map(|(start, end)| Record {
        start: *start,
        end: *end,
        correlation: 0,
        graph: 0,
        is_kernel: true,
    }));
    // Buffers come out of order.
    pieces.sort_by_key(|piece| (piece.start / (10 * MS)) ^ 1);
    pieces.sort_by_key(|piece| piece.graph == 0);
    let mut steps = Steps::default();
    for piece in pieces {
        add(&mut steps, Some(0), 1, piece);
    }
    steps.settle(true);
    steps
}

#[test]
fn one_launch_a_step_has_the_time_from_start_to_start() {
    // 2 ms of graph with 0.2 ms of nothing inside, 0.5 ms of sampling in 1 ms outside.
    let spans: &[(u64, u64)] = &[(0, MS), (MS + MS / 5, 2 * MS)];
    let launches: Vec<_> = (1..101).map(|i| (i * 3 * MS, 41, spans)).collect();
    let eager: Vec<_> =
        (1..101).map(|i| (i * 3 * MS + 2 * MS + MS / 4, i * 3 * MS + 2 * MS + 3 * MS / 4)).collect();
    let rows = fed(&launches, &eager).rows(301 * MS);
    let row = &rows[0];
    assert_eq!((rows.len(), row.device, row.context, row.current), (1, Some(0), 1, true));
    assert_eq!((row.count, row.p50_ns, row.p99_ns, row.jitter_ns), (99, 3 * MS, 3 * MS, 0));
    assert_eq!((row.kernels, row.launches, row.graphs.as_slice()), (3, 1, [41].as_slice()));
    assert_eq!((row.idle_inside_ns, row.idle_between_ns), (MS / 5, MS / 2));
}

#[test]
fn pieces_in_turn_are_one_step_that_begins_after_the_longest_wait() {
    // Watched from the middle of a step on: 30 pieces, one every 0.2 ms, then 0.7 ms of host.
    let launches: Vec<Launched<'_>> = (12..30 * 40)
        .map(|i| {
            (
                MS + i / 30 * (6 * MS + MS / 2) + i % 30 * (MS / 5),
                100 + (i % 30) as u32,
                [(0, 60_000)].as_slice(),
            )
        })
        .collect();
    let rows = fed(&launches, &[]).rows(300 * MS);
    let row = &rows[0];
    assert_eq!((row.p50_ns, row.count, row.launches, row.kernels), (6 * MS + MS / 2, 38, 30, 30));
    assert_eq!(row.graphs, [100]);
    assert_eq!(row.idle_between_ns, MS / 5 + MS / 2 - 60_000);
}

#[test]
fn a_batch_that_shrinks_changes_the_graph_and_is_still_one_step_a_launch() {
    let launches: Vec<Launched<'_>> =
        (1..200).map(|i| (i * 3 * MS, 32 - (i / 20) as u32, [(0, 2 * MS)].as_slice())).collect();
    let rows = fed(&launches, &[]).rows(0);
    assert_eq!((rows[0].count, rows[0].p50_ns, rows[0].launches), (198, 3 * MS, 1));
}

#[test]
fn steps_seen_in_windows_are_those_that_lie_in_one() {
    // Steps of 4 ms, windows of 10 ms in every 100 ms: each holds one or two whole steps and pieces of others.
    let mut steps = Steps::default();
    let windows: Vec<(u64, u64)> = (1..60).map(|i| (i * 103 * MS, i * 103 * MS + 10 * MS)).collect();
    steps.not_traced(windows.windows(2).map(|pair| (pair[0].1, pair[1].0)));
    for step in 1..2_000u64 {
        for kernel in 0..10 {
            let start = step * 4 * MS + kernel * MS / 4;
            let piece = Record { start, end: start + MS / 8, correlation: step, graph: 41, is_kernel: true };
            let traced = |(from, to): &(u64, u64)| (*from..*to).contains(&start);
            if windows.iter().any(traced) {
                add(&mut steps, Some(0), 1, piece);
            }
        }
    }
    steps.settle(true);
    assert!(steps.gaps().is_empty(), "a time without tracing is no idleness");
    let row = &steps.rows(6_000 * MS)[0];
    assert_eq!((row.p50_ns, row.p99_ns, row.kernels), (4 * MS, 4 * MS, 10));
    assert!(row.count > windows.len() as u64 / 2);
    // What is told again, or of times that are in others, changes nothing.
    let told: Vec<(u64, u64)> = steps.blanks.iter().copied().collect();
    steps.not_traced(told.iter().copied().chain([(windows[3].1, windows[4].0 - 1)]));
    assert_eq!(steps.blanks, told);
    for at in 0..2 * MAX_BLANKS as u64 {
        steps.not_traced(std::iter::once((60 * SECOND + at * MS, 60 * SECOND + at * MS + 1)));
    }
    assert_eq!(steps.blanks.len(), MAX_BLANKS);
}

#[test]
fn draft_launches_are_part_of_the_step() {
    // A draft's graph three times at 0.3 ms each, then the large one, then 0.8 ms of host.
    let mut launches: Vec<Launched<'_>> = Vec::new();
    for i in 1..100 {
        let at = i * 5 * MS;
        launches.push((at, 7, [(0, 3 * MS)].as_slice()));
        launches.extend((0..3).map(|d| (at + 3 * MS + d * MS / 3, 8, [(0, MS / 4)].as_slice())));
    }
    let rows = fed(&launches, &[]).rows(0);
    assert_eq!((rows[0].p50_ns, rows[0].launches, rows[0].graphs.as_slice()), (5 * MS, 4, [7].as_slice()));
}

#[test]
fn graphs_that_come_now_and_then_do_not_end_the_steps() {
    // A server for four minutes: a step every 3.25 ms, and each 40 s a pause, then a prompt in 29 pieces of other graphs.
    let (step, round) = (3 * MS + MS / 4, 40 * SECOND);
    let mut steps = Steps::default();
    let (mut at, mut correlation, mut looked_at, mut seen) = (SECOND, 0, 10 * SECOND, 0);
    let mut launch = |steps: &mut Steps, at: u64, graph: u32, ns: u64| {
        correlation += 1;
        add(steps, Some(0), 1, Record { start: at, end: at + ns, correlation, graph, is_kernel: true });
    };
    while at < 240 * SECOND {
        if at % round < step {
            at += 5 * MS;
            for piece in 0..29 {
                launch(&mut steps, at + piece * MS / 5, 2444 + 3 * piece as u32, 60_000);
            }
            at += 9 * MS;
        }
        launch(&mut steps, at, 4751, 2 * MS);
        at += step;
        if at >= looked_at {
            looked_at += 10 * SECOND;
            steps.settle(false);
            let rows = steps.rows(at);
            let row = rows.first().unwrap_or_else(|| panic!("no steps at {} s", at / SECOND));
            assert_eq!((row.p50_ns, row.launches, row.current), (step, 1, true), "at {} s", at / SECOND);
            assert!(row.p99_ns < 2 * step && row.graphs.contains(&4751), "at {} s: {row:?}", at / SECOND);
            seen += 1;
        }
    }
    assert_eq!(seen, 24);
}

#[test]
fn launches_without_rhythm_and_few_launches_are_no_steps() {
    let span: &[(u64, u64)] = &[(0, MS)];
    let wild: Vec<_> = (1..100u64).map(|i| (i * i * i % 1009 * 20 * MS + i, 41, span)).collect();
    assert!(fed(&wild, &[]).rows(0).is_empty());
    let few: Vec<_> = (1..8).map(|i| (i * 3 * MS, 41, span)).collect();
    assert!(fed(&few, &[]).rows(0).is_empty());
    assert!(Steps::default().rows(0).is_empty());
}

#[test]
fn a_rhythm_that_has_stopped_is_not_current_and_a_pause_is_no_step() {
    let span: &[(u64, u64)] = &[(0, MS)];
    let launches: Vec<_> = (1..100).map(|i| (i * 3 * MS + i / 50 * SECOND, 41, span)).collect();
    let steps = fed(&launches, &[]);
    let row = steps.rows(1_300 * MS).remove(0);
    assert_eq!((row.count, row.p99_ns, row.current), (97, 3 * MS, true));
    assert!(!steps.rows(10 * SECOND).remove(0).current);
}

#[test]
fn records_of_many_seconds_last_as_long_as_they_did() {
    let mut steps = Steps::default();
    for (start, took) in [(1, 3), (10, 5 << 32), (20, (7 << 32) + 9), (30, u64::from(u32::MAX))] {
        let piece = Record { start, end: start + took, correlation: 1, graph: 41, is_kernel: true };
        add(&mut steps, Some(0), 1, piece);
    }
    steps.settle(true);
    assert_eq!((steps.tracks[0].covered, steps.tracks[0].launches[0].end), (29 + (7 << 32), 29 + (7 << 32)));
}

#[test]
fn records_without_end_stay_bounded() {
    let mut steps = Steps::default();
    for i in 0..600_000u64 {
        let piece = Record { start: 1 + i, end: 2 + i, correlation: i / 4, graph: 5, is_kernel: true };
        add(&mut steps, Some(0), 1, piece);
    }
    let track = &steps.tracks[0];
    assert!(track.waiting.len() <= 2 * (MOST + MANY) && track.launches.len() == MAX_LAUNCHES);
    for context in 0..1_000 {
        add(
            &mut steps,
            None,
            context,
            Record { start: 1, end: 2, correlation: 1, graph: 1, is_kernel: true },
        );
    }
    assert_eq!(steps.tracks.len(), MAX_TRACKS);
}

#[test]
fn kernels_outside_graphs_are_late_when_they_wait_longer_than_they_run() {
    let launches: Vec<_> = (1..101).map(|i| (i * MS, 41, [(0, 500_000)].as_slice())).collect();
    // Ten kernels of 1.5 µs after each graph: the second waits as given, the others as told by `gap`.
    let late = |first: u64, gap: u64| {
        let kernel = |i: u64, k: u64| {
            let start = i * MS + 510_000 + k * (1_500 + gap) + if k > 0 { first } else { 0 };
            (start, start + 1_500)
        };
        let eager: Vec<_> = (1..101).flat_map(|i| (0..10).map(move |k| kernel(i, k))).collect();
        let eager = fed(&launches, &eager).eager();
        (eager.kernels, eager.gaps, eager.late)
    };
    // Launched ahead, but for one wait for the host that makes up most of the time between them.
    assert_eq!(late(200_000, 1_300), (1_000, 900, 100));
    // As soon as can be is not late, however short the kernels are.
    assert_eq!(late(0, 1_600), (1_000, 900, 0));
    assert_eq!(late(0, 10_000), (1_000, 900, 900));
}

proptest! {
    #[test]
    fn records_that_come_late_are_put_where_they_belong(
        list in prop::collection::vec((0u64..30, 0u64..20, 0u64..3, 0u32..3, any::<bool>()), 1..300),
        looked_at in 1usize..40,
        together in 1usize..20,
    ) {
        let mut at = MS;
        let pieces: Vec<Record> = list
            .into_iter()
            .map(|(wait, early, correlation, graph, is_kernel)| {
                at += wait;
                let start = at - early.saturating_sub(10);
                Record { start, end: start + wait, correlation: at / 50 * 3 + correlation, graph, is_kernel }
            })
            .collect();
        let mut ordered = pieces.clone();
        ordered.sort_by_key(|piece| piece.start);
        let mut one = Track::new(None, 1);
        for piece in &ordered {
            let group = Group::of(&piece.piece(), piece.graph);
            one.run(piece.start, piece.end, &group, &VecDeque::new());
        }
        let mut other = Track::new(None, 1);
        let alike: Vec<_> = pieces.chunk_by(|a, b| a.graph == b.graph).flat_map(|run| run.chunks(together)).collect();
        for (number, records) in alike.into_iter().enumerate() {
            let pieces: Vec<_> = records.iter().map(|record| record.piece()).collect();
            other.add(records[0].graph, &pieces, &Extent::of(&pieces), &VecDeque::new());
            if number % looked_at == 0 {
                other.settle(false, &VecDeque::new());
            }
        }
        other.settle(true, &VecDeque::new());
        prop_assert_eq!(format!("{:?}", other.launches), format!("{:?}", one.launches));
        prop_assert_eq!((other.covered, other.eager), (one.covered, one.eager));
    }
}
