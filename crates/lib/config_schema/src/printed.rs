//! Fields of printed sections: their types, and the conditions under which they are printed.
//!
//! The tables of the fields are in the crates that read the sections; `config` prints a tree by them.

/// A field of a section: its key, its type, and the condition under which it is printed.
#[derive(Clone, Copy, Debug)]
pub struct PrintedField {
    /// Key of the field in YAML.
    pub name: &'static str,
    /// Type of the value, which determines how it is printed.
    pub kind: PrintedFieldKind,
    /// Condition under which the field is printed at all.
    pub presence: FieldPresence,
    /// Default of the field as YAML, or an empty text if it has none.
    pub default: &'static str,
}

/// Condition under which a field is printed. Follows the `omitempty` tags and the defaults of Go's
/// structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPresence {
    /// The field is printed if it is set to a nonzero value.
    IfSet,
    /// The field is printed if its value or its default is not zero.
    UnlessZero,
    /// The field is always printed, even if it is zero.
    Always,
}

/// Type of a field's value, which determines its printed form and which values are zero.
#[derive(Clone, Copy, Debug)]
pub enum PrintedFieldKind {
    /// A text.
    Text,
    /// Text that is printed in lower case.
    Lower,
    /// Path. A relative one is printed with the folder of the config prepended.
    Path,
    /// A duration in the format of Prometheus.
    Duration,
    /// A size in powers of 1024.
    Size,
    /// A boolean.
    Flag,
    /// An integer.
    Whole,
    /// A number, which may have a fraction.
    Number,
    /// A list of texts.
    Texts,
    /// A list of paths, each printed like [`PrintedFieldKind::Path`].
    Paths,
    /// Mapping from arbitrary keys to texts, sorted by key.
    TextMap,
    /// Mapping from arbitrary keys to lists of texts, sorted by key.
    ListMap,
    /// Mapping from arbitrary keys to sections, sorted by key.
    MapOf(Groups),
    /// Section that is printed with its defaults if it is not set.
    Section(Groups),
    /// Section that is omitted if it is not set, like a Go pointer.
    Pointer(Groups),
    /// List of sections, each printed with its defaults.
    List(Groups),
    /// All discoveries of a section, sorted by key.
    Discoveries,
    /// Value that is printed as it was read, without defaults.
    Loaded,
}

/// Fields of a section, in groups that several sections share, in the order of printing.
pub type Groups = &'static [&'static [PrintedField]];

/// Returns a field that is printed if it is set to a nonzero value.
pub const fn field(name: &'static str, kind: PrintedFieldKind) -> PrintedField {
    PrintedField {
        name,
        kind,
        presence: FieldPresence::IfSet,
        default: "",
    }
}

/// Returns a field that is printed unless its value or default is zero.
pub const fn with(
    name: &'static str,
    kind: PrintedFieldKind,
    default: &'static str,
) -> PrintedField {
    PrintedField {
        presence: FieldPresence::UnlessZero,
        default,
        ..field(name, kind)
    }
}

/// Returns a field that is always printed, with its default if it is not set.
pub const fn always(
    name: &'static str,
    kind: PrintedFieldKind,
    default: &'static str,
) -> PrintedField {
    PrintedField {
        presence: FieldPresence::Always,
        default,
        ..field(name, kind)
    }
}
