//! What targets expose: read from them, written about ourselves.
//!
//! [`Parser`] pulls samples and metadata out of a body, [`Format`] says from the content type how
//! to read it, and [`accept_header`] asks a target for formats. [`TextSink`] and [`FamilySink`]
//! write what the rooms of this process count.
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
//! A body is read as Prometheus reads it (`model/textparse`): the same is accepted, what is refused
//! is refused with the same words, and at the first refusal all ends, because a target that writes
//! half a line may have lost the other half of its lines too.
//!
//! [`Pieces`] reads a text of any length that comes in parts.
//!
//! Invariant: a parser allocates no more than a small multiple of the body that it reads. Keys are
//! comparable within one format only: a caller that keeps keys must forget them when a target's
//! format changes.

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

/// Reads a body from its beginning to its end.
#[derive(Debug)]
pub struct Parser<'t> {
    source: Source<'t>,
    switches: Switches,
    entry: Entry,
    start: Option<TimestampMs>,
}

impl<'t> Parser<'t> {
    /// A parser at the start of `body`.
    pub fn new(format: Format, body: &'t [u8], switches: Switches) -> Self {
        Self {
            source: Source::new(format, body, switches),
            switches,
            entry: Entry::Metadata,
            start: None,
        }
    }

    /// A parser of a text that goes on another one, which stated `kind` last.
    fn resuming(format: Format, text: &'t [u8], kind: MetricType) -> Self {
        let mut parser = Self::new(format, text, Switches::default());
        parser.source.resume(kind);
        parser
    }

    /// Where it stands.
    fn place(&self) -> Place {
        self.source.place()
    }

    /// Goes to the next event; false at the end. After an error there is nothing more to read.
    pub fn advance(&mut self) -> Result<bool, ParseError> {
        self.advance_expecting(b"")
    }

    /// Goes to the next event like [`Parser::advance`]. If it is a sample of the series `key`,
    /// which a parser of the same format and switches returned, its labels are not read at all.
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

    /// What the last advance found.
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

    /// Replaces `out` with the labels of the sample just found, its metric's name among them,
    /// sorted by name.
    pub fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        self.source.labels(out)
    }

    /// Replaces `out` with the exemplars of the sample just found. Those whose labels have names
    /// that are not UTF-8 are left out, and so are a histogram's that have no time.
    pub fn exemplars(&self, out: &mut Exemplars) {
        out.clear();
        self.source.exemplars(out);
    }
}
