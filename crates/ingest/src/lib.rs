//! Ingestion: what happens to samples between a socket and the store.
//!
//! Owns the write pipeline ([`Pipeline`]: admission, decoding, limits, what became of each sample
//! and what the log says of it), text of any age that is
//! filled in ([`import`]), relabelling ([`relabel`]), the HTTP client ([`client`]), discovery
//! of targets ([`discovery`]) and of Alertmanagers ([`alertmanagers`]), posting of bodies as they
//! are ([`forward`]), reading from other servers ([`remote_read`]), spans for a
//! collector ([`span_export`]), and scraping ([`scrape`]). All samples end in the same
//! [`firn_model::store::Append`].
//!
//! Invariant: limits are checked before memory is spent, and every sample that was read is either
//! stored or counted as dropped under exactly one [`DropReason`]. Nothing here answers HTTP: bodies
//! of writes come in as bytes.

pub mod aggregation;
pub mod alertmanagers;
mod deltas;
mod discards;
mod exemplars;
pub mod forward;
pub mod import;
mod limits;
pub mod metadata;
pub mod metrics;
mod outcome;
mod pipeline;
mod refusals;
pub mod relabel;
pub mod remote_read;
pub mod scrape;
pub mod sending;
pub mod span_export;

pub use discards::Discard;
pub use limits::IngestLimits;
pub use outcome::{DropReason, Dropped, DroppedExemplars, WriteOutcome, Written};
pub use pipeline::{Admission, InstantAge, Origin, PendingWrite, Pipeline};
pub use pipeline::{DeltaMode, OtlpOrigin};
pub use refusals::Sender;
