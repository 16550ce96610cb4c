//! The exposition formats: parsers for scraped bodies, and sinks that write Firn's own metrics.
//!
//! [`ExpositionFormat`] picks the format of a body from its content type, [`accept_header`] builds
//! the header that requests formats from a target, and [`ExpositionParser`] pulls samples and
//! metadata out of a body. [`TextSink`] and [`FamilySink`] write the metrics of this process.
//!
//! ```text
//! let format = ExpositionFormat::from_content_type(header, fallback)?.format;
//! let mut parser = ExpositionParser::new(format, &body, ParserSwitches::default());
//! while parser.advance_expecting(key_of_the_same_place_last_time)? {
//!     match parser.event() {
//!         Event::Sample(sample) if sample.is_expected => series of last time
//!         Event::Sample(sample) => match cache.get(sample.key) {
//!             Some(series) => ...
//!             None => parser.labels(&mut pairs)?  // parsed only here
//!         }
//!         Event::Metadata(metadata) => ...
//!     }
//! }
//! ```
//!
//! The parsers accept the same bodies as Prometheus (`model/textparse`) and reject the others with
//! the same error texts. The first error ends the parse, because a target that wrote half a line
//! may have lost other lines too.
//!
//! [`ExpositionPieceParser`] parses a text of any length that arrives in parts.
//!
//! Invariant: a parser allocates no more than a small multiple of the size of its body. Keys of
//! series are comparable within one format only: a caller that caches keys must drop them when the
//! format of a target changes.

mod convert;
mod custom;
mod error;
mod event;
mod families;
mod format;
mod lex;
mod lexer;
mod media_type;
mod number;
mod openmetrics;
mod pairs;
mod pieces;
mod protobuf;
mod series;
mod sink;
mod source;
mod switches;
#[cfg(test)]
mod tests;
mod text;

pub use error::ParseError;
pub use event::{
    ExpositionEvent, ExpositionMetadata, ExpositionSample, ExpositionValue, FamilyMetadataField,
};
pub use families::{FAMILIES_CONTENT_TYPE, FamilySink};
pub use format::{
    ChosenFormat, ExpositionFormat, ScrapeNameEscaping, ScrapeProtocol, accept_header,
};
pub use pairs::LabelPairs;
pub use pieces::{ExpositionPieceParser, PieceLimits};
pub use sink::{CONTENT_TYPE, TextSink};
pub use switches::ParserSwitches;

use event::{ExpositionEntryKind, ExpositionPosition};
use firn_model::exemplar::SampleExemplars;
use firn_model::metadata::MetricType;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use source::FormatParser;

/// Parses one body from its beginning to its end and yields its samples and metadata as events.
/// Created for each scrape; the parsed labels borrow nothing from it, while events borrow until the
/// next call of `advance`.
#[derive(Debug)]
pub struct ExpositionParser<'t> {
    source: FormatParser<'t>,
    switches: ParserSwitches,
    entry: ExpositionEntryKind,
    start: Option<TimestampMs>,
}

impl<'t> ExpositionParser<'t> {
    /// Returns a parser at the start of `body`, before its first event.
    pub fn new(format: ExpositionFormat, body: &'t [u8], switches: ParserSwitches) -> Self {
        Self {
            source: FormatParser::new(format, body, switches),
            switches,
            entry: ExpositionEntryKind::Metadata,
            start: None,
        }
    }

    /// Returns a parser of `text`, which continues another text whose last `# TYPE` line declared
    /// `kind`.
    fn new_resumed(format: ExpositionFormat, text: &'t [u8], kind: MetricType) -> Self {
        let mut parser = Self::new(format, text, ParserSwitches::default());
        parser.source.resume(kind);
        parser
    }

    /// Returns the position of the parser in the text, so that a caller can parse the rest later.
    fn position(&self) -> ExpositionPosition {
        self.source.position()
    }

    /// Moves to the next event; returns false at the end of the body. After an error the parser
    /// must not be used again.
    pub fn advance(&mut self) -> Result<bool, ParseError> {
        self.advance_expecting(b"")
    }

    /// Moves to the next event like [`ExpositionParser::advance`]. If that is a sample of the
    /// series `key`, which a parser of the same format and switches returned earlier, its labels
    /// are not parsed.
    #[inline]
    pub fn advance_expecting(&mut self, key: &[u8]) -> Result<bool, ParseError> {
        let entry = loop {
            match self.source.advance(key)? {
                Some(ExpositionEntryKind::Comment) => {}
                Some(entry) => break entry,
                None => return Ok(false),
            }
        };
        self.entry = entry;
        if self.switches.start_times && entry == ExpositionEntryKind::Sample {
            self.start = Some(self.source.start()).filter(|start| *start != START_UNKNOWN);
        }
        Ok(true)
    }

    /// Returns the event at which the last call of `advance` stopped; must be called only after it
    /// has returned true.
    #[inline]
    pub fn event(&self) -> ExpositionEvent<'_> {
        match self.entry {
            ExpositionEntryKind::Sample => ExpositionEvent::Sample(ExpositionSample {
                start: self.start,
                ..self.source.sample()
            }),
            ExpositionEntryKind::Metadata | ExpositionEntryKind::Comment => {
                ExpositionEvent::Metadata(self.source.metadata())
            }
        }
    }

    /// Replaces `out` with the labels of the current sample, sorted by name and including the
    /// metric name. Fails if they are malformed, which not every format detects earlier.
    pub fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        self.source.labels(out)
    }

    /// Replaces `out` with the exemplars of the current sample. Exemplars with a label name that is
    /// not UTF-8 are left out, and so are exemplars of a histogram without a timestamp.
    pub fn exemplars(&self, out: &mut SampleExemplars) {
        out.clear();
        self.source.exemplars(out);
    }
}
