//! The output buffer of the formatter, with a byte limit and the flags of the current directive.

/// Flags, width and precision of a `printf` directive. The defaults are those of a directive
/// without flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PrintfFlags {
    pub plus: bool,
    pub minus: bool,
    pub sharp: bool,
    pub space: bool,
    pub zero: bool,
    /// Set for `%+v`: structures with the names of their fields.
    pub plus_v: bool,
    /// Set for `%#v`: values in Go syntax.
    pub sharp_v: bool,
    pub width: Option<usize>,
    pub precision: Option<usize>,
}

/// Error: the output exceeds its byte limit. The caller reports it with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputTooLong;

/// Writes formatted values to a bounded buffer. One is created for each call of a print function.
/// After an overflow, further output is discarded and [`PrintfPrinter::finish`] fails.
#[derive(Debug)]
pub(super) struct PrintfPrinter {
    out: Vec<u8>,
    pub(super) bytes_max: usize,
    pub(super) flags: PrintfFlags,
    /// True if the limit was exceeded. Further output is discarded.
    pub(super) is_full: bool,
}

impl PrintfPrinter {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            out: Vec::new(),
            bytes_max,
            flags: PrintfFlags::default(),
            is_full: false,
        }
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, OutputTooLong> {
        if self.is_full {
            Err(OutputTooLong)
        } else {
            Ok(self.out)
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() <= self.bytes_max {
            self.out.extend_from_slice(bytes)
        } else {
            self.is_full = true
        }
    }

    pub(super) fn push_str(&mut self, text: &str) {
        self.push(text.as_bytes());
    }

    pub(super) fn push_char(&mut self, c: char) {
        self.push(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    pub(super) fn repeat(&mut self, byte: u8, count: usize) {
        if self.out.len() + count <= self.bytes_max {
            self.out.resize(self.out.len() + count, byte)
        } else {
            self.is_full = true
        }
    }

    /// Writes `bytes` padded to the width of the directive, which counts characters.
    pub(super) fn pad(&mut self, bytes: &[u8]) {
        let chars = chars_count(bytes);
        let missing = self.flags.width.unwrap_or(0).saturating_sub(chars);
        if self.flags.minus {
            self.push(bytes);
            return self.repeat(b' ', missing);
        }
        let filler = if self.flags.zero { b'0' } else { b' ' };
        self.repeat(filler, missing);
        self.push(bytes);
    }
}

/// Counts characters like Go: each byte of invalid UTF-8 counts as one.
fn chars_count(bytes: &[u8]) -> usize {
    let count =
        |chunk: std::str::Utf8Chunk<'_>| chunk.valid().chars().count() + chunk.invalid().len();
    bytes.utf8_chunks().map(count).sum()
}
