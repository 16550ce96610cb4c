//! A segment of pages, written anew: every whole page, and of damaged pages the whole columns.

use crate::block_file::{self, BlockFile};
use crate::chunk::Columns;
use crate::codec::Malformed;
use crate::error::StorageError;
use crate::manifest::{Manifest, SegmentEntry, SegmentState};
use crate::page::{PageBuilder, Scratch};
use crate::sealed::directory::PageEntry;
use crate::sealed::file_pool::FilePool;
use crate::sealed::meta::PageMeta;
use crate::sealed::segment::{PAGES, Placed, Segment, range_of, write_directory};
use crate::verify::pages::{self, Examined, FoundPage, Piece};
use crate::verify::slots::Slots;
use firn_model::env::{Env, OpenMode};
use firn_model::log::Position;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

/// A segment while it is written.
struct Writing {
    file: BlockFile,
    segment: Arc<Segment>,
    pages: Vec<Placed>,
    samples: u64,
    buffer: Vec<u8>,
}

/// Puts a segment in the place of the one with this number; returns what the manifest is to say of
/// it. `None` if nothing of it can be read: then it is removed.
pub(super) fn rebuild(
    env: &Env,
    folder: &Path,
    number: Position,
    manifest: &Manifest,
    named: Option<&Slots>,
) -> Result<Option<SegmentEntry>, StorageError> {
    let path = PAGES.path(folder, number);
    let opened = env.disk.open(&path, OpenMode::Read);
    let file = opened.map_err(StorageError::io("open segment", &path))?;
    let old = pages::open(env, file, number, &path, manifest.segment(number))?;
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
            written = writing.take(found, named);
        }
    });
    written?;
    if writing.pages.is_empty() {
        block_file::remove(env, writing.file.path())?;
        block_file::remove(env, &path)?;
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

impl Writing {
    /// Writes what of a page can be read, of the series that are `named`.
    fn take(&mut self, found: FoundPage, named: Option<&Slots>) -> Result<(), StorageError> {
        let Ok(mut examined) = pages::examine(&found.bytes) else {
            return Ok(());
        };
        let meta = found.meta.clone();
        let meta = meta.unwrap_or_else(|| pages::meta_of(&examined));
        let count = examined.whole.len();
        let is_named = |slot: &u32| named.is_none_or(|named| named.has(*slot));
        examined.whole.retain(is_named);
        let is_all = examined.whole.len() == count;
        if is_all && examined.lost.is_empty() && examined.why.is_none() {
            return self.append(meta, &found.bytes, examined.samples);
        }
        match salvage(&examined, meta) {
            Ok(Some((meta, page, samples))) => self.append(meta, &page, samples),
            // Nothing of it is left.
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

/// A page of the columns that can be read.
fn salvage(
    examined: &Examined,
    meta: PageMeta,
) -> Result<Option<(PageMeta, Vec<u8>, u64)>, Malformed> {
    let page = &examined.page;
    let mut builder = PageBuilder::new(page.meta());
    let (mut scratch, mut columns) = (Scratch::default(), Columns::default());
    let mut range: Option<TimeRange> = None;
    for slot in &examined.whole {
        let Some(column) = page.find(*slot)? else {
            continue;
        };
        columns.clear();
        page.decode(&column, TimeRange::ALL, &mut scratch, &mut columns)?;
        // What came out of a page fits one.
        let pushed = builder.push(*slot, None, &columns);
        pushed.map_err(|_| Malformed("column too long for a page"))?;
        let times = column.range();
        let known = range.unwrap_or(times);
        range = Some(TimeRange::new(
            known.min.min(times.min),
            known.max.max(times.max),
        ));
    }
    let samples = builder.sample_count();
    let Some((range, page)) = range.zip(builder.finish()) else {
        return Ok(None);
    };
    let meta = PageMeta {
        range,
        slots: pages::runs_of(examined.whole.iter().copied()),
        ..meta
    };
    Ok(Some((meta, page, samples)))
}
