//! `firn completions SHELL`: the script by which a shell completes commands and flags.

use crate::console;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};
use std::process::ExitCode;

/// What `firn completions` understands.
pub fn command() -> Command {
    Command::new("completions")
        .about("Print a shell script that completes commands and flags")
        .after_help(
            "For bash: firn completions bash > ~/.local/share/bash-completion/completions/firn",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell)),
        )
}

/// Prints the completions of `tree`.
pub fn run(mut tree: Command, matches: &ArgMatches) -> ExitCode {
    let mut script = Vec::new();
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        generate(*shell, &mut tree, "firn", &mut script);
    }
    console::out(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
