//! Packs: the codes of some sixteen consecutive floats, written again so that they decode many at a
//! time.
//!
//! Times and values part. Times become distances from a line ([`times`]), the same bytes for series
//! that were scraped together: whoever decodes them one after the other follows them once. Values
//! become steps of as many bits as the widest needs. Invariant: what was packed decodes to the same
//! samples and leaves the decoder in the same state as the codes did.
//!
//! ```text
//! packs  = f9 | samples u15, is raw u1 | bytes of times u16 | bytes of values u16 | times | values
//! values = one for each pack:
//!   00..38       no step is negative, each of so many bits
//!   40..78       the same for zigzags of steps
//!   80 | these   behind it a uvarint, the zigzag of the first step, 0 among the others
//!   39 SS        the scale is SS from here on, the integer before is 0; one of the above follows
//!   3a           codes, a run for each value that repeats
//!   3b           steps not of the integer but of the order of the bits; one of the above follows
//! ```

#[cfg(target_arch = "x86_64")]
mod avx512;
pub(super) mod times;

use crate::encoding::Avx512;
use crate::encoding::cursor::Cursor;
use crate::encoding::decimal::Scaling;
use crate::encoding::time;
use crate::encoding::value::{self, ValueState};
use crate::encoding::{
    Buffer, Malformed, Sink, ordered, push_bits, push_uvarint, unzigzag, zigzag,
};

/// Samples of a pack, but for the first of a chunk.
const SAMPLES: usize = 16;

/// The first pack has at least so many: what comes with packs is paid for by then.
const FIRST_MIN: usize = 9;

/// And at most so many.
const FIRST_MAX: usize = FIRST_MIN + SAMPLES - 1;

const FIRST_TIME_BYTES: usize = 8;

/// Operation behind the first time: packs follow.
const PACKED: u8 = 0xf9;

/// Bytes that say how much packs hold.
const HEADER_BYTES: usize = 6;

/// Bits of a step that a word of eight bytes holds wherever in a byte it begins.
const WIDTH_MAX: usize = 56;

const WIDTH: u8 = 0x3f;
const ZIGZAG: u8 = 0x40;
const FIRST_APART: u8 = 0x80;
const SCALE: u8 = 0x39;
const CODES: u8 = 0x3a;
const ORDERED: u8 = 0x3b;

/// In the number of samples: the newest value is not what the integer and the scale say.
const RAW: u16 = 1 << 15;

/// How many more bytes than its codes a pack of steps may take: it decodes several times as fast.
const DEARER_BYTES: usize = 8;

/// What the packs of a body hold. They lie behind the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packs {
    /// Samples; without any there are no packs, nor anything that says so.
    pub(super) samples: usize,
    /// Bytes of their times.
    times: usize,
    /// Bytes of their values.
    values: usize,
    is_raw: bool,
}

