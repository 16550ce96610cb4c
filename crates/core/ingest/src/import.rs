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
use crate::outcome::{DropReason, DroppedSamples, WriteOutcome};
use crate::pipeline::Pipeline;
use crate::refusals::SampleSender;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendOutcome, Ticket};
use firn_model::tenant::TenantId;
use firn_wire::exposition::{ExpositionFormat, ExpositionParser, ExpositionPieceParser};
use firn_wire::unpack::{BodyDecompressor, ContentEncoding};
use samples::ImportBatch;
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
    pub format: ExpositionFormat,
    /// True if the sender declared the format.
    pub is_format_stated: bool,
    /// Compression of the body, from its `Content-Encoding`.
    pub packing: ContentEncoding,
    /// Timestamp of samples without one.
    pub default_time: TimestampMs,
    /// Labels to add to every series; they replace existing ones of the same name.
    pub extra_labels: Vec<(String, String)>,
}

/// The result of [`TextImport::advance_piece`]: the event for which the caller must wait.
#[derive(Debug)]
pub enum ImportStep {
    /// More bytes are needed, or [`TextImport::end`].
    NeedsInput,
    /// A piece was sent to the store: await the ticket, then call
    /// [`TextImport::record_stored_piece`] or [`TextImport::send_piece`].
    Sent(Ticket),
    /// The whole text is stored and durable.
    Done,
}

/// The import of one text. The caller alternates between [`TextImport::push_input`],
/// [`TextImport::advance_piece`] and waiting for tickets.
pub struct TextImport {
    pipeline: Arc<Pipeline>,
    tenant: TenantId,
    sender: SampleSender,
    limits: ImportLimits,
    unpacker: BodyDecompressor,
    input: Vec<u8>,
    is_input_all: bool,
    is_format_stated: bool,
    pieces: ExpositionPieceParser,
    samples: ImportBatch,
    /// Sum of the outcomes of all settled pieces.
    outcome: WriteOutcome,
    /// Number of lines that are completely stored.
    stored_lines: u64,
}

impl std::fmt::Debug for TextImport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Import")
            .field("stored_lines", &self.stored_lines)
            .finish_non_exhaustive()
    }
}

impl TextImport {
    /// Starts the import of a text that was sent from `address`; nothing is read yet.
    pub fn begin_import(
        pipeline: Arc<Pipeline>,
        tenant: TenantId,
        address: Option<IpAddr>,
        settings: ImportSettings,
    ) -> Self {
        let limits = pipeline.limits();
        Self {
            sender: SampleSender::Push {
                tenant: tenant.clone(),
                address,
            },
            tenant,
            limits: limits.import,
            unpacker: BodyDecompressor::new(settings.packing, limits.import.window_bytes_max),
            input: Vec::new(),
            is_input_all: false,
            is_format_stated: settings.is_format_stated,
            pieces: ExpositionPieceParser::new(settings.format, limits.import.text),
            samples: ImportBatch::new(settings, limits.wire, pipeline.can_store_exemplars()),
            outcome: WriteOutcome::default(),
            stored_lines: 0,
            pipeline,
        }
    }

    /// Appends bytes of the body to the input, which [`TextImport::has_enough_input`] limits. Later
    /// calls of [`TextImport::advance_piece`] decompress and parse them.
    pub fn push_input(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.pipeline.metrics().body_bytes.add(bytes.len() as u64);
    }

    /// Returns whether so much input is buffered that [`TextImport::advance_piece`] should be
    /// called first.
    pub fn has_enough_input(&self) -> bool {
        self.input.len() >= self.limits.input_bytes_max / 2
    }

    /// Marks the end of the body.
    pub fn end_input(&mut self) {
        self.is_input_all = true;
    }

