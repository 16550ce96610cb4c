//! Verifies one segment of pages: every frame, every stripe and every column.
//!
//! The frames are scanned from the front, and each page is decoded completely. In a range without
//! valid frames, pages are located through the directory at the end of the file or, without one,
//! through their magic bytes. Pages have their own checksums, so their intact columns can be
//! identified even then.

use super::finding::{Finding, Lost, Part};
use crate::chunk::Columns;
use crate::damage::DamageKind;
use crate::encoding::Malformed;
use crate::encoding::cursor::Cursor;
use crate::error::StorageError;
use crate::file::append_only;
use crate::file::frame::{FrameKind, PAYLOAD_BYTES_MAX};
use crate::file::header::{FILE_HEADER_BYTES, HeaderState};
use crate::file::scan::{Found, Scanner};
use crate::file::survey::survey;
use crate::ids::{GroupId, SeriesRef, Slot};
use crate::index::{Run, Runs};
use crate::manifest::{SegmentEntry, SegmentState};
use crate::page::{Page, Scratch};
use crate::sealed::file_pool::FilePool;
use crate::sealed::meta::PageMeta;
use crate::sealed::segment::{PAGES, Placed, Segment, TRAILER_BYTES, read_directory};
use crate::sealed::{group_of, place_in_group};
use firn_model::env::{Env, File, OpenMode};
use firn_model::log::Position;
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
pub(crate) struct FoundPage {
    /// Offset of its frame, or of the rest of it.
    pub(crate) offset: u64,
    /// Header in front of its columns, if it is readable.
    pub(crate) meta: Option<PageMeta>,
    /// Bytes of the page after that header.
    pub(crate) bytes: Arc<[u8]>,
    /// Damage to its frame, if there is any.
    pub(crate) trouble: Option<String>,
}

/// A part of a segment. The parts are reported in the order of the file.
pub(crate) enum Piece {
    /// A page, which may be damaged.
    Page(FoundPage),
    /// A byte range in which no page was found, and the reason.
    Lost(Range<u64>, String),
}

/// An open segment, with its directory if that is valid.
pub(crate) struct Opened {
    file: Arc<dyn File>,
    number: Position,
    bytes: u64,
    directory: Option<Vec<Placed>>,
    /// End of the data; only a torn tail follows.
    end: u64,
    pub(crate) is_unreadable: bool,
}

/// Opens a segment whose manifest entry is `known`.
pub(crate) fn open(
    env: &Env,
    file: Arc<dyn File>,
    number: Position,
    path: &Path,
    known: Option<&SegmentEntry>,
) -> Result<Opened, StorageError> {
    let bytes = file.len().map_err(StorageError::io("read segment", path))?;
    let files = Arc::new(FilePool::new(env.disk.clone()));
    let segment = Arc::new(Segment::new(number, &files, path));
    let loaded = read_directory(&file, &segment, bytes, known);
    let is_complete = known.is_some_and(|known| known.state == SegmentState::Complete);
    let durable_bytes = known.map_or(0, |known| known.bytes);
    let survey = survey(file.clone(), number, bytes, durable_bytes);
    Ok(Opened {
        number,
        bytes,
        end: match loaded.is_some() || is_complete {
            true => bytes,
            false => survey.end,
        },
        directory: loaded.map(|loaded| loaded.pages),
        is_unreadable: survey.unreadable,
        file,
    })
}

impl Opened {
    /// Calls `each` with every part of the segment, in the order of the file.
    pub(crate) fn pieces(&self, each: &mut dyn FnMut(Piece)) {
        // A valid directory is followed by the trailer, which is not a frame.
        let trailer = self.directory.as_ref().map_or(0, |_| TRAILER_BYTES);
        let range = FILE_HEADER_BYTES..self.end - trailer;
        let mut scanner = Scanner::new(self.file.clone(), self.number, range);
        while let Some(found) = scanner.next() {
            match found {
                Found::Frame { offset, header } if header.kind == FrameKind::Page => {
                    each(read_page(offset, scanner.payload(offset, &header)));
                }
                Found::Frame { .. } => {}
                Found::Damage(range) => self.pieces_of_damage(range, each),
            }
        }
    }

