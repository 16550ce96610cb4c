//! Random access to files that the caller provides: a length and reads at any offset.
//!
//! All readers use a [`FileReadWindow`], which buffers one piece of a file, so that a sequential
//! walk needs one read of the caller for each 64 KiB. No buffer is larger than the rest of the
//! file.

use super::error::TsdbError;
use firn_model::error::Error;

/// Smallest size of a read in bytes, unless fewer bytes remain.
const STEP_BYTES: usize = 64 << 10;

/// A file of which any part can be read, implemented by the caller. Reads may be in any order, but
/// are mostly sequential.
pub trait ReadRanges {
    /// Returns the length of the file in bytes, which must not change while it is read.
    fn len(&self) -> u64;

    /// Fills `into` from `offset` on; `offset + into.len()` is at most [`ReadRanges::len`]. An
    /// error is reported with the name of the file.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error>;

    /// Returns whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ReadRanges for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = start
            .checked_add(into.len())
            .and_then(|end| self.get(start..end));
        match found {
            Some(found) => {
                into.copy_from_slice(found);
                Ok(())
            }
            None => Err(Error::unavailable("read past the end")),
        }
    }
}

impl ReadRanges for Vec<u8> {
    fn len(&self) -> u64 {
        ReadRanges::len(self.as_slice())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        ReadRanges::read(self.as_slice(), offset, into)
    }
}

impl<R: ReadRanges + ?Sized> ReadRanges for &R {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        (**self).read(offset, into)
    }
}

/// A file with its name in errors. All errors about its content contain the name.
#[derive(Clone, Debug)]
pub struct NamedRangeFile<R> {
    name: String,
    ranges: R,
}

impl<R: ReadRanges> NamedRangeFile<R> {
    /// Wraps `ranges` as a file that errors call `name`.
    pub fn new(name: impl Into<String>, ranges: R) -> Self {
        Self {
            name: name.into(),
            ranges,
        }
    }

    /// Returns the name of the file in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.ranges.len()
    }

    /// Returns whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the error for invalid bytes of this file. The caller describes the damage in `what`.
    pub(super) fn damage_error(&self, offset: u64, what: impl ToString) -> TsdbError {
        TsdbError::Damaged {
            file: self.name.clone(),
            offset,
            what: what.to_string(),
        }
    }

    /// Returns the error for an unsupported feature in this file. It is not damaged, but needs a
    /// newer version.
    pub(super) fn unsupported_error(&self, what: String) -> TsdbError {
        TsdbError::Unsupported {
            file: self.name.clone(),
            what,
        }
    }

    /// Reads `len` bytes from `offset` on into a new buffer. Fails if the file is shorter.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, TsdbError> {
        let mut bytes = Vec::new();
        self.read_into(offset, len, &mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&self, offset: u64, len: u64, into: &mut Vec<u8>) -> Result<(), TsdbError> {
        let left = self.len().saturating_sub(offset);
        let count = match usize::try_from(len) {
            Ok(count) if len <= left => count,
            _ => {
                let what = format!("read of {len} bytes, but only {left} remain");
                return Err(self.damage_error(offset, what));
            }
        };
        into.clear();
        into.resize(count, 0);
        let read = self.ranges.read(offset, into);
        read.map_err(|error| TsdbError::Io {
            file: self.name.clone(),
            error,
        })
    }
}

/// A buffer with the most recently read piece of a file, which serves sequential reads.
#[derive(Clone, Debug, Default)]
pub(super) struct FileReadWindow {
    start: u64,
    bytes: Vec<u8>,
}

impl FileReadWindow {
    /// Returns the `len` bytes of `file` from `offset` on. A window must be used with one file
    /// only, until [`FileReadWindow::clear`] resets it.
    pub fn get<R: ReadRanges>(
        &mut self,
        file: &NamedRangeFile<R>,
        offset: u64,
        len: u64,
    ) -> Result<&[u8], TsdbError> {
        if self.place(offset, len).is_none() {
            let left = file.len().saturating_sub(offset);
            let wanted = len.max(STEP_BYTES as u64).min(left).max(len);
            let read = file.read_into(offset, wanted, &mut self.bytes);
            self.start = offset;
            if read.is_err() {
                self.bytes.clear();
            }
            read?;
        }
        let place = self.place(offset, len);
        Ok(place.and_then(|p| self.bytes.get(p)).unwrap_or_default())
    }

    /// Like [`FileReadWindow::get`], but returns fewer than `len` bytes at the end of the file.
    pub fn get_up_to<R: ReadRanges>(
        &mut self,
        file: &NamedRangeFile<R>,
        offset: u64,
        len: u64,
    ) -> Result<&[u8], TsdbError> {
        let left = file.len().saturating_sub(offset);
        self.get(file, offset, len.min(left))
    }

    /// Drops the buffered bytes. The window can be used with another file then.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    fn place(&self, offset: u64, len: u64) -> Option<std::ops::Range<usize>> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(usize::try_from(len).ok()?)?;
        (to <= self.bytes.len()).then_some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_gives_what_lies_at_any_offset() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let file = NamedRangeFile::new("f", bytes.clone());
        let mut window = FileReadWindow::default();
        for (offset, len) in [
            (0, 3),
            (1, 70_000),
            (5, 5),
            (199_999, 1),
            (200_000, 0),
            (9, 9),
        ] {
            let wanted = &bytes[offset..offset + len];
            let found = window.get(&file, offset as u64, len as u64);
            assert_eq!(found, Ok(wanted), "{offset} {len}");
        }
        assert_eq!(window.get_up_to(&file, 199_990, 100), Ok(&bytes[199_990..]));
    }

    #[test]
    fn window_beyond_the_end_is_an_error_without_the_memory() {
        let file = NamedRangeFile::new("f", vec![0; 10]);
        let mut window = FileReadWindow::default();
        for (offset, len) in [(0, 11), (11, 1), (0, u64::MAX), (u64::MAX, 1)] {
            let text = window.get(&file, offset, len).unwrap_err().to_string();
            assert!(text.contains(&format!("at byte {offset}")), "{text}");
        }
        assert!(window.bytes.capacity() <= STEP_BYTES);
    }
}
