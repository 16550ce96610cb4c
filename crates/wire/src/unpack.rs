//! Bodies that come in parts and are packed, as HTTP's `Content-Encoding` says.
//!
//! ```text
//! input -- as much as there is --> Unpacker -- at most so many bytes at a time --> out
//! ```
//!
//! Invariant: no call makes more of `out` than it was allowed and what the packing reaches back,
//! which comes at once at an end of zstd's, however well the input is packed. What was not taken
//! of the input must be given again, with more behind it. Several streams one behind the other are
//! read as one, as `gzip` and `zstd` do.

use firn_model::error::{Error, ErrorKind};
use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window of gzip: 32 KiB.
const GZIP_WINDOW_BITS: u8 = 15;

/// Bytes of `out` that gzip fills at a time.
const GZIP_STEP_BYTES: usize = 64 << 10;

/// The longest beginning of a frame of zstd.
const ZSTD_HEADER_BYTES_MAX: usize = 18;

/// A block of zstd begins with so many bytes.
const ZSTD_BLOCK_HEADER_BYTES: usize = 3;

/// A frame of zstd ends with so many bytes, if it has a checksum.
const ZSTD_CHECKSUM_BYTES: usize = 4;

/// A block of zstd has at most so many bytes, packed or not.
pub const ZSTD_BLOCK_BYTES_MAX: usize = 128 << 10;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// Members of gzip.
    Gzip,
    /// Frames of zstd.
    Zstd,
}

impl Packing {
    /// What a `Content-Encoding` stands for; none if it is not read here.
    pub fn of_content_encoding(header: &str) -> Option<Self> {
        match header.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Packing::None),
            "gzip" | "x-gzip" => Some(Packing::Gzip),
            "zstd" => Some(Packing::Zstd),
            _ => None,
        }
    }

    /// Bytes of memory that unpacking takes at most, beside the input and what the output is
    /// allowed, where zstd may reach back so many bytes.
    pub fn memory_bytes(self, window_bytes_max: usize) -> usize {
        match self {
            Packing::None => 0,
            Packing::Gzip => 64 << 10,
            // The window, the block that is added to it, and both in the output at the end.
            Packing::Zstd => 2 * (window_bytes_max + 2 * ZSTD_BLOCK_BYTES_MAX),
        }
    }
}

/// Unpacks one body.
pub struct Unpacker(State);

enum State {
    Plain,
    /// `None` between two members.
    Gzip(Option<Box<Decompress>>),
    Zstd(Box<Zstd>),
}

struct Zstd {
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            State::Plain => "Unpacker(plain)",
            State::Gzip(_) => "Unpacker(gzip)",
            State::Zstd(_) => "Unpacker(zstd)",
        })
    }
}

impl Unpacker {
    /// At the beginning of a body, in which zstd may reach back so many bytes.
    pub fn new(packing: Packing, window_bytes_max: usize) -> Self {
        Self(match packing {
            Packing::None => State::Plain,
            Packing::Gzip => State::Gzip(None),
            Packing::Zstd => {
                let mut decoder = FrameDecoder::new();
                decoder.set_max_window_size(window_bytes_max as u64);
                State::Zstd(Box::new(Zstd {
                    decoder,
                    is_in_frame: false,
                }))
            }
        })
    }

