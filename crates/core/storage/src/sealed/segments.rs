//! The folder of page segments: the segments found at start, the growing one and the ones to be
//! removed.
//!
//! The pages of a two-hour epoch are in the same segments, so whole files can be removed once
//! blocks contain their samples or the retention ends. There is one writer at a time. After a
//! failed write or sync, a segment is never written again, because a repeated sync may report
//! success for pages that were lost. Its samples that were not durable are sealed again into the
//! next segment, and a start handles the file like any other without a directory.

use super::cache::PageCache;
use super::directory::{SealedPageDirectory, SealedPageEntry};
use super::file_pool::SegmentFilePool;
use super::meta::SealedPageMeta;
use super::segment::{self, LoadedPageSegment, PAGES, PageSegment, PageWithMeta};
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::fan_out::map;
use crate::file::append_only::{self, AppendOnlyFile};
use crate::file::header::FILE_HEADER_BYTES;
use crate::index::epoch_from_time;
use crate::manifest::{Manifest, PageSegmentEntry, PageSegmentState};
use crate::page;
use firn_model::env::Env;
use firn_model::log::LogPosition;
use firn_model::sample::TimestampMs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The segment to which pages are appended. There is at most one at a time.
struct GrowingPageSegment {
    file: AppendOnlyFile,
    segment: Arc<PageSegment>,
    pages: Vec<PageWithMeta>,
    samples: u64,
    /// Two-hour epoch of its first page.
    epoch: i64,
}

/// A segment that no longer grows, because it is complete or was abandoned after an error.
#[derive(Clone, Debug)]
struct FinishedPageSegment {
    number: LogPosition,
    newest: TimestampMs,
    entry: PageSegmentEntry,
    /// Time of its oldest sample, if a disk fault prevented reading all of it at start.
    undelivered_from: Option<TimestampMs>,
}

/// A segment that was taken out for removal and that the manifest may still list.
pub(crate) struct ReplacedPageSegment(FinishedPageSegment);

/// All segments of a store, with the only writer of pages.
pub(crate) struct PageSegmentSet {
    env: Env,
    files: Arc<SegmentFilePool>,
    dir: PathBuf,
    segment_bytes: u64,
    next: LogPosition,
    growing: Option<GrowingPageSegment>,
    finished: Vec<FinishedPageSegment>,
    /// Segments that the manifest no longer lists and whose files may still exist.
    leaving: Vec<LogPosition>,
    /// Manifest entries of segments or parts that are lost.
    lost: Vec<PageSegmentEntry>,
    buffer: Vec<u8>,
}

/// The result of reading the folder of segments at start.
pub(crate) struct OpenedPageSegments {
    /// The segments, ready for appending.
    pub(crate) segments: PageSegmentSet,
    /// All pages, in the order in which they were sealed.
    pub(crate) pages: Vec<PageWithMeta>,
    /// Damage to segments that could not be read completely.
    pub(crate) damages: Vec<Damage>,
}

impl PageSegmentSet {
    /// Reads the directories of all segments in `dir`, which must exist, on the compute threads,
    /// and compares them with `manifest`.
    pub(crate) fn open(
        env: &Env,
        dir: &Path,
        segment_bytes: u64,
        manifest: &Manifest,
    ) -> Result<OpenedPageSegments, StorageError> {
        let files = Arc::new(SegmentFilePool::new(env.disk.clone()));
        let numbers = PAGES.list(env, dir)?;
        let loads = map(&*env.compute, numbers.len(), |i| {
            segment::load(env, &files, dir, numbers[i], manifest.segment(numbers[i]))
        });
        let mut found = OpenedPageSegments {
            segments: Self {
                env: env.clone(),
                files,
                dir: dir.to_path_buf(),
                segment_bytes,
                next: LogPosition(1),
                growing: None,
                finished: Vec::new(),
                leaving: Vec::new(),
                lost: Vec::new(),
                buffer: Vec::new(),
            },
            pages: Vec::new(),
            damages: Vec::new(),
        };
        for (number, loaded) in numbers.into_iter().zip(loads) {
            if let Some(loaded) = loaded? {
                found.add_segment(number, loaded, manifest.segment(number));
            }
        }
        found.report_missing_segments(manifest);
        Ok(found)
    }

