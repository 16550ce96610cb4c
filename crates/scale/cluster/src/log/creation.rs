//! One create of a segment, until it is certain who created its key (rule R5).
//!
//! ```text
//! InFlight --stored--> Stored
//!    |  ^                 ^
//!    |  +--absent--+      | own header
//!    |             |      |
//!    +--uncertain-----> Resolving --other header--> taken by another writer
//! ```
//!
//! Invariant: each attempt sends the same bytes. An attempt whose outcome is unknown may therefore
//! be stored late, and a repeat of it changes nothing.

use super::action::{LogRequest, Outbox};
use super::event::{CreateOutcome, Lookup};
use super::flaw::LogFlaw;
use super::options::LogCoreOptions;
use crate::segment::{Segment, SegmentHeader};

/// A segment to be created, and the state of its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SegmentCreation {
    segment: Segment,
    phase: CreationPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CreationPhase {
    InFlight,
    Resolving,
    Stored,
}

/// The consequence of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing is certain yet, or it was before.
    Pending,
    /// The segment has just become certain to be stored.
    Stored,
    /// The create was sent again.
    Repeated,
    /// Another writer has the key. Contains its header, if it is readable.
    Taken(Option<SegmentHeader>),
}

impl SegmentCreation {
    pub(super) fn begin(segment: Segment, out: &mut Outbox) -> Self {
        out.request(LogRequest::Create(segment.clone()));
        Self {
            segment,
            phase: CreationPhase::InFlight,
        }
    }

    pub(super) fn header(&self) -> &SegmentHeader {
        &self.segment.header
    }

    pub(super) fn is_stored(&self) -> bool {
        self.phase == CreationPhase::Stored
    }

    /// Handles the outcome of an attempt.
    pub(super) fn on_created(
        &mut self,
        options: &LogCoreOptions,
        outcome: CreateOutcome,
        out: &mut Outbox,
    ) -> Verdict {
        let exists = outcome == CreateOutcome::Exists;
        let is_trusted = exists && options.has(LogFlaw::ExistsIsStored);
        if outcome == CreateOutcome::Stored || is_trusted {
            return self.stored();
        }
        if self.phase != CreationPhase::InFlight {
            return Verdict::Pending;
        }
        if exists && options.has(LogFlaw::ExistsIsFenced) {
            return Verdict::Taken(None);
        }
        if outcome == CreateOutcome::Refused {
            return self.repeat(out);
        }
        self.phase = CreationPhase::Resolving;
        out.request(LogRequest::ReadHeader(self.segment.header.sequence));
        Verdict::Pending
    }

    /// Handles the header at the key.
    pub(super) fn on_header(
        &mut self,
        options: &LogCoreOptions,
        found: Lookup<SegmentHeader>,
        out: &mut Outbox,
    ) -> Verdict {
        if self.phase != CreationPhase::Resolving {
            return Verdict::Pending;
        }
        match found {
            Lookup::Present(header) if self.is_own(options, &header) => self.stored(),
            Lookup::Present(header) => Verdict::Taken(Some(header)),
            Lookup::Unreadable(_) => Verdict::Taken(None),
            Lookup::Absent => self.repeat(out),
            Lookup::Failed => {
                out.request(LogRequest::ReadHeader(self.segment.header.sequence));
                Verdict::Pending
            }
        }
    }

    /// Equal headers mean equal segments, since a header contains the writer and the checksum of
    /// the frames.
    fn is_own(&self, options: &LogCoreOptions, header: &SegmentHeader) -> bool {
        let own = &self.segment.header;
        let is_epoch_own = (own.epoch, own.kind) == (header.epoch, header.kind);
        header == own || options.has(LogFlaw::OmitsWriter) && is_epoch_own
    }

    fn stored(&mut self) -> Verdict {
        if self.is_stored() {
            return Verdict::Pending;
        }
        self.phase = CreationPhase::Stored;
        Verdict::Stored
    }

    fn repeat(&mut self, out: &mut Outbox) -> Verdict {
        self.phase = CreationPhase::InFlight;
        out.request(LogRequest::Create(self.segment.clone()));
        Verdict::Repeated
    }
}
