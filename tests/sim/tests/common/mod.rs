//! A small client of CUPTI's v1 interface, as a collector uses it: it finds the functions by name, gives buffers,
//! and keeps what it finds in them.
#![allow(unsafe_code, reason = "the functions and the buffers are C's")]
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unused_self, reason = "the client is one thing, although C keeps its state in statics")]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

/// Calls a function of CUPTI by name with arguments of any C types.
macro_rules! call {
    ($name:literal, $($argument:expr => $type:ty),*) => {{
        let function = function(&CString::new($name).unwrap());
        // SAFETY: the types are those of `cupti_activity.h` and `cupti_callbacks.h`.
        let function: unsafe extern "C" fn($($type),*) -> u32 = unsafe { std::mem::transmute(function) };
        // SAFETY: the arguments outlive the call.
        unsafe { function($($argument),*) }
    }};
}

/// `CUpti_CallbackFunc`.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// What the client keeps of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) correlation: u32,
    pub(crate) graph: u32,
    pub(crate) stream: u32,
    pub(crate) context: u32,
    /// Of kernels.
    pub(crate) name: String,
    /// Of overhead.
    pub(crate) overhead: u32,
}

impl Seen {
    pub(crate) const fn valid(&self) -> bool {
        self.start != 0 && self.end >= self.start
    }
}

/// Everything that came by now.
#[derive(Default)]
struct Inbox {
    keep: bool,
    seen: Vec<Seen>,
    counts: BTreeMap<u32, u64>,
    zero: u64,
    kernels_valid: u64,
    first_invalid: Option<u64>,
    records: u64,
    buffers: u64,
    empty: u64,
    cut: u64,
    flush_in_callback: bool,
    outstanding: std::collections::BTreeSet<usize>,
    threads: std::collections::HashSet<std::thread::ThreadId>,
}

static INBOX: Mutex<Option<Inbox>> = Mutex::new(None);
/// Buffers the client gives; none means it refuses.
static SUPPLY: Mutex<(usize, usize, bool)> = Mutex::new((SIZE, 0, false));
pub(crate) const SIZE: usize = 256 * 1024;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 8).unwrap()
}

unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    let (bytes, most, refuse) = *SUPPLY.lock().unwrap();
    let memory = if refuse { null_mut() } else { unsafe { alloc(layout(bytes)) } };
    if !refuse {
        INBOX.lock().unwrap().get_or_insert_default().outstanding.insert(memory as usize);
    }
    unsafe {
        *buffer = memory;
        *size = if refuse { 0 } else { bytes };
        *max_records = most;
    }
}

/// Callbacks that are running, the most that were, and whether one waits for another.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static COMPANY: AtomicBool = AtomicBool::new(false);

/// Counts a callback that completes a buffer, and lets it wait a while until another does too.
fn meet() {
    let wait = COMPANY.load(SeqCst);
    MOST.fetch_max(INSIDE.fetch_add(1, SeqCst) + 1, SeqCst);
    for _ in 0..1_000_000 {
        if !wait || MOST.load(SeqCst) > 1 {
            break;
        }
        std::thread::yield_now();
    }
    INSIDE.fetch_sub(1, SeqCst);
}

unsafe extern "C" fn complete(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    meet();
    let mut inbox = INBOX.lock().unwrap();
    let inbox = inbox.get_or_insert_default();
    if inbox.flush_in_callback {
        assert_eq!(call!("cuptiActivityFlushAll", 0 => u32), 999);
    }
    assert!(inbox.outstanding.remove(&(buffer as usize)), "a buffer came back that was not out");
    inbox.buffers += 1;
    inbox.empty += u64::from(valid == 0);
    inbox.threads.insert(std::thread::current().id());
    let next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32 =
        unsafe { std::mem::transmute(function(c"cuptiActivityGetNextRecord")) };
    let mut record = null_mut();
    loop {
        match unsafe { next(buffer, valid, &raw mut record) } {
            0 => inbox.take(record),
            12 => break,
            _ => {
                inbox.cut += 1;
                break;
            }
        }
    }
    unsafe { dealloc(buffer, layout(size)) };
}

