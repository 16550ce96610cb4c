//! ZooKeeper's protocol as a client speaks it that reads nodes and is told of their changes.
//!
//! ```text
//! frame = bytes of it | number | zxid | error | body     of a reply
//!         bytes of it | -1     | zxid | error | kind state path     of an event
//!         bytes of it | -2     | ...     the answer to a ping
//! ```
//!
//! Integers are big-endian; texts and lists have their length before them. Invariant: a frame is
//! taken only up to [`FRAME_BYTES_MAX`], and no length in it is trusted; pieces in which bytes come
//! do not matter. When to ask and how long to wait is the session's business.
//!
//! Source: `zookeeper.jute` of ZooKeeper.

use firn_model::error::{Error, ErrorKind};

/// Bytes of a frame at most: what the servers allow for a node, several times over, so that lists
/// of many children fit.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// Names of children that a reply may have.
pub const CHILDREN_MAX: usize = 100_000;

/// Kinds of requests.
const GET_DATA: i32 = 4;
const GET_CHILDREN: i32 = 8;
const PING: i32 = 11;

/// Numbers that stand for what is no reply to a request.
const OF_EVENT: i32 = -1;
const OF_PING: i32 = -2;

/// An event that is about the session and no node.
const ABOUT_SESSION: i32 = -1;

/// The error that says that a node does not exist.
pub const NO_NODE: i32 = -101;

/// What is asked about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What it holds.
    Data,
    /// The names of the nodes below it.
    Children,
}

/// The bytes that begin a session which is to be kept for so long without a sign of life.
pub fn greeting(patience_ms: i32) -> Vec<u8> {
    let mut out = Vec::new();
    put_int(&mut out, 0);
    out.extend(0i64.to_be_bytes());
    put_int(&mut out, patience_ms);
    out.extend(0i64.to_be_bytes());
    put_bytes(&mut out, &[0; 16]);
    framed(&out)
}

/// The bytes that ask about the node at `path`, and to be told of its next change.
pub fn request(number: i32, wanted: Wanted, path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_int(&mut out, number);
    put_int(
        &mut out,
        match wanted {
            Wanted::Data => GET_DATA,
            Wanted::Children => GET_CHILDREN,
        },
    );
    put_bytes(&mut out, path.as_bytes());
    out.push(1);
    framed(&out)
}

/// The bytes that are a sign of life.
pub fn ping() -> Vec<u8> {
    let mut out = Vec::new();
    put_int(&mut out, OF_PING);
    put_int(&mut out, PING);
    framed(&out)
}

/// Bytes that came, until they are a frame.
#[derive(Debug, Default)]
pub struct Frames {
    incoming: Vec<u8>,
}

impl Frames {
    /// Where what comes is put.
    pub fn space(&mut self) -> &mut Vec<u8> {
        &mut self.incoming
    }

    /// The next frame, if all of it came. Fails with [`ErrorKind::Invalid`] if it is too long.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some((length, rest)) = self.incoming.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(wrong(format!(
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

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said<'f> {
    /// The answer to a ping.
    Alive,
    /// The node at this path changed.
    Changed(String),
    /// The session is in this state, which ends it.
    State(i32),
    /// A reply to a request.
    Reply(Reply<'f>),
}

/// A reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'f> {
    /// Of the request.
    pub number: i32,
    /// Zero where there is none.
    pub error: i32,
    body: &'f [u8],
}

impl<'f> Said<'f> {
    /// Reads a frame that came behind the greeting. Fails with [`ErrorKind::Invalid`].
    pub fn read(frame: &'f [u8]) -> Result<Self, Error> {
        let mut fields = Fields(frame);
        let number = fields.int()?;
        let (_zxid, error) = (fields.take(8)?, fields.int()?);
        Ok(match number {
            OF_PING => Said::Alive,
            OF_EVENT => match (fields.int()?, fields.int()?) {
                (ABOUT_SESSION, state) => Said::State(state),
                _ => Said::Changed(text(fields.bytes()?)),
            },
            number => Said::Reply(Reply {
                number,
                error,
                body: fields.0,
            }),
        })
    }
}

