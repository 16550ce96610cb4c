//! Float chunks: the XOR encoding and its successor XOR2 (`tsdb/chunkenc/xor.go`, `xor2.go`).
//!
//! ```text
//! XOR    samples u16 | time varint, value 64 bits | time delta uvarint, value | { dod, value }*
//!        dod   = 0 | 10 and 14 bits | 110 and 17 | 1110 and 20 | 1111 and 64
//!        value = 0 unchanged | 10 changed bits | 11 zeros, changed bits
//! XOR2   samples u16, starts u8 | as above, each sample followed by its start | { step, start }*
//!        step  = 0 dod 0, value unchanged | 10 dod 0, 0 or 1 and a value
//!              | 110 and 13 bits of dod, value | 1110 and 20 bits of dod, value
//!              | 11110 and 64 bits of dod, value | 11111 dod 0, stale
//!        value = 0 | 10 | 110 as above | 111 stale
//! ```
//!
//! The dod ("delta of deltas") is the change of the time between two samples. In XOR2 a staleness
//! marker does not replace the value that later samples are compared with.

use super::bits::{XorBitReader, XorBitWriter};
use super::start::{StartTimeReader, StartTimeWriter};
use super::xor::{XorFloat, XorZeros};
use crate::error::MalformedTsdbBytes;
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale, stale_nan};

/// A decoded float sample; a start timestamp of 0 is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct XorChunkSample {
    pub time: TimestampMs,
    pub start_time: TimestampMs,
    pub value: f64,
}

/// Reads the samples after the header of a chunk in either encoding, one at a time.
#[derive(Clone, Debug)]
pub(super) struct XorChunkReader<'c> {
    bits: XorBitReader<'c>,
    index: u16,
    time: TimestampMs,
    delta: i64,
    form: XorReaderState,
}

#[derive(Clone, Debug)]
enum XorReaderState {
    Xor(XorFloat),
    Xor2 {
        value: f64,
        zeros: XorZeros,
        starts: StartTimeReader,
    },
}

impl<'c> XorChunkReader<'c> {
    /// Returns a reader of an XOR chunk.
    pub fn new_xor(bits: XorBitReader<'c>) -> Self {
        Self::new(bits, XorReaderState::Xor(XorFloat::default()))
    }

    /// Returns a reader of an XOR2 chunk, given the byte of its header that describes start
    /// timestamps.
    pub fn new_xor2(starts: u8, bits: XorBitReader<'c>) -> Self {
        let form = XorReaderState::Xor2 {
            value: 0.0,
            zeros: XorZeros::default(),
            starts: StartTimeReader::new(starts),
        };
        Self::new(bits, form)
    }

    fn new(bits: XorBitReader<'c>, form: XorReaderState) -> Self {
        Self {
            bits,
            index: 0,
            time: 0,
            delta: 0,
            form,
        }
    }

    /// Reads the next sample; the caller keeps track of the number of samples. Fails if the chunk
    /// is cut off.
    pub fn read(&mut self) -> Result<XorChunkSample, MalformedTsdbBytes> {
        let bits = &mut self.bits;
        let before = self.time;
        let (value, start_time) = match &mut self.form {
            XorReaderState::Xor(xor) => {
                match self.index {
                    0 => {
                        self.time = bits.read_varint()?;
                        *xor = XorFloat::new(f64::from_bits(bits.read_bits(64)?));
                    }
                    index => {
                        let dod = match index {
                            1 => bits.read_uvarint()? as i64,
                            _ => read_dod(bits)?,
                        };
                        self.delta = self.delta.wrapping_add(dod);
                        self.time = self.time.wrapping_add(self.delta);
                        xor.read(bits)?;
                    }
                }
                (xor.value, START_UNKNOWN)
            }
            XorReaderState::Xor2 {
                value,
                zeros,
                starts,
            } => {
                let read = match self.index {
                    0 => {
                        self.time = bits.read_varint()?;
                        let read = f64::from_bits(bits.read_bits(64)?);
                        *value = if is_stale(read) { 0.0 } else { read };
                        read
                    }
                    index => {
                        let (dod, read) = read_step(bits, index, value, zeros)?;
                        self.delta = self.delta.wrapping_add(dod);
                        self.time = self.time.wrapping_add(self.delta);
                        read
                    }
                };
                let start = starts.read(bits, self.index, self.time, before)?;
                (read, start)
            }
        };
        self.index = self.index.saturating_add(1);
        Ok(XorChunkSample {
            time: self.time,
            start_time,
            value,
        })
    }
}

