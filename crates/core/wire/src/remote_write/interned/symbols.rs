//! The symbol table of a request, and the keys of series that are built from references to it.
//!
//! ```text
//! message   22 | 08 __name__ | 22 | 02 up | 22 | 03 job | ...
//! refs      1 2 | 3 4 | ...
//! key       0a 0e 0a | 08 __name__ | 12 | 02 up | 0a ...
//! ```
//!
//! A part of a key is a length, followed by that many bytes. A piece is such a part for one symbol,
//! built once for each symbol; the key that remote write 1.0 would send is then assembled by moves
//! of a fixed size, like the labels in [`super::super::plain`]. Longer symbols take a slower path.

use super::super::KEY_FORMAT;
use super::super::charges::RequestMemoryAccount;
use super::super::keys::{LABEL_KEY, NAME_KEY, VALUE_KEY};
use crate::error::WireError;
use crate::limits::WireLimits;
use firn_model::labels::METRIC_NAME;

/// Size of a piece: a length and the symbol. Nearly all symbols fit.
const PIECE_BYTES: usize = 64;

/// Number of bytes of a label name that are moved at once: nearly all names are shorter.
const NAME_BYTES: usize = 32;

/// Space that writing a label of short symbols needs in the buffer.
const LABEL_ROOM: usize = 4 + NAME_BYTES + PIECE_BYTES;

/// Memory for the labels of a series, as a multiple of the size of their key: the key, the decoded
/// labels (an arena that doubles as it grows), the block for the log, and its copy on the way to
/// disk.
pub(crate) const KEY_COPIES: usize = 5;

/// Smallest growth of the buffer of keys: the size of a few hundred keys.
const GROW_BYTES: usize = 64 << 10;

/// Marks the absence of a symbol.
const NONE: u32 = u32::MAX;

/// Position of a symbol in the message, by offset and length.
#[derive(Clone, Copy, Debug)]
struct SymbolSpan {
    at: u32,
    bytes: u32,
}

/// A symbol with its length before it, as in a key.
type Piece = [u8; PIECE_BYTES];

/// The length byte of a symbol that is too long for a piece.
const LONG: u8 = 0x80;

/// Memory of a symbol in bytes.
pub(super) const SYMBOL_BYTES: usize = size_of::<SymbolSpan>() + PIECE_BYTES;

/// The symbols of a request, with a piece for each of them. The memory is reused for the next
/// request.
#[derive(Debug, Default)]
pub(in crate::remote_write) struct WriteRequestSymbols {
    places: Vec<SymbolSpan>,
    /// The pieces, one for each symbol.
    pieces: Vec<Piece>,
    /// The symbol `__name__`.
    metric_name: Option<u32>,
}

impl WriteRequestSymbols {
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.pieces.clear();
        self.metric_name = None;
    }

    /// Adds the symbol of `bytes` bytes at offset `at` of the message.
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
        self.places.push(SymbolSpan {
            at: at as u32,
            bytes: bytes as u32,
        });
        self.pieces.push(piece);
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the bytes of the symbol with this number in `message`, if it exists.
    pub(super) fn get<'m>(&self, message: &'m [u8], number: u32) -> Option<&'m [u8]> {
        let symbol = self.places.get(number as usize)?;
        message
            .get(symbol.at as usize..)?
            .get(..symbol.bytes as usize)
    }

    pub(in crate::remote_write) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<SymbolSpan>() + self.pieces.capacity() * PIECE_BYTES
    }
}

/// The symbol table of a message: the symbols together with the bytes that they are slices of.
#[derive(Clone, Copy)]
pub(super) struct MessageSymbols<'m> {
    message: &'m [u8],
    symbols: &'m WriteRequestSymbols,
}

impl<'m> MessageSymbols<'m> {
    /// Returns the table of `message`, whose symbols were added to `symbols`.
    pub(super) fn new(message: &'m [u8], symbols: &'m WriteRequestSymbols) -> Self {
        Self { message, symbols }
    }

    /// Returns the bytes of the symbol with this number, if it exists.
    pub(super) fn get(self, number: u32) -> Option<&'m [u8]> {
        self.symbols.get(self.message, number)
    }

    pub(super) fn len(self) -> usize {
        self.symbols.len()
    }
}

/// The keys of a request, one after another. The memory after the last key may contain stale bytes,
/// and leaves space for a short label.
#[derive(Debug, Default)]
pub(super) struct SeriesKeyBuffer {
    bytes: Vec<u8>,
    written: usize,
    /// Working memory for one label.
    label: Vec<u8>,
}

/// The range of a written key, and the symbol of its metric name.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesKeyRange {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Number of the symbol that is the metric name.
    pub(super) metric: Option<u32>,
}

impl SeriesKeyBuffer {
    /// Returns an empty list that reuses the memory of `bytes`.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Returns the offset at which the next key will begin.
    pub(super) fn end(&self) -> usize {
        self.written
    }

    /// Returns the memory, with the keys at its start and possibly stale bytes after them.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes the key of the labels that `refs`, packed numbers, refer to. Returns `None`, without
    /// writing, if the labels are invalid or must be validated by the slow path.
    #[inline]
    pub(super) fn write(
        &mut self,
        refs: &[u8],
        table: MessageSymbols<'_>,
        limits: &WireLimits,
        charges: &mut RequestMemoryAccount<'_>,
    ) -> Result<Option<SeriesKeyRange>, WireError> {
        let start = self.written;
        let metric_name = table.symbols.metric_name.unwrap_or(NONE);
        let mut key = SeriesKeyRange {
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
            let pieces = &table.symbols.pieces;
            if self
                .write_short_label(name as usize, value as usize, pieces)
                .is_some()
            {
                continue;
            }
            let parts = table.get(name).zip(table.get(value));
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
            // Reserved before it is allocated; the short labels of a series take 16 KiB at most.
            let bytes = KEY_COPIES * (LABEL_ROOM + name.len() + value.len());
            charges.add(bytes)?;
            charged += bytes;
            self.write_long_label(name, value);
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

    /// Writes a label of short symbols; returns `None` if one is missing or long, or the buffer is
    /// too small.
    #[inline]
    fn write_short_label(&mut self, name: usize, value: usize, pieces: &[Piece]) -> Option<()> {
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

    /// Writes a label of any size, and ensures space for a short one after it.
    #[cold]
    fn write_long_label(&mut self, name: &[u8], value: &[u8]) {
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

/// Reads the next packed 32-bit number; returns `None` if there is no complete one.
#[inline]
fn next_ref(rest: &mut &[u8]) -> Option<u32> {
    let (value, behind) = match **rest {
        [low @ 0..0x80, ref behind @ ..] => (u32::from(low), behind),
        [low, high @ 0..0x80, ref behind @ ..] => {
            (u32::from(low & 0x7f) | u32::from(high) << 7, behind)
        }
        _ => return read_long_ref(rest),
    };
    *rest = behind;
    Some(value)
}

#[cold]
fn read_long_ref(rest: &mut &[u8]) -> Option<u32> {
    let mut cursor = crate::protobuf::ProtobufCursor::new(rest);
    let value = cursor.read_varint().ok()?;
    *rest = cursor.rest();
    // Protobuf truncates numbers to 32 bits.
    Some(value as u32)
}
