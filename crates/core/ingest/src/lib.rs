//! Ingestion: the path of samples from a socket to the store.
//!
//! The main type is the write pipeline ([`Pipeline`]), which admits, decodes, limits, stores,
//! counts and logs the samples of all protocols. Other parts are relabelling ([`relabel`]), the
//! import of old text ([`import`]), pushed metric metadata ([`metadata`]), the requests for
//! remote-write receivers ([`sending`]), the state of scrape targets for the API ([`targets`]), and
//! the export of spans ([`span_export`]). All samples are stored through
//! [`firn_model::store::Append`].
//!
//! Invariant: limits are checked before memory is allocated, and every decoded sample is either
//! stored or counted as dropped under exactly one [`DropReason`]. This crate contains no HTTP
//! server: the bodies of requests are passed in as bytes.

mod deltas;
mod discards;
pub mod exemplars;
mod ha;
pub mod import;
mod limits;
pub mod metadata;
pub mod metrics;
mod outcome;
mod pipeline;
mod refusals;
pub mod relabel;
pub mod sending;
pub mod span_export;
pub mod targets;
mod usage;

pub use discards::DiscardEntry;
pub use limits::IngestLimits;
pub use outcome::{DropReason, DroppedExemplars, DroppedSamples, WriteOutcome, WrittenCounts};
pub use pipeline::{DeltaMode, OtlpOrigin};
pub use pipeline::{InstantAge, PendingWrite, Pipeline, PushOrigin, WriteAdmission};
pub use refusals::SampleSender;
pub use usage::{AttributionReport, AttributionRow, SampleUsage, TenantUsageReport};
