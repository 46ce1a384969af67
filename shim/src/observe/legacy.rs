//! Launches on the legacy default stream, which waits for every stream that blocks, and every such stream for it.

use super::Observe;
use super::callback::tell;
use core::cell::Cell;
use gtop_protocol::lifecycle::{Event, What};

/// Launches of one thread that are told together: few of them harm nobody, and no clock is read for each.
const TOGETHER: u32 = 4096;

thread_local! {
    /// The context, and how many launches in it in a row were not told yet.
    static UNTOLD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// This thread launched once more on the legacy default stream of a context.
pub(super) fn launched(observe: &Observe, context: u32) {
    let next = |untold: &Cell<(u32, u32)>| {
        let (before, count) = untold.get();
        let count = if before == context { count.saturating_add(1) } else { 1 };
        let due = count >= TOGETHER;
        untold.set((context, if due { 0 } else { count }));
        due
    };
    if UNTOLD.try_with(next).unwrap_or(false) {
        let event = Event { context: context.into(), count: TOGETHER.into(), ..Event::default() };
        tell(observe, What::LegacyLaunches, event, None);
    }
}