fn read_dod(bits: &mut XorBitReader<'_>) -> Result<i64, MalformedTsdbBytes> {
    match bits.read_ones(4)? {
        0 => Ok(0),
        1 => bits.read_signed(14),
        2 => bits.read_signed(17),
        3 => bits.read_signed(20),
        _ => bits.read_signed(64),
    }
}

/// Reads the time delta and the value of a sample after the first.
fn read_step(
    bits: &mut XorBitReader<'_>,
    index: u16,
    value: &mut f64,
    zeros: &mut XorZeros,
) -> Result<(i64, f64), MalformedTsdbBytes> {
    if index == 1 {
        let delta = bits.read_uvarint()? as i64;
        return Ok((delta, read_value(bits, value, zeros)?));
    }
    let dod = match bits.read_ones(5)? {
        0 => return Ok((0, *value)),
        1 => {
            if bits.read_bit()? {
                *zeros = XorZeros::read(bits)?;
            }
            *value = zeros.read_value(bits, *value)?;
            return Ok((0, *value));
        }
        2 => twos_complement(bits.read_bits(13)?, 13),
        3 => twos_complement(bits.read_bits(20)?, 20),
        4 => bits.read_bits(64)? as i64,
        _ => return Ok((0, stale_nan())),
    };
    Ok((dod, read_value(bits, value, zeros)?))
}

fn read_value(
    bits: &mut XorBitReader<'_>,
    value: &mut f64,
    zeros: &mut XorZeros,
) -> Result<f64, MalformedTsdbBytes> {
    match bits.read_ones(3)? {
        0 => return Ok(*value),
        1 => {}
        2 => *zeros = XorZeros::read(bits)?,
        _ => return Ok(stale_nan()),
    }
    *value = zeros.read_value(bits, *value)?;
    Ok(*value)
}

/// Interprets the lowest `width` bits as a two's complement number. XOR2 encodes changes of the
/// time in this form.
fn twos_complement(bits: u64, width: u32) -> i64 {
    (bits << (64 - width)) as i64 >> (64 - width)
}

/// Writes an XOR chunk, or an XOR2 chunk if start timestamps are kept, one sample at a time.
#[derive(Clone, Debug)]
pub(super) struct XorChunkWriter {
    out: XorBitWriter,
    count: u16,
    time: TimestampMs,
    delta: i64,
    form: XorWriterState,
}

#[derive(Clone, Debug)]
enum XorWriterState {
    Xor(XorFloat),
    Xor2 {
        value: f64,
        zeros: Option<XorZeros>,
        starts: StartTimeWriter,
    },
}

impl XorChunkWriter {
    /// Returns a writer of an XOR chunk.
    pub fn new_xor() -> Self {
        Self::new(&[0; 2], XorWriterState::Xor(XorFloat::default()))
    }

    /// Returns a writer of an XOR2 chunk.
    pub fn new_xor2() -> Self {
        let form = XorWriterState::Xor2 {
            value: 0.0,
            zeros: None,
            starts: StartTimeWriter::default(),
        };
        Self::new(&[0; 3], form)
    }

    fn new(header: &[u8], form: XorWriterState) -> Self {
        Self {
            out: XorBitWriter::with_header(header),
            count: 0,
            time: 0,
            delta: 0,
            form,
        }
    }

    /// Returns the number of written samples.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Returns the timestamp of the last written sample.
    pub fn time(&self) -> TimestampMs {
        self.time
    }

