//! The operations that change a lane, in the encoding of the journal.
//!
//! In the steady state a sample takes three bytes: the difference of its source number to the
//! previous one, and the change of its value.
//!
//! ```text
//! op = varint (difference of the source number, zigzag) * 4 + form
//!   form 0: value step zigzag, the time is that of the previous sample
//!   form 1: flags u8, then the fields that they select
//! or varint 3, a code, and its fields
//! ```

use super::code::{
    AggregationJournalError, AggregationJournalReader, add_exact_step, encode_zigzag,
    exact_difference, push_bytes, push_fingerprint, push_float, push_signed,
};
use super::entries::ENTRIES_MAX;
use super::failpoints::{self, AggregationFlaw};
use super::lane::{AggregationLane, SourceSample};
use super::native::{push_histogram, read_histogram};
use super::output::{AggregationOutput, read_kind, read_labels};
use firn_model::batch::HistogramSample;
use firn_model::fingerprint::Fingerprint;
use firn_model::labels::push_uvarint;
use firn_model::sample::START_UNKNOWN;

/// A sample with the timestamp of the previous one and an integer step.
const SHORT: u64 = 0;

/// Any other sample.
const LONG: u64 = 1;

/// An operation that is not a sample.
const OTHER: u64 = 3;

const HAS_TIME: u8 = 1;
const HAS_FLOAT: u8 = 2;
const HAS_START: u8 = 4;

const CREATE: u8 = 0;
const REMOVE: u8 = 1;
const OUTPUT: u8 = 2;
const FLUSH: u8 = 3;
const SKIP: u8 = 4;
const HISTOGRAM: u8 = 5;

/// The encoded operations on one lane since the last record, with the state of the difference
/// encoding.
#[derive(Debug, Default)]
pub(super) struct LaneOps {
    pub(super) bytes: Vec<u8>,
    entry: u32,
    time: i64,
}

impl LaneOps {
    /// Removes all operations but keeps the allocated memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.entry, self.time) = (0, 0);
    }

    /// Appends a sample of the source `at`, whose previous value is `base`.
    #[inline]
    pub(super) fn push_sample(&mut self, at: u32, base: f64, sample: &SourceSample) {
        let distance = encode_zigzag(i64::from(at) - i64::from(self.entry)) * 4;
        self.entry = at;
        let step = exact_difference(base, sample.value);
        if let Some(step) = step
            && sample.time == self.time
            && sample.start == START_UNKNOWN
        {
            push_uvarint(&mut self.bytes, distance | SHORT);
            return push_signed(&mut self.bytes, step);
        }
        push_uvarint(&mut self.bytes, distance | LONG);
        let has_start = sample.start != START_UNKNOWN;
        let flags = [
            (sample.time != self.time, HAS_TIME),
            (step.is_none(), HAS_FLOAT),
            (has_start, HAS_START),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        self.bytes.push(flags.map(|(_, flag)| flag).sum());
        if sample.time != self.time {
            push_signed(&mut self.bytes, sample.time.wrapping_sub(self.time));
            self.time = sample.time;
        }
        match step {
            Some(step) => push_signed(&mut self.bytes, step),
            None => push_float(&mut self.bytes, sample.value),
        }
        if has_start {
            push_signed(&mut self.bytes, sample.start.wrapping_sub(sample.time));
        }
    }

    /// Appends a histogram of the source `at`, in the encoding of remote write.
    pub(super) fn push_histogram(&mut self, at: u32, sample: &HistogramSample) {
        self.push_other_code(HISTOGRAM);
        push_uvarint(&mut self.bytes, u64::from(at));
        let has_start = sample.start_time != START_UNKNOWN;
        self.bytes.push(u8::from(has_start));
        if has_start {
            push_signed(&mut self.bytes, sample.start_time);
        }
        push_histogram(&mut self.bytes, sample.time, &sample.histogram);
    }

    /// Appends the creation of a source with its fingerprint and output.
    pub(super) fn push_create(&mut self, at: u32, print: Fingerprint, output: u32) {
        self.push_other_code(CREATE);
        push_uvarint(&mut self.bytes, u64::from(at));
        push_fingerprint(&mut self.bytes, print);
        push_uvarint(&mut self.bytes, u64::from(output));
    }

    /// Appends the removal of a source that no rule matches any more.
    pub(super) fn push_remove(&mut self, at: u32) {
        self.push_other_code(REMOVE);
        push_uvarint(&mut self.bytes, u64::from(at));
    }

    /// Appends the creation of an output, whose first interval ends at `end`.
    pub(super) fn push_output(&mut self, at: u32, output: &AggregationOutput, end: i64) {
        self.push_other_code(OUTPUT);
        push_uvarint(&mut self.bytes, u64::from(at));
        self.bytes.extend_from_slice(&output.rule.to_le_bytes());
        self.bytes.push(output.journal_code());
        push_bytes(&mut self.bytes, output.labels.as_bytes());
        push_signed(&mut self.bytes, end);
    }

    /// Appends the end of an interval, at which results are written.
    pub(super) fn push_flush(&mut self, end: i64) {
        if failpoints::has(AggregationFlaw::ForgetsFlush) {
            return;
        }
        self.push_other_code(FLUSH);
        push_signed(&mut self.bytes, end);
    }

    /// Appends a skip of intervals without results.
    pub(super) fn push_skip(&mut self, end: i64) {
        self.push_other_code(SKIP);
        push_signed(&mut self.bytes, end);
    }

    fn push_other_code(&mut self, code: u8) {
        push_uvarint(&mut self.bytes, OTHER);
        self.bytes.push(code);
    }
}