    /// Returns the manifest entries of all segments, in ascending order of their numbers.
    pub(crate) fn entries(&self) -> Vec<PageSegmentEntry> {
        let growing = self.growing.iter().map(|growing| PageSegmentEntry {
            number: growing.segment.number,
            state: PageSegmentState::Growing,
            bytes: growing.file.durable_bytes(),
            crc: None,
            pages: growing.pages.len() as u64,
            samples: Some(growing.samples),
            range: segment::pages_range(&growing.pages),
        });
        let finished = self.finished.iter().map(|finished| finished.entry.clone());
        let mut entries: Vec<_> = finished.chain(growing).collect();
        entries.extend(self.lost.iter().cloned());
        entries.sort_by_key(|entry| entry.number);
        entries
    }

    /// Appends a page. It is durable after the next [`PageSegmentSet::sync`].
    pub(crate) fn append(
        &mut self,
        meta: SealedPageMeta,
        page: &[u8],
    ) -> Result<Arc<SealedPageEntry>, StorageError> {
        let epoch = epoch_from_time(meta.range.max);
        let is_over =
            |g: &GrowingPageSegment| g.file.bytes() >= self.segment_bytes || epoch > g.epoch;
        if self.growing.as_ref().is_some_and(is_over) {
            self.finish()?;
        }
        if self.growing.is_none() {
            self.begin(epoch)?;
        }
        self.buffer.clear();
        meta.encode(&mut self.buffer);
        let meta_bytes = self.buffer.len() as u64;
        self.buffer.extend_from_slice(page);
        let growing = self.growing.as_mut().expect("begun above");
        let payload = growing.file.append(&self.buffer)?;
        let (offset, bytes) = (payload + meta_bytes, page.len() as u32);
        let entry = SealedPageEntry::new(&meta, growing.segment.clone(), offset, bytes);
        let entry = Arc::new(entry);
        growing.pages.push((meta, entry.clone()));
        growing.samples += page::peek_sample_count(page).unwrap_or(0);
        Ok(entry)
    }

    fn begin(&mut self, epoch: i64) -> Result<(), StorageError> {
        let path = PAGES.path(&self.dir, self.next);
        // An earlier attempt that failed may have left this file without any page.
        append_only::remove(&self.env, &path)?;
        let file = AppendOnlyFile::create(&self.env, path, PAGES, self.next)?;
        self.growing = Some(GrowingPageSegment {
            segment: Arc::new(PageSegment::new(self.next, &self.files, file.path())),
            file,
            pages: Vec::new(),
            samples: 0,
            epoch,
        });
        Ok(())
    }

