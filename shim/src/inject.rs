//! The way in: the driver calls `InitializeInjection` in `cuInit`, the demo calls [`start_with`].
#![expect(unsafe_code, reason = "an exported C function, and the process's one shim behind a pointer")]

use crate::config::Config;
use crate::control::Control;
use crate::shared::{Resolver, Shim};
use crate::{fork, quiet, serve, sys};
use core::ffi::c_int;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::Once;

/// The shim of this process. Null before the start and in a child after a fork.
static ACTIVE: AtomicPtr<Shim> = AtomicPtr::new(core::ptr::null_mut());
static AT_EXIT: Once = Once::new();

/// The stack of a thread of ours, bytes: a host may have made the usual size too small (`RUST_MIN_STACK`).
const STACK: usize = 1 << 20;

/// How long an exiting process waits for control to leave CUPTI, milliseconds.
const EXIT_MS: u32 = 100;

/// Starts the shim. The driver calls it when `CUDA_INJECTION64_PATH` names this library. It calls nothing of
/// CUPTI or CUDA unless `GTOP_EARLY` is set, and always succeeds as far as the driver can tell.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = quiet::contain(|| start(Config::from_environment(), None));
    1
}

/// Starts the shim over a CUPTI whose functions `resolver` gives by name; nothing is searched for. `false` if it
/// could not be started, or runs already.
pub fn start_with(resolver: Resolver, config: Config) -> bool {
    quiet::contain(|| start(config, Some(resolver))).unwrap_or(false)
}

fn start(config: Config, resolver: Option<Resolver>) -> bool {
    quiet::install();
    if let Some(shim) = active() {
        // The I/O thread has ended where it could open no socket, as without descriptors: perhaps it can by now.
        if shim.parted.swap(false, AcqRel) {
            serve(shim);
        }
        shim.seek();
        return false;
    }
    let early = config.early;
    let Some(shim) = Shim::new(config, resolver) else { return false };
    let before =
        ACTIVE.compare_exchange(core::ptr::null_mut(), core::ptr::from_ref(shim).cast_mut(), AcqRel, Acquire);
    if before.is_err() {
        return false;
    }
    fork::watch();
    AT_EXIT.call_once(|| sys::at_exit(exit));
    if early {
        let mut control = Control::new(shim);
        control.arm_early();
        spawn_control(shim, control);
    }
    serve(shim)
}

/// Starts the I/O thread.
fn serve(shim: &'static Shim) -> bool {
    let serves = spawn(c"gtop-io", move || serve::run(shim));
    if !serves {
        // There is nobody to wait for when the process exits.
        shim.parted.store(true, Release);
    }
    serves
}

/// Starts the control thread for a shim that has none yet.
pub(crate) fn spawn_control(shim: &'static Shim, control: Control) -> bool {
    let started = spawn(c"gtop-control", move || control.run());
    if !started {
        shim.log.line(format_args!("no thread for control"));
    }
    started
}

fn spawn(name: &'static core::ffi::CStr, body: impl FnOnce() + Send + 'static) -> bool {
    let body = move || {
        sys::name_thread(name);
        sys::without_urgency();
        let _ = quiet::contain(body);
    };
    sys::without_signals(|| sys::spawn(STACK, body))
}

fn active() -> Option<&'static Shim> {
    // SAFETY: null, or a shim that lives for ever.
    let shim = unsafe { ACTIVE.load(Acquire).as_ref() }?;
    // In a child that no fork handler ran in, the parent's shim counts for nothing.
    if shim.pid == sys::pid() {
        return Some(shim);
    }
    forget();
    None
}

/// This process has no shim any more. Async-signal-safe.
pub(crate) fn forget() {
    ACTIVE.swap(core::ptr::null_mut(), AcqRel);
}

/// The process exits normally: say goodbye, and let control leave CUPTI before its own destructors run.
extern "C" fn exit() {
    let _ = quiet::contain(|| {
        let Some(shim) = active() else { return };
        let told = shim.leave();
        if !told {
            // The host has closed what would wake it, and its socket with that.
            shim.remove_socket();
        }
        for _ in 0..EXIT_MS {
            if shim.gate.since() == 0 && (!told || shim.parted.load(Acquire)) {
                return;
            }
            sys::sleep(1_000_000);
        }
    });
}
