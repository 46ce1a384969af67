//! A bare collector for `CUDA_INJECTION64_PATH`: CUPTI on, records counted and thrown away. It is the floor that
//! gtop's cost is measured against, and shows what CUPTI does by itself when kinds are switched.
//!
//! `BARE_INTERFACE` is `v1`, `v2`, or, with records of chosen fields, `shown` (what a viewer shows) or `lean` (the least);
//! with `BARE_SEVERAL=1`, v2 lets other subscribers in. `BARE_CUPTI` is the library (else `libcupti.so.13`), `BARE_AFTER` the milliseconds before it is first called (else
//! 0, which is an early start), `BARE_KINDS` the numbers of the kinds (else `10,1,2`), `BARE_OUT` a file that gets one line
//! of counts a second. With `BARE_SOURCES=1`, memory records say which library asked (v1). `BARE_SWITCH=together:20:20` switches kernel off and on, 20 ms each, with memset left on;
//! `apart:20:20` does it with memset off around it.
#![expect(unsafe_code, reason = "a foreign library's functions")]

mod v2;

use std::env;
use std::ffi::{CStr, CString, c_void};
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use v2::Records;

const BUFFER: usize = 256 << 10;
const KERNEL: u32 = 10;
const MEMSET: u32 = 2;
const SETTLE: Duration = Duration::from_millis(20);

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

type Ignored = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Ignored, *mut c_void) -> u32;
type Register = unsafe extern "C" fn(Requested, Completed) -> u32;
type Switch1 = unsafe extern "C" fn(u8) -> u32;
type Switch = unsafe extern "C" fn(u32) -> u32;
type Next = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;

/// The functions of v1 used (`cupti_activity.h`, `cupti_callbacks.h`); the same in every CUPTI.
struct Cupti {
    subscribe: Subscribe,
    register: Register,
    enable: Switch,
    disable: Switch,
    next: Next,
}

static CUPTI: OnceLock<Cupti> = OnceLock::new();
/// What v2's records hold, once it is v2 that is used.
static V2: OnceLock<Records> = OnceLock::new();
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static RECORDS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static SWITCHES: AtomicU64 = AtomicU64::new(0);
/// Kernels that end before they start, or never did either.
static BAD: AtomicU64 = AtomicU64::new(0);
/// Kernels of which it was not known where the times lie.
static UNREAD: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds spent in stepping from record to record.
static STEPPING: AtomicU64 = AtomicU64::new(0);

/// What the driver calls when it loads the library. Always 1: the program goes on whatever happens here.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    let _ = catch_unwind(|| {
        let after = Duration::from_millis(number("BARE_AFTER").unwrap_or(0));
        if after.is_zero() {
            start();
        }
        thread::spawn(move || {
            if !after.is_zero() {
                thread::sleep(after);
                start();
            }
            work();
        });
    });
    1
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn kinds() -> Vec<u32> {
    let kinds = env::var("BARE_KINDS").unwrap_or_else(|_| "10,1,2".to_owned());
    kinds.split(',').filter_map(|kind| kind.trim().parse().ok()).collect()
}

fn start() {
    let path = env::var("BARE_CUPTI").unwrap_or_else(|_| "libcupti.so.13".to_owned());
    let interface = env::var("BARE_INTERFACE").unwrap_or_default();
    let records = match interface.as_str() {
        "v2" => Some(Records::Whole),
        "shown" => Some(Records::Shown),
        "lean" => Some(Records::Lean),
        _ => None,
    };
    let results = match records {
        None => open(&path).map(|cupti| begin(CUPTI.get_or_init(|| cupti))),
        Some(records) => CString::new(path.as_str()).ok().and_then(|path| {
            // SAFETY: a C string; CUPTI's constructors run, which is what this library is for.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            if library.is_null() {
                return None;
            }
            // SAFETY: an open library and a C string.
            let symbol = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
            let results = v2::start(&symbol, records, env::var_os("BARE_SEVERAL").is_some());
            V2.get_or_init(|| records);
            results
        }),
    };
    let Some(results) = results else {
        eprintln!("gtop-bare: {path} is no CUPTI, or has no such interface");
        return;
    };
    if env::var_os("BARE_SOURCES").is_some() {
        track_sources(&path);
    }
    let enabled = kinds().into_iter().map(|kind| set(kind, true));
    if let Some(error) = results.into_iter().chain(enabled).find(|result| *result != 0) {
        eprintln!("gtop-bare: CUPTI said {error}");
    }
}

/// `cuptiActivityEnableAllocationSource`, from 12.6 on.
fn track_sources(path: &str) {
    let Ok(path) = CString::new(path) else { return };
    // SAFETY: C strings; the library is open already.
    let function = unsafe {
        libc::dlsym(
            libc::dlopen(path.as_ptr(), libc::RTLD_NOW),
            c"cuptiActivityEnableAllocationSource".as_ptr(),
        )
    };
    let result = if function.is_null() {
        None
    } else {
        // SAFETY: the function of this name has this type.
        Some(unsafe { std::mem::transmute::<*mut c_void, Switch1>(function)(1) })
    };
    if result != Some(0) {
        eprintln!("gtop-bare: sources are not tracked: {result:?}");
    }
}

