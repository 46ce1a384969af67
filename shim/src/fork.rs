//! After a fork without exec the child is silent: it has none of our threads, and must not hold open, use or
//! remove anything of its parent's.

use crate::collect;
use crate::inject;
use crate::observe;
use crate::sys;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::os::fd::RawFd;
use std::sync::Once;

/// Descriptors known here; a few more than there can be.
const MOST: usize = 32;
const NONE: i32 = -1;

static OPEN: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];
static REGISTER: Once = Once::new();

/// Has every child forget the shim.
pub(crate) fn watch() {
    REGISTER.call_once(|| sys::at_fork(child));
}

/// This descriptor is closed in a child.
pub(crate) fn opened(fd: RawFd) {
    let _ = OPEN.iter().find(|slot| slot.compare_exchange(NONE, fd, Release, Acquire).is_ok());
}

/// To be called before the descriptor is closed here.
pub(crate) fn closing(fd: RawFd) {
    let _ = OPEN.iter().find(|slot| slot.compare_exchange(fd, NONE, Release, Acquire).is_ok());
}

/// Runs in the child, where only async-signal-safe calls are allowed.
extern "C" fn child() {
    collect::uninstall();
    observe::uninstall();
    inject::forget();
    for slot in &OPEN {
        let fd = slot.swap(NONE, Acquire);
        if fd != NONE {
            sys::close(fd);
        }
    }
}
