//! The functions of CUPTI that the shim calls, found by name in whatever library is there.
#![expect(unsafe_code, reason = "a foreign library's functions")]

mod session;

use crate::observe;
use core::ffi::{CStr, c_char, c_void};
use gtop_protocol::cupti::CuptiVersion;

pub(crate) use session::{Callbacks, Refused, Session, Stepping, Steps, Wish, subscribe};

/// Asks for a buffer: where to put it, its size, and the most records it may hold.
pub(crate) type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives a buffer back: context, stream, buffer, size, valid bytes.
pub(crate) type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// `CUpti_CallbackFunc`.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
/// `cuptiActivityGetNextRecord`.
pub type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;

/// `CUpti_BuffersCallbackRequestFunc_v2`: the same, and what more there is to say of the request.
pub(crate) type RequestedV2 = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *mut c_void);
/// `CUpti_BuffersCallbackCompleteFunc_v2`: buffer, size, valid bytes, and what more there is to say of them.
pub(crate) type CompletedV2 = unsafe extern "C" fn(*mut u8, usize, usize, *mut c_void);
/// `cuptiActivityGetNextRecord_v2`.
type NextRecordV2 = unsafe extern "C" fn(*mut c_void, *mut u8, usize, *mut *mut u8) -> u32;
/// `cuptiActivityEnable_v2` and `cuptiActivityDisable_v2`: subscriber, kind, and a selection of fields or null.
type SwitchV2 = unsafe extern "C" fn(*mut c_void, u32, *mut c_void) -> u32;

/// `cuptiSubscribe_v2`.
type SubscribeV2 =
    unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void, *mut SubscriberParams) -> u32;

/// `CUpti_SubscriberParams` as of 13.2; before, it ended behind the length of the old name.
#[repr(C)]
struct SubscriberParams {
    size: usize,
    name: *const c_char,
    old_name: *mut c_char,
    old_name_len: usize,
    several: u8,
    padding: [u8; 7],
}

/// A `CUptiResult` that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuptiError(pub u32);

/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
pub(crate) const BUSY: u32 = 39;
/// `CUPTI_ERROR_MAX_LIMIT_REACHED`: how CUPTI 11 said the same.
const BUSY_BEFORE_12: u32 = 12;

impl CuptiError {
    /// Whether it says that another tool holds CUPTI.
    pub(crate) const fn is_busy(self) -> bool {
        matches!(self.0, BUSY | BUSY_BEFORE_12)
    }
}

/// `CUPTI_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: CuptiError = CuptiError(27);

fn check(result: u32) -> Result<(), CuptiError> {
    if result == 0 { Ok(()) } else { Err(CuptiError(result)) }
}

/// A subscription: the handle CUPTI gave for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscriber(*mut c_void);

// SAFETY: a handle that only CUPTI looks into, which any thread may hand back.
unsafe impl Send for Subscriber {}

impl Subscriber {
    const fn handle(self) -> *mut c_void {
        self.0
    }
}

/// `CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT`.
const ATTR_POOL_LIMIT: u32 = 2;
/// `CUPTI_ACTIVITY_ATTR_ENABLE_ALLOCATION_SOURCE_TRACKING` of the v2 interface (13.2), a byte.
const ATTR_ALLOCATION_SOURCE: u32 = 14;

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
    subscribe_v2 = c"cuptiSubscribe_v2": SubscribeV2;
    timestamp = c"cuptiGetTimestamp": unsafe extern "C" fn(*mut u64) -> u32;
    dropped = c"cuptiActivityGetNumDroppedRecords": unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
    set_attribute = c"cuptiActivitySetAttribute": unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    register_v2 = c"cuptiActivityRegisterCallbacks_v2":
        unsafe extern "C" fn(*mut c_void, RequestedV2, CompletedV2) -> u32;
    enable_v2 = c"cuptiActivityEnable_v2": SwitchV2;
    disable_v2 = c"cuptiActivityDisable_v2": SwitchV2;
    next_record_v2 = c"cuptiActivityGetNextRecord_v2": NextRecordV2;
    timestamp_v2 = c"cuptiGetTimestamp_v2": unsafe extern "C" fn(*mut c_void, *mut u64) -> u32;
    dropped_v2 = c"cuptiActivityGetNumDroppedRecords_v2":
        unsafe extern "C" fn(*mut c_void, *mut c_void, u32, *mut usize) -> u32;
    set_attribute_v2 = c"cuptiActivitySetAttribute_v2":
        unsafe extern "C" fn(*mut c_void, u32, *mut usize, *mut c_void) -> u32;
    allocation_source = c"cuptiActivityEnableAllocationSource": unsafe extern "C" fn(u8) -> u32;
    kinds_on = c"cuptiActivityGetEnabledKinds":
        unsafe extern "C" fn(*mut c_void, *mut u32, *mut u32, *mut u32) -> u32;
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

    /// Whether there is a v2 interface to use.
    #[must_use]
    pub(crate) fn has_v2(&self, version: CuptiVersion) -> bool {
        self.v2(version).is_some()
    }

    /// The functions of the v2 interface; `None` where it is not there, or not more than a beta.
    fn v2(&self, version: CuptiVersion) -> Option<V2> {
        if version < FIRST_V2 || self.next_record_v2.is_none() {
            return None;
        }
        Some(V2 {
            subscribe: self.subscribe_v2?,
            register: self.register_v2?,
            enable: self.enable_v2?,
            disable: self.disable_v2?,
        })
    }
}

/// The first version whose v2 interface NVIDIA calls more than a beta (`cupti_activity.h`); before it no layouts come
/// with buffers.
const FIRST_V2: CuptiVersion = CuptiVersion(130_300);

/// The functions without which the v2 interface is of no use.
#[derive(Clone, Copy, Debug)]
struct V2 {
    subscribe: SubscribeV2,
    register: unsafe extern "C" fn(*mut c_void, RequestedV2, CompletedV2) -> u32,
    enable: SwitchV2,
    disable: SwitchV2,
}
