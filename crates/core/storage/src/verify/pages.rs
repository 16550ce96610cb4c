//! Verifies one segment of pages: every frame, every stripe and every column.
//!
//! The frames are scanned from the front, and each page is decoded completely. In a range without
//! valid frames, pages are located through the directory at the end of the file or, without one,
//! through their magic bytes. Pages have their own checksums, so their intact columns can be
//! identified even then.

use super::finding::{LostSeriesSamples, VerifyFinding, VerifyPart};
use crate::chunk::SampleColumns;
use crate::damage::DamageKind;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::error::StorageError;
use crate::file::append_only;
use crate::file::frame::{FrameKind, PAYLOAD_BYTES_MAX};
use crate::file::header::{FILE_HEADER_BYTES, FileHeaderState};
use crate::file::scan::{FrameScanItem, FrameScanner};
use crate::file::survey::survey;
use crate::ids::{GroupId, SeriesRef, SeriesSlot};
use crate::index::{SlotRun, SlotRunSet};
use crate::manifest::{PageSegmentEntry, PageSegmentState};
use crate::page::{PageDecodeScratch, PageReader};
use crate::sealed::file_pool::SegmentFilePool;
use crate::sealed::meta::SealedPageMeta;
use crate::sealed::segment::{PAGES, PageSegment, PageWithMeta, TRAILER_BYTES, read_directory};
use crate::sealed::{group_of, place_in_group};
use firn_model::env::{DiskFile, Env, OpenMode};
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The magic bytes at the start of a page, and the location of its length in the header.
const PAGE_MAGIC: &[u8; 8] = b"FIRNPAGE";
const PAGE_LENGTH_AT: Range<usize> = 16..24;

/// Number of bytes read at a time to compute the checksum of a file.
const READ_BYTES: usize = 256 << 10;

/// Maximum number of lost columns that are recorded for a search in the WAL, 32 bytes each.
const LOST_MAX: usize = 1 << 16;

/// Maximum number of slot runs listed in a message.
const RUNS_LISTED: usize = 8;

/// A page that was found in a segment; it may be damaged.
pub(crate) struct VerifiedPage {
    /// Offset of its frame, or of the rest of it.
    pub(crate) offset: u64,
    /// Header in front of its columns, if it is readable.
    pub(crate) meta: Option<SealedPageMeta>,
    /// Bytes of the page after that header.
    pub(crate) bytes: Arc<[u8]>,
    /// Damage to its frame, if there is any.
    pub(crate) trouble: Option<String>,
}

/// A part of a segment. The parts are reported in the order of the file.
pub(crate) enum PageSegmentPiece {
    /// A page, which may be damaged.
    Page(VerifiedPage),
    /// A byte range in which no page was found, and the reason.
    Lost(Range<u64>, String),
}

/// An open segment, with its directory if that is valid.
pub(crate) struct PageSegmentVerifier {
    file: Arc<dyn DiskFile>,
    number: LogPosition,
    bytes: u64,
    directory: Option<Vec<PageWithMeta>>,
    /// End of the data; only a torn tail follows.
    end: u64,
    pub(crate) is_unreadable: bool,
}

/// Opens a segment whose manifest entry is `known`.
pub(crate) fn open(
    env: &Env,
    file: Arc<dyn DiskFile>,
    number: LogPosition,
    path: &Path,
    known: Option<&PageSegmentEntry>,
) -> Result<PageSegmentVerifier, StorageError> {
    let bytes = file.len().map_err(StorageError::io("read segment", path))?;
    let files = Arc::new(SegmentFilePool::new(env.disk.clone()));
    let segment = Arc::new(PageSegment::new(number, &files, path));
    let loaded = read_directory(&file, &segment, bytes, known);
    let is_complete = known.is_some_and(|known| known.state == PageSegmentState::Complete);
    let durable_bytes = known.map_or(0, |known| known.bytes);
    let survey = survey(file.clone(), number, bytes, durable_bytes);
    Ok(PageSegmentVerifier {
        number,
        bytes,
        end: if loaded.is_some() || is_complete {
            bytes
        } else {
            survey.end
        },
        directory: loaded.map(|loaded| loaded.pages),
        is_unreadable: survey.unreadable,
        file,
    })
}

impl PageSegmentVerifier {
    /// Calls `each` with every part of the segment, in the order of the file.
    pub(crate) fn for_each_piece(&self, each: &mut dyn FnMut(PageSegmentPiece)) {
        // A valid directory is followed by the trailer, which is not a frame.
        let trailer = self.directory.as_ref().map_or(0, |_| TRAILER_BYTES);
        let range = FILE_HEADER_BYTES..self.end - trailer;
        let mut scanner = FrameScanner::new(self.file.clone(), self.number, range);
        while let Some(found) = scanner.next() {
            match found {
                FrameScanItem::Frame { offset, header } if header.kind == FrameKind::Page => {
                    each(read_page(offset, scanner.payload(offset, &header)));
                }
                FrameScanItem::Frame { .. } => {}
                FrameScanItem::Damage(range) => self.for_each_damaged_piece(range, each),
            }
        }
    }

