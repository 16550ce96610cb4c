//! The failures of requests to a peer, and their frame.
//!
//! ```text
//! kind u8 | not leader: partition, leader? | others: error kind u8, text
//! ```
//!
//! Invariant: a failure crosses the wire in full, so that a caller sees the error that the store of
//! the peer returned.

use crate::bytes::{MalformedFrame, PeerFrameReader, push_option, push_prefixed, push_varint};
use firn_model::error::{Error, ErrorKind};

/// The reason why a peer did not answer a request. It determines whether, and where, the caller
/// repeats the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerFailure {
    /// The peer does not lead the partition now. The caller must send the request to the leader.
    #[error("{}", not_leader_text(*partition, leader.as_deref()))]
    NotLeader {
        /// The number of the partition.
        partition: u32,
        /// The address of the leader, if the peer has found one.
        leader: Option<String>,
    },
    /// The connection failed, the request took too long, or the peer shuts down. A later request
    /// may succeed. The outcome of an append is unknown; a repeated append stores its samples once.
    #[error("{0}")]
    Unavailable(String),
    /// No process listens at the address of the peer: its process has ended. Otherwise like
    /// [`PeerFailure::Unavailable`], which it becomes on the wire.
    #[error("{0}")]
    Refused(String),
    /// The peer has another secret, cluster, partition count or version. No repetition succeeds.
    #[error("{0}")]
    Rejected(String),
    /// The append or the look-up itself failed at the peer.
    #[error("{0}")]
    Failed(Error),
}

fn not_leader_text(partition: u32, leader: Option<&str>) -> String {
    match leader {
        Some(leader) => format!("partition {partition} is led by {leader}"),
        None => format!("partition {partition} has no known leader"),
    }
}

impl From<Error> for PeerFailure {
    fn from(error: Error) -> Self {
        PeerFailure::Failed(error)
    }
}

/// A frame that a peer of the same version cannot have sent.
impl From<MalformedFrame> for PeerFailure {
    fn from(malformed: MalformedFrame) -> Self {
        PeerFailure::Failed(malformed.into())
    }
}

/// The error of a failed request for callers that do not repeat it. All failures except
/// [`PeerFailure::Failed`] have the kind [`ErrorKind::Unavailable`].
impl From<PeerFailure> for Error {
    fn from(failure: PeerFailure) -> Self {
        match failure {
            PeerFailure::Failed(error) => error,
            other => Error::unavailable(other.to_string()),
        }
    }
}

const ERROR_KINDS: [ErrorKind; 8] = [
    ErrorKind::Invalid,
    ErrorKind::Limited,
    ErrorKind::NotFound,
    ErrorKind::Canceled,
    ErrorKind::Timeout,
    ErrorKind::Unavailable,
    ErrorKind::Corrupt,
    ErrorKind::Internal,
];

const NOT_LEADER: u8 = 0;
const UNAVAILABLE: u8 = 1;
const REJECTED: u8 = 2;
const FAILED: u8 = 3;

/// Appends the frame of a failure.
pub fn encode_failure(failure: &PeerFailure, into: &mut Vec<u8>) {
    match failure {
        PeerFailure::NotLeader { partition, leader } => {
            into.push(NOT_LEADER);
            push_varint(u64::from(*partition), into);
            push_option(leader.as_deref(), into, |leader, into| {
                push_prefixed(leader.as_bytes(), into);
            });
        }
        PeerFailure::Unavailable(text) | PeerFailure::Refused(text) => {
            into.push(UNAVAILABLE);
            push_prefixed(text.as_bytes(), into);
        }
        PeerFailure::Rejected(text) => {
            into.push(REJECTED);
            push_prefixed(text.as_bytes(), into);
        }
        PeerFailure::Failed(error) => {
            into.push(FAILED);
            let own = match error.kind {
                // Only the node that receives a request from a sender limits the rate.
                ErrorKind::RateLimited { .. } => ErrorKind::Unavailable,
                kind => kind,
            };
            let kind = ERROR_KINDS.iter().position(|kind| *kind == own);
            into.push(kind.expect("all kinds are listed") as u8);
            push_prefixed(error.message.as_bytes(), into);
        }
    }
}

/// Decodes the frame of a failure.
///
/// # Errors
///
/// [`MalformedFrame`] if `bytes` are not exactly one failure.
pub fn decode_failure(bytes: &[u8]) -> Result<PeerFailure, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    let failure = read_failure(&mut reader)?;
    reader.finish()?;
    Ok(failure)
}

fn read_failure(reader: &mut PeerFrameReader<'_>) -> Result<PeerFailure, MalformedFrame> {
    Ok(match reader.u8()? {
        NOT_LEADER => PeerFailure::NotLeader {
            partition: reader.u32()?,
            leader: reader.option(|reader| reader.text().map(str::to_owned))?,
        },
        UNAVAILABLE => PeerFailure::Unavailable(reader.text()?.to_owned()),
        REJECTED => PeerFailure::Rejected(reader.text()?.to_owned()),
        FAILED => {
            let kind = ERROR_KINDS.get(usize::from(reader.u8()?));
            let kind = *kind.ok_or(MalformedFrame("unknown kind of error"))?;
            PeerFailure::Failed(Error::new(kind, reader.text()?))
        }
        _ => return Err(MalformedFrame("unknown kind of failure")),
    })
}

const ANSWERED: u8 = 0;
const FAILED_ANSWER: u8 = 1;

/// Returns the frame of an answer: the payload that `push` appends, or the failure.
pub(crate) fn encode_answer<T>(
    answer: &Result<T, PeerFailure>,
    push: impl FnOnce(&T, &mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    match answer {
        Ok(payload) => {
            bytes.push(ANSWERED);
            push(payload, &mut bytes);
        }
        Err(failure) => {
            bytes.push(FAILED_ANSWER);
            encode_failure(failure, &mut bytes);
        }
    }
    bytes
}

/// Returns the payload of an answer, or its failure.
pub(crate) fn decode_answer(bytes: &[u8]) -> Result<&[u8], PeerFailure> {
    match bytes.split_first() {
        Some((&ANSWERED, payload)) => Ok(payload),
        Some((&FAILED_ANSWER, failure)) => Err(decode_failure(failure)?),
        _ => Err(MalformedFrame("unknown kind of answer").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_decoded_and_cut_bytes_are_rejected() {
        let check = |failure: PeerFailure, text: &str| {
            assert_eq!(failure.to_string(), text);
            let answer = encode_answer(&Err::<(), _>(failure.clone()), |_, _| {});
            assert_eq!(decode_answer(&answer), Err(failure));
            let bytes = &answer[1..];
            for end in 0..bytes.len() {
                assert!(decode_failure(&bytes[..end]).is_err(), "{text}: {end}");
            }
        };
        let leader = |leader: Option<&str>| PeerFailure::NotLeader {
            partition: 300,
            leader: leader.map(str::to_owned),
        };
        check(leader(Some("a:1")), "partition 300 is led by a:1");
        check(leader(None), "partition 300 has no known leader");
        check(PeerFailure::Unavailable("a".into()), "a");
        check(PeerFailure::Rejected("b".into()), "b");
        for kind in ERROR_KINDS {
            check(PeerFailure::Failed(Error::new(kind, "c")), "c");
        }
        assert!(decode_failure(&[9]).is_err());
        assert!(decode_failure(&[FAILED, 9, 0]).is_err());
    }
}
