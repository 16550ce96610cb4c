//! The `firn` binary: settings, wiring and subcommands. No logic.
//!
//! Invariant: this room alone reads flags, files and the environment and installs signal handlers;
//! what it reads it hands to the others as values.

mod check;
mod config;
mod console;
mod documentation;
mod flags;
mod logs;
mod memory;
mod serve;
mod settings;
mod units;

use std::ffi::OsString;
use std::process::ExitCode;

/// The version of Prometheus whose behaviour this version of Firn has.
const PROMETHEUS_VERSION: &str = "3.14.0";

const USAGE: &str = "\
Usage: firn COMMAND

Commands:
  serve          take writes and answer queries (firn serve --help)
  check config   check config files
  --version      print the version
  --help         print this
";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        console::err(USAGE.trim_end());
        return ExitCode::from(2);
    };
    match command.to_str().unwrap_or_default() {
        "check" => check::run(rest),
        "serve" => serve::run(rest),
        "help" | "--help" | "-h" => {
            console::out(USAGE);
            ExitCode::SUCCESS
        }
        "version" | "--version" | "-V" => {
            let version = env!("CARGO_PKG_VERSION");
            console::out(&format!(
                "firn {version} (compatible with Prometheus {PROMETHEUS_VERSION})\n"
            ));
            ExitCode::SUCCESS
        }
        other => {
            console::err(&format!(
                "firn: unknown command {other:?}\n\n{}",
                USAGE.trim_end()
            ));
            ExitCode::from(2)
        }
    }
}
