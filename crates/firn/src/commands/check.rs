//! `firn check config FILE...`: says what is wrong with configs before a server has to.
//!
//! Texts and exit codes are promtool's: 0 if all files are valid, 1 if one is not.

use super::arguments::{files, paths};
use crate::console;
use crate::settings::config;
use clap::{ArgMatches, Command};
use std::path::Path;
use std::process::ExitCode;

/// What `firn check` understands.
pub fn command() -> Command {
    let config = Command::new("config")
        .about("Check config files as promtool does; the exit code is 1 if one is not valid")
        .arg(files("Configs in Prometheus's format"));
    Command::new("check")
        .about("Check files before a server reads them")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config)
}

/// Runs `firn check`.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let mut has_failed = false;
    for file in paths(matches) {
        has_failed |= !check_config(&file);
    }
    ExitCode::from(u8::from(has_failed))
}

fn check_config(file: &Path) -> bool {
    console::out(&format!("Checking {}\n", file.display()));
    let is_valid = match config::load(file, config::JobFeatures::default()) {
        Ok(config) => {
            for key in &config.ignored {
                let why = config::why_ignored(key).map_or(String::new(), |why| format!(": {why}"));
                console::out(&format!("  WARNING: {key} has no effect in Firn{why}\n"));
            }
            let file = file.display();
            console::out(&format!(
                " SUCCESS: {file} is valid prometheus config file syntax\n"
            ));
            true
        }
        Err(e) => {
            console::err(&format!("  FAILED: {e}"));
            false
        }
    };
    console::out("\n");
    is_valid
}
