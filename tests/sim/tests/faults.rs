//! Everything a scenario can make go wrong goes wrong as it says, and is counted.

mod common;

use common::Client;
use gtop_sim::{Class, Kind, Pace, Scenario, Simulation};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const KERNEL: u32 = 10;
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;

/// A thread of plain kernels under some CUPTI, with faults.
fn load(head: &str, faults: &str) -> Simulation {
    let toml = format!(
        "{head}
        [[thread]]
        steps = [{{ kernel = 'first_kernel', ns = 1000 }}, {{ copy = 'h2d' }}]
        {faults}"
    );
    Simulation::load(&Scenario::parse(&toml).unwrap(), Pace::Stepped).unwrap()
}

fn fault(what: &str) -> Simulation {
    load("", &format!("[[fault]]\nwhat = {what}"))
}

#[test]
fn another_tool_holds_cupti_until_it_lets_go() {
    let simulation = fault("'busy'");
    let mut client = Client::fresh();
    assert_eq!((client.subscribe(), client.subscribe()), (39, 39));
    simulation.release_cupti();
    assert_eq!(client.subscribe(), 0);
    assert_eq!(client.subscribe(), 39, "a client is another tool to itself");
    assert_eq!(client.unsubscribe(), 0);
    assert!(simulation.hold_cupti("another tool"));
    assert_eq!(client.subscribe(), 39);
    assert_eq!(simulation.truth().calls["cuptiSubscribe"], 5);
}

#[test]
fn another_tool_is_refused_while_the_client_is_subscribed() {
    let mut simulation = load("", "");
    let mut client = Client::new(&[KERNEL]);
    assert!(!simulation.hold_cupti("torch"), "it gets 39");
    simulation.turns(3);
    client.disable(&[KERNEL]);
    client.flush(true);
    assert_eq!((client.count(KERNEL), client.outstanding().len()), (3, 0));
    assert_eq!(client.unsubscribe(), 0);
    assert!(simulation.hold_cupti("torch"));
    assert_eq!(client.subscribe(), 39);
    simulation.release_cupti();
    assert_eq!((client.subscribe(), client.enable(&[KERNEL])), (0, 0));
    simulation.turns(3);
    client.flush(true);
    assert_eq!(client.count(KERNEL), 3, "the other tool's callbacks took the place of the client's");
    assert_eq!(simulation.truth().crash, None);
}

#[test]
fn leaving_with_buffers_out_or_kinds_on_is_noted() {
    let mut simulation = fault("'keep_buffers'\ncount = 1");
    let client = Client::new(&[KERNEL]);
    simulation.turns(3);
    client.flush(true);
    assert_eq!(client.unsubscribe(), 0);
    assert_eq!(simulation.truth().misuse, ["cuptiUnsubscribe while a kind is on"]);
    assert!(simulation.hold_cupti("torch"));
    assert!(simulation.truth().crash.unwrap().contains("while another registers"));
}

#[test]
fn another_tool_holds_cupti_for_a_time() {
    let before = Instant::now();
    let _simulation = fault("'busy'\nfor = '200ms'");
    let mut client = Client::fresh();
    let mut answer = client.subscribe();
    // On a machine that was busy elsewhere the time may be up.
    assert!(answer == 39 || before.elapsed() > Duration::from_millis(200));
    while answer == 39 {
        std::thread::yield_now();
        answer = client.subscribe();
    }
    assert_eq!(answer, 0);
}

#[test]
fn any_call_fails_as_often_as_told() {
    let _simulation = fault("'error'\ncall = 'cuptiActivityFlushAll'\nresult = 999\ntimes = 2");
    let client = Client::idle();
    assert_eq!([(); 3].map(|()| client.flush(false)), [999, 999, 0]);
}

#[test]
fn a_call_goes_well_as_often_as_told_and_fails_then() {
    let _simulation = fault("'error'\ncall = 'cuptiActivityFlushAll'\nresult = 7\nafter = 2\ntimes = 1");
    let client = Client::idle();
    assert_eq!([(); 4].map(|()| client.flush(false)), [0, 0, 7, 0]);
}

#[test]
fn one_kind_is_refused() {
    let mut simulation = fault("'error'\ncall = 'cuptiActivityEnable'\nkind = 1\nresult = 35");
    let client = Client::idle();
    assert_eq!([KERNEL, MEMCPY, MEMSET].map(|kind| client.enable(&[kind])), [0, 35, 0]);
    simulation.turns(10);
    client.flush(false);
    assert_eq!((client.count(KERNEL), client.count(MEMCPY)), (10, 0));
}

