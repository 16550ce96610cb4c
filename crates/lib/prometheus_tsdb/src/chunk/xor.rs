//! Encodes a float relative to the previous one: the changed bits between runs of zeros
//! (`tsdb/chunkenc/xor.go`).

use super::bits::{XorBitReader, XorBitWriter};
use crate::error::MalformedTsdbBytes;

/// The numbers of leading and trailing zeros around the changed bits, which later values can reuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct XorZeros {
    leading: u32,
    trailing: u32,
}

impl XorZeros {
    /// Reads the position of the changed bits: five bits of leading zeros and six bits of width, in
    /// which 0 means 64.
    pub fn read(bits: &mut XorBitReader<'_>) -> Result<Self, MalformedTsdbBytes> {
        let leading = bits.read_bits(5)? as u32;
        let width = match bits.read_bits(6)? as u32 {
            0 => 64,
            width => width,
        };
        let trailing = 64u32.checked_sub(leading + width);
        let trailing =
            trailing.ok_or(MalformedTsdbBytes::Invalid("a float has more than 64 bits"))?;
        Ok(Self { leading, trailing })
    }

    /// Reads the changed bits and returns the float that follows `before`.
    pub fn read_value(
        self,
        bits: &mut XorBitReader<'_>,
        before: f64,
    ) -> Result<f64, MalformedTsdbBytes> {
        let differing = bits.read_bits(64 - self.leading - self.trailing)?;
        Ok(f64::from_bits(
            before.to_bits() ^ differing << self.trailing,
        ))
    }

    /// Returns the zeros around changed bits, of which at least one must be set.
    pub fn from_changed_bits(differing: u64) -> Self {
        Self {
            leading: differing.leading_zeros().min(31),
            trailing: differing.trailing_zeros(),
        }
    }

    /// Returns whether changed bits with the zeros `other` fit between these zeros.
    pub fn can_hold(self, other: Self) -> bool {
        other.leading >= self.leading && other.trailing >= self.trailing
    }

    /// Writes the position of the changed bits.
    pub fn write(self, out: &mut XorBitWriter) {
        out.write_bits(u64::from(self.leading), 5);
        out.write_bits(u64::from(64 - self.leading - self.trailing), 6);
    }

    /// Writes the changed bits.
    pub fn write_value(self, out: &mut XorBitWriter, differing: u64) {
        let width = 64 - self.leading - self.trailing;
        out.write_bits(differing >> self.trailing, width);
    }
}

/// A sequence of floats, each encoded relative to the previous one and its zeros.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct XorFloat {
    /// The float that was read or written last.
    pub value: f64,
    /// Zeros of the previous change; `None` before the first change.
    zeros: Option<XorZeros>,
}

impl XorFloat {
    /// Returns the state after a first float.
    pub fn new(value: f64) -> Self {
        Self { value, zeros: None }
    }

    /// Reads the next float. Fails if the chunk is cut off.
    #[inline]
    pub fn read(&mut self, bits: &mut XorBitReader<'_>) -> Result<(), MalformedTsdbBytes> {
        if !bits.read_bit()? {
            return Ok(());
        }
        if bits.read_bit()? {
            self.zeros = Some(XorZeros::read(bits)?);
        }
        self.value = self
            .zeros
            .unwrap_or_default()
            .read_value(bits, self.value)?;
        Ok(())
    }

    /// Writes the next float. Reuses the previous zeros if the changed bits fit between them.
    pub fn write(&mut self, out: &mut XorBitWriter, value: f64) {
        let differing = value.to_bits() ^ self.value.to_bits();
        self.value = value;
        if differing == 0 {
            return out.write_bit(false);
        }
        out.write_bit(true);
        let around = XorZeros::from_changed_bits(differing);
        let zeros = match self.zeros {
            Some(zeros) if zeros.can_hold(around) => {
                out.write_bit(false);
                zeros
            }
            _ => {
                out.write_bit(true);
                around.write(out);
                self.zeros = Some(around);
                around
            }
        };
        zeros.write_value(out, differing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_of_any_bits_read_as_they_were() {
        let values = [
            0.0,
            -0.0,
            1.0,
            1.0,
            1.5,
            f64::NAN,
            f64::from_bits(0x7ff0_0000_0000_0002),
            f64::MAX,
            f64::from_bits(1),
            f64::from_bits(u64::MAX),
            0.1,
            0.2,
        ];
        let mut out = XorBitWriter::default();
        let mut writer = XorFloat::new(7.0);
        for value in values {
            writer.write(&mut out, value);
        }
        let mut bits = XorBitReader::new(out.bytes().into(), 0);
        let mut reader = XorFloat::new(7.0);
        for value in values {
            assert_eq!(reader.read(&mut bits), Ok(()));
            assert_eq!(reader.value.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn float_of_more_than_64_bits_is_refused() {
        let mut out = XorBitWriter::default();
        out.write_bits(0b11, 2);
        out.write_bits(31, 5);
        out.write_bits(63, 6);
        out.write_bits(0, 64);
        let read = XorFloat::new(0.0).read(&mut XorBitReader::new(out.bytes().into(), 0));
        assert!(matches!(read, Err(MalformedTsdbBytes::Invalid(_))));
    }
}
