//! Names and values of labels on their way to a key: bytes of the message, or made.

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
    /// Whether it has no bytes.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        match self {
            Text::Message(bytes) => bytes.is_empty(),
            Text::Made { start, end } => start == end,
        }
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
