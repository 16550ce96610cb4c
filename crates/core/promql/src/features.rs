//! The optional features of the language.

/// Feature flags of PromQL. Each field is named after the feature flag of Prometheus; all are off
/// by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `promql-experimental-functions`: enables experimental functions and aggregations, such as
    /// `limitk` and `info`.
    pub experimental_functions: bool,
    /// `promql-extended-range-selectors`: enables the modifiers `anchored` and `smoothed` of
    /// selectors.
    pub extended_range_selectors: bool,
    /// `promql-binop-fill-modifiers`: enables `fill`, `fill_left` and `fill_right` in binary
    /// operations.
    pub binop_fill_modifiers: bool,
    /// `promql-duration-expr`: enables arithmetic and the functions `step()` and `range()` in
    /// durations.
    pub duration_expressions: bool,
    /// `promql-delayed-name-removal`: removes metric names at the end of the evaluation instead of
    /// in each function.
    pub delayed_name_removal: bool,
    /// `use-start-timestamps`: functions of counters use the start timestamps of samples.
    pub use_start_timestamps: bool,
    /// `type-and-unit-labels`: the labels `__type__` and `__unit__` are handled like the metric
    /// name.
    pub type_and_unit_labels: bool,
}

impl Features {
    /// Every feature of the language enabled, as the test scripts of Prometheus require.
    /// `type_and_unit_labels` is off, so that labels remain as stored.
    pub const ALL: Features = Features {
        experimental_functions: true,
        extended_range_selectors: true,
        binop_fill_modifiers: true,
        duration_expressions: true,
        delayed_name_removal: true,
        use_start_timestamps: true,
        type_and_unit_labels: false,
    };
}
