//! Zero-filled memory straight from the system: it can fail, and a page costs nothing until it is touched.
#![expect(unsafe_code, reason = "anonymous mappings are raw memory")]

use core::ops::Deref;
use core::ptr::NonNull;
use zerocopy::FromZeros;

/// A fixed array of `T` in a mapping of its own. `T` must be shared safely (atomics), since the array is.
#[derive(Debug)]
pub struct Region<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: a region owns its memory like a boxed slice does.
unsafe impl<T: Send> Send for Region<T> {}
// SAFETY: as above; shared access gives `&[T]` only.
unsafe impl<T: Sync> Sync for Region<T> {}

impl<T: FromZeros> Region<T> {
    /// Reserves `count` zeroed items, or `None` when the system has no memory for them.
    #[must_use]
    pub fn new(count: usize) -> Option<Self> {
        let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| *bytes > 0)?;
        // SAFETY: an anonymous private mapping at an address of the system's choice touches no memory of ours.
        let address = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        Some(Self { first: NonNull::new(address.cast())?, count })
    }
}

impl<T> Region<T> {
    /// The first item, for memory that others write through raw pointers.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut T {
        self.first.as_ptr()
    }

    /// Bytes reserved.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.count.saturating_mul(size_of::<T>())
    }
}

impl<T> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `count` items, page-aligned, and all zeros are a valid `T` (`FromZeros`).
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, which nobody can borrow any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn memory_is_zero_and_too_much_is_refused() {
        let region = Region::<AtomicU32>::new(5000).unwrap();
        assert!(region.iter().all(|item| item.load(Ordering::Relaxed) == 0));
        assert_eq!((region.len(), region.bytes()), (5000, 20_000));
        assert!(Region::<AtomicU32>::new(usize::MAX / 8).is_none());
        assert!(Region::<AtomicU32>::new(usize::MAX).is_none());
        assert!(Region::<AtomicU32>::new(0).is_none());
    }
}
