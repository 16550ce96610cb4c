//! The switches of the language.

/// Language switches, named as upstream's feature flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `promql-experimental-functions`
    pub experimental_functions: bool,
    /// `promql-extended-range-selectors`
    pub extended_range_selectors: bool,
    /// `promql-binop-fill-modifiers`
    pub binop_fill_modifiers: bool,
    /// `promql-duration-expr`
    pub duration_expressions: bool,
    /// `promql-delayed-name-removal`
    pub delayed_name_removal: bool,
    /// `use-start-timestamps`
    pub use_start_timestamps: bool,
    /// `type-and-unit-labels`
    pub type_and_unit_labels: bool,
}

impl Features {
    /// Every switch of the language on, as upstream's test scripts expect; labels stay as stored.
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
