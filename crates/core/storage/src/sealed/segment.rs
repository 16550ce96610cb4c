//! A segment: a readable file of pages, and the encoding of its page directory.
//!
//! ```text
//! header | page frame* | directory frame | trailer        directory = pages varint | page*
//! page   = meta | offset varint | bytes varint            trailer   = offset u64 | its crc32c u32
//! ```
//!
//! A segment without a valid directory was not completed; its frames are scanned instead.

use super::directory::SealedPageEntry;
use super::file_pool::SegmentFilePool;
use super::meta::SealedPageMeta;
use super::range_reader::{RangeReader, SegmentFileReader};
use crate::damage::{Damage, DamageKind};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint};
use crate::error::{StorageError, is_disk_fault};
use crate::file::append_only::{self, AppendOnlyFile, FileKind};
use crate::file::frame::FrameKind;
use crate::file::header::{FILE_HEADER_BYTES, FileHeaderState, PAGES_MAGIC};
use crate::file::scan::{FrameScanItem, FrameScanner};
use crate::file::survey::rewrite_range;
use crate::manifest::{PageSegmentEntry, PageSegmentState};
use crate::page;
use firn_model::env::{DiskFile, Env, OpenMode};
use firn_model::log::LogPosition;
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
pub(crate) struct PageSegment {
    /// Number of its first page, which is also the number in the file name.
    pub(crate) number: LogPosition,
    ranges: Box<dyn RangeReader>,
}

impl std::fmt::Debug for PageSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({})", self.number.0)
    }
}

impl PageSegment {
    /// Creates the segment at `path`, whose file is opened through `files`.
    pub(crate) fn new(number: LogPosition, files: &Arc<SegmentFilePool>, path: &Path) -> Self {
        Self {
            number,
            ranges: Box::new(SegmentFileReader::new(
                files.clone(),
                number,
                path.to_path_buf(),
            )),
        }
    }

    /// Returns the reader of the file's bytes.
    pub(crate) fn ranges(&self) -> &dyn RangeReader {
        &*self.ranges
    }
}

/// The header of a page, with its directory entry, as kept until the segment is completed.
pub(crate) type PageWithMeta = (SealedPageMeta, Arc<SealedPageEntry>);

/// Appends the directory of `pages` and the trailer to `file`, which completes the segment, and
/// syncs it.
pub(crate) fn write_directory(
    file: &mut AppendOnlyFile,
    pages: &[PageWithMeta],
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
    file.sync_without_mark()
}

/// The result of reading a segment at start: its pages, its damage and its new manifest entry.
pub(crate) struct LoadedPageSegment {
    pub(crate) pages: Vec<PageWithMeta>,
    /// Number that follows the last frame.
    pub(crate) next: LogPosition,
    /// Damage to parts that could not be read.
    pub(crate) damages: Vec<Damage>,
    /// Its manifest entry; if part of the segment is lost, the entry of the rest.
    pub(crate) entry: PageSegmentEntry,
    /// True if part of the file could not be read because of a disk fault. The file is then left
    /// unchanged.
    pub(crate) is_unreadable: bool,
}

