//! Who calls the client, and when: threads, periods, contexts.

mod common;

use common::Client;
use gtop_sim::{Kind, Pace, Scenario, Simulation, scenario};

const SAFE: [u32; 3] = [10, 1, 2];

#[test]
fn since_13_0_each_thread_has_buffers_and_they_complete_at_the_same_time() {
    for (cupti, at_once) in [(26, false), (28, false), (130_001, true), (130_500, true)] {
        let mut storm = scenario("storm").unwrap();
        storm.cupti = cupti;
        let mut simulation = Simulation::load(&storm, Pace::Real).unwrap();
        let client = Client::new(&SAFE);
        client.wait_for_company(at_once);
        simulation.run();
        while client.buffers().0 < 40 || client.threads() < 4 {
            std::thread::yield_now();
        }
        simulation.stop();
        client.flush(false);
        assert_eq!(client.most_at_once() > 1, at_once, "{cupti}");
        // One buffer for all, or one for each thread.
        let truth = simulation.truth();
        assert!(truth.outstanding() <= if at_once { 4 } else { 1 }, "{cupti}");
        assert_eq!(client.count(10), truth.executed(Kind::Kernel), "{cupti}");
    }
}

#[test]
fn a_flush_period_brings_records_that_nobody_asks_for() {
    let mut simulation = Simulation::load(
        &Scenario::parse("[[thread]]\nevery = '1ms'\nsteps = [{ kernel = 'k' }]").unwrap(),
        Pace::Real,
    )
    .unwrap();
    let client = Client::new(&SAFE);
    assert_eq!(client.flush_period(5), 0);
    simulation.run();
    while client.count(10) < 20 {
        std::thread::yield_now();
    }
    assert_eq!(simulation.truth().calls.get("cuptiActivityFlushAll"), None);
}

#[test]
fn each_context_has_a_pool_of_its_own() {
    let toml = "
        pool_limit = 4
        [[context]]
        id = 1
        [[context]]
        id = 2
        device = 1
        [[graph]]
        name = 'd2d'
        nodes = [{ copy = 'd2d' }, { kernel = 'tiny' }]
        [[thread]]
        context = 1
        steps = [{ launch = 'd2d' }]
        [[thread]]
        context = 2
        steps = [{ kernel = 'eager' }]";
    let mut simulation = Simulation::load(&Scenario::parse(toml).unwrap(), Pace::Stepped).unwrap();
    let client = Client::new(&[10]);
    client.keep();
    simulation.turns(250_000);
    client.flush(false);
    let seen = client.seen();
    let of = |context| seen.iter().filter(|seen| seen.context == context).count();
    assert_eq!((of(1), of(2)), (200_000, 250_000));
    let exhausted: Vec<_> = simulation
        .truth()
        .device_buffers
        .iter()
        .map(|buffers| (buffers.context, buffers.exhausted))
        .collect();
    assert_eq!(exhausted, [(1, true), (2, false)]);
}

#[test]
fn a_thread_that_was_stopped_does_not_catch_up_for_ever() {
    // What a process missed while it was stopped is not done later: the clock jumps, the work does not pile up.
    let toml = "[[thread]]\nrate = 1000.0\nsteps = [{ kernel = 'k' }]";
    let mut simulation = Simulation::load(&Scenario::parse(toml).unwrap(), Pace::Stepped).unwrap();
    let client = Client::new(&SAFE);
    simulation.turns(1);
    simulation.pass(3_600_000_000_000);
    simulation.catch_up();
    client.flush(false);
    assert!(client.count(10) < 1_000, "{}", client.count(10));
}

#[test]
fn a_thread_launches_nothing_before_its_turn() {
    let toml = "[[thread]]\nevery = '1s'\nsteps = [{ kernel = 'k' }, { wait = '10ms' }, { kernel = 'k' }]";
    let mut simulation = Simulation::load(&Scenario::parse(toml).unwrap(), Pace::Stepped).unwrap();
    let client = Client::new(&SAFE);
    let mut executed = Vec::new();
    for milliseconds in [0, 5, 10, 900, 90] {
        simulation.pass(milliseconds * 1_000_000);
        simulation.catch_up();
        executed.push(simulation.truth().executed(Kind::Kernel));
    }
    assert_eq!(executed, [1, 1, 2, 2, 3]);
    // What was enabled while a thread waits holds for what it does next.
    client.disable(&SAFE);
    simulation.pass(10_000_000);
    simulation.catch_up();
    client.flush(false);
    assert_eq!((simulation.truth().executed(Kind::Kernel), client.count(10)), (4, 3));
}
