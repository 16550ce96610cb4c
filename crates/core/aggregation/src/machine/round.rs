//! The journal of the machine: records of operations, snapshots of lanes, and replay.
//!
//! A round writes one snapshot of every lane. It is spread over data time and over the growth of
//! the journal, so that no record is long and a start reads two rounds at most. Lanes are
//! independent: the replay of a lane begins at its own snapshot, wherever in the round that is.
//!
//! ```text
//! record = hash | number varint | data time zigzag | section*
//! section = lane varint | what u8 (operations, snapshot, gone) | prefixed bytes
//! ```

use super::look_up::SourceLookup;
use super::sources::SourceTable;
use super::{AggregationState, LANES, LaneSlot};
use crate::code::{AggregationJournalError, AggregationJournalReader, push_bytes, push_signed};
use crate::failpoints::{self, AggregationFlaw};
use crate::lane::AggregationLane;
use crate::ops;
use crate::spec::GROUPS_MAX;
use firn_model::labels::push_uvarint;
use firn_model::log::{JournalMark, JournalRecord};
use firn_model::sample::TimestampMs;

const OPERATIONS: u8 = 0;
const SNAPSHOT: u8 = 1;
const GONE: u8 = 2;

/// Duration of a round in milliseconds of data time: a quarter of the minimum time that the log
/// keeps samples.
const ROUND_MS: i64 = 8 * 60 * 1000;

/// A round ends early after the journal has grown by this multiple of the state's size, plus a
/// minimum in bytes.
const ROUND_STATES: usize = 4;
const ROUND_BYTES_MIN: usize = 1 << 20;

/// Size in bytes after which a record of the whole state is continued in another record.
const RECORD_BYTES: usize = 4 << 20;

/// The progress of the current round, which decides how many snapshots are due.
#[derive(Debug, Default)]
pub(super) struct SnapshotRound {
    /// Index of the next lane to snapshot.
    next: usize,
    /// Data time at its start.
    began: TimestampMs,
    /// Bytes of journal records since its start.
    bytes: usize,
    /// Bytes of the snapshots in this round and in the previous one.
    state: usize,
    state_before: usize,
}

impl AggregationState {
    /// Returns the record to log now: the operations since the previous record, and due snapshots.
    pub(crate) fn take_journal(&mut self) -> JournalRecord {
        let mut bytes = Vec::new();
        for place in 0..self.lanes.len() {
            if let Some(slot) = &mut self.lanes[place]
                && !slot.ops.bytes.is_empty()
            {
                if bytes.is_empty() {
                    bytes = self.begin_record();
                }
                if let Some(slot) = &mut self.lanes[place] {
                    push_section(&mut bytes, place, OPERATIONS, &slot.ops.bytes);
                    slot.ops.clear();
                }
            }
        }
        self.round.bytes += bytes.len();
        let due = self.count_due_lanes();
        if due <= self.round.next {
            return self.end_record(bytes, JournalMark::Continues);
        }
        if bytes.is_empty() {
            bytes = self.begin_record();
        }
        let begins = self.round.next == 0;
        if begins {
            self.round.began = self.data_time;
        }
        while self.round.next < due {
            let place = self.round.next;
            self.round.next += 1;
            self.round.state += self.push_snapshot(&mut bytes, place);
        }
        let is_half = self.round.next * 2 >= self.lanes.len();
        let is_early = is_half && failpoints::has(AggregationFlaw::CompletesEarly);
        let completes = self.round.next == self.lanes.len() || is_early;
        if completes {
            self.end_round();
        }
        self.end_record(bytes, journal_mark(begins, completes))
    }

    /// Returns the whole state, split into as many records as necessary.
    pub(crate) fn encode_whole_state(&mut self) -> Vec<JournalRecord> {
        let mut records = Vec::new();
        let mut bytes = self.begin_record();
        self.round.state = 0;
        for place in 0..self.lanes.len() {
            if bytes.len() > RECORD_BYTES {
                let begins = records.is_empty();
                let next = self.begin_next_record();
                let full = std::mem::replace(&mut bytes, next);
                let mark = journal_mark(begins, false);
                records.push(JournalRecord { mark, bytes: full });
            }
            if let Some(slot) = &mut self.lanes[place] {
                slot.ops.clear();
            }
            self.round.state += self.push_snapshot(&mut bytes, place);
        }
        self.end_round();
        let mark = journal_mark(records.is_empty(), true);
        records.push(self.end_record(bytes, mark));
        records
    }

    fn end_round(&mut self) {
        self.round = SnapshotRound {
            began: self.data_time,
            state_before: self.round.state,
            ..SnapshotRound::default()
        };
    }

    /// Returns the number of lanes whose snapshots must be written by now in this round.
    fn count_due_lanes(&self) -> usize {
        let lanes = self.lanes.len();
        let round = &self.round;
        let passed = self.data_time.saturating_sub(round.began).max(0);
        let by_time = passed as f64 / ROUND_MS as f64;
        let all_bytes = ROUND_BYTES_MIN + ROUND_STATES * round.state_before;
        let by_bytes = round.bytes as f64 / all_bytes as f64;
        let share = by_time.max(by_bytes).min(1.0);
        (share * lanes as f64) as usize
    }

