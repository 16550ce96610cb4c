//! Encodes the whole state of a lane, and decodes it.

use super::{AggregationLane, LaneHistograms, LaneParams, WaitingGaugeSample};
use crate::code::{
    AggregationJournalError, AggregationJournalReader, add_exact_step, exact_difference,
    push_fingerprint, push_float, push_signed,
};
use crate::entries::{ENTRIES_MAX, SourceEntry};
use crate::failpoints::{self, AggregationFlaw};
use crate::output::AggregationOutput;
use firn_model::labels::push_uvarint;

/// Largest number of outputs in a lane, because each has at least one source.
const OUTPUTS_MAX: u32 = ENTRIES_MAX as u32;

impl AggregationLane {
    /// Appends the encoded state of the lane.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        push_signed(out, self.params.interval_ms);
        push_signed(out, self.params.lookback_ms);
        push_signed(out, self.written);
        push_uvarint(out, self.by_result.len() as u64);
        for (at, output) in self.outputs.iter().enumerate() {
            if let Some(output) = output {
                push_uvarint(out, at as u64);
                output.encode(out);
            }
        }
        self.encode_entries(out);
        self.encode_open(out);
        self.natives.encode(out);
    }

    fn encode_open(&self, out: &mut Vec<u8>) {
        if failpoints::has(AggregationFlaw::ForgetsWaiting) {
            return out.push(0);
        }
        push_uvarint(out, self.open.len() as u64);
        for (end, waiting) in &self.open {
            push_signed(out, *end);
            push_uvarint(out, waiting.len() as u64);
            for waiting in waiting {
                push_uvarint(out, u64::from(waiting.entry));
                push_signed(out, waiting.time.wrapping_sub(*end));
                push_float(out, waiting.value);
            }
        }
    }

    fn encode_entries(&self, out: &mut Vec<u8>) {
        push_uvarint(out, self.entries.len() as u64);
        let (mut next, mut time) = (0, 0i64);
        for (at, entry) in self.entries.iter() {
            push_uvarint(out, u64::from(at - next));
            next = at + 1;
            push_fingerprint(out, entry.print);
            push_uvarint(out, u64::from(entry.output));
            push_signed(out, entry.time.wrapping_sub(time));
            time = entry.time;
            match exact_difference(0.0, entry.value) {
                Some(value) => {
                    out.push(0);
                    push_signed(out, value);
                }
                None => {
                    out.push(1);
                    push_float(out, entry.value);
                }
            }
        }
    }

    /// Reads the state that [`AggregationLane::encode`] wrote. Fails if it is malformed.
    pub(crate) fn decode(
        reader: &mut AggregationJournalReader<'_>,
    ) -> Result<Self, AggregationJournalError> {
        let params = LaneParams {
            interval_ms: reader.read_signed()?,
            lookback_ms: reader.read_signed()?,
        };
        if params.interval_ms < 1 || params.lookback_ms < 1 {
            return Err(AggregationJournalError("times of a lane"));
        }
        let mut lane = AggregationLane::new(params, reader.read_signed()?);
        for _ in 0..reader.read_unsigned()? {
            let at = reader.read_small()?;
            if at >= OUTPUTS_MAX {
                return Err(AggregationJournalError("number of an output"));
            }
            lane.put_output(at, AggregationOutput::decode(reader)?);
        }
        lane.decode_entries(reader)?;
        for _ in 0..reader.read_unsigned()? {
            let end = reader.read_signed()?;
            for _ in 0..reader.read_unsigned()? {
                let waiting = WaitingGaugeSample {
                    entry: reader.read_small()?,
                    time: reader.read_signed()?.wrapping_add(end),
                    value: reader.read_float()?,
                };
                let entry = lane.entries.get_mut(waiting.entry);
                let entry = entry.ok_or(AggregationJournalError("sample of no source"))?;
                entry.waiting = entry.waiting.saturating_add(1);
                lane.open.entry(end).or_default().push(waiting);
            }
        }
        lane.natives = LaneHistograms::decode(reader, &mut lane.entries)?;
        Ok(lane)
    }

    fn decode_entries(
        &mut self,
        reader: &mut AggregationJournalReader<'_>,
    ) -> Result<(), AggregationJournalError> {
        let (mut next, mut time) = (0u32, 0i64);
        for _ in 0..reader.read_unsigned()? {
            let at = next.checked_add(reader.read_small()?);
            let at = at.filter(|at| (*at as usize) < ENTRIES_MAX);
            let at = at.ok_or(AggregationJournalError("number of a source"))?;
            next = at + 1;
            let print = reader.read_fingerprint()?;
            let output = reader.read_small()?;
            if self.output(output).is_none() {
                return Err(AggregationJournalError("source of no output"));
            }
            self.create_source(at, print, output);
            time = time.wrapping_add(reader.read_signed()?);
            let value = match reader.read_byte()? {
                0 => add_exact_step(0.0, reader.read_signed()?)?,
                _ => reader.read_float()?,
            };
            if let Some(entry) = self.entries.get_mut(at) {
                *entry = SourceEntry {
                    time,
                    value,
                    ..*entry
                };
            }
        }
        Ok(())
    }
}
