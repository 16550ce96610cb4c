//! Decompresses bodies that arrive in parts, for the `Content-Encoding` header of HTTP.
//!
//! ```text
//! input -- available bytes --> Unpacker -- limited number of bytes for each call --> out
//! ```
//!
//! Invariant: no call extends `out` by more than its limit plus the window of the compression,
//! which zstd writes at once at the end of a frame, however well the input compresses. Input that a
//! call did not consume must be passed again, followed by more. Concatenated streams are read as
//! one, as `gzip` and `zstd` do.

use firn_model::error::{Error, ErrorKind};
use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Largest window of gzip, as a power of two: 32 KiB.
const GZIP_WINDOW_BITS: u8 = 15;

/// Number of bytes that gzip appends to `out` at a time.
const GZIP_STEP_BYTES: usize = 64 << 10;

/// Largest size of a zstd frame header in bytes.
const ZSTD_HEADER_BYTES_MAX: usize = 18;

/// Size of a zstd block header in bytes.
const ZSTD_BLOCK_HEADER_BYTES: usize = 3;

/// Size of the optional checksum after a zstd frame in bytes.
const ZSTD_CHECKSUM_BYTES: usize = 4;

/// Largest size of a zstd block in bytes, compressed or not.
pub const ZSTD_BLOCK_BYTES_MAX: usize = 128 << 10;

/// The compression of a request body, as declared in its `Content-Encoding` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentEncoding {
    /// No compression: the body is copied.
    None,
    /// Gzip members, one after another.
    Gzip,
    /// Zstd frames, one after another.
    Zstd,
}

impl ContentEncoding {
    /// Returns the compression for a `Content-Encoding` header; `None` if it is not supported.
    pub fn from_header(header: &str) -> Option<Self> {
        match header.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(ContentEncoding::None),
            "gzip" | "x-gzip" => Some(ContentEncoding::Gzip),
            "zstd" => Some(ContentEncoding::Zstd),
            _ => None,
        }
    }

    /// Returns an upper bound for the memory of decompression in bytes, apart from the input and
    /// the limit of the output. `window_bytes_max` is the largest accepted window of zstd.
    pub fn memory_bytes(self, window_bytes_max: usize) -> usize {
        match self {
            ContentEncoding::None => 0,
            ContentEncoding::Gzip => 64 << 10,
            // The window, the block that is appended to it, and both in the output at the end.
            ContentEncoding::Zstd => 2 * (window_bytes_max + 2 * ZSTD_BLOCK_BYTES_MAX),
        }
    }
}

/// Decompresses one body that arrives in parts. Limits the output of each call, so that a small
/// body cannot expand to unlimited memory.
pub struct BodyDecompressor(BodyDecompressorState);

enum BodyDecompressorState {
    Plain,
    /// Decoder of the current member; `None` between two members.
    Gzip(Option<Box<Decompress>>),
    Zstd(Box<ZstdDecompressor>),
}

struct ZstdDecompressor {
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl std::fmt::Debug for BodyDecompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            BodyDecompressorState::Plain => "Unpacker(plain)",
            BodyDecompressorState::Gzip(_) => "Unpacker(gzip)",
            BodyDecompressorState::Zstd(_) => "Unpacker(zstd)",
        })
    }
}

impl BodyDecompressor {
    /// Returns a decoder at the beginning of a body that rejects larger zstd windows than
    /// `window_bytes_max`.
    pub fn new(packing: ContentEncoding, window_bytes_max: usize) -> Self {
        Self(match packing {
            ContentEncoding::None => BodyDecompressorState::Plain,
            ContentEncoding::Gzip => BodyDecompressorState::Gzip(None),
            ContentEncoding::Zstd => {
                let mut decoder = FrameDecoder::new();
                decoder.set_max_window_size(window_bytes_max as u64);
                BodyDecompressorState::Zstd(Box::new(ZstdDecompressor {
                    decoder,
                    is_in_frame: false,
                }))
            }
        })
    }

