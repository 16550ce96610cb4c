//! Delta encoding of label sets: each set is encoded relative to the previous one, because
//! neighbouring series of a target differ in one or two labels.
//!
//! ```text
//! 01..3f              the next 1..=63 pairs equal those of the previous set
//! 41..7f              skip 1..=63 pairs of the previous set
//! 80 value            the name of the next pair in the previous set, with a new value
//! c0 name value       a new pair
//! 00                  end of the set
//! ```
//!
//! Names and values are byte strings with a varint length. New series are passed from the append to
//! the log and from the log to the index in this encoding, so that threads that only forward them
//! copy a few bytes of each.

mod check;
mod series;
pub mod steps;

pub use series::SeriesRecords;

use crate::labels::{LabelsRef, push_prefixed, take_prefixed};
use crate::series_key::{CanonicalKeys, KeyFormat};
use std::ops::Range;
use steps::{LabelStep, PreviousLabels};

/// The error for bytes that are not label sets in this encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes: {0}")]
pub struct MalformedLabels(pub &'static str);

const END: u8 = 0x00;
const SKIP: u8 = 0x40;
const VALUE: u8 = 0x80;
const PAIR: u8 = 0xc0;
const COUNT_MAX: u8 = 0x3f;

const NOT_CANONICAL: MalformedLabels = MalformedLabels("labels are not canonical");
const NOT_THERE: MalformedLabels = MalformedLabels("labels refer to a pair that does not exist");
const TRUNCATED: MalformedLabels = MalformedLabels("truncated");
const UNKNOWN: MalformedLabels = MalformedLabels("unknown labels code");

/// Encodes label sets, each relative to the previous one.
#[derive(Clone, Debug, Default)]
pub struct LabelsEncoder {
    before: PreviousLabels,
}

impl LabelsEncoder {
    /// Appends `labels` to `out`, encoded relative to the previous set.
    pub fn push(&mut self, out: &mut Vec<u8>, labels: LabelsRef<'_>) {
        let mut counted = LabelPairRun::default();
        let mut steps = self.before.steps(labels);
        for step in &mut steps {
            match step {
                LabelStep::Same => counted.push(out, END),
                LabelStep::Skip => counted.push(out, SKIP),
                LabelStep::Value(value) => {
                    counted.flush(out);
                    out.push(VALUE);
                    push_prefixed(out, value);
                }
                LabelStep::Pair(name, value) => {
                    counted.flush(out);
                    out.push(PAIR);
                    push_prefixed(out, name);
                    push_prefixed(out, value);
                }
            }
        }
        steps.commit();
        counted.flush(out);
        out.push(END);
    }

    /// Discards the previous set, so the next one is encoded completely.
    pub fn clear(&mut self) {
        self.before.clear();
    }
}

#[inline]
fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    rest.split_off_first().copied()
}

/// A run of equal or skipped pairs that has not been written yet.
#[derive(Debug, Default)]
struct LabelPairRun {
    op: u8,
    count: u8,
}

impl LabelPairRun {
    fn push(&mut self, out: &mut Vec<u8>, op: u8) {
        if op != self.op || self.count == COUNT_MAX {
            self.flush(out);
        }
        self.op = op;
        self.count += 1;
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if self.count > 0 {
            out.push(self.op | self.count);
        }
        self.count = 0;
    }
}

/// The position of a pair in the bytes of its set.
#[derive(Clone, Copy, Debug)]
struct LabelPairOffsets {
    start: u32,
    name_start: u32,
    name_end: u32,
    end: u32,
}

/// A decoded set. Names are UTF-8, in ascending order and not empty; values are not empty.
#[derive(Debug, Default)]
struct DecodedLabelSet {
    bytes: Vec<u8>,
    pairs: Vec<LabelPairOffsets>,
}

/// Decodes label sets, each relative to the previous one. Only the order is checked for pairs that
/// are copied from the previous set.
#[derive(Debug)]
pub struct LabelsDecoder {
    /// The format in which decoded sets are returned.
    keys: &'static dyn KeyFormat,
    set: DecodedLabelSet,
    before: DecodedLabelSet,
}

impl Default for LabelsDecoder {
    /// Creates a decoder that returns label sets in canonical form.
    fn default() -> Self {
        Self::with_key_format(&CanonicalKeys)
    }
}

impl LabelsDecoder {
    /// Creates a decoder that returns label sets as keys of the format `keys`.
    pub fn with_key_format(keys: &'static dyn KeyFormat) -> Self {
        Self {
            keys,
            set: DecodedLabelSet::default(),
            before: DecodedLabelSet::default(),
        }
    }

