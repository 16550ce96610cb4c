//! Identities of metric streams, the keys under which deltas are accumulated.
//!
//! The identity is computed from the sent attributes and not from labels, as in upstream, so that
//! resources without any label of their own are separate streams. It is a 128-bit hash.

use super::text::{Made, Text};
use xxhash_rust::xxh3::Xxh3;

/// The identity of a metric stream, or of a resource, scope or metric that contains it. Equal
/// identities mean the same stream in all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stream(u128);

impl Stream {
    /// Returns the identity of the part of this entity that `texts` name.
    pub(super) fn with(self, texts: &[&[u8]]) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&self.0.to_le_bytes());
        for text in texts {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Self(hash.digest128())
    }

    /// Returns the identity of the part of this entity whose own identity is `other`.
    pub(super) fn beside(self, other: Stream) -> Self {
        self.with(&[&other.0.to_le_bytes()])
    }
}

/// Returns the identity of a set of attributes, independent of their order.
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
