//! Encodes records in order, and decides where units begin.

use super::options::BucketLogOptions;
use crate::ids::LogTicket;
use crate::log::RecordAppend;
use crate::segment::SegmentFrameKind;
use firn_model::error::Error;
use firn_model::log::{LogBatch, LogPosition};
use firn_storage::log::codec::{LogRecordCoding, LogUnitEncoder};
use std::time::Duration;

/// The encoder of a leadership with the size of its unit. One job owns it at a time.
#[derive(Debug, Default)]
pub(super) struct UnitWriter {
    encoder: LogUnitEncoder,
    /// The time of the first record of the unit; `None` if the next record begins a unit.
    began: Option<Duration>,
    bytes: u64,
}

impl UnitWriter {
    /// Ends the unit: the next record begins one.
    pub(super) fn end_unit(&mut self) {
        self.began = None;
    }

    /// Encodes the record at `position`, which is also its ticket.
    pub(super) fn encode(
        &mut self,
        options: &BucketLogOptions,
        now: Duration,
        position: LogPosition,
        batch: &LogBatch,
    ) -> Result<RecordAppend, Error> {
        let is_old = |began: Duration| now.saturating_sub(began) >= options.unit_age;
        let is_over = self.bytes >= options.unit_bytes || self.began.is_some_and(is_old);
        let begins_unit = is_over || self.began.is_none();
        if begins_unit {
            self.encoder.begin_unit();
            self.bytes = 0;
        }
        self.began = self.began.filter(|_| !begins_unit).or(Some(now));
        let mut payload = Vec::new();
        let coding = self.encoder.encode(position, batch, &mut payload)?;
        self.bytes += payload.len() as u64;
        Ok(RecordAppend {
            ticket: LogTicket(position.0),
            kind: frame_kind(coding),
            payload,
            begins_unit,
        })
    }
}

fn frame_kind(coding: LogRecordCoding) -> SegmentFrameKind {
    match coding {
        LogRecordCoding::Plain => SegmentFrameKind::Record,
        LogRecordCoding::Delta => SegmentFrameKind::DeltaRecord,
    }
}
