//! Output of an encoder: a vector, or a buffer of fixed size on the stack.

/// The output of an encoder, to which it appends bytes.
pub(crate) trait EncodeSink {
    /// Returns the number of bytes written so far; a [`EncodeBuffer`] counts from one.
    fn position(&self) -> usize;

    /// Appends a byte.
    fn put(&mut self, byte: u8);

    /// Appends the low `len` bytes of `n`, little endian.
    fn put_low(&mut self, n: u64, len: usize);

    /// Adds one to the byte at `position`. Returns false without a change if that byte is `last` or
    /// was not written.
    fn increment(&mut self, position: usize, last: u8) -> bool;
}

impl EncodeSink for Vec<u8> {
    fn position(&self) -> usize {
        self.len()
    }

    fn put(&mut self, byte: u8) {
        self.push(byte);
    }

    fn put_low(&mut self, n: u64, len: usize) {
        // Eight bytes are one store; a copy of `len` bytes would be a call.
        let end = self.len() + len;
        self.extend_from_slice(&n.to_le_bytes());
        self.truncate(end);
    }

    #[inline]
    fn increment(&mut self, position: usize, last: u8) -> bool {
        increment(self, position, last)
    }
}

/// A buffer of at most `BYTES` bytes, including one byte in front and the slack of an eight-byte
/// store. The caller must ensure that everything fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodeBuffer<const BYTES: usize> {
    bytes: [u8; BYTES],
    /// Counts from one, so that no run begins at position zero, which means "no run".
    end: usize,
}

impl<const BYTES: usize> Default for EncodeBuffer<BYTES> {
    fn default() -> Self {
        Self {
            bytes: [0; BYTES],
            end: 1,
        }
    }
}

impl<const BYTES: usize> EncodeBuffer<BYTES> {
    /// Returns the bytes written so far.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[1..self.end]
    }

    /// Appends the first `len` of `bytes`.
    #[inline]
    pub(crate) fn put_first<const MOST: usize>(&mut self, bytes: [u8; MOST], len: usize) {
        self.bytes[self.end..self.end + MOST].copy_from_slice(&bytes);
        self.end += len;
    }
}

impl<const BYTES: usize> EncodeSink for EncodeBuffer<BYTES> {
    #[inline]
    fn position(&self) -> usize {
        self.end
    }

    #[inline]
    fn put(&mut self, byte: u8) {
        self.bytes[self.end] = byte;
        self.end += 1;
    }

    #[inline]
    fn put_low(&mut self, n: u64, len: usize) {
        self.put_first(n.to_le_bytes(), len);
    }

    #[inline]
    fn increment(&mut self, position: usize, last: u8) -> bool {
        increment(&mut self.bytes, position, last)
    }
}

/// Adds one to the byte at `position`, unless it is `last` or does not exist; returns whether it
/// did.
#[inline]
fn increment(bytes: &mut [u8], position: usize, last: u8) -> bool {
    match bytes.get_mut(position) {
        Some(byte) if *byte != last => {
            *byte += 1;
            true
        }
        _ => false,
    }
}
