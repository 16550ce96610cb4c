//! The symbol table of an index: names and values of labels, without duplicates.
//!
//! ```text
//! bytes u32 | symbols u32 | { length uvarint | symbol }* | CRC-32C
//! ```

use super::format::IndexVersion;
use crate::bytes::{CHECKSUM_BYTES, TsdbByteCursor, verify_checksum};
use crate::error::{MalformedTsdbBytes, TsdbError};
use crate::ranges::{NamedRangeFile, ReadRanges};

/// Size of the length before the table in bytes.
const LENGTH_BYTES: u64 = 4;

/// The symbol table in memory: its bytes, and four more for the offset of each symbol.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexSymbols {
    /// The bytes of the table, from the number of symbols on.
    bytes: Vec<u8>,
    /// Offset of each symbol's length; empty in version 1, where references are offsets.
    starts: Vec<u32>,
    /// Offset in the file at which `bytes` begins.
    base: u64,
    version: Option<IndexVersion>,
}

impl IndexSymbols {
    /// Reads the table at `offset`; offset 0 means that there is none. Fails if the table is
    /// damaged.
    pub fn read<R: ReadRanges>(
        file: &NamedRangeFile<R>,
        version: IndexVersion,
        offset: u64,
    ) -> Result<Self, TsdbError> {
        if offset == 0 {
            return Ok(Self::default());
        }
        let damaged = |error: MalformedTsdbBytes| file.damage_error(offset, error);
        let length = file.read(offset, LENGTH_BYTES)?;
        let length = TsdbByteCursor::new(&length).read_be32().map_err(damaged)?;
        let base = offset + LENGTH_BYTES;
        let mut bytes = file.read(base, u64::from(length) + CHECKSUM_BYTES)?;
        let table = verify_checksum(&bytes).map_err(damaged)?.len();
        bytes.truncate(table);
        let starts = starts(&bytes).map_err(damaged)?;
        Ok(Self {
            bytes,
            starts: match version {
                IndexVersion::V1 => Vec::new(),
                IndexVersion::V2 | IndexVersion::V3 => starts,
            },
            base,
            version: Some(version),
        })
    }

    /// Returns the symbol with this reference; fails if the table does not contain it.
    pub fn get(&self, reference: u64) -> Result<&[u8], MalformedTsdbBytes> {
        let unknown = MalformedTsdbBytes::Invalid("a label's symbol is not in the table");
        let start = match self.version {
            Some(IndexVersion::V1) => {
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
        TsdbByteCursor::new(rest.ok_or(unknown)?).read_prefixed()
    }

    /// Returns the memory of the table in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.starts.capacity() * size_of::<u32>()
    }
}

fn starts(bytes: &[u8]) -> Result<Vec<u32>, MalformedTsdbBytes> {
    let mut cursor = TsdbByteCursor::new(bytes);
    let count = cursor.read_be32()?;
    // A symbol takes at least one byte.
    let count = usize::try_from(count).map_err(|_| MalformedTsdbBytes::CutShort)?;
    if count > cursor.rest().len() {
        return Err(MalformedTsdbBytes::CutShort);
    }
    let mut starts = Vec::with_capacity(count);
    for _ in 0..count {
        // Fits: the length of the table has four bytes.
        starts.push((bytes.len() - cursor.rest().len()) as u32);
        cursor.read_prefixed()?;
    }
    Ok(starts)
}
