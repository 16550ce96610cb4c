//! Puts a page together, a series at a time.

use super::directory::{Draft, Kind};
use super::equal::hash;
use super::header::{self, Header, LogSpan};
use super::ints;
use super::limits::{COLUMNS_MAX, HISTOGRAM_NUMBERS_MAX, SAMPLES_MAX, STRIPE_BYTES};
use super::mixed::{self, Encoders};
use super::times::{TimeColumns, TimesEntry};
use super::values::{self, Pushed};
use crate::chunk::Columns;
use crate::encoding::decimal::{BITS, Scale};
use crate::encoding::{push_uvarint, zigzag};
use crate::ids::SeriesRef;
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeMap;

/// What neighbouring series have in common: a hash of the labels without `le`. Equal ones in a row
/// are taken for buckets that grow together; a wrong one costs space, not truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family(pub u64);

/// A series that does not fit a page; the caller must split it by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column too long for a page: {samples} samples and {numbers} buckets, spans and bounds")]
pub struct ColumnTooLong {
    /// Its samples, limit [`SAMPLES_MAX`].
    pub samples: usize,
    /// Buckets, spans and bounds of all its histograms, limit [`HISTOGRAM_NUMBERS_MAX`].
    pub numbers: usize,
}

/// A page in the making. Equal pushes in equal order make equal bytes.
#[derive(Debug, Default)]
pub struct PageBuilder {
    meta: LogSpan,
    draft: Draft,
    times: TimeColumns,
    starts: Vec<Vec<u8>>,
    starts_by_hash: BTreeMap<u64, Vec<usize>>,
    /// The columns of values, and where their stripes begin.
    data: Vec<u8>,
    stripes: Vec<usize>,
    samples: u64,
    /// For a hash of values, the first column that has it.
    by_hash: BTreeMap<u64, Known>,
    last: Last,
    pushed: Pushed,
    encoders: Encoders,
}

/// A column that others may be equal to.
#[derive(Clone, Copy, Debug)]
struct Known {
    kind: Kind,
    offset: usize,
    count: usize,
    stripe: usize,
}

/// The float column before, for the next one to lean on.
#[derive(Debug, Default)]
struct Last {
    family: Option<Family>,
    times: usize,
    /// None if the column was of another kind.
    column: Option<Pushed>,
}

impl PageBuilder {
    /// An empty page that covers what `meta` says.
    pub fn new(meta: LogSpan) -> Self {
        Self {
            meta,
            ..Self::default()
        }
    }

    /// Adds the samples of a series: at least one, their times increasing, slots increasing from
    /// push to push. `family` says which neighbours are buckets of one histogram; without it the
    /// neighbour is tried.
    pub fn push(
        &mut self,
        slot: SeriesRef,
        family: Option<Family>,
        columns: &Columns,
    ) -> Result<(), ColumnTooLong> {
        assert!(self.draft.slots.last().is_none_or(|last| *last < slot));
        assert!(!columns.times.is_empty() && columns.times.len() == columns.values.len());
        assert!(self.draft.slots.len() < COLUMNS_MAX);
        let (samples, numbers) = (columns.times.len(), mixed::numbers(columns));
        if samples > SAMPLES_MAX || numbers > HISTOGRAM_NUMBERS_MAX {
            return Err(ColumnTooLong { samples, numbers });
        }
        if self.stripe_bytes() >= STRIPE_BYTES {
            self.stripes.push(self.data.len());
            self.last.column = None;
        }
        let times = self.times.number(&columns.times);
        let starts = self.starts(&columns.start_times);
        let (kind, offset) = if columns.histograms.is_empty() {
            self.push_floats(times, family, &columns.values)
        } else {
            self.last.column = None;
            let offset = self.data.len();
            mixed::push(&mut self.data, &mut self.encoders, columns);
            (Kind::Mixed, offset)
        };
        self.samples += samples as u64;
        self.draft.slots.push(slot);
        self.draft.kinds.push(kind);
        self.draft.offsets.push(offset);
        self.draft.times.push(times);
        self.draft.starts.push(starts);
        Ok(())
    }

    /// Series so far.
    pub fn column_count(&self) -> usize {
        self.draft.slots.len()
    }

    /// Samples so far.
    pub fn sample_count(&self) -> u64 {
        self.samples
    }

    /// Bytes of values so far: the page's size but for its time columns and its directory.
    pub fn value_bytes(&self) -> usize {
        self.data.len()
    }

    fn stripe_bytes(&self) -> usize {
        self.data.len() - self.stripes.last().copied().unwrap_or(0)
    }

    /// The number of the start column plus one; zero if there are none.
    fn starts(&mut self, starts: &[TimestampMs]) -> usize {
        if starts.is_empty() {
            return 0;
        }
        let mut bytes = Vec::new();
        ints::push_column(&mut bytes, &mut self.encoders.ints, starts);
        // Columns are told apart by their bytes, to which their length belongs.
        push_uvarint(&mut bytes, starts.len() as u64);
        let hash = hash(bytes.iter().map(|b| u64::from(*b)));
        let same = self.starts_by_hash.entry(hash).or_default();
        let known = same.iter().find(|i| self.starts[**i] == bytes);
        let number = *known.unwrap_or(&self.starts.len());
        if number == self.starts.len() {
            same.push(number);
            self.starts.push(bytes);
        }
        number + 1
    }