    /// Calls `each` with the pages in a range without valid frames, or with the range if there are
    /// none.
    fn for_each_damaged_piece(&self, range: Range<u64>, each: &mut dyn FnMut(PageSegmentPiece)) {
        let what = format!("{} bytes are not a valid frame", range.end - range.start);
        let mut is_any = false;
        let mut page = |offset, meta: Option<SealedPageMeta>, bytes: Arc<[u8]>| {
            is_any = true;
            each(PageSegmentPiece::Page(VerifiedPage {
                offset,
                meta,
                bytes,
                trouble: Some(what.clone()),
            }));
        };
        match &self.directory {
            Some(pages) => {
                for (meta, entry) in pages {
                    if range.contains(&entry.offset) {
                        let bytes = self.read(entry.offset, entry.bytes as usize);
                        page(entry.offset, Some(meta.clone()), bytes);
                    }
                }
            }
            None => self.search(range.clone(), &mut |offset, bytes| {
                page(offset, None, bytes)
            }),
        }
        if !is_any {
            each(PageSegmentPiece::Lost(range, what));
        }
    }

    /// Searches a range for the magic bytes of pages.
    fn search(&self, range: Range<u64>, each: &mut dyn FnMut(u64, Arc<[u8]>)) {
        // The range is searched in pieces as long as the longest frame. Magic bytes that straddle
        // two pieces are missed.
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(PAYLOAD_BYTES_MAX as u64) as usize;
            let bytes = self.read(at, count);
            let mut from = 0;
            while let Some(start) = find_page(&bytes, from) {
                from = start + PAGE_MAGIC.len();
                let length = page_length(&bytes[start..]);
                let rest = range.end - at - start as u64;
                if let Some(length) = length.filter(|length| *length <= rest) {
                    each(
                        at + start as u64,
                        self.read(at + start as u64, length as usize),
                    );
                    from = start + length as usize;
                }
            }
            at += count.max(from) as u64;
        }
    }

    /// Reads bytes of the file. Bytes that cannot be read stay zero, which fails their checksum.
    fn read(&self, offset: u64, count: usize) -> Arc<[u8]> {
        let count = count.min(self.bytes.saturating_sub(offset) as usize);
        let mut bytes = vec![0; count];
        // After an error, the checksum of the bytes fails.
        let _ = self.file.read_at(offset, &mut bytes);
        bytes.into()
    }
}

fn find_page(bytes: &[u8], from: usize) -> Option<usize> {
    let windows = bytes.get(from..)?.windows(PAGE_MAGIC.len());
    windows
        .enumerate()
        .find(|(_, w)| w == PAGE_MAGIC)
        .map(|(at, _)| from + at)
}

fn page_length(page: &[u8]) -> Option<u64> {
    let bytes = page.get(PAGE_LENGTH_AT)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes)).filter(|length| *length > 0)
}

/// Decodes the page in an intact frame, or returns the range of the frame as lost.
fn read_page(offset: u64, payload: &[u8]) -> PageSegmentPiece {
    let mut cursor = DecodeCursor::new(payload);
    match SealedPageMeta::decode(&mut cursor) {
        Ok(meta) => PageSegmentPiece::Page(VerifiedPage {
            offset,
            meta: Some(meta),
            bytes: cursor.rest().into(),
            trouble: None,
        }),
        Err(e) => {
            let end = offset + payload.len() as u64;
            PageSegmentPiece::Lost(offset..end, e.to_string())
        }
    }
}

/// The readable and the lost columns of a page, after all of them have been decoded.
pub(crate) struct ExaminedPage {
    /// The opened page.
    pub(crate) page: PageReader,
    /// Series whose columns are readable, followed by the number of their samples.
    pub(crate) whole: Vec<SeriesSlot>,
    pub(crate) samples: u64,
    /// Lost columns, each with its time range and its number of samples.
    pub(crate) lost: Vec<(SeriesSlot, TimeRange, u64)>,
    /// The first error that was found.
    pub(crate) why: Option<DecodeError>,
}

