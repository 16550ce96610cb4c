//! The fast path for labels in the usual form, which copies them in one pass.
//!
//! Senders write the labels of a series one after another, sorted, unique, not empty, in ASCII. The
//! canonical form of such labels is the message without its field keys, so that they are copied
//! label by label; all other forms are left to [`super::labels::decode_labels`]. This function
//! dominates the cost of decoding. It takes two thirds of the time of a straightforward loop, by
//! moves of a fixed size instead of `memcpy` calls, by comparing names by their first eight bytes,
//! and by one ASCII check for all labels.
//!
//! Invariant: copied labels are canonical, within the limits, and contain a metric name.

use super::keys::{LABEL_KEY, NAME_KEY, VALUE_KEY};
use super::labels::name_and_value;
use crate::limits::WireLimits;
use crate::protobuf::ProtobufCursor;
use firn_model::labels::METRIC_NAME;

/// Size of a fixed move in bytes, enough for nearly all names and values. With half of it, metric
/// and node names would go through `memcpy`, which costs 6 ns for each sample.
const MOVE_BYTES: usize = 64;

/// The result of copying the labels of a series, which succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopiedLabels {
    /// True if the encoded labels equal the key that [`super::KEY_FORMAT`] makes of them. False for
    /// labels of 128 bytes or more, whose length a sender may encode in more bytes than necessary.
    pub(super) is_key: bool,
}

/// Copies the labels at the start of `series` to the end of the arena. Returns `None`, without
/// copying, if they are not in the plain form. `beyond` is the request from the start of the series
/// on: fixed moves may read past the end of the series.
pub(super) fn copy_labels(
    series: &[u8],
    beyond: &[u8],
    limits: &WireLimits,
    arena: &mut Vec<u8>,
) -> Option<CopiedLabels> {
    let start = arena.len();
    // Canonical labels take fewer bytes than encoded ones.
    arena.resize(start + series.len() + MOVE_BYTES, 0);
    let mut labels = PlainLabelCopier {
        out: arena.get_mut(start..)?,
        written: 0,
        ascii_checked: 0,
        previous_head: 0,
        previous: &[],
        has_metric_name: false,
        has_long: false,
    };
    let read = labels.copy_all(series, beyond, limits);
    let copied = read.map(|()| CopiedLabels {
        is_key: !labels.has_long,
    });
    let written = copied.map_or(0, |_| labels.written);
    arena.truncate(start + written);
    copied
}

struct PlainLabelCopier<'m, 'o> {
    out: &'o mut [u8],
    written: usize,
    /// The part of `out` up to this offset is ASCII, except for the lengths of long parts.
    ascii_checked: usize,
    previous_head: u64,
    previous: &'m [u8],
    has_metric_name: bool,
    /// True if a label takes 128 bytes or more.
    has_long: bool,
}

