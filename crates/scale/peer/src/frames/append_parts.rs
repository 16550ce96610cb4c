//! The parts of a batch for one node in one request, and their answers.
//!
//! ```text
//! request: part count | length of each part | parts, each an append frame
//! answer:  part count | length and answer of each part: an outcome or a failure
//! ```
//!
//! Invariant: each part has an answer of its own, so that a failure of one partition repeats the
//! samples of that partition only.

use crate::bytes::{MalformedFrame, PeerFrameReader, push_count, push_prefixed};
use crate::failure::{PeerFailure, decode_answer, encode_answer};
use crate::frames::append::EncodedAppend;
use crate::frames::outcome::{PeerAppended, decode_appended, encode_appended};
use bytes::Bytes;

/// A lower bound for the bytes of a part with its length.
const PART_BYTES_MIN: usize = 16;

/// The answer to one part.
pub type PartAnswer = Result<PeerAppended, PeerFailure>;

/// Returns the buffers of a request, in order: its begin, and the frame of each part.
pub fn join_parts(parts: &[EncodedAppend]) -> Vec<Bytes> {
    let mut begin = Vec::with_capacity(5 + 5 * parts.len());
    push_count(parts.len(), &mut begin);
    for part in parts {
        push_count(part.frame_bytes(), &mut begin);
    }
    let frames = parts.iter().map(|part| part.frame().clone());
    std::iter::once(begin.into()).chain(frames).collect()
}

/// Returns the frames of the parts of a request.
///
/// # Errors
///
/// [`MalformedFrame`] if `request` is not exactly a list of parts. The parts are not decoded.
pub fn split_parts(request: &[u8]) -> Result<Vec<&[u8]>, MalformedFrame> {
    let mut reader = PeerFrameReader::new(request);
    let mut lengths = Vec::new();
    for _ in 0..reader.count(PART_BYTES_MIN)? {
        lengths.push(reader.usize()?);
    }
    let frames = lengths.into_iter().map(|length| reader.bytes(length));
    let frames = frames.collect::<Result<_, _>>()?;
    reader.finish()?;
    Ok(frames)
}

/// Appends the answers to all parts of a request, in the order of the parts.
pub fn encode_answers(answers: &[PartAnswer], into: &mut Vec<u8>) {
    push_count(answers.len(), into);
    for answer in answers {
        push_prefixed(&encode_answer(answer, encode_appended), into);
    }
}

/// Decodes the answers to a request with `count` parts.
///
/// # Errors
///
/// [`MalformedFrame`] if `bytes` are not exactly that number of answers.
pub fn decode_answers(bytes: &[u8], count: usize) -> Result<Vec<PartAnswer>, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    if reader.count(1)? != count {
        return Err(MalformedFrame("another number of answers than of parts"));
    }
    let mut answers = Vec::with_capacity(count);
    for _ in 0..count {
        let answer = decode_answer(reader.prefixed()?);
        answers.push(answer.and_then(|payload| Ok(decode_appended(payload)?)));
    }
    reader.finish()?;
    Ok(answers)
}