impl Packs {
    /// Those of a body that is whole or none.
    pub(super) fn find(body: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body.get(FIRST_TIME_BYTES..).unwrap_or(&[]));
        match cursor.rest().first() {
            Some(&PACKED) => {
                cursor.byte()?;
                Self::read(cursor.number(HEADER_BYTES)?)
            }
            _ => Ok(Self::default()),
        }
    }

    fn read(word: u64) -> Result<Self, Malformed> {
        let samples = word as u16;
        let packs = Self {
            samples: usize::from(samples & !RAW),
            times: usize::from((word >> 16) as u16),
            values: usize::from((word >> 32) as u16),
            is_raw: samples & RAW != 0,
        };
        // Each pack has a byte of values: memory for samples is taken by this number.
        match packs.samples.checked_sub(FIRST_MIN) {
            Some(behind) if behind / SAMPLES < packs.values => Ok(packs),
            _ => Err(Malformed("packs without their values")),
        }
    }

    fn word(self) -> u64 {
        let raw = if self.is_raw { RAW } else { 0 };
        let samples = u64::from(self.samples as u16 | raw);
        samples | (self.times as u64) << 16 | (self.values as u64) << 32
    }

    /// What there is with `pack` behind the others; `None` if that is too much.
    pub(super) fn with(self, pack: &Pack, is_raw: bool) -> Option<Self> {
        let with = Self {
            samples: self.samples + pack.samples,
            times: self.times + pack.times.as_bytes().len(),
            values: self.values + pack.values.as_bytes().len(),
            is_raw,
        };
        let most = with.samples.max(with.times).max(with.values);
        (most < usize::from(RAW)).then_some(with)
    }

    fn values_at(self) -> usize {
        FIRST_TIME_BYTES + 1 + HEADER_BYTES + self.times
    }

    /// Where the codes behind them begin in a body.
    pub(super) fn end(self) -> usize {
        match self.samples {
            0 => FIRST_TIME_BYTES,
            _ => self.values_at() + self.values,
        }
    }

    /// Puts `pack` into `body`, which held `before` and is long enough for these.
    pub(super) fn insert(self, before: Self, pack: &Pack, body: &mut [u8]) {
        let (old, new) = (before.values_at(), self.values_at());
        body.copy_within(old..old + before.values, new);
        body[new + before.values..self.end()].copy_from_slice(pack.values.as_bytes());
        body[old..new].copy_from_slice(pack.times.as_bytes());
        body[FIRST_TIME_BYTES] = PACKED;
        let word = &self.word().to_le_bytes()[..HEADER_BYTES];
        body[FIRST_TIME_BYTES + 1..][..HEADER_BYTES].copy_from_slice(word);
    }

    /// The bytes of times and those of values, in the body in which they were found.
    pub(super) fn bytes(self, body: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
        let all = body.get(..self.end()).ok_or(Malformed("packs cut short"))?;
        let (times, values) = all.split_at(self.values_at());
        Ok((&times[self.values_at() - self.times..], values))
    }
}

/// Whether it is time for a pack in a chunk of so many samples. Chunks of one `phase` have their
/// packs end together, and only then times have the same bytes; others pack at other samples, so
/// that not all of a fleet do at once.
#[inline]
pub(super) fn is_due(samples: usize, phase: u32) -> bool {
    (samples + phase as usize).is_multiple_of(SAMPLES)
}

/// A pack, written.
pub(super) struct Pack {
    samples: usize,
    times: Buffer<{ FIRST_MAX * 9 + 9 }>,
    values: Buffer<{ FIRST_MAX * 11 + 9 }>,
}

impl Pack {
    /// What `codes` behind `packs` hold, if they are `samples` floats and may be packed; `last` are
    /// the bits of the last one. Nothing in them may depend on a run before.
    pub(super) fn of(packs: Packs, codes: &[u8], samples: usize, last: u64) -> Option<Self> {
        let wanted = match packs.samples {
            0 => FIRST_MIN..=FIRST_MAX,
            _ => SAMPLES..=SAMPLES,
        };
        if !wanted.contains(&samples) {
            return None;
        }
        let mut pack = Self {
            samples,
            times: Buffer::default(),
            values: Buffer::default(),
        };
        let mut steps = pack.write_times(codes, packs.is_raw).ok()?;
        steps.find_order(samples, last);
        if !steps.write(samples, &mut pack.values) {
            pack.write_codes(codes).ok()?;
        }
        Some(pack)
    }

    /// Also returns the values.
    fn write_times(&mut self, codes: &[u8], is_raw: bool) -> Result<Values, Malformed> {
        let mut walk = Walk::new(codes);
        let (mut steps, mut changes) = (Values::default(), [0; FIRST_MAX]);
        for (i, change) in changes[..self.samples].iter_mut().enumerate() {
            *change = walk.change()?;
            let left = walk.cursor.len();
            let kind = match walk.value()? {
                value::Code::Repeats(_) => continue,
                value::Code::Step(step) => {
                    steps.of[i] = unzigzag(step);
                    // Repeats before it were not of the integer.
                    match is_raw && i > 0 && steps.kind == Kind::Repeats {
                        true => Kind::Mixed,
                        false => Kind::Integers,
                    }
                }
                value::Code::Xor(bits) => {
                    steps.of[i] = bits as i64;
                    Kind::Bits
                }
                value::Code::Scale => {
                    steps.scale = Some(walk.cursor.byte()?);
                    steps.of[i] = unzigzag(value::Code::step_of_scale(&mut walk.cursor)?);
                    match i {
                        0 => Kind::Integers,
                        _ => Kind::Mixed,
                    }
                }
            };
            steps.kind = steps.kind.with(kind);
            steps.code_bytes += left - walk.cursor.len();
        }
        times::push(&changes[..self.samples], &mut self.times);
        Ok(steps)
    }

