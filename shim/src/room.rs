//! Growing what is kept as far as memory can be had. What `clippy.toml` denies elsewhere is done here, once there is room.
#![expect(clippy::disallowed_methods, reason = "there is room by then")]

use std::collections::VecDeque;

/// Appends; `false`, and nothing is done, without memory for it.
pub(crate) fn push<T>(to: &mut Vec<T>, item: T) -> bool {
    let room = to.try_reserve(1).is_ok();
    if room {
        to.push(item);
    }
    room
}

/// Appends to a queue; `false`, and nothing is done, without memory for it.
pub(crate) fn push_back<T>(to: &mut VecDeque<T>, item: T) -> bool {
    let room = to.try_reserve(1).is_ok();
    if room {
        to.push_back(item);
    }
    room
}

/// Appends all of them; `false`, and nothing is done, without memory for them.
pub(crate) fn extend<T: Copy>(to: &mut Vec<T>, items: &[T]) -> bool {
    let room = to.try_reserve(items.len()).is_ok();
    if room {
        to.extend_from_slice(items);
    }
    room
}

/// So many of the same, and no memory for more; `None` without memory for them.
pub(crate) fn filled<T: Clone>(count: usize, item: T) -> Option<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.resize(count, item);
    Some(all)
}

/// A single one, and no memory for more; `None` without memory for it.
pub(crate) fn one<T>(item: T) -> Option<Vec<T>> {
    let mut only = Vec::new();
    only.try_reserve_exact(1).ok()?;
    only.push(item);
    Some(only)
}
