//! What a reader takes away of series of the head: closed chunks are shared, open ones copied, the
//! bytes of all series behind each other.
//!
//! Nothing is allocated for a series, so that a shard's lock is held for little but the copying.
//! Invariant: a copy never changes, and samples that were hidden when it was made stay hidden.

use super::series::Series;
use crate::chunk::{Chunk, ChunkView, Columns, TimesKnown};
use crate::encoding::Malformed;
use firn_model::sample::{TimeRange, TimestampMs};

/// Copies of series, numbered in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    closed: Vec<Chunk>,
    /// Of the chunks themselves.
    closed_bytes: usize,
    open: Vec<u8>,
    ends: Vec<End>,
}

/// Where the copy of a series ends; it begins where the one before ends.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    closed: u32,
    /// Samples to read of the last chunk; all of the others.
    last_samples: u32,
    open: usize,
}

/// The copy of one series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied<'a> {
    /// Oldest first.
    closed: &'a [Chunk],
    /// Newer than those.
    open: Option<ChunkView<'a>>,
    last_samples: usize,
}

impl Copies {
    /// Copies the newest sample of `series` alone; `false`, and nothing is added, if it does not
    /// lie in `range` or is more than a float.
    pub(crate) fn add_newest(&mut self, series: &Series, range: TimeRange) -> bool {
        let open = &series.open;
        let added = range.contains(open.last_time()) && open.write_newest_to(&mut self.open);
        if added {
            self.ends.push(End {
                closed: self.closed.len() as u32,
                last_samples: 1,
                open: self.open.len(),
            });
        }
        added
    }

    /// Copies what overlaps `range` of `series` without its newest `hidden` samples; whether that
    /// is anything. If not, nothing is added.
    pub(crate) fn add(&mut self, series: &Series, range: TimeRange, mut hidden: usize) -> bool {
        let first_closed = self.closed.len();
        let mut last_samples = None;
        // Newest first, because that is where samples are hidden.
        let open = &series.open;
        let span = TimeRange::new(open.first_time(), open.last_time());
        let seen = see(open.sample_count(), &mut hidden);
        if seen > 0 && span.overlaps(&range) && open.write_to(&mut self.open) {
            last_samples = Some(seen);
        }
        for chunk in series.closed().iter().rev() {
            let span = chunk.range();
            if span.max < range.min {
                break;
            }
            let seen = see(chunk.sample_count(), &mut hidden);
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
        self.ends.push(End {
            closed: self.closed.len() as u32,
            last_samples: last_samples as u32,
            open: self.open.len(),
        });
        true
    }

    /// What another series may take if it is like these; `None` if there are none.
    pub(crate) fn bytes_each(&self) -> Option<usize> {
        let each = (self.closed_bytes + self.open.len()).checked_div(self.len())?;
        Some(each + each / 8 + size_of::<End>())
    }

    /// Makes room for the chunks of some more series, of so many bytes each.
    pub(crate) fn make_room(&mut self, series: usize, bytes_each: usize) {
        self.ends.reserve(series);
        self.open.reserve(series.saturating_mul(bytes_each));
    }

    /// Gives back the room that was made, if most of it was not needed.
    pub(crate) fn give_room_back(&mut self) {
        if self.open.len() < self.open.capacity() / 2 {
            self.open.shrink_to_fit();
        }
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The copy with this number.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Copied<'_> {
        let before = number.checked_sub(1).map(|i| self.ends[i]);
        let (start, end) = (before.unwrap_or_default(), self.ends[number]);
        let open = &self.open[start.open..end.open];
        Copied {
            closed: &self.closed[start.closed as usize..end.closed as usize],
            open: (!open.is_empty()).then(|| ChunkView::new(open)),
            last_samples: end.last_samples as usize,
        }
    }

    /// Bytes of memory, those of shared chunks included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.closed_bytes
            + self.closed.capacity() * size_of::<Chunk>()
            + self.open.capacity()
            + self.ends.capacity() * size_of::<End>()
    }
}

/// How many of a chunk's samples may be seen when `hidden` of the newest may not; counts them off.
fn see(count: usize, hidden: &mut usize) -> usize {
    let hidden_here = count.min(*hidden);
    *hidden -= hidden_here;
    count - hidden_here
}

impl<'a> Copied<'a> {
    fn chunks(self) -> impl Iterator<Item = ChunkView<'a>> {
        self.closed.iter().map(Chunk::view).chain(self.open)
    }

    /// The time of its first sample.
    pub(crate) fn first_time(self) -> Option<TimestampMs> {
        self.chunks().next().map(|chunk| chunk.range().min)
    }

    /// The chunk and how many samples may be read of it, if there is only one.
    #[inline]
    pub(crate) fn sole_chunk(self) -> Option<(ChunkView<'a>, usize)> {
        let chunk = match (self.closed, self.open) {
            ([], open) => open?,
            ([closed], None) => closed.view(),
            _ => return None,
        };
        Some((chunk, self.last_samples))
    }

    /// From its first sample to its last.
    pub(crate) fn range(self) -> Option<TimeRange> {
        let last = self.chunks().last()?.range().max;
        Some(TimeRange::new(self.first_time()?, last))
    }

    /// Appends its samples to `into`. Those of a chunk that fails are left out; the first failure
    /// is returned.
    pub(crate) fn decode(
        self,
        known: &mut TimesKnown,
        into: &mut Columns,
    ) -> Result<(), Malformed> {
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
