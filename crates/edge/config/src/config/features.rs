//! Features of the command line that affect the meaning of a config.

use crate::{Settings, retention};
use firn_ingest::DeltaMode;
use firn_promql::Features;
use firn_scrape::StartTimeSettings;
use std::time::Duration;

/// Effects of features and flags on the jobs and expressions of a config, the same for every
/// reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobFeatures {
    /// `extra-scrape-metrics`: default of the key `extra_scrape_metrics` of jobs.
    pub extra_metrics: bool,
    /// `st-storage`, `st-synthesis` and `created-timestamp-zero-ingestion`: how start timestamps of
    /// samples are used.
    pub start_times: StartTimeSettings,
    /// `type-and-unit-labels`: whether scraped samples get the labels `__type__` and `__unit__`.
    pub type_and_unit_labels: bool,
    /// `otlp-deltatocumulative` or `otlp-native-delta-ingestion`: how OTLP metrics with delta
    /// temporality are stored.
    pub deltas: DeltaMode,
    /// `--agent`: the config must not contain rules, alerting or remote reads.
    pub is_agent: bool,
    /// Optional features of PromQL, for the expressions of rules.
    pub language: Features,
    /// Retention by time and by bytes from flags, for configs that set none.
    pub retention: (Option<Duration>, Option<u64>),
}

impl JobFeatures {
    /// Returns the features and flags of a command line that affect configs.
    pub fn from_command_line(settings: &Settings) -> Self {
        Self {
            is_agent: settings.is_agent,
            retention: retention::limits_from_flags(settings),
            ..Self::from_names(&settings.features)
        }
    }

    /// Returns the features with these names. Other names have no effect on jobs.
    pub fn from_names(names: &[String]) -> Self {
        let has = |name: &str| names.iter().any(|known| known == name);
        Self {
            extra_metrics: has("extra-scrape-metrics"),
            start_times: StartTimeSettings {
                are_stored: has("st-storage"),
                make_zeros: has("created-timestamp-zero-ingestion"),
                are_made: has("st-synthesis"),
            },
            type_and_unit_labels: has("type-and-unit-labels"),
            deltas: if has("otlp-native-delta-ingestion") {
                DeltaMode::Keep
            } else if has("otlp-deltatocumulative") {
                DeltaMode::Accumulate
            } else {
                DeltaMode::Refuse
            },
            is_agent: false,
            language: Features {
                duration_expressions: true,
                experimental_functions: has("promql-experimental-functions"),
                extended_range_selectors: has("promql-extended-range-selectors"),
                binop_fill_modifiers: has("promql-binop-fill-modifiers"),
                delayed_name_removal: has("promql-delayed-name-removal"),
                use_start_timestamps: has("use-start-timestamps"),
                type_and_unit_labels: has("type-and-unit-labels"),
            },
            retention: (Some(retention::DEFAULT), None),
        }
    }
}