    /// Parses and sends the next piece, or returns which event must be awaited. Computes on the
    /// calling thread. After an error, the caller must call [`TextImport::finish`].
    pub fn advance_piece(&mut self) -> Result<ImportStep, Error> {
        loop {
            self.unpack_input()?;
            if self.pieces.has_openmetrics_end() && !self.is_format_stated {
                let error = Error::new(ErrorKind::Invalid, OTHER_FORMAT);
                return Err(self.append_stored_counts(error));
            }
            self.samples.clear_samples();
            let samples = &mut self.samples;
            let mut take =
                |parser: &ExpositionParser<'_>, line| samples.add_current_sample(parser, line);
            let is_read = self.pieces.read(&mut take);
            let is_read = is_read.map_err(|e| self.append_stored_counts(e))?;
            self.samples.end_batch();
            if !self.samples.batch().is_empty() {
                return Ok(ImportStep::Sent(self.send_piece()));
            }
            self.record_stored_piece(AppendOutcome::default());
            if self.pieces.is_done() {
                return Ok(ImportStep::Done);
            }
            if !is_read && (self.input.is_empty() || !self.is_input_all) {
                return Ok(ImportStep::NeedsInput);
            }
        }
    }

    /// Sends the current piece, again if it could not be stored; samples that are already stored
    /// are recognized as duplicates.
    pub fn send_piece(&mut self) -> Ticket {
        let (tenant, sender) = (&self.tenant, self.sender.clone());
        let batch = self.samples.batch();
        self.pipeline.append_backfilled(tenant, sender, batch)
    }

    /// Records the result of the current piece, which is durable now, and logs its rejected
    /// samples.
    pub fn record_stored_piece(&mut self, appended: AppendOutcome) {
        let refused = self.samples.take_refused();
        for dropped in &refused {
            self.pipeline.count_dropped(&self.sender, dropped);
        }
        let metrics = self.pipeline.metrics();
        metrics.exemplars_ignored.add(self.samples.take_ignored());
        self.outcome.stored_count += appended.stored;
        for dropped in refused {
            add_dropped(&mut self.outcome.dropped, dropped);
        }
        for rejected in &appended.rejected {
            let mut dropped = DroppedSamples::from(rejected);
            if let Some(line) = self.samples.line_of_rejection(rejected) {
                dropped.first = format!("line {line}: {}", dropped.first);
            }
            add_dropped(&mut self.outcome.dropped, dropped);
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
    pub fn append_stored_counts(&self, error: Error) -> Error {
        let Error { kind, message } = error;
        let stored = match (self.stored_lines, self.outcome.stored_count) {
            (0, _) | (_, 0) => "nothing was stored".to_owned(),
            (lines, count) => {
                format!("{count} samples are stored, all up to line {lines}")
            }
        };
        Error::new(kind, format!("{message}; {stored}"))
    }

    fn unpack_input(&mut self) -> Result<(), Error> {
        let wanted = self.pieces.wanted_bytes();
        let text = self.pieces.text();
        let before = text.len();
        let unpacked = self
            .unpacker
            .decompress(&self.input, self.is_input_all, text, wanted);
        let came = text.len() - before;
        let is_short = text.len() < wanted;
        let taken = unpacked.map_err(|e| self.append_stored_counts(e))?;
        self.pipeline.metrics().message_bytes.add(came as u64);
        self.input.drain(..taken);
        if self.is_input_all && self.input.is_empty() && is_short {
            self.pieces.end();
        }
        Ok(())
    }
}

/// Adds dropped samples to the entry with the same reason, or as a new entry.
fn add_dropped(all: &mut Vec<DroppedSamples>, dropped: DroppedSamples) {
    let same = |known: &&mut DroppedSamples| known.reason == dropped.reason;
    match all.iter_mut().find(same) {
        Some(known) => known.sample_count += dropped.sample_count,
        None => all.push(dropped),
    }
}

/// Adds one sample that was dropped for `reason`; `first` is called only for the first one.
fn add_dropped_sample(
    all: &mut Vec<DroppedSamples>,
    reason: DropReason,
    first: impl FnOnce() -> String,
) {
    match all.iter_mut().find(|known| known.reason == reason) {
        Some(known) => known.sample_count += 1,
        None => all.push(DroppedSamples {
            reason,
            sample_count: 1,
            job: String::new(),
            first: first(),
            first_labels: Labels::empty(),
        }),
    }
}

#[cfg(test)]
mod tests;
