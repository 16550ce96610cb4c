//! Copies of head series for readers: closed chunks are shared, open chunks are copied into one
//! buffer.
//!
//! No memory is allocated per series, so that a reader holds a shard's lock for little more than
//! the copy itself. Invariant: a copy never changes, and samples that were hidden when it was made
//! stay hidden.

use super::series::MemSeries;
use crate::chunk::{Chunk, ChunkView, DecodedTimesCache, SampleColumns};
use crate::encoding::DecodeError;
use firn_model::sample::{TimeRange, TimestampMs};

/// Copies of several series, numbered in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct SeriesCopies {
    closed: Vec<Chunk>,
    /// Memory of the closed chunks, in bytes.
    closed_bytes: usize,
    open: Vec<u8>,
    ends: Vec<SeriesCopyEnd>,
}

/// End of the copy of one series; it begins at the end of the previous one.
#[derive(Clone, Copy, Debug, Default)]
struct SeriesCopyEnd {
    closed: u32,
    /// Number of readable samples of the last chunk; all other chunks are fully readable.
    last_samples: u32,
    open: usize,
}

/// The copy of one series in [`SeriesCopies`]: readable samples of its chunks, oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeriesCopy<'a> {
    /// Closed chunks that overlap the copied range, oldest first.
    closed: &'a [Chunk],
    /// Copy of the open chunk, which is newer than the closed ones.
    open: Option<ChunkView<'a>>,
    last_samples: usize,
}

impl SeriesCopies {
    /// Copies only the newest sample of `series`. Returns false and adds nothing if the sample is
    /// outside `range` or is not a plain float.
    pub(crate) fn add_newest(&mut self, series: &MemSeries, range: TimeRange) -> bool {
        let open = &series.open;
        let added = range.contains(open.last_time()) && open.write_newest_to(&mut self.open);
        if added {
            self.ends.push(SeriesCopyEnd {
                closed: self.closed.len() as u32,
                last_samples: 1,
                open: self.open.len(),
            });
        }
        added
    }

    /// Copies the chunks of `series` that overlap `range`, without its newest `hidden` samples.
    /// Returns false and adds nothing if no chunk is left.
    pub(crate) fn add(&mut self, series: &MemSeries, range: TimeRange, mut hidden: usize) -> bool {
        let first_closed = self.closed.len();
        let mut last_samples = None;
        // Newest chunk first, because the hidden samples are the newest ones.
        let open = &series.open;
        let span = TimeRange::new(open.first_time(), open.last_time());
        let seen = count_visible(open.sample_count(), &mut hidden);
        if seen > 0 && span.overlaps(&range) && open.write_to(&mut self.open) {
            last_samples = Some(seen);
        }
        for chunk in series.closed().iter().rev() {
            let span = chunk.range();
            if span.max < range.min {
                break;
            }
            let seen = count_visible(chunk.sample_count(), &mut hidden);
            if seen > 0 && span.overlaps(&range) {
                last_samples = last_samples.or(Some(seen));
                self.closed_bytes += chunk.memory_bytes();
                self.closed.push(chunk.clone());
            }
        }
        self.closed[first_closed..].reverse();
        let Some(last_samples) = last_samples else {
            return false;
        };
        self.ends.push(SeriesCopyEnd {
            closed: self.closed.len() as u32,
            last_samples: last_samples as u32,
            open: self.open.len(),
        });
        true
    }

    /// Returns an estimate of the bytes that one more series of the same kind takes; `None` if
    /// there are no copies yet.
    pub(crate) fn estimate_copy_bytes(&self) -> Option<usize> {
        let each = (self.closed_bytes + self.open.len()).checked_div(self.len())?;
        Some(each + each / 8 + size_of::<SeriesCopyEnd>())
    }

    /// Reserves memory for the open chunks of `series` more series of `bytes_each` bytes.
    pub(crate) fn reserve_memory(&mut self, series: usize, bytes_each: usize) {
        self.ends.reserve(series);
        self.open.reserve(series.saturating_mul(bytes_each));
    }

    /// Releases reserved memory if most of it was not used.
    pub(crate) fn release_unused_memory(&mut self) {
        if self.open.len() < self.open.capacity() / 2 {
            self.open.shrink_to_fit();
        }
    }

    /// Returns the number of copies.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the copy with this number, which must be less than [`SeriesCopies::len`].
    #[inline]
    pub(crate) fn get(&self, number: usize) -> SeriesCopy<'_> {
        let before = number.checked_sub(1).map(|i| self.ends[i]);
        let (start, end) = (before.unwrap_or_default(), self.ends[number]);
        let open = &self.open[start.open..end.open];
        SeriesCopy {
            closed: &self.closed[start.closed as usize..end.closed as usize],
            open: (!open.is_empty()).then(|| ChunkView::new(open)),
            last_samples: end.last_samples as usize,
        }
    }

    /// Returns the size of all copied chunks in bytes, shared chunks included.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.closed_bytes + self.open.len()
    }

    /// Returns the memory of all copies in bytes, shared chunks included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.closed_bytes
            + self.closed.capacity() * size_of::<Chunk>()
            + self.open.capacity()
            + self.ends.capacity() * size_of::<SeriesCopyEnd>()
    }
}

/// Returns the number of visible samples of a chunk if the newest `hidden` samples are hidden, and
/// subtracts the hidden ones from `hidden`.
fn count_visible(count: usize, hidden: &mut usize) -> usize {
    let hidden_here = count.min(*hidden);
    *hidden -= hidden_here;
    count - hidden_here
}

impl<'a> SeriesCopy<'a> {
    fn chunks(self) -> impl Iterator<Item = ChunkView<'a>> {
        self.closed.iter().map(Chunk::view).chain(self.open)
    }

    /// Returns the time of the first sample.
    pub(crate) fn first_time(self) -> Option<TimestampMs> {
        self.chunks().next().map(|chunk| chunk.range().min)
    }

    /// Returns the chunk and its number of readable samples if the copy has exactly one chunk.
    #[inline]
    pub(crate) fn sole_chunk(self) -> Option<(ChunkView<'a>, usize)> {
        let chunk = match (self.closed, self.open) {
            ([], open) => open?,
            ([closed], None) => closed.view(),
            _ => return None,
        };
        Some((chunk, self.last_samples))
    }

    /// Returns the time range from the first sample to the last one.
    pub(crate) fn range(self) -> Option<TimeRange> {
        let last = self.chunks().last()?.range().max;
        Some(TimeRange::new(self.first_time()?, last))
    }

    /// Appends the samples to `into`. A chunk that cannot be decoded is skipped; the first such
    /// error is returned after all others are decoded.
    pub(crate) fn decode(
        self,
        known: &mut DecodedTimesCache,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
        let count = self.chunks().count();
        let mut outcome = Ok(());
        for (i, chunk) in self.chunks().enumerate() {
            let is_last = i + 1 == count;
            let samples_max = if is_last {
                self.last_samples
            } else {
                usize::MAX
            };
            let before = into.times.len();
            if let Err(e) = chunk.decode(samples_max, known, into) {
                into.truncate(before);
                outcome = outcome.and(Err(e));
            }
        }
        outcome
    }
}
