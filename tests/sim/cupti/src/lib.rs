//! Stands for `libcupti.so.13`: CUPTI's names, behind each of which is the function of the simulated GPU in
//! `libcuda.so.1`. Where that is not mapped every call fails, as in the real library without a driver, or ends the
//! process, as in 13.2, if `GTOP_SIM_NEEDS_DRIVER` is in the environment.
#![allow(unsafe_code, reason = "forwards C calls to functions found by name")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// `CUPTI_ERROR_UNKNOWN`: what 13.0 and later return for everything without a driver.
const UNKNOWN: u32 = 999;

/// The function of the simulated GPU with this name, or null.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the names are NUL-terminated, and the function has this signature in the library that defines it.
    unsafe {
        let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if driver.is_null() {
            // As 13.2 does, whose search for the driver never ends.
            if std::env::var_os("GTOP_SIM_NEEDS_DRIVER").is_some() {
                libc::abort();
            }
            return null_mut();
        }
        let resolve = libc::dlsym(driver, c"gtop_sim_resolve".as_ptr());
        if resolve.is_null() {
            return null_mut();
        }
        transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> *mut c_void>(resolve)(name.as_ptr())
    }
}

/// Exports CUPTI functions that pass their arguments on.
macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As CUPTI's documentation says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "CUPTI's name")]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            let mut function = FOUND.load(Relaxed);
            if function.is_null() {
                function = find(NAME);
                if function.is_null() {
                    return UNKNOWN;
                }
                FOUND.store(function, Relaxed);
            }
            // SAFETY: the function found under this name has this signature; the arguments are the caller's duty.
            unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> u32>(function)($($argument),*) }
        }
    )*};
}

forward! {
    /// The version of CUPTI.
    cuptiGetVersion(version: *mut u32);
    /// The time, in nanoseconds.
    cuptiGetTimestamp(timestamp: *mut u64);
    /// The name of a result.
    cuptiGetResultString(result: u32, text: *mut *const c_char);
    /// Makes the caller the subscriber.
    cuptiSubscribe(subscriber: *mut *mut c_void, callback: *mut c_void, user: *mut c_void);
    /// Makes the caller the subscriber, or names who is.
    cuptiSubscribe_v2(
        subscriber: *mut *mut c_void,
        callback: *mut c_void,
        user: *mut c_void,
        parameters: *mut c_void
    );
    /// Ends a subscription.
    cuptiUnsubscribe(subscriber: *mut c_void);
    /// Enables or disables a callback.
    cuptiEnableCallback(enable: u32, subscriber: *mut c_void, domain: u32, id: u32);
    /// Enables or disables the callbacks of a domain.
    cuptiEnableDomain(enable: u32, subscriber: *mut c_void, domain: u32);
    /// Registers who gives buffers and who takes them.
    cuptiActivityRegisterCallbacks(request: *mut c_void, complete: *mut c_void);
    /// Registers a clock.
    cuptiActivityRegisterTimestampCallback(callback: *mut c_void);
    /// Enables a kind of activity.
    cuptiActivityEnable(kind: u32);
    /// Disables a kind of activity.
    cuptiActivityDisable(kind: u32);
    /// Hands over what is gathered.
    cuptiActivityFlushAll(flag: u32);
    /// Hands over what is gathered from time to time.
    cuptiActivityFlushPeriod(milliseconds: u32);
    /// The next record of a buffer.
    cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8);
    /// Records dropped for lack of buffers.
    cuptiActivityGetNumDroppedRecords(context: *mut c_void, stream: u32, dropped: *mut usize);
    /// Reads an attribute.
    cuptiActivityGetAttribute(attribute: u32, size: *mut usize, value: *mut c_void);
    /// Sets an attribute.
    cuptiActivitySetAttribute(attribute: u32, size: *mut usize, value: *mut c_void);
    /// The size of a record.
    cuptiActivityGetStructSize(kind: u32, version: u32, size: *mut usize);
    /// Has memory records say which library asked.
    cuptiActivityEnableAllocationSource(enable: u8);
    /// Registers who gives a subscriber's buffers and who takes them.
    cuptiActivityRegisterCallbacks_v2(subscriber: *mut c_void, request: *mut c_void, complete: *mut c_void);
    /// Enables a kind of activity for a subscriber.
    cuptiActivityEnable_v2(subscriber: *mut c_void, kind: u32, config: *mut c_void);
    /// Disables a kind of activity for a subscriber.
    cuptiActivityDisable_v2(subscriber: *mut c_void, kind: u32, config: *mut c_void);
    /// The next record of a subscriber's buffer.
    cuptiActivityGetNextRecord_v2(
        subscriber: *mut c_void,
        buffer: *mut u8,
        valid: usize,
        record: *mut *mut u8
    );
    /// Records of a subscriber dropped for lack of buffers.
    cuptiActivityGetNumDroppedRecords_v2(
        subscriber: *mut c_void,
        context: *mut c_void,
        stream: u32,
        dropped: *mut usize
    );
    /// Sets an attribute for a subscriber.
    cuptiActivitySetAttribute_v2(
        subscriber: *mut c_void,
        attribute: u32,
        size: *mut usize,
        value: *mut c_void
    );
    /// Kinds that a subscriber, or all together, have on.
    cuptiActivityGetEnabledKinds(
        subscriber: *mut c_void,
        buffer: *mut u32,
        size: *mut u32,
        count: *mut u32
    );
    /// The time for a subscriber, in nanoseconds.
    cuptiGetTimestamp_v2(subscriber: *mut c_void, timestamp: *mut u64);
    /// The id of a context.
    cuptiGetContextId(context: *mut c_void, id: *mut u32);
    /// The id of a context's device.
    cuptiGetDeviceId(context: *mut c_void, id: *mut u32);
    /// The id of a stream.
    cuptiGetStreamIdEx(context: *mut c_void, stream: *mut c_void, per_thread: u8, id: *mut u32);
    /// The id of a graph.
    cuptiGetGraphId(graph: *mut c_void, id: *mut u32);
    /// The id of an executable graph.
    cuptiGetGraphExecId(exec: *mut c_void, id: *mut u32);
    /// The id of a graph's node.
    cuptiGetGraphNodeId(node: *mut c_void, id: *mut u64);
    /// Detaches.
    cuptiFinalize();
}
