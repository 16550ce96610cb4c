//! Import: text of any age and length on its way into the store.
//!
//! ```text
//! input() -> unpacked -> pieces of text -> samples -> a batch -> ticket: durable -> settle()
//!                             '------------ advance() ------------'
//! ```
//!
//! A piece is stored as a whole, and is durable before the next one is read: an import that fails
//! says up to which line everything is stored, and may begin anew there or at its beginning, since
//! samples that are stored are known. Samples that cannot stand (limits of labels, the future) are
//! left out, counted and named, as those of a push are.
//!
//! Invariant: memory is that of one piece ([`ImportLimits`]), however long the text is. Nothing
//! here waits: the caller brings bytes and awaits tickets.

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

/// What a text that was not said to be in OpenMetrics must not end with: its times would have been
/// taken for milliseconds.
const OTHER_FORMAT: &str = "the text ends with # EOF and is therefore OpenMetrics: send it with \
     Content-Type: application/openmetrics-text";

/// What is known of a text before it is read.
#[derive(Clone, Debug)]
pub struct ImportSettings {
    /// One of the two text formats.
    pub format: Format,
    /// Whether the sender named the format.
    pub is_format_stated: bool,
    /// How the body is packed.
    pub packing: Packing,
    /// The time of samples that have none.
    pub default_time: TimestampMs,
    /// Labels that every series gets; they take the place of its own.
    pub extra_labels: Vec<(String, String)>,
}

/// What [`Import::advance`] came to.
#[derive(Debug)]
pub enum Step {
    /// More bytes are needed, or the word that there are none.
    NeedsInput,
    /// A piece is on its way: wait for it, then [`Import::settle`] it or [`Import::send_again`].
    Sent(Ticket),
    /// All is stored.
    Done,
}

/// One text on its way.
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
    /// What became of the pieces that are settled.
    outcome: WriteOutcome,
    /// Everything up to this line is stored.
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
    /// Begins the import of a text that comes from `address`.
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

    /// Takes bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.pipeline.metrics().body_bytes.add(bytes.len() as u64);
    }

    /// Whether so many bytes wait that [`Import::advance`] should come first.
    pub fn has_enough(&self) -> bool {
        self.input.len() >= self.limits.input_bytes_max / 2
    }

    /// Says that the body has no more bytes.
    pub fn end(&mut self) {
        self.is_input_all = true;
    }

    /// Goes on until something must be waited for. Computes on the calling thread.
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

    /// Sends the piece under way, once more if it could not be stored; what of it is stored is
    /// known then.
    pub fn send_again(&mut self) -> Ticket {
        let (tenant, sender) = (&self.tenant, self.sender.clone());
        let batch = self.samples.batch();
        self.pipeline.append_of_any_age(tenant, sender, batch)
    }

    /// Takes what became of the piece under way, which is durable.
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

    /// Counts how the import ended, and says what became of it.
    pub fn finish(self, end: Result<(), Error>) -> Result<WriteOutcome, Error> {
        let outcome = end.map(|()| self.outcome);
        self.pipeline.count_request(&outcome);
        outcome
    }

    /// `error`, and what of the text is stored in spite of it.
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

/// Adds to those that were dropped for the same reason.
fn add(all: &mut Vec<Dropped>, dropped: Dropped) {
    let same = |known: &&mut Dropped| known.reason == dropped.reason;
    match all.iter_mut().find(same) {
        Some(known) => known.sample_count += dropped.sample_count,
        None => all.push(dropped),
    }
}

/// One sample dropped for `reason`.
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
