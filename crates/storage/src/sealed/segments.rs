//! The folder of page segments: what is there at a start, the one that grows, and the ones that go.
//!
//! Pages of one two-hour epoch share segments, so retention is an `unlink`. One caller at a time
//! writes. A segment is never written again after a failed write or sync, since a retried sync may
//! lie; what it held without being durable is sealed again into the next one, and a start treats it
//! as what it is: a file without a directory.

use super::cache::PageCache;
use super::directory::{Directory, PageEntry};
use super::file_pool::FilePool;
use super::meta::PageMeta;
use super::segment::{self, Loaded, PAGES, Placed, Segment};
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::fan_out::map;
use crate::file::append_only::{self, AppendOnlyFile};
use crate::file::header::FILE_HEADER_BYTES;
use crate::index::epoch_of;
use crate::manifest::{Manifest, SegmentEntry, SegmentState};
use crate::page;
use firn_model::env::Env;
use firn_model::log::Position;
use firn_model::sample::TimestampMs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The segment that grows.
struct Growing {
    file: AppendOnlyFile,
    segment: Arc<Segment>,
    pages: Vec<Placed>,
    samples: u64,
    /// Of its first page.
    epoch: i64,
}

/// A segment that does not grow any more.
#[derive(Clone, Debug)]
struct Finished {
    number: Position,
    newest: TimestampMs,
    entry: SegmentEntry,
    /// The oldest of its samples, if the disk did not deliver all of it at the start.
    undelivered_from: Option<TimestampMs>,
}

/// A segment that left the retention.
pub(crate) struct Old(Finished);

/// See the module.
pub(crate) struct Segments {
    env: Env,
    files: Arc<FilePool>,
    dir: PathBuf,
    segment_bytes: u64,
    next: Position,
    growing: Option<Growing>,
    finished: Vec<Finished>,
    /// Those that no manifest names any more and whose files are there, or may be.
    leaving: Vec<Position>,
    /// What the manifest named and is not there.
    lost: Vec<SegmentEntry>,
    buffer: Vec<u8>,
}

/// What a start found.
pub(crate) struct Found {
    /// The folder.
    pub(crate) segments: Segments,
    /// All pages, in the order in which they were sealed.
    pub(crate) pages: Vec<Placed>,
    /// What could not be read.
    pub(crate) damages: Vec<Damage>,
}

impl Segments {
    /// Reads the directories of all segments in `dir`, which exists, on the compute threads, and
    /// compares them with what `manifest` says.
    pub(crate) fn open(
        env: &Env,
        dir: &Path,
        segment_bytes: u64,
        manifest: &Manifest,
    ) -> Result<Found, StorageError> {
        let files = Arc::new(FilePool::new(env.disk.clone()));
        let numbers = PAGES.list(env, dir)?;
        let loads = map(&*env.compute, numbers.len(), |i| {
            segment::load(env, &files, dir, numbers[i], manifest.segment(numbers[i]))
        });
        let mut found = Found {
            segments: Self {
                env: env.clone(),
                files,
                dir: dir.to_path_buf(),
                segment_bytes,
                next: Position(1),
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
                found.take(number, loaded, manifest.segment(number));
            }
        }
        found.miss(manifest);
        Ok(found)
    }

    /// What the manifest is to say of the segments, in the order of their numbers.
    pub(crate) fn entries(&self) -> Vec<SegmentEntry> {
        let growing = self.growing.iter().map(|growing| SegmentEntry {
            number: growing.segment.number,
            state: SegmentState::Growing,
            bytes: growing.file.durable_bytes(),
            crc: None,
            pages: growing.pages.len() as u64,
            samples: Some(growing.samples),
            range: segment::range_of(&growing.pages),
        });
        let finished = self.finished.iter().map(|finished| finished.entry.clone());
        let mut entries: Vec<_> = finished.chain(growing).collect();
        entries.extend(self.lost.iter().cloned());
        entries.sort_by_key(|entry| entry.number);
        entries
    }

    /// Writes a page. It is durable after the next [`Segments::sync`].
    pub(crate) fn append(
        &mut self,
        meta: PageMeta,
        page: &[u8],
    ) -> Result<Arc<PageEntry>, StorageError> {
        let epoch = epoch_of(meta.range.max);
        let is_over = |g: &Growing| g.file.bytes() >= self.segment_bytes || epoch > g.epoch;
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
        let entry = PageEntry::new(&meta, growing.segment.clone(), offset, bytes);
        let entry = Arc::new(entry);
        growing.pages.push((meta, entry.clone()));
        growing.samples += page::sample_count(page).unwrap_or(0);
        Ok(entry)
    }