    /// Appends a sample, whose timestamp must be greater than the previous one.
    pub fn push(&mut self, sample: XorChunkSample) {
        let before = self.time;
        let delta = match self.count {
            0 => 0,
            _ => sample.time.wrapping_sub(before),
        };
        let dod = delta.wrapping_sub(self.delta);
        let out = &mut self.out;
        match (&mut self.form, self.count) {
            (XorWriterState::Xor(xor), 0) => {
                write_first(out, sample);
                *xor = XorFloat::new(sample.value);
            }
            (XorWriterState::Xor(xor), 1) => {
                out.write_uvarint(delta as u64);
                xor.write(out, sample.value);
            }
            (XorWriterState::Xor(xor), _) => {
                write_dod(out, dod);
                xor.write(out, sample.value);
            }
            (XorWriterState::Xor2 { value, .. }, 0) => {
                write_first(out, sample);
                if !is_stale(sample.value) {
                    *value = sample.value;
                }
            }
            (XorWriterState::Xor2 { value, zeros, .. }, 1) => {
                out.write_uvarint(delta as u64);
                write_value(out, sample.value, value, zeros);
            }
            (XorWriterState::Xor2 { value, zeros, .. }, _) => {
                write_step(out, dod, sample.value, value, zeros);
            }
        }
        if let XorWriterState::Xor2 { starts, .. } = &mut self.form {
            starts.write(out, self.count, sample.start_time, sample.time, before);
        }
        self.time = sample.time;
        self.delta = delta;
        self.count = self.count.saturating_add(1);
    }

    /// Returns the encoded chunk with its header. The number of samples is filled in now.
    pub fn finish(mut self) -> Vec<u8> {
        let starts = match &self.form {
            XorWriterState::Xor(_) => None,
            XorWriterState::Xor2 { starts, .. } => Some(starts.header()),
        };
        let header = self.out.bytes_mut();
        if let Some(count) = header.get_mut(..2) {
            count.copy_from_slice(&self.count.to_be_bytes());
        }
        if let Some((starts, byte)) = starts.zip(header.get_mut(2)) {
            *byte = starts;
        }
        self.out.bytes().to_vec()
    }
}

fn write_first(out: &mut XorBitWriter, sample: XorChunkSample) {
    out.write_varint(sample.time);
    out.write_bits(sample.value.to_bits(), 64);
}

fn write_dod(out: &mut XorBitWriter, dod: i64) {
    let fits = |width: u32| -(1i64 << (width - 1)) < dod && dod <= 1 << (width - 1);
    let (prefix, width) = match dod {
        0 => return out.write_bit(false),
        _ if fits(14) => ((0b10, 2), 14),
        _ if fits(17) => ((0b110, 3), 17),
        _ if fits(20) => ((0b1110, 4), 20),
        _ => ((0b1111, 4), 64),
    };
    out.write_bits(prefix.0, prefix.1);
    out.write_bits(dod as u64, width);
}

fn write_step(
    out: &mut XorBitWriter,
    dod: i64,
    new: f64,
    value: &mut f64,
    zeros: &mut Option<XorZeros>,
) {
    let fits = |width: u32| -(1i64 << (width - 1)) <= dod && dod < 1 << (width - 1);
    match dod {
        0 if is_stale(new) => return out.write_bits(0b11111, 5),
        0 if new.to_bits() == value.to_bits() => return out.write_bit(false),
        0 => {
            out.write_bits(0b10, 2);
            return write_differing(out, new, value, zeros, 0, 1);
        }
        _ if fits(13) => {
            out.write_bits(0b110, 3);
            out.write_bits(dod as u64, 13);
        }
        _ if fits(20) => {
            out.write_bits(0b1110, 4);
            out.write_bits(dod as u64, 20);
        }
        _ => {
            out.write_bits(0b11110, 5);
            out.write_bits(dod as u64, 64);
        }
    }
    write_value(out, new, value, zeros);
}

fn write_value(out: &mut XorBitWriter, new: f64, value: &mut f64, zeros: &mut Option<XorZeros>) {
    if is_stale(new) {
        out.write_bits(0b111, 3);
    } else if new.to_bits() == value.to_bits() {
        out.write_bit(false);
    } else {
        out.write_bit(true);
        write_differing(out, new, value, zeros, 0, 2);
    }
}

/// Writes the changed bits of `new`, after a prefix of one or two bits that selects whether the
/// previous zeros are reused. In a prefix of two bits the second one excludes a staleness marker.
fn write_differing(
    out: &mut XorBitWriter,
    new: f64,
    value: &mut f64,
    zeros: &mut Option<XorZeros>,
    known: u64,
    new_bits: u32,
) {
    let differing = new.to_bits() ^ value.to_bits();
    *value = new;
    let around = XorZeros::from_changed_bits(differing);
    let between = match *zeros {
        Some(zeros) if zeros.can_hold(around) => {
            out.write_bits(known, 1);
            zeros
        }
        _ => {
            out.write_bits(1 << (new_bits - 1), new_bits);
            around.write(out);
            *zeros = Some(around);
            around
        }
    };
    between.write_value(out, differing);
}
