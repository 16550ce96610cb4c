//! The command `firn check config FILE...`: validates configs and the files that they name.
//!
//! Texts and exit codes are those of promtool: 0, 1 for errors, 3 for lint findings with
//! `--lint-fatal`. Errors are prefixed with their position, `file:line:column`.

use super::named_files;
use crate::commands::arguments::{features, files, listed, paths_of, switch};
use crate::commands::rules::check::{
    LINT_FAILED, RuleCheckOptions, RuleCheckOutcome, lint_of_names,
};
use crate::console;
use clap::{Arg, ArgMatches, Command};
use firn_config::config::{self, Config, JobFeatures};
use firn_model::names::NameScheme;
use firn_model::units::{format_duration, parse_duration};
use firn_promql::Features;
use firn_rules::file::RuleFileOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Name of the lint check that reports long scrape intervals.
const LONG_INTERVAL: &str = "too-long-scrape-interval";

/// Returns the command line of `firn check config`: arguments, flags and help texts.
pub(super) fn command() -> Command {
    let lint = Arg::new("lint")
        .long("lint")
        .value_name("CHECKS")
        .default_value("duplicate-rules")
        .help("Additional checks: all, duplicate-rules, too-long-scrape-interval or none");
    Command::new("config")
        .about(
            "Check configuration files as promtool does; the exit code is 1 if a file is not valid",
        )
        .arg(switch(
            "syntax-only",
            "Check only the syntax; do not open the files that a configuration refers to: rules, \
             targets, jobs, certificates",
        ))
        .arg(lint)
        .arg(switch(
            "lint-fatal",
            "Exit with code 3 if an additional check (lint) fails",
        ))
        .arg(switch(
            "ignore-unknown-fields",
            "Ignore unknown keys in rule files",
        ))
        .arg(switch(
            "agent",
            "Check the configuration for a server in agent mode",
        ))
        .arg(files("Configuration files in Prometheus's format"))
}

/// Returns the flag for the lookback, which is accepted before and after the subcommand, as in
/// promtool.
pub(super) fn lookback() -> Arg {
    Arg::new("query.lookback-delta")
        .long("query.lookback-delta")
        .value_name("DURATION")
        .default_value("5m")
        .global(true)
        .value_parser(|text: &str| parse_duration(text).map_err(|e| e.to_string()))
        .help(
            "Lookback of the server's queries; a scrape interval of this length or longer fails \
             the check too-long-scrape-interval",
        )
}

/// Options of the validation of configs, from the command line and the same for all files.
struct Options {
    is_syntax_only: bool,
    is_agent: bool,
    /// Scrape interval from which on lint reports a job, if that check is enabled.
    long_interval: Option<Duration>,
    finds_duplicates: bool,
    is_lint_fatal: bool,
    ignores_unknown: bool,
    language: Features,
}

impl Options {
    fn from_matches(matches: &ArgMatches) -> Self {
        let names = listed(matches, "lint");
        let lookback = matches.get_one::<Duration>("query.lookback-delta");
        let is_named = |wanted: &str| names.iter().any(|name| name == wanted);
        let is_off = is_named("none");
        let rules = names.iter().map(String::as_str);
        let rules = rules.filter(|name| !is_off && *name != LONG_INTERVAL);
        Self {
            is_syntax_only: matches.get_flag("syntax-only"),
            is_agent: matches.get_flag("agent"),
            long_interval: (!is_off && (is_named("all") || is_named(LONG_INTERVAL)))
                .then(|| lookback.copied().unwrap_or_default())
                .filter(|lookback| !lookback.is_zero()),
            finds_duplicates: lint_of_names(rules),
            is_lint_fatal: matches.get_flag("lint-fatal"),
            ignores_unknown: matches.get_flag("ignore-unknown-fields"),
            language: features(matches),
        }
    }

