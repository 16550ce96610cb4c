//! Features of the command line that change what a config means.

use crate::settings::{Settings, retention};
use firn_ingest::DeltaMode;
use firn_ingest::scrape::StartTimes;
use firn_promql::Features;
use std::time::Duration;

/// What features change about every job, and about expressions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobFeatures {
    /// `extra-scrape-metrics`: the default of `extra_scrape_metrics`.
    pub extra_metrics: bool,
    /// `st-storage`, `st-synthesis` and `created-timestamp-zero-ingestion`.
    pub start_times: StartTimes,
    /// `type-and-unit-labels`
    pub type_and_unit_labels: bool,
    /// `otlp-deltatocumulative` or `otlp-native-delta-ingestion`.
    pub deltas: DeltaMode,
    /// `--agent`: a config has no rules, alerts and remote reads.
    pub is_agent: bool,
    /// Switches of the language.
    pub language: Features,
    /// How long samples are kept, and how many bytes, where the config does not say.
    pub retention: (Option<Duration>, Option<u64>),
}

impl JobFeatures {
    /// Those of a command line.
    pub fn of(settings: &Settings) -> Self {
        Self {
            is_agent: settings.is_agent,
            retention: retention::of_flags(settings),
            ..Self::of_names(&settings.features)
        }
    }

    /// The features with these names; others change no job.
    pub fn of_names(names: &[String]) -> Self {
        let has = |name: &str| names.iter().any(|known| known == name);
        Self {
            extra_metrics: has("extra-scrape-metrics"),
            start_times: StartTimes {
                are_stored: has("st-storage"),
                make_zeros: has("created-timestamp-zero-ingestion"),
                are_made: has("st-synthesis"),
            },
            type_and_unit_labels: has("type-and-unit-labels"),
            deltas: match has("otlp-native-delta-ingestion") {
                true => DeltaMode::Keep,
                false if has("otlp-deltatocumulative") => DeltaMode::Accumulate,
                false => DeltaMode::Refuse,
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
