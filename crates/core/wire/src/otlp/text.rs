//! Names and values of labels before they are part of a key: slices of the message, or generated
//! texts.

use crate::remote_write::{begin_label, push_label};

/// A name or a value of a label: a slice of the message where possible, or else a generated text.
#[derive(Clone, Copy, Debug)]
pub(super) enum LabelText<'m> {
    /// A slice of the message, which needs no memory.
    Message(&'m [u8]),
    /// A range in [`GeneratedTexts`], for a text that the message does not contain literally.
    Made {
        /// Offset of the first byte in the buffer.
        start: u32,
        /// Offset after the last byte in the buffer.
        end: u32,
    },
}

impl LabelText<'_> {
    /// Returns the length in bytes.
    #[inline]
    pub(super) fn len(self) -> usize {
        match self {
            LabelText::Message(bytes) => bytes.len(),
            LabelText::Made { start, end } => (end - start) as usize,
        }
    }

    /// Returns whether the text is empty.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The generated texts of a request. Their memory is charged to the request, whose limit is far
/// below the 4 GiB that offsets can address.
#[derive(Debug, Default)]
pub(super) struct GeneratedTexts {
    bytes: Vec<u8>,
}

impl GeneratedTexts {
    /// Returns an empty buffer that reuses the memory of `bytes`.
    pub(super) fn new(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes }
    }

    /// Returns the memory, so that the decoder can reuse it for the next request.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the bytes of a text, which is a slice of the message or of this buffer.
    #[inline]
    pub(super) fn get<'a>(&'a self, text: LabelText<'a>) -> &'a [u8] {
        match text {
            LabelText::Message(bytes) => bytes,
            LabelText::Made { start, end } => self
                .bytes
                .get(start as usize..end as usize)
                .unwrap_or_default(),
        }
    }

    /// Appends a text to the buffer and returns its range.
    pub(super) fn push(&mut self, text: &[u8]) -> LabelText<'static> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.text_since(start)
    }

    /// Appends the encoding of a label in a key, and returns its range.
    pub(super) fn push_label(
        &mut self,
        name: LabelText<'_>,
        value: LabelText<'_>,
    ) -> LabelText<'static> {
        // The buffer cannot be read and extended at the same time.
        let mut label = Vec::new();
        push_label(&mut label, self.get(name), self.get(value));
        self.push(&label)
    }

    /// Appends the encoding of a label up to its value, without the length of the label.
    pub(super) fn push_label_start(&mut self, name: LabelText<'_>) -> LabelText<'static> {
        let mut label = Vec::new();
        begin_label(&mut label, self.get(name));
        self.push(&label)
    }

    /// Returns the buffer, to which the caller appends a text that [`GeneratedTexts::text_since`]
    /// then delimits.
    pub(super) fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the text from `start` to the end of the buffer.
    pub(super) fn text_since(&self, start: usize) -> LabelText<'static> {
        LabelText::Made {
            start: start as u32,
            end: self.bytes.len() as u32,
        }
    }

    /// Returns the total size of all texts in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}