/// Reads the segment with this number, whose manifest entry is `known`. Completes a segment that
/// was still growing. Returns `None` for a file without frames, which is removed. A file with a
/// disk fault is left unchanged.
pub(crate) fn load(
    env: &Env,
    files: &Arc<SegmentFilePool>,
    dir: &Path,
    number: LogPosition,
    known: Option<&PageSegmentEntry>,
) -> Result<Option<LoadedPageSegment>, StorageError> {
    let path = PAGES.path(dir, number);
    let opened = env.disk.open(&path, OpenMode::Read);
    let (file, bytes) = match opened.and_then(|file| Ok((file.len()?, file))) {
        Ok((bytes, file)) => (file, bytes),
        Err(e) if is_disk_fault(&e) => return Ok(Some(unopened_segment(&path, number, known, &e))),
        Err(e) => return Err(StorageError::io("open segment", &path)(e)),
    };
    // This only rejects newer versions; the rest of the header repeats the file name.
    let header = append_only::check_header(&*file, PAGES, number, &path)?;
    let segment = Arc::new(PageSegment::new(number, files, &path));
    let complete = known.filter(|known| known.state == PageSegmentState::Complete);
    // The directory of an abandoned segment may exist only in the page cache of the system, because
    // its sync failed.
    let is_given_up = known.is_some_and(|known| known.state == PageSegmentState::Growing);
    if header == FileHeaderState::Sound
        && !is_given_up
        && let Some(loaded) = read_directory(&file, &segment, bytes, known)
    {
        // The process may have ended between the last write and its sync, or that sync failed,
        // possibly in an earlier start.
        if complete.is_none() {
            let file = env.disk.open(&path, OpenMode::Write);
            let written = file.and_then(|file| rewrite_range(&*file, 0..bytes));
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
    let (mut loaded, counted) = scan_frames(&file, files, counted_bytes);
    if !file.is_unreadable() {
        write_directory(&mut file, &loaded.pages)?;
        loaded.entry.state = PageSegmentState::Complete;
        loaded.entry.bytes = file.bytes();
    }
    loaded.next = file.last().next();
    add_manifest_losses(
        &mut loaded,
        file.path(),
        bytes,
        durable_bytes,
        known,
        counted,
    );
    Ok(Some(loaded))
}

/// Returns the result for a segment that could not be opened.
fn unopened_segment(
    path: &Path,
    number: LogPosition,
    known: Option<&PageSegmentEntry>,
    error: &std::io::Error,
) -> LoadedPageSegment {
    let what = format!("it cannot be read and is left unchanged: {error}");
    let damage = Damage::for_file(DamageKind::Pages, path, what);
    LoadedPageSegment {
        pages: Vec::new(),
        next: number.next(),
        damages: vec![Damage {
            samples: known.and_then(|known| known.samples),
            range: known.and_then(|known| known.range),
            ..damage
        }],
        entry: known.cloned().unwrap_or(PageSegmentEntry {
            number,
            state: PageSegmentState::Growing,
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
fn add_manifest_losses(
    loaded: &mut LoadedPageSegment,
    path: &Path,
    bytes: u64,
    durable_bytes: u64,
    known: Option<&PageSegmentEntry>,
    counted: SegmentScanCounts,
) {
    if bytes < durable_bytes {
        let what = format!("it is truncated: {bytes} of {durable_bytes} bytes exist");
        let damage = Damage::for_file(DamageKind::Pages, path, what);
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
        damage.range = if is_lossless {
            None
        } else {
            Some(all.unwrap_or(TimeRange::ALL))
        };
    }
}

/// The part of a scanned file that the numbers in the manifest entry cover.
#[derive(Default)]
struct SegmentScanCounts {
    /// Number of samples in that part.
    samples: u64,
    /// True if there is damage after that part.
    is_damaged_behind: bool,
}

/// Scans the frames of a file without a directory. `counted_bytes` is the length that its manifest
/// entry covers.
fn scan_frames(
    file: &AppendOnlyFile,
    files: &Arc<SegmentFilePool>,
    counted_bytes: u64,
) -> (LoadedPageSegment, SegmentScanCounts) {
    let mut counted = SegmentScanCounts::default();
    let segment = Arc::new(PageSegment::new(file.first(), files, file.path()));
    let (mut pages, mut damages, mut samples) = (Vec::new(), Vec::new(), 0);
    let damaged = |offset, what: String| Damage {
        offset: Some(offset),
        ..Damage::for_file(DamageKind::Pages, file.path(), what)
    };
    let mut scanner = file.scanner();
    while let Some(found) = scanner.next() {
        match found {
            FrameScanItem::Frame { offset, header } if header.kind == FrameKind::Page => {
                let payload = scanner.payload(offset, &header);
                let end = offset + header.frame_bytes();
                match decode_page(&segment, end, payload) {
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
            FrameScanItem::Frame { .. } => {}
            FrameScanItem::Damage(range) => {
                counted.is_damaged_behind |= range.end > counted_bytes;
                let what = format!("{} bytes are not a valid frame", range.end - range.start);
                damages.push(damaged(range.start, what));
            }
        }
    }
    let loaded = LoadedPageSegment {
        next: file.last().next(),
        entry: PageSegmentEntry {
            number: file.first(),
            state: PageSegmentState::Growing,
            bytes: file.durable_bytes(),
            crc: None,
            pages: pages.len() as u64,
            samples: Some(samples),
            range: pages_range(&pages),
        },
        is_unreadable: file.is_unreadable(),
        pages,
        damages,
    };
    (loaded, counted)
}

/// Returns the time range from the oldest to the newest sample of the pages, both inclusive.
pub(crate) fn pages_range(pages: &[PageWithMeta]) -> Option<TimeRange> {
    let ranges = pages.iter().map(|(meta, _)| meta.range);
    ranges.reduce(TimeRange::hull)
}

/// Decodes a page whose payload ends at the offset `end`, and returns it with its number of
/// samples.
fn decode_page(
    segment: &Arc<PageSegment>,
    end: u64,
    payload: &[u8],
) -> Result<(PageWithMeta, u64), DecodeError> {
    let mut cursor = DecodeCursor::new(payload);
    let meta = SealedPageMeta::decode(&mut cursor)?;
    let bytes = cursor.len() as u32;
    let offset = end - u64::from(bytes);
    let samples = page::peek_sample_count(cursor.rest()).ok_or(DecodeError("not a page"))?;
    let entry = SealedPageEntry::new(&meta, segment.clone(), offset, bytes);
    Ok(((meta, Arc::new(entry)), samples))
}

/// Reads the pages from the directory at the end of `file`, which is `bytes` bytes long. Returns
/// `None` unless the directory is valid.
pub(crate) fn read_directory(
    file: &Arc<dyn DiskFile>,
    segment: &Arc<PageSegment>,
    bytes: u64,
    known: Option<&PageSegmentEntry>,
) -> Option<LoadedPageSegment> {
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
    let mut scanner = FrameScanner::new(file.clone(), segment.number, start..end);
    let Some(FrameScanItem::Frame { offset, header }) = scanner.next() else {
        return None;
    };
    if header.kind != FrameKind::Directory || offset + header.frame_bytes() != end {
        return None;
    }
    let pages = parse_directory(scanner.payload(offset, &header), segment, start).ok()?;
    let known = known.filter(|known| known.state == PageSegmentState::Complete);
    Some(LoadedPageSegment {
        next: header.position.next(),
        damages: Vec::new(),
        entry: PageSegmentEntry {
            number: segment.number,
            state: PageSegmentState::Complete,
            bytes,
            crc: known.and_then(|known| known.crc),
            pages: pages.len() as u64,
            samples: known.and_then(|known| known.samples),
            range: pages_range(&pages),
        },
        is_unreadable: false,
        pages,
    })
}

fn parse_directory(
    payload: &[u8],
    segment: &Arc<PageSegment>,
    end: u64,
) -> Result<Vec<PageWithMeta>, DecodeError> {
    let mut cursor = DecodeCursor::new(payload);
    let count = cursor.read_count(10)?;
    let mut pages = Vec::with_capacity(count);
    for _ in 0..count {
        let meta = SealedPageMeta::decode(&mut cursor)?;
        let offset = cursor.read_uvarint()?;
        let bytes = cursor.read_uvarint()?;
        // Readers allocate memory for the length of a page.
        if offset
            .checked_add(bytes)
            .is_none_or(|page_end| page_end > end)
        {
            return Err(DecodeError("page beyond the end of its segment"));
        }
        let bytes = u32::try_from(bytes).map_err(|_| DecodeError("page too large"))?;
        let entry = SealedPageEntry::new(&meta, segment.clone(), offset, bytes);
        pages.push((meta, Arc::new(entry)));
    }
    Ok(pages)
}
