//! `firn check rules [FILE...]`: checks rule files, or one from standard input. Exit codes: 0 for
//! valid files, 1 for errors, 3 for lint with `--lint-fatal`.

use super::{FAILED, existing_files, files, read_options, read_rules, shared_argument};
use crate::commands::arguments::{listed, switch};
use crate::console;
use clap::{Arg, ArgMatches, Command};
use firn_rules::file::{RuleFile, RuleFileOptions, find_duplicates, parse};
use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// The exit code of files that only lint has something to say of.
pub(in crate::commands) const LINT_FAILED: u8 = 3;

/// What `firn check rules` understands.
pub(in crate::commands) fn command() -> Command {
    let lint = Arg::new("lint")
        .long("lint")
        .value_name("CHECKS")
        .default_value("duplicate-rules")
        .help("Additional checks: all, duplicate-rules or none");
    Command::new("rules")
        .about("Check rule files as promtool does")
        .arg(lint)
        .arg(switch(
            "lint-fatal",
            "Exit with code 3 if an additional check (lint) fails",
        ))
        .arg(shared_argument())
        .arg(files(
            false,
            "Rule files; without files, standard input is read",
        ))
}

/// How a check goes.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct RuleCheckOptions {
    options: RuleFileOptions,
    finds_duplicates: bool,
}

/// What became of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct RuleCheckOutcome {
    /// Whether anything is wrong.
    pub(in crate::commands) has_failed: bool,
    /// Whether something is wrong that is not lint's business alone.
    pub(in crate::commands) has_errors: bool,
}

/// Runs `firn check rules`.
pub(in crate::commands) fn run(matches: &ArgMatches) -> ExitCode {
    let files = match existing_files(matches) {
        Ok(files) => files,
        Err(code) => return ExitCode::from(code),
    };
    let check = RuleCheckOptions {
        options: read_options(matches),
        finds_duplicates: lint_of_names(listed(matches, "lint").iter().map(String::as_str)),
    };
    let outcome = if files.is_empty() {
        check.standard_input()
    } else {
        check.files(&files)
    };
    ExitCode::from(match (outcome.has_failed, outcome.has_errors) {
        (true, true) => FAILED,
        (true, false) if matches.get_flag("lint-fatal") => LINT_FAILED,
        _ => 0,
    })
}

/// Returns whether `names`, the requested lint checks, include duplicate rules. Prints a warning
/// for unknown names.
pub(in crate::commands) fn lint_of_names<'n>(names: impl Iterator<Item = &'n str>) -> bool {
    let mut finds_duplicates = false;
    for name in names {
        match name {
            "all" | "duplicate-rules" => finds_duplicates = true,
            "none" => {}
            name => console::out(&format!("WARNING: unknown lint option: {name:?}\n")),
        }
    }
    finds_duplicates
}

impl RuleCheckOptions {
    /// The check that `check config` makes of the rule files of a config.
    pub(in crate::commands) fn for_config(
        options: RuleFileOptions,
        finds_duplicates: bool,
    ) -> Self {
        Self {
            options,
            finds_duplicates,
        }
    }

    fn standard_input(self) -> RuleCheckOutcome {
        console::out("Checking standard input\n");
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        let decoded = firn_yaml::decode(&bytes).map_err(|e| e.to_string());
        let text = match read.map_err(|e| e.to_string()).and(decoded) {
            Ok(text) => text,
            Err(e) => {
                console::err(&format!("  FAILED: {e}"));
                return RuleCheckOutcome {
                    has_failed: true,
                    has_errors: true,
                };
            }
        };
        let read = parse(&text, self.options);
        let read = read.map_err(|errors| errors.iter().map(ToString::to_string).collect());
        self.check_rules(read)
    }

    /// Checks one file after the other.
    pub(in crate::commands) fn files(self, files: &[impl AsRef<Path>]) -> RuleCheckOutcome {
        let mut all = RuleCheckOutcome::default();
        for file in files {
            let outcome = self.file(file.as_ref());
            all.has_failed |= outcome.has_failed;
            all.has_errors |= outcome.has_errors;
        }
        all
    }

    fn file(self, file: &Path) -> RuleCheckOutcome {
        console::out(&format!("Checking {}\n", file.display()));
        self.check_rules(read_rules(file, self.options))
    }

    fn check_rules(self, read: Result<RuleFile, Vec<String>>) -> RuleCheckOutcome {
        let rules = match read {
            Ok(rules) => rules,
            Err(errors) => {
                console::err("  FAILED:");
                errors.iter().for_each(|e| console::err(e));
                return RuleCheckOutcome {
                    has_failed: true,
                    has_errors: true,
                };
            }
        };
        let lint = if self.finds_duplicates {
            lint_of_duplicates(&rules)
        } else {
            None
        };
        let has_failed = lint.is_some();
        match lint {
            Some(lint) => {
                console::err("  FAILED:");
                console::err(&lint);
            }
            None => {
                let count: usize = rules.groups.iter().map(|group| group.rules.len()).sum();
                console::out(&format!("  SUCCESS: {count} rules found\n"));
            }
        }
        console::out("\n");
        RuleCheckOutcome {
            has_failed,
            has_errors: false,
        }
    }
}

/// Returns the lint message about duplicate rules, or `None` if there are none.
fn lint_of_duplicates(rules: &RuleFile) -> Option<String> {
    let found = find_duplicates(rules);
    if found.is_empty() {
        return None;
    }
    let mut text = format!("lint error {} duplicate rule(s) found.\n", found.len());
    for duplicate in found {
        let _ = write!(text, "Metric: {}\nLabel(s):\n", duplicate.metric);
        for (name, value) in &duplicate.labels {
            let _ = writeln!(text, "\t{name}: {value}");
        }
    }
    Some(text + "Might cause inconsistency while recording expressions")
}