/// Opens a page and decodes all of its columns. Returns an error only if its header or directory is
/// damaged.
pub(crate) fn examine(bytes: &Arc<[u8]>) -> Result<ExaminedPage, DecodeError> {
    let page = PageReader::open(bytes.clone())?;
    let (mut scratch, mut columns) = (PageDecodeScratch::default(), SampleColumns::default());
    let (mut whole, mut samples, mut lost) = (Vec::new(), 0, Vec::new());
    let mut why = page.verify().err();
    for index in 0..page.column_count() {
        let column = page.column(index)?;
        columns.clear();
        match page.decode(&column, TimeRange::ALL, &mut scratch, &mut columns) {
            Ok(()) => {
                whole.push(column.slot());
                samples += columns.times.len() as u64;
            }
            Err(e) => {
                why.get_or_insert(e);
                lost.push((column.slot(), column.range(), column.sample_count() as u64));
            }
        }
    }
    Ok(ExaminedPage {
        page,
        whole,
        samples,
        lost,
        why,
    })
}

/// Reconstructs the header in front of a page from the page itself. Fields that the page does not
/// contain get conservative values.
pub(crate) fn rebuild_meta(examined: &ExaminedPage) -> SealedPageMeta {
    let (page, meta) = (&examined.page, examined.page.meta());
    let group = group_of(*page.slots().start());
    SealedPageMeta {
        group,
        window_end: page.range().max,
        range: page.range(),
        unsealed_after: meta.log_from.previous(),
        sealed_up_to: meta.log_to,
        places: places_in_group(group, &examined.whole),
    }
}

/// Returns the places of the slots that are in the group. The slots must ascend.
pub(crate) fn places_in_group(group: GroupId, slots: &[SeriesSlot]) -> SlotRunSet {
    let mut places = SlotRunSet::default();
    for slot in slots.iter().filter(|slot| group_of(**slot) == group) {
        places.push(SlotRun::from_slot(SeriesRef(place_in_group(*slot))));
    }
    places
}

/// Verifies the segment with this number, whose manifest entry is `known`.
pub(crate) fn read(
    env: &Env,
    folder: &Path,
    number: LogPosition,
    known: Option<&PageSegmentEntry>,
) -> Result<VerifyPart, StorageError> {
    let path = PAGES.path(folder, number);
    let mut part = VerifyPart::default();
    let finding = |offset, what: String| VerifyFinding::new(DamageKind::Pages, &path, offset, what);
    let opened = env.disk.open(&path, OpenMode::Read);
    let file = match opened {
        Ok(file) => file,
        Err(e) => {
            let cost = finding(None, format!("it cannot be read: {e}")).with_unreadable();
            let samples = known.and_then(|known| known.samples);
            part.add_finding(cost.with_loss(samples, known.and_then(|known| known.range)));
            return Ok(part);
        }
    };
    let header = append_only::check_header(&*file, PAGES, number, &path)?;
    let opened = open(env, file.clone(), number, &path, known)?;
    part.count_file(opened.bytes);
    if header == FileHeaderState::Damaged && opened.bytes > 0 {
        part.add_finding(finding(Some(0), "the file header is not sound".to_owned()));
    }
    if opened.is_unreadable {
        part.add_finding(
            finding(None, "the disk does not deliver all of it".to_owned()).with_unreadable(),
        );
    }
    compare_length(&opened, &path, known, &mut part);
    opened.for_each_piece(&mut |piece| add_piece(&path, piece, &mut part));
    if opened.end < opened.bytes {
        let torn = opened.bytes - opened.end;
        part.add_remark(
            &path,
            format!("its last {torn} bytes are an incomplete record that was never acknowledged"),
        );
    }
    compare_pages(&opened, &path, known, &mut part);
    let crc = known.and_then(|known| known.crc);
    let is_whole = part.report.findings.is_empty();
    if is_whole && crc.is_some() && crc_of(&*file).ok() != crc {
        let what = "its checksum differs from the manifest, although every page is intact";
        part.add_finding(finding(None, what.to_owned()).with_loss(Some(0), None));
    }
    derive_finding_loss(known, &mut part);
    Ok(part)
}

fn compare_length(
    opened: &PageSegmentVerifier,
    path: &Path,
    known: Option<&PageSegmentEntry>,
    part: &mut VerifyPart,
) {
    let Some(known) = known else { return };
    let (bytes, there) = (known.bytes, opened.bytes);
    let what = match known.state {
        _ if there < bytes => format!("it is truncated: {there} of {bytes} bytes exist"),
        PageSegmentState::Complete if there > bytes => {
            format!("it has {there} bytes instead of {bytes}")
        }
        PageSegmentState::Complete if opened.directory.is_none() => {
            "its directory is not sound".to_owned()
        }
        _ => return,
    };
    part.add_finding(VerifyFinding::new(DamageKind::Pages, path, None, what));
}

/// Reports pages that the directory or the manifest lists and that are missing.
fn compare_pages(
    opened: &PageSegmentVerifier,
    path: &Path,
    known: Option<&PageSegmentEntry>,
    part: &mut VerifyPart,
) {
    if !part.report.findings.is_empty() {
        return;
    }
    let listed = opened.directory.as_ref().map(|pages| pages.len() as u64);
    let known = known
        .map(|known| known.pages)
        .filter(|_| known.is_some_and(is_complete));
    let there = part.report.pages;
    if let Some(named) = listed.or(known).filter(|named| *named != there) {
        let what = format!("it contains {there} pages instead of {named}");
        part.add_finding(VerifyFinding::new(DamageKind::Pages, path, None, what));
    }
}

