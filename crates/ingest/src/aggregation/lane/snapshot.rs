//! Encodes the whole state of a lane, and decodes it.

use super::{Lane, Natives, Params, Waiting};
use crate::aggregation::code::{
    Malformed, Reader, after_step, push_float, push_print, push_signed, whole_step,
};
use crate::aggregation::entries::{ENTRIES_MAX, Entry};
use crate::aggregation::failpoints::{self, Flaw};
use crate::aggregation::output::Output;
use firn_model::labels::push_uvarint;

/// Largest number of outputs in a lane, because each has at least one source.
const OUTPUTS_MAX: u32 = ENTRIES_MAX as u32;

impl Lane {
    /// Appends the encoded state of the lane.
    pub(in crate::aggregation) fn encode(&self, out: &mut Vec<u8>) {
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
        if failpoints::has(Flaw::ForgetsWaiting) {
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
            push_print(out, entry.print);
            push_uvarint(out, u64::from(entry.output));
            push_signed(out, entry.time.wrapping_sub(time));
            time = entry.time;
            match whole_step(0.0, entry.value) {
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

    /// Reads the state that [`Lane::encode`] wrote. Fails if it is malformed.
    pub(in crate::aggregation) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let params = Params {
            interval_ms: reader.signed()?,
            lookback_ms: reader.signed()?,
        };
        if params.interval_ms < 1 || params.lookback_ms < 1 {
            return Err(Malformed("times of a lane"));
        }
        let mut lane = Lane::new(params, reader.signed()?);
        for _ in 0..reader.unsigned()? {
            let at = reader.small()?;
            if at >= OUTPUTS_MAX {
                return Err(Malformed("number of an output"));
            }
            lane.put_output(at, Output::decode(reader)?);
        }
        lane.decode_entries(reader)?;
        for _ in 0..reader.unsigned()? {
            let end = reader.signed()?;
            for _ in 0..reader.unsigned()? {
                let waiting = Waiting {
                    entry: reader.small()?,
                    time: reader.signed()?.wrapping_add(end),
                    value: reader.float()?,
                };
                let entry = lane.entries.get_mut(waiting.entry);
                let entry = entry.ok_or(Malformed("sample of no source"))?;
                entry.waiting = entry.waiting.saturating_add(1);
                lane.open.entry(end).or_default().push(waiting);
            }
        }
        lane.natives = Natives::decode(reader, &mut lane.entries)?;
        Ok(lane)
    }

    fn decode_entries(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let (mut next, mut time) = (0u32, 0i64);
        for _ in 0..reader.unsigned()? {
            let at = next.checked_add(reader.small()?);
            let at = at.filter(|at| (*at as usize) < ENTRIES_MAX);
            let at = at.ok_or(Malformed("number of a source"))?;
            next = at + 1;
            let print = reader.print()?;
            let output = reader.small()?;
            if self.output(output).is_none() {
                return Err(Malformed("source of no output"));
            }
            self.create(at, print, output);
            time = time.wrapping_add(reader.signed()?);
            let value = match reader.byte()? {
                0 => after_step(0.0, reader.signed()?)?,
                _ => reader.float()?,
            };
            if let Some(entry) = self.entries.get_mut(at) {
                *entry = Entry {
                    time,
                    value,
                    ..*entry
                };
            }
        }
        Ok(())
    }
}
