//! Top level of the table of the keys of a config: those of Prometheus 3.14, and Firn's own under
//! `firn`. The keys of a section are in the file of its reader.
//!
//! The keys have the order in which Prometheus prints them. The tables follow Prometheus's
//! `config/config.go` and its libraries for HTTP clients and signing.

use super::{alerting, firn, global, jobs, otlp, remote_read, remote_write, storage, tracing};
use ConfigValueShape::{Integer, List, Section};
use KeyPrinting::{AsWritten, UnlessZero};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyGroups, KeyPrinting, PATHS, key};

/// Shape of the whole config file.
pub const CONFIG: ConfigValueShape = Section(KEYS);

/// Keys of the whole config file, including the section `firn`.
pub const KEYS: KeyGroups = &[&[
    key("global", Section(&[global::KEYS])).printed(UnlessZero),
    key("runtime", Section(&[&[key("gogc", Integer).or("75")]]))
        .printed(UnlessZero)
        .ignored(),
    key("alerting", Section(&[alerting::KEYS])),
    key("rule_files", PATHS),
    key("scrape_config_files", PATHS),
    JOBS,
    key("storage", Section(&[storage::KEYS])).printed(UnlessZero),
    key("tracing", Section(&[tracing::KEYS])),
    key("remote_write", List(&Section(remote_write::KEYS))),
    key("remote_read", List(&Section(remote_read::KEYS))),
    key("otlp", Section(&[otlp::KEYS])).printed(UnlessZero),
    key("firn", Section(&[firn::KEYS])).printed(AsWritten),
]];

/// Keys of a scrape config file, which contains only jobs.
pub const JOB_FILE: KeyGroups = &[&[JOBS]];

const JOBS: ConfigKey = key("scrape_configs", List(&Section(jobs::KEYS)));
