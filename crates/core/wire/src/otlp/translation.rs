//! The `otlp` section of the configuration: how metric names and attributes become series names and
//! labels.

use std::collections::BTreeSet;

/// Translation of metric and label names, with the values of the `translation_strategy` setting.
/// The default is that of upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TranslationStrategy {
    /// Replaces characters outside the legacy character set by underscores; adds suffixes for unit
    /// and type.
    #[default]
    UnderscoreEscapingWithSuffixes,
    /// Replaces characters outside the legacy character set by underscores.
    UnderscoreEscapingWithoutSuffixes,
    /// Adds suffixes for unit and type, without escaping.
    NoUtf8EscapingWithSuffixes,
    /// Keeps names unchanged, without escaping or suffixes.
    NoTranslation,
}

impl TranslationStrategy {
    /// All strategies.
    pub const ALL: [TranslationStrategy; 4] = [
        TranslationStrategy::UnderscoreEscapingWithSuffixes,
        TranslationStrategy::UnderscoreEscapingWithoutSuffixes,
        TranslationStrategy::NoUtf8EscapingWithSuffixes,
        TranslationStrategy::NoTranslation,
    ];

    /// Returns the name of the strategy in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            TranslationStrategy::UnderscoreEscapingWithSuffixes => "UnderscoreEscapingWithSuffixes",
            TranslationStrategy::UnderscoreEscapingWithoutSuffixes => {
                "UnderscoreEscapingWithoutSuffixes"
            }
            TranslationStrategy::NoUtf8EscapingWithSuffixes => "NoUTF8EscapingWithSuffixes",
            TranslationStrategy::NoTranslation => "NoTranslation",
        }
    }

    /// Returns whether names are restricted to the legacy character set. Quoted names are needed
    /// otherwise.
    pub fn is_escaping(self) -> bool {
        matches!(
            self,
            TranslationStrategy::UnderscoreEscapingWithSuffixes
                | TranslationStrategy::UnderscoreEscapingWithoutSuffixes
        )
    }

    /// Returns whether metric names get suffixes for unit and type. Without them, metrics that
    /// differ in unit only get the same name.
    pub fn has_suffixes(self) -> bool {
        matches!(
            self,
            TranslationStrategy::UnderscoreEscapingWithSuffixes
                | TranslationStrategy::NoUtf8EscapingWithSuffixes
        )
    }
}

/// The attributes of a resource that become labels of its series; none by default. The job and
/// instance labels do not depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributePromotion {
    /// Only the attributes with these keys become labels.
    Only(BTreeSet<String>),
    /// All attributes except for those with these keys.
    AllBut(BTreeSet<String>),
}

impl Default for AttributePromotion {
    fn default() -> Self {
        AttributePromotion::Only(BTreeSet::new())
    }
}

impl AttributePromotion {
    /// Returns whether the attribute `key` becomes a label. Keys are compared before translation.
    pub fn is_promoted(&self, key: &str) -> bool {
        match self {
            AttributePromotion::Only(keys) => keys.contains(key),
            AttributePromotion::AllBut(keys) => !keys.contains(key),
        }
    }
}

/// Options of the translation from metrics to series, from the `otlp` section of the configuration.
/// The default equals upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpTranslation {
    /// Translation of names: `translation_strategy`.
    pub strategy: TranslationStrategy,
    /// Promoted resource attributes: `promote_resource_attributes`,
    /// `promote_all_resource_attributes` and `ignore_resource_attributes`.
    pub promotion: AttributePromotion,
    /// `keep_identifying_resource_attributes`: `target_info` also contains the attributes that make
    /// up `job` and `instance`.
    pub keeps_identifying: bool,
    /// `convert_histograms_to_nhcb`: explicit histograms become native ones with custom buckets.
    pub converts_histograms: bool,
    /// `promote_scope_metadata`: name, version, schema URL and attributes of the scope become
    /// labels.
    pub promotes_scope: bool,
    /// `label_name_underscore_sanitization`: label names with a leading underscore get the prefix
    /// `key`, if names are escaped.
    pub sanitizes_underscores: bool,
    /// `label_name_preserve_multiple_underscores`: consecutive underscores are kept, if names are
    /// escaped.
    pub preserves_underscores: bool,
}

impl Default for OtlpTranslation {
    fn default() -> Self {
        Self {
            strategy: TranslationStrategy::default(),
            promotion: AttributePromotion::default(),
            keeps_identifying: false,
            converts_histograms: false,
            promotes_scope: false,
            // Like releases without these two options.
            sanitizes_underscores: true,
            preserves_underscores: true,
        }
    }
}
