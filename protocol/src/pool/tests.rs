//! The law against measured counts, and each state of a pool.

mod inside;

use super::*;

const NOW: u64 = 1_764_000_000_000_000_000;

fn model(defective: bool, limit: u64, kinds: KindSet) -> Model<Vec<Graph>> {
    let mut model = Model::new(vec![Graph::default(); 64], defective);
    model.set_limit(limit, false);
    model.kinds_changed(kinds, NOW);
    model
}

fn kernel(graph: u32, index: u64) -> record::Kernel {
    record::Kernel {
        start: (NOW - 100).into(),
        end: NOW.into(),
        context: 1.into(),
        graph: graph.into(),
        graph_node: (if graph == 0 { 0 } else { u64::from(graph) << 32 | index }).into(),
        ..record::Kernel::default()
    }
}

/// Node 0 of graph 2 is a memory set, as callbacks tell.
fn with_memset(model: &mut Model<Vec<Graph>>) {
    model.node(2, 2 << 32, 2, None);
}

/// State and doubt of the first pool.
fn state(model: &Model<Vec<Graph>>) -> Option<(PoolState, bool)> {
    model.pools().next().map(|pool| (PoolState::from_wire(pool.state), pool.in_doubt == 1))
}

fn overhead() -> record::Other {
    record::Other { cupti_kind: 17.into(), code: OVERHEAD_RESOURCE.into(), ..record::Other::default() }
}

/// Replays a graph whose node 0 is an uncovered memory set and whose further nodes are kernels, with eager kernels
/// beside, and gives the graph kernels seen when the model says the pool is exhausted.
fn kernels_until_exhausted(limit: u64, kernels: u64, eager: u64) -> u64 {
    let mut model = model(true, limit, KindSet::EMPTY.with(Kind::Kernel));
    with_memset(&mut model);
    let exhausted = |model: &Model<Vec<Graph>>| {
        model.pools().next().is_some_and(|pool| pool.state == PoolState::Exhausted as u8)
    };
    for replay in 0u64.. {
        for index in 1..=kernels {
            model.kernel(&kernel(2, index), NOW);
            if exhausted(&model) {
                return replay * kernels + index;
            }
        }
        for _ in 0..eager {
            model.kernel(&kernel(0, 0), NOW);
            if exhausted(&model) {
                return (replay + 1) * kernels;
            }
        }
    }
    0
}

#[test]
fn the_law_gives_the_measured_record_counts() {
    // Measured on 13.0.85: exactly 400,000 at a limit of 8, 800,000 at 16, 133,333 of each with an eager kernel
    // at 4, 784,304 with 50 kernels a copy. It must be said with the records that come, since none comes after.
    for (limit, kernels, eager, measured) in
        [(8, 1, 0, 400_000), (16, 1, 0, 800_000), (4, 1, 1, 133_333), (8, 50, 0, 784_304)]
    {
        let seen = kernels_until_exhausted(limit, kernels, eager);
        assert!(
            (measured - 60..=measured).contains(&seen),
            "limit {limit}, {kernels} kernels: {seen}, not {measured}"
        );
    }
}

#[test]
fn covered_nodes_and_sound_versions_are_safe() {
    let mut covered = model(true, 8, KindSet::SAFE);
    let mut sound = model(false, 8, KindSet::EMPTY.with(Kind::Kernel));
    for _ in 0..1_000_000 {
        let copy = record::Copy {
            context: 1.into(),
            graph: 2.into(),
            graph_node: (2u64 << 32).into(),
            ..record::Copy::default()
        };
        covered.copy(&copy, NOW);
        covered.kernel(&kernel(2, 1), NOW);
        sound.kernel(&kernel(2, 1), NOW);
    }
    assert_eq!(covered.pools().next().map(|pool| pool.state), Some(PoolState::Safe as u8));
    assert_eq!(sound.pools().next().map(|pool| pool.state), Some(PoolState::Safe as u8));
    assert!(!covered.leaks());
}

