//! Rewrites a segment of pages with every intact page. Damaged pages keep their intact columns and
//! get the others from the WAL, as far as it contains them.

use super::from_log::RecoveredLogSamples;
use crate::chunk::SampleColumns;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::file::append_only::{self, AppendOnlyFile};
use crate::ids::SeriesSlot;
use crate::log::LogSegmentInfo;
use crate::manifest::{Manifest, PageSegmentEntry, PageSegmentState};
use crate::page::{self, PageBuilder, PageDecodeScratch, PageReader};
use crate::sealed::directory::SealedPageEntry;
use crate::sealed::file_pool::SegmentFilePool;
use crate::sealed::meta::SealedPageMeta;
use crate::sealed::segment::{PAGES, PageSegment, PageWithMeta, pages_range, write_directory};
use crate::verify::pages::{
    self, ExaminedPage, PageSegmentPiece, PageSegmentVerifier, VerifiedPage,
};
use crate::verify::slots::SeriesSlotSet;
use firn_model::env::{Env, OpenMode};
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

/// The new segment while it is written, with the pages that it contains so far.
struct SegmentRebuild {
    file: AppendOnlyFile,
    segment: Arc<PageSegment>,
    pages: Vec<PageWithMeta>,
    samples: u64,
    buffer: Vec<u8>,
}

/// Replaces the segment with this number and returns its new manifest entry. If nothing in it is
/// readable, removes it and returns `None`.
pub(super) fn rebuild(
    env: &Env,
    folder: &Path,
    number: LogPosition,
    manifest: &Manifest,
    named: Option<&SeriesSlotSet>,
    log: &[LogSegmentInfo],
) -> Result<Option<PageSegmentEntry>, StorageError> {
    let path = PAGES.path(folder, number);
    let opened = env.disk.open(&path, OpenMode::Read);
    let file = opened.map_err(StorageError::io("open segment", &path))?;
    let old = pages::open(env, file, number, &path, manifest.segment(number))?;
    let from_log = RecoveredLogSamples::read(env, log, &collect_lost_ranges(&old))?;
    let file = PAGES.begin(env, folder, number)?;
    let files = Arc::new(SegmentFilePool::new(env.disk.clone()));
    let mut writing = SegmentRebuild {
        segment: Arc::new(PageSegment::new(number, &files, file.path())),
        file,
        pages: Vec::new(),
        samples: 0,
        buffer: Vec::new(),
    };
    let mut written = Ok(());
    old.for_each_piece(&mut |piece| {
        if let (PageSegmentPiece::Page(found), Ok(())) = (piece, &written) {
            written = writing.salvage_page(found, named, &from_log);
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
    PAGES.install_file(env, folder, &mut file)?;
    Ok(Some(PageSegmentEntry {
        number,
        state: PageSegmentState::Complete,
        bytes: file.bytes(),
        crc: file.crc(),
        pages: writing.pages.len() as u64,
        samples: Some(writing.samples),
        range: pages_range(&writing.pages),
    }))
}

/// Returns the series and time ranges that the pages of a segment have lost.
fn collect_lost_ranges(old: &PageSegmentVerifier) -> Vec<(SeriesSlot, TimeRange)> {
    let mut wanted = Vec::new();
    old.for_each_piece(&mut |piece| {
        let PageSegmentPiece::Page(found) = piece else {
            return;
        };
        wanted.extend(match pages::examine(&found.bytes) {
            Ok(examined) => lost_of(&examined),
            Err(_) => list_page_series(&found),
        });
    });
    wanted
}

fn lost_of(examined: &ExaminedPage) -> Vec<(SeriesSlot, TimeRange)> {
    let lost = examined.lost.iter();
    lost.map(|(slot, range, _)| (*slot, *range)).collect()
}

/// Returns the series of a page that cannot be opened, as far as its header lists them.
fn list_page_series(found: &VerifiedPage) -> Vec<(SeriesSlot, TimeRange)> {
    let Some(meta) = &found.meta else {
        return Vec::new();
    };
    meta.slots().map(|slot| (slot, meta.range)).collect()
}

impl SegmentRebuild {
    /// Writes the columns of a page that are readable or in the WAL, for the series in `named`.
    fn salvage_page(
        &mut self,
        found: VerifiedPage,
        named: Option<&SeriesSlotSet>,
        log: &RecoveredLogSamples,
    ) -> Result<(), StorageError> {
        let is_named = |slot: &SeriesSlot| named.is_none_or(|named| named.has(*slot));
        let (examined, lost) = match pages::examine(&found.bytes) {
            Ok(examined) => {
                let lost = lost_of(&examined);
                (Some(examined), lost)
            }
            Err(_) => (None, list_page_series(&found)),
        };
        let meta = found.meta.clone();
        let Some(meta) = meta.or_else(|| examined.as_ref().map(pages::rebuild_meta)) else {
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
        let mut slots: Vec<(SeriesSlot, Option<TimeRange>)> = whole.chain(lost).collect();
        slots.retain(|(slot, _)| is_named(slot));
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        let page = examined.as_ref().map(|examined| &examined.page);
        match salvage(page, meta, &slots, log) {
            Ok(Some((meta, page, samples))) => self.append(meta, &page, samples),
            // No column of the page could be recovered.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    fn append(
        &mut self,
        meta: SealedPageMeta,
        page: &[u8],
        samples: u64,
    ) -> Result<(), StorageError> {
        self.buffer.clear();
        meta.encode(&mut self.buffer);
        let meta_bytes = self.buffer.len() as u64;
        self.buffer.extend_from_slice(page);
        let payload = self.file.append(&self.buffer)?;
        let offset = payload + meta_bytes;
        let entry = SealedPageEntry::new(&meta, self.segment.clone(), offset, page.len() as u32);
        self.pages.push((meta, Arc::new(entry)));
        self.samples += samples;
        Ok(())
    }
}

/// Builds a page from the given series: those without a time range are read from `page`, the others
/// from the WAL.
fn salvage(
    page: Option<&PageReader>,
    meta: SealedPageMeta,
    slots: &[(SeriesSlot, Option<TimeRange>)],
    log: &RecoveredLogSamples,
) -> Result<Option<(SealedPageMeta, Vec<u8>, u64)>, DecodeError> {
    let mut builder = PageBuilder::new(page::LogSpan {
        log_from: meta.unsealed_after.next(),
        log_to: meta.sealed_up_to,
    });
    let (mut scratch, mut kept) = (PageDecodeScratch::default(), Vec::new());
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
        pushed.map_err(|_| DecodeError("column too long for a page"))?;
        kept.push(*slot);
        range = TimeRange::hull_of(range, Some(times));
    }
    let samples = builder.sample_count();
    let Some((range, page)) = range.zip(builder.finish()) else {
        return Ok(None);
    };
    let meta = SealedPageMeta {
        range,
        places: pages::places_in_group(meta.group, &kept),
        ..meta
    };
    Ok(Some((meta, page, samples)))
}

fn read_column(
    page: &PageReader,
    slot: SeriesSlot,
    scratch: &mut PageDecodeScratch,
) -> Result<Option<SampleColumns>, DecodeError> {
    let Some(column) = page.find_column(slot)? else {
        return Ok(None);
    };
    let mut columns = SampleColumns::default();
    page.decode(&column, TimeRange::ALL, scratch, &mut columns)?;
    Ok((!columns.times.is_empty()).then_some(columns))
}
