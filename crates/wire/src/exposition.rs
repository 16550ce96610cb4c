//! The exposition formats: parsers for scraped bodies, and sinks that write Firn's own metrics.
//!
//! [`Format`] picks the format of a body from its content type, [`accept_header`] builds the header
//! that requests formats from a target, and [`Parser`] pulls samples and metadata out of a body.
//! [`TextSink`] and [`FamilySink`] write the metrics of this process.
//!
//! ```text
//! let format = Format::of_content_type(header, fallback)?.format;
//! let mut parser = Parser::new(format, &body, Switches::default());
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
//! [`Pieces`] parses a text of any length that arrives in parts.
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
pub use event::{Event, Field, Metadata, Sample, Value};
pub use families::{FAMILIES_CONTENT_TYPE, FamilySink};
pub use format::{Chosen, Escaping, Format, ScrapeProtocol, accept_header};
pub use pairs::LabelPairs;
pub use pieces::{PieceLimits, Pieces};
pub use sink::{CONTENT_TYPE, TextSink};
pub use switches::Switches;

use event::{Entry, Place};
use firn_model::exemplar::Exemplars;
use firn_model::metadata::MetricType;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use source::Source;

/// Parses one body from its beginning to its end and yields its samples and metadata as events.
/// Created for each scrape; the parsed labels borrow nothing from it, while events borrow until the
/// next call of `advance`.
#[derive(Debug)]
pub struct Parser<'t> {
    source: Source<'t>,
    switches: Switches,
    entry: Entry,
    start: Option<TimestampMs>,
}

impl<'t> Parser<'t> {
    /// Returns a parser at the start of `body`, before its first event.
    pub fn new(format: Format, body: &'t [u8], switches: Switches) -> Self {
        Self {
            source: Source::new(format, body, switches),
            switches,
            entry: Entry::Metadata,
            start: None,
        }
    }

    /// Returns a parser of `text`, which continues another text whose last `# TYPE` line declared
    /// `kind`.
    fn resuming(format: Format, text: &'t [u8], kind: MetricType) -> Self {
        let mut parser = Self::new(format, text, Switches::default());
        parser.source.resume(kind);
        parser
    }

    /// Returns the position of the parser in the text, so that a caller can parse the rest later.
    fn place(&self) -> Place {
        self.source.place()
    }

    /// Moves to the next event; returns false at the end of the body. After an error the parser
    /// must not be used again.
    pub fn advance(&mut self) -> Result<bool, ParseError> {
        self.advance_expecting(b"")
    }

    /// Moves to the next event like [`Parser::advance`]. If that is a sample of the series `key`,
    /// which a parser of the same format and switches returned earlier, its labels are not parsed.
    #[inline]
    pub fn advance_expecting(&mut self, key: &[u8]) -> Result<bool, ParseError> {
        let entry = loop {
            match self.source.advance(key)? {
                Some(Entry::Comment) => {}
                Some(entry) => break entry,
                None => return Ok(false),
            }
        };
        self.entry = entry;
        if self.switches.start_times && entry == Entry::Sample {
            self.start = Some(self.source.start()).filter(|start| *start != START_UNKNOWN);
        }
        Ok(true)
    }

    /// Returns the event at which the last call of `advance` stopped; must be called only after it
    /// has returned true.
    #[inline]
    pub fn event(&self) -> Event<'_> {
        match self.entry {
            Entry::Sample => Event::Sample(Sample {
                start: self.start,
                ..self.source.sample()
            }),
            Entry::Metadata | Entry::Comment => Event::Metadata(self.source.metadata()),
        }
    }

    /// Replaces `out` with the labels of the current sample, sorted by name and including the
    /// metric name. Fails if they are malformed, which not every format detects earlier.
    pub fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        self.source.labels(out)
    }

    /// Replaces `out` with the exemplars of the current sample. Exemplars with a label name that is
    /// not UTF-8 are left out, and so are exemplars of a histogram without a timestamp.
    pub fn exemplars(&self, out: &mut Exemplars) {
        out.clear();
        self.source.exemplars(out);
    }
}