impl Inbox {
    fn take(&mut self, record: *const u8) {
        let u32_at = |at: usize| unsafe { record.add(at).cast::<u32>().read_unaligned() };
        let u64_at = |at: usize| unsafe { record.add(at).cast::<u64>().read_unaligned() };
        let kind = u32_at(0);
        let mut seen = Seen {
            kind,
            start: 0,
            end: 0,
            correlation: 0,
            graph: 0,
            stream: 0,
            context: 0,
            name: String::new(),
            overhead: 0,
        };
        match kind {
            10 => {
                (seen.start, seen.end) = (u64_at(16), u64_at(24));
                (seen.context, seen.stream) = (u32_at(44), u32_at(48));
                (seen.correlation, seen.graph) = (u32_at(92), u32_at(156));
                if self.keep {
                    let name = unsafe { CStr::from_ptr(u64_at(104) as *const c_char) };
                    name.to_str().unwrap().clone_into(&mut seen.name);
                }
            }
            1 | 2 => {
                (seen.start, seen.end) = (u64_at(16), u64_at(24));
                (seen.context, seen.stream) = (u32_at(36), u32_at(40));
                (seen.correlation, seen.graph) = (u32_at(44), u32_at(72));
            }
            4 | 5 => (seen.start, seen.end, seen.correlation) = (u64_at(8), u64_at(16), u32_at(32)),
            17 => (seen.start, seen.end, seen.overhead) = (u64_at(24), u64_at(32), u32_at(4)),
            _ => {}
        }
        *self.counts.entry(kind).or_default() += 1;
        if matches!(kind, 1 | 2 | 10) {
            if !seen.valid() {
                self.first_invalid.get_or_insert(self.records);
                self.zero += u64::from(seen.start == 0 && seen.end == 0);
            } else if kind == 10 {
                self.kernels_valid += 1;
            }
            self.records += 1;
        }
        if self.keep {
            self.seen.push(seen);
        }
    }
}

/// How the client finds functions; none means in the simulation of this process.
pub(crate) static RESOLVE: OnceLock<fn(&CStr) -> *mut c_void> = OnceLock::new();

fn function(name: &CStr) -> *mut c_void {
    let function = RESOLVE.get().map_or_else(|| gtop_sim::resolve(name), |resolve| resolve(name));
    assert!(!function.is_null(), "{name:?}");
    function
}

/// The client. One simulation at a time is in the process, so one client is too.
pub(crate) struct Client {
    subscriber: *mut c_void,
}

impl Client {
    /// Subscribes, registers the buffer callbacks and enables `kinds`.
    pub(crate) fn new(kinds: &[u32]) -> Self {
        let client = Self::idle();
        assert_eq!(client.enable(kinds), 0);
        client
    }

    /// Subscribes and registers, and enables nothing.
    pub(crate) fn idle() -> Self {
        *INBOX.lock().unwrap() = None;
        *SUPPLY.lock().unwrap() = (SIZE, 0, false);
        let mut client = Self { subscriber: null_mut() };
        assert_eq!(client.subscribe(), 0);
        client.register();
        client
    }

