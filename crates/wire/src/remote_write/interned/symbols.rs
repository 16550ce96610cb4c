//! The table of symbols of a request, and the keys that are made of references to it.
//!
//! ```text
//! message   22 | 08 __name__ | 22 | 02 up | 22 | 03 job | ...
//! refs      1 2 | 3 4 | ...
//! key       0a 0e 0a | 08 __name__ | 12 | 02 up | 0a ...
//! ```
//!
//! A part of a key is a length and as many bytes. A piece is that of a symbol, made once for each;
//! so the key that remote write 1.0 would send is put together by moves of a fixed size, as labels
//! are copied in [`super::super::plain`]. Longer symbols take their time.

use super::super::KEY_FORMAT;
use super::super::charges::Charges;
use super::super::keys::{LABEL_KEY, NAME_KEY, VALUE_KEY};
use crate::error::WireError;
use crate::limits::WireLimits;
use firn_model::labels::METRIC_NAME;

/// Bytes of a piece: those of a symbol with its length in front. Nearly all fit.
const PIECE_BYTES: usize = 64;

/// Bytes of names of labels that are moved at once: nearly all are shorter.
const NAME_BYTES: usize = 32;

/// Room that a label of short symbols takes while it is written.
const LABEL_ROOM: usize = 4 + NAME_BYTES + PIECE_BYTES;

/// What the labels of a series take on their way, in bytes of their key: the key, its labels read
/// (an arena that doubles as it grows), the block for the log, and its copy on the way to the disk.
pub(crate) const KEY_COPIES: usize = 5;

/// Memory for keys grows by this at least: those of a few hundred series.
const GROW_BYTES: usize = 64 << 10;

/// No symbol.
const NONE: u32 = u32::MAX;

/// Where a symbol stands in the message.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u32,
    bytes: u32,
}

/// A symbol with its length in front, as it stands in a key.
type Piece = [u8; PIECE_BYTES];

/// The length of a symbol that makes no piece.
const LONG: u8 = 0x80;

/// What a symbol costs.
pub(super) const SYMBOL_BYTES: usize = size_of::<Place>() + PIECE_BYTES;

/// The symbols of a request. Reused for the next one.
#[derive(Debug, Default)]
pub(in crate::remote_write) struct Symbols {
    places: Vec<Place>,
    /// As many.
    pieces: Vec<Piece>,
    /// The symbol that is the name of the metric name's label.
    metric_name: Option<u32>,
}

impl Symbols {
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.pieces.clear();
        self.metric_name = None;
    }

    /// Adds the symbol of `bytes` bytes that stands at `at` of the message.
    pub(super) fn push(&mut self, message: &[u8], at: usize, bytes: usize) {
        let mut piece = [0; PIECE_BYTES];
        let [length, rest @ ..] = &mut piece;
        *length = LONG;
        if bytes <= rest.len() {
            *length = bytes as u8;
            let beyond = message.get(at..).unwrap_or_default();
            match beyond.first_chunk() {
                Some(chunk) => *rest = *chunk,
                None => {
                    let short = rest.iter_mut().zip(beyond);
                    short.for_each(|(to, from)| *to = *from);
                }
            }
        }
        if bytes == METRIC_NAME.len()
            && piece.get(1..=bytes) == Some(METRIC_NAME.as_bytes())
            && self.metric_name.is_none()
        {
            self.metric_name = Some(self.places.len() as u32);
        }
        self.places.push(Place {
            at: at as u32,
            bytes: bytes as u32,
        });
        self.pieces.push(piece);
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The bytes of a symbol of `message`, if there is one with this number.
    pub(super) fn get<'m>(&self, message: &'m [u8], number: u32) -> Option<&'m [u8]> {
        let symbol = self.places.get(number as usize)?;
        message
            .get(symbol.at as usize..)?
            .get(..symbol.bytes as usize)
    }

    pub(in crate::remote_write) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.pieces.capacity() * PIECE_BYTES
    }
}

/// The keys of a request, one behind the other. Memory beyond them may hold what was there before.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    written: usize,
    /// Working memory for one label.
    label: Vec<u8>,
}

/// A key that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenKey {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The symbol that is the name of the metric.
    pub(super) metric: Option<u32>,
}

impl Keys {
    /// Keys in the memory of `bytes`.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Where the next key will begin.
    pub(super) fn end(&self) -> usize {
        self.written
    }

