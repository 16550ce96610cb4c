//! The command `firn tsdb create-blocks-from openmetrics FILE --data DATA`: converts the samples of
//! a text into blocks.
//!
//! The text is read in pieces that end with a line. Samples are buffered in memory, in any order,
//! and written to blocks when the buffer is full. All blocks are committed at the end: a text with
//! an error leaves no data.

use super::heads::Heads;
use super::progress::Progress;
use firn_model::env::{Env, File, OpenMode};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, is_canonical, push_pair};
use firn_model::sample::START_UNKNOWN;
use firn_storage::import::{Buffer, Import, Imported, Sample, Target};
use firn_wire::exposition::{Event, Format, LabelPairs, Parser, PieceLimits, Pieces, Value};
use std::path::Path;

/// Sizes of the pieces that are parsed at a time.
const LIMITS: PieceLimits = PieceLimits {
    piece_bytes: 1 << 20,
    line_bytes_max: 16 << 20,
};

/// Maximum bytes of samples that are buffered in memory.
const BUFFER_BYTES: usize = 256 << 20;

/// Imports the file `text` into the data folder `data`, with the labels `added` on every series.
pub fn import(
    env: &Env,
    text: &Path,
    data: &Path,
    added: &[(String, String)],
) -> Result<Imported, Error> {
    let unreadable = |e: std::io::Error| Error::unavailable(format!("{}: {e}", text.display()));
    let file = env.disk.open(text, OpenMode::Read).map_err(unreadable)?;
    let bytes = file.len().map_err(unreadable)?;
    let target = Target::folder(env, data)?;
    let progress = Progress::new(bytes, "bytes");
    progress.turn_to(text.display().to_string());
    let mut pieces = Pieces::new(Format::OpenMetrics, LIMITS);
    let mut samples = Samples {
        import: target.begin(),
        buffer: Buffer::default(),
        heads: Heads::default(),
        pairs: LabelPairs::default(),
        labels: Labels::empty(),
        added: added.to_vec(),
    };
    let mut offset = 0;
    while !pieces.is_done() {
        let read = fill(&*file, &mut pieces, offset).map_err(unreadable)?;
        offset += read;
        progress.add(read);
        let mut take = |parser: &Parser<'_>, _| samples.add(parser);
        while pieces.read(&mut take).map_err(|e| {
            let message = format!("{}, {}", text.display(), e.message);
            Error::new(e.kind, message)
        })? {}
    }
    samples.finish()
}

/// Reads the text from `offset` until a piece is complete, and returns the new offset.
fn fill(file: &dyn File, pieces: &mut Pieces, offset: u64) -> std::io::Result<u64> {
    let wanted = pieces.wanted_bytes();
    let text = pieces.text();
    let mut at = text.len();
    let had = at;
    text.resize(wanted.max(had), 0);
    while at < text.len() {
        match file.read_at(offset + (at - had) as u64, &mut text[at..])? {
            0 => {
                text.truncate(at);
                pieces.end();
                break;
            }
            count => at += count,
        }
    }
    Ok((at - had) as u64)
}

/// Samples of a text that are being written to blocks, with their buffer and the metadata seen so
/// far.
struct Samples {
    import: Import,
    buffer: Buffer,
    heads: Heads,
    pairs: LabelPairs,
    /// Labels of the newest sample, kept to reuse their memory.
    labels: Labels,
    /// Labels of the command line, added to every series.
    added: Vec<(String, String)>,
}

impl Samples {
    /// Adds the current sample or metadata line of the parser.
    fn add(&mut self, parser: &Parser<'_>) -> Result<(), Error> {
        let sample = match parser.event() {
            Event::Sample(sample) => sample,
            Event::Metadata(said) => {
                self.heads.take(&said);
                return Ok(());
            }
        };
        let refused = |why: String| Error::new(ErrorKind::Invalid, why);
        let key = || String::from_utf8_lossy(sample.key).into_owned();
        let Some(time) = sample.time else {
            let why = format!("expected timestamp for series {}, got none", key());
            return Err(refused(why));
        };
        if !sample.is_expected {
            parser.labels(&mut self.pairs)?;
            let mut labels = Vec::new();
            for (name, value) in self.pairs.iter().filter(|(_, value)| !value.is_empty()) {
                push_pair(&mut labels, name, value);
            }
            if !is_canonical(&labels) {
                return Err(refused(format!(
                    "the labels of series {} occur twice",
                    key()
                )));
            }
            let mut builder = LabelsBuilder::from_labels(LabelsRef::from_canonical(&labels));
            for (name, value) in &self.added {
                builder.set(name, value.as_bytes());
            }
            self.labels = builder.build();
        }
        let value = match sample.value {
            Value::Float(value) => Sample::Float(value),
            Value::Histogram(histogram) => Sample::Histogram(histogram.clone().into()),
        };
        let labels = self.labels.as_ref();
        let start = sample.start.unwrap_or(START_UNKNOWN);
        self.buffer.push(labels, time, start, value);
        if self.buffer.memory_bytes() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.import.know(self.heads.batch());
        self.buffer.flush(&mut self.import)
    }

    fn finish(mut self) -> Result<Imported, Error> {
        self.flush()?;
        self.import.verify()?;
        self.import.commit()
    }
}