    /// Returns the options for rule files of a config. As in upstream's checker, UTF-8 names are
    /// allowed, whatever name scheme the config sets.
    fn rules(&self, is_of_ruler: bool, has_tenants: bool) -> RuleCheckOptions {
        let options = RuleFileOptions {
            ignores_unknown: self.ignores_unknown,
            is_of_ruler,
            has_tenants,
            names: NameScheme::Utf8,
            features: self.language,
        };
        RuleCheckOptions::for_config(options, self.finds_duplicates)
    }
}

/// Runs `firn check config` on all files of the command line and returns its exit code.
pub(super) fn run(matches: &ArgMatches) -> ExitCode {
    let options = Options::from_matches(matches);
    let mut all = RuleCheckOutcome::default();
    for file in paths_of(matches) {
        let outcome = check(&file, &options);
        all.has_failed |= outcome.has_failed;
        all.has_errors |= outcome.has_errors;
    }
    ExitCode::from(match (all.has_failed, all.has_errors) {
        (true, true) => 1,
        (true, false) if options.is_lint_fatal => LINT_FAILED,
        _ => 0,
    })
}

fn check(file: &Path, options: &Options) -> RuleCheckOutcome {
    console::out(&format!("Checking {}\n", file.display()));
    let features = JobFeatures::from_names(&[]);
    let config = match read(file, options, features) {
        Ok(config) => config,
        Err(e) => {
            console::err(&format!("  FAILED: {e}"));
            console::out("\n");
            return RuleCheckOutcome {
                has_failed: true,
                has_errors: true,
            };
        }
    };
    let rule_files = if options.is_syntax_only {
        &[]
    } else {
        config.rule_files.as_slice()
    };
    if !rule_files.is_empty() {
        let count = rule_files.len();
        console::out(&format!("  SUCCESS: {count} rule files found\n"));
    }
    for key in &config.ignored {
        console::out(&format!("  WARNING: {key} has no effect in Firn\n"));
    }
    let file = file.display();
    console::out(&format!(
        " SUCCESS: {file} is valid prometheus config file syntax\n\n"
    ));
    if options.is_syntax_only {
        return RuleCheckOutcome::default();
    }
    let has_long_interval = has_long_interval(&config, options);
    let is_edited = |path: &&PathBuf| config.namespace_of(path).is_some();
    let (edited, others): (Vec<_>, Vec<_>) = rule_files.iter().partition(is_edited);
    let mut outcome = options.rules(false, config.is_multitenant).files(&others);
    let of_edited = options.rules(true, config.is_multitenant).files(&edited);
    outcome.has_failed |= of_edited.has_failed || has_long_interval;
    outcome.has_errors |= of_edited.has_errors;
    outcome
}

/// Reads a config and checks the files that it names. The error is the text for the user.
fn read(file: &Path, options: &Options, features: JobFeatures) -> Result<Config, String> {
    let load = if options.is_syntax_only {
        config::load_alone
    } else {
        config::load
    };
    let config = load(file, features).map_err(|e| e.to_string())?;
    if options.is_agent
        && let Some(field) = config.find_agent_conflict()
    {
        return Err(format!("field {field} is not allowed in agent mode"));
    }
    if let Some(wrong) = config.rule_files_wrong.first()
        && !options.is_syntax_only
    {
        return Err(wrong.to_string());
    }
    for warning in named_files::check(&config, options.is_syntax_only)? {
        console::out(&format!("  WARNING: {warning}\n"));
    }
    Ok(config)
}

/// Reports a job whose scrape interval is so long that its samples become stale between scrapes.
/// Returns whether there is one.
fn has_long_interval(config: &Config, options: &Options) -> bool {
    let Some(long) = options.long_interval else {
        return false;
    };
    let found = config.jobs.iter().find(|job| job.interval >= long);
    if let Some(job) = found {
        console::err(&format!(
            "  FAILED: too long scrape interval found, data point will be marked as stale - job: \
             {}, interval: {}",
            job.name,
            format_duration(job.interval)
        ));
    }
    found.is_some()
}