/// Subscribes and registers; what CUPTI said to each call.
fn begin(cupti: &Cupti) -> Vec<u32> {
    let mut subscriber = ptr::null_mut();
    // SAFETY: a place for the handle; the callbacks live as long as the process.
    unsafe {
        vec![
            (cupti.subscribe)(&raw mut subscriber, ignored, ptr::null_mut()),
            (cupti.register)(requested, completed),
        ]
    }
}

/// The library's functions; none if one is missing.
fn open(path: &str) -> Option<Cupti> {
    let path = CString::new(path).ok()?;
    // SAFETY: a C string; CUPTI's constructors run, which is what this library is for.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    macro_rules! function {
        ($name:literal, $type:ty) => {{
            // SAFETY: null or an open library, and a C string.
            let address = unsafe { libc::dlsym(library, $name.as_ptr()) };
            if library.is_null() || address.is_null() {
                return None;
            }
            // SAFETY: the function of this name has the type of the field.
            unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
        }};
    }
    Some(Cupti {
        subscribe: function!(c"cuptiSubscribe", Subscribe),
        register: function!(c"cuptiActivityRegisterCallbacks", Register),
        enable: function!(c"cuptiActivityEnable", Switch),
        disable: function!(c"cuptiActivityDisable", Switch),
        next: function!(c"cuptiActivityGetNextRecord", Next),
    })
}

fn set(kind: u32, on: bool) -> u32 {
    if let Some(records) = V2.get() {
        return v2::set(kind, on, *records);
    }
    let Some(cupti) = CUPTI.get() else { return 0 };
    // SAFETY: a number.
    unsafe { if on { (cupti.enable)(kind) } else { (cupti.disable)(kind) } }
}

/// Switches as asked and writes the counts, until the process ends.
fn work() {
    let how = env::var("BARE_SWITCH").unwrap_or_default();
    let mut parts = how.split(':');
    let apart = parts.next() == Some("apart");
    let mut time = || parts.next().and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    let times = time().zip(time());
    let mut written = Instant::now();
    loop {
        if let Some((on, off)) = times {
            thread::sleep(on);
            switch(false, apart);
            thread::sleep(off);
            switch(true, apart);
            SWITCHES.fetch_add(1, Relaxed);
        } else {
            thread::sleep(Duration::from_millis(100));
        }
        if written.elapsed() >= Duration::from_secs(1) {
            written = Instant::now();
            write();
        }
    }
}

fn switch(on: bool, apart: bool) {
    if apart && !on {
        set(MEMSET, false);
        thread::sleep(SETTLE);
    }
    set(KERNEL, on);
    if apart && on {
        thread::sleep(SETTLE);
        set(MEMSET, true);
    }
}

fn write() {
    let Ok(path) = env::var("BARE_OUT") else { return };
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let counts = [&RECORDS, &BYTES, &SWITCHES, &BAD, &UNREAD, &STEPPING];
        let [records, bytes, switches, bad, unread, stepping] = counts.map(|count| count.load(Relaxed));
        let _ = writeln!(
            file,
            "records {records} bytes {bytes} switches {switches} bad {bad} unread {unread} stepping_ns {stepping}"
        );
    }
}

/// A buffer that is free.
fn lend() -> *mut u8 {
    let free = FREE.lock().ok().and_then(|mut free| free.pop());
    // SAFETY: plain memory.
    free.map_or_else(|| unsafe { libc::malloc(BUFFER).cast() }, ptr::with_exposed_provenance_mut)
}

/// A buffer is free again.
fn take(buffer: *mut u8) {
    if let Ok(mut free) = FREE.lock() {
        free.push(buffer.expose_provenance());
    }
}

/// Where start and end lie in CUPTI's own struct of a kernel.
const TIMES: [usize; 2] = [16, 24];

/// Counts the records of a buffer; kernels' start and end lie at these places, if that is known.
fn count(mut next: impl FnMut(&mut *mut u8) -> bool, places: Option<[usize; 2]>, valid: usize) {
    let began = Instant::now();
    let (mut record, mut records, mut bad, mut unread) = (ptr::null_mut::<u8>(), 0, 0, 0);
    while next(&mut record) {
        records += 1;
        // SAFETY: a whole record lies there, which begins with its kind.
        if unsafe { record.cast::<u32>().read_unaligned() } != KERNEL {
            continue;
        }
        let Some(places) = places else {
            unread += 1;
            continue;
        };
        // SAFETY: a kernel's record has both times there.
        let [start, end] = places.map(|at| unsafe { record.add(at).cast::<u64>().read_unaligned() });
        bad += u64::from(start == 0 || end < start);
    }
    RECORDS.fetch_add(records, Relaxed);
    BAD.fetch_add(bad, Relaxed);
    UNREAD.fetch_add(unread, Relaxed);
    BYTES.fetch_add(valid as u64, Relaxed);
    STEPPING.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
}

unsafe extern "C" fn ignored(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: three places CUPTI gives to write to.
    unsafe {
        *buffer = lend();
        *size = BUFFER;
        *records = 0;
    }
}

unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    let Some(cupti) = CUPTI.get() else { return };
    // SAFETY: CUPTI gave the buffer back and walks it itself.
    count(|record| unsafe { (cupti.next)(buffer, valid, record) == 0 }, Some(TIMES), valid);
    take(buffer);
}
