//! The actions of relabelling rules.

use std::fmt;

/// The action of a relabelling rule. In the descriptions, "value" is the joined value of the source
/// labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Writes the target label from the groups of the match.
    #[default]
    Replace,
    /// Drops label sets whose value does not match.
    Keep,
    /// Drops label sets whose value matches.
    Drop,
    /// Drops label sets whose value differs from that of the target label.
    KeepEqual,
    /// Drops label sets whose value equals that of the target label.
    DropEqual,
    /// Writes the hash of the value modulo a number.
    HashMod,
    /// Copies labels with matching names to other names.
    LabelMap,
    /// Removes labels with matching names.
    LabelDrop,
    /// Removes labels whose names do not match.
    LabelKeep,
    /// Writes the value in lower case.
    Lowercase,
    /// Writes the value in upper case.
    Uppercase,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 11] = [
        Action::Replace,
        Action::Keep,
        Action::Drop,
        Action::KeepEqual,
        Action::DropEqual,
        Action::HashMod,
        Action::LabelMap,
        Action::LabelDrop,
        Action::LabelKeep,
        Action::Lowercase,
        Action::Uppercase,
    ];

    /// Returns the name of the action in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Replace => "replace",
            Action::Keep => "keep",
            Action::Drop => "drop",
            Action::KeepEqual => "keepequal",
            Action::DropEqual => "dropequal",
            Action::HashMod => "hashmod",
            Action::LabelMap => "labelmap",
            Action::LabelDrop => "labeldrop",
            Action::LabelKeep => "labelkeep",
            Action::Lowercase => "lowercase",
            Action::Uppercase => "uppercase",
        }
    }

    /// Returns the action with this name, ignoring its case. Returns `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Action> {
        Self::ALL
            .into_iter()
            .find(|action| name.eq_ignore_ascii_case(action.as_str()))
    }

    /// Returns whether the action requires a target label.
    pub(super) fn needs_target(self) -> bool {
        matches!(
            self,
            Action::Replace
                | Action::HashMod
                | Action::Lowercase
                | Action::Uppercase
                | Action::KeepEqual
                | Action::DropEqual
        )
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
