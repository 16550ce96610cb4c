//! Number encoding of the aggregation journal (`docs/format/aggregation.md`).
//!
//! Invariant: reading arbitrary bytes returns an error or the written values, and allocates nothing
//! for a length that was not validated.

use firn_model::fingerprint::Fingerprint;
use firn_model::labels::push_uvarint;

/// The error for bytes that are not a valid journal, with a short description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AggregationJournalError(pub(super) &'static str);

/// Appends a signed integer as a zigzag varint.
pub(super) fn push_signed(out: &mut Vec<u8>, number: i64) {
    push_uvarint(out, encode_zigzag(number));
}

/// Appends a float as its eight bytes, bit for bit.
pub(super) fn push_float(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(&number.to_bits().to_le_bytes());
}

/// Appends the fingerprint of a source as sixteen bytes.
pub(super) fn push_fingerprint(out: &mut Vec<u8>, print: Fingerprint) {
    out.extend_from_slice(&print.low.to_le_bytes());
    out.extend_from_slice(&print.high.to_le_bytes());
}

/// Appends bytes, preceded by their length. The length is an unsigned varint.
pub(super) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Encodes a signed integer as an unsigned one that is small near zero.
pub(super) fn encode_zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Returns the difference `value - base`, if both are integers that floats represent exactly.
pub(super) fn exact_difference(base: f64, value: f64) -> Option<i64> {
    let (base, value) = (exact_integer(base)?, exact_integer(value)?);
    Some(value - base)
}

/// Returns the float `base + step`; fails if `base` is not an exact integer.
pub(super) fn add_exact_step(base: f64, step: i64) -> Result<f64, AggregationJournalError> {
    let base = exact_integer(base).ok_or(AggregationJournalError(
        "step from a value that is not an integer",
    ))?;
    Ok(base.wrapping_add(step) as f64)
}

/// Returns the integer that the float represents exactly, bit for bit. Returns `None` for any other
/// float.
fn exact_integer(value: f64) -> Option<i64> {
    const MAX: f64 = (1u64 << 53) as f64;
    let number = value as i64;
    let is_whole = (number as f64).to_bits() == value.to_bits() && value.abs() <= MAX;
    is_whole.then_some(number)
}

/// Reads values from the front of a slice. Methods fail if the slice is too short.
#[derive(Clone, Copy, Debug)]
pub(super) struct AggregationJournalReader<'a>(pub(super) &'a [u8]);

impl<'a> AggregationJournalReader<'a> {
    /// Returns whether everything was read.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the next `count` bytes. Fails if fewer remain.
    pub(super) fn read_slice(&mut self, count: usize) -> Result<&'a [u8], AggregationJournalError> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(AggregationJournalError("cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads one byte.
    pub(super) fn read_byte(&mut self) -> Result<u8, AggregationJournalError> {
        let [byte] = self.read_array()?;
        Ok(byte)
    }

    /// Reads the next `N` bytes.
    pub(super) fn read_array<const N: usize>(
        &mut self,
    ) -> Result<[u8; N], AggregationJournalError> {
        let bytes = self.read_slice(N)?;
        bytes
            .try_into()
            .map_err(|_| AggregationJournalError("cut off"))
    }

    /// Reads the fingerprint of a source.
    pub(super) fn read_fingerprint(&mut self) -> Result<Fingerprint, AggregationJournalError> {
        let low = u64::from_le_bytes(self.read_array()?);
        let high = u64::from_le_bytes(self.read_array()?);
        Ok(Fingerprint { high, low })
    }

    /// Reads an unsigned varint; fails if it exceeds 64 bits. Encodings longer than necessary are
    /// accepted.
    pub(super) fn read_unsigned(&mut self) -> Result<u64, AggregationJournalError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(AggregationJournalError("number of more than 64 bits"))
    }

    /// Reads a signed integer, a zigzag varint.
    pub(super) fn read_signed(&mut self) -> Result<i64, AggregationJournalError> {
        let number = self.read_unsigned()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads an unsigned varint of at most 32 bits.
    pub(super) fn read_small(&mut self) -> Result<u32, AggregationJournalError> {
        u32::try_from(self.read_unsigned()?)
            .map_err(|_| AggregationJournalError("number of more than 32 bits"))
    }

    /// Reads a float.
    pub(super) fn read_float(&mut self) -> Result<f64, AggregationJournalError> {
        Ok(f64::from_bits(u64::from_le_bytes(self.read_array()?)))
    }

    /// Reads a length and returns that many bytes. Fails if fewer remain.
    pub(super) fn read_bytes(&mut self) -> Result<&'a [u8], AggregationJournalError> {
        let count = usize::try_from(self.read_unsigned()?)
            .map_err(|_| AggregationJournalError("cut off"))?;
        self.read_slice(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_cut_off_bytes_are_an_error() {
        let mut out = Vec::new();
        for number in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            push_signed(&mut out, number);
        }
        push_float(&mut out, -0.0);
        push_bytes(&mut out, b"abc");
        let mut reader = AggregationJournalReader(&out);
        for number in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(reader.read_signed(), Ok(number));
        }
        assert_eq!(
            reader.read_float().map(f64::to_bits),
            Ok((-0.0f64).to_bits())
        );
        assert_eq!(reader.read_bytes(), Ok(&b"abc"[..]));
        assert!(reader.is_empty());
        assert!(reader.read_byte().is_err());
        assert!(AggregationJournalReader(&[9, 1]).read_bytes().is_err());
        assert!(
            AggregationJournalReader(&[0xff; 10])
                .read_unsigned()
                .is_err()
        );
        assert!(
            AggregationJournalReader(&[0xff; 4])
                .read_unsigned()
                .is_err()
        );
    }

    #[test]
    fn step_between_whole_numbers_leads_back_and_others_have_none() {
        for (base, value) in [(0.0, 0.0), (3.0, 10.0), (10.0, 3.0), (-5.0, 9e15)] {
            let step = exact_difference(base, value).unwrap();
            assert_eq!(add_exact_step(base, step), Ok(value));
        }
        for (base, value) in [
            (0.5, 1.0),
            (1.0, 0.5),
            (0.0, -0.0),
            (0.0, f64::NAN),
            (0.0, 1e17),
        ] {
            assert_eq!(exact_difference(base, value), None, "{base} {value}");
        }
        assert!(add_exact_step(0.5, 1).is_err());
    }
}
