//! The bytes that nodes exchange.
//!
//! ```text
//! append:  parts of a batch           -> outcome or failure of each part
//! reads:   timed request, one by one  -> messages, each in one or more frames -> end or failure
//! ```
//!
//! A message of an answer is cut into frames of at most [`PART_BYTES`], so that no answer occupies
//! a connection, and a series of any length fits. Invariants: a decoder terminates, does not panic,
//! and allocates at most a small multiple of its input; an encoded value is decoded to an equal
//! value, with all bits of floats.

pub mod answers;
pub mod append;
pub mod append_parts;
pub mod columns;
pub(crate) mod histogram;
pub mod outcome;
pub mod requests;

use crate::bytes::MalformedFrame;

/// Maximum payload of a frame of an answer in bytes.
pub const PART_BYTES: usize = 1 << 20;

/// Maximum number of series whose labels are in one message.
pub const LABELS_CHUNK: usize = 1024;

/// The kind of a frame of an answer: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFrameKind {
    /// A part of a message, which continues in the next frame.
    Part,
    /// The last part of a message.
    Message,
    /// The answer is complete.
    End,
    /// The answer ends with a failure.
    Failure,
}

impl AnswerFrameKind {
    const ALL: [AnswerFrameKind; 4] = [Self::Part, Self::Message, Self::End, Self::Failure];

    fn number(self) -> u8 {
        match self {
            Self::Part => 0,
            Self::Message => 1,
            Self::End => 2,
            Self::Failure => 3,
        }
    }

    /// Returns the frame with this kind and payload.
    pub(crate) fn frame(self, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(1 + payload.len());
        frame.push(self.number());
        frame.extend_from_slice(payload);
        frame
    }

    /// Returns the kind and the payload of a frame.
    ///
    /// # Errors
    ///
    /// [`MalformedFrame`] if the kind is missing or unknown.
    pub fn split(frame: &[u8]) -> Result<(Self, &[u8]), MalformedFrame> {
        let (number, payload) = frame.split_first().ok_or(MalformedFrame("empty"))?;
        let kind = Self::ALL.into_iter().find(|kind| kind.number() == *number);
        Ok((
            kind.ok_or(MalformedFrame("unknown kind of frame"))?,
            payload,
        ))
    }
}

/// The kind of a message in the answer of a read of samples: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMessageKind {
    /// Samples of the next series.
    Columns,
    /// Texts about missing data.
    Losses,
}

impl ReadMessageKind {
    const ALL: [ReadMessageKind; 2] = [Self::Columns, Self::Losses];

    /// Returns the first byte of a message of this kind.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Columns => 0,
            Self::Losses => 1,
        }
    }

    /// Returns the kind and the payload of a message.
    pub(crate) fn split(message: &[u8]) -> Result<(Self, &[u8]), MalformedFrame> {
        let (number, payload) = message.split_first().ok_or(MalformedFrame("empty"))?;
        let kind = Self::ALL.into_iter().find(|kind| kind.number() == *number);
        Ok((
            kind.ok_or(MalformedFrame("unknown kind of message"))?,
            payload,
        ))
    }
}
