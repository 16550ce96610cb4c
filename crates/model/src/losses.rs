//! What an answer lacks because bytes behind it are damaged, in texts for the user.
//!
//! A reader of samples adds what it could not read and goes on; the server puts the texts beside
//! the answer. Invariant: each text is kept once, and no more than [`TEXTS_MAX`] of
//! them, each of at most [`TEXT_BYTES_MAX`] bytes and a mark that it was cut.

use crate::sync::lock;
use std::sync::{Arc, Mutex};

/// Texts that are kept; the others are counted. With the text that says how many those are it is as
/// many as an answer lists.
pub const TEXTS_MAX: usize = 9;

/// Bytes of a text: the longest path that systems take is no part of an answer.
pub const TEXT_BYTES_MAX: usize = 512;

/// See the module. Cheap to clone; clones share the texts.
#[derive(Clone, Debug, Default)]
pub struct Losses(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    texts: Vec<String>,
    /// Hashes of those that are counted only, so that one that comes again counts once; a bounded
    /// number.
    others: Vec<u64>,
    more: u64,
}

/// Texts beyond the list that are told apart; those behind them count as often as they come.
const OTHERS_MAX: usize = 1024;

impl Losses {
    /// Says that something could not be read.
    pub fn add(&self, text: &str) {
        let text = cut(text);
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

    /// Adds what `other` says.
    pub fn add_all(&self, other: &Losses) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let (texts, more) = {
            let other = lock(&other.0);
            (other.texts.clone(), other.more)
        };
        texts.iter().for_each(|text| self.add(text));
        lock(&self.0).more += more;
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).texts.is_empty()
    }

    /// The texts, in the order in which they came, and a last one about those that were left out.
    pub fn texts(&self) -> Vec<String> {
        let kept = lock(&self.0);
        let mut texts = kept.texts.clone();
        if kept.more > 0 {
            texts.push(format!("damage: and {} more", kept.more));
        }
        texts
    }
}

/// The text, or as much of it as is kept.
fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    format!("{}...", &text[..end])
}

/// FNV-1a: texts are few, and no user chooses them.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_keep_each_text_once_and_count_those_beyond_the_list() {
        let losses = Losses::default();
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
        let all = Losses::default();
        all.add("text 3");
        all.add_all(&losses);
        all.add_all(&all.clone());
        assert_eq!(all.texts()[..2], ["text 3", "text 0"]);
        assert_eq!(all.texts().len(), TEXTS_MAX + 1);
    }

    #[test]
    fn losses_cut_a_long_text_between_characters() {
        let losses = Losses::default();
        losses.add(&"ä".repeat(TEXT_BYTES_MAX));
        let text = losses.texts().remove(0);
        assert_eq!(text.len(), TEXT_BYTES_MAX + 3);
        losses.add(&format!("x{}", "ä".repeat(TEXT_BYTES_MAX)));
        assert_eq!(losses.texts()[1].len(), TEXT_BYTES_MAX - 1 + 3);
    }
}
