//! The callbacks as CUPTI makes them, over recorded buffers.

#[path = "../../tests/common/buffers.rs"]
mod buffers;

use super::*;
use crate::config::Config;
use crate::frugal::while_locked;
use crate::shared::{Shim, keep};
use crate::table::Table;
use core::ptr::null_mut;
use gtop_protocol::control::Raw;

/// Asks for a buffer as CUPTI does.
fn request() -> *mut u8 {
    let (mut buffer, mut size, mut records) = (null_mut(), 0, 7);
    // SAFETY: three places to write to.
    unsafe { requested(&raw mut buffer, &raw mut size, &raw mut records) };
    assert_eq!((size, records), (if buffer.is_null() { 0 } else { BUFFER_LEN }, 0));
    buffer
}

/// Gives back a buffer that holds these records.
fn complete(buffer: *mut u8, records: &[u8]) {
    // SAFETY: it was lent, and is at least as long; names live as long as the test.
    unsafe {
        buffer.copy_from_nonoverlapping(records.as_ptr(), records.len());
        completed(null_mut(), 0, buffer, BUFFER_LEN, records.len());
    }
}

/// Everything that can become of buffers: walked, one copied as it is, thrown away while nobody watches, without a frame for its
/// records, and given back twice or by a stranger.
#[test]
fn neither_memory_nor_a_lock_is_taken_whatever_becomes_of_a_buffer() {
    let recorded = buffers::recorded("cupti-13.0.85-mixed.cuptibuf.xz", 8 << 20);
    // For ever, so that no callback gives it back.
    let recorded: &'static buffers::Buffers = Box::leak(Box::new(recorded));
    let shim = Shim::new(Config::default(), None).unwrap();
    shim.wake.open().unwrap();
    let table = Table::find(|_| buffers::by_stride as *mut c_void).unwrap();
    let version = CuptiVersion(recorded.version);
    let collector = keep(Collector::new(Steps::of(&table), version, &shim.wake).unwrap()).unwrap();
    collector.streaming.store(true, Relaxed);
    install(collector);

    let each = &recorded.each;
    let asked = while_locked(shim, move || {
        for buffer in each {
            // The I/O thread is about to sleep.
            collector.wake.prepare();
            complete(request(), buffer);
        }
    });
    let counted = |counter: &AtomicU64| counter.load(Relaxed);
    let counters = &collector.counters;
    assert_eq!(asked, 0, "walking");
    assert_eq!((counted(&counters.walked), counted(&counters.framed)), (recorded.records, recorded.records));
    assert!(counted(&counters.kernel) > 0 && counted(&counters.memcpy) > 0 && counted(&counters.memset) > 0);
    assert!(collector.names.end() > 2 && counted(&collector.buffers.completed) > 20);

    // Nobody takes frames: until there are none, and then for a while.
    let asked = while_locked(shim, move || {
        let mut after = 2;
        while after > 0 {
            for buffer in each {
                complete(request(), buffer);
            }
            after -= u32::from(collector.frames.in_use() == collector.frames.count());
        }
    });
    assert_eq!(asked, 0, "without frames");
    assert!(counted(&counters.queue_full) > 0);
    assert_eq!(counted(&counters.walked), counted(&counters.framed) + counted(&counters.queue_full));

    collector.copies.want(Raw::All);
    let one = &recorded.each[0];
    let asked = while_locked(shim, move || {
        // One more than can wait.
        (0..17).for_each(|_| complete(request(), one));
        collector.copies.want(Raw::None);
        collector.streaming.store(false, Relaxed);
        complete(request(), one);
        let lent = request();
        complete(lent, one);
        // SAFETY: a buffer that is back already, and one that never was lent.
        unsafe {
            completed(null_mut(), 0, lent, BUFFER_LEN, one.len());
            completed(null_mut(), 0, one.as_ptr().cast_mut(), one.len(), one.len());
        }
        while !request().is_null() {}
    });
    assert_eq!(asked, 0, "copying, throwing away, refusing");
    assert_eq!((counted(&collector.copies.copied), counted(&collector.copies.missed)), (16, 1));
    assert!(counted(&counters.discarded) > 0 && counted(&collector.buffers.exhausted) == 1);
    assert_eq!(counted(&counters.panics), 0);
    uninstall();
    assert!(request().is_null());
}