    fn begin(&mut self, epoch: i64) -> Result<(), StorageError> {
        let path = PAGES.path(&self.dir, self.next);
        // An attempt that failed may have left it, with no page in it.
        append_only::remove(&self.env, &path)?;
        let file = AppendOnlyFile::create(&self.env, path, PAGES, self.next)?;
        self.growing = Some(Growing {
            segment: Arc::new(Segment::new(self.next, &self.files, file.path())),
            file,
            pages: Vec::new(),
            samples: 0,
            epoch,
        });
        Ok(())
    }

    /// Makes the pages that were written durable.
    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        match &mut self.growing {
            Some(growing) => growing.file.sync(),
            None => Ok(()),
        }
    }

    /// Ends the segment that grows, if there is one, with its directory.
    pub(crate) fn finish(&mut self) -> Result<(), StorageError> {
        let Some(growing) = &mut self.growing else {
            return Ok(());
        };
        // The directory vouches for the pages before it.
        growing.file.sync()?;
        segment::write_directory(&mut growing.file, &growing.pages)?;
        self.end_growing(SegmentState::Complete);
        Ok(())
    }

    /// Gives the segment that grows up after a failure. It stays as it is until the next start,
    /// or until its pages left the retention.
    pub(crate) fn abandon(&mut self) {
        self.end_growing(SegmentState::Growing);
    }

    fn end_growing(&mut self, state: SegmentState) {
        let Some(growing) = self.growing.take() else {
            return;
        };
        // A number may have been used that is not known to have been written.
        self.next = growing.file.last().next().next();
        let is_complete = state == SegmentState::Complete;
        self.finished.push(Finished {
            number: growing.segment.number,
            newest: newest_of(&growing.pages),
            entry: SegmentEntry {
                number: growing.segment.number,
                state,
                bytes: growing.file.durable_bytes(),
                crc: growing.file.crc().filter(|_| is_complete),
                pages: growing.pages.len() as u64,
                // Which pages of a segment that was given up are durable is not known.
                samples: is_complete.then_some(growing.samples),
                range: segment::range_of(&growing.pages),
            },
            undelivered_from: None,
        });
    }

    /// An error if a segment that the disk did not deliver at the start has samples before `end`.
    /// One whose times are not known does not count.
    pub(crate) fn check_delivered_before(&self, end: TimestampMs) -> Result<(), StorageError> {
        let is_lacking = |f: &&Finished| f.undelivered_from.is_some_and(|from| from < end);
        match self.finished.iter().find(is_lacking) {
            None => Ok(()),
            Some(lacking) => Err(StorageError::Undelivered {
                path: PAGES.path(&self.dir, lacking.number),
                source: std::io::Error::other("the disk did not deliver it at the start"),
            }),
        }
    }

    /// Takes out the segments all of whose samples are older than `cutoff`; they are to be removed
    /// once the manifest does not name them.
    pub(crate) fn take_before(&mut self, cutoff: TimestampMs) -> Result<Vec<Old>, StorageError> {
        let is_old = |g: &Growing| newest_of(&g.pages) < cutoff;
        if self.growing.as_ref().is_some_and(is_old) {
            self.finish()?;
        }
        let is_gone = |entry: &SegmentEntry| entry.range.is_some_and(|range| range.max < cutoff);
        self.lost.retain(|entry| !is_gone(entry));
        let mut old = Vec::new();
        while let Some(at) = self.finished.iter().position(|f| f.newest < cutoff) {
            old.push(Old(self.finished.swap_remove(at)));
        }
        Ok(old)
    }

    /// The time before which segments go so that so many bytes do, or as many as there are; none if
    /// none is wholly before `closed`. The one that grows does not count.
    pub(crate) fn cutoff_for(&self, bytes: u64, closed: TimestampMs) -> Option<TimestampMs> {
        let closed = self.finished.iter().filter(|f| f.newest < closed);
        let mut oldest: Vec<&Finished> = closed.collect();
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

    /// Bytes of the segments with samples at `from` or later.
    pub(crate) fn bytes_from(&self, from: TimestampMs) -> u64 {
        let finished = self.finished.iter().filter(|f| f.newest >= from);
        let growing = self.growing.iter().map(|growing| growing.file.bytes());
        finished.map(|f| f.entry.bytes).chain(growing).sum()
    }

    /// Takes back segments that a manifest still names.
    pub(crate) fn put_back(&mut self, old: impl IntoIterator<Item = Old>) {
        self.finished.extend(old.into_iter().map(|Old(old)| old));
    }

    /// Gives up segments that were taken out and that no manifest names any more.
    pub(crate) fn leave(&mut self, old: Vec<Old>) {
        self.leaving.extend(old.iter().map(|Old(old)| old.number));
    }

    /// Removes the segments that were given up; returns how many. Of those that cannot be removed
    /// now the file may be gone or not: they are tried again with the next call.
    pub(crate) fn remove_leaving(&mut self, directory: &Directory, cache: &PageCache) -> usize {
        let before = self.leaving.len();
        let (env, dir) = (&self.env, &self.dir);
        self.leaving.retain(|number| {
            directory.forget(*number);
            cache.forget(*number);
            let removed = append_only::remove(env, &PAGES.path(dir, *number));
            removed
                .inspect_err(|e| tracing::error!(error = %e, "failed to remove obsolete pages"))
                .is_err()
        });
        before - self.leaving.len()
    }

    /// What opens their files for reading.
    pub(crate) fn files(&self) -> &Arc<FilePool> {
        &self.files
    }

    /// How many segments there are.
    pub(crate) fn count(&self) -> usize {
        self.finished.len() + usize::from(self.growing.is_some())
    }
}

