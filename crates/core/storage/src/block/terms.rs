//! The terms of a block: all label values in order, each with the number of its series and the
//! location of its posting list.
//!
//! ```text
//! unit  = terms varint | postings offset varint | series of each | bytes of each list
//!       | bytes of each group | group*
//! group = 16 x (bytes shared with the value before varint | bytes of its own varint | those)
//! ```
//!
//! The lists are integer columns. The values of all labels form one sequence, sorted by label and
//! then by value; the number of a term is its position in that sequence. The first value of each
//! group is stored in full, so that a value can be found by binary search. Posting lists are stored
//! in the order of their terms; the postings offset of a unit is the position of its first list
//! among all lists of the block.

use super::cache::BlockUnit;
use super::numbers;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::page::planner::IntRunPlanner;
use std::cmp::Ordering;
use std::ops::Range;

/// Maximum number of terms in a unit, and the number of value bytes after which it ends.
const UNIT_TERMS: usize = 1_024;
const UNIT_BYTES: usize = 32 << 10;

/// Number of values in a group. A binary search decodes one value per group; a scan decodes all.
const GROUP: usize = 16;

/// A builder of one unit of terms, whose values must be added in order.
#[derive(Debug, Default)]
pub(crate) struct TermsDraft {
    first: Vec<u8>,
    last: Vec<u8>,
    postings: u64,
    counts: Vec<u64>,
    lengths: Vec<u64>,
    values: Vec<u8>,
    groups: Vec<u64>,
}

impl TermsDraft {
    /// Appends a value that `series` series have. `offset` and `bytes` locate its posting
    /// list.
    pub(crate) fn push(&mut self, value: &[u8], series: u32, offset: u64, bytes: usize) {
        if self.counts.is_empty() {
            self.postings = offset;
            self.first = value.to_vec();
        }
        let begins = self.counts.len().is_multiple_of(GROUP);
        if begins {
            self.groups.push(self.values.len() as u64);
        }
        let shared = if begins {
            0
        } else {
            shared_prefix_len(&self.last, value)
        };
        push_uvarint(&mut self.values, shared as u64);
        push_uvarint(&mut self.values, (value.len() - shared) as u64);
        self.values.extend_from_slice(&value[shared..]);
        self.last.clear();
        self.last.extend_from_slice(value);
        self.counts.push(series.into());
        self.lengths.push(bytes as u64);
    }

    /// Returns whether the unit has reached its limit of terms or bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.counts.len() >= UNIT_TERMS || self.values.len() >= UNIT_BYTES
    }

    /// Returns the number of terms added so far.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Ends the unit and returns its first value and its encoding.
    pub(crate) fn end_unit(&mut self, planner: &mut IntRunPlanner) -> (Vec<u8>, Vec<u8>) {
        let draft = std::mem::take(self);
        let ends = draft
            .groups
            .iter()
            .skip(1)
            .copied()
            .chain([draft.values.len() as u64]);
        let lengths = draft.groups.iter().zip(ends).map(|(at, end)| end - at);
        let mut out = Vec::new();
        push_uvarint(&mut out, draft.counts.len() as u64);
        push_uvarint(&mut out, draft.postings);
        numbers::push_numbers(&mut out, planner, draft.counts.iter().copied());
        numbers::push_numbers(&mut out, planner, draft.lengths.iter().copied());
        numbers::push_numbers(&mut out, planner, lengths);
        out.extend_from_slice(&draft.values);
        (draft.first, out)
    }
}

