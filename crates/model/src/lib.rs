//! The data model that every room shares, the traits between rooms, and the one door to the
//! outside world.
//!
//! Owns: labels, matchers, samples, native histograms, exemplars, metadata, time ranges, the
//! columnar [`batch::Batch`] of a write and [`columns::SeriesBatch`] of a read, error kinds,
//! budgets and cancellation; the traits [`store::Append`], [`store::Select`] and
//! [`log::DurableLog`]; and [`env::Env`], through which time, randomness, files and threads enter
//! every room below the server.
//!
//! Invariants: labels are sorted by name, names are unique and values non-empty; timestamps are
//! milliseconds since the Unix epoch; a staleness marker is one NaN bit pattern. Nothing here
//! knows HTTP, JSON, PromQL or a stored format, and nothing is `Serialize`. Trees of YAML with the
//! places of their parts ([`yaml`]) are here because configs and rule files are both made of them.

pub mod batch;
pub mod budget;
pub mod cancel;
pub mod columns;
pub mod damage;
pub mod env;
pub mod error;
pub mod exemplar;
pub mod fingerprint;
pub mod go_float;
pub mod histogram;
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
pub mod trace;
pub mod units;
pub mod value_set;
pub mod yaml;