#[test]
fn a_call_without_a_subscription_is_noted() {
    let simulation = load("", "");
    let client = Client::fresh();
    assert_eq!(client.enable(&[KERNEL]), 0);
    assert_eq!(simulation.truth().misuse, ["cuptiActivityEnable without a subscription"]);
}

#[test]
fn an_unknown_kind_hides_the_rest_of_its_buffer() {
    let mut simulation = fault("'unknown_kind'\nevery = 50");
    let client = Client::new(&[KERNEL]);
    simulation.turns(99);
    client.flush(false);
    let truth = simulation.truth();
    assert_eq!((client.count(KERNEL), client.cut()), (49, 1));
    assert_eq!((truth.delivered(Kind::Kernel), truth.hidden, truth.unknown), (49, 50, 1));
    assert_eq!(truth.hidden_bytes, 64 + 50 * 216);
    assert_eq!(truth.delivered_bytes, 49 * 216 + truth.hidden_bytes);
}

#[test]
fn buffers_come_back_empty() {
    let mut simulation = fault("'empty_buffer'\nevery = 2");
    let client = Client::new(&[KERNEL]);
    for _ in 0..6 {
        simulation.turns(1);
        client.flush(false);
    }
    assert_eq!(client.buffers(), (9, 3));
    assert_eq!(client.count(KERNEL), 6);
}

#[test]
fn the_gpu_works_and_no_record_comes() {
    let mut simulation = fault("'silent'\nafter = 100\ncount = 50");
    let client = Client::new(&[KERNEL, MEMCPY]);
    simulation.turns(120);
    client.flush(false);
    assert_eq!((client.count(KERNEL), client.count(MEMCPY)), (100, 120));
    simulation.turns(80);
    client.flush(false);
    assert_eq!(client.count(KERNEL), 150);
    assert_eq!(simulation.truth().withheld(Kind::Kernel), 50);
}

#[test]
fn the_first_records_after_each_enable_carry_another_clock() {
    let mut simulation = fault("'shift'\nfirst = 3\nns = -100_000_000_000_000");
    let client = Client::new(&[KERNEL]);
    client.keep();
    let began = client.now();
    for _ in 0..2 {
        simulation.turns(10);
        client.flush(false);
        client.disable(&[KERNEL]);
        client.enable(&[KERNEL]);
    }
    let shifted: Vec<_> = client.seen().iter().map(|seen| seen.start < began).collect();
    let round = [true, true, true, false, false, false, false, false, false, false];
    assert_eq!(shifted, [round, round].concat());
    assert_eq!(simulation.truth().class(Class::ForeignClock), 6);
}

#[test]
fn timestamps_are_wrong_where_told() {
    let classes = [
        ("zero", Class::Zero),
        ("zero_start", Class::ZeroStart),
        ("zero_end", Class::ZeroEnd),
        ("inverted", Class::Inverted),
        ("sentinel", Class::Sentinel),
        ("foreign_clock", Class::ForeignClock),
        ("future", Class::Future),
    ];
    let mut faults = String::new();
    for (i, (name, _)) in classes.iter().enumerate() {
        write!(faults, "[[fault]]\nwhat = 'timestamps'\nclass = '{name}'\nat = [{}, 900]\n", i * 10).unwrap();
    }
    let mut simulation = load("", &faults);
    let client = Client::new(&[KERNEL]);
    client.keep();
    simulation.turns(100);
    client.flush(false);
    let truth = simulation.truth();
    let now = client.now();
    let seen = client.seen();
    for (i, (name, class)) in classes.into_iter().enumerate() {
        assert_eq!(truth.class(class), 1, "{name}");
        let (start, end) = (seen[i * 10].start, seen[i * 10].end);
        let right = match class {
            Class::Valid => false,
            Class::Zero => start == 0 && end == 0,
            Class::ZeroStart => start == 0 && end != 0,
            Class::ZeroEnd => start != 0 && end == 0,
            Class::Inverted => end != 0 && end < start,
            Class::Sentinel => start == u64::MAX && end == u64::MAX,
            Class::ForeignClock => start < end && start < now - 99_000_000_000_000,
            Class::Future => start < end && start > now + 3_000_000_000_000,
        };
        assert!(right, "{name}: {start} {end}");
    }
    assert_eq!(truth.class(Class::Valid), 93);
}

