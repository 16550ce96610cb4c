//! The permitted names of labels and metrics.

/// The rule for valid names of labels and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameScheme {
    /// Only letters, digits and underscores are valid, and the first character must not be a digit.
    Legacy,
    /// Any text except the empty one is valid, as in Prometheus since version 3.
    #[default]
    Utf8,
}

impl NameScheme {
    /// Returns whether the label name is valid under this rule.
    pub fn allows_label(self, name: &str) -> bool {
        match self {
            NameScheme::Utf8 => !name.is_empty(),
            NameScheme::Legacy => {
                let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
                name.bytes().all(is_word)
                    && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
            }
        }
    }

    /// Returns whether the metric name is valid. Colons are valid in both schemes.
    pub fn allows_metric(self, name: &str) -> bool {
        match self {
            NameScheme::Utf8 => !name.is_empty(),
            NameScheme::Legacy => self.allows_label(&name.replace(':', "_")),
        }
    }
}
