//! Tracks the boundaries of TLS records while they are read from a socket.
//!
//! A connection that ends without `close_notify` is complete if it ends between two records, as in
//! Go, because many servers end connections this way. An end inside a record means lost data.
//! rustls reports both cases as the same error.

/// Size in bytes of a record header: type, version, length.
const HEADER_BYTES: usize = 5;

/// Position of a stream within its current record, updated with each read.
#[derive(Debug, Default)]
pub(super) struct TlsRecords {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Number of content bytes of the current record that have not been read yet.
    content_bytes: usize,
}

impl TlsRecords {
    /// Advances the position by the next bytes of the stream.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.content_bytes > 0 {
                let passed = self.content_bytes.min(bytes.len());
                self.content_bytes -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let passed = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            let end = self.header_bytes + passed;
            self.header[self.header_bytes..end].copy_from_slice(&bytes[..passed]);
            self.header_bytes = end;
            bytes = &bytes[passed..];
            if self.header_bytes == HEADER_BYTES {
                let length = [self.header[3], self.header[4]];
                self.content_bytes = usize::from(u16::from_be_bytes(length));
                self.header_bytes = 0;
            }
        }
    }

    /// Returns whether the stream is at a record boundary.
    pub(super) fn is_between_records(&self) -> bool {
        self.header_bytes == 0 && self.content_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_between_records_only_after_the_last_byte_of_one() {
        let stream = [22, 3, 3, 0, 2, 1, 2, 23, 3, 3, 0, 0, 23, 3, 3, 0, 1, 9];
        let ends = [0, 7, 12, 18];
        for step in 1..=stream.len() {
            let (mut records, mut passed) = (TlsRecords::default(), 0);
            for bytes in stream.chunks(step) {
                assert_eq!(
                    records.is_between_records(),
                    ends.contains(&passed),
                    "{step} {passed}"
                );
                records.advance(bytes);
                passed += bytes.len();
            }
            assert!(records.is_between_records());
        }
    }
}