#[test]
fn copies_that_were_seen_are_holes_once_their_kind_is_off() {
    let mut model = model(true, 8, KindSet::SAFE);
    let copy = record::Copy {
        context: 1.into(),
        graph: 2.into(),
        graph_node: (2u64 << 32).into(),
        ..record::Copy::default()
    };
    let replay = |model: &mut Model<Vec<Graph>>, covered: bool| {
        if covered {
            model.copy(&copy, NOW);
        }
        model.kernel(&kernel(2, 1), NOW);
    };
    (0..150_000).for_each(|_| replay(&mut model, true));
    model.kinds_changed(KindSet::SAFE.without(Kind::Memcpy), NOW);
    // Copies from before are still under way.
    model.copy(&copy, NOW);
    assert!(!model.leaks(), "nothing was replayed since");
    (0..1000).for_each(|_| replay(&mut model, false));
    let pool = model.pools().next().unwrap();
    assert_eq!((pool.state, pool.cause), (PoolState::Leaking as u8, LeakCause::KindOff as u8));
    assert_eq!(pool.slots_used, 2001, "from the buffer on that was being filled");
    model.kinds_changed(KindSet::SAFE, NOW);
    (0..1000).for_each(|_| replay(&mut model, true));
    assert_eq!(model.pools().next().map(|pool| pool.slots_used), Some(4001), "it helps no more");
}

#[test]
fn copies_from_and_to_the_host_leave_no_hole_when_their_kind_goes_off() {
    for (direction, leaks) in [(1, false), (2, false), (8, true)] {
        let mut model = model(true, 8, KindSet::SAFE);
        let copy = record::Copy {
            context: 1.into(),
            graph: 2.into(),
            graph_node: (2u64 << 32).into(),
            direction,
            ..record::Copy::default()
        };
        (0..10).for_each(|_| {
            model.copy(&copy, NOW);
            model.kernel(&kernel(2, 1), NOW);
        });
        model.kinds_changed(KindSet::SAFE.without(Kind::Memcpy), NOW);
        (0..10).for_each(|_| model.kernel(&kernel(2, 1), NOW));
        assert_eq!(model.leaks(), leaks, "direction {direction}");
    }
}

#[test]
fn the_time_left_follows_from_the_rate() {
    let mut model = model(true, 8, KindSet::EMPTY.with(Kind::Kernel));
    with_memset(&mut model);
    for _ in 0..100_000 {
        model.kernel(&kernel(2, 1), NOW);
    }
    model.tick(NOW + 1_000_000_000);
    let pool = model.pools().next().unwrap();
    assert_eq!((pool.state, pool.graph), (PoolState::Leaking as u8, 2));
    let seconds = pool.exhausts_in.unwrap() as f64 / 1e9;
    assert!((seconds - 3.0).abs() < 0.01, "200,000 of 800,000 slots in a second leave three: {seconds}");
}

#[test]
fn a_limit_set_too_late_changes_nothing_and_is_told() {
    let mut model = model(true, DEFAULT_LIMIT, KindSet::SAFE);
    model.kernel(&kernel(0, 0), NOW);
    model.set_limit(8, true);
    let pool = model.pools().next().unwrap();
    assert_eq!((pool.limit, pool.limit_too_late), (250, 1));
}

#[test]
fn all_off_starts_a_leak_where_graphs_are() {
    for (node_type, leaks, in_doubt) in [(2, true, false), (1, false, true), (0, false, false)] {
        let mut model = model(true, 8, KindSet::SAFE);
        model.node(2, 2 << 32, node_type, None);
        model.kernel(&kernel(2, 1), NOW);
        model.kinds_changed(KindSet::COVERING, NOW);
        assert!(!model.leaks());
        model.kinds_changed(KindSet::EMPTY, NOW);
        assert_eq!(model.leaks(), leaks, "node type {node_type}");
        let pool = model.pools().next().unwrap();
        assert_eq!(pool.in_doubt == 1, in_doubt, "node type {node_type}");
        assert!(!leaks || pool.cause == LeakCause::AllOff as u8);
    }
}

#[test]
fn buffers_are_observed_where_overhead_records_are_on_from_the_first_kind_on() {
    let mut model = model(true, 8, KindSet::SAFE.with(Kind::Overhead));
    model.kernel(&kernel(0, 0), NOW);
    let seen = |model: &Model<Vec<Graph>>| model.pools().next().map(|pool| (pool.observed, pool.seen));
    (0..3).for_each(|_| model.other(&overhead(), NOW));
    assert_eq!(seen(&model), Some((None, Some(3))), "fewer than there are in any pool");
    (0..6).for_each(|_| model.other(&overhead(), NOW));
    assert_eq!(seen(&model), Some((Some(8), None)));
    model.kinds_changed(KindSet::SAFE, NOW);
    assert_eq!(seen(&model), Some((None, None)));
    // On again: what came meanwhile is not known.
    model.kinds_changed(KindSet::SAFE.with(Kind::Overhead), NOW);
    (0..5).for_each(|_| model.other(&overhead(), NOW));
    assert_eq!(seen(&model), Some((None, Some(5))));
}

