//! Random applications under random orders of calls, against a second model that knows no queue: a capacity in slots,
//! counted from the buffer that holds the first uncovered slot.

mod common;

use common::Client;
use gtop_sim::{Kind, Pace, Scenario, Simulation};
use proptest::prelude::*;
use std::fmt::Write as _;

const KERNEL: u32 = 10;
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
/// Slots in a device buffer here; the real ones have 100,000.
const SLOTS: u64 = 100;
const PREALLOCATED: u64 = 3;

/// A node of the application's graph.
#[derive(Clone, Copy, Debug)]
enum Node {
    Kernel,
    Device,
    Set,
    Host,
}

impl Node {
    const fn toml(self) -> &'static str {
        match self {
            Self::Kernel => "{ kernel = 'k' }",
            Self::Device => "{ copy = 'd2d' }",
            Self::Set => "{ memset = 64 }",
            Self::Host => "{ copy = 'h2d' }",
        }
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Action {
    Turns(u64),
    Switch(u32, bool),
    Instantiate,
}

fn action() -> impl Strategy<Value = Action> {
    let kind = prop::sample::select(vec![KERNEL, MEMCPY, MEMSET]);
    prop_oneof![
        4 => (1..40_u64).prop_map(Action::Turns),
        3 => (kind, any::<bool>()).prop_map(|(kind, on)| Action::Switch(kind, on)),
        1 => Just(Action::Instantiate),
    ]
}

/// The second model.
struct Expected {
    cupti: u32,
    limit: u64,
    nodes: Vec<Node>,
    eager: bool,
    attached: bool,
    early: bool,
    on: [bool; 3],
    kernel_was_on: bool,
    taken: u64,
    first_uncovered: Option<u64>,
    delivered: [u64; 3],
    timeless: u64,
    withheld: u64,
    unasked: u64,
}

const fn place(kind: u32) -> usize {
    match kind {
        KERNEL => 0,
        MEMCPY => 1,
        _ => 2,
    }
}

impl Expected {
    const fn leaks(&self) -> bool {
        self.cupti == 28 || self.cupti >= 130_000 && self.cupti < 130_300
    }

    /// Takes a slot if there is one.
    fn slot(&mut self, uncovered: bool) -> bool {
        let full =
            self.first_uncovered.is_some_and(|first| self.taken >= (first / SLOTS + self.limit) * SLOTS);
        if full {
            return false;
        }
        if uncovered && self.first_uncovered.is_none() {
            self.first_uncovered = Some(self.taken);
        }
        self.taken += 1;
        true
    }

    fn turn(&mut self) {
        if !self.attached {
            return;
        }
        let [kernel, memcpy, memset] = self.on;
        let plain = self.nodes.iter().all(|node| matches!(node, Node::Kernel));
        for node in self.nodes.clone() {
            let (own, on, device) = match node {
                Node::Kernel => (0, kernel, false),
                Node::Device => (1, memcpy, true),
                Node::Host => (1, memcpy, false),
                Node::Set => (2, memset, true),
            };
            let (slot, uncovered, record, of, unasked) = if !self.early {
                // A late graph's copies within the device and memory sets are kernels to CUPTI.
                let (of, on) = if device { (0, kernel) } else { (own, on) };
                (on, false, on, of, false)
            } else if own == 0 {
                let lingers = !on && plain && self.leaks() && self.kernel_was_on;
                (true, false, on || lingers, 0, lingers)
            } else {
                let unasked = !on && kernel && self.cupti <= 26;
                (true, !on && device && self.leaks(), on || unasked, own, unasked)
            };
            if slot && !self.slot(uncovered) {
                self.withheld += u64::from(record && !unasked);
            } else if record {
                self.delivered[of] += 1;
                self.unasked += u64::from(unasked);
            }
        }
        if self.eager && kernel {
            self.timeless += u64::from(!self.slot(false));
            self.delivered[0] += 1;
        }
    }

    /// MiB that the device buffers grew by, where it is certain: without a leak buffers come back in time.
    fn growth(&self) -> u64 {
        let Some(first) = self.first_uncovered else { return 0 };
        let held = self.taken.div_ceil(SLOTS) - first / SLOTS;
        4 * held.saturating_sub(PREALLOCATED)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_simulation_agrees_with_a_model_that_knows_no_queue(
        cupti in prop::sample::select(vec![22_u32, 26, 28, 130_001, 130_202, 130_300, 130_500]),
        limit in 4..12_u64,
        nodes in prop::collection::vec(
            prop::sample::select(vec![Node::Kernel, Node::Kernel, Node::Device, Node::Set, Node::Host]), 1..6),
        eager: bool,
        late: bool,
        actions in prop::collection::vec(action(), 1..24),
    ) {
        let list = nodes.iter().fold(String::new(), |mut list, node| {
            write!(list, "{}, ", node.toml()).unwrap();
            list
        });
        let more = if eager { "{ kernel = 'eager' }" } else { "" };
        let toml = format!(
            "cupti = {cupti}
            pool_limit = {limit}
            [[graph]]
            name = 'g'
            nodes = [{list}]
            [[thread]]
            steps = [{{ launch = 'g' }}, {more}]"
        );
        let mut simulation = Simulation::load(&Scenario::parse(&toml).unwrap(), Pace::Stepped).unwrap();
        let mut expected = Expected {
            cupti, limit, nodes, eager, attached: false, early: !late, on: [false; 3], kernel_was_on: false, taken: 0,
            first_uncovered: None, delivered: [0; 3], timeless: 0, withheld: 0, unasked: 0,
        };
        if late {
            // The attributes count when the context is made, so the small buffers have to be there by then.
            simulation.set_device_buffer_size(SLOTS * 32);
            simulation.turns(3);
        }
        let client = Client::idle();
        client.set_attribute(0, SLOTS as usize * 32);
        expected.attached = true;
        for action in actions {
            match action {
                Action::Turns(turns) => {
                    simulation.turns(turns);
                    (0..turns).for_each(|_| expected.turn());
                }
                Action::Switch(kind, true) => {
                    client.enable(&[kind]);
                    expected.on[place(kind)] = true;
                    expected.kernel_was_on |= kind == KERNEL;
                }
                Action::Switch(kind, false) => {
                    client.disable(&[kind]);
                    expected.on[place(kind)] = false;
                }
                Action::Instantiate => {
                    simulation.begin();
                    prop_assert!(simulation.instantiate("g"));
                    expected.early = true;
                }
            }
        }
        client.flush(false);
        let truth = simulation.truth();
        prop_assert_eq!([KERNEL, MEMCPY, MEMSET].map(|kind| client.count(kind)), expected.delivered);
        prop_assert_eq!(client.zero(), expected.timeless);
        prop_assert_eq!(truth.unasked, expected.unasked);
        let withheld: u64 = [Kind::Kernel, Kind::Memcpy, Kind::Memset].map(|kind| truth.withheld(kind)).iter().sum();
        prop_assert_eq!(withheld, expected.withheld);
        prop_assert_eq!(truth.growth_mib(), expected.growth());
        prop_assert_eq!(&truth.crash, &None);
        for kind in [Kind::Kernel, Kind::Memcpy, Kind::Memset] {
            let owed = truth.expected.get(&kind).copied().unwrap_or(0);
            let unasked = if kind == Kind::Kernel || cupti <= 26 { expected.unasked } else { 0 };
            let came = truth.delivered(kind) + truth.withheld(kind);
            prop_assert!(came >= owed && came <= owed + unasked, "{:?}: {} of {}", kind, came, owed);
        }
    }
}
