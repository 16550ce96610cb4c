//! The `firn` binary: settings, wiring and subcommands. No logic.

fn main() {}
