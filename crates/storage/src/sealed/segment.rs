//! One segment: a file of pages that can be read, and how its directory is written and read.
//!
//! ```text
//! header | page block* | directory block | trailer        directory = pages varint | page*
//! page   = meta | offset varint | bytes varint            trailer   = offset u64 | its sum u32
//! ```
//!
//! A segment without a sound directory was not finished: its blocks are walked instead.

use super::directory::PageEntry;
use super::meta::PageMeta;
use super::range_reader::{FileRanges, RangeReader};
use crate::block_file::{self, BlockFile, FileKind};
use crate::codec::cursor::Cursor;
use crate::codec::{Malformed, push_uvarint};
use crate::error::StorageError;
use crate::log::block::BlockKind;
use crate::log::file_header::{FILE_HEADER_BYTES, HeaderState, PAGES_MAGIC};
use crate::log::scan::{Found, Scanner};
use firn_model::env::{Env, File, OpenMode};
use firn_model::log::Position;
use std::path::Path;
use std::sync::Arc;

/// The files of pages.
pub(crate) const PAGES: FileKind = FileKind {
    magic: PAGES_MAGIC,
    suffix: ".pages",
    block: BlockKind::Page,
};

/// Offset of the directory (u64) and its checksum (u32).
const TRAILER_BYTES: u64 = 12;

/// A segment that can be read.
pub(crate) struct Segment {
    /// The number of its first page, which names it.
    pub(crate) number: Position,
    ranges: Box<dyn RangeReader>,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({})", self.number.0)
    }
}

impl Segment {
    /// The segment in `file`, which lies at `path`.
    pub(crate) fn new(number: Position, file: &Arc<dyn File>, path: &Path) -> Self {
        Self {
            number,
            ranges: Box::new(FileRanges::new(file.clone(), path.to_path_buf())),
        }
    }

    /// Its bytes.
    pub(crate) fn ranges(&self) -> &dyn RangeReader {
        &*self.ranges
    }
}

/// A page and where it lies.
pub(crate) type Placed = (PageMeta, Arc<PageEntry>);

/// Appends the directory of `pages` and the trailer to `file`, which is complete then.
pub(crate) fn write_directory(file: &mut BlockFile, pages: &[Placed]) -> Result<(), StorageError> {
    let mut payload = Vec::new();
    push_uvarint(&mut payload, pages.len() as u64);
    for (meta, entry) in pages {
        meta.encode(&mut payload);
        push_uvarint(&mut payload, entry.offset);
        push_uvarint(&mut payload, u64::from(entry.bytes));
    }
    let offset = file.bytes();
    file.append_kind(BlockKind::Directory, &payload)?;
    let mut trailer = offset.to_le_bytes().to_vec();
    trailer.extend_from_slice(&crc32c::crc32c(&offset.to_le_bytes()).to_le_bytes());
    file.append_raw(&trailer)?;
    file.sync()
}

/// What stands in a segment that was left behind.
pub(crate) struct Loaded {
    pub(crate) pages: Vec<Placed>,
    /// The number after its last block.
    pub(crate) next: Position,
    /// What could not be read.
    pub(crate) damages: Vec<StorageError>,
}

/// Reads what the segment with `number` holds. One that was not finished is finished; `None` if it
/// was not even begun, and was removed.
pub(crate) fn load(
    env: &Env,
    dir: &Path,
    number: Position,
) -> Result<Option<Loaded>, StorageError> {
    let path = PAGES.path(dir, number);
    let file = env
        .disk
        .open(&path, OpenMode::Read)
        .map_err(StorageError::io("open segment", &path))?;
    let bytes = file
        .len()
        .map_err(StorageError::io("read segment", &path))?;
    // Only to refuse a newer version: the name says all that the header does.
    let header = block_file::check_header(&*file, PAGES, number, &path)?;
    if header == HeaderState::Sound
        && let Some(loaded) = read_directory(&file, number, &path, bytes)
    {
        return Ok(Some(loaded));
    }
    let Some(mut file) = BlockFile::recover(env, path, PAGES, number)? else {
        return Ok(None);
    };
    let mut loaded = walk(&file);
    write_directory(&mut file, &loaded.pages)?;
    loaded.next = file.last().next();
    Ok(Some(loaded))
}

