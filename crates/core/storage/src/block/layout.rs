//! The layout of the file `index`: units, sections, section directory and footer.
//!
//! ```text
//! index   = units | sections | section directory | footer
//! section = kind u16 | flags u16 | crc32c u32 | offset u64 | bytes u64        (its entry)
//! footer  = "FIRNBLK\0" | version u32 | series u32 | samples u64 | block u128 (big endian)
//!         | directory offset u64 | directory bytes u32 | directory crc32c u32
//!         | crc32c u32 of the file before the footer | crc32c u32 of the footer before
//! ```
//!
//! `index.copy` has the same bytes. Blocks of version 1 have no copy, contain an unused section of
//! hashes, and have zero in place of the checksum of the file.
//!
//! Each unit is read, verified and cached as a whole; the table in a section locates the units of
//! that section. A reader loads footer, directory and sections with one read of the end of the
//! file. It rejects a block with an unknown section unless that section is marked optional.

use super::id::BlockId;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use std::ops::Range;

/// The format version that is written into new blocks and their `meta.json`.
pub(crate) const VERSION: u32 = 2;

/// The previous format version, which can still be read.
pub(crate) const VERSION_BEFORE: u32 = 1;

const MAGIC: &[u8; 8] = b"FIRNBLK\0";

/// Length of the footer in bytes.
pub(crate) const FOOTER_BYTES: usize = 64;

const SECTION_BYTES: usize = 24;

/// Maximum number of sections: the known ones plus room for later formats.
const SECTIONS_MAX: usize = 64;

/// Flag of a section that a reader may ignore if its kind is unknown.
pub(crate) const OPTIONAL: u16 = 1;

/// Name of the index file in the folder of a block.
pub(crate) const INDEX: &str = "index";

/// Name of the copy of the index file. Blocks of version 1 do not have it.
pub(crate) const INDEX_COPY: &str = "index.copy";

/// Returns the name of the data file with this number.
pub(crate) fn data_file_name(number: usize) -> String {
    format!("data-{number:03}")
}

/// The kinds of sections. 10 and 11 are reserved for optional ones: tombstones and a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum BlockSectionKind {
    /// Units of columns of label value numbers, which form the label sets of the series.
    Series = 1,
    /// Hashes of label sets. Only blocks of version 1 have it, and nothing reads it.
    Hashes = 2,
    /// Units of label values.
    Terms = 3,
    /// The table of label names.
    Labels = 4,
    /// Units of posting lists.
    Postings = 5,
    /// Units of time columns.
    Times = 6,
    /// Units of entries that locate data pages.
    Pages = 7,
    /// Units of exemplars. Omitted if the block has none.
    Exemplars = 8,
    /// Units of metric metadata (type, unit and help). Omitted if the block has none.
    Metadata = 9,
    /// The text of `meta.json` without the entries of the index and its copy. Absent in version 1.
    Meta = 12,
}

/// The sections that every block must have. A directory without one of them is rejected.
const NEEDED: [BlockSectionKind; 6] = [
    BlockSectionKind::Series,
    BlockSectionKind::Terms,
    BlockSectionKind::Labels,
    BlockSectionKind::Postings,
    BlockSectionKind::Times,
    BlockSectionKind::Pages,
];

/// An entry of the section directory, which locates a section in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionEntry {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) crc: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl BlockSectionKind {
    fn flags(self) -> u16 {
        if NEEDED.contains(&self) { 0 } else { OPTIONAL }
    }
}

impl SectionEntry {
    /// Returns the entry of a section that is stored as `bytes` at `offset`.
    pub(crate) fn new(kind: BlockSectionKind, offset: u64, bytes: &[u8]) -> Self {
        Self {
            kind: kind as u16,
            flags: kind.flags(),
            crc: crc32c::crc32c(bytes),
            offset,
            bytes: bytes.len() as u64,
        }
    }
}

/// The section directory: the entries of all sections of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SectionDirectory(Vec<SectionEntry>);

impl SectionDirectory {
    /// Appends an entry; the section must already be in the file.
    pub(crate) fn push(&mut self, entry: SectionEntry) {
        self.0.push(entry);
    }

