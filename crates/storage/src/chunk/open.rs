//! The chunk that a series appends to.

use super::decode::Sample;
use super::{BODY_BYTES, Chunk, HISTOGRAM, START, first_time};
use crate::codec::decimal::Scale;
use crate::codec::time::TimeState;
use crate::codec::value::ValueState;
use crate::codec::{histogram, push_uvarint, zigzag};
use firn_model::histogram::Histogram;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use std::sync::Arc;

/// Bytes by which the body's memory grows at first, and the grain of its size: what allocators
/// serve without waste.
const GRAIN_BYTES: usize = 16;

/// The newest samples of a series, still growing. 88 bytes and the body.
#[derive(Debug, Default)]
pub(crate) struct OpenChunk {
    body: Vec<u8>,
    time: TimeState,
    value: ValueState,
    count: u16,
    time_run_at: u16,
    value_run_at: u16,
    known: Known,
    /// Only series with histograms or start timestamps pay for their state.
    rare: Option<Box<Rare>>,
}

/// What is known of the newest sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Nothing,
    Time,
    Sample,
}

#[derive(Debug, Default)]
struct Rare {
    start: TimestampMs,
    histogram: Option<Arc<Histogram>>,
    /// Whether the newest sample is `histogram`.
    ends_in_histogram: bool,
}

/// A series' newest sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Newest<'a> {
    /// A float.
    Float(f64),
    /// A histogram.
    Histogram(&'a Histogram),
    /// Nobody knows any more, or there never was one.
    Unknown,
}

impl OpenChunk {
    /// An empty chunk behind a sample at `time`, whose value may be forgotten.
    pub(crate) fn behind(time: TimestampMs, sample: Option<Sample>) -> Self {
        let mut open = Self {
            time: TimeState::starting_at(time),
            known: if sample.is_some() {
                Known::Sample
            } else {
                Known::Time
            },
            ..Self::default()
        };
        match sample {
            Some(Sample::Float(value)) => open.value.bits = value.to_bits(),
            Some(Sample::Histogram(histogram)) => {
                open.rare = Some(Box::new(Rare {
                    start: START_UNKNOWN,
                    histogram: Some(histogram),
                    ends_in_histogram: true,
                }));
            }
            None => {}
        }
        open
    }

    /// Samples in the chunk.
    pub(crate) fn sample_count(&self) -> usize {
        usize::from(self.count)
    }

    /// The time of the first sample; meaningless while there is none.
    pub(crate) fn first_time(&self) -> TimestampMs {
        first_time(&self.body)
    }

    /// Whether a sample was ever appended.
    pub(crate) fn has_newest(&self) -> bool {
        self.known != Known::Nothing
    }

    /// The time of the newest sample ever appended, also if its chunk has been closed since.
    pub(crate) fn last_time(&self) -> TimestampMs {
        self.time.time
    }

    /// The newest sample ever appended, also if its chunk has been closed since.
    pub(crate) fn newest(&self) -> Newest<'_> {
        match self.rare.as_deref() {
            _ if self.known != Known::Sample => Newest::Unknown,
            Some(Rare {
                ends_in_histogram: true,
                histogram: Some(histogram),
                ..
            }) => Newest::Histogram(histogram),
            _ => Newest::Float(f64::from_bits(self.value.bits)),
        }
    }

    /// The last byte of the body: near what the next sample changes.
    #[inline]
    pub(crate) fn newest_byte(&self) -> u8 {
        self.body.last().copied().unwrap_or(0)
    }

    /// Scale and integer of the newest float, if it has them: whoever encodes it again need not
    /// search.
    #[inline]
    pub(crate) fn newest_decimal(&self) -> Option<(Scale, i64)> {
        self.value.known()
    }

    /// Bytes of memory behind the struct.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.body.capacity() + self.rare.as_ref().map_or(0, |_| size_of::<Rare>())
    }

    /// Whether the next sample belongs into a new chunk.
    pub(crate) fn is_full(&self, samples_max: u16) -> bool {
        self.count >= samples_max || self.body.len() >= BODY_BYTES
    }

    /// Appends a float. The caller has seen that `time` is after the last one.
    #[inline]
    pub(crate) fn push_float(&mut self, time: TimestampMs, start: TimestampMs, value: f64) {
        self.push_time(time, start);
        if let Some(rare) = &mut self.rare {
            rare.ends_in_histogram = false;
        }
        self.value
            .push(&mut self.body, &mut self.value_run_at, value);
        self.count += 1;
    }

    /// Appends a histogram. The caller has seen that `time` is after the last one.
    pub(crate) fn push_histogram(
        &mut self,
        time: TimestampMs,
        start: TimestampMs,
        histogram: &Histogram,
    ) {
        self.push_time(time, start);
        let rare = self.rare.get_or_insert_default();
        self.body.push(HISTOGRAM);
        // The first one of a body says its shape, so that the body decodes from itself.
        histogram::push(&mut self.body, rare.histogram.as_deref(), histogram);
        rare.histogram = Some(Arc::new(histogram.clone()));
        rare.ends_in_histogram = true;
        self.value_run_at = 0;
        self.count += 1;
    }

    #[inline]
    fn push_time(&mut self, time: TimestampMs, start: TimestampMs) {
        if self.count == 0 {
            self.begin(time);
        }
        // Room for the longest time and value, so that neither grows the vector by its own
        // doubling.
        if self.body.capacity() - self.body.len() < GRAIN_BYTES {
            self.grow();
        }
        let started = self.rare.as_ref().map_or(START_UNKNOWN, |r| r.start);
        if start != started {
            self.push_start(start);
        }
        self.time.push(&mut self.body, &mut self.time_run_at, time);
    }

    /// Begins a body at `time`.
    fn begin(&mut self, time: TimestampMs) {
        self.body.reserve_exact(2 * GRAIN_BYTES);
        self.body.extend_from_slice(&time.to_le_bytes());
        self.time = TimeState::starting_at(time);
        self.known = Known::Sample;
        self.value = ValueState::default();
        self.time_run_at = 0;
        self.value_run_at = 0;
        if let Some(rare) = &mut self.rare {
            rare.start = START_UNKNOWN;
            rare.histogram = None;
        }
    }

    /// Grows the body by half, where a vector would double it: bodies are most of a head's memory.
    #[cold]
    fn grow(&mut self) {
        let more = (self.body.capacity() / 2).next_multiple_of(GRAIN_BYTES);
        let more = more.max(2 * GRAIN_BYTES);
        self.body
            .reserve_exact(self.body.capacity() - self.body.len() + more);
    }

    #[cold]
    fn push_start(&mut self, start: TimestampMs) {
        let rare = self.rare.get_or_insert_default();
        self.body.push(START);
        push_uvarint(&mut self.body, zigzag(start.wrapping_sub(rare.start)));
        rare.start = start;
        // The decoder looks for a start only where it looks for a time.
        self.time_run_at = 0;
    }

    /// Closes the chunk: what it held is immutable, and the next sample begins a new one. `None` if
    /// it is empty.
    pub(crate) fn close(&mut self) -> Option<Chunk> {
        let chunk = self.snapshot()?;
        // The memory goes back: a series that ends here should not keep it.
        self.body = Vec::new();
        self.count = 0;
        Some(chunk)
    }

    /// A copy of what the chunk holds now. `None` if it is empty.
    pub(crate) fn snapshot(&self) -> Option<Chunk> {
        (self.count > 0).then(|| Chunk::from_parts(self.count, self.time.time, &self.body))
    }
}