    /// Makes all appended pages durable. Readers must not find a page before that.
    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        match &mut self.growing {
            Some(growing) => growing.file.sync(),
            None => Ok(()),
        }
    }

    /// Completes the growing segment, if there is one, by writing its directory.
    pub(crate) fn finish(&mut self) -> Result<(), StorageError> {
        let Some(growing) = &mut self.growing else {
            return Ok(());
        };
        // A directory must not become durable before the pages that it lists.
        growing.file.sync()?;
        segment::write_directory(&mut growing.file, &growing.pages)?;
        self.end_growing(PageSegmentState::Complete);
        Ok(())
    }

    /// Stops appending to the growing segment after a failure. Its file stays unchanged until the
    /// next start, or until none of its pages is needed.
    pub(crate) fn abandon(&mut self) {
        self.end_growing(PageSegmentState::Growing);
    }

    fn end_growing(&mut self, state: PageSegmentState) {
        let Some(growing) = self.growing.take() else {
            return;
        };
        // A frame with the next number may have been written partially; skip that number.
        self.next = growing.file.last().next().next();
        let is_complete = state == PageSegmentState::Complete;
        self.finished.push(FinishedPageSegment {
            number: growing.segment.number,
            newest: newest_time(&growing.pages),
            entry: PageSegmentEntry {
                number: growing.segment.number,
                state,
                bytes: growing.file.durable_bytes(),
                crc: growing.file.crc().filter(|_| is_complete),
                pages: growing.pages.len() as u64,
                // The number of durable samples in an abandoned segment cannot be determined.
                samples: is_complete.then_some(growing.samples),
                range: segment::pages_range(&growing.pages),
            },
            undelivered_from: None,
        });
    }

    /// Returns an error if a segment that could not be read at start has samples before `end`.
    /// Segments with an undetermined time range are ignored.
    pub(crate) fn check_readable_before(&self, end: TimestampMs) -> Result<(), StorageError> {
        let is_lacking =
            |f: &&FinishedPageSegment| f.undelivered_from.is_some_and(|from| from < end);
        match self.finished.iter().find(is_lacking) {
            None => Ok(()),
            Some(lacking) => Err(StorageError::Undelivered {
                path: PAGES.path(&self.dir, lacking.number),
                source: std::io::Error::other("the disk did not deliver it at the start"),
            }),
        }
    }

    /// Takes out the segments all of whose samples are older than `cutoff`. The caller removes them
    /// once the manifest does not list them.
    pub(crate) fn take_segments_before(
        &mut self,
        cutoff: TimestampMs,
    ) -> Result<Vec<ReplacedPageSegment>, StorageError> {
        let is_old = |g: &GrowingPageSegment| newest_time(&g.pages) < cutoff;
        if self.growing.as_ref().is_some_and(is_old) {
            self.finish()?;
        }
        let is_gone =
            |entry: &PageSegmentEntry| entry.range.is_some_and(|range| range.max < cutoff);
        self.lost.retain(|entry| !is_gone(entry));
        let mut old = Vec::new();
        while let Some(at) = self.finished.iter().position(|f| f.newest < cutoff) {
            old.push(ReplacedPageSegment(self.finished.swap_remove(at)));
        }
        Ok(old)
    }

    /// Returns the cutoff time that removes at least `bytes` bytes of segments, or as many as
    /// possible. Only finished segments that end before `closed` are considered; returns `None` if
    /// there are none.
    pub(crate) fn find_size_cutoff(&self, bytes: u64, closed: TimestampMs) -> Option<TimestampMs> {
        let closed = self.finished.iter().filter(|f| f.newest < closed);
        let mut oldest: Vec<&FinishedPageSegment> = closed.collect();
        oldest.sort_by_key(|f| (f.newest, f.number));
        let mut freed: u64 = 0;
        let mut last = None;
        for finished in oldest {
            if freed >= bytes {
                break;
            }
            freed = freed.saturating_add(finished.entry.bytes);
            last = Some(finished.newest.saturating_add(1));
        }
        last
    }

    /// Returns the total size of the segments with samples at or after `from`, in bytes.
    pub(crate) fn count_bytes_since(&self, from: TimestampMs) -> u64 {
        let finished = self.finished.iter().filter(|f| f.newest >= from);
        let growing = self.growing.iter().map(|growing| growing.file.bytes());
        finished.map(|f| f.entry.bytes).chain(growing).sum()
    }

    /// Takes back segments because the manifest without them could not be written.
    pub(crate) fn restore_segments(&mut self, old: impl IntoIterator<Item = ReplacedPageSegment>) {
        self.finished
            .extend(old.into_iter().map(|ReplacedPageSegment(old)| old));
    }

    /// Schedules segments for removal after a manifest without them is durable.
    pub(crate) fn schedule_removal(&mut self, old: Vec<ReplacedPageSegment>) {
        self.leaving
            .extend(old.iter().map(|ReplacedPageSegment(old)| old.number));
    }

    /// Removes the segments scheduled for removal and returns the number of removed ones. Failed
    /// removals are retried by the next call.
    pub(crate) fn remove_scheduled(
        &mut self,
        directory: &SealedPageDirectory,
        cache: &PageCache,
    ) -> usize {
        let before = self.leaving.len();
        let (env, dir) = (&self.env, &self.dir);
        self.leaving.retain(|number| {
            directory.remove_segment(*number);
            cache.evict_segment(*number);
            let removed = append_only::remove(env, &PAGES.path(dir, *number));
            removed
                .inspect_err(|e| tracing::error!(error = %e, "failed to remove obsolete pages"))
                .is_err()
        });
        before - self.leaving.len()
    }

    /// Returns whether any segment waits for its removal.
    pub(crate) fn has_scheduled(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns the pool that opens the segment files for reading.
    pub(crate) fn files(&self) -> &Arc<SegmentFilePool> {
        &self.files
    }

    /// Returns the number of segments, including the growing one.
    pub(crate) fn count(&self) -> usize {
        self.finished.len() + usize::from(self.growing.is_some())
    }
}

