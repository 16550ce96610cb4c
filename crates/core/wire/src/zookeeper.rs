//! The ZooKeeper protocol of a client that reads nodes and watches them for changes.
//!
//! ```text
//! frame = length | number | zxid | error | body     a reply
//!         length | -1     | zxid | error | kind state path     an event
//!         length | -2     | ...     the response to a ping
//! ```
//!
//! Integers are big-endian; strings and lists are preceded by their length. Invariant: frames
//! larger than [`FRAME_BYTES_MAX`] are rejected, lengths inside a frame are validated, and the
//! result does not depend on the pieces in which bytes arrive. The session decides when to send
//! requests and how long to wait.
//!
//! Source: `zookeeper.jute` of ZooKeeper.

use firn_model::error::{Error, ErrorKind};

/// Largest size of a frame in bytes: several times the limit of servers for a node, so that long
/// lists of children fit.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// Largest number of children in a reply.
pub const CHILDREN_MAX: usize = 100_000;

/// Types of requests.
const GET_DATA: i32 = 4;
const GET_CHILDREN: i32 = 8;
const PING: i32 = 11;

/// Numbers of frames that are not replies to requests.
const OF_EVENT: i32 = -1;
const OF_PING: i32 = -2;

/// Type of an event that concerns the session and not a node.
const ABOUT_SESSION: i32 = -1;

/// The error code for a node that does not exist.
pub const NO_NODE: i32 = -101;

/// The part of a node that a request reads, and that its watch observes. Watching both needs two
/// requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZookeeperNodePart {
    /// The data of the node, as bytes.
    Data,
    /// The names of its child nodes, without their paths.
    Children,
}

/// Encodes the connect request for a session with a timeout of `patience_ms` milliseconds.
pub fn encode_connect_request(patience_ms: i32) -> Vec<u8> {
    let mut out = Vec::new();
    put_int(&mut out, 0);
    out.extend(0i64.to_be_bytes());
    put_int(&mut out, patience_ms);
    out.extend(0i64.to_be_bytes());
    put_bytes(&mut out, &[0; 16]);
    add_length_prefix(&out)
}

/// Encodes a request that reads the node at `path` and sets a watch for its next change.
pub fn encode_read_request(number: i32, wanted: ZookeeperNodePart, path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_int(&mut out, number);
    put_int(
        &mut out,
        match wanted {
            ZookeeperNodePart::Data => GET_DATA,
            ZookeeperNodePart::Children => GET_CHILDREN,
        },
    );
    put_bytes(&mut out, path.as_bytes());
    out.push(1);
    add_length_prefix(&out)
}

/// Encodes a ping, which keeps the session alive and which the server answers.
pub fn encode_ping() -> Vec<u8> {
    let mut out = Vec::new();
    put_int(&mut out, OF_PING);
    put_int(&mut out, PING);
    add_length_prefix(&out)
}

/// Collects received bytes, whatever the pieces in which they arrive, and splits them into frames.
#[derive(Debug, Default)]
pub struct ZookeeperFrameBuffer {
    incoming: Vec<u8>,
}

impl ZookeeperFrameBuffer {
    /// Returns the buffer to which the caller appends received bytes before
    /// [`ZookeeperFrameBuffer::take`].
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.incoming
    }

    /// Removes and returns the next frame if it is complete. Fails with [`ErrorKind::Invalid`] if
    /// it is too long.
    pub fn take_frame(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some((length, rest)) = self.incoming.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(invalid_error(format!(
                "frame is too long: {length} bytes, limit {FRAME_BYTES_MAX}"
            )));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = frame.to_vec();
        self.incoming.drain(..4 + length);
        Ok(Some(frame))
    }
}

/// The content of a frame that the server sent after the connect response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZookeeperMessage<'f> {
    /// The response to a ping, which proves that the session is alive.
    Alive,
    /// An event: the node at this path changed.
    Changed(String),
    /// An event: the session changed to this state, which ends it.
    State(i32),
    /// A reply to a request, successful or not.
    Reply(ZookeeperReply<'f>),
}

/// A reply to a request, identified by the number of the request. Its body is decoded by
/// the caller, because its type follows from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZookeeperReply<'f> {
    /// Number of the request that it answers.
    pub number: i32,
    /// Error code; zero if the request succeeded.
    pub error: i32,
    body: &'f [u8],
}

impl<'f> ZookeeperMessage<'f> {
    /// Decodes a frame after the response to the connect request. Fails with [`ErrorKind::Invalid`]
    /// if it is malformed.
    pub fn decode(frame: &'f [u8]) -> Result<Self, Error> {
        let mut fields = ZookeeperFrameFields(frame);
        let number = fields.read_int()?;
        let (_zxid, error) = (fields.take_bytes(8)?, fields.read_int()?);
        Ok(match number {
            OF_PING => ZookeeperMessage::Alive,
            OF_EVENT => match (fields.read_int()?, fields.read_int()?) {
                (ABOUT_SESSION, state) => ZookeeperMessage::State(state),
                _ => ZookeeperMessage::Changed(text(fields.read_bytes()?)),
            },
            number => ZookeeperMessage::Reply(ZookeeperReply {
                number,
                error,
                body: fields.0,
            }),
        })
    }
}