    /// The memory, with the keys at its start.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes the key of the labels that `refs`, packed numbers, refer to. `None`, and nothing
    /// written, if they cannot stand or only a closer look shows it.
    #[inline]
    pub(super) fn write(
        &mut self,
        refs: &[u8],
        (message, symbols): (&[u8], &Symbols),
        limits: &WireLimits,
        charges: &mut Charges<'_>,
    ) -> Result<Option<WrittenKey>, WireError> {
        let start = self.written;
        let metric_name = symbols.metric_name.unwrap_or(NONE);
        let mut key = WrittenKey {
            start,
            end: start,
            metric: None,
        };
        let (mut rest, mut count, mut charged) = (refs, 0, 0);
        while !rest.is_empty() {
            let (Some(name), Some(value)) = (next_ref(&mut rest), next_ref(&mut rest)) else {
                self.written = start;
                return Ok(None);
            };
            count += 1;
            if name == metric_name {
                key.metric = Some(value);
            }
            let numbers = (name as usize, value as usize);
            if self.short_label(numbers, &symbols.pieces).is_some() {
                continue;
            }
            let parts = symbols.get(message, name).zip(symbols.get(message, value));
            let fits = |(name, value): &(&[u8], &[u8])| {
                name.len() <= limits.label_name_bytes_max
                    && value.len() <= limits.label_value_bytes_max
            };
            let Some((name, value)) = parts
                .filter(fits)
                .filter(|_| count <= limits.label_count_max)
            else {
                self.written = start;
                return Ok(None);
            };
            // Counted before it is taken; short labels of a series take 16 KiB at most.
            let bytes = KEY_COPIES * (LABEL_ROOM + name.len() + value.len());
            charges.add(bytes)?;
            charged += bytes;
            self.long_label(name, value);
        }
        if count > limits.label_count_max || count == 0 {
            self.written = start;
            return Ok(None);
        }
        let bytes = KEY_COPIES * (self.written - start);
        charges.add(bytes.saturating_sub(charged))?;
        key.end = self.written;
        Ok(Some(key))
    }

    /// Writes a label of short symbols; `None` if there is no such one, or no room for it.
    #[inline]
    fn short_label(&mut self, (name, value): (usize, usize), pieces: &[Piece]) -> Option<()> {
        let (name, value) = (pieces.get(name)?, pieces.get(value)?);
        let (name_bytes, value_bytes) = (usize::from(name[0]), usize::from(value[0]));
        let label = 4 + name_bytes + value_bytes;
        if name_bytes >= NAME_BYTES || label >= usize::from(LONG) {
            return None;
        }
        let room = self.bytes.get_mut(self.written..)?;
        let room: &mut [u8; LABEL_ROOM] = room.first_chunk_mut()?;
        room[0] = LABEL_KEY;
        room[1] = label as u8;
        room[2] = NAME_KEY;
        let (at_once, _) = name.split_first_chunk::<NAME_BYTES>()?;
        *room.get_mut(3..)?.first_chunk_mut()? = *at_once;
        let at = 4 + name_bytes;
        *room.get_mut(at)? = VALUE_KEY;
        *room.get_mut(at + 1..)?.first_chunk_mut()? = *value;
        self.written += 2 + label;
        Some(())
    }

    /// Writes any label, and makes room for a short one behind it.
    #[cold]
    fn long_label(&mut self, name: &[u8], value: &[u8]) {
        self.label.clear();
        KEY_FORMAT.push_label(&mut self.label, name, value);
        let end = self.written + self.label.len();
        if self.bytes.len() < end + LABEL_ROOM {
            let wanted = (end + GROW_BYTES).max(2 * self.bytes.len());
            self.bytes.resize(wanted, 0);
        }
        if let Some(room) = self.bytes.get_mut(self.written..end) {
            room.copy_from_slice(&self.label);
        }
        self.written = end;
    }
}

/// The next of packed numbers of 32 bits; `None` if there is none, or no whole one.
#[inline]
fn next_ref(rest: &mut &[u8]) -> Option<u32> {
    let (value, behind) = match **rest {
        [low @ 0..0x80, ref behind @ ..] => (u32::from(low), behind),
        [low, high @ 0..0x80, ref behind @ ..] => {
            (u32::from(low & 0x7f) | u32::from(high) << 7, behind)
        }
        _ => return long_ref(rest),
    };
    *rest = behind;
    Some(value)
}

#[cold]
fn long_ref(rest: &mut &[u8]) -> Option<u32> {
    let mut cursor = crate::protobuf::Cursor::new(rest);
    let value = cursor.varint().ok()?;
    *rest = cursor.rest();
    // As protobuf has it: what is beyond 32 bits does not count.
    Some(value as u32)
}