    /// Decompresses until `out` contains `bytes_max` bytes or more input is needed; returns the
    /// number of consumed bytes. `is_all` means that `input` contains the end of the body.
    pub fn decompress(
        &mut self,
        input: &[u8],
        is_all: bool,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<usize, Error> {
        match &mut self.0 {
            BodyDecompressorState::Plain => {
                let taken = input.len().min(bytes_max.saturating_sub(out.len()));
                out.extend_from_slice(&input[..taken]);
                Ok(taken)
            }
            BodyDecompressorState::Gzip(member) => {
                decompress_gzip(member, input, is_all, out, bytes_max)
            }
            BodyDecompressorState::Zstd(zstd) => zstd.decompress(input, is_all, out, bytes_max),
        }
    }
}

fn corrupt(packing: &str, what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{packing}: {what}"))
}

fn decompress_gzip(
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

impl ZstdDecompressor {
    fn decompress(
        &mut self,
        input: &[u8],
        is_all: bool,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<usize, Error> {
        let mut taken = 0;
        while out.len() < bytes_max {
            let rest = &input[taken..];
            let read = if self.is_in_frame {
                self.decompress_block(rest, is_all, out)?
            } else {
                self.read_frame_header(rest, is_all)?
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

    /// Reads a frame header, or skips a frame without data; returns 0 if more input is needed.
    /// Fails if the header is invalid or its window too large.
    fn read_frame_header(&mut self, input: &[u8], is_all: bool) -> Result<usize, Error> {
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
                    // Frames to skip are small in practice, so that the input must contain them
                    // completely.
                    return if is_all || length > ZSTD_BLOCK_BYTES_MAX {
                        Err(corrupt("zstd", "a frame to pass over is too long"))
                    } else {
                        Ok(0)
                    };
                }
                rest = &rest[length..];
            }
            Err(e) => return Err(corrupt("zstd", &e.to_string())),
        }
        Ok(input.len() - rest.len())
    }

    /// Decompresses one block if it is complete; returns 0 if more input is needed. Fails if the
    /// block is invalid.
    fn decompress_block(
        &mut self,
        input: &[u8],
        is_all: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let Some(&[a, b, c]) = input.first_chunk::<ZSTD_BLOCK_HEADER_BYTES>() else {
            return Ok(0);
        };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let bytes = match (header >> 1) & 3 {
            // A run of one byte.
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

    /// Decompresses a body that arrives `step` bytes at a time, and checks the bounds of each call.
    fn unpack(
        packing: ContentEncoding,
        body: &[u8],
        step: usize,
        max: usize,
    ) -> Result<Vec<u8>, Error> {
        let mut unpacker = BodyDecompressor::new(packing, WINDOW);
        let (mut all, mut input) = (Vec::new(), Vec::new());
        let mut parts = body.chunks(step).peekable();
        loop {
            let part = parts.next();
            let is_all = parts.peek().is_none();
            input.extend_from_slice(part.unwrap_or_default());
            loop {
                let mut out = Vec::new();
                let taken = unpacker.decompress(&input, is_all, &mut out, max)?;
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
        let packers: [(ContentEncoding, Pack); 3] = [
            (ContentEncoding::None, plain),
            (ContentEncoding::Gzip, gzip),
            (ContentEncoding::Zstd, zstd),
        ];
        for (packing, pack) in packers {
            // Two concatenated streams, one of them empty.
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
        for (packing, body) in [
            (ContentEncoding::Gzip, gzip(&text)),
            (ContentEncoding::Zstd, zstd(&text)),
        ] {
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
        for (packing, body) in [
            (ContentEncoding::Gzip, gzip(&text)),
            (ContentEncoding::Zstd, zstd(&text)),
        ] {
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
        for (packing, body) in [
            (ContentEncoding::Gzip, gzip(&zeros)),
            (ContentEncoding::Zstd, zstd(&zeros)),
        ] {
            let mut unpacker = BodyDecompressor::new(packing, WINDOW);
            let mut out = Vec::new();
            let taken = unpacker.decompress(&body, true, &mut out, 1 << 20).unwrap();
            assert!(taken < body.len(), "{packing:?}");
            assert!(out.len() >= 1 << 20, "{packing:?}: {}", out.len());
            assert!(out.len() <= WINDOW + (2 << 20));
        }
    }
}