    #[cold]
    fn write_codes(&mut self, codes: &[u8]) -> Result<(), Malformed> {
        let (mut walk, mut run) = (Walk::new(codes), 0);
        self.values.put(CODES);
        for _ in 0..self.samples {
            walk.change()?;
            let before = walk.cursor.rest();
            match walk.value()? {
                value::Code::Repeats(_) => {
                    value::push_run(&mut self.values, &mut run);
                    continue;
                }
                value::Code::Scale => {
                    walk.cursor.byte()?;
                    value::Code::step_of_scale(&mut walk.cursor)?;
                }
                _ => (),
            }
            run = 0;
            let code = &before[..before.len() - walk.cursor.len()];
            code.iter().for_each(|byte| self.values.put(*byte));
        }
        Ok(())
    }
}

/// Where in codes that are to be packed a reader stands.
struct Walk<'a> {
    cursor: Cursor<'a>,
    time_repeats: u32,
    value_repeats: u32,
}

impl<'a> Walk<'a> {
    fn new(codes: &'a [u8]) -> Self {
        Self {
            cursor: Cursor::new(codes),
            time_repeats: 0,
            value_repeats: 0,
        }
    }

    /// How the next distance differs.
    #[inline]
    fn change(&mut self) -> Result<u64, Malformed> {
        if self.time_repeats == 0 {
            match time::Code::read(self.cursor.byte()?, &mut self.cursor)? {
                time::Code::Change(change) => return Ok(change),
                time::Code::Repeats(repeats) => self.time_repeats = repeats,
            }
        }
        self.time_repeats -= 1;
        Ok(0)
    }

    /// The next value; runs one by one, and what follows on a scale is left to read.
    #[inline]
    fn value(&mut self) -> Result<value::Code, Malformed> {
        if self.value_repeats == 0 {
            let code = value::Code::read(self.cursor.byte()?, &mut self.cursor)?;
            let value::Code::Repeats(repeats) = code else {
                return Ok(code);
            };
            self.value_repeats = repeats;
        }
        self.value_repeats -= 1;
        Ok(value::Code::Repeats(1))
    }
}

/// What the codes of a pack are, but for repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing else.
    Repeats,
    /// Steps of the integer; where there are none, it is what it was.
    Integers,
    /// Bits, exclusive-or with those before.
    Bits,
    /// Neither alone.
    Mixed,
}

impl Kind {
    fn with(self, other: Self) -> Self {
        match self {
            Self::Repeats => other,
            same if same == other => same,
            _ => Self::Mixed,
        }
    }
}

/// The values of a pack, between codes and bytes.
struct Values {
    kind: Kind,
    /// Code of the scale that the first of them begins with.
    scale: Option<u8>,
    of: [i64; FIRST_MAX],
    code_bytes: usize,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            kind: Kind::Repeats,
            scale: None,
            of: [0; FIRST_MAX],
            code_bytes: 0,
        }
    }
}

impl Values {
    /// Makes bits, of which the last ones are known, steps of their order.
    fn find_order(&mut self, samples: usize, last: u64) {
        if self.kind != Kind::Bits {
            return;
        }
        let of = &mut self.of[..samples];
        let mut bits = of.iter().fold(last, |bits, xor| bits ^ *xor as u64);
        for step in of {
            let before = ordered(bits);
            bits ^= *step as u64;
            *step = ordered(bits).wrapping_sub(before);
        }
    }

