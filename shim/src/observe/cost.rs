//! What callbacks cost, told from one in so many: what costs too much at the rate at which it comes is watched no more.
#![expect(unsafe_code, reason = "switches callbacks off")]

use super::Observe;
use super::abi::DOMAIN_DRIVER;
use crate::shared::Shim;
use crate::text::Grouped;
use core::ffi::c_void;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::calls::{CALLS, Call, Sort};
use gtop_protocol::message::Severity;

/// One callback in so many is timed: an odd number, as the begin and the end of a call take turns.
pub(super) const TIMED: u64 = 61;
/// The most that one timed callback counts for, nanoseconds: a thread that was put to sleep in one says nothing of all.
const MOST_NS: u64 = 20_000;
/// Fewer timed ones say nothing: below some 4,000 callbacks a second nothing is given up.
const FEWEST: u64 = 64;
/// Nanoseconds of a second that callbacks of one class may take: 200 ns at a rate of 100,000 a second.
const MOST_A_SECOND: u64 = 200 * 100_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Calls that are given up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Launches of kernels, copies and memory sets, one by one.
    Launches,
    /// Recording events, and waiting for them in streams.
    Order,
    /// Asking how far an event or a stream is.
    Queries,
    /// Waiting for the device.
    Waits,
    /// Launches of executable graphs.
    Graphs,
}

const CLASSES: [Class; 5] = [Class::Launches, Class::Order, Class::Queries, Class::Waits, Class::Graphs];

impl Class {
    /// The class of a call that may come at the rate of launches.
    pub(super) const fn of(call: &Call) -> Option<Self> {
        match call.sort {
            Sort::LaunchKernel | Sort::Node(_) | Sort::NodeByParameters => Some(Self::Launches),
            Sort::Mark | Sort::Join => Some(Self::Order),
            Sort::Wait if matches!(call.code, 120 | 125 | 439) => Some(Self::Queries),
            Sort::Wait => Some(Self::Waits),
            Sort::LaunchGraph => Some(Self::Graphs),
            _ => None,
        }
    }

    /// Its bit in what is given up.
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// What is given up with it, in words.
    const fn loss(self) -> &'static str {
        match self {
            Self::Launches => {
                "launches of kernels and copies are no longer watched for failures, nor copies for the memory that \
                 graphs point to"
            }
            Self::Order => {
                "records of events and waits for them are no longer watched: captures do not say which streams take part"
            }
            Self::Queries => {
                "queries of events and streams are no longer watched: a capture that one breaks does not say so"
            }
            Self::Waits => {
                "calls that wait for the device are no longer watched: a capture that one breaks does not say so"
            }
            Self::Graphs => {
                "launches of graphs are no longer watched for failures, and counted from their records alone"
            }
        }
    }
}

/// What callbacks of each class took: how many were timed, and their nanoseconds.
#[derive(Debug)]
pub(super) struct Costs([[AtomicU64; 2]; CLASSES.len()]);

impl Costs {
    pub(super) const fn new() -> Self {
        Self([const { [const { AtomicU64::new(0) }; 2] }; CLASSES.len()])
    }

    /// A timed callback took so long.
    pub(super) fn add(&self, class: Class, ns: u64) {
        if let Some([timed, sum]) = self.0.get(class as usize) {
            timed.fetch_add(1, Relaxed);
            sum.fetch_add(ns.min(MOST_NS), Relaxed);
        }
    }

    fn of(&self, class: Class) -> [u64; 2] {
        self.0.get(class as usize).map_or([0; 2], |both| both.each_ref().map(|count| count.load(Relaxed)))
    }
}

/// Control's part: what was counted when it last looked.
#[derive(Debug, Default)]
pub(super) struct Looked([[u64; 2]; CLASSES.len()]);

/// A class that costs too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooMuch {
    class: Class,
    /// Callbacks a second.
    rate: u64,
    /// Nanoseconds of each.
    each: u64,
}

impl Looked {
    /// The classes that cost too much in the time since the last look, nanoseconds.
    fn look(&mut self, costs: &Costs, elapsed: u64) -> impl Iterator<Item = TooMuch> {
        CLASSES.into_iter().zip(&mut self.0).filter_map(move |(class, before)| {
            let now = costs.of(class);
            let [timed_before, ns_before] = core::mem::replace(before, now);
            let (timed, ns) = (now[0].saturating_sub(timed_before), now[1].saturating_sub(ns_before));
            let a_second = |sum: u64| {
                sum.saturating_mul(TIMED).saturating_mul(SECOND_NS).checked_div(elapsed).unwrap_or(0)
            };
            (timed >= FEWEST && a_second(ns) > MOST_A_SECOND).then_some(TooMuch {
                class,
                rate: a_second(timed),
                each: ns.checked_div(timed).unwrap_or(0),
            })
        })
    }

