//! Encodes a float relative to the previous one: the changed bits between runs of zeros
//! (`tsdb/chunkenc/xor.go`).

use super::bits::{BitReader, BitWriter};
use crate::tsdb::error::Malformed;

/// The numbers of leading and trailing zeros around the changed bits, which later values can reuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Zeros {
    leading: u32,
    trailing: u32,
}

impl Zeros {
    /// Reads the position of the changed bits: five bits of leading zeros and six bits of width, in
    /// which 0 means 64.
    pub fn read(bits: &mut BitReader<'_>) -> Result<Self, Malformed> {
        let leading = bits.bits(5)? as u32;
        let width = match bits.bits(6)? as u32 {
            0 => 64,
            width => width,
        };
        let trailing = 64u32.checked_sub(leading + width);
        let trailing = trailing.ok_or(Malformed::Invalid("a float has more than 64 bits"))?;
        Ok(Self { leading, trailing })
    }

    /// Reads the changed bits and returns the float that follows `before`.
    pub fn value(self, bits: &mut BitReader<'_>, before: f64) -> Result<f64, Malformed> {
        let differing = bits.bits(64 - self.leading - self.trailing)?;
        Ok(f64::from_bits(
            before.to_bits() ^ differing << self.trailing,
        ))
    }

    /// Returns the zeros around changed bits, of which at least one must be set.
    pub fn around(differing: u64) -> Self {
        Self {
            leading: differing.leading_zeros().min(31),
            trailing: differing.trailing_zeros(),
        }
    }

    /// Returns whether changed bits with the zeros `other` fit between these zeros.
    pub fn reach(self, other: Self) -> bool {
        other.leading >= self.leading && other.trailing >= self.trailing
    }

    /// Writes the position of the changed bits.
    pub fn write(self, out: &mut BitWriter) {
        out.bits(u64::from(self.leading), 5);
        out.bits(u64::from(64 - self.leading - self.trailing), 6);
    }

    /// Writes the changed bits.
    pub fn write_value(self, out: &mut BitWriter, differing: u64) {
        let width = 64 - self.leading - self.trailing;
        out.bits(differing >> self.trailing, width);
    }
}

/// A sequence of floats, each encoded relative to the previous one and its zeros.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Xor {
    /// The float that was read or written last.
    pub value: f64,
    /// Zeros of the previous change; `None` before the first change.
    zeros: Option<Zeros>,
}

impl Xor {
    /// Returns the state after a first float.
    pub fn new(value: f64) -> Self {
        Self { value, zeros: None }
    }

    /// Reads the next float. Fails if the chunk is cut off.
    #[inline]
    pub fn read(&mut self, bits: &mut BitReader<'_>) -> Result<(), Malformed> {
        if !bits.bit()? {
            return Ok(());
        }
        if bits.bit()? {
            self.zeros = Some(Zeros::read(bits)?);
        }
        self.value = self.zeros.unwrap_or_default().value(bits, self.value)?;
        Ok(())
    }

    /// Writes the next float. Reuses the previous zeros if the changed bits fit between them.
    pub fn write(&mut self, out: &mut BitWriter, value: f64) {
        let differing = value.to_bits() ^ self.value.to_bits();
        self.value = value;
        if differing == 0 {
            return out.bit(false);
        }
        out.bit(true);
        let around = Zeros::around(differing);
        let zeros = match self.zeros {
            Some(zeros) if zeros.reach(around) => {
                out.bit(false);
                zeros
            }
            _ => {
                out.bit(true);
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
        let mut out = BitWriter::default();
        let mut writer = Xor::new(7.0);
        for value in values {
            writer.write(&mut out, value);
        }
        let mut bits = BitReader::new(out.bytes().into(), 0);
        let mut reader = Xor::new(7.0);
        for value in values {
            assert_eq!(reader.read(&mut bits), Ok(()));
            assert_eq!(reader.value.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn float_of_more_than_64_bits_is_refused() {
        let mut out = BitWriter::default();
        out.bits(0b11, 2);
        out.bits(31, 5);
        out.bits(63, 6);
        out.bits(0, 64);
        let read = Xor::new(0.0).read(&mut BitReader::new(out.bytes().into(), 0));
        assert!(matches!(read, Err(Malformed::Invalid(_))));
    }
}