impl<'m> PlainLabelCopier<'m, '_> {
    fn copy_all(&mut self, series: &[u8], beyond: &'m [u8], limits: &WireLimits) -> Option<()> {
        let mut at = 0;
        let mut count = 0;
        while series.get(at) == Some(&LABEL_KEY) {
            at += self.copy_label(beyond.get(at..)?, series.len() - at, limits)?;
            count += 1;
        }
        let is_whole = self.has_metric_name && count <= limits.label_count_max;
        (is_whole && self.is_ascii()).then_some(())
    }

    /// Copies the label at the start of `rest`, which must end within `limit` bytes. Returns its
    /// encoded size in bytes.
    #[inline]
    fn copy_label(&mut self, rest: &'m [u8], limit: usize, limits: &WireLimits) -> Option<usize> {
        let [_, label_bytes @ 0..0x80, NAME_KEY, name_bytes, ..] = *rest else {
            return self.copy_long_label(rest, limit, limits);
        };
        let (label_bytes, name_bytes) = (usize::from(label_bytes), usize::from(name_bytes));
        let value_at = 4 + name_bytes;
        let &[VALUE_KEY, value_bytes] = rest.get(value_at..value_at + 2)? else {
            return None;
        };
        let value_bytes = usize::from(value_bytes);
        let is_exact = label_bytes == 4 + name_bytes + value_bytes && 2 + label_bytes <= limit;
        if !is_exact || !is_within_limits(name_bytes, value_bytes, limits) {
            return None;
        }
        self.check_order(rest.get(4..)?, name_bytes)?;
        self.put(rest.get(3..)?, 1 + name_bytes)?;
        self.put(rest.get(value_at + 1..)?, 1 + value_bytes)?;
        Some(2 + label_bytes)
    }

    /// Copies a label of 128 bytes or more, whose lengths take several bytes. Returns `None` if it
    /// is not in the plain form.
    fn copy_long_label(
        &mut self,
        rest: &'m [u8],
        limit: usize,
        limits: &WireLimits,
    ) -> Option<usize> {
        self.has_long = true;
        let after_key = rest.get(1..limit)?;
        let mut cursor = ProtobufCursor::new(after_key);
        let (name, value) = name_and_value(cursor.read_bytes().ok()?).ok()?;
        if !is_within_limits(name.len(), value.len(), limits) {
            return None;
        }
        self.check_order(name, name.len())?;
        self.put_long(name)?;
        self.put_long(value)?;
        Some(1 + after_key.len() - cursor.rest().len())
    }

    /// Returns `None` unless the name of `bytes` bytes at the start of `rest` sorts after the
    /// previous one.
    #[inline]
    fn check_order(&mut self, rest: &'m [u8], bytes: usize) -> Option<()> {
        const METRIC_NAME_HEAD: u64 = u64::from_be_bytes(*b"__name__");
        let head = match rest.first_chunk::<8>() {
            Some(chunk) if bytes >= 8 => u64::from_be_bytes(*chunk),
            Some(chunk) => u64::from_be_bytes(*chunk) & !(u64::MAX >> (8 * bytes)),
            None => return None,
        };
        let name = rest.get(..bytes)?;
        if head < self.previous_head || head == self.previous_head && name <= self.previous {
            return None;
        }
        self.has_metric_name |= head == METRIC_NAME_HEAD && bytes == METRIC_NAME.len();
        self.previous_head = head;
        self.previous = name;
        Some(())
    }

    /// Appends `count` bytes from the start of `rest` by a fixed move if possible.
    #[inline]
    fn put(&mut self, rest: &[u8], count: usize) -> Option<()> {
        let out = self.out.get_mut(self.written..)?;
        match (out.first_chunk_mut::<MOVE_BYTES>(), rest.first_chunk()) {
            (Some(to), Some(from)) if count <= MOVE_BYTES => *to = *from,
            _ => out.get_mut(..count)?.copy_from_slice(rest.get(..count)?),
        }
        self.written += count;
        Some(())
    }

    /// Appends a length of any size and that many bytes, after a check that everything so far is
    /// ASCII.
    fn put_long(&mut self, bytes: &[u8]) -> Option<()> {
        if !self.is_ascii() || !bytes.is_ascii() {
            return None;
        }
        let mut length = bytes.len();
        while length >= 0x80 {
            self.put(&[length as u8 | 0x80], 1)?;
            length >>= 7;
        }
        self.put(&[length as u8], 1)?;
        self.put(bytes, bytes.len())?;
        self.ascii_checked = self.written;
        Some(())
    }

    fn is_ascii(&self) -> bool {
        self.out
            .get(self.ascii_checked..self.written)
            .is_some_and(<[u8]>::is_ascii)
    }
}

#[inline]
fn is_within_limits(name_bytes: usize, value_bytes: usize, limits: &WireLimits) -> bool {
    name_bytes <= limits.label_name_bytes_max
        && value_bytes <= limits.label_value_bytes_max
        && value_bytes > 0
}
