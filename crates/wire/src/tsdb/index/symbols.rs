//! The symbol table of an index: names and values of labels, without duplicates.
//!
//! ```text
//! bytes u32 | symbols u32 | { length uvarint | symbol }* | CRC-32C
//! ```

use super::format::Version;
use crate::tsdb::bytes::{CHECKSUM_BYTES, Cursor, checked};
use crate::tsdb::error::{Malformed, TsdbError};
use crate::tsdb::ranges::{File, Ranges};

/// Size of the length before the table in bytes.
const LENGTH_BYTES: u64 = 4;

/// The symbol table in memory: its bytes, and four more for the offset of each symbol.
#[derive(Clone, Debug, Default)]
pub(super) struct Symbols {
    /// The bytes of the table, from the number of symbols on.
    bytes: Vec<u8>,
    /// Offset of each symbol's length; empty in version 1, where references are offsets.
    starts: Vec<u32>,
    /// Offset in the file at which `bytes` begins.
    base: u64,
    version: Option<Version>,
}

impl Symbols {
    /// Reads the table at `offset`; offset 0 means that there is none. Fails if the table is
    /// damaged.
    pub fn read<R: Ranges>(
        file: &File<R>,
        version: Version,
        offset: u64,
    ) -> Result<Self, TsdbError> {
        if offset == 0 {
            return Ok(Self::default());
        }
        let damaged = |error: Malformed| file.damaged(offset, error);
        let length = file.read(offset, LENGTH_BYTES)?;
        let length = Cursor::new(&length).be32().map_err(damaged)?;
        let base = offset + LENGTH_BYTES;
        let mut bytes = file.read(base, u64::from(length) + CHECKSUM_BYTES)?;
        let table = checked(&bytes).map_err(damaged)?.len();
        bytes.truncate(table);
        let starts = starts(&bytes).map_err(damaged)?;
        Ok(Self {
            bytes,
            starts: match version {
                Version::V1 => Vec::new(),
                Version::V2 | Version::V3 => starts,
            },
            base,
            version: Some(version),
        })
    }

    /// Returns the symbol with this reference; fails if the table does not contain it.
    pub fn get(&self, reference: u64) -> Result<&[u8], Malformed> {
        let unknown = Malformed::Invalid("a label's symbol is not in the table");
        let start = match self.version {
            Some(Version::V1) => {
                let start = reference.checked_sub(self.base);
                start.and_then(|start| usize::try_from(start).ok())
            }
            _ => {
                let place = usize::try_from(reference).ok();
                let start = place.and_then(|place| self.starts.get(place));
                start.map(|start| *start as usize)
            }
        };
        let rest = start.and_then(|start| self.bytes.get(start..));
        Cursor::new(rest.ok_or(unknown)?).prefixed()
    }

    /// Returns the memory of the table in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.starts.capacity() * size_of::<u32>()
    }
}

fn starts(bytes: &[u8]) -> Result<Vec<u32>, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let count = cursor.be32()?;
    // A symbol takes at least one byte.
    let count = usize::try_from(count).map_err(|_| Malformed::CutShort)?;
    if count > cursor.rest().len() {
        return Err(Malformed::CutShort);
    }
    let mut starts = Vec::with_capacity(count);
    for _ in 0..count {
        // Fits: the length of the table has four bytes.
        starts.push((bytes.len() - cursor.rest().len()) as u32);
        cursor.prefixed()?;
    }
    Ok(starts)
}
