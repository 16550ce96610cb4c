//! HTTP/1.1 messages as bytes, which a proxy passes on unchanged.

use std::io::{self, BufRead, Read};

/// A request or a response.
pub struct HttpMessage {
    /// The first line and the headers, with the empty line behind them.
    pub head: Vec<u8>,
    /// The body as it was sent, with the sizes of chunks if it has any.
    pub body: Vec<u8>,
}

impl HttpMessage {
    /// Reads a request. Returns `None` at the end of the connection.
    pub fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(head) = read_head(reader)? else {
            return Ok(None);
        };
        let mut message = Self { head, body: vec![] };
        message.read_body(reader, false)?;
        Ok(Some(message))
    }

    /// Reads the response to a request with the method `method`.
    pub fn read_response(reader: &mut impl BufRead, method: &str) -> io::Result<Self> {
        let head = read_head(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut message = Self { head, body: vec![] };
        let has_body = method != "HEAD" && !matches!(message.status(), 204 | 304);
        if has_body {
            message.read_body(reader, true)?;
        }
        Ok(message)
    }

    fn read_body(&mut self, reader: &mut impl BufRead, is_response: bool) -> io::Result<()> {
        if let Some(length) = self.header("content-length") {
            let length = length.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            self.body = vec![0; length];
            reader.read_exact(&mut self.body)
        } else if self.header("transfer-encoding").is_some() {
            read_chunks(reader, &mut self.body)
        } else if is_response {
            reader.read_to_end(&mut self.body).map(drop)
        } else {
            Ok(())
        }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.head).unwrap_or_default()
    }

    fn word(&self, index: usize) -> &str {
        let line = self.text().lines().next().unwrap_or_default();
        line.split(' ').nth(index).unwrap_or_default()
    }

    /// Returns the method of a request.
    pub fn method(&self) -> &str {
        self.word(0)
    }

    /// Returns the path and the query of a request.
    pub fn target(&self) -> &str {
        self.word(1)
    }

    /// Returns the status of a response.
    pub fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    /// Returns the value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.text().lines().skip(1);
        let mut headers = lines.filter_map(|line| line.split_once(':'));
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// Removes the headers whose name in lower case is not kept, and adds others.
    pub fn replace_headers(&mut self, is_kept: impl Fn(&str) -> bool, added: &[(&str, &str)]) {
        let mut lines = self.text().lines();
        let mut head = format!("{}\r\n", lines.next().unwrap_or_default());
        for line in lines {
            let name = line.split(':').next().unwrap_or_default();
            if !name.is_empty() && is_kept(&name.to_ascii_lowercase()) {
                head.push_str(&format!("{line}\r\n"));
            }
        }
        for (name, value) in added {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.head = head.into_bytes();
    }

    /// Returns all bytes.
    pub fn bytes(&self) -> Vec<u8> {
        [&*self.head, &*self.body].concat()
    }
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

/// Reads the chunks of a body, with their sizes and the end of the last one.
fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let start = body.len();
        if reader.read_until(b'\n', body)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&body[start..]).into_owned();
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| io::ErrorKind::InvalidData)?;
        // Each chunk, and the list of trailers, ends with an empty line.
        reader.by_ref().take(size + 2).read_to_end(body)?;
        if size == 0 {
            return Ok(());
        }
    }
}