#[test]
fn overhead_records_that_go_on_later_are_a_part_and_the_computed_figure_stands() {
    let mut model = model(true, 250, KindSet::SAFE);
    model.kernel(&kernel(0, 0), NOW);
    model.kinds_changed(KindSet::SAFE.with(Kind::Overhead), NOW);
    let numbers = |model: &Model<Vec<Graph>>| {
        let pool = model.pools().next().unwrap();
        (pool.observed, pool.computed, pool.seen, PoolState::from_wire(pool.state))
    };
    assert_eq!(numbers(&model), (None, Some(3), Some(0), PoolState::Safe));
    (0..20).for_each(|_| model.other(&overhead(), NOW));
    assert_eq!(numbers(&model), (None, Some(3), Some(20), PoolState::Safe));
}

#[test]
fn allocations_without_a_context_belong_to_the_only_one_or_to_nobody() {
    let mut model = model(true, 8, KindSet::SAFE.with(Kind::Overhead));
    for _ in 0..4 {
        model.other(&overhead(), NOW);
    }
    assert_eq!(model.pools().count(), 0, "no pool of a context 0");
    model.kernel(&kernel(0, 0), NOW);
    model.other(&overhead(), NOW);
    assert_eq!(model.pools().next().and_then(|pool| pool.observed), Some(4));
    let mut elsewhere = kernel(0, 0);
    elsewhere.context = 7.into();
    model.kernel(&elsewhere, NOW);
    model.other(&overhead(), NOW);
    assert!(model.pools().all(|pool| pool.observed.is_none()), "whose it is cannot be told any more");
}

#[test]
fn a_pool_that_is_all_but_full_and_stands_still_is_exhausted() {
    let mut model = model(true, 8, KindSet::EMPTY.with(Kind::Kernel));
    with_memset(&mut model);
    let state = |model: &Model<Vec<Graph>>| state(model).map(|(state, _)| state);
    for _ in 0..399_800 {
        model.kernel(&kernel(2, 1), NOW);
    }
    model.tick(NOW + 1_000_000_000);
    assert_eq!(state(&model), Some(PoolState::Leaking), "400 slots of 800,000 are left");
    model.tick(NOW + 2_000_000_000);
    assert_eq!(state(&model), Some(PoolState::Exhausted), "and nothing comes any more");
    model.kernel(&kernel(2, 1), NOW);
    model.tick(NOW + 3_000_000_000);
    assert_eq!(state(&model), Some(PoolState::Leaking), "it was only a pause");
}

#[test]
fn two_contexts_are_told_apart() {
    let mut model = model(true, 8, KindSet::EMPTY.with(Kind::Kernel));
    with_memset(&mut model);
    for _ in 0..10 {
        model.kernel(&kernel(2, 1), NOW);
        model.kernel(&record::Kernel { context: 2.into(), ..kernel(3, 0) }, NOW);
    }
    let states: Vec<u8> = model.pools().map(|pool| pool.state).collect();
    assert_eq!(states, [PoolState::Leaking as u8, PoolState::Unknown as u8]);
}

#[test]
fn limits_beyond_reason_are_limits_all_the_same() {
    for limit in [0, 1, u64::MAX] {
        let mut model = model(true, limit, KindSet::EMPTY.with(Kind::Kernel));
        with_memset(&mut model);
        for _ in 0..60_000 {
            model.kernel(&kernel(2, 1), NOW);
        }
        model.tick(NOW + 1_000_000_000);
        let pool = model.pools().next().unwrap();
        let state = if limit == u64::MAX { PoolState::Leaking } else { PoolState::Exhausted };
        assert_eq!((pool.limit, pool.state), (limit, state as u8));
        assert!(pool.computed.is_some_and(|computed| computed <= limit));
    }
}

#[test]
fn a_flood_of_other_overhead_counts_as_no_buffer() {
    let mut model = model(true, 8, KindSet::SAFE.with(Kind::Overhead));
    model.kernel(&kernel(0, 0), NOW);
    let overhead =
        |code: u32| record::Other { cupti_kind: 17.into(), code: code.into(), ..record::Other::default() };
    (0..4).for_each(|_| model.other(&overhead(OVERHEAD_RESOURCE), NOW));
    (0..100_000).for_each(|_| model.other(&overhead(1 << 16), NOW));
    assert_eq!(model.pools().next().and_then(|pool| pool.observed), Some(3));
}