    /// Appends to `out` until that has `bytes_max` or more of `input` is needed; returns how much
    /// of `input` was taken. `is_all` says that nothing comes behind `input`.
    pub fn unpack(
        &mut self,
        input: &[u8],
        is_all: bool,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<usize, Error> {
        match &mut self.0 {
            State::Plain => {
                let taken = input.len().min(bytes_max.saturating_sub(out.len()));
                out.extend_from_slice(&input[..taken]);
                Ok(taken)
            }
            State::Gzip(member) => unpack_gzip(member, input, is_all, out, bytes_max),
            State::Zstd(zstd) => zstd.unpack(input, is_all, out, bytes_max),
        }
    }
}

fn corrupt(packing: &str, what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{packing}: {what}"))
}

fn unpack_gzip(
    member: &mut Option<Box<Decompress>>,
    input: &[u8],
    is_all: bool,
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<usize, Error> {
    let mut taken = 0;
    while out.len() < bytes_max {
        let rest = &input[taken..];
        if rest.is_empty() && (member.is_none() || !is_all) {
            break;
        }
        let stream = member.get_or_insert_with(|| Box::new(Decompress::new_gzip(GZIP_WINDOW_BITS)));
        let start = out.len();
        out.resize(start + GZIP_STEP_BYTES.min(bytes_max - start), 0);
        let (read, written) = (stream.total_in(), stream.total_out());
        let status = stream
            .decompress(rest, &mut out[start..], FlushDecompress::None)
            .map_err(|_| corrupt("gzip", "corrupt input"));
        let written = (stream.total_out() - written) as usize;
        out.truncate(start + written);
        let read = (stream.total_in() - read) as usize;
        taken += read;
        match status? {
            Status::StreamEnd => *member = None,
            _ if read == 0 && written == 0 => {
                if is_all {
                    return Err(corrupt("gzip", "the body ends in the middle"));
                }
                break;
            }
            _ => {}
        }
    }
    Ok(taken)
}

impl Zstd {
    fn unpack(
        &mut self,
        input: &[u8],
        is_all: bool,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<usize, Error> {
        let mut taken = 0;
        while out.len() < bytes_max {
            let rest = &input[taken..];
            let read = match self.is_in_frame {
                true => self.block(rest, is_all, out)?,
                false => self.begin(rest, is_all)?,
            };
            match read {
                0 if rest.is_empty() && !self.is_in_frame => break,
                0 if is_all => return Err(corrupt("zstd", "the body ends in the middle")),
                0 => break,
                read => taken += read,
            }
        }
        Ok(taken)
    }

    /// Reads the beginning of a frame, or passes over one that holds no data; 0 if more of it is
    /// needed.
    fn begin(&mut self, input: &[u8], is_all: bool) -> Result<usize, Error> {
        if input.is_empty() || input.len() < ZSTD_HEADER_BYTES_MAX && !is_all {
            return Ok(0);
        }
        let mut rest = input;
        match self.decoder.reset(&mut rest) {
            Ok(()) => self.is_in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let length = length as usize;
                if rest.len() < length {
                    // What is passed over is small where it occurs: the input holds it.
                    return match is_all || length > ZSTD_BLOCK_BYTES_MAX {
                        true => Err(corrupt("zstd", "a frame to pass over is too long")),
                        false => Ok(0),
                    };
                }
                rest = &rest[length..];
            }
            Err(e) => return Err(corrupt("zstd", &e.to_string())),
        }
        Ok(input.len() - rest.len())
    }

    /// Reads one block if it is all there; 0 if more of it is needed.
    fn block(&mut self, input: &[u8], is_all: bool, out: &mut Vec<u8>) -> Result<usize, Error> {
        let Some(&[a, b, c]) = input.first_chunk::<ZSTD_BLOCK_HEADER_BYTES>() else {
            return Ok(0);
        };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let bytes = match (header >> 1) & 3 {
            // One byte, many times.
            1 => 1,
            _ => (header >> 3) as usize,
        };
        if bytes > ZSTD_BLOCK_BYTES_MAX {
            return Err(corrupt("zstd", "a block is too long"));
        }
        let needed = ZSTD_BLOCK_HEADER_BYTES + bytes;
        if input.len() < needed || input.len() < needed + ZSTD_CHECKSUM_BYTES && !is_all {
            return Ok(0);
        }
        let mut rest = input;
        let one = BlockDecodingStrategy::UptoBlocks(1);
        let is_end = self.decoder.decode_blocks(&mut rest, one);
        let is_end = is_end.map_err(|e| corrupt("zstd", &e.to_string()))?;
        let collected = self.decoder.collect_to_writer(&mut *out);
        collected.map_err(|e| corrupt("zstd", &e.to_string()))?;
        self.is_in_frame = !is_end;
        Ok(input.len() - rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    const WINDOW: usize = 8 << 20;

    type Pack = fn(&[u8]) -> Vec<u8>;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn plain(text: &[u8]) -> Vec<u8> {
        text.to_vec()
    }

    /// Unpacks a body that comes `step` bytes at a time, and looks at each call's bounds.
    fn unpack(packing: Packing, body: &[u8], step: usize, max: usize) -> Result<Vec<u8>, Error> {
        let mut unpacker = Unpacker::new(packing, WINDOW);
        let (mut all, mut input) = (Vec::new(), Vec::new());
        let mut parts = body.chunks(step).peekable();
        loop {
            let part = parts.next();
            let is_all = parts.peek().is_none();
            input.extend_from_slice(part.unwrap_or_default());
            loop {
                let mut out = Vec::new();
                let taken = unpacker.unpack(&input, is_all, &mut out, max)?;
                assert!(out.len() < max + WINDOW);
                input.drain(..taken);
                if taken == 0 && out.is_empty() {
                    break;
                }
                all.extend_from_slice(&out);
            }
            if is_all {
                assert!(input.is_empty(), "{} bytes were left over", input.len());
                return Ok(all);
            }
        }
    }

    #[test]
    fn body_in_any_parts_unpacks_to_what_was_packed() {
        let mut text = Vec::new();
        for i in 0..4_000u32 {
            text.extend_from_slice(format!("m{{i=\"{}\"}} {i}\n", i.wrapping_mul(77)).as_bytes());
        }
        let packers: [(Packing, Pack); 3] = [
            (Packing::None, plain),
            (Packing::Gzip, gzip),
            (Packing::Zstd, zstd),
        ];
        for (packing, pack) in packers {
            // Two streams one behind the other, and an empty one.
            let mut body = pack(&text);
            body.extend(pack(&[]));
            body.extend(pack(b"end\n"));
            let wanted = [&text[..], b"end\n"].concat();
            for (step, max) in [(1 << 20, 1 << 20), (4096, 1 << 16), (7, 1 << 30), (1, 100)] {
                let got = unpack(packing, &body, step, max).unwrap();
                assert!(got == wanted, "{packing:?}, {step}, {max}: {}", got.len());
            }
            assert_eq!(unpack(packing, b"", 1, 1).unwrap(), b"");
        }
    }

    #[test]
    fn body_that_is_torn_or_damaged_is_an_error() {
        let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        for (packing, body) in [(Packing::Gzip, gzip(&text)), (Packing::Zstd, zstd(&text))] {
            for cut in [1, 5, body.len() / 2, body.len() - 5] {
                let e = unpack(packing, &body[..cut], 100, 1 << 20).unwrap_err();
                assert_eq!(e.kind, ErrorKind::Invalid, "{packing:?} at {cut}");
            }
            let e = unpack(packing, b"plain text of no packing", 100, 100).unwrap_err();
            assert_eq!(e.kind, ErrorKind::Invalid, "{packing:?}");
        }
    }

    #[test]
    fn body_with_any_flipped_bit_ends_and_stays_within_its_bounds() {
        let text = b"m{instance=\"a\"} 1 1700000000000\n".repeat(40);
        for (packing, body) in [(Packing::Gzip, gzip(&text)), (Packing::Zstd, zstd(&text))] {
            for bit in 0..body.len() * 8 {
                let mut flipped = body.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                if let Err(e) = unpack(packing, &flipped, 50, 1 << 16) {
                    assert_eq!(e.kind, ErrorKind::Invalid, "{packing:?} at bit {bit}");
                }
            }
        }
    }

    #[test]
    fn bomb_is_unpacked_a_step_at_a_time() {
        let zeros = vec![0; 64 << 20];
        for (packing, body) in [(Packing::Gzip, gzip(&zeros)), (Packing::Zstd, zstd(&zeros))] {
            let mut unpacker = Unpacker::new(packing, WINDOW);
            let mut out = Vec::new();
            let taken = unpacker.unpack(&body, true, &mut out, 1 << 20).unwrap();
            assert!(taken < body.len(), "{packing:?}");
            assert!(out.len() >= 1 << 20, "{packing:?}: {}", out.len());
            assert!(out.len() <= WINDOW + (2 << 20));
        }
    }
}
