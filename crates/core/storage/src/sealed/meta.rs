//! The header of a page, stored before its columns and again in the directory of its segment.
//!
//! ```text
//! meta = version u8 | group varint | window end zigzag | first time zigzag | time span varint
//!      | unsealed after varint | sealed up to varint | runs varint | run*
//! run  = skipped varint | length varint - 1        places in the group that have a column
//! ```

use super::group::GROUP_SLOTS;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint, unzigzag, zigzag};
use crate::ids::{GroupId, SeriesSlot};
use crate::index::{SlotRun, SlotRunSet};
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};

const VERSION: u8 = 1;

/// The header of a page: its series and time range, and the WAL positions that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedPageMeta {
    /// Group of the series in the page.
    pub(crate) group: GroupId,
    /// End of the window that it was sealed for, in milliseconds.
    pub(crate) window_end: TimestampMs,
    /// Time range from the oldest to the newest sample, both inclusive.
    pub(crate) range: TimeRange,
    /// Position up to which every sample of the group in the WAL is in this page or in an earlier
    /// one.
    pub(crate) unsealed_after: LogPosition,
    /// Position after which the WAL contains no sample of this page.
    pub(crate) sealed_up_to: LogPosition,
    /// Places in the group of the series that have a column.
    pub(crate) places: SlotRunSet,
}

impl SealedPageMeta {
    /// Appends the encoded header to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        push_uvarint(out, self.group.0);
        push_uvarint(out, zigzag(self.window_end));
        push_uvarint(out, zigzag(self.range.min));
        push_uvarint(out, self.range.max.wrapping_sub(self.range.min) as u64);
        push_uvarint(out, self.unsealed_after.0);
        push_uvarint(out, self.sealed_up_to.0);
        let runs = self.places.as_slice();
        assert!(runs.last().is_none_or(|last| last.end <= GROUP_SLOTS));
        push_uvarint(out, runs.len() as u64);
        let mut at = 0;
        for run in runs {
            push_uvarint(out, u64::from(run.start - at));
            push_uvarint(out, u64::from(run.end - run.start - 1));
            at = run.end;
        }
    }

    /// Decodes a header. Rejects groups and places that are out of range and pages without a
    /// series.
    pub(crate) fn decode(cursor: &mut DecodeCursor<'_>) -> Result<Self, DecodeError> {
        if cursor.read_byte()? != VERSION {
            return Err(DecodeError("page of an unknown version"));
        }
        let out_of_range = DecodeError("page out of range");
        let group = GroupId(cursor.read_uvarint()?);
        if group > GroupId::LAST {
            return Err(out_of_range);
        }
        let window_end = unzigzag(cursor.read_uvarint()?);
        let min = unzigzag(cursor.read_uvarint()?);
        let max = min.wrapping_add(cursor.read_uvarint()? as i64);
        if max < min {
            return Err(out_of_range);
        }
        let unsealed_after = LogPosition(cursor.read_uvarint()?);
        let sealed_up_to = LogPosition(cursor.read_uvarint()?);
        let mut places = SlotRunSet::default();
        let mut at = 0u64;
        for _ in 0..cursor.read_count(2)? {
            let start = at.saturating_add(cursor.read_uvarint()?);
            at = start
                .saturating_add(cursor.read_uvarint()?)
                .saturating_add(1);
            if at > u64::from(GROUP_SLOTS) {
                return Err(out_of_range);
            }
            places.push(SlotRun {
                start: start as u32,
                end: at as u32,
            });
        }
        if places.is_empty() {
            return Err(DecodeError("page without a series"));
        }
        Ok(Self {
            group,
            window_end,
            range: TimeRange::new(min, max),
            unsealed_after,
            sealed_up_to,
            places,
        })
    }

    /// Returns the slots of the series that have a column, in ascending order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SeriesSlot> {
        let places = self.places.slots();
        places.map(|place| self.group.slot(place.0))
    }
}
