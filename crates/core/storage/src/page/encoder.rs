//! Encodes columns of values one after the other: constants, floats that may use the previous
//! column as a reference, and columns with histograms.
//!
//! Times are represented by a number; the caller, a page or a block, stores them. A column that is
//! equal to an earlier one is not stored again. Invariant: equal pushes give equal bytes.

use super::directory::ColumnKind;
use super::equal::hash_numbers;
use super::mixed::{self, ColumnEncoders};
use super::values::{self, ReferenceColumn};
use crate::chunk::SampleColumns;
use crate::encoding::decimal::{BITS, DecimalScale};
use crate::encoding::{push_uvarint, zigzag};
use std::collections::BTreeMap;

/// A hash of the labels without `le`, which neighbouring buckets of a histogram share. Consecutive
/// columns with equal hashes are encoded as buckets that grow together; a collision costs space and
/// never correctness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramFamilyHash(pub u64);

/// Encoder of the value columns of a page or a block.
#[derive(Debug, Default)]
pub(crate) struct ColumnEncoder {
    /// The encoded columns, and the start offsets of their stripes.
    data: Vec<u8>,
    stripes: Vec<usize>,
    /// The first column for each hash of values.
    by_hash: BTreeMap<u64, EqualColumnCandidate>,
    last: PreviousColumn,
    pushed: ReferenceColumn,
    /// The encoders of single columns, which the caller may also use for other columns.
    pub(crate) encoders: ColumnEncoders,
}

/// Kind and position of an encoded column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EncodedColumn {
    /// Encoding of its values, stored in the directory.
    pub(crate) kind: ColumnKind,
    /// Offset of its first byte from that of the first column.
    pub(crate) offset: usize,
}

/// A column that later ones may be equal to.
#[derive(Clone, Copy, Debug)]
struct EqualColumnCandidate {
    kind: ColumnKind,
    offset: usize,
    count: usize,
    stripe: usize,
}

/// The previous float column, the possible reference of the next one.
#[derive(Debug, Default)]
struct PreviousColumn {
    family: Option<HistogramFamilyHash>,
    times: usize,
    /// None if the column was of another kind.
    column: Option<ReferenceColumn>,
}

impl ColumnEncoder {
    /// Adds the values of a series, at least one. `times` is the number of its time column.
    pub(crate) fn push(
        &mut self,
        times: usize,
        family: Option<HistogramFamilyHash>,
        columns: &SampleColumns,
    ) -> EncodedColumn {
        if columns.histograms.is_empty() {
            return self.push_floats(times, family, &columns.values);
        }
        self.last.column = None;
        let offset = self.data.len();
        mixed::push_column(&mut self.data, &mut self.encoders, columns);
        EncodedColumn {
            kind: ColumnKind::Mixed,
            offset,
        }
    }

    /// Returns the bytes of all columns.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Starts a new stripe, in which no column refers to an earlier stripe.
    pub(super) fn begin_stripe(&mut self) {
        self.stripes.push(self.data.len());
        self.last.column = None;
    }

    /// Returns the bytes of the current stripe.
    pub(super) fn stripe_bytes(&self) -> usize {
        self.data.len() - self.stripes.last().copied().unwrap_or(0)
    }

    /// Returns the start offset of each stripe except the first one.
    pub(super) fn stripes(&self) -> &[usize] {
        &self.stripes
    }

    /// Removes all columns and keeps the memory of the encoders.
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.stripes.clear();
        self.by_hash.clear();
        self.last = PreviousColumn::default();
    }

    /// Adds a column of floats: refers to an equal earlier one, or encodes it as a constant or a
    /// float column.
    fn push_floats(
        &mut self,
        times: usize,
        family: Option<HistogramFamilyHash>,
        values: &[f64],
    ) -> EncodedColumn {
        let first = values[0].to_bits();
        let is_constant = values
            .iter()
            .fold(true, |all, v| all & (v.to_bits() == first));
        // A constant has the same encoding for any number of samples.
        let hashed = if is_constant { &values[..1] } else { values };
        let hash = hash_numbers(hashed.iter().map(|v| v.to_bits()));
        let known = self.by_hash.get(&hash).copied();
        if let Some(known) = known.filter(|k| self.is_equal_column(k, is_constant, values)) {
            self.last.family = family;
            return known.encoded_column();
        }
        let offset = self.data.len();
        let kind = if is_constant {
            push_constant(&mut self.data, values[0]);
            self.last.column = None;
            ColumnKind::Constant
        } else {
            let may_lean =
                self.last.times == times && (family.is_none() || family == self.last.family);
            let reference = self.last.column.take();
            let reference = reference.filter(|_| may_lean);
            let encoder = &mut self.encoders.floats;
            values::push_column(
                &mut self.data,
                encoder,
                values,
                reference.as_ref(),
                &mut self.pushed,
            );
            let spare = reference.unwrap_or_default();
            self.last.column = Some(std::mem::replace(&mut self.pushed, spare));
            ColumnKind::Floats
        };
        self.last.family = family;
        self.last.times = times;
        let known = EqualColumnCandidate {
            kind,
            offset,
            count: values.len(),
            stripe: self.stripes.len(),
        };
        self.by_hash.entry(hash).or_insert(known);
        known.encoded_column()
    }

    /// Returns whether an earlier column with the same hash contains exactly `values`.
    fn is_equal_column(
        &self,
        known: &EqualColumnCandidate,
        is_constant: bool,
        values: &[f64],
    ) -> bool {
        if is_constant || known.kind == ColumnKind::Constant {
            return is_constant && known.kind == ColumnKind::Constant && {
                let mut bytes = Vec::new();
                push_constant(&mut bytes, values[0]);
                self.data[known.offset..].starts_with(&bytes)
            };
        }
        known.count == values.len() && self.is_decoded_equal(known, values)
    }

    fn is_decoded_equal(&self, known: &EqualColumnCandidate, values: &[f64]) -> bool {
        let start = match known.stripe {
            0 => 0,
            stripe => self.stripes[stripe - 1],
        };
        values::is_column_equal(&self.data[start..], known.offset - start, values)
    }
}

impl EqualColumnCandidate {
    fn encoded_column(&self) -> EncodedColumn {
        EncodedColumn {
            kind: self.kind,
            offset: self.offset,
        }
    }
}

/// Appends a constant column: a scale and an integer, or scale 16 and the bits.
fn push_constant(out: &mut Vec<u8>, value: f64) {
    match DecimalScale::find_for_value(value) {
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
