//! `firn test rules FILE...`: runs tests of rules. The exit code is 1 if one fails.

use super::junit::JunitReport;
use super::run::{self, Settings};
use super::suite::{self, RuleTestSuite};
use super::{FAILED, existing_files, files, read_options, shared_argument, switch};
use crate::commands::arguments::texts;
use crate::console;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use firn_http_client::named_files;
use firn_model::regex::Regex;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use time::OffsetDateTime;
use time::macros::format_description;

/// What `firn test rules` understands.
pub(in crate::commands) fn command() -> Command {
    let run = Arg::new("run")
        .long("run")
        .value_name("REGEX")
        .action(ArgAction::Append)
        .help("Run only tests whose names match the regular expression; may be repeated");
    Command::new("rules")
        .about("Run rule tests as promtool does")
        .arg(run)
        .arg(switch(
            "debug",
            "Log each step, and print all data at the end",
        ))
        .arg(switch("diff", "Show differences between alerts in color"))
        .arg(shared_argument())
        .arg(files(true, "Files with rule tests"))
}

/// The argument that stands before and behind `rules`, as with promtool.
pub(in crate::commands) fn junit() -> Arg {
    Arg::new("junit")
        .long("junit")
        .value_name("FILE")
        .global(true)
        .value_parser(value_parser!(PathBuf))
        .help("Write the results of `rules` to a file in JUnit XML format")
}

/// Runs `firn test rules`.
pub(in crate::commands) fn run(matches: &ArgMatches) -> ExitCode {
    match run_files(matches) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(code) => ExitCode::from(code),
    }
}

/// Runs the tests of all files; whether all succeeded.
fn run_files(matches: &ArgMatches) -> Result<bool, u8> {
    let files = existing_files(matches)?;
    let wanted = match pattern(&texts(matches, "run")) {
        Ok(wanted) => wanted,
        Err(e) => {
            console::err(&format!("firn: flag --run: {e}"));
            return Err(FAILED);
        }
    };
    let mut junit = open_report(matches)?;
    let options = read_options(matches);
    let settings = Settings {
        options,
        features: options.features,
        shows_diff: matches.get_flag("diff"),
        is_debug: matches.get_flag("debug"),
    };
    let mut report = JunitReport::default();
    let mut all_good = true;
    for file in &files {
        let errors = run_file(file, wanted.as_ref(), settings, &mut report);
        if errors.is_empty() {
            console::out("  SUCCESS\n");
        } else {
            all_good = false;
            console::err("  FAILED:");
            for error in errors {
                console::err(&error);
                console::out("\n");
            }
        }
        console::out("\n");
    }
    if let Some((path, file)) = &mut junit
        && let Err(e) = file.write_all(report.to_string().as_bytes())
    {
        let path = path.display();
        console::err(&format!("failed to write JUnit XML: write {path}: {e}"));
    }
    Ok(all_good)
}

/// The file for the results, if one is wanted. One that cannot be written ends the command before a
/// test runs, as promtool has it.
fn open_report(matches: &ArgMatches) -> Result<Option<(PathBuf, File)>, u8> {
    let Some(path) = matches.get_one::<PathBuf>("junit") else {
        return Ok(None);
    };
    let file = File::create(path);
    file.map(|file| Some((path.clone(), file))).map_err(|e| {
        let path = path.display();
        console::err(&format!("firn: error: open {path}: {e}, try --help"));
        FAILED
    })
}

/// The pattern that a name must match somewhere; none matches all.
fn pattern(patterns: &[String]) -> Result<Option<Regex>, String> {
    if patterns.is_empty() {
        return Ok(None);
    }
    // The project's patterns are anchored.
    let anywhere = format!("(?s:.*)(?-s:{})(?s:.*)", patterns.join("|"));
    let regex = Regex::new(anywhere.as_bytes());
    regex.map(Some).map_err(|e| e.message)
}

/// Runs the tests of a file and returns the failures.
fn run_file(
    file: &Path,
    wanted: Option<&Regex>,
    settings: Settings,
    report: &mut JunitReport,
) -> Vec<String> {
    report.begin(&file.display().to_string());
    let (suite, rule_files) = match read_suite(file) {
        Ok(read) => read,
        Err(e) => {
            report.abort(&e);
            return vec![e];
        }
    };
    let now = OffsetDateTime::now_utc();
    let now = now.format(format_description!(
        "[year]-[month]-[day]T[hour]:[minute]:[second]"
    ));
    report.set_time(now.unwrap_or_default());
    let mut order = HashMap::new();
    for (i, name) in suite.group_order.iter().enumerate() {
        if order.insert(name.as_str(), i).is_some() {
            let e = format!("group name repeated in evaluation order: {name}");
            report.abort(&e);
            return vec![e];
        }
    }
    let mut errors = Vec::new();
    for (i, test) in suite.tests.iter().enumerate() {
        if wanted.is_some_and(|wanted| !wanted.is_match(test.name.as_bytes())) {
            continue;
        }
        let name = match test.name.as_str() {
            "" => format!("unnamed#{i}"),
            name => name.to_owned(),
        };
        report.case(&name);
        let found = run::run(test, &name, &suite, &order, &rule_files, settings);
        found.iter().for_each(|error| report.fail(error));
        errors.extend(found);
    }
    errors
}

/// The tests of a file, and the rule files that its patterns find.
fn read_suite(file: &Path) -> Result<(RuleTestSuite, Vec<PathBuf>), String> {
    let text = named_files::read_any_text(file);
    let text = text.map_err(|e| format!("open {}: {e}", file.display()))?;
    let suite = suite::read(&text).map_err(|e| format!("{}:{e}", file.display()))?;
    let dir = file.parent().unwrap_or(Path::new(""));
    let mut rule_files = Vec::new();
    for pattern in &suite.rule_files {
        let pattern = dir.join(pattern);
        let found = named_files::find(&pattern).map_err(|e| e.to_string())?;
        if found.is_empty() {
            let pattern = pattern.display();
            console::err(&format!("  WARNING: no file match pattern {pattern}"));
        }
        for file in found {
            if !rule_files.contains(&file) {
                rule_files.push(file);
            }
        }
    }
    Ok((suite, rule_files))
}
