//! CUPTI's interface v2 (13.3 on), with its own records or with records of chosen fields.

use crate::{BUFFER, Ignored, count, lend, take};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// `CUPTI_ACTIVITY_ATTR_USER_DEFINED_RECORDS`, a byte.
const USER_DEFINED: u32 = 11;
/// The fields that a viewer shows, by kind (`cupti_activity.h`, the same in 13.3 to 13.5): kind, times, device, context,
/// stream, correlation, graph and node; of kernels the name, grid, block, registers, shared memory and clusters too, of
/// copies and memory sets the bytes and what they are.
const SHOWN: [(u32, &[i32]); 3] = [
    (10, &[0, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 4, 19, 20, 22, 24, 31, 33, 36, 37, 38, 39]),
    (1, &[0, 6, 7, 8, 9, 10, 11, 12, 13, 1, 2, 3, 4, 5]),
    (2, &[0, 3, 4, 5, 6, 7, 8, 11, 12, 1, 2, 9, 10]),
];
/// Of those of kernels, what cannot be done without: kind, times, device, context, stream, correlation, name, graph.
const LEAN: &[i32] = &[0, 7, 8, 10, 11, 12, 22, 24, 31, 33];
const START: i32 = 7;
const END: i32 = 8;

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *mut c_void);
type Complete = unsafe extern "C" fn(*mut u8, usize, usize, *mut Completed);

type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Ignored, *mut c_void, *mut Params) -> u32;
type Register = unsafe extern "C" fn(*mut c_void, Request, Complete) -> u32;
type Switch = unsafe extern "C" fn(*mut c_void, u32, *mut Config) -> u32;
type Set = unsafe extern "C" fn(*mut c_void, u32, *mut usize, *mut c_void) -> u32;
type Next = unsafe extern "C" fn(*mut c_void, *mut u8, usize, *mut *mut u8) -> u32;

/// The functions of v2 used here.
struct Functions {
    subscribe: Subscribe,
    register: Register,
    enable: Switch,
    disable: Switch,
    set: Set,
    next: Next,
}

/// `CUpti_SubscriberParams`.
#[repr(C)]
struct Params {
    size: usize,
    name: *const c_char,
    old_name: *mut c_char,
    old_name_len: usize,
    several: u8,
    padding: [u8; 7],
}

/// `CUpti_ActivityConfig` as of 13.3, and `CUpti_ActivityFieldSelection` in it.
#[repr(C)]
struct Config {
    size: usize,
    selection_size: usize,
    fields: usize,
    ids: *const i32,
}

/// `CUpti_BufferCallbackCompleteInfo`.
#[repr(C)]
struct Completed {
    size: usize,
    thread: u64,
    layouts: *const *const Layout,
    layout_count: usize,
}

/// `CUpti_ActivityRecordLayout`.
#[repr(C)]
struct Layout {
    size: usize,
    entries: *const Entry,
    fields: usize,
    record: usize,
}

/// `CUpti_ActivityFieldLayoutEntry`.
#[repr(C)]
struct Entry {
    size: usize,
    id: i32,
    offset: usize,
    field_size: usize,
    alignment: usize,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
static SUBSCRIBER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What records hold.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Records {
    /// CUPTI's own structs.
    Whole,
    /// What a viewer shows.
    Shown,
    /// The least.
    Lean,
}

impl Records {
    fn fields(self, kind: u32) -> Option<&'static [i32]> {
        match self {
            Self::Whole => None,
            Self::Lean if kind == crate::KERNEL => Some(LEAN),
            _ => SHOWN.iter().find(|(of, _)| *of == kind).map(|(_, fields)| *fields),
        }
    }
}

/// The functions; none if one is missing.
fn find(symbol: &dyn Fn(&CStr) -> *mut c_void) -> Option<Functions> {
    macro_rules! function {
        ($name:literal, $type:ty) => {{
            let address = symbol($name);
            if address.is_null() {
                return None;
            }
            // SAFETY: the function of this name has the type of the field.
            unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
        }};
    }
    Some(Functions {
        subscribe: function!(c"cuptiSubscribe_v2", Subscribe),
        register: function!(c"cuptiActivityRegisterCallbacks_v2", Register),
        enable: function!(c"cuptiActivityEnable_v2", Switch),
        disable: function!(c"cuptiActivityDisable_v2", Switch),
        set: function!(c"cuptiActivitySetAttribute_v2", Set),
        next: function!(c"cuptiActivityGetNextRecord_v2", Next),
    })
}

