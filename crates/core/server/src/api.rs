//! Handlers of the HTTP endpoints, grouped by topic, and their common parts: the [`call`], its
//! parameters ([`form`], [`times`]), and the documents of an [`answer`].
//!
//! Paths, parameters, fields and messages are Prometheus's; a test compares them with recorded
//! responses.

pub(crate) mod access;
pub(crate) mod admin;
pub(crate) mod alertmanagers;
mod answer;
pub(crate) mod blocks;
pub(crate) mod call;
pub(crate) mod cardinality;
pub(crate) mod cluster;
pub(crate) mod consoles;
pub(crate) mod deletion;
pub(crate) mod discards;
pub(crate) mod exemplars;
pub(crate) mod features;
pub(crate) mod federate;
mod form;
pub(crate) mod import;
pub(crate) mod metadata;
pub(crate) mod notifications;
pub(crate) mod operations;
pub(crate) mod origin;
pub(crate) mod otlp;
pub(crate) mod page;
mod plan;
pub(crate) mod queries;
pub(crate) mod query;
pub(crate) mod read;
mod refusals;
pub(crate) mod relabeling;
pub(crate) mod rule_editor;
pub(crate) mod rule_preview;
pub(crate) mod rules;
pub(crate) mod search;
pub(crate) mod self_metrics;
pub(crate) mod series;
pub(crate) mod status;
pub(crate) mod targets;
mod times;
pub(crate) mod usage;
pub(crate) mod user_assets;
pub(crate) mod write;