impl OpenedPageSegments {
    /// Adds a segment that was read, with its pages and its damage.
    fn add_segment(
        &mut self,
        number: LogPosition,
        loaded: LoadedPageSegment,
        known: Option<&PageSegmentEntry>,
    ) {
        let segments = &mut self.segments;
        segments.next = segments.next.max(loaded.next);
        let known_newest = known.and_then(|known| known.range).map(|range| range.max);
        // An unreadable segment may contain new samples, so retention must not remove it early.
        let is_unknown = loaded.pages.is_empty() && !loaded.damages.is_empty();
        let newest = if loaded.is_unreadable || is_unknown {
            known_newest.unwrap_or(i64::MAX)
        } else {
            newest_time(&loaded.pages)
        };
        // Record the loss in the manifest, so that queries after later starts still return a
        // warning.
        if !loaded.is_unreadable
            && let Some(known) = known
            && let Some(lost) = loaded.damages.iter().find_map(|damage| damage.samples)
        {
            segments.lost.push(PageSegmentEntry {
                state: PageSegmentState::Lost,
                samples: Some(lost),
                crc: None,
                ..known.clone()
            });
        }
        let range = known.and_then(|known| known.range).or(loaded.entry.range);
        let undelivered = range.filter(|_| loaded.is_unreadable);
        segments.finished.push(FinishedPageSegment {
            number,
            newest,
            entry: loaded.entry,
            undelivered_from: undelivered.map(|range| range.min),
        });
        self.pages.extend(loaded.pages);
        self.damages.extend(loaded.damages);
    }

    /// Reports the segments that the manifest lists and that are missing.
    fn report_missing_segments(&mut self, manifest: &Manifest) {
        let segments = &mut self.segments;
        let is_there = |number| segments.finished.iter().any(|f| f.number == number);
        let mut missing = Vec::new();
        for entry in &manifest.segments {
            let path = PAGES.path(&segments.dir, entry.number);
            // The segment was abandoned before any of its pages was durable; the WAL still has its
            // samples.
            let is_empty = entry.pages == 0 || entry.bytes <= FILE_HEADER_BYTES;
            let what = match entry.state {
                PageSegmentState::Lost => "a part of it was lost before this start",
                _ if is_there(entry.number) || is_empty => continue,
                _ => "the file is missing",
            };
            self.damages.push(Damage {
                samples: entry.samples,
                range: entry.range,
                ..Damage::for_file(DamageKind::Pages, &path, what.to_owned())
            });
            missing.push(PageSegmentEntry {
                state: PageSegmentState::Lost,
                ..entry.clone()
            });
        }
        let behind = manifest.segments.last().map(|entry| entry.number.next());
        segments.next = segments.next.max(behind.unwrap_or_default());
        segments.lost.extend(missing);
    }
}

fn newest_time(pages: &[PageWithMeta]) -> TimestampMs {
    let newest = pages.iter().map(|(meta, _)| meta.range.max);
    newest.max().unwrap_or(i64::MIN)
}
