//! The features of `--enable-feature`: one [table](FEATURES), with one row per feature.
//!
//! The help of the flag, its documentation, the warnings at the start, the settings of jobs and
//! expressions, and the list of `/api/v1/features` are made from the table. A name that is not in
//! it is unknown: the server logs a warning and starts.
//!
//! Invariant: the rows have the order of [`Feature`], which the compiler checks.

use crate::Settings;
use FeatureEffect::{AlwaysEnabled, Deprecated, Obsolete, Server, SetsConfig};
use firn_ingest::DeltaMode;
use firn_promql::Features;
use firn_scrape::StartTimeSettings;
use std::time::Duration;

/// A name that `--enable-feature` accepts. [`FEATURES`] describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `promql-experimental-functions`
    ExperimentalFunctions,
    /// `promql-extended-range-selectors`
    ExtendedRangeSelectors,
    /// `promql-binop-fill-modifiers`
    FillModifiers,
    /// `promql-delayed-name-removal`
    DelayedNameRemoval,
    /// `use-start-timestamps`
    UseStartTimestamps,
    /// `type-and-unit-labels`
    TypeAndUnitLabels,
    /// `promql-per-step-stats`
    PerStepStats,
    /// `search-api`
    SearchApi,
    /// `exemplar-storage`
    ExemplarStorage,
    /// `extra-scrape-metrics`
    ExtraScrapeMetrics,
    /// `st-storage`
    StartTimeStorage,
    /// `st-synthesis`
    StartTimeSynthesis,
    /// `created-timestamp-zero-ingestion`
    StartTimeZeroSamples,
    /// `otlp-deltatocumulative`
    DeltaToCumulative,
    /// `otlp-native-delta-ingestion`
    NativeDeltaIngestion,
    /// `auto-reload-config`
    AutoReload,
    /// `promql-duration-expr`
    DurationExpressions,
    /// `native-histograms`
    NativeHistograms,
    /// `ooo-native-histograms`
    LateNativeHistograms,
    /// `concurrent-rule-eval`
    ConcurrentRules,
}

/// Effect of an enabled feature.
#[derive(Clone, Copy, Debug)]
pub enum FeatureEffect {
    /// It changes the settings of jobs and expressions, by this function.
    SetsConfig(fn(&mut JobFeatures)),
    /// The start of the server reads it with [`Settings::has_feature`].
    Server,
    /// Like [`FeatureEffect::Server`], but the flag with this name replaces it.
    Deprecated(&'static str),
    /// None: Firn always does this.
    AlwaysEnabled,
    /// None, as in Prometheus 3.14, which always does this or reads it from the config.
    Obsolete,
}

/// One feature, as a row of [`FEATURES`].
#[derive(Clone, Copy, Debug)]
pub struct FeatureRow {
    /// Feature that the row describes.
    pub feature: Feature,
    /// Name on the command line.
    pub name: &'static str,
    /// Effect on the server.
    pub effect: FeatureEffect,
    /// Description for the documentation; empty for a feature without effect.
    pub help: &'static str,
    /// Category and name in `/api/v1/features`, if Prometheus lists the feature there.
    pub listed_as: Option<(&'static str, &'static str)>,
    /// True if `/api/v1/features` omits the feature while it is disabled.
    pub is_omitted_if_disabled: bool,
    /// True if the subcommands accept the feature, as promtool does.
    pub is_for_commands: bool,
}

impl FeatureRow {
    const fn listed_as(self, category: &'static str, name: &'static str) -> Self {
        Self {
            listed_as: Some((category, name)),
            ..self
        }
    }

    const fn omitted_if_disabled(self) -> Self {
        Self {
            is_omitted_if_disabled: true,
            ..self
        }
    }