fn is_complete(known: &PageSegmentEntry) -> bool {
    known.state == PageSegmentState::Complete
}

/// Counts the intact part of a page and reports its damage.
fn add_piece(path: &Path, piece: PageSegmentPiece, part: &mut VerifyPart) {
    let finding =
        |offset, what: String| VerifyFinding::new(DamageKind::Pages, path, Some(offset), what);
    let found = match piece {
        PageSegmentPiece::Page(found) => found,
        PageSegmentPiece::Lost(range, what) => return part.add_finding(finding(range.start, what)),
    };
    let offset = found.offset;
    match examine(&found.bytes) {
        Ok(examined) => {
            part.report.pages += 1;
            part.report.page_samples += examined.samples;
            examined.whole.iter().for_each(|slot| part.read.add(*slot));
            let why = examined.why.map(|e| e.to_string()).or(found.trouble);
            let Some(why) = why else { return };
            let what = format!("{why}{}", name_columns(&examined));
            add_lost_columns(part, finding(offset, what), &examined.lost, true);
        }
        Err(e) => {
            let meta = found.meta;
            let range = meta.as_ref().map(|meta| meta.range);
            let slots = meta.iter().flat_map(SealedPageMeta::slots);
            let lost: Vec<_> = slots.filter_map(|slot| Some((slot, range?, 0))).collect();
            add_lost_columns(part, finding(offset, e.to_string()), &lost, false);
        }
    }
}

/// Describes the columns of a page that cannot be read.
fn name_columns(examined: &ExaminedPage) -> String {
    let lost: Vec<u64> = examined.lost.iter().map(|(slot, ..)| slot.0).collect();
    let runs: Vec<&[u64]> = lost.chunk_by(|a, b| a + 1 == *b).collect();
    if runs.is_empty() {
        return "; every column of it can be read".to_owned();
    }
    let name = |run: &&[u64]| match run {
        [first, .., last] => format!("{first} to {last}"),
        one => one[0].to_string(),
    };
    let names: Vec<String> = runs.iter().take(RUNS_LISTED).map(name).collect();
    let more = if runs.len() > RUNS_LISTED {
        " and more"
    } else {
        ""
    };
    format!(
        "; it contains the series in slots {}{more}",
        names.join(", ")
    )
}

/// Adds a finding together with the columns that are lost.
fn add_lost_columns(
    part: &mut VerifyPart,
    finding: VerifyFinding,
    lost: &[(SeriesSlot, TimeRange, u64)],
    is_counted: bool,
) {
    let ranges = lost.iter().map(|(_, range, _)| *range);
    let range = ranges.reduce(TimeRange::hull);
    let samples = lost.iter().map(|(.., samples)| samples).sum();
    let number = part.report.findings.len();
    part.add_finding(VerifyFinding {
        series: (is_counted || !lost.is_empty()).then_some(lost.len() as u64),
        ..finding.with_loss(is_counted.then_some(samples), range)
    });
    let room = LOST_MAX.saturating_sub(part.lost.len());
    part.lost.extend(
        lost.iter()
            .take(room)
            .map(|(slot, range, _)| LostSeriesSamples {
                finding: number,
                slot: *slot,
                range: *range,
            }),
    );
}

/// Derives the loss of one finding from the number of samples in the manifest.
fn derive_finding_loss(known: Option<&PageSegmentEntry>, part: &mut VerifyPart) {
    let Some(known) = known else { return };
    let findings = &mut part.report.findings;
    let told: u64 = findings.iter().filter_map(|f| f.damage.samples).sum();
    let there = part.report.page_samples + told;
    let left = known.samples.map(|samples| samples.saturating_sub(there));
    let mut untold = findings.iter_mut().filter(|f| f.damage.samples.is_none());
    let Some(first) = untold.next() else { return };
    first.damage.samples = left;
    if left != Some(0) {
        first.damage.range = first.damage.range.or(known.range);
    }
    for other in untold {
        other
            .damage
            .what
            .push_str("; the loss is listed with the first entry of this file");
    }
}

fn crc_of(file: &dyn DiskFile) -> std::io::Result<u32> {
    let mut buffer = vec![0; READ_BYTES];
    let (mut offset, mut crc) = (0, 0);
    loop {
        let read = file.read_at(offset, &mut buffer)?;
        if read == 0 {
            return Ok(crc);
        }
        crc = crc32c::crc32c_append(crc, &buffer[..read]);
        offset += read as u64;
    }
}