    fn push_floats(
        &mut self,
        times: usize,
        family: Option<Family>,
        values: &[f64],
    ) -> (Kind, usize) {
        let first = values[0].to_bits();
        let is_constant = values
            .iter()
            .fold(true, |all, v| all & (v.to_bits() == first));
        // A constant is the same for any number of samples.
        let hashed = if is_constant { &values[..1] } else { values };
        let hash = hash(hashed.iter().map(|v| v.to_bits()));
        let known = self.by_hash.get(&hash).copied();
        if let Some(known) = known.filter(|k| self.holds(k, is_constant, values)) {
            self.last.family = family;
            return (known.kind, known.offset);
        }
        let offset = self.data.len();
        let kind = if is_constant {
            push_constant(&mut self.data, values[0]);
            self.last.column = None;
            Kind::Constant
        } else {
            let may_lean =
                self.last.times == times && (family.is_none() || family == self.last.family);
            let reference = self.last.column.take();
            let reference = reference.filter(|_| may_lean);
            let encoder = &mut self.encoders.floats;
            values::push(
                &mut self.data,
                encoder,
                values,
                reference.as_ref(),
                &mut self.pushed,
            );
            let spare = reference.unwrap_or_default();
            self.last.column = Some(std::mem::replace(&mut self.pushed, spare));
            Kind::Floats
        };
        self.last.family = family;
        self.last.times = times;
        let known = Known {
            kind,
            offset,
            count: values.len(),
            stripe: self.stripes.len(),
        };
        self.by_hash.entry(hash).or_insert(known);
        (kind, offset)
    }

    /// Whether a column whose hash is that of `values` holds them.
    fn holds(&self, known: &Known, is_constant: bool, values: &[f64]) -> bool {
        if is_constant || known.kind == Kind::Constant {
            return is_constant && known.kind == Kind::Constant && {
                let mut bytes = Vec::new();
                push_constant(&mut bytes, values[0]);
                self.data[known.offset..].starts_with(&bytes)
            };
        }
        known.count == values.len() && self.decodes_to(known, values)
    }

    fn decodes_to(&self, known: &Known, values: &[f64]) -> bool {
        let start = match known.stripe {
            0 => 0,
            stripe => self.stripes[stripe - 1],
        };
        values::holds(&self.data[start..], known.offset - start, values)
    }

    /// The page. `None` if nothing was pushed.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        let (first_slot, last_slot) = (*self.draft.slots.first()?, *self.draft.slots.last()?);
        let encoded = self.times.encode(&mut self.encoders.ints);
        let mut data = Vec::with_capacity(self.data.len() * 9 / 8);
        let mut ends = Vec::new();
        let mut close = |data: &Vec<u8>, least: usize| {
            let start = ends.last().copied().unwrap_or(0);
            if data.len() - start >= least.max(1) {
                ends.push(data.len());
            }
        };
        let mut range = TimeRange::new(i64::MAX, i64::MIN);
        for (times, bytes) in self.times.columns().iter().zip(&encoded) {
            let (first, last) = (times[0], times[times.len() - 1]);
            range = range.hull(TimeRange::new(first, last));
            let entry = TimesEntry {
                count: times.len(),
                first,
                last,
            };
            self.draft.time_entries.push((data.len(), entry));
            data.extend_from_slice(bytes);
            close(&data, STRIPE_BYTES);
        }
        for starts in &self.starts {
            self.draft.start_offsets.push(data.len());
            data.extend_from_slice(starts);
            close(&data, STRIPE_BYTES);
        }
        close(&data, 0);
        let before = data.len();
        self.draft.offsets.iter_mut().for_each(|o| *o += before);
        data.extend_from_slice(&self.data);
        ends.extend(self.stripes.iter().map(|start| before + start));
        // A stripe that was begun for a column that is stored elsewhere has no bytes.
        if ends.last() != Some(&data.len()) {
            ends.push(data.len());
        }
        self.draft.stripe_ends = ends;
        let header = Header {
            meta: self.meta,
            range,
            first_slot: first_slot.0,
            last_slot: last_slot.0,
            columns: self.draft.slots.len() as u32,
            samples: self.samples,
        };
        let directory = self.draft.encode(&header, &data);
        Some(header::assemble(&header, &directory, &data))
    }
}

/// Appends what a constant column is: a scale and an integer, or scale 16 and the bits.
fn push_constant(out: &mut Vec<u8>, value: f64) {
    match Scale::find(value) {
        Some((scale, int)) => {
            out.push(scale.code());
            push_uvarint(out, zigzag(int));
        }
        None => {
            out.push(BITS);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
    }
}
