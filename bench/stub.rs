//! A minimal HTTP/1.1 server for the programs under test, with one thread per persistent
//! connection. It is fast enough not to affect the measurements and supports only the features that
//! the benchmarks need.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Stack size of a thread in bytes: enough for reading lines and writing a body.
const STACK_BYTES: usize = 128 << 10;

/// Maximum length of a body in bytes. Longer ones close the connection; no program under test sends
/// them.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A received HTTP request, reduced to the parts that the benchmarks need.
#[derive(Clone, Debug)]
pub struct Request {
    /// Value of the `Host` header, by which targets are distinguished.
    pub host: String,
    /// The complete body of the request, still compressed.
    pub body: Vec<u8>,
}

/// Starts a server on `address` and returns its port. `answer` returns the content type and the
/// body of the response, or `None` for 204. The server runs until the process ends.
pub fn start(
    address: &str,
    answer: impl Fn(Request) -> Option<(&'static str, Vec<u8>)> + Send + Sync + 'static,
) -> io::Result<u16> {
    let listener = TcpListener::bind(address)?;
    let port = listener.local_addr()?.port();
    let answer = Arc::new(answer);
    spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // A connection without a thread is closed, which the client notices.
            let _ = spawn(move || serve(stream, &*answer));
        }
    })?;
    Ok(port)
}

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new().stack_size(STACK_BYTES);
    builder.spawn(work).map(drop)
}

fn serve(
    stream: TcpStream,
    answer: &dyn Fn(Request) -> Option<(&'static str, Vec<u8>)>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(4 << 10, stream.try_clone()?);
    let mut writer = stream;
    while let Some(request) = read(&mut reader)? {
        let (head, body) = match answer(request) {
            Some((kind, body)) => (
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                ),
                body,
            ),
            None => ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), Vec::new()),
        };
        writer.write_all(&[head.into_bytes(), body].concat())?;
    }
    Ok(())
}

/// Reads the next request; returns `None` if the client has closed the connection.
fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let (mut host, mut length) = (String::new(), 0usize);
    let mut lines = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        lines += 1;
        let line = line.trim_end();
        if line.is_empty() && lines > 1 {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            match name.to_ascii_lowercase().as_str() {
                "host" => host = value.trim().to_owned(),
                "content-length" => length = value.trim().parse().unwrap_or(0),
                _ => {}
            }
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { host, body }))
}
