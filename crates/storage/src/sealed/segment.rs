//! A segment: a readable file of pages, and the encoding of its page directory.
//!
//! ```text
//! header | page frame* | directory frame | trailer        directory = pages varint | page*
//! page   = meta | offset varint | bytes varint            trailer   = offset u64 | its crc32c u32
//! ```
//!
//! A segment without a valid directory was not completed; its frames are scanned instead.

use super::directory::PageEntry;
use super::file_pool::FilePool;
use super::meta::PageMeta;
use super::range_reader::{FileRanges, RangeReader};
use crate::damage::{Damage, DamageKind};
use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, push_uvarint};
use crate::error::{StorageError, is_disk_fault};
use crate::file::append_only::{self, AppendOnlyFile, FileKind};
use crate::file::frame::FrameKind;
use crate::file::header::{FILE_HEADER_BYTES, HeaderState, PAGES_MAGIC};
use crate::file::scan::{Found, Scanner};
use crate::file::survey::write_again;
use crate::manifest::{SegmentEntry, SegmentState};
use crate::page;
use firn_model::env::{Env, File, OpenMode};
use firn_model::log::Position;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

/// The file kind of page segments.
pub(crate) const PAGES: FileKind = FileKind {
    magic: PAGES_MAGIC,
    suffix: ".pages",
    frame: FrameKind::Page,
};

/// Length of the trailer: offset of the directory (u64) and the checksum of that offset (u32).
pub(crate) const TRAILER_BYTES: u64 = 12;

/// A readable segment, shared by the entries of its pages.
pub(crate) struct Segment {
    /// Number of its first page, which is also the number in the file name.
    pub(crate) number: Position,
    ranges: Box<dyn RangeReader>,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({})", self.number.0)
    }
}

impl Segment {
    /// Creates the segment at `path`, whose file is opened through `files`.
    pub(crate) fn new(number: Position, files: &Arc<FilePool>, path: &Path) -> Self {
        Self {
            number,
            ranges: Box::new(FileRanges::new(files.clone(), number, path.to_path_buf())),
        }
    }

    /// Returns the reader of the file's bytes.
    pub(crate) fn ranges(&self) -> &dyn RangeReader {
        &*self.ranges
    }
}

/// The header of a page, with its directory entry, as kept until the segment is completed.
pub(crate) type Placed = (PageMeta, Arc<PageEntry>);

/// Appends the directory of `pages` and the trailer to `file`, which completes the segment, and
/// syncs it.
pub(crate) fn write_directory(
    file: &mut AppendOnlyFile,
    pages: &[Placed],
) -> Result<(), StorageError> {
    let mut payload = Vec::new();
    push_uvarint(&mut payload, pages.len() as u64);
    for (meta, entry) in pages {
        meta.encode(&mut payload);
        push_uvarint(&mut payload, entry.offset);
        push_uvarint(&mut payload, u64::from(entry.bytes));
    }
    let offset = file.bytes();
    file.append_kind(FrameKind::Directory, &payload)?;
    let mut trailer = offset.to_le_bytes().to_vec();
    trailer.extend_from_slice(&crc32c::crc32c(&offset.to_le_bytes()).to_le_bytes());
    file.append_raw(&trailer)?;
    file.sync_end()
}

/// The result of reading a segment at start: its pages, its damage and its new manifest entry.
pub(crate) struct Loaded {
    pub(crate) pages: Vec<Placed>,
    /// Number that follows the last frame.
    pub(crate) next: Position,
    /// Damage to parts that could not be read.
    pub(crate) damages: Vec<Damage>,
    /// Its manifest entry; if part of the segment is lost, the entry of the rest.
    pub(crate) entry: SegmentEntry,
    /// True if part of the file could not be read because of a disk fault. The file is then left
    /// unchanged.
    pub(crate) is_unreadable: bool,
}

