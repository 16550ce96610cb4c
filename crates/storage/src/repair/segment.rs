//! Rewrites a segment of pages with every intact page. Damaged pages keep their intact columns and
//! get the others from the WAL, as far as it contains them.

use super::from_log::FromLog;
use crate::chunk::Columns;
use crate::encoding::Malformed;
use crate::error::StorageError;
use crate::file::append_only::{self, AppendOnlyFile};
use crate::ids::Slot;
use crate::log::SegmentInfo;
use crate::manifest::{Manifest, SegmentEntry, SegmentState};
use crate::page::{self, Page, PageBuilder, Scratch};
use crate::sealed::directory::PageEntry;
use crate::sealed::file_pool::FilePool;
use crate::sealed::meta::PageMeta;
use crate::sealed::segment::{PAGES, Placed, Segment, range_of, write_directory};
use crate::verify::pages::{self, Examined, FoundPage, Opened, Piece};
use crate::verify::slots::Slots;
use firn_model::env::{Env, OpenMode};
use firn_model::log::Position;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

/// The new segment while it is written, with the pages that it contains so far.
struct Writing {
    file: AppendOnlyFile,
    segment: Arc<Segment>,
    pages: Vec<Placed>,
    samples: u64,
    buffer: Vec<u8>,
}

/// Replaces the segment with this number and returns its new manifest entry. If nothing in it is
/// readable, removes it and returns `None`.
pub(super) fn rebuild(
    env: &Env,
    folder: &Path,
    number: Position,
    manifest: &Manifest,
    named: Option<&Slots>,
    log: &[SegmentInfo],
) -> Result<Option<SegmentEntry>, StorageError> {
    let path = PAGES.path(folder, number);
    let opened = env.disk.open(&path, OpenMode::Read);
    let file = opened.map_err(StorageError::io("open segment", &path))?;
    let old = pages::open(env, file, number, &path, manifest.segment(number))?;
    let from_log = FromLog::read(env, log, &wanted_of(&old))?;
    let file = PAGES.begin(env, folder, number)?;
    let files = Arc::new(FilePool::new(env.disk.clone()));
    let mut writing = Writing {
        segment: Arc::new(Segment::new(number, &files, file.path())),
        file,
        pages: Vec::new(),
        samples: 0,
        buffer: Vec::new(),
    };
    let mut written = Ok(());
    old.pieces(&mut |piece| {
        if let (Piece::Page(found), Ok(())) = (piece, &written) {
            written = writing.take(found, named, &from_log);
        }
    });
    written?;
    if writing.pages.is_empty() {
        append_only::remove(env, writing.file.path())?;
        append_only::remove(env, &path)?;
        return Ok(None);
    }
    let mut file = writing.file;
    write_directory(&mut file, &writing.pages)?;
    PAGES.put_in_place(env, folder, &mut file)?;
    Ok(Some(SegmentEntry {
        number,
        state: SegmentState::Complete,
        bytes: file.bytes(),
        crc: file.crc(),
        pages: writing.pages.len() as u64,
        samples: Some(writing.samples),
        range: range_of(&writing.pages),
    }))
}

/// Returns the series and time ranges that the pages of a segment have lost.
fn wanted_of(old: &Opened) -> Vec<(Slot, TimeRange)> {
    let mut wanted = Vec::new();
    old.pieces(&mut |piece| {
        let Piece::Page(found) = piece else { return };
        wanted.extend(match pages::examine(&found.bytes) {
            Ok(examined) => lost_of(&examined),
            Err(_) => all_of(&found),
        });
    });
    wanted
}

fn lost_of(examined: &Examined) -> Vec<(Slot, TimeRange)> {
    let lost = examined.lost.iter();
    lost.map(|(slot, range, _)| (*slot, *range)).collect()
}

/// Returns the series of a page that cannot be opened, as far as its header lists them.
fn all_of(found: &FoundPage) -> Vec<(Slot, TimeRange)> {
    let Some(meta) = &found.meta else {
        return Vec::new();
    };
    meta.slots().map(|slot| (slot, meta.range)).collect()
}