fn shared_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The number of series with a term, and the location of their posting list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TermPostings {
    pub(crate) series: u32,
    /// Offset among the concatenated posting lists of the block.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// A unit of terms whose counts and locations are decoded; values are decoded on demand.
#[derive(Debug)]
pub(crate) struct TermsUnit {
    bytes: Vec<u8>,
    postings: Vec<TermPostings>,
    /// Offset of each group in the unit.
    groups: Vec<u32>,
}

impl BlockUnit for TermsUnit {
    fn memory_bytes(&self) -> usize {
        let postings = self.postings.len() * size_of::<TermPostings>();
        size_of::<Self>() + self.bytes.len() + postings + self.groups.len() * 4
    }
}

impl TermsUnit {
    /// Decodes the directory of a unit of `len` terms. Rejects numbers that are out of range.
    pub(crate) fn open(bytes: Vec<u8>, len: usize) -> Result<Self, DecodeError> {
        let too_large = |_| DecodeError("number too large");
        let mut cursor = DecodeCursor::new(&bytes);
        // Each value takes at least two bytes.
        if cursor.read_count(2)? != len {
            return Err(DecodeError(
                "unit whose number of terms differs from its header",
            ));
        }
        let mut offset = cursor.read_uvarint()?;
        let counts = numbers::read_numbers(&mut cursor, len)?;
        let lengths = numbers::read_numbers(&mut cursor, len)?;
        let group_lengths = numbers::read_numbers(&mut cursor, len.div_ceil(GROUP))?;
        let mut postings = Vec::with_capacity(len);
        for (series, bytes) in counts.into_iter().zip(lengths) {
            postings.push(TermPostings {
                series: u32::try_from(series).map_err(too_large)?,
                offset,
                bytes: u32::try_from(bytes).map_err(too_large)?,
            });
            let next = offset.checked_add(bytes);
            offset = next.ok_or(DecodeError("lists of series beyond all bounds"))?;
        }
        let mut groups = Vec::with_capacity(group_lengths.len());
        for length in group_lengths {
            groups.push(u32::try_from(bytes.len() - cursor.len()).map_err(too_large)?);
            cursor.read_bytes(usize::try_from(length).unwrap_or(usize::MAX))?;
        }
        if cursor.is_empty() {
            Ok(Self {
                bytes,
                postings,
                groups,
            })
        } else {
            Err(DecodeError("bytes after the last value"))
        }
    }

    /// Returns the number of terms.
    pub(crate) fn len(&self) -> usize {
        self.postings.len()
    }

    /// Returns the posting list of the term with this index.
    pub(crate) fn postings(&self, index: usize) -> Option<TermPostings> {
        self.postings.get(index).copied()
    }

    /// Returns the index of `value` among the terms in the range `among`, which must belong to one
    /// label.
    pub(crate) fn find(
        &self,
        value: &[u8],
        among: Range<usize>,
    ) -> Result<Option<usize>, DecodeError> {
        // The groups that begin with a term of the label, and the group before them.
        let first = among.start.div_ceil(GROUP);
        let (mut low, mut high) = (first, among.end.div_ceil(GROUP).max(first));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.seek_group(middle)?.value().cmp(value) {
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(Some(middle * GROUP)),
                Ordering::Less => low = middle + 1,
            }
        }
        let group = low.saturating_sub(1);
        let mut walk = self.seek_group(group)?;
        while walk.index < among.end {
            if walk.index >= among.start {
                match walk.value().cmp(value) {
                    Ordering::Less => {}
                    Ordering::Equal => return Ok(Some(walk.index)),
                    Ordering::Greater => return Ok(None),
                }
            }
            if !walk.next()? {
                break;
            }
        }
        Ok(None)
    }

    /// Appends the value of the term with this index to `into`.
    pub(crate) fn value(&self, index: usize, into: &mut Vec<u8>) -> Result<(), DecodeError> {
        let mut walk = self.seek_group(index / GROUP)?;
        while walk.index < index {
            if !walk.next()? {
                return Err(DecodeError("number of no term"));
            }
        }
        into.extend_from_slice(walk.value());
        Ok(())
    }

    /// Calls `each` with the index and the value of the terms in `among`, and stops at
    /// the first error. `malformed` converts decoding errors.
    pub(crate) fn for_each_value<E>(
        &self,
        among: Range<usize>,
        mut each: impl FnMut(usize, &[u8]) -> Result<(), E>,
        malformed: impl Fn(DecodeError) -> E,
    ) -> Result<(), E> {
        if among.is_empty() {
            return Ok(());
        }
        let mut walk = self.seek_group(among.start / GROUP).map_err(&malformed)?;
        while walk.index < among.end {
            if walk.index >= among.start {
                each(walk.index, walk.value())?;
            }
            if !walk.next().map_err(&malformed)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns an iterator positioned at the first value of a group.
    fn seek_group(&self, group: usize) -> Result<TermValueCursor<'_>, DecodeError> {
        let start = self
            .groups
            .get(group)
            .ok_or(DecodeError("number of no term"))?;
        let mut walk = TermValueCursor {
            cursor: DecodeCursor::new(&self.bytes[*start as usize..]),
            index: group * GROUP,
            len: self.postings.len(),
            value: Vec::new(),
            first: &[],
        };
        walk.read_first()?;
        Ok(walk)
    }
}

/// An iterator over the values of a unit, which undoes their prefix compression.
struct TermValueCursor<'a> {
    cursor: DecodeCursor<'a>,
    index: usize,
    len: usize,
    value: Vec<u8>,
    /// First value of the current group, which is stored in full.
    first: &'a [u8],
}

impl TermValueCursor<'_> {
    fn value(&self) -> &[u8] {
        if self.index.is_multiple_of(GROUP) {
            self.first
        } else {
            &self.value
        }
    }

    fn read_first(&mut self) -> Result<(), DecodeError> {
        if self.cursor.read_uvarint()? != 0 {
            return Err(DecodeError("first value of a group that leans on another"));
        }
        self.first = self.cursor.read_prefixed()?;
        Ok(())
    }

    /// Advances to the next value. Returns false at the end of the unit.
    fn next(&mut self) -> Result<bool, DecodeError> {
        self.index += 1;
        if self.index >= self.len {
            return Ok(false);
        }
        if self.index.is_multiple_of(GROUP) {
            self.read_first()?;
            return Ok(true);
        }
        if self.index % GROUP == 1 {
            self.value.clear();
            self.value.extend_from_slice(self.first);
        }
        let shared = usize::try_from(self.cursor.read_uvarint()?).unwrap_or(usize::MAX);
        if shared > self.value.len() {
            return Err(DecodeError(
                "value that shares more bytes than its predecessor has",
            ));
        }
        self.value.truncate(shared);
        let rest = self.cursor.read_prefixed()?;
        self.value.extend_from_slice(rest);
        Ok(true)
    }
}
