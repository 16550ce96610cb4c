//! Imports text of any age and length into the store.
//!
//! ```text
//! input() -> decompress -> pieces of text -> samples -> a batch -> ticket: durable -> settle()
//!                             '------------ advance() ------------'
//! ```
//!
//! Each piece is stored as a whole and is durable before the next one is read. A failed import
//! reports the line up to which everything is stored; it can be continued there or repeated from
//! the start, because stored samples are recognized. Samples that violate a limit or are in the
//! future are left out, counted and reported, like those of a push.
//!
//! Invariant: memory is limited to one piece ([`ImportLimits`]), however long the text is. No
//! function waits: the caller provides bytes and awaits tickets.

mod samples;

use crate::limits::ImportLimits;
use crate::outcome::{DropReason, Dropped, WriteOutcome};
use crate::pipeline::Pipeline;
use crate::refusals::Sender;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, Appended, Ticket};
use firn_model::tenant::TenantId;
use firn_wire::exposition::{Format, Parser, Pieces};
use firn_wire::unpack::{Packing, Unpacker};
use samples::Samples;
use std::net::IpAddr;
use std::sync::Arc;

/// Error for a text that ends like OpenMetrics but was not declared as such: its timestamps would
/// have been read as milliseconds.
const OTHER_FORMAT: &str = "the text ends with # EOF and is therefore OpenMetrics: send it with \
     Content-Type: application/openmetrics-text";

/// Properties of a text that are known from the request before the first byte of the body. The
/// server derives them from headers and URL parameters.
#[derive(Clone, Debug)]
pub struct ImportSettings {
    /// One of the two text formats.
    pub format: Format,
    /// True if the sender declared the format.
    pub is_format_stated: bool,
    /// Compression of the body, from its `Content-Encoding`.
    pub packing: Packing,
    /// Timestamp of samples without one.
    pub default_time: TimestampMs,
    /// Labels to add to every series; they replace existing ones of the same name.
    pub extra_labels: Vec<(String, String)>,
}

/// The result of [`Import::advance`]: the event for which the caller must wait.
#[derive(Debug)]
pub enum Step {
    /// More bytes are needed, or [`Import::end`].
    NeedsInput,
    /// A piece was sent to the store: await the ticket, then call [`Import::settle`] or
    /// [`Import::send_again`].
    Sent(Ticket),
    /// The whole text is stored and durable.
    Done,
}

/// The import of one text. The caller alternates between [`Import::push`], [`Import::advance`] and
/// waiting for tickets.
pub struct Import {
    pipeline: Arc<Pipeline>,
    tenant: TenantId,
    sender: Sender,
    limits: ImportLimits,
    unpacker: Unpacker,
    input: Vec<u8>,
    is_input_all: bool,
    is_format_stated: bool,
    pieces: Pieces,
    samples: Samples,
    /// Sum of the outcomes of all settled pieces.
    outcome: WriteOutcome,
    /// Number of lines that are completely stored.
    stored_lines: u64,
}

impl std::fmt::Debug for Import {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Import")
            .field("stored_lines", &self.stored_lines)
            .finish_non_exhaustive()
    }
}

impl Import {
    /// Starts the import of a text that was sent from `address`; nothing is read yet.
    pub fn begin(
        pipeline: Arc<Pipeline>,
        tenant: TenantId,
        address: Option<IpAddr>,
        settings: ImportSettings,
    ) -> Self {
        let limits = pipeline.limits();
        Self {
            sender: Sender::Push {
                tenant: tenant.clone(),
                address,
            },
            tenant,
            limits: limits.import,
            unpacker: Unpacker::new(settings.packing, limits.import.window_bytes_max),
            input: Vec::new(),
            is_input_all: false,
            is_format_stated: settings.is_format_stated,
            pieces: Pieces::new(settings.format, limits.import.text),
            samples: Samples::new(settings, limits.wire, pipeline.takes_exemplars()),
            outcome: WriteOutcome::default(),
            stored_lines: 0,
            pipeline,
        }
    }

