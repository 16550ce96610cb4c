//! The folder of page segments: what is there at a start, the one that grows, and the ones that go.
//!
//! Pages of one two-hour epoch share segments, so retention is an `unlink`. One caller at a time
//! writes. A segment is never written again after a failed write or sync, since a retried sync may
//! lie; what it held without being durable is sealed again into the next one, and a start treats it
//! as what it is: a file without a directory.

use super::cache::PageCache;
use super::directory::{Directory, PageEntry};
use super::meta::PageMeta;
use super::segment::{self, Loaded, PAGES, Placed, Segment};
use crate::block_file::{self, BlockFile};
use crate::error::StorageError;
use crate::index::epoch_of;
use firn_model::env::Env;
use firn_model::log::Position;
use firn_model::sample::TimestampMs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The segment that grows.
struct Growing {
    file: BlockFile,
    segment: Arc<Segment>,
    pages: Vec<Placed>,
    /// Of its first page.
    epoch: i64,
}

/// A segment that does not grow any more.
#[derive(Clone, Copy, Debug)]
struct Finished {
    number: Position,
    newest: TimestampMs,
}

/// See the module.
pub(crate) struct Segments {
    env: Env,
    dir: PathBuf,
    segment_bytes: u64,
    next: Position,
    growing: Option<Growing>,
    finished: Vec<Finished>,
    buffer: Vec<u8>,
}

/// What a start found.
pub(crate) struct Found {
    /// The folder.
    pub(crate) segments: Segments,
    /// All pages, in the order in which they were sealed.
    pub(crate) pages: Vec<Placed>,
    /// What could not be read.
    pub(crate) damages: Vec<StorageError>,
}

impl Segments {
    /// Reads the directories of all segments in `dir`, which exists, on the compute threads.
    pub(crate) fn open(env: &Env, dir: &Path, segment_bytes: u64) -> Result<Found, StorageError> {
        let numbers = PAGES.list(env, dir)?;
        let loads: Vec<Mutex<Result<Option<Loaded>, StorageError>>> =
            numbers.iter().map(|_| Mutex::new(Ok(None))).collect();
        env.compute.for_each(numbers.len(), &|i| {
            let loaded = segment::load(env, dir, numbers[i]);
            *loads[i].lock().unwrap_or_else(PoisonError::into_inner) = loaded;
        });
        let mut found = Found {
            segments: Self {
                env: env.clone(),
                dir: dir.to_path_buf(),
                segment_bytes,
                next: Position(1),
                growing: None,
                finished: Vec::new(),
                buffer: Vec::new(),
            },
            pages: Vec::new(),
            damages: Vec::new(),
        };
        for (number, load) in numbers.into_iter().zip(loads) {
            let loaded = load.into_inner().unwrap_or_else(PoisonError::into_inner);
            let Some(loaded) = loaded? else {
                continue;
            };
            let segments = &mut found.segments;
            segments.next = segments.next.max(loaded.next);
            segments.finished.push(Finished {
                number,
                newest: newest_of(&loaded.pages),
            });
            found.pages.extend(loaded.pages);
            found.damages.extend(loaded.damages);
        }
        Ok(found)
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
        Ok(entry)
    }

    fn begin(&mut self, epoch: i64) -> Result<(), StorageError> {
        let path = PAGES.path(&self.dir, self.next);
        let file = BlockFile::create(&self.env, path, PAGES, self.next)?;
        self.growing = Some(Growing {
            segment: Arc::new(Segment::new(self.next, file.file(), file.path())),
            file,
            pages: Vec::new(),
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
        self.retire();
        Ok(())
    }

    /// Gives the segment that grows up after a failure. It stays as it is until the next start,
    /// or until its pages left the retention.
    pub(crate) fn abandon(&mut self) {
        self.retire();
    }

    fn retire(&mut self) {
        let Some(growing) = self.growing.take() else {
            return;
        };
        // A number may have been used that is not known to have been written.
        self.next = growing.file.last().next().next();
        self.finished.push(Finished {
            number: growing.segment.number,
            newest: newest_of(&growing.pages),
        });
    }

    /// Removes the segments all of whose samples are older than `cutoff`; returns how many.
    pub(crate) fn remove_before(
        &mut self,
        cutoff: TimestampMs,
        directory: &Directory,
        cache: &PageCache,
    ) -> Result<usize, StorageError> {
        let is_old = |g: &Growing| newest_of(&g.pages) < cutoff;
        if self.growing.as_ref().is_some_and(is_old) {
            self.finish()?;
        }
        let mut removed = 0;
        while let Some(at) = self.finished.iter().position(|f| f.newest < cutoff) {
            let number = self.finished[at].number;
            directory.forget(number);
            cache.forget(number);
            block_file::remove(&self.env, &PAGES.path(&self.dir, number))?;
            self.finished.swap_remove(at);
            removed += 1;
        }
        Ok(removed)
    }

    /// How many segments there are.
    pub(crate) fn count(&self) -> usize {
        self.finished.len() + usize::from(self.growing.is_some())
    }
}

fn newest_of(pages: &[Placed]) -> TimestampMs {
    let newest = pages.iter().map(|(meta, _)| meta.range.max);
    newest.max().unwrap_or(i64::MIN)
}
