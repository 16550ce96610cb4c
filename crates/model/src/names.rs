//! Which names labels and metrics may have.

/// Which names labels and metrics may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameScheme {
    /// Letters, digits and underscores, not starting with a digit.
    Legacy,
    /// Any text.
    #[default]
    Utf8,
}

impl NameScheme {
    /// Whether a label may have this name.
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

    /// Whether a metric may have this name.
    pub fn allows_metric(self, name: &str) -> bool {
        match self {
            NameScheme::Utf8 => !name.is_empty(),
            NameScheme::Legacy => self.allows_label(&name.replace(':', "_")),
        }
    }
}