impl Found {
    /// Takes what stands in a segment.
    fn take(&mut self, number: Position, loaded: Loaded, known: Option<&SegmentEntry>) {
        let segments = &mut self.segments;
        segments.next = segments.next.max(loaded.next);
        let known_newest = known.and_then(|known| known.range).map(|range| range.max);
        // A segment that cannot be read may hold new samples.
        let is_unknown = loaded.pages.is_empty() && !loaded.damages.is_empty();
        let newest = match loaded.is_unreadable || is_unknown {
            true => known_newest.unwrap_or(i64::MAX),
            false => newest_of(&loaded.pages),
        };
        // What is gone from it is remembered beside it: queries go on being warned.
        if !loaded.is_unreadable
            && let Some(known) = known
            && let Some(lost) = loaded.damages.iter().find_map(|damage| damage.samples)
        {
            segments.lost.push(SegmentEntry {
                state: SegmentState::Lost,
                samples: Some(lost),
                crc: None,
                ..known.clone()
            });
        }
        let range = known.and_then(|known| known.range).or(loaded.entry.range);
        let undelivered = range.filter(|_| loaded.is_unreadable);
        segments.finished.push(Finished {
            number,
            newest,
            entry: loaded.entry,
            undelivered_from: undelivered.map(|range| range.min),
        });
        self.pages.extend(loaded.pages);
        self.damages.extend(loaded.damages);
    }

    /// Says what the manifest names and is not there.
    fn miss(&mut self, manifest: &Manifest) {
        let segments = &mut self.segments;
        let is_there = |number| segments.finished.iter().any(|f| f.number == number);
        let mut missing = Vec::new();
        for entry in &manifest.segments {
            let path = PAGES.path(&segments.dir, entry.number);
            // It was given up before a page of it was durable: the log has what it held.
            let is_empty = entry.pages == 0 || entry.bytes <= FILE_HEADER_BYTES;
            let what = match entry.state {
                SegmentState::Lost => "a part of it was lost before this start",
                _ if is_there(entry.number) || is_empty => continue,
                _ => "the file is missing",
            };
            self.damages.push(Damage {
                samples: entry.samples,
                range: entry.range,
                ..Damage::of_file(DamageKind::Pages, &path, what.to_owned())
            });
            missing.push(SegmentEntry {
                state: SegmentState::Lost,
                ..entry.clone()
            });
        }
        let behind = manifest.segments.last().map(|entry| entry.number.next());
        segments.next = segments.next.max(behind.unwrap_or_default());
        segments.lost.extend(missing);
    }
}

fn newest_of(pages: &[Placed]) -> TimestampMs {
    let newest = pages.iter().map(|(meta, _)| meta.range.max);
    newest.max().unwrap_or(i64::MIN)
}