/// Walks the blocks of a file without a directory.
fn walk(file: &BlockFile) -> Loaded {
    let segment = Arc::new(Segment::new(file.first(), file.file(), file.path()));
    let mut loaded = Loaded {
        pages: Vec::new(),
        next: file.last().next(),
        damages: Vec::new(),
    };
    let damaged = |offset, what: String| StorageError::Damaged {
        path: file.path().to_path_buf(),
        offset,
        what,
    };
    let range = FILE_HEADER_BYTES..file.bytes();
    let mut scanner = Scanner::new(file.file().clone(), file.first(), range);
    while let Some(found) = scanner.next() {
        match found {
            Found::Block { offset, header } if header.kind == BlockKind::Page => {
                let payload = scanner.payload(offset, &header);
                match placed(&segment, offset + header.block_bytes(), payload) {
                    Ok(page) => loaded.pages.push(page),
                    Err(e) => loaded.damages.push(damaged(offset, e.to_string())),
                }
            }
            Found::Block { .. } => {}
            Found::Damage(range) => {
                let what = format!("{} bytes are no block", range.end - range.start);
                loaded.damages.push(damaged(range.start, what));
            }
        }
    }
    loaded
}

/// The page in `payload`, which ends at offset `end` of its file.
fn placed(segment: &Arc<Segment>, end: u64, payload: &[u8]) -> Result<Placed, Malformed> {
    let mut cursor = Cursor::new(payload);
    let meta = PageMeta::decode(&mut cursor)?;
    let bytes = cursor.len() as u32;
    let offset = end - u64::from(bytes);
    let entry = PageEntry::new(&meta, segment.clone(), offset, bytes);
    Ok((meta, Arc::new(entry)))
}

/// The pages by the directory at the end of the file; `None` unless it is sound.
fn read_directory(
    file: &Arc<dyn File>,
    number: Position,
    path: &Path,
    bytes: u64,
) -> Option<Loaded> {
    let end = bytes.checked_sub(TRAILER_BYTES)?;
    let mut trailer = [0; TRAILER_BYTES as usize];
    if file.read_at(end, &mut trailer).ok()? != trailer.len() {
        return None;
    }
    let (offset, crc) = trailer.split_at(8);
    if crc32c::crc32c(offset).to_le_bytes() != crc {
        return None;
    }
    let start = u64::from_le_bytes(offset.try_into().ok()?);
    if start < FILE_HEADER_BYTES || start >= end {
        return None;
    }
    let mut scanner = Scanner::new(file.clone(), number, start..end);
    let Some(Found::Block { offset, header }) = scanner.next() else {
        return None;
    };
    if header.kind != BlockKind::Directory || offset + header.block_bytes() != end {
        return None;
    }
    let segment = Arc::new(Segment::new(number, file, path));
    let pages = parse_directory(scanner.payload(offset, &header), &segment, start).ok()?;
    Some(Loaded {
        pages,
        next: header.position.next(),
        damages: Vec::new(),
    })
}

fn parse_directory(
    payload: &[u8],
    segment: &Arc<Segment>,
    end: u64,
) -> Result<Vec<Placed>, Malformed> {
    let mut cursor = Cursor::new(payload);
    let count = cursor.count(10)?;
    let mut pages = Vec::with_capacity(count);
    for _ in 0..count {
        let meta = PageMeta::decode(&mut cursor)?;
        let offset = cursor.uvarint()?;
        let bytes = cursor.uvarint()?;
        // So that whoever reads the page may allocate its length.
        if offset
            .checked_add(bytes)
            .is_none_or(|page_end| page_end > end)
        {
            return Err(Malformed("page behind the end of its segment"));
        }
        let bytes = u32::try_from(bytes).map_err(|_| Malformed("page too large"))?;
        let entry = PageEntry::new(&meta, segment.clone(), offset, bytes);
        pages.push((meta, Arc::new(entry)));
    }
    Ok(pages)
}
