//! What stands before a page's columns, and again in the directory of its segment.
//!
//! ```text
//! meta = version u8 | group varint | window end zigzag | first time zigzag | time span varint
//!      | unsealed after varint | sealed up to varint | runs varint | run*
//! run  = skipped varint | length varint - 1        slots of the group that have a column
//! ```

use super::group::{GROUP_SLOTS, group_of};
use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, push_uvarint, unzigzag, zigzag};
use crate::ids::{GroupId, SeriesRef};
use crate::index::{Run, Runs};
use firn_model::log::Position;
use firn_model::sample::{TimeRange, TimestampMs};

const VERSION: u8 = 1;

/// What a page holds, and what it took over from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageMeta {
    /// Its group.
    pub(crate) group: GroupId,
    /// It was sealed for samples up to here.
    pub(crate) window_end: TimestampMs,
    /// From its oldest sample to its newest.
    pub(crate) range: TimeRange,
    /// Frames of the log up to here have no sample of the group that is not in this page or one
    /// before it.
    pub(crate) unsealed_after: Position,
    /// Frames of the log after this have no sample of this page.
    pub(crate) sealed_up_to: Position,
    /// The series that have a column.
    pub(crate) slots: Runs,
}

impl PageMeta {
    /// Appends the bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        push_uvarint(out, u64::from(self.group.0));
        push_uvarint(out, zigzag(self.window_end));
        push_uvarint(out, zigzag(self.range.min));
        push_uvarint(out, self.range.max.wrapping_sub(self.range.min) as u64);
        push_uvarint(out, self.unsealed_after.0);
        push_uvarint(out, self.sealed_up_to.0);
        let runs = self.slots.as_slice();
        let is_of = |run: &Run| group_of(SeriesRef(run.start)) == self.group;
        let last = runs
            .last()
            .map_or(0, |run| run.end - self.group.first_slot());
        assert!(runs.first().is_none_or(is_of) && last <= GROUP_SLOTS);
        push_uvarint(out, runs.len() as u64);
        let mut at = self.group.first_slot();
        for run in runs {
            push_uvarint(out, u64::from(run.start - at));
            push_uvarint(out, u64::from(run.end - run.start - 1));
            at = run.end;
        }
    }

    /// Reads the bytes.
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        if cursor.byte()? != VERSION {
            return Err(Malformed("page of an unknown version"));
        }
        let out_of_range = Malformed("page out of range");
        let group = u32::try_from(cursor.uvarint()?).map_err(|_| out_of_range)?;
        let first_slot = group.checked_mul(GROUP_SLOTS).ok_or(out_of_range)?;
        let end_slot = first_slot.checked_add(GROUP_SLOTS).ok_or(out_of_range)?;
        let window_end = unzigzag(cursor.uvarint()?);
        let min = unzigzag(cursor.uvarint()?);
        let max = min.wrapping_add(cursor.uvarint()? as i64);
        if max < min {
            return Err(out_of_range);
        }
        let unsealed_after = Position(cursor.uvarint()?);
        let sealed_up_to = Position(cursor.uvarint()?);
        let mut slots = Runs::default();
        let mut at = u64::from(first_slot);
        for _ in 0..cursor.count(2)? {
            let start = at.saturating_add(cursor.uvarint()?);
            at = start.saturating_add(cursor.uvarint()?).saturating_add(1);
            if at > u64::from(end_slot) {
                return Err(out_of_range);
            }
            slots.push(Run {
                start: start as u32,
                end: at as u32,
            });
        }
        if slots.is_empty() {
            return Err(Malformed("page without a series"));
        }
        Ok(Self {
            group: GroupId(group),
            window_end,
            range: TimeRange::new(min, max),
            unsealed_after,
            sealed_up_to,
            slots,
        })
    }
}
