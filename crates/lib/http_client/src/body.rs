//! Response bodies, which are decompressed with a size limit.
//!
//! Invariant: a body is rejected at the first byte over its limit. Therefore neither an endless
//! response nor a small one that decompresses to a large one uses more memory.

use crate::memory_share::MemoryShare;
use crate::pool::ResponseBody;
use firn_model::budget::Budget;
use firn_model::error::{Error, ErrorKind};
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use std::io::{self, Write};

/// Prometheus's error text for a body that exceeds `body_size_limit`.
pub const TOO_LARGE: &str = "body size limit exceeded";

/// A response body that has been read and decompressed completely, with its content type.
#[derive(Debug, Default)]
pub struct DecodedBody {
    /// Decompressed bytes.
    pub bytes: Vec<u8>,
    /// Value of the `Content-Type` header; empty if there was none.
    pub content_type: String,
    /// Memory reservation for the bytes, if the limit has a budget.
    pub memory: Option<MemoryShare>,
}

/// Size limit of a body, optionally with a share of a memory budget.
#[derive(Debug)]
pub struct BodyLimit {
    bytes_max: u64,
    share: Option<MemoryShare>,
}

impl BodyLimit {
    /// Creates a limit of fewer than `bytes_max` bytes, as in Prometheus. Zero means no limit.
    pub fn from_bytes_max(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            share: None,
        }
    }

    /// Limits the body further to a share of `budget`, from which its memory is reserved.
    pub fn with_budget(self, budget: &Budget) -> Result<Self, Error> {
        Ok(Self {
            share: Some(MemoryShare::new(budget, "body")?),
            ..self
        })
    }

    /// Checks whether the body may grow to `bytes` bytes, and reserves the memory for it.
    fn check(&mut self, bytes: usize) -> Result<(), Error> {
        if self.bytes_max > 0 && bytes as u64 >= self.bytes_max {
            return Err(Error::new(ErrorKind::Limited, TOO_LARGE));
        }
        match &mut self.share {
            Some(share) => share.grow_to(bytes),
            None => Ok(()),
        }
    }
}

/// Reads and decompresses the body of `response`. Fails if the limit is exceeded.
pub async fn read(
    response: Response<ResponseBody>,
    limit: BodyLimit,
) -> Result<DecodedBody, Error> {
    let header = |name| {
        let value = response.headers().get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let content_type = header(CONTENT_TYPE).unwrap_or_default();
    let is_packed = header(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    let sink = LimitedBodyWriter {
        bytes: Vec::new(),
        limit,
        refusal: None,
    };
    let mut unpacker = if is_packed {
        BodyDecoder::Gzip(Box::new(MultiGzDecoder::new(sink)))
    } else {
        BodyDecoder::Plain(sink)
    };
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|e| Error::unavailable(format!("read body: {}", root_cause(&*e))))?;
        if let Some(data) = frame.data_ref() {
            unpacker.push(data)?;
        }
    }
    let sink = unpacker.finish()?;
    Ok(DecodedBody {
        bytes: sink.bytes,
        content_type,
        memory: sink.limit.share,
    })
}

/// Returns the text of the innermost cause of an error.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Decoder of a body, either gzip or none, that writes to a [`LimitedBodyWriter`].
enum BodyDecoder {
    Plain(LimitedBodyWriter),
    Gzip(Box<MultiGzDecoder<LimitedBodyWriter>>),
}

impl BodyDecoder {
    fn push(&mut self, data: &[u8]) -> Result<(), Error> {
        let (written, sink) = match self {
            BodyDecoder::Plain(sink) => (sink.write_all(data), sink),
            BodyDecoder::Gzip(decoder) => (decoder.write_all(data), decoder.get_mut()),
        };
        written.map_err(|e| sink.explain(&e))
    }

    fn finish(self) -> Result<LimitedBodyWriter, Error> {
        match self {
            BodyDecoder::Plain(sink) => Ok(sink),
            BodyDecoder::Gzip(mut decoder) => match decoder.try_finish() {
                Ok(()) => decoder
                    .finish()
                    .map_err(|e| Error::unavailable(format!("gzip: {e}"))),
                Err(e) => Err(decoder.get_mut().explain(&e)),
            },
        }
    }
}

/// Writer that collects decompressed bytes up to a limit and records why a write failed.
struct LimitedBodyWriter {
    bytes: Vec<u8>,
    limit: BodyLimit,
    refusal: Option<Error>,
}

impl LimitedBodyWriter {
    /// Returns the cause of a failed write: the exceeded limit, or invalid gzip data.
    fn explain(&mut self, error: &io::Error) -> Error {
        let refusal = self.refusal.take();
        refusal.unwrap_or_else(|| Error::unavailable(format!("gzip: {error}")))
    }
}

impl Write for LimitedBodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(refusal) = self.limit.check(self.bytes.len() + bytes.len()) {
            self.refusal = Some(refusal);
            return Err(io::Error::other(TOO_LARGE));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