    /// Appends bytes of the body to the input, which [`Import::has_enough`] limits. Later calls of
    /// [`Import::advance`] decompress and parse them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.pipeline.metrics().body_bytes.add(bytes.len() as u64);
    }

    /// Returns whether so much input is buffered that [`Import::advance`] should be called first.
    pub fn has_enough(&self) -> bool {
        self.input.len() >= self.limits.input_bytes_max / 2
    }

    /// Marks the end of the body.
    pub fn end(&mut self) {
        self.is_input_all = true;
    }

    /// Parses and sends the next piece, or returns which event must be awaited. Computes on the
    /// calling thread. After an error, the caller must call [`Import::finish`].
    pub fn advance(&mut self) -> Result<Step, Error> {
        loop {
            self.unpack()?;
            if self.pieces.ends_as_openmetrics() && !self.is_format_stated {
                let error = Error::new(ErrorKind::Invalid, OTHER_FORMAT);
                return Err(self.said_of_rest(error));
            }
            self.samples.clear();
            let samples = &mut self.samples;
            let mut take = |parser: &Parser<'_>, line| samples.take(parser, line);
            let is_read = self.pieces.read(&mut take);
            let is_read = is_read.map_err(|e| self.said_of_rest(e))?;
            self.samples.end();
            if !self.samples.batch().is_empty() {
                return Ok(Step::Sent(self.send_again()));
            }
            self.settle(Appended::default());
            if self.pieces.is_done() {
                return Ok(Step::Done);
            }
            if !is_read && (self.input.is_empty() || !self.is_input_all) {
                return Ok(Step::NeedsInput);
            }
        }
    }

    /// Sends the current piece, again if it could not be stored; samples that are already stored
    /// are recognized as duplicates.
    pub fn send_again(&mut self) -> Ticket {
        let (tenant, sender) = (&self.tenant, self.sender.clone());
        let batch = self.samples.batch();
        self.pipeline.append_of_any_age(tenant, sender, batch)
    }

    /// Records the result of the current piece, which is durable now, and logs its rejected
    /// samples.
    pub fn settle(&mut self, appended: Appended) {
        let refused = self.samples.take_refused();
        for dropped in &refused {
            self.pipeline.drop_unseen(&self.sender, dropped);
        }
        let metrics = self.pipeline.metrics();
        metrics.exemplars_ignored.add(self.samples.take_ignored());
        self.outcome.stored_count += appended.stored;
        for dropped in refused {
            add(&mut self.outcome.dropped, dropped);
        }
        for rejected in &appended.rejected {
            let mut dropped = Dropped::from(rejected);
            if let Some(line) = self.samples.line_of(rejected) {
                dropped.first = format!("line {line}: {}", dropped.first);
            }
            add(&mut self.outcome.dropped, dropped);
        }
        self.stored_lines = self.pieces.lines();
    }

    /// Counts the import in the metrics and returns its outcome; `end` is the error that ended it,
    /// if any.
    pub fn finish(self, end: Result<(), Error>) -> Result<WriteOutcome, Error> {
        let outcome = end.map(|()| self.outcome);
        self.pipeline.count_request(&outcome);
        outcome
    }

    /// Adds the number of samples and lines that are stored in spite of the error to its text.
    pub fn said_of_rest(&self, error: Error) -> Error {
        let Error { kind, message } = error;
        let stored = match (self.stored_lines, self.outcome.stored_count) {
            (0, _) | (_, 0) => "nothing was stored".to_owned(),
            (lines, count) => {
                format!("{count} samples are stored, all up to line {lines}")
            }
        };
        Error::new(kind, format!("{message}; {stored}"))
    }

    fn unpack(&mut self) -> Result<(), Error> {
        let wanted = self.pieces.wanted_bytes();
        let text = self.pieces.text();
        let before = text.len();
        let unpacked = self
            .unpacker
            .unpack(&self.input, self.is_input_all, text, wanted);
        let came = text.len() - before;
        let is_short = text.len() < wanted;
        let taken = unpacked.map_err(|e| self.said_of_rest(e))?;
        self.pipeline.metrics().message_bytes.add(came as u64);
        self.input.drain(..taken);
        if self.is_input_all && self.input.is_empty() && is_short {
            self.pieces.end();
        }
        Ok(())
    }
}

/// Adds dropped samples to the entry with the same reason, or as a new entry.
fn add(all: &mut Vec<Dropped>, dropped: Dropped) {
    let same = |known: &&mut Dropped| known.reason == dropped.reason;
    match all.iter_mut().find(same) {
        Some(known) => known.sample_count += dropped.sample_count,
        None => all.push(dropped),
    }
}

/// Adds one sample that was dropped for `reason`; `first` is called only for the first one.
fn drop_one(all: &mut Vec<Dropped>, reason: DropReason, first: impl FnOnce() -> String) {
    match all.iter_mut().find(|known| known.reason == reason) {
        Some(known) => known.sample_count += 1,
        None => all.push(Dropped {
            reason,
            sample_count: 1,
            job: String::new(),
            first: first(),
        }),
    }
}

#[cfg(test)]
mod tests;