#[test]
fn nodes_that_were_told_of_count_from_the_first_replay_on() {
    let mut model = model(true, 8, KindSet::EMPTY.with(Kind::Kernel));
    // A memory set, a kernel, a host function and another kernel; of another graph nothing is known.
    for (index, node_type) in [(0, 2), (1, 0), (2, 3), (3, 0)] {
        model.node(1, 1 << 32 | index, node_type, None);
    }
    model.exec(2, 1);
    model.graph_gone(1);
    model.exec(9, 8);
    assert!(!model.leaks(), "nothing was replayed yet");
    model.kernel(&kernel(2, 1), NOW);
    let pool = model.pools().next().unwrap();
    assert_eq!((pool.state, pool.graph), (PoolState::Leaking as u8, 2));
    assert_eq!(pool.slots_used, 2, "the kernel and the memory set, not the host function");
    model.kernel(&kernel(2, 3), NOW);
    (0..3).for_each(|_| [1, 3].into_iter().for_each(|index| model.kernel(&kernel(2, index), NOW)));
    assert_eq!(model.pools().next().map(|pool| pool.slots_used), Some(4 * 3));
    model.kernel(&kernel(9, 4), NOW);
    assert_eq!(model.pools().next().map(|pool| pool.slots_used), Some(13), "one replay tells of no hole");
}

/// Replays a graph of one copy, which callbacks told of, and a kernel, with kernels alone traced.
fn with_copy(limit: u64, replays: u64) -> Model<Vec<Graph>> {
    let mut model = model(true, limit, KindSet::EMPTY.with(Kind::Kernel));
    model.node(2, 2 << 32, 1, None);
    (0..replays).for_each(|_| model.kernel(&kernel(2, 1), NOW));
    model
}

fn copy(direction: u8) -> record::Copy {
    record::Copy {
        context: 1.into(),
        graph: 2.into(),
        graph_node: (2u64 << 32).into(),
        direction,
        ..record::Copy::default()
    }
}

#[test]
fn a_copy_whose_call_told_its_direction_is_in_no_doubt() {
    for (within, then) in [(true, (PoolState::Leaking, false)), (false, (PoolState::Unknown, false))] {
        let mut model = model(true, 8, KindSet::EMPTY.with(Kind::Kernel));
        model.node(2, 2 << 32, 1, Some(within));
        (0..1_000).for_each(|_| model.kernel(&kernel(2, 1), NOW));
        assert_eq!(state(&model), Some(then));
        assert_eq!(model.pools().next().map(|pool| pool.slots_used), Some(if within { 2_000 } else { 0 }));
    }
}

#[test]
fn a_copy_of_unknown_direction_may_leak_and_a_record_tells() {
    for (direction, leaks) in [(1, false), (2, false), (8, true)] {
        let mut model = with_copy(8, 100_000);
        model.tick(NOW + 1_000_000_000);
        assert!(!model.leaks());
        let pool = model.pools().next().unwrap();
        assert_eq!(state(&model), Some((PoolState::Unknown, true)));
        assert_eq!((pool.graph, pool.slots_used, pool.computed), (2, 200_000, Some(3)), "at worst");
        assert_eq!(pool.exhausts_in.map(|ns| ns / 1_000_000_000), Some(3), "at worst");
        model.kinds_changed(KindSet::SAFE, NOW);
        assert_eq!(state(&model), Some((PoolState::Unknown, true)), "what began goes on");
        model.copy(&copy(direction), NOW);
        model.kernel(&kernel(2, 1), NOW);
        let then = if leaks { PoolState::Leaking } else { PoolState::Safe };
        assert_eq!((state(&model), model.leaks()), (Some((then, false)), leaks), "direction {direction}");
        let used = if leaks { 200_002 } else { 0 };
        assert_eq!(model.pools().next().map(|pool| pool.slots_used), Some(used), "from its beginning on");
    }
}

#[test]
fn records_that_go_on_where_no_slot_was_left_at_worst_say_that_nothing_leaks() {
    let mut model = with_copy(1, 49_000);
    model.tick(NOW + 1_000_000_000);
    assert_eq!(state(&model), Some((PoolState::Unknown, true)));
    (0..5_000).for_each(|_| model.kernel(&kernel(2, 1), NOW));
    model.tick(NOW + 2_000_000_000);
    (0..5_000).for_each(|_| model.kernel(&kernel(2, 1), NOW));
    model.tick(NOW + 3_000_000_000);
    let pool = model.pools().next().unwrap();
    assert_eq!((state(&model), pool.computed, pool.slots_used), (Some((PoolState::Unknown, false)), None, 0));
}

