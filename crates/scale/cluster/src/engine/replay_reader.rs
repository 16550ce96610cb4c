//! Reads the records of a takeover, while later segments are still on their way.

use super::flow::BucketLogShared;
use super::state::{BucketLogPhase, ReplayedItem};
use crate::ids::SegmentSequence;
use crate::log::DeliveredFrame;
use crate::object_name::ObjectName;
use crate::segment::SegmentFrameKind;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{LogDamage, LogPosition, LogRecord, LogRecordReader};
use firn_model::sync::{lock, wait};
use firn_storage::log::codec::{LogRecordCoding, LogUnitDecoder};
use std::path::PathBuf;
use std::sync::Arc;

/// The reader of the records of a takeover. They are read once, by the store that is opened.
pub(super) struct ReplayReader {
    shared: Arc<BucketLogShared>,
    decoder: LogUnitDecoder,
    unit: SegmentSequence,
    from: LogPosition,
}

impl ReplayReader {
    pub(super) fn new(shared: Arc<BucketLogShared>, from: LogPosition) -> Self {
        lock(&shared.state).is_read = true;
        Self {
            shared,
            decoder: LogUnitDecoder::default(),
            unit: SegmentSequence(0),
            from,
        }
    }

    /// Waits for the next item. Returns `None` behind the last record before the FENCE.
    fn next_item(&mut self) -> Result<Option<ReplayedItem>, Error> {
        let mut state = lock(&self.shared.state);
        loop {
            let item = state.replayed.pop_front();
            state.replayed_bytes -= item.as_ref().map_or(0, ReplayedItem::bytes);
            if state.replayed_bytes < self.shared.options.replay_bytes_max
                && let Some((writer, reply)) = state.held_back.pop_front()
            {
                self.shared.apply_reply(&mut state, writer, reply);
                self.shared.drain(state);
                state = lock(&self.shared.state);
            }
            if item.is_some() {
                return Ok(item);
            }
            match &state.phase {
                BucketLogPhase::Leading => return Ok(None),
                BucketLogPhase::Ended(reason) => {
                    return Err(Error::new(ErrorKind::Unavailable, reason.clone()));
                }
                _ if !state.replayed.is_empty() || !state.held_back.is_empty() => {}
                _ => match self.shared.options.simulated_wait() {
                    None => state = wait(&self.shared.changed, state),
                    Some(pass_time) => {
                        drop(state);
                        pass_time();
                        state = lock(&self.shared.state);
                    }
                },
            }
        }
    }

    fn decode(&mut self, frame: &DeliveredFrame) -> Result<LogRecord, LogDamage> {
        if frame.unit != self.unit {
            self.unit = frame.unit;
            self.decoder.begin_unit();
        }
        let coding = match frame.kind {
            SegmentFrameKind::DeltaRecord => LogRecordCoding::Delta,
            _ => LogRecordCoding::Plain,
        };
        let position = frame.position;
        let decoded = self.decoder.decode(position, coding, frame.payload());
        let partition = self.shared.options.core.partition;
        let name = ObjectName::Segment(partition, frame.sequence);
        match decoded {
            Ok(batch) => Ok(LogRecord { position, batch }),
            Err(e) => Err(LogDamage {
                file: PathBuf::from(name.to_string()),
                offset: None,
                what: format!("record {}: {e}", position.0),
            }),
        }
    }
}

impl LogRecordReader for ReplayReader {
    fn next(&mut self) -> Result<Option<Result<LogRecord, LogDamage>>, Error> {
        loop {
            let frame = match self.next_item()? {
                None => return Ok(None),
                Some(ReplayedItem::Loss(damage)) => return Ok(Some(Err(damage))),
                Some(ReplayedItem::Frame(frame)) => frame,
            };
            let decoded = self.decode(&frame);
            if frame.position >= self.from {
                return Ok(Some(decoded));
            }
        }
    }
}
