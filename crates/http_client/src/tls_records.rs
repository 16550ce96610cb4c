//! Counts TLS records as they are read from a socket.
//!
//! A connection that ends without `close_notify` is complete if it ends between two records, as in
//! Go: many servers end it so. An end inside a record is a loss. rustls reports both alike.

/// Bytes of a record before its content: type, version, length.
const HEADER_BYTES: usize = 5;

/// Where in a record a stream is.
#[derive(Debug, Default)]
pub(super) struct TlsRecords {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Bytes of content that are yet to come.
    content_bytes: usize,
}

impl TlsRecords {
    /// Takes the next bytes of the stream into account.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
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

    /// Whether all records are complete.
    pub(super) fn is_between(&self) -> bool {
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
                    records.is_between(),
                    ends.contains(&passed),
                    "{step} {passed}"
                );
                records.pass(bytes);
                passed += bytes.len();
            }
            assert!(records.is_between());
        }
    }
}
