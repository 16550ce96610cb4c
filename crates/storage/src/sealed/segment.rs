//! One segment: a file of pages that can be read, and how its directory is written and read.
//!
//! ```text
//! header | page frame* | directory frame | trailer        directory = pages varint | page*
//! page   = meta | offset varint | bytes varint            trailer   = offset u64 | its sum u32
//! ```
//!
//! A segment without a sound directory was not finished: its frames are walked instead.

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

/// The files of pages.
pub(crate) const PAGES: FileKind = FileKind {
    magic: PAGES_MAGIC,
    suffix: ".pages",
    frame: FrameKind::Page,
};

/// Offset of the directory (u64) and its checksum (u32).
pub(crate) const TRAILER_BYTES: u64 = 12;

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
    /// The segment at `path`, whose file `files` opens.
    pub(crate) fn new(number: Position, files: &Arc<FilePool>, path: &Path) -> Self {
        Self {
            number,
            ranges: Box::new(FileRanges::new(files.clone(), number, path.to_path_buf())),
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

/// What stands in a segment that was left behind.
pub(crate) struct Loaded {
    pub(crate) pages: Vec<Placed>,
    /// The number after its last frame.
    pub(crate) next: Position,
    /// What could not be read.
    pub(crate) damages: Vec<Damage>,
    /// How it stands in the manifest; if a part of it is lost, what is left.
    pub(crate) entry: SegmentEntry,
    /// The disk does not deliver all of it: it is left as it is.
    pub(crate) is_unreadable: bool,
}

/// Reads what the segment with `number` holds, of which the manifest says `known`. One that was not
/// finished is finished; `None` if it was not even begun, and was removed. One that the disk does
/// not deliver is left as it is.
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
    // Only to refuse a newer version: the name says all that the header does.
    let header = append_only::check_header(&*file, PAGES, number, &path)?;
    let segment = Arc::new(Segment::new(number, files, &path));
    let complete = known.filter(|known| known.state == SegmentState::Complete);
    // One that was given up may have a directory in the system's cache alone: its sync failed.
    let is_given_up = known.is_some_and(|known| known.state == SegmentState::Growing);
    if header == HeaderState::Sound
        && !is_given_up
        && let Some(loaded) = read_directory(&file, &segment, bytes, known)
    {
        // The process may have ended between the last write and its sync, or the sync failed, also
        // that of a start before this one.
        if complete.is_none() {
            let file = env.disk.open(&path, OpenMode::Write);
            let written = file.and_then(|file| write_again(&*file, 0..bytes));
            written.map_err(StorageError::io("sync file", &path))?;
        }
        return Ok(Some(loaded));
    }
    // The trailer is no frame.
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

/// A segment that could not even be opened.
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

/// Completes the damages of a segment whose frames were walked by what the manifest knows of it: a
/// part that is cut off shows nowhere else.
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
    // Damage to anything but a page costs no samples: no query warns of it.
    let is_lossless = lost == Some(0);
    for damage in &mut loaded.damages {
        damage.samples = if is_lossless { Some(0) } else { lost.take() };
        damage.range = match is_lossless {
            true => None,
            false => Some(all.unwrap_or(TimeRange::ALL)),
        };
    }
}

/// What of a file the manifest's figures are about: its bytes up to where they were counted.
#[derive(Default)]
struct Counted {
    /// The samples there.
    samples: u64,
    /// Something is damaged behind.
    is_damaged_behind: bool,
}

/// Walks the frames of a file without a directory, of which so many bytes were counted.
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

/// From the oldest sample of pages to their newest.
pub(crate) fn range_of(pages: &[Placed]) -> Option<TimeRange> {
    let ranges = pages.iter().map(|(meta, _)| meta.range);
    ranges.reduce(TimeRange::hull)
}

/// The page in `payload`, which ends at offset `end` of its file, and its number of samples.
fn placed(segment: &Arc<Segment>, end: u64, payload: &[u8]) -> Result<(Placed, u64), Malformed> {
    let mut cursor = Cursor::new(payload);
    let meta = PageMeta::decode(&mut cursor)?;
    let bytes = cursor.len() as u32;
    let offset = end - u64::from(bytes);
    let samples = page::sample_count(cursor.rest()).ok_or(Malformed("not a page"))?;
    let entry = PageEntry::new(&meta, segment.clone(), offset, bytes);
    Ok(((meta, Arc::new(entry)), samples))
}

/// The pages by the directory at the end of `file`, which has so many bytes; `None` unless it is
/// sound.
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
        // A reader of the page allocates its length.
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
