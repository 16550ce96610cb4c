//! The end of an index: sections, directory and footer, each read from the first intact copy.
//!
//! A single read fetches the end of the index. A part that fails its checksum is read from the copy
//! of the index. If `meta.json` is unreadable, its content is read from the index.

use super::cache::BlockCache;
use super::found_meta::reconstruct_meta;
use super::id::BlockId;
use super::index::BlockIndex;
use super::layout::{
    BlockSectionKind, FOOTER_BYTES, Footer, FooterError, INDEX, INDEX_COPY, SectionDirectory,
    VERSION, VERSION_BEFORE,
};
use super::meta::{BlockMeta, FileMeta};
use super::unit::UnitTable;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::error::StorageError;
use std::path::Path;

/// Number of bytes fetched from the end of an index, enough for the sections of a block of about a
/// million series.
const TAIL_BYTES: u64 = 64 << 10;

const OTHER_BLOCK: &str = "index of another block than meta.json is of";

/// The identity that a footer must match, so that the index of another block is not accepted.
pub(super) enum BlockIdentity<'a> {
    Meta(&'a BlockMeta),
    /// The id in the name of the folder, or `None` if the name is not a block id.
    Name(Option<BlockId>),
}

impl BlockIdentity<'_> {
    fn matches_footer(&self, footer: &Footer) -> bool {
        match self {
            Self::Meta(meta) => {
                let said = (meta.format, meta.id, meta.series, meta.samples);
                said == (footer.version, footer.id, footer.series, footer.samples)
            }
            Self::Name(name) => name.is_none_or(|name| name == footer.id),
        }
    }
}

/// The verified footer and directory of an index, with the bytes that were read around them.
pub(super) struct IndexTail<'a> {
    index: &'a BlockIndex,
    cache: &'a BlockCache,
    /// Offset of `bytes` in the file.
    start: u64,
    /// The end of the first file; empty if it could not be read.
    bytes: Vec<u8>,
    footer: Footer,
    sections: SectionDirectory,
}

impl<'a> IndexTail<'a> {
    pub(super) fn read(
        index: &'a BlockIndex,
        known: &BlockIdentity<'_>,
        cache: &'a BlockCache,
    ) -> Result<Self, StorageError> {
        let start = index.len().saturating_sub(TAIL_BYTES);
        let bytes = (index.len() - start) as usize;
        let bytes = index.first().read(start, bytes, &cache.read_bytes);
        let bytes = bytes.unwrap_or_default();
        let at = index.len().saturating_sub(FOOTER_BYTES as u64);
        let open = |bytes: Vec<u8>| open_footer(index, known, &bytes, at);
        let len = FOOTER_BYTES.min(index.len() as usize);
        let of_first = read_range(index, start, &bytes, at, len, cache).and_then(open);
        let footer = index.or_read_copy(of_first, at, len, open, cache)?;
        let mut tail = Self {
            index,
            cache,
            start,
            bytes,
            footer,
            sections: SectionDirectory::default(),
        };
        let directory = footer.directory();
        let len = footer.directory_bytes as usize;
        tail.sections = tail.read_checked(directory.start, len, |bytes| {
            if crc32c::crc32c(bytes) != footer.directory_crc {
                let what = "section directory fails its checksum";
                return Err(index.damage_error(directory.start, what));
            }
            let sections = SectionDirectory::decode(bytes, directory.start);
            sections.map_err(index.malformed_error(directory.start))
        })?;
        Ok(tail)
    }

    /// Returns the result of `check` for a byte range of the index, taken from memory if it was
    /// already fetched.
    fn read_checked<T>(
        &self,
        offset: u64,
        len: usize,
        check: impl Fn(&[u8]) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let check = |bytes: Vec<u8>| check(&bytes);
        let (index, cache) = (self.index, self.cache);
        let read = read_range(index, self.start, &self.bytes, offset, len, cache);
        index.or_read_copy(read.and_then(check), offset, len, check, cache)
    }

