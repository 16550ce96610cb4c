//! The command `firn tsdb create-blocks-from openmetrics FILE --data DATA`: converts the samples of
//! a text into blocks.
//!
//! The text is read in pieces that end with a line. Samples are buffered in memory, in any order,
//! and written to blocks when the buffer is full. All blocks are committed at the end: a text with
//! an error leaves no data.

use super::heads::FamilyDescriptions;
use super::progress::CommandProgressLine;
use firn_model::env::{DiskFile, Env, OpenMode};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, is_canonical, push_pair};
use firn_model::sample::START_UNKNOWN;
use firn_storage::import::{BlockImport, ChunkSample, ImportBuffer, ImportSummary, ImportTarget};
use firn_wire::exposition::{
    ExpositionEvent, ExpositionFormat, ExpositionParser, ExpositionPieceParser, ExpositionValue,
    LabelPairs, PieceLimits,
};
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
) -> Result<ImportSummary, Error> {
    let unreadable = |e: std::io::Error| Error::unavailable(format!("{}: {e}", text.display()));
    let file = env.disk.open(text, OpenMode::Read).map_err(unreadable)?;
    let bytes = file.len().map_err(unreadable)?;
    let target = ImportTarget::open_folder(env, data)?;
    let progress = CommandProgressLine::new(bytes, "bytes");
    progress.set_item(text.display().to_string());
    let mut pieces = ExpositionPieceParser::new(ExpositionFormat::OpenMetrics, LIMITS);
    let mut samples = OpenMetricsImport {
        import: target.begin(),
        buffer: ImportBuffer::default(),
        heads: FamilyDescriptions::default(),
        pairs: LabelPairs::default(),
        labels: Labels::empty(),
        added: added.to_vec(),
    };
    let mut offset = 0;
    while !pieces.is_done() {
        let read = fill(&*file, &mut pieces, offset).map_err(unreadable)?;
        offset += read;
        progress.add(read);
        let mut take = |parser: &ExpositionParser<'_>, _| samples.add(parser);
        while pieces.read(&mut take).map_err(|e| {
            let message = format!("{}, {}", text.display(), e.message);
            Error::new(e.kind, message)
        })? {}
    }
    samples.finish()
}

/// Reads the text from `offset` until a piece is complete, and returns the new offset.
fn fill(
    file: &dyn DiskFile,
    pieces: &mut ExpositionPieceParser,
    offset: u64,
) -> std::io::Result<u64> {
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
struct OpenMetricsImport {
    import: BlockImport,
    buffer: ImportBuffer,
    heads: FamilyDescriptions,
    pairs: LabelPairs,
    /// Labels of the newest sample, kept to reuse their memory.
    labels: Labels,
    /// Labels of the command line, added to every series.
    added: Vec<(String, String)>,
}

impl OpenMetricsImport {
    /// Adds the current sample or metadata line of the parser.
    fn add(&mut self, parser: &ExpositionParser<'_>) -> Result<(), Error> {
        let sample = match parser.event() {
            ExpositionEvent::Sample(sample) => sample,
            ExpositionEvent::Metadata(said) => {
                self.heads.add_line(&said);
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
            ExpositionValue::Float(value) => ChunkSample::Float(value),
            ExpositionValue::Histogram(histogram) => {
                ChunkSample::Histogram(histogram.clone().into())
            }
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
        self.import.set_metadata(self.heads.batch());
        self.buffer.flush(&mut self.import)
    }

    fn finish(mut self) -> Result<ImportSummary, Error> {
        self.flush()?;
        self.import.verify()?;
        self.import.commit()
    }
}