/// Reads the segment with this number, whose manifest entry is `known`. Completes a segment that
/// was still growing. Returns `None` for a file without frames, which is removed. A file with a
/// disk fault is left unchanged.
pub(crate) fn load(
    env: &Env,
    files: &Arc<FilePool>,
    dir: &Path,
    number: Position,
    known: Option<&SegmentEntry>,
) -> Result<Option<Loaded>, StorageError> {
    let path = PAGES.path(dir, number);
    let opened = env.disk.open(&path, OpenMode::Read);
    let (file, bytes) = match opened.and_then(|file| Ok((file.len()?, file))) {
        Ok((bytes, file)) => (file, bytes),
        Err(e) if is_disk_fault(&e) => return Ok(Some(unopened(&path, number, known, &e))),
        Err(e) => return Err(StorageError::io("open segment", &path)(e)),
    };
    // This only rejects newer versions; the rest of the header repeats the file name.
    let header = append_only::check_header(&*file, PAGES, number, &path)?;
    let segment = Arc::new(Segment::new(number, files, &path));
    let complete = known.filter(|known| known.state == SegmentState::Complete);
    // The directory of an abandoned segment may exist only in the page cache of the system, because
    // its sync failed.
    let is_given_up = known.is_some_and(|known| known.state == SegmentState::Growing);
    if header == HeaderState::Sound
        && !is_given_up
        && let Some(loaded) = read_directory(&file, &segment, bytes, known)
    {
        // The process may have ended between the last write and its sync, or that sync failed,
        // possibly in an earlier start.
        if complete.is_none() {
            let file = env.disk.open(&path, OpenMode::Write);
            let written = file.and_then(|file| write_again(&*file, 0..bytes));
            written.map_err(StorageError::io("sync file", &path))?;
        }
        return Ok(Some(loaded));
    }
    // The trailer is not part of a frame.
    let durable_bytes = known.map_or(0, |known| known.bytes);
    let durable_bytes = durable_bytes.saturating_sub(complete.map_or(0, |_| TRAILER_BYTES));
    let recovered = AppendOnlyFile::recover(env, path, PAGES, number, durable_bytes)?;
    let Some(mut file) = recovered else {
        return Ok(None);
    };
    let counted_bytes = known.map_or(0, |known| known.bytes);
    let (mut loaded, counted) = walk(&file, files, counted_bytes);
    if !file.is_unreadable() {
        write_directory(&mut file, &loaded.pages)?;
        loaded.entry.state = SegmentState::Complete;
        loaded.entry.bytes = file.bytes();
    }
    loaded.next = file.last().next();
    say_what_is_lost(
        &mut loaded,
        file.path(),
        (bytes, durable_bytes),
        (known, counted),
    );
    Ok(Some(loaded))
}

/// Returns the result for a segment that could not be opened.
fn unopened(
    path: &Path,
    number: Position,
    known: Option<&SegmentEntry>,
    error: &std::io::Error,
) -> Loaded {
    let what = format!("it cannot be read and is left unchanged: {error}");
    let damage = Damage::of_file(DamageKind::Pages, path, what);
    Loaded {
        pages: Vec::new(),
        next: number.next(),
        damages: vec![Damage {
            samples: known.and_then(|known| known.samples),
            range: known.and_then(|known| known.range),
            ..damage
        }],
        entry: known.cloned().unwrap_or(SegmentEntry {
            number,
            state: SegmentState::Growing,
            bytes: 0,
            crc: None,
            pages: 0,
            samples: None,
            range: None,
        }),
        is_unreadable: true,
    }
}

/// Adds the loss according to the manifest to the damages of a segment whose frames were scanned. A
/// truncated part can be detected only from the manifest.
fn say_what_is_lost(
    loaded: &mut Loaded,
    path: &Path,
    (bytes, durable_bytes): (u64, u64),
    (known, counted): (Option<&SegmentEntry>, Counted),
) {
    if bytes < durable_bytes {
        let what = format!("it is truncated: {bytes} of {durable_bytes} bytes exist");
        let damage = Damage::of_file(DamageKind::Pages, path, what);
        loaded.damages.insert(0, damage);
    }
    let lost = known.and_then(|known| known.samples);
    let mut lost = lost.map(|samples| samples.saturating_sub(counted.samples));
    let mut all = known.and_then(|known| known.range).or(loaded.entry.range);
    if counted.is_damaged_behind {
        (lost, all) = (None, None);
    }
    // Damage to anything except pages loses no samples, so queries need not warn about it.
    let is_lossless = lost == Some(0);
    for damage in &mut loaded.damages {
        damage.samples = if is_lossless { Some(0) } else { lost.take() };
        damage.range = match is_lossless {
            true => None,
            false => Some(all.unwrap_or(TimeRange::ALL)),
        };
    }
}

/// The part of a scanned file that the numbers in the manifest entry cover.
#[derive(Default)]
struct Counted {
    /// Number of samples in that part.
    samples: u64,
    /// True if there is damage after that part.
    is_damaged_behind: bool,
}