    /// Gives up watching what costs too much; the first look only begins to count.
    pub(super) fn give_up(
        &mut self,
        shim: &Shim,
        observe: &Observe,
        subscriber: Option<*mut c_void>,
        elapsed: Option<u64>,
    ) {
        for much in self.look(&observe.costs, elapsed.unwrap_or(u64::MAX)) {
            let (Some(subscriber), Some(enable)) = (subscriber, observe.functions.enable) else { continue };
            if elapsed.is_none()
                || observe.given_up.fetch_or(much.class.bit(), Relaxed) & much.class.bit() != 0
            {
                continue;
            }
            for call in CALLS.iter().filter(|call| Class::of(call) == Some(much.class)) {
                // SAFETY: numbers, and the handle of our subscription.
                unsafe { enable(0, subscriber, DOMAIN_DRIVER, call.code) };
            }
            if much.class == Class::Order {
                observe.streams_untold();
            }
            let TooMuch { class, rate, each } = much;
            shim.note(
                Severity::Info,
                "graphs",
                format_args!(
                    "{} callbacks a second at {} ns each cost too much: {}",
                    Grouped(rate),
                    Grouped(each),
                    class.loss()
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::observe::start::Functions;
    use crate::observe::tests::observers_with;
    use gtop_protocol::lifecycle::What;
    use std::sync::Mutex;

    fn spend(costs: &Costs, class: Class, a_second: u64, each: u64) {
        (0..a_second / TIMED).for_each(|_| costs.add(class, each));
    }

    #[test]
    fn what_costs_too_much_at_its_rate_is_given_up_and_only_that() {
        let (costs, mut looked) = (Costs::new(), Looked::default());
        // 300 ns each, at a rate at which that matters and at one at which it does not; and cheap at a high rate.
        spend(&costs, Class::Launches, 200_000, 300);
        spend(&costs, Class::Order, 20_000, 300);
        spend(&costs, Class::Queries, 300_000, 40);
        // Few callbacks, of which one slept.
        spend(&costs, Class::Waits, 3_000, 500_000_000);
        let much: Vec<TooMuch> = looked.look(&costs, SECOND_NS).collect();
        let [TooMuch { class: Class::Launches, rate, each: 300 }] = much[..] else { panic!("{much:?}") };
        assert!((199_900..=200_000).contains(&rate), "{rate}");
        assert_eq!(looked.look(&costs, SECOND_NS).count(), 0, "nothing new came");
        // Some of many that slept are not what all cost.
        spend(&costs, Class::Graphs, 50_000, 100);
        (0..5).for_each(|_| costs.add(Class::Graphs, 50_000_000));
        assert_eq!(looked.look(&costs, SECOND_NS).count(), 0);
    }

    #[test]
    fn what_is_given_up_is_switched_off_once_and_said() {
        static OFF: Mutex<Vec<u32>> = Mutex::new(Vec::new());
        unsafe extern "C" fn enable(on: u32, _: *mut c_void, domain: u32, code: u32) -> u32 {
            assert_eq!((on, domain), (0, DOMAIN_DRIVER));
            OFF.lock().unwrap().push(code);
            0
        }
        let shim = Shim::new(Config::default(), None).unwrap();
        let observe = observers_with(Functions { enable: Some(enable), ..Functions::default() });
        let subscriber = Some(core::ptr::null_mut());
        let mut looked = Looked::default();
        // What came before the first look came at no rate that is known.
        spend(&observe.costs, Class::Order, 10_000_000, 300);
        looked.give_up(shim, observe, subscriber, None);
        assert_eq!(observe.counted(0).given_up, 0);
        for _ in 0..2 {
            spend(&observe.costs, Class::Order, 100_000, 300);
            spend(&observe.costs, Class::Graphs, 1_000, 300);
            looked.give_up(shim, observe, subscriber, Some(SECOND_NS));
        }
        let mut off = OFF.lock().unwrap().clone();
        off.sort_unstable();
        assert_eq!(off, [119, 295, 436, 441, 587, 588], "records of events and waits for them, once");
        let counted = observe.counted(0);
        assert_eq!((counted.given_up, counted.kernels_given_up), (Class::Order.bit(), 0));
        let said: Vec<u8> = core::iter::from_fn(|| observe.pop()).map(|event| event.what).collect();
        assert_eq!(said, [What::StreamsUntold as u8]);
    }

    #[test]
    fn every_call_at_the_rate_of_launches_has_a_class() {
        let of = |name: &str| CALLS.iter().find(|call| call.name == name).and_then(Class::of);
        assert_eq!(of("cuLaunchKernelEx_ptsz"), Some(Class::Launches));
        assert_eq!(of("cuMemcpyHtoDAsync_v2"), Some(Class::Launches));
        assert_eq!(of("cuEventRecord_ptsz"), Some(Class::Order));
        assert_eq!(of("cuStreamWaitEvent"), Some(Class::Order));
        assert_eq!(of("cuEventQuery"), Some(Class::Queries));
        assert_eq!(of("cuStreamQuery_ptsz"), Some(Class::Queries));
        assert_eq!(of("cuStreamSynchronize"), Some(Class::Waits));
        assert_eq!(of("cuGraphLaunch_ptsz"), Some(Class::Graphs));
        assert_eq!(of("cuStreamEndCapture"), None);
    }
}
