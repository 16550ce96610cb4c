//! Texts for the user about data that is missing in a result because stored bytes are damaged.
//!
//! A reader of samples adds a text for data that it cannot read and continues; the server adds the
//! texts to the response. Invariant: texts are unique, and there are at most [`TEXTS_MAX`] of at
//! most [`TEXT_BYTES_MAX`] bytes each, plus a mark if a text was cut.

use crate::sync::lock;
use std::sync::{Arc, Mutex};

/// Maximum number of stored texts; further ones are counted. Together with the text about their
/// number, this is the maximum number that a response lists.
pub const TEXTS_MAX: usize = 9;

/// Maximum length of a text in bytes. The longest path of an operating system does not fit, because
/// it has no use in a response.
pub const TEXT_BYTES_MAX: usize = 512;

/// A list of texts about missing data; see the module. Cloning is cheap, and clones share the
/// texts.
#[derive(Clone, Debug, Default)]
pub struct DataLossWarnings(Arc<Mutex<DataLossTexts>>);

#[derive(Debug, Default)]
struct DataLossTexts {
    texts: Vec<String>,
    /// Hashes of the texts that are only counted, so that a repeated text counts once. Their number
    /// is limited.
    others: Vec<u64>,
    more: u64,
    /// Lists of other owners whose texts belong to this list.
    parts: Vec<DataLossWarnings>,
}

/// Maximum number of distinct texts beyond the list. Further texts count as often as they are
/// added.
const OTHERS_MAX: usize = 1024;

impl DataLossWarnings {
    /// Returns a list with the texts of all `parts`, including those that are added to the parts
    /// later.
    pub fn join(parts: Vec<DataLossWarnings>) -> Self {
        let texts = DataLossTexts {
            parts,
            ..DataLossTexts::default()
        };
        Self(Arc::new(Mutex::new(texts)))
    }

    /// Adds a text about data that could not be read.
    pub fn add(&self, text: &str) {
        let text = truncate_text(text);
        let mut kept = lock(&self.0);
        if kept.texts.contains(&text) {
            return;
        }
        if kept.texts.len() < TEXTS_MAX {
            kept.texts.push(text);
            return;
        }
        let hash = hash(text.as_bytes());
        if kept.others.contains(&hash) {
            return;
        }
        if kept.others.len() < OTHERS_MAX {
            kept.others.push(hash);
        }
        kept.more += 1;
    }

    /// Adds all texts of `other`, and the number of its omitted texts.
    pub fn add_all(&self, other: &DataLossWarnings) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let (texts, more, parts) = {
            let other = lock(&other.0);
            (other.texts.clone(), other.more, other.parts.clone())
        };
        texts.iter().for_each(|text| self.add(text));
        lock(&self.0).more += more;
        parts.iter().for_each(|part| self.add_all(part));
    }

    /// Returns whether no data is missing so far.
    pub fn is_empty(&self) -> bool {
        let kept = lock(&self.0);
        kept.texts.is_empty() && kept.parts.iter().all(Self::is_empty)
    }

    /// Returns the texts in the order in which they were added, and a last one about the number of
    /// omitted texts.
    pub fn texts(&self) -> Vec<String> {
        let kept = lock(&self.0);
        if !kept.parts.is_empty() {
            drop(kept);
            let all = Self::default();
            all.add_all(self);
            return all.texts();
        }
        let mut texts = kept.texts.clone();
        if kept.more > 0 {
            texts.push(format!("damage: and {} more", kept.more));
        }
        texts
    }
}

/// Returns the text, shortened to [`TEXT_BYTES_MAX`] bytes and marked if necessary.
fn truncate_text(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    format!("{}...", &text[..end])
}

/// Returns the FNV-1a hash. It is sufficient because there are few texts, and users cannot choose
/// them.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_keep_each_text_once_and_count_those_beyond_the_list() {
        let losses = DataLossWarnings::default();
        assert!(losses.is_empty());
        for i in 0..TEXTS_MAX + 5 {
            losses.clone().add(&format!("text {i}"));
            losses.add(&format!("text {i}"));
        }
        let texts = losses.texts();
        assert_eq!(texts.len(), TEXTS_MAX + 1);
        assert_eq!(
            [texts[0].as_str(), texts[TEXTS_MAX].as_str()],
            ["text 0", "damage: and 5 more"]
        );
        let all = DataLossWarnings::default();
        all.add("text 3");
        all.add_all(&losses);
        all.add_all(&all.clone());
        assert_eq!(all.texts()[..2], ["text 3", "text 0"]);
        assert_eq!(all.texts().len(), TEXTS_MAX + 1);
    }

    #[test]
    fn losses_cut_a_long_text_between_characters() {
        let losses = DataLossWarnings::default();
        losses.add(&"ä".repeat(TEXT_BYTES_MAX));
        let text = losses.texts().remove(0);
        assert_eq!(text.len(), TEXT_BYTES_MAX + 3);
        losses.add(&format!("x{}", "ä".repeat(TEXT_BYTES_MAX)));
        assert_eq!(losses.texts()[1].len(), TEXT_BYTES_MAX - 1 + 3);
    }

    #[test]
    fn joined_losses_have_the_texts_of_their_parts_and_later_ones() {
        let parts = [DataLossWarnings::default(), DataLossWarnings::default()];
        let joined = DataLossWarnings::join(parts.to_vec());
        assert!(joined.is_empty());
        parts[1].add("b");
        parts[0].add("a");
        parts[1].add("a");
        joined.add("own");
        assert!(!joined.is_empty());
        assert_eq!(joined.texts(), ["own", "a", "b"]);
        let all = DataLossWarnings::default();
        all.add_all(&joined);
        assert_eq!(all.texts(), joined.texts());
        (0..TEXTS_MAX).for_each(|i| parts[0].add(&format!("text {i}")));
        assert_eq!(joined.texts().len(), TEXTS_MAX + 1);
    }
}