#[test]
fn buffers_are_kept_and_written_to_after_the_end() {
    let mut simulation = fault("'keep_buffers'\ncount = 2");
    let client = Client::new(&[KERNEL]);
    for _ in 0..3 {
        simulation.turns(5);
        client.flush(true);
    }
    assert_eq!(client.count(KERNEL), 5);
    let truth = simulation.truth();
    assert_eq!((truth.outstanding(), truth.withheld(Kind::Kernel)), (2, 10));
    let kept = client.outstanding();
    assert_eq!(kept.len(), 2);
    assert_eq!(client.unsubscribe(), 0);
    // The library writes to what it holds: the client finds its buffers changed.
    for buffer in kept {
        while client.peek(buffer) != 0xAA {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_name_pointer_comes_to_hold_another_name() {
    let mut simulation = fault("'reuse_name'\nname = 'first_kernel'\nbecomes = 'other'\nafter = 10");
    let client = Client::new(&[KERNEL]);
    client.keep();
    for _ in 0..20 {
        simulation.turns(1);
        client.flush(false);
    }
    let names: Vec<_> = client.seen().into_iter().map(|seen| seen.name).collect();
    assert_eq!(names, [["first_kernel"; 10], ["other"; 10]].concat());
}

#[test]
fn correlation_ids_wrap() {
    let mut simulation = fault("'correlation'\nstart = 4294967290");
    let client = Client::new(&[KERNEL]);
    client.keep();
    simulation.turns(5);
    client.flush(false);
    let correlations: Vec<_> = client.seen().iter().map(|seen| seen.correlation).collect();
    // A turn launches a kernel and a copy.
    assert_eq!(correlations, [4_294_967_290, 4_294_967_292, 4_294_967_294, 0, 2]);
}

#[test]
fn dropped_records_are_reported() {
    let _simulation = fault("'dropped'\ncount = 7");
    let client = Client::idle();
    assert_eq!((client.dropped(), client.dropped()), (7, 7));
}

#[test]
fn refusing_a_buffer_is_counted_or_crashes_by_version() {
    for (cupti, survives) in [(26, false), (28, true), (130_001, true)] {
        let mut simulation = load(&format!("cupti = {cupti}"), "");
        let client = Client::new(&[KERNEL]);
        client.supply(common::SIZE, 0, true);
        simulation.turns(10);
        client.flush(false);
        let truth = simulation.truth();
        assert_eq!(truth.crash.is_none(), survives, "{cupti}");
        assert_eq!(truth.dropped[&Kind::Kernel], 10, "{cupti}");
        assert_eq!((client.dropped(), client.dropped()), (10, 0), "{cupti}");
    }
}

#[test]
fn small_buffers_and_few_records_a_buffer_are_respected() {
    let mut simulation = load("", "");
    let client = Client::new(&[KERNEL]);
    // Three records and a bit.
    client.supply(700, 0, false);
    simulation.turns(9);
    client.flush(false);
    assert_eq!((client.count(KERNEL), client.buffers()), (9, (3, 0)));
    client.supply(common::SIZE, 2, false);
    simulation.turns(4);
    client.flush(false);
    assert_eq!((client.count(KERNEL), client.buffers()), (13, (5, 0)));
    // Too small for any record: all are dropped.
    client.supply(64, 0, false);
    simulation.turns(4);
    client.flush(false);
    assert_eq!((client.count(KERNEL), client.dropped()), (13, 4));
}

#[test]
fn a_flush_inside_a_callback_is_refused_and_noted() {
    let mut simulation = load("", "");
    let client = Client::new(&[KERNEL]);
    client.flush_in_callback();
    simulation.turns(1);
    client.flush(false);
    assert_eq!(simulation.truth().misuse, ["cuptiActivityFlushAll inside a buffer callback"]);
}

#[test]
fn graph_trace_hides_nodes_for_good() {
    let toml = "[[graph]]
        name = 'g'
        nodes = [{ kernel = 'k', times = 5 }]
        [[thread]]
        steps = [{ launch = 'g' }, { kernel = 'eager' }]";
    let mut simulation = Simulation::load(&Scenario::parse(toml).unwrap(), Pace::Stepped).unwrap();
    let client = Client::new(&[KERNEL]);
    simulation.turns(10);
    client.flush(false);
    assert_eq!(client.count(KERNEL), 60);
    client.enable(&[51]);
    simulation.turns(10);
    client.disable(&[51]);
    simulation.turns(10);
    client.flush(false);
    assert_eq!((client.count(KERNEL), client.count(51)), (80, 10));
    assert_eq!(simulation.truth().misuse.len(), 1);
}
