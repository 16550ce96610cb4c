//! What a relabelling rule can do.

use std::fmt;

/// What a rule does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Writes the target label from the groups of the match.
    #[default]
    Replace,
    /// Drops label sets whose value does not match.
    Keep,
    /// Drops label sets whose value matches.
    Drop,
    /// Drops label sets whose value is not that of the target label.
    KeepEqual,
    /// Drops label sets whose value is that of the target label.
    DropEqual,
    /// Writes the value's hash modulo a number.
    HashMod,
    /// Copies labels whose names match to other names.
    LabelMap,
    /// Removes labels whose names match.
    LabelDrop,
    /// Removes labels whose names do not match.
    LabelKeep,
    /// Writes the value in small letters.
    Lowercase,
    /// Writes the value in capitals.
    Uppercase,
}

impl Action {
    /// Every action.
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

    /// Its name in a config.
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

    /// The action with this name, however it is capitalised.
    pub fn from_name(name: &str) -> Option<Action> {
        Self::ALL
            .into_iter()
            .find(|action| name.eq_ignore_ascii_case(action.as_str()))
    }

    /// Whether a rule makes no sense without a target label.
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
