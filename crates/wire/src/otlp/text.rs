//! Names and values of labels on their way to a key: bytes of the message, or made.

use crate::remote_write::{begin_label, push_label};

/// A name or a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Text<'m> {
    /// It stands in the message.
    Message(&'m [u8]),
    /// It stands in [`Made`].
    Made {
        /// Where it begins.
        start: u32,
        /// Where it ends.
        end: u32,
    },
}

impl Text<'_> {
    /// How many bytes it has.
    #[inline]
    pub(super) fn len(self) -> usize {
        match self {
            Text::Message(bytes) => bytes.len(),
            Text::Made { start, end } => (end - start) as usize,
        }
    }

    /// Whether it has no bytes.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The texts that were made for a request. What is made is charged to the request, whose limit is
/// far below four gigabytes.
#[derive(Debug, Default)]
pub(super) struct Made {
    bytes: Vec<u8>,
}

impl Made {
    /// No texts, in the memory of `bytes`.
    pub(super) fn new(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes }
    }

    /// The memory, for the next request.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes of a text.
    #[inline]
    pub(super) fn get<'a>(&'a self, text: Text<'a>) -> &'a [u8] {
        match text {
            Text::Message(bytes) => bytes,
            Text::Made { start, end } => self
                .bytes
                .get(start as usize..end as usize)
                .unwrap_or_default(),
        }
    }

    /// Adds a text.
    pub(super) fn push(&mut self, text: &[u8]) -> Text<'static> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.since(start)
    }

    /// Adds what a label is in a key.
    pub(super) fn label(&mut self, name: Text<'_>, value: Text<'_>) -> Text<'static> {
        // A text that is made cannot be read while another one is written.
        let mut label = Vec::new();
        push_label(&mut label, self.get(name), self.get(value));
        self.push(&label)
    }

    /// Adds what a label is in a key before its value, without the label's length.
    pub(super) fn beginning(&mut self, name: Text<'_>) -> Text<'static> {
        let mut label = Vec::new();
        begin_label(&mut label, self.get(name));
        self.push(&label)
    }

    /// Where the next text begins; [`Made::since`] ends it.
    pub(super) fn writer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The text from `start` on.
    pub(super) fn since(&self, start: usize) -> Text<'static> {
        Text::Made {
            start: start as u32,
            end: self.bytes.len() as u32,
        }
    }

    /// Bytes of all texts.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}