    fn register(&self) {
        let registered = call!(
            "cuptiActivityRegisterCallbacks",
            request => unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize),
            complete => unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize)
        );
        assert_eq!(registered, 0);
    }

    /// A client that has done nothing yet.
    pub(crate) fn fresh() -> Self {
        *INBOX.lock().unwrap() = None;
        *SUPPLY.lock().unwrap() = (SIZE, 0, false);
        Self { subscriber: null_mut() }
    }

    pub(crate) fn subscribe(&mut self) -> u32 {
        call!(
            "cuptiSubscribe",
            &raw mut self.subscriber => *mut *mut c_void, null_mut() => *mut c_void, null_mut() => *mut c_void
        )
    }

    /// Subscribes with a callback and enables what it is to be called for.
    pub(crate) fn with_callback(callback: Callback, domains: &[u32], ids: &[(u32, u32)]) -> Self {
        let mut client = Self::fresh();
        let subscribed = call!(
            "cuptiSubscribe",
            &raw mut client.subscriber => *mut *mut c_void, callback => Callback, null_mut() => *mut c_void
        );
        assert_eq!(subscribed, 0);
        for domain in domains {
            let enabled =
                call!("cuptiEnableDomain", 1 => u32, client.subscriber => *mut c_void, *domain => u32);
            assert_eq!(enabled, 0);
        }
        for (domain, id) in ids {
            client.enable_callback(true, *domain, *id);
        }
        client.register();
        client
    }

    pub(crate) fn enable_callback(&self, enable: bool, domain: u32, id: u32) {
        let enabled = call!(
            "cuptiEnableCallback",
            u32::from(enable) => u32, self.subscriber => *mut c_void, domain => u32, id => u32
        );
        assert_eq!(enabled, 0);
    }

    /// The id of a handle, by the function of this name.
    pub(crate) fn id(name: &CStr, handle: *mut c_void) -> Option<u64> {
        let function = function(name);
        // SAFETY: these functions take a handle and a place for an id; eight bytes hold either size.
        let function: unsafe extern "C" fn(*mut c_void, *mut u64) -> u32 =
            unsafe { std::mem::transmute(function) };
        let mut id = 0;
        (unsafe { function(handle, &raw mut id) } == 0).then_some(id)
    }

    pub(crate) fn unsubscribe(&self) -> u32 {
        call!("cuptiUnsubscribe", self.subscriber => *mut c_void)
    }

    /// Enables kinds; the first error, or 0.
    pub(crate) fn enable(&self, kinds: &[u32]) -> u32 {
        kinds.iter().map(|kind| call!("cuptiActivityEnable", *kind => u32)).find(|r| *r != 0).unwrap_or(0)
    }

    pub(crate) fn disable(&self, kinds: &[u32]) {
        for kind in kinds {
            assert_eq!(call!("cuptiActivityDisable", *kind => u32), 0);
        }
    }

    pub(crate) fn flush(&self, forced: bool) -> u32 {
        call!("cuptiActivityFlushAll", u32::from(forced) => u32)
    }

    pub(crate) fn finalize(&self) -> u32 {
        call!("cuptiFinalize",)
    }

    pub(crate) fn version(&self) -> (u32, u32) {
        let mut version = 0;
        (call!("cuptiGetVersion", &raw mut version => *mut u32), version)
    }

    pub(crate) fn now(&self) -> u64 {
        let mut now = 0;
        assert_eq!(call!("cuptiGetTimestamp", &raw mut now => *mut u64), 0);
        now
    }

    pub(crate) fn dropped(&self) -> usize {
        let mut dropped = 0;
        let result = call!(
            "cuptiActivityGetNumDroppedRecords",
            null_mut() => *mut c_void, 0 => u32, &raw mut dropped => *mut usize
        );
        assert_eq!(result, 0);
        dropped
    }

    pub(crate) fn set_attribute(&self, attribute: u32, value: usize) -> u32 {
        let (mut size, mut value) = (size_of::<usize>(), value);
        call!(
            "cuptiActivitySetAttribute",
            attribute => u32, &raw mut size => *mut usize, &raw mut value => *mut usize
        )
    }

    pub(crate) fn attribute(&self, attribute: u32) -> usize {
        let (mut size, mut value) = (size_of::<usize>(), 0_usize);
        let result = call!(
            "cuptiActivityGetAttribute",
            attribute => u32, &raw mut size => *mut usize, &raw mut value => *mut usize
        );
        assert_eq!(result, 0);
        value
    }

    /// From now on gives buffers of so many bytes, for so many records (0: as many as fit), or none.
    pub(crate) fn supply(&self, bytes: usize, max_records: usize, refuse: bool) {
        *SUPPLY.lock().unwrap() = (bytes, max_records, refuse);
    }

    /// From now on keeps every record, not only counts.
    pub(crate) fn keep(&self) {
        INBOX.lock().unwrap().get_or_insert_default().keep = true;
    }

    /// Records that were kept.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.inbox(|inbox| inbox.seen.clone())
    }

    /// Records of a kind.
    pub(crate) fn count(&self, kind: u32) -> u64 {
        self.inbox(|inbox| inbox.counts.get(&kind).copied().unwrap_or(0))
    }

    /// Kernel records with good times.
    pub(crate) fn valid_kernels(&self) -> u64 {
        self.inbox(|inbox| inbox.kernels_valid)
    }

    /// Records with start and end 0.
    pub(crate) fn zero(&self) -> u64 {
        self.inbox(|inbox| inbox.zero)
    }

    /// Index of the first record of a kernel, copy or memset with bad times.
    pub(crate) fn first_invalid(&self) -> Option<u64> {
        self.inbox(|inbox| inbox.first_invalid)
    }

    /// Buffers that came back, and how many of them empty.
    pub(crate) fn buffers(&self) -> (u64, u64) {
        self.inbox(|inbox| (inbox.buffers, inbox.empty))
    }

    /// Buffers in which CUPTI would not go on.
    pub(crate) fn cut(&self) -> u64 {
        self.inbox(|inbox| inbox.cut)
    }

    /// Buffers that did not come back.
    pub(crate) fn outstanding(&self) -> Vec<usize> {
        self.inbox(|inbox| inbox.outstanding.iter().copied().collect())
    }

    /// The first byte of a buffer that is out, where CUPTI may be writing.
    pub(crate) fn peek(&self, buffer: usize) -> u8 {
        unsafe { (buffer as *const u8).read_volatile() }
    }

    /// From now on calls `cuptiActivityFlushAll` when a buffer comes back, which is forbidden.
    pub(crate) fn flush_in_callback(&self) {
        self.inbox(|inbox| inbox.flush_in_callback = true);
    }

    /// From now on a buffer that comes waits a while for one that comes on another thread.
    pub(crate) fn wait_for_company(&self, wait: bool) {
        MOST.store(0, SeqCst);
        COMPANY.store(wait, SeqCst);
    }

    /// The most buffers that came at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        MOST.load(SeqCst)
    }

    pub(crate) fn flush_period(&self, milliseconds: u32) -> u32 {
        call!("cuptiActivityFlushPeriod", milliseconds => u32)
    }

    /// Threads on which buffers came.
    pub(crate) fn threads(&self) -> usize {
        self.inbox(|inbox| inbox.threads.len())
    }

    fn inbox<T>(&self, with: impl FnOnce(&mut Inbox) -> T) -> T {
        with(INBOX.lock().unwrap().get_or_insert_default())
    }
}