    /// Writes them, if that takes not much more than their codes.
    fn write(mut self, samples: usize, out: &mut impl Sink) -> bool {
        if self.kind == Kind::Mixed {
            return false;
        }
        let first = zigzag(self.of[0]);
        // Behind the last there are zeros.
        let is_falling = self.of.iter().fold(0, |any, step| any | step) < 0;
        if is_falling {
            for step in &mut self.of {
                *step = zigzag(*step) as i64;
            }
        }
        let behind = self.of[1..].iter().fold(0, |any, step| any | step) as u64;
        let whole = bit_len(behind | self.of[0] as u64);
        let apart_saves = (whole - bit_len(behind)) * samples / 8;
        let is_apart =
            apart_saves > bit_len(first).div_ceil(7) || whole == 0 && self.kind != Kind::Repeats;
        let width = if is_apart { bit_len(behind) } else { whole };
        if width > WIDTH_MAX || (width * samples).div_ceil(8) > self.code_bytes + DEARER_BYTES {
            return false;
        }
        if let Some(scale) = self.scale {
            out.put(SCALE);
            out.put(scale);
        }
        if self.kind == Kind::Bits {
            out.put(ORDERED);
        }
        let zigzags = if is_falling { ZIGZAG } else { 0 };
        let apart = if is_apart { FIRST_APART } else { 0 };
        out.put(width as u8 | zigzags | apart);
        if is_apart {
            push_uvarint(out, first);
            self.of[0] = 0;
        }
        let numbers = self.of[..samples].iter().map(|step| *step as u64);
        push_bits(out, width, numbers);
        true
    }
}

fn bit_len(n: u64) -> usize {
    (u64::BITS - n.leading_zeros()) as usize
}

/// Follows the values of packs, one for each place of `out`.
pub(super) fn values(
    bytes: &[u8],
    state: &mut ValueState,
    out: &mut [f64],
) -> Result<(), Malformed> {
    match Avx512::detect() {
        Some(avx512) => avx512.values(bytes, state, out),
        None => values_with(bytes, state, out, |steps, before, scaling, out| {
            steps.follow(before, scaling, out)
        }),
    }
}

/// The same with this [`Steps::follow`], for whose processor all of it is compiled.
#[inline(always)]
fn values_with(
    bytes: &[u8],
    state: &mut ValueState,
    out: &mut [f64],
    follow: impl Fn(Steps<'_>, i64, Scaling, &mut [f64]) -> i64,
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(bytes);
    let (first, others) = apart(out)?;
    // One loop for all of them: what is called at one place alone is compiled into it.
    let others = others.iter_mut().map(<[f64; SAMPLES]>::as_mut_slice);
    for places in std::iter::once(first).chain(others) {
        // What stands still, as every second counter does, is told by its byte alone.
        match cursor.rest().first() {
            Some(0) => {
                cursor.byte()?;
                places.fill(f64::from_bits(state.bits));
            }
            _ => one(&mut cursor, state, places, &follow)?,
        }
    }
    Ok(())
}

/// The places of the first pack, and those of each of the others.
#[inline]
fn apart<T>(out: &mut [T]) -> Result<(&mut [T], &mut [[T; SAMPLES]]), Malformed> {
    let Some(behind) = out.len().checked_sub(FIRST_MIN) else {
        return Err(Malformed("too few samples in packs"));
    };
    let (first, others) = out.split_at_mut(FIRST_MIN + behind % SAMPLES);
    Ok((first, others.as_chunks_mut().0))
}

#[inline(always)]
fn one(
    cursor: &mut Cursor<'_>,
    state: &mut ValueState,
    out: &mut [f64],
    follow: impl Fn(Steps<'_>, i64, Scaling, &mut [f64]) -> i64,
) -> Result<(), Malformed> {
    let mut head = cursor.byte()?;
    if head == SCALE {
        state.rescale(cursor.byte()?)?;
        head = cursor.byte()?;
    }
    if head == CODES {
        return codes(cursor, state, out);
    }
    let is_ordered = head == ORDERED;
    if is_ordered {
        head = cursor.byte()?;
    }
    let first = match head & FIRST_APART {
        0 => None,
        _ => Some(unzigzag(cursor.uvarint()?)),
    };
    let (before, scaling) = match is_ordered {
        true => (ordered(state.bits), Scaling::Ordered),
        false => (state.int, state.scaling()),
    };
    let before = before.wrapping_add(first.unwrap_or(0));
    let width = usize::from(head & WIDTH);
    if width == 0 && first.is_none() {
        out.fill(f64::from_bits(state.bits));
        return Ok(());
    }
    let steps = Steps {
        bytes: pass(cursor, width, out.len())?,
        width,
        are_zigzags: head & ZIGZAG != 0,
    };
    let last = follow(steps, before, scaling, out);
    match (out.last(), is_ordered) {
        (Some(float), true) => state.turn_to_bits(*float),
        (Some(float), false) => state.turn_to_int(last, *float),
        (None, _) => (),
    }
    Ok(())
}

/// No processor of this kind has it.
#[cfg(not(target_arch = "x86_64"))]
impl Avx512 {
    fn values(self, _: &[u8], _: &mut ValueState, _: &mut [f64]) -> Result<(), Malformed> {
        match self {}
    }

    fn times(self, _: &[u8], _: &mut TimeState, _: &mut [i64]) -> Result<(), Malformed> {
        match self {}
    }
}

/// Steps of the values of a pack, of so many bits each.
#[derive(Clone, Copy, Debug)]
struct Steps<'a> {
    /// All of them, and whatever is behind them.
    bytes: &'a [u8],
    width: usize,
    are_zigzags: bool,
}

impl Steps<'_> {
    /// Goes a step for each float; returns where that leads. What any processor does.
    #[inline]
    fn follow(self, before: i64, scaling: Scaling, out: &mut [f64]) -> i64 {
        let mut ints = [before; FIRST_MAX];
        let ints = &mut ints[..out.len()];
        let mut int = before;
        let mut add_up = |step: i64| {
            int = int.wrapping_add(step);
            int
        };
        match (self.width, self.are_zigzags) {
            (0, _) => {}
            (width, false) => unpack(self.bytes, width, ints, |step| add_up(step as i64)),
            (width, true) => unpack(self.bytes, width, ints, |step| add_up(unzigzag(step))),
        }
        scaling.floats(ints, out);
        int
    }
}

