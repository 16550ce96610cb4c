//! Encodes columns of values one behind the other: constants, floats that may lean on the column
//! before, and columns with histograms.
//!
//! Times are a number here: who has them, a page or a block, is the caller's. Columns that are
//! equal to one before are not stored again. Invariant: the same pushes make the same bytes.

use super::directory::Kind;
use super::equal::hash;
use super::mixed::{self, Encoders};
use super::values::{self, Pushed};
use crate::chunk::Columns;
use crate::encoding::decimal::{BITS, Scale};
use crate::encoding::{push_uvarint, zigzag};
use std::collections::BTreeMap;

/// What neighbouring series have in common: a hash of the labels without `le`. Equal ones in a row
/// are taken for buckets that grow together; a wrong one costs space, not truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family(pub u64);

/// Columns in the making.
#[derive(Debug, Default)]
pub(crate) struct ColumnEncoder {
    /// The columns of values, and where their stripes begin.
    data: Vec<u8>,
    stripes: Vec<usize>,
    /// For a hash of values, the first column that has it.
    by_hash: BTreeMap<u64, Known>,
    last: Last,
    pushed: Pushed,
    /// What encodes, for those too who put other columns beside these.
    pub(crate) encoders: Encoders,
}

/// Where a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// What its bytes are.
    pub(crate) kind: Kind,
    /// Its first byte, counted from that of the first column.
    pub(crate) offset: usize,
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

impl ColumnEncoder {
    /// Adds the values of a series whose times have this number. There is at least one.
    pub(crate) fn push(
        &mut self,
        times: usize,
        family: Option<Family>,
        columns: &Columns,
    ) -> Placed {
        if columns.histograms.is_empty() {
            return self.push_floats(times, family, &columns.values);
        }
        self.last.column = None;
        let offset = self.data.len();
        mixed::push(&mut self.data, &mut self.encoders, columns);
        Placed {
            kind: Kind::Mixed,
            offset,
        }
    }

    /// The bytes of all columns.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Begins a new stripe: what comes leans on nothing before.
    pub(super) fn begin_stripe(&mut self) {
        self.stripes.push(self.data.len());
        self.last.column = None;
    }

    /// Bytes of the stripe under way.
    pub(super) fn stripe_bytes(&self) -> usize {
        self.data.len() - self.stripes.last().copied().unwrap_or(0)
    }

    /// Where each stripe but the first begins.
    pub(super) fn stripes(&self) -> &[usize] {
        &self.stripes
    }

    /// Forgets all columns and keeps the memory of what encodes.
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.stripes.clear();
        self.by_hash.clear();
        self.last = Last::default();
    }

    fn push_floats(&mut self, times: usize, family: Option<Family>, values: &[f64]) -> Placed {
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
            return known.placed();
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
        known.placed()
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
}

impl Known {
    fn placed(&self) -> Placed {
        Placed {
            kind: self.kind,
            offset: self.offset,
        }
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
