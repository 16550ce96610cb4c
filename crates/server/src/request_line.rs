//! Request lines as people write them: `curl -g 'http://host/api/v1/query?query=up{job="x"} > 1'`
//! (without the blanks) sends quotes and angle brackets as they are. Go's server takes them and
//! Prometheus's documentation shows them; the strict parser of URIs here does not. So they are
//! percent-encoded on their way in, which means the same.

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Follows the bytes of a connection as far as the end of each request's first line.
#[derive(Debug, Default)]
pub(crate) struct RequestLine {
    has_ended: bool,
}

impl RequestLine {
    /// The next byte begins a request.
    pub(crate) fn restart(&mut self) {
        self.has_ended = false;
    }

    /// Looks at the next bytes; returns them rewritten if they must be.
    pub(crate) fn rewrite(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.has_ended {
            return None;
        }
        let end = bytes.iter().position(|b| *b == b'\n');
        self.has_ended = end.is_some();
        let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        if !line.iter().any(is_special) {
            return None;
        }
        let mut rewritten = Vec::with_capacity(bytes.len() + 64);
        for byte in line {
            if is_special(byte) {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]];
                rewritten.extend_from_slice(&[b'%', digits[0], digits[1]]);
            } else {
                rewritten.push(*byte);
            }
        }
        rewritten.extend_from_slice(rest);
        Some(rewritten)
    }
}

fn is_special(byte: &u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrite_touches_the_first_line_of_a_request_only() {
        let mut line = RequestLine::default();
        let text = |bytes: Option<Vec<u8>>| bytes.map(|b| String::from_utf8(b).unwrap());
        assert_eq!(line.rewrite(b"GET /a?q=up"), None);
        assert_eq!(
            text(line.rewrite(b"{x=\"y\"}>1 HTTP/1.1\r\nA: \"<\"\r\n")),
            Some("{x=%22y%22}%3E1 HTTP/1.1\r\nA: \"<\"\r\n".into())
        );
        assert_eq!(line.rewrite(b"B: \"\r\n\r\n"), None);
        line.restart();
        assert_eq!(text(line.rewrite(b"GET /<")), Some("GET /%3C".into()));
    }
}