/// Applies the operations in `bytes` to `lane`. Sources that do not exist are ignored: the record
/// with their creation was damaged.
pub(super) fn replay_ops(
    lane: &mut AggregationLane,
    bytes: &[u8],
) -> Result<(), AggregationJournalError> {
    let mut reader = AggregationJournalReader(bytes);
    let (mut entry, mut time) = (0i64, 0i64);
    while !reader.is_empty() {
        let head = reader.read_unsigned()?;
        if head == OTHER {
            replay_other_op(lane, &mut reader)?;
            continue;
        }
        let distance = head / 4;
        entry = entry.wrapping_add((distance >> 1) as i64 ^ -((distance & 1) as i64));
        let at = u32::try_from(entry).map_err(|_| AggregationJournalError("number of a source"))?;
        let flags = match head % 4 {
            SHORT => 0,
            LONG => reader.read_byte()?,
            _ => return Err(AggregationJournalError("form of an operation")),
        };
        if flags & HAS_TIME != 0 {
            time = time.wrapping_add(reader.read_signed()?);
        }
        let base = lane.entries.get(at).map_or(0.0, |entry| entry.value);
        let value = if flags & HAS_FLOAT != 0 {
            reader.read_float()?
        } else {
            add_exact_step(base, reader.read_signed()?)?
        };
        let start = if flags & HAS_START != 0 {
            time.wrapping_add(reader.read_signed()?)
        } else {
            START_UNKNOWN
        };
        lane.apply_sample(at, &SourceSample { time, start, value });
    }
    Ok(())
}

fn replay_other_op(
    lane: &mut AggregationLane,
    reader: &mut AggregationJournalReader<'_>,
) -> Result<(), AggregationJournalError> {
    match reader.read_byte()? {
        CREATE => {
            let at = read_entry_number(reader)?;
            let print = reader.read_fingerprint()?;
            lane.create_source(at, print, reader.read_small()?);
        }
        REMOVE => lane.remove_source(reader.read_small()?),
        OUTPUT => {
            let at = read_entry_number(reader)?;
            let rule = u64::from_le_bytes(reader.read_array()?);
            let (kind, form) = read_kind(reader)?;
            let labels = read_labels(reader)?;
            let end = reader.read_signed()?;
            let interval_ms = lane.params.interval_ms;
            lane.put_output(
                at,
                AggregationOutput::new(rule, kind, form, labels, end, interval_ms),
            );
        }
        FLUSH => drop(lane.flush_interval(reader.read_signed()?, None)),
        HISTOGRAM => {
            let at = reader.read_small()?;
            let start = match reader.read_byte()? {
                0 => START_UNKNOWN,
                _ => reader.read_signed()?,
            };
            let mut sample = read_histogram(reader)?;
            sample.start_time = start;
            lane.apply_histogram(at, &sample);
        }
        SKIP => {
            if lane.is_idle() {
                lane.skip_intervals(reader.read_signed()?)
            } else {
                return Err(AggregationJournalError("results were passed over"));
            }
        }
        _ => return Err(AggregationJournalError("code of an operation")),
    }
    Ok(())
}

/// Reads a number that is below the limit of entries in a lane. Fails for any other number.
fn read_entry_number(
    reader: &mut AggregationJournalReader<'_>,
) -> Result<u32, AggregationJournalError> {
    let at = reader.read_small()?;
    if (at as usize) < ENTRIES_MAX {
        Ok(at)
    } else {
        Err(AggregationJournalError("number of a source"))
    }
}
