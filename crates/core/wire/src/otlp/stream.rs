//! Identities of metric streams, the keys under which deltas are accumulated.
//!
//! The identity is computed from the sent attributes and not from labels, as in upstream, so that
//! resources without any label of their own are separate streams. It is a 128-bit hash.

use super::text::{GeneratedTexts, LabelText};
use xxhash_rust::xxh3::Xxh3;

/// The identity of a metric stream, or of a resource, scope or metric that contains it. Equal
/// identities mean the same stream in all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OtlpStreamId(u128);

impl OtlpStreamId {
    /// Returns the identity of the part of this entity that `texts` name.
    pub(super) fn with_texts(self, texts: &[&[u8]]) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&self.0.to_le_bytes());
        for text in texts {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Self(hash.digest128())
    }

    /// Returns the identity of the part of this entity whose own identity is `other`.
    pub(super) fn with_child(self, other: OtlpStreamId) -> Self {
        self.with_texts(&[&other.0.to_le_bytes()])
    }
}

/// Returns the identity of a set of attributes, independent of their order.
pub(super) fn from_attributes(
    attributes: &[(&[u8], LabelText<'_>)],
    made: &GeneratedTexts,
) -> OtlpStreamId {
    let mut pairs: Vec<(&[u8], &[u8])> = attributes
        .iter()
        .map(|(key, value)| (*key, made.get(*value)))
        .collect();
    pairs.sort_unstable();
    let texts: Vec<&[u8]> = pairs.into_iter().flat_map(|(k, v)| [k, v]).collect();
    OtlpStreamId::default().with_texts(&texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_depends_on_what_attributes_say_and_not_on_their_order() {
        let made = GeneratedTexts::default();
        let of = |pairs: &[(&'static str, &'static str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(k, v)| (k.as_bytes(), LabelText::Message(v.as_bytes())))
                .collect();
            from_attributes(&pairs, &made)
        };
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]));
        assert_ne!(of(&[("a", "1"), ("b", "2")]), of(&[("a", "2"), ("b", "1")]));
        assert_ne!(of(&[("ab", "c")]), of(&[("a", "bc")]));
        let stream = of(&[("a", "1")]);
        assert_ne!(
            stream.with_texts(&[b"x", b""]),
            stream.with_texts(&[b"", b"x"])
        );
        assert_ne!(stream.with_texts(&[b"x"]), of(&[]).with_texts(&[b"x"]));
    }
}