    const fn for_commands(self) -> Self {
        Self {
            is_for_commands: true,
            ..self
        }
    }
}

const fn row(
    feature: Feature,
    name: &'static str,
    effect: FeatureEffect,
    help: &'static str,
) -> FeatureRow {
    FeatureRow {
        feature,
        name,
        effect,
        help,
        listed_as: None,
        is_omitted_if_disabled: false,
        is_for_commands: false,
    }
}

/// All features that Firn accepts by name, those with an effect first.
pub const FEATURES: [FeatureRow; 20] = [
    row(
        Feature::ExperimentalFunctions,
        "promql-experimental-functions",
        SetsConfig(|features| features.language.experimental_functions = true),
        "Enables the experimental functions and aggregations of PromQL, such as `limitk` and \
         `info`.",
    )
    .for_commands(),
    row(
        Feature::ExtendedRangeSelectors,
        "promql-extended-range-selectors",
        SetsConfig(|features| features.language.extended_range_selectors = true),
        "Enables the modifiers `anchored` and `smoothed` of selectors.",
    )
    .for_commands(),
    row(
        Feature::FillModifiers,
        "promql-binop-fill-modifiers",
        SetsConfig(|features| features.language.binop_fill_modifiers = true),
        "Enables `fill`, `fill_left` and `fill_right` in binary operations.",
    )
    .for_commands(),
    row(
        Feature::DelayedNameRemoval,
        "promql-delayed-name-removal",
        SetsConfig(|features| features.language.delayed_name_removal = true),
        "Removes metric names at the end of the evaluation instead of in each function.",
    )
    .for_commands(),
    row(
        Feature::UseStartTimestamps,
        "use-start-timestamps",
        SetsConfig(|features| features.language.use_start_timestamps = true),
        "Uses the start times of samples in functions of counters, such as `rate`.",
    ),
    row(
        Feature::TypeAndUnitLabels,
        "type-and-unit-labels",
        SetsConfig(|features| {
            features.type_and_unit_labels = true;
            features.language.type_and_unit_labels = true;
        }),
        "Adds the labels `__type__` and `__unit__` to ingested series; queries handle them like \
         the metric name.",
    )
    .listed_as("scrape", "type_and_unit_labels"),
    row(
        Feature::PerStepStats,
        "promql-per-step-stats",
        Server,
        "Adds the number of samples of each step to the statistics of a query.",
    ),
    row(
        Feature::SearchApi,
        "search-api",
        Server,
        "Enables the search API, `/api/v1/search/...`.",
    ),
    row(
        Feature::ExemplarStorage,
        "exemplar-storage",
        Server,
        "Stores exemplars, up to `storage.exemplars.max_exemplars`; query them with \
         `/api/v1/query_exemplars`.",
    )
    .listed_as("tsdb", "exemplar_storage"),
    row(
        Feature::ExtraScrapeMetrics,
        "extra-scrape-metrics",
        SetsConfig(|features| features.extra_metrics = true),
        "Sets `extra_scrape_metrics` for all jobs.",
    ),
    row(
        Feature::StartTimeStorage,
        "st-storage",
        SetsConfig(|features| features.start_times.are_stored = true),
        "Stores start times with their samples.",
    )
    .listed_as("tsdb", "st_storage"),
    row(
        Feature::StartTimeSynthesis,
        "st-synthesis",
        SetsConfig(|features| features.start_times.are_made = true),
        "Derives start times for counters, histograms and summaries without one.",
    )
    .listed_as("scrape", "st-synthesis")
    .omitted_if_disabled(),
    row(
        Feature::StartTimeZeroSamples,
        "created-timestamp-zero-ingestion",
        SetsConfig(|features| features.start_times.make_zeros = true),
        "Stores a sample of zero at each start time.",
    )
    .listed_as("scrape", "start_timestamp_zero_ingestion"),
    row(
        Feature::DeltaToCumulative,
        "otlp-deltatocumulative",
        SetsConfig(|features| features.deltas = DeltaMode::Accumulate),
        "Adds up the points of OTLP metrics with delta temporality.",
    )
    .listed_as("otlp_receiver", "delta_conversion"),
    row(
        Feature::NativeDeltaIngestion,
        "otlp-native-delta-ingestion",
        SetsConfig(|features| features.deltas = DeltaMode::Keep),
        "Stores the points of OTLP metrics with delta temporality as they are.",
    )
    .listed_as("otlp_receiver", "native_delta_ingestion"),
    row(
        Feature::AutoReload,
        "auto-reload-config",
        Deprecated("config.auto-reload"),
        "",
    ),
    row(
        Feature::DurationExpressions,
        "promql-duration-expr",
        Obsolete,
        "",
    )
    .for_commands(),
    row(Feature::NativeHistograms, "native-histograms", Obsolete, ""),
    row(
        Feature::LateNativeHistograms,
        "ooo-native-histograms",
        Obsolete,
        "",
    ),
    row(
        Feature::ConcurrentRules,
        "concurrent-rule-eval",
        AlwaysEnabled,
        "",
    ),
];

const _: () = {
    let mut index = 0;
    while index < FEATURES.len() {
        assert!(FEATURES[index].feature as usize == index);
        index += 1;
    }
};

impl Feature {
    /// Returns the row of the feature.
    pub fn row(self) -> &'static FeatureRow {
        &FEATURES[self as usize]
    }

    /// Returns the row of the feature with this name on the command line, if there is one.
    pub fn row_of(name: &str) -> Option<&'static FeatureRow> {
        FEATURES.iter().find(|row| row.name == name)
    }
}

/// Returns the names of the features that the documentation lists, separated by commas.
pub(crate) fn documented_names() -> String {
    let names: Vec<_> = documented().map(|row| row.name).collect();
    names.join(", ")
}

/// Returns the documented features as a Markdown list.
pub fn documentation() -> String {
    documented()
        .map(|row| format!("- `{}`: {}\n", row.name, row.help))
        .collect()
}

fn documented() -> impl Iterator<Item = &'static FeatureRow> {
    FEATURES.iter().filter(|row| !row.help.is_empty())
}

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
            retention: settings.retention_limits(),
            ..Self::from_names(&settings.features)
        }
    }

    /// Returns the features with these names. Other names have no effect on jobs.
    pub fn from_names(names: &[String]) -> Self {
        let mut features = Self {
            language: Features {
                duration_expressions: true,
                ..Features::default()
            },
            retention: Settings::default().retention_limits(),
            ..Self::default()
        };
        for row in FEATURES.iter().filter(|row| is_named(names, row)) {
            if let SetsConfig(set) = row.effect {
                set(&mut features);
            }
        }
        features
    }
}

impl Settings {
    /// Returns whether the command line enables a feature.
    pub fn has_feature(&self, feature: Feature) -> bool {
        is_named(&self.features, feature.row())
    }
}

fn is_named(names: &[String], row: &FeatureRow) -> bool {
    names.iter().any(|name| name == row.name)
}
