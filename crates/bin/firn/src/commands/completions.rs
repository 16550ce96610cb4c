//! The command `firn completions SHELL`: prints a script that makes a shell complete commands and
//! flags.

use crate::console;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};
use std::process::ExitCode;

/// Returns the command line of `firn completions`: its argument, the name of a shell, and help
/// texts.
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

/// Prints the completion script of `tree` and returns the exit code.
pub fn run(mut tree: Command, matches: &ArgMatches) -> ExitCode {
    let mut script = Vec::new();
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        generate(*shell, &mut tree, "firn", &mut script);
    }
    console::out(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