    /// Encodes the directory as a list of fixed-size entries in little-endian order.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() * SECTION_BYTES);
        for entry in &self.0 {
            out.extend_from_slice(&entry.kind.to_le_bytes());
            out.extend_from_slice(&entry.flags.to_le_bytes());
            out.extend_from_slice(&entry.crc.to_le_bytes());
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.bytes.to_le_bytes());
        }
        out
    }

    /// Decodes a directory that begins at the offset `end`. Rejects sections that reach beyond
    /// `end`, unknown sections that are not optional, and a directory that lacks a required
    /// section.
    pub(crate) fn decode(bytes: &[u8], end: u64) -> Result<Self, DecodeError> {
        if !bytes.len().is_multiple_of(SECTION_BYTES) {
            return Err(DecodeError("section directory with an incomplete entry"));
        }
        if bytes.len() / SECTION_BYTES > SECTIONS_MAX {
            return Err(DecodeError("too many sections"));
        }
        let mut cursor = DecodeCursor::new(bytes);
        let mut sections = Self::default();
        while !cursor.is_empty() {
            let entry = SectionEntry {
                kind: cursor.read_number(2)? as u16,
                flags: cursor.read_number(2)? as u16,
                crc: cursor.read_number(4)? as u32,
                offset: cursor.read_u64()?,
                bytes: cursor.read_u64()?,
            };
            let behind = entry.offset.checked_add(entry.bytes);
            if behind.is_none_or(|behind| behind > end) {
                return Err(DecodeError("section outside of the file"));
            }
            let mut known = NEEDED.iter().chain([&BlockSectionKind::Hashes]);
            let is_known = known.any(|known| *known as u16 == entry.kind);
            if !is_known && entry.flags & OPTIONAL == 0 {
                return Err(DecodeError("unknown section that is not optional"));
            }
            sections.push(entry);
        }
        for kind in NEEDED {
            if sections.find(kind).is_none() {
                return Err(DecodeError("block without a section that it needs"));
            }
        }
        Ok(sections)
    }

    /// Returns the entry of the section of this kind, or `None` if the block does not have it.
    pub(crate) fn find(&self, kind: BlockSectionKind) -> Option<SectionEntry> {
        self.0
            .iter()
            .find(|entry| entry.kind == kind as u16)
            .copied()
    }
}

/// The footer: the last bytes of the index, which identify the block and locate the section
/// directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) version: u32,
    pub(crate) id: BlockId,
    pub(crate) series: u32,
    pub(crate) samples: u64,
    pub(crate) directory_offset: u64,
    pub(crate) directory_bytes: u32,
    pub(crate) directory_crc: u32,
    /// CRC-32C of all bytes before the footer; zero in version 1.
    pub(crate) body_crc: u32,
}

/// The reason why a footer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FooterError {
    /// The bytes are corrupted or are not a footer.
    Malformed(DecodeError),
    /// The footer is intact, but its format version is not supported.
    Version(u32),
}

impl From<DecodeError> for FooterError {
    fn from(e: DecodeError) -> Self {
        Self::Malformed(e)
    }
}

impl Footer {
    /// Encodes the footer, with its own checksum at the end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.series.to_le_bytes());
        out.extend_from_slice(&self.samples.to_le_bytes());
        out.extend_from_slice(&self.id.to_bytes());
        out.extend_from_slice(&self.directory_offset.to_le_bytes());
        out.extend_from_slice(&self.directory_bytes.to_le_bytes());
        out.extend_from_slice(&self.directory_crc.to_le_bytes());
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Returns the checksum of the whole index file that ends with this footer, or `None` in
    /// version 1.
    pub(crate) fn file_crc(&self) -> Option<u32> {
        let crc = crc32c::crc32c_append(self.body_crc, &self.encode());
        (self.version != VERSION_BEFORE).then_some(crc)
    }

    /// Decodes the last bytes of an index file that is `file_bytes` bytes long.
    pub(crate) fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, FooterError> {
        let mut cursor = DecodeCursor::new(bytes);
        if bytes.len() != FOOTER_BYTES || cursor.read_bytes(MAGIC.len())? != MAGIC {
            return Err(DecodeError("no footer of a block").into());
        }
        let summed = &bytes[..FOOTER_BYTES - 4];
        if bytes[FOOTER_BYTES - 4..] != crc32c::crc32c(summed).to_le_bytes() {
            return Err(DecodeError("footer fails its checksum").into());
        }
        let version = cursor.read_number(4)? as u32;
        if ![VERSION, VERSION_BEFORE].contains(&version) {
            return Err(FooterError::Version(version));
        }
        let series = cursor.read_number(4)? as u32;
        let samples = cursor.read_u64()?;
        let id = cursor.read_bytes(16)?.first_chunk().copied();
        let footer = Self {
            version,
            id: BlockId::from_bytes(id.unwrap_or_default()),
            series,
            samples,
            directory_offset: cursor.read_u64()?,
            directory_bytes: cursor.read_number(4)? as u32,
            directory_crc: cursor.read_number(4)? as u32,
            body_crc: cursor.read_number(4)? as u32,
        };
        let end = footer.directory().end;
        if end != file_bytes.saturating_sub(FOOTER_BYTES as u64) {
            return Err(DecodeError("section directory elsewhere than before the footer").into());
        }
        Ok(footer)
    }

    /// Returns the byte range of the section directory.
    pub(crate) fn directory(&self) -> Range<u64> {
        let end = self
            .directory_offset
            .saturating_add(self.directory_bytes.into());
        self.directory_offset..end
    }
}
