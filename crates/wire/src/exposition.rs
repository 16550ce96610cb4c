//! What targets expose: read from them, written about ourselves.
//!
//! [`Parser`] pulls samples and metadata out of a body, [`Format`] says from the content type how
//! to read it, and [`accept_header`] asks a target for formats. [`TextSink`] writes what the rooms
//! of this process count.
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
//! Invariant: a parser allocates no more than a small multiple of the body that it reads. Keys are
//! comparable within one format only: whoever keeps them must forget them when a target's format
//! changes.

mod convert;
mod custom;
mod error;
mod event;
mod format;
mod lex;
mod media_type;
mod number;
mod openmetrics;
mod pairs;
mod protobuf;
mod series;
mod sink;
#[cfg(test)]
mod tests;
mod text;

pub use error::ParseError;
pub use event::{Event, Field, Metadata, Sample, Value};
pub use format::{Chosen, Escaping, Format, ScrapeProtocol, accept_header};
pub use pairs::LabelPairs;
pub use sink::{CONTENT_TYPE, TextSink};

use convert::Converter;
use firn_model::exemplar::Exemplars;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use openmetrics::OpenMetricsParser;
use protobuf::{Histograms, ProtobufParser};
use text::TextParser;

/// How a body is read beyond what its format says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Whether a family's type and unit become the labels `__type__` and `__unit__`.
    pub type_and_unit_labels: bool,
    /// Whether samples tell since when they count. In OpenMetrics this takes out the samples that
    /// say so, `name_created`.
    pub start_times: bool,
    /// Whether native histograms are read as such (`scrape_native_histograms`). If not, only their
    /// classic buckets are.
    pub native_histograms: bool,
    /// Whether classic histograms become native ones with custom buckets
    /// (`convert_classic_histograms_to_nhcb`).
    pub convert_classic_histograms: bool,
    /// Whether classic histograms are read even if they are native or converted too
    /// (`always_scrape_classic_histograms`).
    pub always_classic_histograms: bool,
}

/// What a format's parser has just read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Sample,
    Metadata,
    /// Tells nothing, but ends a classic histogram.
    Comment,
}

/// Reads a body from its beginning to its end.
#[derive(Debug)]
pub struct Parser<'t> {
    source: Source<'t>,
    switches: Switches,
    entry: Entry,
    start: Option<TimestampMs>,
}

/// The parser of the body's format.
#[derive(Debug)]
enum Source<'t> {
    Text(TextParser<'t>),
    OpenMetrics(Box<OpenMetricsParser<'t>>),
    Protobuf(Box<ProtobufParser<'t>>),
    Converted(Box<Converter<'t>>),
}

impl<'t> Parser<'t> {
    /// A parser at the start of `body`.
    pub fn new(format: Format, body: &'t [u8], switches: Switches) -> Self {
        let is_labelled = switches.type_and_unit_labels;
        let mut source = match format {
            Format::Text => Source::Text(TextParser::new(body, is_labelled)),
            Format::OpenMetrics => Source::OpenMetrics(Box::new(OpenMetricsParser::new(
                body,
                is_labelled,
                switches.start_times,
            ))),
            Format::Protobuf => {
                let histograms = Histograms {
                    native: switches.native_histograms,
                    converted: switches.convert_classic_histograms,
                    classic: switches.always_classic_histograms,
                };
                Source::Protobuf(Box::new(ProtobufParser::new(body, is_labelled, histograms)))
            }
        };
        if switches.convert_classic_histograms && format != Format::Protobuf {
            let keeps_classic = switches.always_classic_histograms;
            source = Source::Converted(Box::new(Converter::new(source, keeps_classic)));
        }
        Self {
            source,
            switches,
            entry: Entry::Metadata,
            start: None,
        }
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

/// Every format's parser has the same methods.
impl Source<'_> {
    #[inline]
    fn advance(&mut self, expected: &[u8]) -> Result<Option<Entry>, ParseError> {
        match self {
            Source::Text(source) => source.advance(expected),
            Source::OpenMetrics(source) => source.advance(expected),
            Source::Protobuf(source) => source.advance(expected),
            Source::Converted(source) => source.advance(expected),
        }
    }

    #[inline]
    fn sample(&self) -> Sample<'_> {
        match self {
            Source::Text(source) => source.sample(),
            Source::OpenMetrics(source) => source.sample(),
            Source::Protobuf(source) => source.sample(),
            Source::Converted(source) => source.sample(),
        }
    }

    fn metadata(&self) -> Metadata<'_> {
        match self {
            Source::Text(source) => source.metadata(),
            Source::OpenMetrics(source) => source.metadata(),
            Source::Protobuf(source) => source.metadata(),
            Source::Converted(source) => source.metadata(),
        }
    }

    fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        match self {
            Source::Text(source) => source.labels(out),
            Source::OpenMetrics(source) => source.labels(out),
            Source::Protobuf(source) => source.labels(out),
            Source::Converted(source) => source.labels(out),
        }
    }

    fn exemplars(&self, out: &mut Exemplars) {
        match self {
            Source::Text(_) => {}
            Source::OpenMetrics(source) => source.exemplars(out),
            Source::Protobuf(source) => source.exemplars(out),
            Source::Converted(source) => source.exemplars(out),
        }
    }

    fn start(&mut self) -> TimestampMs {
        match self {
            Source::Text(_) => START_UNKNOWN,
            Source::OpenMetrics(source) => source.start(),
            Source::Protobuf(source) => source.start(),
            Source::Converted(source) => source.start(),
        }
    }
}
