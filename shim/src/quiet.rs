//! A panic in code of ours ends there: it reaches no C caller and prints nothing on the host's standard error.

use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use std::panic::{self, PanicHookInfo};
use std::sync::{Once, OnceLock};

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

static BEFORE: OnceLock<Hook> = OnceLock::new();
static INSTALL: Once = Once::new();

/// Keeps panics inside [`contain`] silent. Other panics go to the hook that was there.
pub(crate) fn install() {
    INSTALL.call_once(|| {
        let _ = BEFORE.set(panic::take_hook());
        #[expect(clippy::disallowed_methods, reason = "a closure of no size, which takes no memory")]
        panic::set_hook(Box::new(|info| {
            if !OURS.get()
                && let Some(before) = BEFORE.get()
            {
                before(info);
            }
        }));
    });
}

/// Runs `body`; `None` if it panicked.
pub(crate) fn contain<T>(body: impl FnOnce() -> T) -> Option<T> {
    let before = OURS.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(body)).ok();
    OURS.set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_ends_inside() {
        install();
        assert_eq!(contain(|| 7), Some(7));
        assert_eq!(contain(|| -> u8 { panic!("not to be seen on standard error") }), None);
        assert!(!OURS.get());
    }
}