#[test]
fn a_doubtful_leak_shows_by_buffers_that_come_or_by_the_end() {
    // It stands still where at worst it had to.
    let mut model = with_copy(8, 400_000);
    (1..=2).for_each(|second| model.tick(NOW + second * 1_000_000_000));
    assert_eq!(state(&model), Some((PoolState::Exhausted, true)));
    // Eager kernels go on without times.
    let mut model = with_copy(8, 400_000);
    let zero = record::Kernel { start: 0.into(), end: 0.into(), ..kernel(0, 0) };
    (0..=FORCED_FLUSH_ZEROS).for_each(|_| model.kernel(&zero, NOW));
    model.tick(NOW + 1_000_000_000);
    assert_eq!(state(&model), Some((PoolState::Exhausted, true)));
    // Overhead records, on from now on, show a buffer for every 50,000 replays, or none.
    for (grows, then) in [(true, (PoolState::Leaking, false)), (false, (PoolState::Unknown, true))] {
        let mut model = with_copy(250, 10);
        model.kinds_changed(KindSet::EMPTY.with(Kind::Kernel).with(Kind::Overhead), NOW);
        for _ in 0..4 {
            (0..50_000).for_each(|_| model.kernel(&kernel(2, 1), NOW));
            if grows {
                model.other(&overhead(), NOW);
            }
            model.tick(NOW);
        }
        assert_eq!(state(&model), Some(then));
        assert_eq!(model.pools().next().map(|pool| pool.slots_used), Some(2 * 200_010));
    }
}

#[test]
fn a_graph_that_is_gone_hides_no_other() {
    let mut model = Model::new(vec![Graph::default(); 4], true);
    model.kinds_changed(KindSet::EMPTY.with(Kind::Kernel), NOW);
    // Of a table of four, both of these belong in the first place.
    model.node(4, 4 << 32, 0, None);
    model.node(8, 8 << 32 | 1, 0, None);
    model.node(8, 8 << 32, 2, None);
    model.graph_gone(4);
    model.kernel(&kernel(8, 1), NOW);
    assert!(model.leaks(), "its memory set is still known");
}

#[test]
fn behind_exhaustion_no_more_slots_are_used_than_there_are() {
    let mut model = model(true, 1, KindSet::EMPTY.with(Kind::Kernel));
    with_memset(&mut model);
    (0..60_000).for_each(|_| model.kernel(&kernel(2, 1), NOW));
    (0..90_000).for_each(|_| model.kernel(&kernel(0, 0), NOW));
    let pool = model.pools().next().unwrap();
    assert_eq!(
        (pool.state, pool.slots_used, pool.slots_total),
        (PoolState::Exhausted as u8, 100_000, 100_000)
    );
}

#[test]
fn nodes_that_yield_nothing_while_all_is_traced_are_no_holes() {
    // Kernels 0, 1, 4, 5, and two event nodes between them, as collectives leave them.
    let replay = |model: &mut Model<Vec<Graph>>| {
        for index in [0, 1, 4, 5] {
            model.kernel(&kernel(2, index), NOW);
        }
    };
    let safe = |model: &Model<Vec<Graph>>| {
        model.pools().next().is_some_and(|pool| pool.state == PoolState::Safe as u8) && !model.leaks()
    };
    let mut whole = model(true, 8, KindSet::SAFE);
    (0..300_000).for_each(|_| replay(&mut whole));
    assert!(safe(&whole), "{:?}", whole.pools().next());
    // What they are not is known from then on, whatever is switched.
    whole.kinds_changed(KindSet::SAFE.without(Kind::Memset), NOW);
    (0..1_000).for_each(|_| replay(&mut whole));
    assert!(!whole.leaks());
    // Where they may have been memory sets they still count as such.
    let mut part = model(true, 8, KindSet::SAFE.without(Kind::Memset));
    (0..1_000).for_each(|_| replay(&mut part));
    assert_eq!(
        part.pools().next().map(|pool| (pool.state, pool.in_doubt, pool.slots_used)),
        Some((PoolState::Unknown as u8, 1, 6_000))
    );
}
