//! Constructors of the rows of the table.

use crate::flags::{Apply, Flag, FlagEffect};

/// A flag that Firn acts on.
pub(super) const fn flag(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    apply: Apply,
    help: &'static str,
) -> Flag {
    Flag {
        name,
        alias: None,
        value: Some(value),
        default,
        effect: FlagEffect::Sets(apply),
        help,
    }
}

/// A switch that Firn acts on.
pub(super) const fn switch(name: &'static str, apply: Apply, help: &'static str) -> Flag {
    Flag {
        name,
        alias: None,
        value: None,
        default: "false",
        effect: FlagEffect::Sets(apply),
        help,
    }
}

/// A flag of Prometheus with a value that means nothing here.
pub(super) const fn ignored(name: &'static str, default: &'static str) -> Flag {
    Flag {
        name,
        alias: None,
        value: Some("VALUE"),
        default,
        effect: FlagEffect::Ignored,
        help: "",
    }
}

/// A switch of Prometheus that means nothing here.
pub(super) const fn ignored_switch(name: &'static str, default: &'static str) -> Flag {
    Flag {
        name,
        alias: None,
        value: None,
        default,
        effect: FlagEffect::Ignored,
        help: "",
    }
}

impl Flag {
    pub(super) const fn or(self, alias: &'static str) -> Flag {
        Flag {
            alias: Some(alias),
            ..self
        }
    }
}