    /// Decodes the next set. The decoder must return canonical sets.
    pub fn read(&mut self, rest: &mut &[u8]) -> Result<LabelsRef<'_>, MalformedLabels> {
        Ok(LabelsRef::from_canonical(self.read_key(rest)?))
    }

    /// Decodes the next set and returns its key. Fails if the bytes are malformed or not canonical.
    pub fn read_key(&mut self, rest: &mut &[u8]) -> Result<&[u8], MalformedLabels> {
        std::mem::swap(&mut self.set, &mut self.before);
        let Self { keys, set, before } = self;
        set.bytes.clear();
        set.pairs.clear();
        let mut at = 0;
        loop {
            let op = take_byte(rest).ok_or(TRUNCATED)?;
            let count = usize::from(op & COUNT_MAX);
            match (op & !COUNT_MAX, count) {
                (END, 0) => break,
                (END, _) => set.copy_pairs(before, at..at + count)?,
                (SKIP, 1..) => {}
                (VALUE, 0) => set.add(
                    *keys,
                    before.name(at)?,
                    take_prefixed(rest).ok_or(TRUNCATED)?,
                )?,
                (PAIR, 0) => {
                    let name = take_prefixed(rest).ok_or(TRUNCATED)?;
                    if std::str::from_utf8(name).is_err() {
                        return Err(NOT_CANONICAL);
                    }
                    set.add(*keys, name, take_prefixed(rest).ok_or(TRUNCATED)?)?;
                    continue;
                }
                _ => return Err(UNKNOWN),
            }
            at += count.max(1);
        }
        Ok(&set.bytes)
    }
}

impl DecodedLabelSet {
    fn name(&self, at: usize) -> Result<&[u8], MalformedLabels> {
        let pair = self.pairs.get(at).ok_or(NOT_THERE)?;
        Ok(&self.bytes[pair.name_start as usize..pair.name_end as usize])
    }

    /// Checks that `name` is after the last name of the current set.
    fn check(&self, name: &[u8]) -> Result<(), MalformedLabels> {
        let last = self.pairs.len().checked_sub(1);
        let is_behind = match last {
            Some(last) => self.name(last)? < name,
            None => !name.is_empty(),
        };
        is_behind.then_some(()).ok_or(NOT_CANONICAL)
    }

    /// Copies pairs of the previous set to the current one. Fails if they do not exist.
    fn copy_pairs(
        &mut self,
        before: &DecodedLabelSet,
        range: Range<usize>,
    ) -> Result<(), MalformedLabels> {
        let pairs = before.pairs.get(range).ok_or(NOT_THERE)?;
        let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else {
            return Ok(());
        };
        self.check(&before.bytes[first.name_start as usize..first.name_end as usize])?;
        let here = self.bytes.len() as u32;
        let bytes = &before.bytes[first.start as usize..last.end as usize];
        self.bytes.extend_from_slice(bytes);
        let from = first.start;
        self.pairs.extend(pairs.iter().map(|p| LabelPairOffsets {
            start: p.start - from + here,
            name_start: p.name_start - from + here,
            name_end: p.name_end - from + here,
            end: p.end - from + here,
        }));
        Ok(())
    }

    /// Adds a pair to the current set. The name must be UTF-8 and after the last name.
    fn add(
        &mut self,
        keys: &dyn KeyFormat,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), MalformedLabels> {
        self.check(name)?;
        if value.is_empty() {
            return Err(NOT_CANONICAL);
        }
        let start = self.bytes.len();
        let name_start = start + keys.push_label(&mut self.bytes, name, value);
        self.pairs.push(LabelPairOffsets {
            start: start as u32,
            name_start: name_start as u32,
            name_end: (name_start + name.len()) as u32,
            end: self.bytes.len() as u32,
        });
        Ok(())
    }
}

/// Reads a set as steps from the previous one. A [`LabelsDecoder`] must have accepted it before.
#[derive(Debug)]
pub struct LabelStepReader<'c, 'a> {
    rest: &'c mut &'a [u8],
    step: LabelStep<'a>,
    /// Number of further repetitions of the current step.
    repeats: u8,
}

impl<'c, 'a> LabelStepReader<'c, 'a> {
    /// Creates an iterator over the steps of the set that begins at `rest`. When all steps have
    /// been read, `rest` begins after the set.
    pub fn new(rest: &'c mut &'a [u8]) -> Self {
        Self {
            rest,
            step: LabelStep::Same,
            repeats: 0,
        }
    }
}

impl<'a> Iterator for LabelStepReader<'_, 'a> {
    type Item = LabelStep<'a>;

    #[inline]
    fn next(&mut self) -> Option<LabelStep<'a>> {
        if self.repeats > 0 {
            self.repeats -= 1;
            return Some(self.step);
        }
        let op = take_byte(self.rest)?;
        let count = op & COUNT_MAX;
        self.step = match op & !COUNT_MAX {
            END if count == 0 => return None,
            END => LabelStep::Same,
            SKIP => LabelStep::Skip,
            VALUE => return Some(LabelStep::Value(take_prefixed(self.rest)?)),
            _ => {
                let name = take_prefixed(self.rest)?;
                return Some(LabelStep::Pair(name, take_prefixed(self.rest)?));
            }
        };
        self.repeats = count.saturating_sub(1);
        Some(self.step)
    }
}
