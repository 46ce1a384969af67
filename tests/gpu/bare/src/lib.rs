//! A bare collector for `CUDA_INJECTION64_PATH`: CUPTI on, records counted and thrown away. It is the floor that
//! gtop's cost is measured against, and shows what CUPTI does by itself when kinds are switched.
//!
//! `BARE_CUPTI` is the library (else `libcupti.so.13`), `BARE_AFTER` the milliseconds before it is first called (else
//! 0, which is an early start), `BARE_KINDS` the numbers of the kinds (else `10,1,2`), `BARE_OUT` a file that gets one line
//! of counts a second. `BARE_SWITCH=together:20:20` switches kernel off and on, 20 ms each, with memset left on;
//! `apart:20:20` does it with memset off around it.
#![expect(unsafe_code, reason = "a foreign library's functions")]

use std::env;
use std::ffi::{CString, c_void};
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

const BUFFER: usize = 256 << 10;
const KERNEL: u32 = 10;
const MEMSET: u32 = 2;
const SETTLE: Duration = Duration::from_millis(20);

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

type Ignored = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Ignored, *mut c_void) -> u32;
type Register = unsafe extern "C" fn(Requested, Completed) -> u32;
type Switch = unsafe extern "C" fn(u32) -> u32;
type Next = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;

/// The functions used (`cupti_activity.h`, `cupti_callbacks.h`); the same in every CUPTI.
struct Cupti {
    subscribe: Subscribe,
    register: Register,
    enable: Switch,
    disable: Switch,
    next: Next,
}

static CUPTI: OnceLock<Cupti> = OnceLock::new();
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static RECORDS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static SWITCHES: AtomicU64 = AtomicU64::new(0);

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
    let Some(cupti) = open(&path) else {
        eprintln!("gtop-bare: {path} is no CUPTI");
        return;
    };
    let cupti = CUPTI.get_or_init(|| cupti);
    let mut subscriber = ptr::null_mut();
    // SAFETY: a place for the handle; the callbacks live as long as the process.
    let results = unsafe {
        [
            (cupti.subscribe)(&raw mut subscriber, ignored, ptr::null_mut()),
            (cupti.register)(requested, completed),
        ]
    };
    let enabled = kinds().into_iter().map(|kind| set(cupti, kind, true));
    if let Some(error) = results.into_iter().chain(enabled).find(|result| *result != 0) {
        eprintln!("gtop-bare: CUPTI said {error}");
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

fn set(cupti: &Cupti, kind: u32, on: bool) -> u32 {
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
        match (times, CUPTI.get()) {
            (Some((on, off)), Some(cupti)) => {
                thread::sleep(on);
                switch(cupti, false, apart);
                thread::sleep(off);
                switch(cupti, true, apart);
                SWITCHES.fetch_add(1, Relaxed);
            }
            _ => thread::sleep(Duration::from_millis(100)),
        }
        if written.elapsed() >= Duration::from_secs(1) {
            written = Instant::now();
            write();
        }
    }
}

fn switch(cupti: &Cupti, on: bool, apart: bool) {
    if apart && !on {
        set(cupti, MEMSET, false);
        thread::sleep(SETTLE);
    }
    set(cupti, KERNEL, on);
    if apart && on {
        thread::sleep(SETTLE);
        set(cupti, MEMSET, true);
    }
}

fn write() {
    let Ok(path) = env::var("BARE_OUT") else { return };
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let [records, bytes, switches] = [&RECORDS, &BYTES, &SWITCHES].map(|count| count.load(Relaxed));
        let _ = writeln!(file, "records {records} bytes {bytes} switches {switches}");
    }
}

unsafe extern "C" fn ignored(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let free = FREE.lock().ok().and_then(|mut free| free.pop());
    // SAFETY: plain memory, and three places CUPTI gives to write to.
    unsafe {
        *buffer = free.map_or_else(|| libc::malloc(BUFFER).cast(), ptr::with_exposed_provenance_mut);
        *size = BUFFER;
        *records = 0;
    }
}

unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    let Some(cupti) = CUPTI.get() else { return };
    let (mut record, mut records) = (ptr::null_mut(), 0);
    // SAFETY: CUPTI gave the buffer back and walks it itself.
    while unsafe { (cupti.next)(buffer, valid, &raw mut record) } == 0 {
        records += 1;
    }
    RECORDS.fetch_add(records, Relaxed);
    BYTES.fetch_add(valid as u64, Relaxed);
    if let Ok(mut free) = FREE.lock() {
        free.push(buffer.expose_provenance());
    }
}
