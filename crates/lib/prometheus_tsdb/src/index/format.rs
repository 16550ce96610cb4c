//! Header and table of contents of an index file (`tsdb/index/index.go`).
//!
//! ```text
//! magic u32 = 0xBAAAD700 | version u8 | symbols | series | label indexes | postings
//! | label offset table | postings offset table | table of contents: six u64 offsets | CRC-32C
//! ```

use crate::bytes::{CHECKSUM_BYTES, TsdbByteCursor, push_checksum, verify_checksum};
use crate::error::{MalformedTsdbBytes, TsdbError};
use crate::ranges::{NamedRangeFile, ReadRanges};

/// The first bytes of an index.
pub(super) const MAGIC: u32 = 0xBAAA_D700;

/// Size of magic and version in bytes.
pub(super) const HEADER_BYTES: u64 = 5;

/// Alignment of series in bytes, from version 2 on.
pub(super) const SERIES_ALIGN: u64 = 16;

const CONTENTS_BYTES: u64 = 6 * 8 + CHECKSUM_BYTES;

/// Version of an index, which determines how symbols and series are referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexVersion {
    /// Both are referred to by their offsets.
    V1,
    /// Symbols are referred to by their index in the table, series by a sixteenth of their offsets.
    V2,
    /// Like version 2; Prometheus reads it but writes version 2.
    V3,
}

/// The table of contents: offsets of the sections, or 0 for a missing one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexTableOfContents {
    pub symbols: u64,
    pub series: u64,
    pub label_indexes: u64,
    pub label_offset_table: u64,
    pub postings: u64,
    pub postings_offset_table: u64,
}

impl IndexTableOfContents {
    /// Reads header and table of contents; fails if magic, version or checksum is wrong.
    pub fn read<R: ReadRanges>(
        file: &NamedRangeFile<R>,
    ) -> Result<(IndexVersion, Self), TsdbError> {
        let header = file.read(0, HEADER_BYTES)?;
        let mut cursor = TsdbByteCursor::new(&header);
        let damaged = |error: MalformedTsdbBytes| file.damage_error(0, error);
        if cursor.read_be32().map_err(damaged)? != MAGIC {
            return Err(file.damage_error(0, "not an index file"));
        }
        let version = match cursor.read_byte().map_err(damaged)? {
            1 => IndexVersion::V1,
            2 => IndexVersion::V2,
            3 => IndexVersion::V3,
            version => {
                let what = format!("unknown index file version {version}");
                return Err(file.unsupported_error(what));
            }
        };
        let start = file.len().saturating_sub(CONTENTS_BYTES);
        let bytes = file.read(start, CONTENTS_BYTES)?;
        let contents = verify_checksum(&bytes).and_then(Self::decode);
        let contents = contents.map_err(|error| file.damage_error(start, error))?;
        Ok((version, contents))
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedTsdbBytes> {
        let mut cursor = TsdbByteCursor::new(bytes);
        Ok(Self {
            symbols: cursor.read_be64()?,
            series: cursor.read_be64()?,
            label_indexes: cursor.read_be64()?,
            label_offset_table: cursor.read_be64()?,
            postings: cursor.read_be64()?,
            postings_offset_table: cursor.read_be64()?,
        })
    }

    /// Encodes the table of contents with its checksum.
    pub fn write(&self) -> Vec<u8> {
        let offsets = [
            self.symbols,
            self.series,
            self.label_indexes,
            self.label_offset_table,
            self.postings,
            self.postings_offset_table,
        ];
        let mut out = offsets.map(u64::to_be_bytes).concat();
        push_checksum(&mut out, 0);
        out
    }

    /// Returns the end of the series section: the start of the next section, or of this table.
    pub fn series_end(&self, file_len: u64) -> u64 {
        let sections = [
            self.symbols,
            self.label_indexes,
            self.label_offset_table,
            self.postings,
            self.postings_offset_table,
        ];
        let behind = sections.into_iter().filter(|start| *start >= self.series);
        let end = file_len.saturating_sub(CONTENTS_BYTES);
        behind.filter(|start| *start > 0).fold(end, u64::min)
    }
}