/// Subscribes and registers; what CUPTI said to each call.
pub(crate) fn start(
    symbol: &dyn Fn(&CStr) -> *mut c_void,
    records: Records,
    several: bool,
) -> Option<Vec<u32>> {
    let functions = find(symbol)?;
    let functions = FUNCTIONS.get_or_init(|| functions);
    let mut params = Params {
        size: size_of::<Params>(),
        name: c"gtop-bare".as_ptr(),
        old_name: ptr::null_mut(),
        old_name_len: 0,
        several: u8::from(several),
        padding: [0; 7],
    };
    let mut subscriber = ptr::null_mut();
    // SAFETY: places for the handle and parameters; the callbacks live as long as the process.
    let mut results = unsafe {
        vec![(functions.subscribe)(&raw mut subscriber, crate::ignored, ptr::null_mut(), &raw mut params)]
    };
    SUBSCRIBER.store(subscriber, Relaxed);
    let (mut size, mut on) = (1, 1_u8);
    // SAFETY: a byte, as `size` says.
    unsafe {
        if records != Records::Whole {
            results.push((functions.set)(subscriber, USER_DEFINED, &raw mut size, (&raw mut on).cast()));
        }
        results.push((functions.register)(subscriber, requested, completed));
    }
    Some(results)
}

/// Switches a kind.
pub(crate) fn set(kind: u32, on: bool, records: Records) -> u32 {
    let Some(functions) = FUNCTIONS.get() else { return 0 };
    let subscriber = SUBSCRIBER.load(Relaxed);
    let mut config = records.fields(kind).map(|ids| Config {
        size: size_of::<Config>(),
        selection_size: size_of::<Config>() - size_of::<usize>(),
        fields: ids.len(),
        ids: ids.as_ptr(),
    });
    let config = config.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the subscription, a number, and none or a selection that outlives the call.
    unsafe {
        if on {
            (functions.enable)(subscriber, kind, config)
        } else {
            (functions.disable)(subscriber, kind, config)
        }
    }
}

unsafe extern "C" fn requested(
    buffer: *mut *mut u8,
    size: *mut usize,
    records: *mut usize,
    _info: *mut c_void,
) {
    // SAFETY: three places CUPTI gives to write to.
    unsafe {
        *buffer = lend();
        *size = BUFFER;
        *records = 0;
    }
}

unsafe extern "C" fn completed(buffer: *mut u8, _size: usize, valid: usize, info: *mut Completed) {
    let Some(functions) = FUNCTIONS.get() else { return };
    let subscriber = SUBSCRIBER.load(Relaxed);
    // SAFETY: CUPTI says what the buffer holds, or nothing.
    let chosen = unsafe { info.as_ref().and_then(|info| times(info)) };
    let places = if crate::V2.get() == Some(&Records::Whole) { Some(crate::TIMES) } else { chosen };
    let next = |record: &mut *mut u8| {
        // SAFETY: CUPTI gave the buffer back and walks it itself.
        unsafe { (functions.next)(subscriber, buffer, valid, record) == 0 }
    };
    count(next, places, valid);
    take(buffer);
}

/// Where kernels' start and end lie in records of chosen fields, if these are.
unsafe fn times(info: &Completed) -> Option<[usize; 2]> {
    let kernel = crate::KERNEL as usize;
    if info.layouts.is_null() || info.layout_count <= kernel {
        return None;
    }
    // SAFETY: so many pointers are there, by activity kind, null for kinds without a layout.
    let layout = unsafe { (*info.layouts.add(kernel)).as_ref()? };
    // SAFETY: so many entries are there.
    let entries = unsafe { std::slice::from_raw_parts(layout.entries, layout.fields) };
    let of = |id| entries.iter().find(|entry| entry.id == id).map(|entry| entry.offset);
    Some([of(START)?, of(END)?])
}
