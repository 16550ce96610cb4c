//! Which points are of one stream: the identity that deltas are added up under.
//!
//! It is made of what was sent and not of labels, as upstream has it: a resource that becomes no
//! label sets streams apart, too. 128 bits of a hash stand for it.

use super::text::{Made, Text};
use xxhash_rust::xxh3::Xxh3;

/// The identity of a stream, or of what it is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stream(u128);

impl Stream {
    /// The identity of the part of it that `texts` name.
    pub(super) fn with(self, texts: &[&[u8]]) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&self.0.to_le_bytes());
        for text in texts {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Self(hash.digest128())
    }

    /// The identity of the part of it that has the identity `other` by itself.
    pub(super) fn beside(self, other: Stream) -> Self {
        self.with(&[&other.0.to_le_bytes()])
    }
}

/// What attributes say, in any order.
pub(super) fn of_attributes(attributes: &[(&[u8], Text<'_>)], made: &Made) -> Stream {
    let mut pairs: Vec<(&[u8], &[u8])> = attributes
        .iter()
        .map(|(key, value)| (*key, made.get(*value)))
        .collect();
    pairs.sort_unstable();
    let texts: Vec<&[u8]> = pairs.into_iter().flat_map(|(k, v)| [k, v]).collect();
    Stream::default().with(&texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_depends_on_what_attributes_say_and_not_on_their_order() {
        let made = Made::default();
        let of = |pairs: &[(&'static str, &'static str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(k, v)| (k.as_bytes(), Text::Message(v.as_bytes())))
                .collect();
            of_attributes(&pairs, &made)
        };
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]));
        assert_ne!(of(&[("a", "1"), ("b", "2")]), of(&[("a", "2"), ("b", "1")]));
        assert_ne!(of(&[("ab", "c")]), of(&[("a", "bc")]));
        let stream = of(&[("a", "1")]);
        assert_ne!(stream.with(&[b"x", b""]), stream.with(&[b"", b"x"]));
        assert_ne!(stream.with(&[b"x"]), of(&[]).with(&[b"x"]));
    }
}
