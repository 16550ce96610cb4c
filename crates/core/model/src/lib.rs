//! The data model that all crates share, the traits between crates, and the only access to the
//! operating system.
//!
//! Contents:
//! - Labels, matchers, samples, native histograms, exemplars, metadata and time ranges.
//! - The columnar [`batch::Batch`] of a write and [`columns::SeriesBatch`] of a read.
//! - Error kinds, memory budgets and cancellation.
//! - The traits [`store::Append`], [`store::Select`] and [`log::DurableLog`].
//! - [`env::Env`], which provides time, randomness, files and threads to all crates below the
//!   server.
//!
//! ```
//! use firn_model::batch::Batch;
//! use firn_model::labels::Labels;
//! use firn_model::matcher::{MatchOp, Matcher};
//!
//! let labels = Labels::from_pairs([("job", "node"), ("__name__", "up")]);
//! assert_eq!(labels.to_string(), r#"{__name__="up", job="node"}"#);
//! assert_eq!(labels.get("instance"), b"");
//!
//! let matcher = Matcher::new("job", MatchOp::Equal, b"node")?;
//! assert!(matcher.matches(labels.get("job")));
//!
//! let mut batch = Batch::default();
//! batch.push_series(labels.as_ref(), &[(1_000, 1.0), (16_000, 0.0)]);
//! assert_eq!((batch.series_count(), batch.sample_count()), (1, 2));
//! assert_eq!(batch.series(0).values, [1.0, 0.0]);
//! # Ok::<(), firn_model::error::Error>(())
//! ```
//!
//! Invariants: labels are sorted by name, names are unique and values are not empty. Timestamps are
//! milliseconds since the Unix epoch. The staleness marker is a single NaN bit pattern. The crate
//! does not depend on HTTP, JSON, PromQL or a storage format, and no type is `Serialize`.

pub mod access;
pub mod batch;
pub mod budget;
pub mod cancel;
pub mod cluster_status;
pub mod columns;
pub mod concatenation;
pub mod damage;
pub mod env;
pub mod error;
pub mod exemplar;
pub mod fingerprint;
pub mod go_float;
pub mod go_time;
pub mod histogram;
pub mod histogram_text;
pub mod kahan;
pub mod label_code;
pub mod labels;
pub mod log;
pub mod log_exp;
pub mod losses;
pub mod matcher;
pub mod metadata;
pub mod metrics;
pub mod names;
pub mod order;
pub mod query_limits;
pub mod quote;
pub mod regex;
pub mod rounded;
pub mod sample;
pub mod series_key;
pub mod series_limit;
pub mod shares;
pub mod stats;
pub mod store;
pub mod sync;
pub mod tenant;
pub mod tenant_limits;
pub mod trace;
pub mod units;