impl ZookeeperReply<'_> {
    /// Returns the data of a node. Fails with [`ErrorKind::Invalid`] if the body is malformed.
    pub fn decode_data(&self) -> Result<Vec<u8>, Error> {
        Ok(ZookeeperFrameFields(self.body).read_bytes()?.to_vec())
    }

    /// Returns the names of the child nodes. Fails with [`ErrorKind::Invalid`] if the body is
    /// malformed.
    pub fn decode_children(&self) -> Result<Vec<String>, Error> {
        let mut fields = ZookeeperFrameFields(self.body);
        let count = usize::try_from(fields.read_int()?).unwrap_or(0);
        if count > CHILDREN_MAX {
            let what = format!("too many children: {count}, limit {CHILDREN_MAX}");
            return Err(invalid_error(what));
        }
        let names = (0..count).map(|_| Ok(text(fields.read_bytes()?)));
        names.collect()
    }
}

/// Returns the session timeout in milliseconds that the first frame grants; `None` if the server
/// refuses the session. Fails with [`ErrorKind::Invalid`] if the frame is malformed.
pub fn decode_session_timeout_ms(frame: &[u8]) -> Result<Option<u64>, Error> {
    let mut fields = ZookeeperFrameFields(frame);
    let (_version, granted) = (fields.read_int()?, fields.read_int()?);
    Ok(u64::try_from(granted).ok().filter(|ms| *ms > 0))
}

fn invalid_error(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn add_length_prefix(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + body.len());
    put_bytes(&mut out, body);
    out
}

fn put_int(out: &mut Vec<u8>, number: i32) {
    out.extend(number.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Sent fields are paths or shorter.
    put_int(out, i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    out.extend_from_slice(bytes);
}

/// The unread fields of a frame, whose lengths are validated as they are read.
struct ZookeeperFrameFields<'f>(&'f [u8]);

impl<'f> ZookeeperFrameFields<'f> {
    fn take_bytes(&mut self, bytes: usize) -> Result<&'f [u8], Error> {
        let (field, rest) = self
            .0
            .split_at_checked(bytes)
            .ok_or_else(|| invalid_error("frame ends within a field".to_owned()))?;
        self.0 = rest;
        Ok(field)
    }

    fn read_int(&mut self) -> Result<i32, Error> {
        let field = self.take_bytes(4)?.first_chunk();
        Ok(field.map_or(0, |bytes| i32::from_be_bytes(*bytes)))
    }

    /// Reads a field that is preceded by its length; a length of -1 means that it is absent.
    fn read_bytes(&mut self) -> Result<&'f [u8], Error> {
        let length = usize::try_from(self.read_int()?).unwrap_or(0);
        self.take_bytes(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(parts: &[&[u8]]) -> Vec<u8> {
        add_length_prefix(&parts.concat())
    }

    #[test]
    fn frames_in_any_pieces_are_taken_one_by_one_and_long_ones_refused() {
        let ints =
            |numbers: &[i32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_be_bytes()).collect() };
        let stream = [
            frame(&[&ints(&[-2, 0, 0, 0])]),
            frame(&[&ints(&[-1, 0, 0, 0, 3, 3, 2]), b"/a"]),
            frame(&[&ints(&[-1, 0, 0, 0, -1, -112])]),
            frame(&[&ints(&[1, 0, 7, 0, 2, 1]), b"x", &ints(&[-1])]),
            frame(&[&ints(&[2, 0, 7, 0, 3]), b"abc"]),
        ]
        .concat();
        for piece in [1, 3, stream.len()] {
            let (mut frames, mut said) = (ZookeeperFrameBuffer::default(), Vec::new());
            for bytes in stream.chunks(piece) {
                frames.buffer_mut().extend_from_slice(bytes);
                while let Some(frame) = frames.take_frame().unwrap() {
                    said.push(match ZookeeperMessage::decode(&frame).unwrap() {
                        ZookeeperMessage::Alive => "alive".to_owned(),
                        ZookeeperMessage::Changed(path) => path,
                        ZookeeperMessage::State(state) => state.to_string(),
                        ZookeeperMessage::Reply(reply) if reply.number == 1 => {
                            format!("{:?}", reply.decode_children().unwrap())
                        }
                        ZookeeperMessage::Reply(reply) => text(&reply.decode_data().unwrap()),
                    });
                }
            }
            assert_eq!(said, ["alive", "/a", "-112", "[\"x\", \"\"]", "abc"]);
        }
        let mut frames = ZookeeperFrameBuffer::default();
        frames.buffer_mut().extend([0x7f, 0, 0, 0]);
        assert!(frames.take_frame().is_err());
    }

    #[test]
    fn frame_that_says_more_than_it_has_is_an_error() {
        let many = [&[0; 3][..], &[9], &[0; 12], &i32::MAX.to_be_bytes()].concat();
        let ZookeeperMessage::Reply(reply) = ZookeeperMessage::decode(&many).unwrap() else {
            panic!("no reply");
        };
        assert!(reply.decode_children().is_err() && reply.decode_data().is_err());
        for end in 0..16 {
            assert!(ZookeeperMessage::decode(&many[..end]).is_err(), "{end}");
        }
        assert_eq!(
            decode_session_timeout_ms(&[0, 0, 0, 0, 0, 0, 1, 0]),
            Ok(Some(256))
        );
        assert_eq!(decode_session_timeout_ms(&[0; 8]), Ok(None));
        assert!(decode_session_timeout_ms(&[0; 7]).is_err());
    }
}
