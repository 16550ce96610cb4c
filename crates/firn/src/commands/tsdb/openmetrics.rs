//! `firn tsdb create-blocks-from openmetrics FILE --data DATA`: samples of a text become blocks.
//!
//! The text is read a piece at a time, each ending with a line; samples wait in memory, in any
//! order, until they are many, and are blocks then. All blocks are committed at the end: a text
//! with an error leaves nothing.

use super::progress::Progress;
use firn_model::env::{Env, File, OpenMode};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{LabelsRef, is_canonical, push_pair};
use firn_model::sample::START_UNKNOWN;
use firn_storage::import::{Buffer, Import, Imported, Sample, Target};
use firn_wire::exposition::{Event, Format, LabelPairs, Parser, Switches, Value};
use std::path::Path;
use std::sync::Arc;

/// Bytes of text that are parsed at a time; no line may be longer.
const PIECE_BYTES: usize = 16 << 20;

/// Bytes of samples that wait in memory.
const BUFFER_BYTES: usize = 256 << 20;

/// What ends a text, and each piece of it while it is parsed.
const END: &[u8] = b"# EOF\n";

/// Imports the file `text` into the data folder `data`.
pub fn import(env: &Env, text: &Path, data: &Path) -> Result<Imported, Error> {
    let unreadable = |e: std::io::Error| Error::unavailable(format!("{}: {e}", text.display()));
    let file = env.disk.open(text, OpenMode::Read).map_err(unreadable)?;
    let bytes = file.len().map_err(unreadable)?;
    let target = Target::folder(env, data)?;
    let progress = Progress::new(bytes, "bytes");
    progress.turn_to(text.display().to_string());
    let mut pieces = Pieces {
        file,
        bytes,
        offset: 0,
        rest: Vec::new(),
        lines: 0,
    };
    let mut samples = Samples {
        import: target.begin(),
        buffer: Buffer::default(),
        pairs: LabelPairs::default(),
        labels: Vec::new(),
    };
    while let Some(piece) = pieces.next().map_err(unreadable)? {
        let lines = pieces.lines;
        samples.add(&piece).map_err(|e| {
            let place = format!("{}, behind line {lines}", text.display());
            Error::new(e.kind, format!("{place}: {}", e.message))
        })?;
        progress.add(piece.len() as u64);
        pieces.lines += piece.iter().filter(|byte| **byte == b'\n').count();
    }
    samples.finish()
}

/// The text in pieces that end with a line.
struct Pieces {
    file: Arc<dyn File>,
    bytes: u64,
    offset: u64,
    /// The beginning of the next piece.
    rest: Vec<u8>,
    /// Lines of the pieces before.
    lines: usize,
}

impl Pieces {
    /// The next piece. Each but the last is given an end.
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut piece = std::mem::take(&mut self.rest);
        let had = piece.len();
        let left = usize::try_from(self.bytes - self.offset).unwrap_or(usize::MAX);
        piece.resize(had + left.min(PIECE_BYTES), 0);
        let mut at = had;
        while at < piece.len() {
            match self.file.read_at(self.offset, &mut piece[at..])? {
                0 => {
                    self.bytes = self.offset;
                    piece.truncate(at);
                }
                count => {
                    at += count;
                    self.offset += count as u64;
                }
            }
        }
        if piece.is_empty() {
            return Ok(None);
        }
        if self.offset == self.bytes {
            return Ok(Some(piece));
        }
        let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') else {
            let what = format!("a line of more than {PIECE_BYTES} bytes");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        };
        self.rest = piece.split_off(end + 1);
        piece.extend_from_slice(END);
        Ok(Some(piece))
    }
}

/// Samples on their way into blocks.
struct Samples {
    import: Import,
    buffer: Buffer,
    pairs: LabelPairs,
    /// The labels of the newest sample in canonical form.
    labels: Vec<u8>,
}

impl Samples {
    fn add(&mut self, piece: &[u8]) -> Result<(), Error> {
        let mut parser = Parser::new(Format::OpenMetrics, piece, Switches::default());
        while parser.advance()? {
            let Event::Sample(sample) = parser.event() else {
                continue;
            };
            let refused = |why: String| Error::new(ErrorKind::Invalid, why);
            let key = || String::from_utf8_lossy(sample.key).into_owned();
            let Some(time) = sample.time else {
                let why = format!("expected timestamp for series {}, got none", key());
                return Err(refused(why));
            };
            parser.labels(&mut self.pairs)?;
            self.labels.clear();
            for (name, value) in self.pairs.iter().filter(|(_, value)| !value.is_empty()) {
                push_pair(&mut self.labels, name, value);
            }
            if !is_canonical(&self.labels) {
                return Err(refused(format!(
                    "labels of series {} are twice there",
                    key()
                )));
            }
            let value = match sample.value {
                Value::Float(value) => Sample::Float(value),
                Value::Histogram(histogram) => Sample::Histogram(histogram.clone().into()),
            };
            let labels = LabelsRef::from_canonical(&self.labels);
            let start = sample.start.unwrap_or(START_UNKNOWN);
            self.buffer.push(labels, time, start, value);
            if self.buffer.memory_bytes() >= BUFFER_BYTES {
                self.buffer.flush(&mut self.import)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Imported, Error> {
        self.buffer.flush(&mut self.import)?;
        self.import.verify()?;
        self.import.commit()
    }
}
