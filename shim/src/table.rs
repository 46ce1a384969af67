//! The functions of CUPTI that the shim calls, found by name in whatever library is there.
#![expect(unsafe_code, reason = "a foreign library's functions")]

use core::ffi::{CStr, c_void};

/// Asks for a buffer: where to put it, its size, and the most records it may hold.
pub(crate) type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives a buffer back: context, stream, buffer, size, valid bytes.
pub(crate) type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// `CUpti_CallbackFunc`.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
/// `cuptiActivityGetNextRecord`.
pub type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;

/// A `CUptiResult` that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuptiError(pub u32);

fn check(result: u32) -> Result<(), CuptiError> {
    if result == 0 { Ok(()) } else { Err(CuptiError(result)) }
}

/// `CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT`.
pub(crate) const ATTR_POOL_LIMIT: u32 = 2;

macro_rules! table {
    (required { $($field:ident = $symbol:literal: $type:ty;)* }
     optional { $($ofield:ident = $osymbol:literal: $otype:ty;)* }) => {
        /// The functions. All take and give plain numbers and pointers, the same since CUPTI 11.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Table {
            $($field: $type,)*
            $($ofield: Option<$otype>,)*
        }

        impl Table {
            /// Finds the functions; the error is the name of one that is missing.
            pub(crate) fn find(symbol: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static CStr> {
                Ok(Self {
                    $($field: {
                        let address = symbol($symbol);
                        if address.is_null() {
                            return Err($symbol);
                        }
                        // SAFETY: the symbol of this name has this type in every CUPTI (`cupti.h`).
                        unsafe { core::mem::transmute::<*mut c_void, $type>(address) }
                    },)*
                    $($ofield: {
                        let address = symbol($osymbol);
                        if address.is_null() {
                            None
                        } else {
                            // SAFETY: as above.
                            Some(unsafe { core::mem::transmute::<*mut c_void, $otype>(address) })
                        }
                    },)*
                })
            }
        }
    };
}

table! {
    required {
    version = c"cuptiGetVersion": unsafe extern "C" fn(*mut u32) -> u32;
    subscribe = c"cuptiSubscribe": unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;
    register = c"cuptiActivityRegisterCallbacks": unsafe extern "C" fn(Requested, Completed) -> u32;
    enable = c"cuptiActivityEnable": unsafe extern "C" fn(u32) -> u32;
    disable = c"cuptiActivityDisable": unsafe extern "C" fn(u32) -> u32;
    flush = c"cuptiActivityFlushAll": unsafe extern "C" fn(u32) -> u32;
    next_record = c"cuptiActivityGetNextRecord": NextRecord;
    }
    optional {
    timestamp = c"cuptiGetTimestamp": unsafe extern "C" fn(*mut u64) -> u32;
    dropped = c"cuptiActivityGetNumDroppedRecords": unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
    set_attribute = c"cuptiActivitySetAttribute": unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    }
}

impl Table {
    /// Where the library's code lies, to find its file.
    #[must_use]
    pub(crate) fn address(&self) -> *const c_void {
        self.version as *const c_void
    }

    /// `cuptiGetVersion`.
    pub(crate) fn version(&self) -> Result<u32, CuptiError> {
        let mut version = 0;
        // SAFETY: writes one u32.
        check(unsafe { (self.version)(&raw mut version) }).map(|()| version)
    }

    /// `cuptiSubscribe`, the v1 interface, with a callback that does nothing, since none is enabled.
    pub(crate) fn subscribe(&self) -> Result<(), CuptiError> {
        let mut subscriber = core::ptr::null_mut();
        // SAFETY: writes one handle; the callback lives as long as the library.
        check(unsafe { (self.subscribe)(&raw mut subscriber, no_callback, core::ptr::null_mut()) })
    }

    /// `cuptiActivityRegisterCallbacks`.
    pub(crate) fn register(&self, requested: Requested, completed: Completed) -> Result<(), CuptiError> {
        // SAFETY: both functions live as long as the library.
        check(unsafe { (self.register)(requested, completed) })
    }

    /// `cuptiActivityEnable`.
    pub(crate) fn enable(&self, kind: u32) -> Result<(), CuptiError> {
        // SAFETY: a number.
        check(unsafe { (self.enable)(kind) })
    }

    /// `cuptiActivityDisable`.
    pub(crate) fn disable(&self, kind: u32) -> Result<(), CuptiError> {
        // SAFETY: a number.
        check(unsafe { (self.disable)(kind) })
    }

    /// `cuptiActivityFlushAll`; forced takes unfinished records too.
    pub(crate) fn flush(&self, forced: bool) -> Result<(), CuptiError> {
        // SAFETY: a number.
        check(unsafe { (self.flush)(u32::from(forced)) })
    }

    /// `cuptiGetTimestamp`, nanoseconds.
    #[must_use]
    pub(crate) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: writes one u64.
        check(unsafe { (self.timestamp?)(&raw mut time) }).ok().map(|()| time)
    }

    /// `cuptiActivityGetNumDroppedRecords`: records dropped since it was last asked.
    #[must_use]
    pub(crate) fn dropped(&self) -> u64 {
        let mut count = 0;
        self.dropped
            // SAFETY: writes one size_t; no context and stream 0 ask for the process's queue.
            .filter(|dropped| unsafe { dropped(core::ptr::null_mut(), 0, &raw mut count) } == 0)
            .map_or(0, |_| count as u64)
    }

    /// Sets how many device buffers a context created from now on may have.
    pub(crate) fn set_pool_limit(&self, limit: usize) -> Result<(), CuptiError> {
        // CUPTI_ERROR_NOT_SUPPORTED
        let set = self.set_attribute.ok_or(CuptiError(27))?;
        let (mut size, mut value) = (size_of::<usize>(), limit);
        // SAFETY: the attribute is a size_t, and `size` says so.
        check(unsafe { set(ATTR_POOL_LIMIT, &raw mut size, (&raw mut value).cast()) })
    }

    /// `cuptiActivityGetNextRecord`, for the walk.
    #[must_use]
    pub(crate) const fn next_record(&self) -> NextRecord {
        self.next_record
    }
}

unsafe extern "C" fn no_callback(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}
