//! The actions of relabelling rules.

use std::fmt;

/// The action of a relabelling rule. In the descriptions, "value" is the joined value of the source
/// labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelabelAction {
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

impl RelabelAction {
    /// All actions.
    pub const ALL: [RelabelAction; 11] = [
        RelabelAction::Replace,
        RelabelAction::Keep,
        RelabelAction::Drop,
        RelabelAction::KeepEqual,
        RelabelAction::DropEqual,
        RelabelAction::HashMod,
        RelabelAction::LabelMap,
        RelabelAction::LabelDrop,
        RelabelAction::LabelKeep,
        RelabelAction::Lowercase,
        RelabelAction::Uppercase,
    ];

    /// Returns the name of the action in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            RelabelAction::Replace => "replace",
            RelabelAction::Keep => "keep",
            RelabelAction::Drop => "drop",
            RelabelAction::KeepEqual => "keepequal",
            RelabelAction::DropEqual => "dropequal",
            RelabelAction::HashMod => "hashmod",
            RelabelAction::LabelMap => "labelmap",
            RelabelAction::LabelDrop => "labeldrop",
            RelabelAction::LabelKeep => "labelkeep",
            RelabelAction::Lowercase => "lowercase",
            RelabelAction::Uppercase => "uppercase",
        }
    }

    /// Returns the action with this name, ignoring its case. Returns `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<RelabelAction> {
        Self::ALL
            .into_iter()
            .find(|action| name.eq_ignore_ascii_case(action.as_str()))
    }

    /// Returns whether the action requires a target label.
    pub(super) fn needs_target(self) -> bool {
        matches!(
            self,
            RelabelAction::Replace
                | RelabelAction::HashMod
                | RelabelAction::Lowercase
                | RelabelAction::Uppercase
                | RelabelAction::KeepEqual
                | RelabelAction::DropEqual
        )
    }
}

impl fmt::Display for RelabelAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
