//! The command `firn check`: validates files before a server loads them, and queries the state of
//! servers.
//!
//! `check config` is in [`config`], `firn check rules` in [`super::rules`], and `firn check
//! service-discovery` in [`super::service_discovery`]. Texts and exit codes are those of promtool:
//! 0 if everything is valid, 1 if not.

mod config;
mod metrics;
mod named_files;
mod server;

use super::arguments::{NOT_UNDERSTOOD, files, paths_of};
use super::rules::check as rules;
use super::service_discovery;
use crate::console;
use clap::{ArgMatches, Command};
use firn_config::web_config;
use std::path::Path;
use std::process::ExitCode;

/// Returns the command line of `firn check` with its subcommands: arguments, flags and help texts.
pub fn command() -> Command {
    let web_config = Command::new("web-config")
        .about(
            "Check web configuration files as promtool does; the exit code is 1 if a file is not \
             valid",
        )
        .arg(files("Files for --web.config.file"));
    Command::new("check")
        .about("Check files before a server loads them")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(config::lookback())
        .subcommand(config::command())
        .subcommand(web_config)
        .subcommand(rules::command())
        .subcommand(service_discovery::command())
        .subcommand(metrics::command())
        .subcommands(server::commands())
}

/// Runs the subcommand of `firn check` in `matches` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("config", matches)) => config::run(matches),
        Some(("metrics", matches)) => metrics::run(matches),
        Some((name @ ("healthy" | "ready"), matches)) => server::run(name, matches),
        Some(("rules", matches)) => rules::run(matches),
        Some(("service-discovery", matches)) => service_discovery::run(matches),
        Some((_, matches)) => {
            let mut has_failed = false;
            for file in paths_of(matches) {
                has_failed |= !check_web_config(&file);
            }
            ExitCode::from(u8::from(has_failed))
        }
        None => ExitCode::from(NOT_UNDERSTOOD),
    }
}

fn check_web_config(file: &Path) -> bool {
    let name = file.display();
    match web_config::check(file) {
        Ok(config) => {
            for warning in &config.warnings {
                console::err(&format!("{name} WARNING: {warning}"));
            }
            console::err(&format!("{name} SUCCESS"));
            true
        }
        Err(e) => {
            console::err(&format!("{name} FAILED: {e}"));
            false
        }
    }
}
