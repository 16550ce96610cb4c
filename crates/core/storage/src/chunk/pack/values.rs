//! Decoding of the values of packs.

use super::{
    CODES, FIRST_APART, FIRST_MAX, ORDERED, SAMPLES, SCALE, WIDTH, ZIGZAG, read_packed, split_packs,
};
use crate::encoding::bits::unpack;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::decimal::{DecimalConversion, order_bits};
use crate::encoding::simd;
use crate::encoding::value::ValueState;
use crate::encoding::{DecodeError, unzigzag};

/// Decodes a value for each place of `out`. `state` is then the same as after decoding the original
/// codes.
pub(in crate::chunk) fn decode_values(
    bytes: &[u8],
    state: &mut ValueState,
    out: &mut [f64],
) -> Result<(), DecodeError> {
    let mut cursor = DecodeCursor::new(bytes);
    let (first, others) = split_packs(out)?;
    // One loop for all of them, because a function with a single call site is inlined.
    let others = others.iter_mut().map(<[f64; SAMPLES]>::as_mut_slice);
    for places in std::iter::once(first).chain(others) {
        // A pack of one repeated value, as every second counter has, is one byte.
        match cursor.rest().first() {
            Some(0) => {
                cursor.read_byte()?;
                places.fill(f64::from_bits(state.bits));
            }
            _ => decode_pack(&mut cursor, state, places)?,
        }
    }
    Ok(())
}

/// Decodes the values of one pack, which fill `out` exactly.
#[inline]
fn decode_pack(
    cursor: &mut DecodeCursor<'_>,
    state: &mut ValueState,
    out: &mut [f64],
) -> Result<(), DecodeError> {
    let mut head = cursor.read_byte()?;
    if head == SCALE {
        state.set_scale(cursor.read_byte()?)?;
        head = cursor.read_byte()?;
    }
    if head == CODES {
        return decode_codes(cursor, state, out);
    }
    let is_ordered = head == ORDERED;
    if is_ordered {
        head = cursor.read_byte()?;
    }
    let first = match head & FIRST_APART {
        0 => None,
        _ => Some(unzigzag(cursor.read_uvarint()?)),
    };
    let (before, scaling) = if is_ordered {
        (order_bits(state.bits), DecimalConversion::Ordered)
    } else {
        (state.int, state.current_conversion())
    };
    let before = before.wrapping_add(first.unwrap_or(0));
    let width = usize::from(head & WIDTH);
    if width == 0 && first.is_none() {
        out.fill(f64::from_bits(state.bits));
        return Ok(());
    }
    let packed = read_packed(cursor, width, out.len())?;
    let mut last = before;
    let mut add_up = |step: i64| {
        last = last.wrapping_add(step);
        last
    };
    let mut ints = [0; FIRST_MAX];
    let ints = &mut ints[..out.len()];
    match head & ZIGZAG {
        0 => unpack(packed, width, ints, |step| add_up(step as i64)),
        _ => unpack(packed, width, ints, |step| add_up(unzigzag(step))),
    }
    simd::convert_to_floats(scaling, ints, out);
    match (out.last(), is_ordered) {
        (Some(float), true) => state.set_bits(*float),
        (Some(float), false) => state.set_int(last, *float),
        (None, _) => (),
    }
    Ok(())
}

/// Decodes the values of a pack that consists of the original codes.
#[cold]
fn decode_codes(
    cursor: &mut DecodeCursor<'_>,
    state: &mut ValueState,
    out: &mut [f64],
) -> Result<(), DecodeError> {
    let mut repeats = 0;
    for out in out {
        if repeats == 0 {
            let op = cursor.read_byte()?;
            repeats = state.apply_op(op, cursor)?.max(1);
        }
        repeats -= 1;
        *out = f64::from_bits(state.bits);
    }
    Ok(())
}
