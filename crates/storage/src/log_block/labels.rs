//! Label sets measured against the one before: series of a target differ in a pair or two.
//!
//! ```text
//! 01..3f              the next 1..=63 pairs are those of the set before
//! 41..7f              skip 1..=63 pairs of the set before
//! 80 value            the name of the next pair before, another value (length varint, bytes)
//! c0 name value       a pair of its own
//! 00                  the set ends
//! ```

use crate::codec::Malformed;
use crate::codec::cursor::Cursor;
use crate::neighbours::{Before, Step};
use firn_model::labels::{LabelsRef, is_canonical, push_pair};
use std::ops::Range;

const END: u8 = 0x00;
const SKIP: u8 = 0x40;
const VALUE: u8 = 0x80;
const PAIR: u8 = 0xc0;
const COUNT_MAX: u8 = 0x3f;

/// Encodes one set after the other.
#[derive(Debug, Default)]
pub(crate) struct LabelsEncoder {
    before: Before,
}

impl LabelsEncoder {
    /// Appends `labels` to `out`.
    pub(crate) fn push(&mut self, out: &mut Vec<u8>, labels: LabelsRef<'_>) {
        let mut counted = Counted::default();
        let mut steps = self.before.steps(labels);
        for step in &mut steps {
            match step {
                Step::Same => counted.push(out, END),
                Step::Skip => counted.push(out, SKIP),
                Step::Value(value) => {
                    counted.flush(out);
                    out.push(VALUE);
                    super::push_prefixed(out, value);
                }
                Step::Pair(name, value) => {
                    counted.flush(out);
                    out.push(PAIR);
                    super::push_prefixed(out, name);
                    super::push_prefixed(out, value);
                }
            }
        }
        steps.take();
        counted.flush(out);
        out.push(END);
    }

    /// Forgets the set before.
    pub(crate) fn clear(&mut self) {
        self.before.clear();
    }
}

/// A count under way: pairs that are equal, or skipped.
#[derive(Debug, Default)]
struct Counted {
    op: u8,
    count: u8,
}

impl Counted {
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

/// Where a name and a value lie.
type Pair = (Range<usize>, Range<usize>);

/// Decodes one set after the other.
#[derive(Debug, Default)]
pub(crate) struct LabelsDecoder {
    bytes: Vec<u8>,
    before: Vec<u8>,
    pairs: Vec<Pair>,
    pairs_before: Vec<Pair>,
}

impl LabelsDecoder {
    /// Reads the next set and sees that it is canonical.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<LabelsRef<'_>, Malformed> {
        std::mem::swap(&mut self.bytes, &mut self.before);
        std::mem::swap(&mut self.pairs, &mut self.pairs_before);
        self.bytes.clear();
        self.pairs.clear();
        let mut at = 0;
        loop {
            let op = cursor.byte()?;
            let count = usize::from(op & COUNT_MAX);
            match (op & !COUNT_MAX, count) {
                (END, 0) => break,
                (END, _) => {
                    for _ in 0..count {
                        let (name, value) = self.pair_before(at)?;
                        let (name, value) = (&self.before[name], &self.before[value]);
                        add(&mut self.bytes, &mut self.pairs, name, value);
                        at += 1;
                    }
                }
                (SKIP, 1..) => at += count,
                (VALUE, 0) => {
                    let (name, _) = self.pair_before(at)?;
                    let name = &self.before[name];
                    add(&mut self.bytes, &mut self.pairs, name, cursor.prefixed()?);
                    at += 1;
                }
                (PAIR, 0) => {
                    let name = cursor.prefixed()?;
                    add(&mut self.bytes, &mut self.pairs, name, cursor.prefixed()?);
                }
                _ => return Err(Malformed("unknown labels code")),
            }
        }
        if !is_canonical(&self.bytes) {
            return Err(Malformed("labels are not canonical"));
        }
        Ok(LabelsRef::from_canonical(&self.bytes))
    }

    fn pair_before(&self, at: usize) -> Result<Pair, Malformed> {
        let pair = self.pairs_before.get(at).cloned();
        pair.ok_or(Malformed("labels refer to a pair that is not there"))
    }
}

/// Adds a pair and remembers where it lies.
fn add(bytes: &mut Vec<u8>, pairs: &mut Vec<Pair>, name: &[u8], value: &[u8]) {
    let name_start = bytes.len() + uvarint_len(name.len());
    push_pair(bytes, name, value);
    let end = bytes.len();
    pairs.push((name_start..name_start + name.len(), end - value.len()..end));
}

/// Bytes of the varint of a length.
fn uvarint_len(length: usize) -> usize {
    (usize::BITS - (length | 1).leading_zeros()).div_ceil(7) as usize
}
