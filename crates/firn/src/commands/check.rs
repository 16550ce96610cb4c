//! `firn check config FILE...` and `firn check web-config FILE...`: say what is wrong with configs
//! before a server has to. Rule files of a config are checked too; `firn check rules` is in
//! [`super::rules`], `firn check service-discovery` in [`super::service_discovery`].
//!
//! Texts and exit codes are promtool's: 0 if all files are valid, 1 if one is not.

use super::arguments::{files, paths};
use super::rules::check::{self as rules, Check};
use super::service_discovery;
use crate::console;
use crate::settings::{config, web_config};
use clap::{ArgMatches, Command};
use firn_rules::file::ReadOptions;
use std::path::Path;
use std::process::ExitCode;

/// What `firn check` understands.
pub fn command() -> Command {
    let config = Command::new("config")
        .about("Check config files as promtool does; the exit code is 1 if one is not valid")
        .arg(files("Configs in Prometheus's format"));
    let web_config = Command::new("web-config")
        .about("Check web configs as promtool does; the exit code is 1 if one is not valid")
        .arg(files("Files for --web.config.file"));
    Command::new("check")
        .about("Check files before a server reads them")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config)
        .subcommand(web_config)
        .subcommand(rules::command())
        .subcommand(service_discovery::command())
}

/// Runs `firn check`.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("rules", matches)) => return rules::run(matches),
        Some(("service-discovery", matches)) => return service_discovery::run(matches),
        _ => {}
    }
    let check = match matches.subcommand_name() {
        Some("web-config") => check_web_config,
        _ => check_config,
    };
    let mut has_failed = false;
    for file in paths(matches) {
        has_failed |= !check(&file);
    }
    ExitCode::from(u8::from(has_failed))
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

fn check_config(file: &Path) -> bool {
    console::out(&format!("Checking {}\n", file.display()));
    let features = config::JobFeatures::of_names(&[]);
    match config::load(file, features) {
        Ok(config) => {
            if let Some(missing) = config.rule_files_missing.first() {
                console::err(&format!(
                    "  FAILED: {missing:?} does not point to an existing file"
                ));
                console::out("\n");
                return false;
            }
            let count = config.rule_files.len();
            if count > 0 {
                console::out(&format!("  SUCCESS: {count} rule files found\n"));
            }
            for key in &config.ignored {
                let why = config::why_ignored(key).map_or(String::new(), |why| format!(": {why}"));
                console::out(&format!("  WARNING: {key} has no effect in Firn{why}\n"));
            }
            let file = file.display();
            console::out(&format!(
                " SUCCESS: {file} is valid prometheus config file syntax\n\n"
            ));
            let options = ReadOptions {
                ignores_unknown: false,
                names: config.names,
                features: features.language,
            };
            !Check::of_config(options)
                .files(&config.rule_files)
                .has_errors
        }
        Err(e) => {
            console::err(&format!("  FAILED: {e}"));
            console::out("\n");
            false
        }
    }
}