    /// Decodes a section, or returns `None` if the block does not have it.
    pub(super) fn decode_optional<T>(
        &self,
        kind: BlockSectionKind,
        decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, StorageError> {
        match self.sections.find(kind) {
            Some(_) => self.decode(kind, decode).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn decode<T>(
        &self,
        kind: BlockSectionKind,
        decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, StorageError> {
        self.read_section(kind, |offset, bytes| {
            decode(bytes).map_err(self.index.malformed_error(offset))
        })
    }

    /// Decodes a section that consists of a table of units.
    pub(super) fn decode_table(&self, kind: BlockSectionKind) -> Result<UnitTable, StorageError> {
        self.decode(kind, |bytes| {
            let mut cursor = DecodeCursor::new(bytes);
            let table = UnitTable::decode(&mut cursor, self.index.len())?;
            if cursor.is_empty() {
                Ok(table)
            } else {
                Err(DecodeError("bytes after a table of units"))
            }
        })
    }

    /// Verifies the checksum of a section and calls `open` with its offset and its bytes.
    fn read_section<T>(
        &self,
        kind: BlockSectionKind,
        open: impl Fn(u64, &[u8]) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let lacks = || {
            self.index
                .damage_error(self.index.len(), "section is missing")
        };
        let entry = self.sections.find(kind).ok_or_else(lacks)?;
        let bytes = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
        self.read_checked(entry.offset, bytes, |bytes| {
            if crc32c::crc32c(bytes) == entry.crc {
                open(entry.offset, bytes)
            } else {
                Err(self
                    .index
                    .damage_error(entry.offset, "section fails its checksum"))
            }
        })
    }

    /// Returns the content of `meta.json` in the folder `dir`, as stored in the index or, for
    /// version 1, reconstructed.
    pub(super) fn read_meta(&self, dir: &Path) -> Result<BlockMeta, StorageError> {
        if self.footer.version == VERSION_BEFORE {
            let pages = self.decode_table(BlockSectionKind::Pages)?;
            return reconstruct_meta(self.index, &self.footer, &pages, dir, self.cache);
        }
        let path = self.index.first().path();
        let mut meta = self.read_section(BlockSectionKind::Meta, |_, bytes| {
            BlockMeta::decode(bytes, path)
        })?;
        let file = |name: &str| FileMeta {
            name: name.to_owned(),
            bytes: self.index.len(),
            crc: self.footer.file_crc().unwrap_or(0),
        };
        meta.files.splice(0..0, [file(INDEX), file(INDEX_COPY)]);
        if BlockIdentity::Meta(&meta).matches_footer(&self.footer) && meta.is_valid_block() {
            Ok(meta)
        } else {
            Err(self.index.damage_error(0, OTHER_BLOCK))
        }
    }
}

/// Returns the byte range at `offset` in the first file, taken from `read`, which begins at offset
/// `start`, if that contains it.
fn read_range(
    index: &BlockIndex,
    start: u64,
    read: &[u8],
    offset: u64,
    bytes: usize,
    cache: &BlockCache,
) -> Result<Vec<u8>, StorageError> {
    let at = offset.checked_sub(start).map(|at| at as usize);
    let known = at.and_then(|at| read.get(at..)?.get(..bytes));
    match known {
        Some(known) => Ok(known.to_vec()),
        None => index.first().read(offset, bytes, &cache.read_bytes),
    }
}

fn open_footer(
    index: &BlockIndex,
    known: &BlockIdentity<'_>,
    bytes: &[u8],
    at: u64,
) -> Result<Footer, StorageError> {
    let footer = Footer::decode(bytes, index.len()).map_err(|e| match e {
        FooterError::Malformed(e) => index.malformed_error(at)(e),
        FooterError::Version(found) => StorageError::Format {
            path: index.first().path().to_path_buf(),
            found: found.to_string(),
            known: VERSION,
        },
    })?;
    if known.matches_footer(&footer) {
        Ok(footer)
    } else {
        Err(index.damage_error(at, OTHER_BLOCK))
    }
}
