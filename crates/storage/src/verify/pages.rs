//! Reads one segment of pages: every frame, every stripe, every column.
//!
//! Frames are walked from the front, and each page is opened and decoded. In a stretch that is no
//! frame the pages are looked for by the directory at the end of the file, or by their first bytes:
//! a page has checksums of its own, so what of it is whole can still be told.

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

/// The first bytes of a page, and where its length stands.
const PAGE_MAGIC: &[u8; 8] = b"FIRNPAGE";
const PAGE_LENGTH_AT: Range<usize> = 16..24;

/// Bytes read at once for the checksum of a whole file.
const READ_BYTES: usize = 256 << 10;

/// Columns that cannot be read and are remembered, to be looked for in the log: 32 bytes each.
const LOST_MAX: usize = 1 << 16;

/// Runs of slots that a line lists at most.
const RUNS_LISTED: usize = 8;

/// A page and where it was found.
pub(crate) struct FoundPage {
    /// Its frame, or what is left of it, begins here.
    pub(crate) offset: u64,
    /// What stands before its columns, if that is known.
    pub(crate) meta: Option<PageMeta>,
    /// Its bytes.
    pub(crate) bytes: Arc<[u8]>,
    /// Why its frame is not sound, if it is not.
    pub(crate) trouble: Option<String>,
}

/// What there is in a segment, in order.
pub(crate) enum Piece {
    /// A page, whole or not.
    Page(FoundPage),
    /// Bytes in which no page can be told.
    Lost(Range<u64>, String),
}

/// A segment that is open, and its directory if that is sound.
pub(crate) struct Opened {
    file: Arc<dyn File>,
    number: Position,
    bytes: u64,
    directory: Option<Vec<Placed>>,
    /// The end of what counts: behind it lies a torn tail.
    end: u64,
    pub(crate) is_unreadable: bool,
}

/// Opens a segment, of which the manifest says `known`.
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
    /// Calls `each` with all that there is.
    pub(crate) fn pieces(&self, each: &mut dyn FnMut(Piece)) {
        // Behind a sound directory stands what says where it is, which is no frame.
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

    /// The pages that lie in bytes that are no frame.
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

    /// Looks for pages by their first bytes.
    fn search(&self, range: Range<u64>, each: &mut dyn FnMut(u64, Arc<[u8]>)) {
        // A frame is no longer; what stands behind so much damage is looked for anew.
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

    /// Bytes of the file; what cannot be read is zero, which no checksum accepts.
    fn read(&self, offset: u64, count: usize) -> Arc<[u8]> {
        let count = count.min(self.bytes.saturating_sub(offset) as usize);
        let mut bytes = vec![0; count];
        // What an error leaves fails its checksum.
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

/// The page of a sound frame.
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

/// What of a page can be read.
pub(crate) struct Examined {
    /// The page.
    pub(crate) page: Page,
    /// Series that can be read, and their samples.
    pub(crate) whole: Vec<Slot>,
    pub(crate) samples: u64,
    /// Columns that cannot, and how many samples they have.
    pub(crate) lost: Vec<(Slot, TimeRange, u64)>,
    /// The first reason why not.
    pub(crate) why: Option<Malformed>,
}

/// Opens a page and decodes all of it.
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

/// What stands before the columns of a page, as far as the page itself says it.
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

/// The places of the slots of a group, which ascend.
pub(crate) fn places_of(group: GroupId, slots: &[Slot]) -> Runs {
    let mut places = Runs::default();
    for slot in slots.iter().filter(|slot| group_of(**slot) == group) {
        places.push(Run::of(SeriesRef(place_in_group(*slot))));
    }
    places
}

/// Reads the segment with `number`, of which the manifest says `known`.
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

/// Finds pages that directory and manifest name and that are not there.
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

/// Counts what a piece has, and finds what it lacks.
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

/// Which columns of a page cannot be read.
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

/// Adds a finding that costs the columns in `lost`.
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

/// Says of one finding what the manifest's figures leave for it.
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
