//! The functions of CUPTI that the shim calls, found by name in whatever library is there.
#![expect(unsafe_code, reason = "a foreign library's functions")]

use crate::observe;
use crate::text::Text;
use core::ffi::{CStr, c_char, c_void};

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

/// `CUPTI_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: CuptiError = CuptiError(27);

fn check(result: u32) -> Result<(), CuptiError> {
    if result == 0 { Ok(()) } else { Err(CuptiError(result)) }
}

/// The first version whose `cuptiSubscribe_v2` is taken to name who holds CUPTI (`cupti_callbacks.h`).
const NAMES_HOLDER: u32 = 130_000;
/// Bytes a holder's name may take, the least CUPTI accepts.
const HOLDER_LEN: usize = 64;

/// `CUpti_SubscriberParams`, the part that every version has.
#[repr(C)]
pub(crate) struct SubscriberParams {
    size: usize,
    name: *const c_char,
    old_name: *mut c_char,
    old_name_len: usize,
}

/// A subscription: the handle CUPTI gave for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscriber(*mut c_void);

// SAFETY: a handle that only CUPTI looks into, which any thread may hand back.
unsafe impl Send for Subscriber {}

impl Subscriber {
    pub(crate) const fn handle(self) -> *mut c_void {
        self.0
    }
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
    unsubscribe = c"cuptiUnsubscribe": unsafe extern "C" fn(*mut c_void) -> u32;
    subscribe_v2 = c"cuptiSubscribe_v2":
        unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void, *mut SubscriberParams) -> u32;
    timestamp = c"cuptiGetTimestamp": unsafe extern "C" fn(*mut u64) -> u32;
    dropped = c"cuptiActivityGetNumDroppedRecords": unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
    set_attribute = c"cuptiActivitySetAttribute": unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    enable_callback = c"cuptiEnableCallback": observe::Enable;
    graph_id = c"cuptiGetGraphId": observe::GetId;
    exec_id = c"cuptiGetGraphExecId": observe::GetId;
    node_id = c"cuptiGetGraphNodeId": observe::GetNodeId;
    context_id = c"cuptiGetContextId": observe::GetId;
    device_id = c"cuptiGetDeviceId": observe::GetId;
    stream_id = c"cuptiGetStreamIdEx": observe::GetStreamId;
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

    /// `cuptiSubscribe`, the v1 interface, with the observers' callback, of which nothing is enabled yet.
    pub(crate) fn subscribe(&self) -> Result<Subscriber, CuptiError> {
        let mut subscriber = core::ptr::null_mut();
        // SAFETY: writes one handle; the callback lives as long as the library.
        check(unsafe { (self.subscribe)(&raw mut subscriber, observe::callback, core::ptr::null_mut()) })?;
        Ok(Subscriber(subscriber))
    }

    /// `cuptiUnsubscribe`. CUPTI must hold none of our buffers any more: whoever comes next would get them.
    pub(crate) fn unsubscribe(&self, subscriber: Subscriber) -> Result<(), CuptiError> {
        let unsubscribe = self.unsubscribe.ok_or(NOT_SUPPORTED)?;
        // SAFETY: the handle of a subscription that was not ended yet.
        check(unsafe { unsubscribe(subscriber.0) })
    }

    /// What the tool that holds CUPTI calls itself, once `cuptiSubscribe` was refused because of it: only another
    /// try through `cuptiSubscribe_v2` tells. Empty when it does not.
    #[must_use]
    pub(crate) fn holder(&self, version: u32) -> Text<64> {
        let Some(subscribe) = self.subscribe_v2.filter(|_| version >= NAMES_HOLDER) else {
            return Text::EMPTY;
        };
        let mut name = [0u8; HOLDER_LEN];
        let mut params = SubscriberParams {
            size: size_of::<SubscriberParams>(),
            name: c"gtop".as_ptr(),
            old_name: name.as_mut_ptr().cast(),
            old_name_len: HOLDER_LEN,
        };
        let mut subscriber = core::ptr::null_mut();
        // SAFETY: writes one handle, and a name within the length given; the structure says how long it is.
        let result = unsafe {
            subscribe(&raw mut subscriber, observe::callback, core::ptr::null_mut(), &raw mut params)
        };
        if result == 0 {
            // It was let go of in between. Version 1 is what is asked for, the next time.
            let _ = self.unsubscribe(Subscriber(subscriber));
            return Text::EMPTY;
        }
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(HOLDER_LEN);
        Text::from_bytes(name.get(..len).unwrap_or_default())
    }

    /// What the observers need.
    #[must_use]
    pub(crate) const fn observing(&self) -> observe::Functions {
        observe::Functions {
            enable: self.enable_callback,
            graph: self.graph_id,
            exec: self.exec_id,
            node: self.node_id,
            context: self.context_id,
            device: self.device_id,
            stream: self.stream_id,
        }
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
        let set = self.set_attribute.ok_or(NOT_SUPPORTED)?;
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