    /// Calls `each` with the pages in a range without valid frames, or with the range if there are
    /// none.
    fn pieces_of_damage(&self, range: Range<u64>, each: &mut dyn FnMut(Piece)) {
        let what = format!("{} bytes are not a valid frame", range.end - range.start);
        let mut is_any = false;
        let mut page = |offset, meta: Option<PageMeta>, bytes: Arc<[u8]>| {
            is_any = true;
            each(Piece::Page(FoundPage {
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
            each(Piece::Lost(range, what));
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
                let length = length_of(&bytes[start..]);
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

fn length_of(page: &[u8]) -> Option<u64> {
    let bytes = page.get(PAGE_LENGTH_AT)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes)).filter(|length| *length > 0)
}

/// Decodes the page in an intact frame, or returns the range of the frame as lost.
fn read_page(offset: u64, payload: &[u8]) -> Piece {
    let mut cursor = Cursor::new(payload);
    match PageMeta::decode(&mut cursor) {
        Ok(meta) => Piece::Page(FoundPage {
            offset,
            meta: Some(meta),
            bytes: cursor.rest().into(),
            trouble: None,
        }),
        Err(e) => {
            let end = offset + payload.len() as u64;
            Piece::Lost(offset..end, e.to_string())
        }
    }
}

/// The readable and the lost columns of a page, after all of them have been decoded.
pub(crate) struct Examined {
    /// The opened page.
    pub(crate) page: Page,
    /// Series whose columns are readable, followed by the number of their samples.
    pub(crate) whole: Vec<Slot>,
    pub(crate) samples: u64,
    /// Lost columns, each with its time range and its number of samples.
    pub(crate) lost: Vec<(Slot, TimeRange, u64)>,
    /// The first error that was found.
    pub(crate) why: Option<Malformed>,
}

/// Opens a page and decodes all of its columns. Returns an error only if its header or directory is
/// damaged.
pub(crate) fn examine(bytes: &Arc<[u8]>) -> Result<Examined, Malformed> {
    let page = Page::open(bytes.clone())?;
    let (mut scratch, mut columns) = (Scratch::default(), Columns::default());
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
    Ok(Examined {
        page,
        whole,
        samples,
        lost,
        why,
    })
}

/// Reconstructs the header in front of a page from the page itself. Fields that the page does not
/// contain get conservative values.
pub(crate) fn meta_of(examined: &Examined) -> PageMeta {
    let (page, meta) = (&examined.page, examined.page.meta());
    let group = group_of(*page.slots().start());
    PageMeta {
        group,
        window_end: page.range().max,
        range: page.range(),
        unsealed_after: meta.log_from.previous(),
        sealed_up_to: meta.log_to,
        places: places_of(group, &examined.whole),
    }
}

/// Returns the places of the slots that are in the group. The slots must ascend.
pub(crate) fn places_of(group: GroupId, slots: &[Slot]) -> Runs {
    let mut places = Runs::default();
    for slot in slots.iter().filter(|slot| group_of(**slot) == group) {
        places.push(Run::of(SeriesRef(place_in_group(*slot))));
    }
    places
}

/// Verifies the segment with this number, whose manifest entry is `known`.
pub(crate) fn read(
    env: &Env,
    folder: &Path,
    number: Position,
    known: Option<&SegmentEntry>,
) -> Result<Part, StorageError> {
    let path = PAGES.path(folder, number);
    let mut part = Part::default();
    let finding = |offset, what: String| Finding::new(DamageKind::Pages, &path, offset, what);
    let opened = env.disk.open(&path, OpenMode::Read);
    let file = match opened {
        Ok(file) => file,
        Err(e) => {
            let cost = finding(None, format!("it cannot be read: {e}")).unreadable();
            let samples = known.and_then(|known| known.samples);
            part.find(cost.costs(samples, known.and_then(|known| known.range)));
            return Ok(part);
        }
    };
    let header = append_only::check_header(&*file, PAGES, number, &path)?;
    let opened = open(env, file.clone(), number, &path, known)?;
    part.count_file(opened.bytes);
    if header == HeaderState::Damaged && opened.bytes > 0 {
        part.find(finding(Some(0), "the file header is not sound".to_owned()));
    }
    if opened.is_unreadable {
        part.find(finding(None, "the disk does not deliver all of it".to_owned()).unreadable());
    }
    compare_length(&opened, &path, known, &mut part);
    opened.pieces(&mut |piece| add_piece(&path, piece, &mut part));
    if opened.end < opened.bytes {
        let torn = opened.bytes - opened.end;
        part.remark(
            &path,
            format!("its last {torn} bytes are an incomplete record that was never acknowledged"),
        );
    }
    compare_pages(&opened, &path, known, &mut part);
    let crc = known.and_then(|known| known.crc);
    let is_whole = part.report.findings.is_empty();
    if is_whole && crc.is_some() && crc_of(&*file).ok() != crc {
        let what = "its checksum differs from the manifest, although every page is intact";
        part.find(finding(None, what.to_owned()).costs(Some(0), None));
    }
    say_what_is_lost(known, &mut part);
    Ok(part)
}

fn compare_length(opened: &Opened, path: &Path, known: Option<&SegmentEntry>, part: &mut Part) {
    let Some(known) = known else { return };
    let (bytes, there) = (known.bytes, opened.bytes);
    let what = match known.state {
        _ if there < bytes => format!("it is truncated: {there} of {bytes} bytes exist"),
        SegmentState::Complete if there > bytes => {
            format!("it has {there} bytes instead of {bytes}")
        }
        SegmentState::Complete if opened.directory.is_none() => {
            "its directory is not sound".to_owned()
        }
        _ => return,
    };
    part.find(Finding::new(DamageKind::Pages, path, None, what));
}

/// Reports pages that the directory or the manifest lists and that are missing.
fn compare_pages(opened: &Opened, path: &Path, known: Option<&SegmentEntry>, part: &mut Part) {
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
        part.find(Finding::new(DamageKind::Pages, path, None, what));
    }
}

fn is_complete(known: &SegmentEntry) -> bool {
    known.state == SegmentState::Complete
}

/// Counts the intact part of a page and reports its damage.
fn add_piece(path: &Path, piece: Piece, part: &mut Part) {
    let finding = |offset, what: String| Finding::new(DamageKind::Pages, path, Some(offset), what);
    let found = match piece {
        Piece::Page(found) => found,
        Piece::Lost(range, what) => return part.find(finding(range.start, what)),
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
            lose(part, finding(offset, what), &examined.lost, true);
        }
        Err(e) => {
            let meta = found.meta;
            let range = meta.as_ref().map(|meta| meta.range);
            let slots = meta.iter().flat_map(PageMeta::slots);
            let lost: Vec<_> = slots.filter_map(|slot| Some((slot, range?, 0))).collect();
            lose(part, finding(offset, e.to_string()), &lost, false);
        }
    }
}

/// Describes the columns of a page that cannot be read.
fn name_columns(examined: &Examined) -> String {
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
fn lose(part: &mut Part, finding: Finding, lost: &[(Slot, TimeRange, u64)], is_counted: bool) {
    let ranges = lost.iter().map(|(_, range, _)| *range);
    let range = ranges.reduce(TimeRange::hull);
    let samples = lost.iter().map(|(.., samples)| samples).sum();
    let number = part.report.findings.len();
    part.find(Finding {
        series: (is_counted || !lost.is_empty()).then_some(lost.len() as u64),
        ..finding.costs(is_counted.then_some(samples), range)
    });
    let room = LOST_MAX.saturating_sub(part.lost.len());
    part.lost
        .extend(lost.iter().take(room).map(|(slot, range, _)| Lost {
            finding: number,
            slot: *slot,
            range: *range,
        }));
}

/// Derives the loss of one finding from the number of samples in the manifest.
fn say_what_is_lost(known: Option<&SegmentEntry>, part: &mut Part) {
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

fn crc_of(file: &dyn File) -> std::io::Result<u32> {
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