/// Passes over as many numbers of `width` bits; returns the bytes that begin with them.
#[inline]
fn pass<'a>(cursor: &mut Cursor<'a>, width: usize, numbers: usize) -> Result<&'a [u8], Malformed> {
    if width > WIDTH_MAX {
        return Err(Malformed("unknown pack"));
    }
    let rest = cursor.rest();
    cursor.bytes((width * numbers).div_ceil(8))?;
    Ok(rest)
}

/// Puts what `each` makes of the numbers of `width` bits, at least one, with which `bytes` begin
/// into the places of `out`.
#[inline]
fn unpack(bytes: &[u8], width: usize, out: &mut [i64], each: impl FnMut(u64) -> i64) {
    let len = (width * out.len()).div_ceil(8);
    match bytes.get(..len + 8) {
        Some(bytes) => unpack_of(bytes, width, out, each),
        None => {
            let mut padded = [0; FIRST_MAX * 7 + 8];
            padded[..len].copy_from_slice(&bytes[..len]);
            unpack_of(&padded[..len + 8], width, out, each);
        }
    }
}

/// The same of numbers behind which there are eight bytes of anything.
#[inline]
fn unpack_of(bytes: &[u8], width: usize, out: &mut [i64], each: impl FnMut(u64) -> i64) {
    match width {
        0..9 => unpack_by::<8>(bytes, width, out, each),
        9..16 => unpack_by::<4>(bytes, width, out, each),
        16..30 => unpack_by::<2>(bytes, width, out, each),
        _ => unpack_by::<1>(bytes, width, out, each),
    }
}

/// As many numbers at a time as a word holds, if the first of `EACH` may begin at every bit of a
/// byte that is a multiple of their number.
#[inline]
fn unpack_by<const EACH: usize>(
    bytes: &[u8],
    width: usize,
    out: &mut [i64],
    mut each: impl FnMut(u64) -> i64,
) {
    let (mask, mut bit) = (u64::MAX >> (64 - width), 0);
    let mut of_word = |places: &mut [i64]| {
        let word = bytes.get(bit / 8..).and_then(<[u8]>::first_chunk);
        let mut word = u64::from_le_bytes(*word.unwrap_or(&[0; 8])) >> (bit % 8);
        for out in places {
            *out = each(word & mask);
            word >>= width;
        }
        bit += EACH * width;
    };
    let (whole, rest) = out.as_chunks_mut::<EACH>();
    whole.iter_mut().for_each(|places| of_word(places));
    of_word(rest);
}

#[cold]
fn codes(
    cursor: &mut Cursor<'_>,
    state: &mut ValueState,
    out: &mut [f64],
) -> Result<(), Malformed> {
    let mut repeats = 0;
    for out in out {
        if repeats == 0 {
            let op = cursor.byte()?;
            repeats = state.apply(op, cursor)?.max(1);
        }
        repeats -= 1;
        *out = f64::from_bits(state.bits);
    }
    Ok(())
}