    /// Appends the snapshot of a lane; returns its size in bytes.
    fn push_snapshot(&self, out: &mut Vec<u8>, place: usize) -> usize {
        let Some(slot) = &self.lanes[place] else {
            push_section(out, place, GONE, &[]);
            return 0;
        };
        let mut bytes = Vec::new();
        push_bytes(&mut bytes, slot.group.as_bytes());
        push_uvarint(&mut bytes, slot.number as u64);
        slot.lane.encode(&mut bytes);
        push_section(out, place, SNAPSHOT, &bytes);
        bytes.len()
    }

    fn begin_record(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.look_up.hashing.push_encoded(&mut bytes);
        push_uvarint(&mut bytes, self.sequence);
        push_signed(&mut bytes, self.data_time);
        bytes
    }

    fn begin_next_record(&mut self) -> Vec<u8> {
        self.sequence += 1;
        self.begin_record()
    }

    fn end_record(&mut self, bytes: Vec<u8>, mark: JournalMark) -> JournalRecord {
        self.sequence += u64::from(!bytes.is_empty());
        JournalRecord { mark, bytes }
    }

    /// Restores the state from the journal `records`, beginning where a replay must begin. Lanes
    /// affected by damage lose their sources, but their totals continue. Returns the number of such
    /// lanes.
    pub(crate) fn restore(&mut self, records: &[Vec<u8>]) -> usize {
        let mut expected = None;
        for record in records {
            if self.replay_record(record, &mut expected).is_err() {
                // The content of the record is lost, so that any lane may be incomplete.
                expected = Some(u64::MAX);
            }
        }
        if expected == Some(u64::MAX) {
            self.mark_all_incomplete();
        }
        let lost = self.lanes.iter_mut().flatten().filter(|slot| slot.is_lost);
        let mut count = 0;
        for slot in lost {
            slot.is_lost = false;
            slot.lane.forget_sources();
            count += 1;
        }
        self.sources = SourceTable::from_lanes(&mut self.lanes);
        count
    }

    fn replay_record(
        &mut self,
        record: &[u8],
        expected: &mut Option<u64>,
    ) -> Result<(), AggregationJournalError> {
        let mut reader = AggregationJournalReader(record);
        if let Some(hashing) = self.look_up.hashing.read_if_different(&mut reader)? {
            // The records of another state begin here.
            self.lanes.clear();
            self.look_up = SourceLookup::new(hashing);
            (*expected, self.data_time) = (None, i64::MIN);
        }
        let number = reader.read_unsigned()?;
        if expected.is_some_and(|expected| expected != number) {
            self.mark_all_incomplete();
        }
        *expected = number.checked_add(1);
        self.sequence = expected.unwrap_or(0);
        self.data_time = self.data_time.max(reader.read_signed()?);
        while !reader.is_empty() {
            let place = reader.read_small()? as usize;
            let what = reader.read_byte()?;
            let bytes = reader.read_bytes()?;
            if place >= GROUPS_MAX * LANES {
                return Err(AggregationJournalError("number of a lane"));
            }
            self.replay_section(place, what, bytes)?;
        }
        Ok(())
    }

    fn replay_section(
        &mut self,
        place: usize,
        what: u8,
        bytes: &[u8],
    ) -> Result<(), AggregationJournalError> {
        if self.lanes.len() <= place {
            let lanes = (place + 1).next_multiple_of(LANES);
            self.lanes.resize_with(lanes, || None);
        }
        let known = &mut self.lanes[place];
        match (what, known) {
            (GONE, known) => *known = None,
            (SNAPSHOT, known) => *known = Some(read_snapshot(bytes)?),
            (OPERATIONS, Some(slot)) if !slot.is_lost => {
                if ops::replay_ops(&mut slot.lane, bytes).is_err() {
                    slot.is_lost = true;
                }
            }
            // The snapshot of the lane follows later in the round.
            (OPERATIONS, _) => {}
            _ => return Err(AggregationJournalError("section")),
        }
        Ok(())
    }

    /// Marks all lanes as incomplete: each remains so until its next snapshot.
    fn mark_all_incomplete(&mut self) {
        for slot in self.lanes.iter_mut().flatten() {
            slot.is_lost = true;
        }
    }
}

fn read_snapshot(bytes: &[u8]) -> Result<LaneSlot, AggregationJournalError> {
    let mut reader = AggregationJournalReader(bytes);
    let group = str::from_utf8(reader.read_bytes()?)
        .map_err(|_| AggregationJournalError("name of a group"))?;
    let number = reader.read_small()? as usize;
    let lane = AggregationLane::decode(&mut reader)?;
    if reader.is_empty() && number < LANES {
        Ok(LaneSlot::new(group, number, lane))
    } else {
        Err(AggregationJournalError("snapshot of a lane"))
    }
}

fn push_section(out: &mut Vec<u8>, place: usize, what: u8, bytes: &[u8]) {
    push_uvarint(out, place as u64);
    out.push(what);
    push_bytes(out, bytes);
}

fn journal_mark(begins: bool, completes: bool) -> JournalMark {
    match (begins, completes) {
        (true, true) => JournalMark::Whole,
        (true, false) => JournalMark::Begins,
        (false, true) => JournalMark::Complete,
        (false, false) => JournalMark::Continues,
    }
}
