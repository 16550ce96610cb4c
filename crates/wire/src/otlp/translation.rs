//! How names and attributes become labels: the section `otlp` of a config.

use std::collections::BTreeSet;

/// What is done to names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Characters that old names cannot have become underscores; unit and type are added.
    #[default]
    UnderscoreEscapingWithSuffixes,
    /// Characters that old names cannot have become underscores.
    UnderscoreEscapingWithoutSuffixes,
    /// Unit and type are added.
    NoUtf8EscapingWithSuffixes,
    /// Names stay as they are.
    NoTranslation,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 4] = [
        Strategy::UnderscoreEscapingWithSuffixes,
        Strategy::UnderscoreEscapingWithoutSuffixes,
        Strategy::NoUtf8EscapingWithSuffixes,
        Strategy::NoTranslation,
    ];

    /// What a config calls it.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::UnderscoreEscapingWithSuffixes => "UnderscoreEscapingWithSuffixes",
            Strategy::UnderscoreEscapingWithoutSuffixes => "UnderscoreEscapingWithoutSuffixes",
            Strategy::NoUtf8EscapingWithSuffixes => "NoUTF8EscapingWithSuffixes",
            Strategy::NoTranslation => "NoTranslation",
        }
    }

    /// Whether names get along without UTF-8.
    pub fn escapes(self) -> bool {
        matches!(
            self,
            Strategy::UnderscoreEscapingWithSuffixes | Strategy::UnderscoreEscapingWithoutSuffixes
        )
    }

    /// Whether unit and type are added to names of metrics.
    pub fn adds_suffixes(self) -> bool {
        matches!(
            self,
            Strategy::UnderscoreEscapingWithSuffixes | Strategy::NoUtf8EscapingWithSuffixes
        )
    }
}

/// Which attributes of a resource become labels of its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// These.
    Only(BTreeSet<String>),
    /// All but these.
    AllBut(BTreeSet<String>),
}

impl Default for Promotion {
    fn default() -> Self {
        Promotion::Only(BTreeSet::new())
    }
}

impl Promotion {
    /// Whether the attribute `key` does.
    pub fn takes(&self, key: &str) -> bool {
        match self {
            Promotion::Only(keys) => keys.contains(key),
            Promotion::AllBut(keys) => !keys.contains(key),
        }
    }
}

/// How metrics become series. The default is upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// `translation_strategy`
    pub strategy: Strategy,
    /// `promote_resource_attributes`, `promote_all_resource_attributes` and
    /// `ignore_resource_attributes`
    pub promotion: Promotion,
    /// `keep_identifying_resource_attributes`: `target_info` has those too that are in `job` and
    /// `instance`.
    pub keeps_identifying: bool,
    /// `convert_histograms_to_nhcb`: explicit buckets become native ones.
    pub converts_histograms: bool,
    /// `promote_scope_metadata`: what is known of a scope becomes labels.
    pub promotes_scope: bool,
    /// `label_name_underscore_sanitization`: `key` stands before names of labels with an
    /// underscore in front, where names are escaped.
    pub sanitizes_underscores: bool,
    /// `label_name_preserve_multiple_underscores`: underscores one behind the other stay, where
    /// names are escaped.
    pub preserves_underscores: bool,
}

impl Default for Translation {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            promotion: Promotion::default(),
            keeps_identifying: false,
            converts_histograms: false,
            promotes_scope: false,
            // As releases did that had no such switches.
            sanitizes_underscores: true,
            preserves_underscores: true,
        }
    }
}