impl Writing {
    /// Writes the columns of a page that are readable or in the WAL, for the series in `named`.
    fn take(
        &mut self,
        found: FoundPage,
        named: Option<&Slots>,
        log: &FromLog,
    ) -> Result<(), StorageError> {
        let is_named = |slot: &Slot| named.is_none_or(|named| named.has(*slot));
        let (examined, lost) = match pages::examine(&found.bytes) {
            Ok(examined) => {
                let lost = lost_of(&examined);
                (Some(examined), lost)
            }
            Err(_) => (None, all_of(&found)),
        };
        let meta = found.meta.clone();
        let Some(meta) = meta.or_else(|| examined.as_ref().map(pages::meta_of)) else {
            return Ok(());
        };
        if let Some(examined) = &examined
            && examined.whole.iter().all(is_named)
            && lost.is_empty()
            && examined.why.is_none()
        {
            return self.append(meta, &found.bytes, examined.samples);
        }
        let whole = examined
            .as_ref()
            .map_or(&[][..], |examined| &examined.whole);
        let whole = whole.iter().map(|slot| (*slot, None));
        let lost = lost.into_iter().map(|(slot, range)| (slot, Some(range)));
        let mut slots: Vec<(Slot, Option<TimeRange>)> = whole.chain(lost).collect();
        slots.retain(|(slot, _)| is_named(slot));
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        let page = examined.as_ref().map(|examined| &examined.page);
        match salvage(page, meta, &slots, log) {
            Ok(Some((meta, page, samples))) => self.append(meta, &page, samples),
            // No column of the page could be recovered.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    fn append(&mut self, meta: PageMeta, page: &[u8], samples: u64) -> Result<(), StorageError> {
        self.buffer.clear();
        meta.encode(&mut self.buffer);
        let meta_bytes = self.buffer.len() as u64;
        self.buffer.extend_from_slice(page);
        let payload = self.file.append(&self.buffer)?;
        let offset = payload + meta_bytes;
        let entry = PageEntry::new(&meta, self.segment.clone(), offset, page.len() as u32);
        self.pages.push((meta, Arc::new(entry)));
        self.samples += samples;
        Ok(())
    }
}

/// Builds a page from the given series: those without a time range are read from `page`, the others
/// from the WAL.
fn salvage(
    page: Option<&Page>,
    meta: PageMeta,
    slots: &[(Slot, Option<TimeRange>)],
    log: &FromLog,
) -> Result<Option<(PageMeta, Vec<u8>, u64)>, Malformed> {
    let mut builder = PageBuilder::new(page::LogSpan {
        log_from: meta.unsealed_after.next(),
        log_to: meta.sealed_up_to,
    });
    let (mut scratch, mut kept) = (Scratch::default(), Vec::new());
    let mut range = None;
    for (slot, lost) in slots {
        let columns = match (lost, page) {
            (Some(lost), _) => log.columns(*slot, *lost),
            (None, Some(page)) => read_column(page, *slot, &mut scratch)?,
            (None, None) => None,
        };
        let Some(columns) = columns else { continue };
        let times = TimeRange::new(columns.times[0], columns.times[columns.times.len() - 1]);
        // A column that was read from a page always fits into one.
        let pushed = builder.push(*slot, None, &columns);
        pushed.map_err(|_| Malformed("column too long for a page"))?;
        kept.push(*slot);
        range = TimeRange::hull_of(range, Some(times));
    }
    let samples = builder.sample_count();
    let Some((range, page)) = range.zip(builder.finish()) else {
        return Ok(None);
    };
    let meta = PageMeta {
        range,
        places: pages::places_of(meta.group, &kept),
        ..meta
    };
    Ok(Some((meta, page, samples)))
}

fn read_column(
    page: &Page,
    slot: Slot,
    scratch: &mut Scratch,
) -> Result<Option<Columns>, Malformed> {
    let Some(column) = page.find(slot)? else {
        return Ok(None);
    };
    let mut columns = Columns::default();
    page.decode(&column, TimeRange::ALL, scratch, &mut columns)?;
    Ok((!columns.times.is_empty()).then_some(columns))
}
