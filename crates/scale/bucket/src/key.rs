//! Keys of objects and prefixes of keys.
//!
//! Invariant: a key is the same text in every store. It consists of segments of characters that no
//! store and no file system encodes, so that the order of keys is the order of their bytes.

use crate::error::{BucketError, BucketFailure};
use std::fmt;
use std::sync::Arc;

/// Maximum length of a key in bytes. S3 allows 1,024 including the prefix of the bucket URL.
pub const KEY_BYTES_MAX: usize = 768;

/// Maximum length of a segment in bytes, since segments are names of files in `file://` buckets.
const SEGMENT_BYTES_MAX: usize = 255;

/// First character of names that are reserved for the files of a store itself.
const RESERVED: char = '.';

/// The key of an object, relative to the URL of the bucket: `log/3/00000000000000000042`.
///
/// Segments are separated by `/`, are not empty, do not start with a dot, and consist of ASCII
/// letters, digits and `!-_.*'()`. No key is a folder of another key. Clones are cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Creates a key from its text. Fails with [`BucketFailure::Invalid`] if the text is not a key.
    pub fn new(text: &str) -> Result<Self, BucketError> {
        match fault(text) {
            None => Ok(Self(text.into())),
            Some(fault) => Err(invalid("key", text, &fault)),
        }
    }

    /// Returns the text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The first characters of keys, for lists: empty, or a key with or without a final `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPrefix(String);

impl KeyPrefix {
    /// Creates a prefix from its text. Fails with [`BucketFailure::Invalid`] if no key can have it.
    pub fn new(text: &str) -> Result<Self, BucketError> {
        let bare = text.strip_suffix('/').unwrap_or(text);
        match fault(bare) {
            Some(fault) if !text.is_empty() => Err(invalid("prefix", text, &fault)),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// Returns the text of the prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn invalid(what: &str, text: &str, fault: &str) -> BucketError {
    let shown: String = text.chars().take(100).collect();
    BucketError::new(BucketFailure::Invalid, format!("{what} {shown:?}: {fault}"))
}

/// Returns the reason why `text` is not a key, if it is not.
fn fault(text: &str) -> Option<String> {
    if text.len() > KEY_BYTES_MAX {
        let bytes = text.len();
        return Some(format!("{bytes} bytes, limit {KEY_BYTES_MAX}"));
    }
    text.split('/').find_map(fault_of_segment)
}

fn fault_of_segment(segment: &str) -> Option<String> {
    if segment.is_empty() {
        return Some("a segment is empty".into());
    }
    if segment.starts_with(RESERVED) {
        return Some(format!("segment {segment:?} starts with a dot"));
    }
    if segment.len() > SEGMENT_BYTES_MAX {
        let bytes = segment.len();
        return Some(format!(
            "a segment has {bytes} bytes, limit {SEGMENT_BYTES_MAX}"
        ));
    }
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "!-_.*'()".contains(c);
    let unsafe_char = segment.chars().find(|c| !is_safe(*c));
    unsafe_char.map(|c| format!("character {c:?} is not allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_with_a_fault_is_rejected_with_the_fault() {
        let check = |text: &str, expected: Option<&str>| {
            let found = ObjectKey::new(text).err().map(|e| e.message);
            assert_eq!(found.as_deref(), expected, "{text:?}");
        };
        check("log/3/00000000000000000042", None);
        check("blk/team-a*'(x)!_.b/0/01ABC.9f/data-000", None);
        check("", Some("key \"\": a segment is empty"));
        check("/a", Some("key \"/a\": a segment is empty"));
        check("a//b", Some("key \"a//b\": a segment is empty"));
        check("a/", Some("key \"a/\": a segment is empty"));
        check(
            "a/../b",
            Some("key \"a/../b\": segment \"..\" starts with a dot"),
        );
        check("a b", Some("key \"a b\": character ' ' is not allowed"));
        check("a%2F", Some("key \"a%2F\": character '%' is not allowed"));
        let long = format!("{}/x", "y".repeat(256));
        let message = ObjectKey::new(&long).unwrap_err().message;
        assert!(
            message.ends_with("a segment has 256 bytes, limit 255"),
            "{message}"
        );
        let long = "a/".repeat(400);
        let message = ObjectKey::new(&long).unwrap_err().message;
        assert!(message.ends_with("800 bytes, limit 768"), "{message}");
    }

    #[test]
    fn prefix_may_be_empty_or_end_at_a_segment() {
        for text in ["", "log", "log/", "log/3/0000"] {
            assert_eq!(KeyPrefix::new(text).unwrap().as_str(), text);
        }
        for text in ["/", "//", "log//", "../"] {
            assert!(KeyPrefix::new(text).is_err(), "{text:?}");
        }
    }
}
