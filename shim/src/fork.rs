//! After a fork without exec the child is silent: it has none of our threads, and must not hold open, use or
//! remove anything of its parent's.

use crate::collect;
use crate::inject;
use crate::observe;
use crate::sys;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::os::fd::RawFd;
use std::sync::Once;

/// Descriptors known here; a few more than there can be.
const MOST: usize = 32;
const NONE: i32 = -1;

/// Nobody's, though a number is about to be written.
const TAKEN: i32 = -2;

/// A descriptor, and the file that was behind it when it was ours.
struct Slot {
    fd: AtomicI32,
    file: AtomicU64,
}

static OPEN: [Slot; MOST] = [const { Slot { fd: AtomicI32::new(NONE), file: AtomicU64::new(0) } }; MOST];
static REGISTER: Once = Once::new();

/// Whether CUPTI is subscribed to, and whether it was when this process was forked from another.
static SUBSCRIBED: AtomicBool = AtomicBool::new(false);
static INHERITED: AtomicBool = AtomicBool::new(false);

/// CUPTI was subscribed to, or no longer is.
pub(crate) fn subscribed(is: bool) {
    SUBSCRIBED.store(is, Release);
}

/// Whether who holds CUPTI here is the shim of the process that this one was forked from.
pub(crate) fn inherits() -> bool {
    INHERITED.load(Acquire)
}

/// Has every child forget the shim.
pub(crate) fn watch() {
    REGISTER.call_once(|| sys::at_fork(child));
}

/// This descriptor, of this file, is closed in a child.
pub(crate) fn opened(fd: RawFd, file: u64) {
    let free = |slot: &&Slot| slot.fd.compare_exchange(NONE, TAKEN, Acquire, Acquire).is_ok();
    if let Some(slot) = OPEN.iter().find(free) {
        slot.file.store(file, Relaxed);
        slot.fd.store(fd, Release);
    }
}

/// To be called before the descriptor is closed here, or when it is no longer ours.
pub(crate) fn closing(fd: RawFd) {
    let _ = OPEN.iter().find(|slot| slot.fd.compare_exchange(fd, NONE, Release, Acquire).is_ok());
}

/// Runs in the child, where only async-signal-safe calls are allowed.
extern "C" fn child() {
    collect::uninstall();
    observe::uninstall();
    inject::forget();
    if SUBSCRIBED.swap(false, Acquire) {
        INHERITED.store(true, Release);
    }
    for slot in &OPEN {
        let fd = slot.fd.swap(NONE, Acquire);
        if fd >= 0 && sys::is_behind(fd, slot.file.load(Relaxed)) {
            sys::close(fd);
        }
    }
}
