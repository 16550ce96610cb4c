//! The encoding of log records, for engines that store them in units of their own.
//!
//! ```text
//! LogBatch -> LogUnitEncoder -> (coding, payload) -> stored -> LogUnitDecoder -> LogBatch
//! ```
//!
//! A *unit* is a run of records that is read from its first record on. Most records are encoded as
//! differences from earlier ones of their unit; the engine stores the coding of each record beside
//! its payload. Invariants: the first record after [`LogUnitEncoder::begin_unit`] depends on no
//! earlier one; a record whose predecessors were lost is an error, never a wrong value; a decoder
//! never panics, and allocates by decoded content, never by an unchecked length. Payloads have no
//! checksum that covers all of their bytes: the engine adds one.
//! `docs/format/log-record.md` and `docs/format/log.md` describe the bytes.

use super::delta_codec::{DeltaRecordDecoder, DeltaRecordEncoder};
use super::record::{self, LogRecordEncoder, PlainValueDecoder};
use crate::error::StorageError;
use crate::file::frame::{FrameKind, PAYLOAD_BYTES_MAX};
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{LogBatch, LogPosition};

/// Maximum size of an encoded record for which the encoder keeps its buffers, in bytes; most
/// requests take less.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// The coding of a record, which the engine stores with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogRecordCoding {
    /// The record depends on no other.
    Plain,
    /// The values depend on earlier records of the unit.
    Delta,
}

impl LogRecordCoding {
    /// Returns the number of the coding in stored bytes, that of the local log.
    pub fn code(self) -> u8 {
        match self {
            Self::Plain => FrameKind::Log as u8,
            Self::Delta => FrameKind::DeltaCoded as u8,
        }
    }
}

/// Encodes records in the order of their positions. An engine creates one for each log.
#[derive(Debug, Default)]
pub struct LogUnitEncoder {
    delta: DeltaRecordEncoder,
    record: LogRecordEncoder,
}

impl LogUnitEncoder {
    /// Begins a unit: the next record depends on no earlier one.
    pub fn begin_unit(&mut self) {
        self.delta.begin();
    }

    /// Sets `into` to the payload of `batch` at `position`, and returns its coding. The engine must
    /// store each encoded record at its position, or begin a unit: later ones depend on it. After
    /// an error the record counts as not encoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Limited`] if the payload exceeds [`super::PAYLOAD_BYTES_MAX`].
    pub fn encode(
        &mut self,
        position: LogPosition,
        batch: &LogBatch,
        into: &mut Vec<u8>,
    ) -> Result<LogRecordCoding, Error> {
        let is_delta = self.delta.encode(
            position,
            batch,
            PAYLOAD_BYTES_MAX,
            &mut self.record,
            &mut *into,
        );
        if !is_delta {
            self.record.encode(batch, into);
        }
        if into.len() > BUFFER_BYTES_KEPT {
            self.record = LogRecordEncoder::default();
        }
        if into.len() > PAYLOAD_BYTES_MAX {
            let (bytes, limit) = (into.len(), PAYLOAD_BYTES_MAX);
            return Err(StorageError::RecordTooLarge { bytes, limit }.into());
        }
        Ok(if is_delta {
            LogRecordCoding::Delta
        } else {
            LogRecordCoding::Plain
        })
    }
}

/// Decodes records in the order of their positions, from the first one of a unit on. An engine
/// creates one for each reader.
#[derive(Debug, Default)]
pub struct LogUnitDecoder {
    delta: DeltaRecordDecoder,
}

impl LogUnitDecoder {
    /// Forgets the records so far. The reader continues with the first record of a unit.
    pub fn begin_unit(&mut self) {
        self.delta = DeltaRecordDecoder::default();
    }

    /// Decodes the record at `position`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the payload is malformed, or if a record is lost that it depends
    /// on. The reader may continue with the next record.
    pub fn decode(
        &mut self,
        position: LogPosition,
        coding: LogRecordCoding,
        payload: &[u8],
    ) -> Result<LogBatch, Error> {
        let decoded = match coding {
            LogRecordCoding::Plain => record::decode(payload, &mut PlainValueDecoder),
            LogRecordCoding::Delta => self.delta.decode(position, payload),
        };
        decoded.map_err(|e| Error::new(ErrorKind::Corrupt, e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::log::FloatRow;

    /// Returns a batch of the series 1 and 2.
    fn batch(round: u64) -> LogBatch {
        let mut batch = LogBatch::default();
        for slot in [1, 2] {
            let (time, start) = (round as i64 * 15_000, 0);
            let value = (slot * 1_000 + round * 7) as f64;
            let row = FloatRow {
                slot,
                time,
                start,
                value,
            };
            batch.floats.push(row, firn_model::log::DecimalHint::NONE);
        }
        batch
    }

    type Coded = Vec<(LogPosition, LogRecordCoding, Vec<u8>)>;

    /// Encodes four batches as two units.
    fn two_units() -> Coded {
        let mut encoder = LogUnitEncoder::default();
        let encode = |round: u64| {
            if round == 3 {
                encoder.begin_unit();
            }
            let mut payload = Vec::new();
            let position = LogPosition(round);
            let coding = encoder.encode(position, &batch(round), &mut payload);
            (position, coding.unwrap(), payload)
        };
        (1..=4).map(encode).collect()
    }

    /// Decodes records, and returns the position of each with whether it was as encoded.
    fn decode(coded: &[(LogPosition, LogRecordCoding, Vec<u8>)]) -> Vec<(u64, bool)> {
        let mut decoder = LogUnitDecoder::default();
        let each = coded.iter().map(|(position, coding, payload)| {
            let decoded = decoder.decode(*position, *coding, payload);
            if let Ok(decoded) = &decoded {
                let rows =
                    |batch: &LogBatch| format!("{:?}", batch.floats.iter().collect::<Vec<_>>());
                assert_eq!(rows(decoded), rows(&batch(position.0)));
            }
            (position.0, decoded.is_ok())
        });
        each.collect()
    }

    #[test]
    fn records_of_units_are_read_from_the_first_record_of_any_unit() {
        let coded = two_units();
        assert!(coded.iter().all(|(_, coding, _)| coding.code() == 7));
        let all = [(1, true), (2, true), (3, true), (4, true)];
        assert_eq!(decode(&coded), all);
        assert_eq!(decode(&coded[2..]), all[2..]);
    }

    #[test]
    fn record_whose_predecessor_is_lost_is_an_error_until_the_next_unit() {
        let mut coded = two_units();
        coded.remove(0);
        let expected = [(2, false), (3, true), (4, true)];
        assert_eq!(decode(&coded), expected);
    }

    #[test]
    fn record_with_any_byte_cut_off_is_an_error() {
        for (position, coding, payload) in two_units() {
            for end in 0..payload.len() {
                let mut decoder = LogUnitDecoder::default();
                let decoded = decoder.decode(position, coding, &payload[..end]);
                assert_eq!(decoded.map(drop).unwrap_err().kind, ErrorKind::Corrupt);
            }
        }
    }
}
