//! Reading and writing little-endian fields in bounded buffers; the only place that touches raw bytes.

/// The buffer was full, or a value was longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Appends fields to a buffer that never grows.
#[derive(Debug)]
pub struct Writer<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `buf`.
    pub const fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, at: 0 }
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.at
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// Bytes that still fit.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.buf.len().saturating_sub(self.at)
    }

    /// Appends raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.at.checked_add(bytes.len()).ok_or(Full)?;
        self.buf.get_mut(self.at..end).ok_or(Full)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Passes over `len` bytes that are in place already.
    pub fn skip(&mut self, len: usize) -> Result<(), Full> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.buf.len()).ok_or(Full)?;
        self.at = end;
        Ok(())
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> Result<(), Full> {
        self.bytes(&[value])
    }

    /// Appends a `u16`.
    pub fn u16(&mut self, value: u16) -> Result<(), Full> {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a `u32`.
    pub fn u32(&mut self, value: u32) -> Result<(), Full> {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a `u64`.
    pub fn u64(&mut self, value: u64) -> Result<(), Full> {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a `u64` that may be unknown.
    pub fn opt_u64(&mut self, value: Option<u64>) -> Result<(), Full> {
        self.u8(u8::from(value.is_some()))?;
        self.u64(value.unwrap_or(0))
    }

    /// Appends a byte string behind its `u32` length.
    pub fn blob(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.u32(u32::try_from(bytes.len()).map_err(|_| Full)?)?;
        self.bytes(bytes)
    }
}

/// Reads fields off a buffer. Past the end every field reads as its default, because a field appended by a
/// newer peer is simply absent from an older one's message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    bad: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, bad: false }
    }

    /// Whether every byte was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Whether a field was cut in the middle: damage, not age.
    #[must_use]
    pub const fn is_bad(&self) -> bool {
        self.bad
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        if let Some((head, rest)) = self.rest.split_first_chunk::<N>() {
            self.rest = rest;
            return *head;
        }
        self.bad |= !self.rest.is_empty();
        self.rest = &[];
        [0; N]
    }

    /// One byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// A `u16`.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// A `u32`.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// A `u64`.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A `u64` that may be unknown; absent means unknown.
    pub fn opt_u64(&mut self) -> Option<u64> {
        let known = self.u8();
        let value = self.u64();
        (known == 1).then_some(value)
    }

    /// `len` raw bytes, or what is left of them.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        if let Some((head, rest)) = self.rest.split_at_checked(len) {
            self.rest = rest;
            return head;
        }
        self.bad = true;
        core::mem::take(&mut self.rest)
    }

    /// A byte string behind its `u32` length.
    pub fn blob(&mut self) -> &'a [u8] {
        let len = self.u32() as usize;
        self.bytes(len)
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_come_back_and_absent_ones_are_default() {
        let mut buf = [0u8; 64];
        let mut writer = Writer::new(&mut buf);
        writer.u8(7).and_then(|()| writer.u32(70_000)).and_then(|()| writer.blob(b"name")).ok();
        writer.opt_u64(Some(0)).ok();
        let len = writer.len();
        let mut reader = Reader::new(&buf[..len]);
        assert_eq!((reader.u8(), reader.u32(), reader.blob()), (7, 70_000, b"name".as_slice()));
        assert_eq!(reader.opt_u64(), Some(0));
        assert!(!reader.is_bad());
        assert_eq!((reader.u64(), reader.opt_u64(), reader.is_bad()), (0, None, false));
    }

    #[test]
    fn a_cut_field_is_damage() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u32(), 0);
        assert!(reader.is_bad());
        let mut reader = Reader::new(&[200, 0, 0, 0, b'x']);
        assert_eq!(reader.blob(), b"x");
        assert!(reader.is_bad());
    }

    #[test]
    fn a_full_buffer_takes_nothing() {
        let mut buf = [0u8; 3];
        let mut writer = Writer::new(&mut buf);
        assert_eq!(writer.u32(1), Err(Full));
        assert_eq!((writer.skip(4), writer.skip(usize::MAX)), (Err(Full), Err(Full)));
        assert_eq!(writer.u16(1), Ok(()));
        assert_eq!((writer.len(), writer.room()), (2, 1));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes: Vec<u8>, steps in proptest::collection::vec(0u8..6, 0..40)) {
            let mut reader = Reader::new(&bytes);
            for step in steps {
                match step {
                    0 => { reader.u8(); }
                    1 => { reader.u16(); }
                    2 => { reader.u32(); }
                    3 => { reader.u64(); }
                    4 => { reader.opt_u64(); }
                    _ => { reader.blob(); }
                }
            }
        }
    }
}
