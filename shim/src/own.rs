//! Descriptors of ours lie in the host's table, and a host may close whatever it finds there and open files of its own
//! under the same numbers. So each is looked at before it is used: what is no longer ours is not read, written or closed.
#![expect(unsafe_code, reason = "closes by hand what may be somebody else's by then")]

use crate::fork;
use crate::sys;
use core::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Something open, as long as the host leaves it to us.
#[derive(Debug)]
pub(crate) struct Own<T: AsRawFd> {
    it: ManuallyDrop<T>,
    file: u64,
}

impl<T: AsRawFd + From<OwnedFd> + Into<OwnedFd>> Own<T> {
    /// Takes over what was just opened; children close it. `None` if it lies where a host without standard streams would
    /// write to it, and there is no other number.
    pub(crate) fn new(it: T) -> Option<Self> {
        let it = T::from(sys::above_standard(it.into())?);
        let (fd, file) = (it.as_raw_fd(), sys::file_behind(it.as_raw_fd()));
        fork::opened(fd, file);
        Some(Self { it: ManuallyDrop::new(it), file })
    }
}

impl<T: AsRawFd> Own<T> {
    /// It, if it is still ours.
    pub(crate) fn get(&self) -> Option<&T> {
        sys::is_behind(self.it.as_raw_fd(), self.file).then(|| &*self.it)
    }

    /// Its number, for `poll`; none that can be polled if it is no longer ours.
    pub(crate) fn fd(&self) -> RawFd {
        self.get().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl<T: AsRawFd> Drop for Own<T> {
    fn drop(&mut self) {
        fork::closing(self.it.as_raw_fd());
        if self.get().is_some() {
            // SAFETY: dropped here and nowhere else, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.it) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::FromRawFd;

    #[test]
    fn what_the_host_put_in_its_place_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            File::open(path).unwrap()
        };
        let own = Own::new(make("ours", "ours")).unwrap();
        let number = own.it.as_raw_fd();
        assert_eq!((own.fd(), own.get().is_some()), (number, true));
        let theirs = make("theirs", "theirs");
        // SAFETY: both are descriptors of this test; the second is replaced by a copy of the first.
        assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), number) }, number);
        assert_eq!((own.fd(), own.get().is_none()), (-1, true));
        drop(own);
        // SAFETY: the copy made above, which nobody else owns.
        let mut copy = unsafe { File::from_raw_fd(number) };
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "theirs", "it was not closed");

        let own = Own::new(make("ours", "ours")).unwrap();
        let number = own.it.as_raw_fd();
        drop(own);
        assert_eq!(sys::file_behind(number), 0, "what is ours is closed");
    }
}