/// Scans the frames of a file without a directory. `counted_bytes` is the length that its manifest
/// entry covers.
fn walk(file: &AppendOnlyFile, files: &Arc<FilePool>, counted_bytes: u64) -> (Loaded, Counted) {
    let mut counted = Counted::default();
    let segment = Arc::new(Segment::new(file.first(), files, file.path()));
    let (mut pages, mut damages, mut samples) = (Vec::new(), Vec::new(), 0);
    let damaged = |offset, what: String| Damage {
        offset: Some(offset),
        ..Damage::of_file(DamageKind::Pages, file.path(), what)
    };
    let mut scanner = file.scanner();
    while let Some(found) = scanner.next() {
        match found {
            Found::Frame { offset, header } if header.kind == FrameKind::Page => {
                let payload = scanner.payload(offset, &header);
                let end = offset + header.frame_bytes();
                match placed(&segment, end, payload) {
                    Ok((page, count)) => {
                        pages.push(page);
                        samples += count;
                        counted.samples += if end <= counted_bytes { count } else { 0 };
                    }
                    Err(e) => {
                        counted.is_damaged_behind |= end > counted_bytes;
                        damages.push(damaged(offset, e.to_string()));
                    }
                }
            }
            Found::Frame { .. } => {}
            Found::Damage(range) => {
                counted.is_damaged_behind |= range.end > counted_bytes;
                let what = format!("{} bytes are not a valid frame", range.end - range.start);
                damages.push(damaged(range.start, what));
            }
        }
    }
    let loaded = Loaded {
        next: file.last().next(),
        entry: SegmentEntry {
            number: file.first(),
            state: SegmentState::Growing,
            bytes: file.durable_bytes(),
            crc: None,
            pages: pages.len() as u64,
            samples: Some(samples),
            range: range_of(&pages),
        },
        is_unreadable: file.is_unreadable(),
        pages,
        damages,
    };
    (loaded, counted)
}

/// Returns the time range from the oldest to the newest sample of the pages, both inclusive.
pub(crate) fn range_of(pages: &[Placed]) -> Option<TimeRange> {
    let ranges = pages.iter().map(|(meta, _)| meta.range);
    ranges.reduce(TimeRange::hull)
}

/// Decodes a page whose payload ends at the offset `end`, and returns it with its number of
/// samples.
fn placed(segment: &Arc<Segment>, end: u64, payload: &[u8]) -> Result<(Placed, u64), Malformed> {
    let mut cursor = Cursor::new(payload);
    let meta = PageMeta::decode(&mut cursor)?;
    let bytes = cursor.len() as u32;
    let offset = end - u64::from(bytes);
    let samples = page::sample_count(cursor.rest()).ok_or(Malformed("not a page"))?;
    let entry = PageEntry::new(&meta, segment.clone(), offset, bytes);
    Ok(((meta, Arc::new(entry)), samples))
}

/// Reads the pages from the directory at the end of `file`, which is `bytes` bytes long. Returns
/// `None` unless the directory is valid.
pub(crate) fn read_directory(
    file: &Arc<dyn File>,
    segment: &Arc<Segment>,
    bytes: u64,
    known: Option<&SegmentEntry>,
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
    let mut scanner = Scanner::new(file.clone(), segment.number, start..end);
    let Some(Found::Frame { offset, header }) = scanner.next() else {
        return None;
    };
    if header.kind != FrameKind::Directory || offset + header.frame_bytes() != end {
        return None;
    }
    let pages = parse_directory(scanner.payload(offset, &header), segment, start).ok()?;
    let known = known.filter(|known| known.state == SegmentState::Complete);
    Some(Loaded {
        next: header.position.next(),
        damages: Vec::new(),
        entry: SegmentEntry {
            number: segment.number,
            state: SegmentState::Complete,
            bytes,
            crc: known.and_then(|known| known.crc),
            pages: pages.len() as u64,
            samples: known.and_then(|known| known.samples),
            range: range_of(&pages),
        },
        is_unreadable: false,
        pages,
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
        // Readers allocate memory for the length of a page.
        if offset
            .checked_add(bytes)
            .is_none_or(|page_end| page_end > end)
        {
            return Err(Malformed("page beyond the end of its segment"));
        }
        let bytes = u32::try_from(bytes).map_err(|_| Malformed("page too large"))?;
        let entry = PageEntry::new(&meta, segment.clone(), offset, bytes);
        pages.push((meta, Arc::new(entry)));
    }
    Ok(pages)
}