impl Reply<'_> {
    /// What a node holds. Fails with [`ErrorKind::Invalid`], as the next one does.
    pub fn data(&self) -> Result<Vec<u8>, Error> {
        Ok(Fields(self.body).bytes()?.to_vec())
    }

    /// The names of the nodes below one.
    pub fn children(&self) -> Result<Vec<String>, Error> {
        let mut fields = Fields(self.body);
        let count = usize::try_from(fields.int()?).unwrap_or(0);
        if count > CHILDREN_MAX {
            let what = format!("too many children: {count}, limit {CHILDREN_MAX}");
            return Err(wrong(what));
        }
        let names = (0..count).map(|_| Ok(text(fields.bytes()?)));
        names.collect()
    }
}

/// Milliseconds without a sign of life that the first frame grants; none if there is no session.
/// Fails with [`ErrorKind::Invalid`].
pub fn granted_ms(frame: &[u8]) -> Result<Option<u64>, Error> {
    let mut fields = Fields(frame);
    let (_version, granted) = (fields.int()?, fields.int()?);
    Ok(u64::try_from(granted).ok().filter(|ms| *ms > 0))
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + body.len());
    put_bytes(&mut out, body);
    out
}

fn put_int(out: &mut Vec<u8>, number: i32) {
    out.extend(number.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // What is sent is a path or less.
    put_int(out, i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    out.extend_from_slice(bytes);
}

/// The fields of a frame that are not read yet.
struct Fields<'f>(&'f [u8]);

impl<'f> Fields<'f> {
    fn take(&mut self, bytes: usize) -> Result<&'f [u8], Error> {
        let (field, rest) = self
            .0
            .split_at_checked(bytes)
            .ok_or_else(|| wrong("frame ends within a field".to_owned()))?;
        self.0 = rest;
        Ok(field)
    }

    fn int(&mut self) -> Result<i32, Error> {
        let field = self.take(4)?.first_chunk();
        Ok(field.map_or(0, |bytes| i32::from_be_bytes(*bytes)))
    }

    /// A field with its length before it; -1 is none.
    fn bytes(&mut self) -> Result<&'f [u8], Error> {
        let length = usize::try_from(self.int()?).unwrap_or(0);
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(parts: &[&[u8]]) -> Vec<u8> {
        framed(&parts.concat())
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
            let (mut frames, mut said) = (Frames::default(), Vec::new());
            for bytes in stream.chunks(piece) {
                frames.space().extend_from_slice(bytes);
                while let Some(frame) = frames.take().unwrap() {
                    said.push(match Said::read(&frame).unwrap() {
                        Said::Alive => "alive".to_owned(),
                        Said::Changed(path) => path,
                        Said::State(state) => state.to_string(),
                        Said::Reply(reply) if reply.number == 1 => {
                            format!("{:?}", reply.children().unwrap())
                        }
                        Said::Reply(reply) => text(&reply.data().unwrap()),
                    });
                }
            }
            assert_eq!(said, ["alive", "/a", "-112", "[\"x\", \"\"]", "abc"]);
        }
        let mut frames = Frames::default();
        frames.space().extend([0x7f, 0, 0, 0]);
        assert!(frames.take().is_err());
    }

    #[test]
    fn frame_that_says_more_than_it_has_is_an_error() {
        let many = [&[0; 3][..], &[9], &[0; 12], &i32::MAX.to_be_bytes()].concat();
        let Said::Reply(reply) = Said::read(&many).unwrap() else {
            panic!("no reply");
        };
        assert!(reply.children().is_err() && reply.data().is_err());
        for end in 0..16 {
            assert!(Said::read(&many[..end]).is_err(), "{end}");
        }
        assert_eq!(granted_ms(&[0, 0, 0, 0, 0, 0, 1, 0]), Ok(Some(256)));
        assert_eq!(granted_ms(&[0; 8]), Ok(None));
        assert!(granted_ms(&[0; 7]).is_err());
    }
}
