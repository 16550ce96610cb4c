//! The command `firn test promql FILE...`: runs PromQL scripts on a real head with a simulated
//! disk. `firn test rules` is in [`super::rules`].
//!
//! One shard and computation on the calling thread make a run deterministic. The exit code is 1 if
//! an evaluation failed or a script could not be read, so that a build can depend on a list of
//! scripts.

use super::arguments::{files, paths_of};
use super::head::TestHead;
use super::rules;
use crate::console;
use clap::{ArgMatches, Command};
use firn_model::env::sim;
use firn_promql::script::{self, ScriptFailure, ScriptFileReport, ScriptReport};
use std::path::Path;
use std::process::ExitCode;

/// Returns the command line of `firn test` with its subcommands: arguments, flags and help texts.
pub fn command() -> Command {
    let promql = Command::new("promql")
        .about("Run PromQL test scripts; the exit code is 1 if an evaluation fails")
        .arg(files("Scripts in the format of Prometheus's PromQL tests"));
    Command::new("test")
        .about("Run tests from files")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(rules::test::junit())
        .subcommand(promql)
        .subcommand(rules::test::command())
}

/// Runs `firn test` with the parsed arguments `matches` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    if let Some(("rules", matches)) = matches.subcommand() {
        return rules::test::run(matches);
    }
    let mut report = ScriptReport::default();
    for file in matches
        .subcommand()
        .map_or(Vec::new(), |(_, m)| paths_of(m))
    {
        report.files.push(run_file(&file));
    }
    console::out(&format!("{report}\n"));
    ExitCode::from(u8::from(!report.is_success()))
}

fn run_file(file: &Path) -> ScriptFileReport {
    let name = file.to_string_lossy();
    let world = std::fs::read_to_string(file)
        .map_err(|e| e.to_string())
        .and_then(|text| Ok((text, TestHead::open().map_err(|e| e.message)?)));
    match world {
        Ok((text, mut head)) => script::run(&name, &text, &mut head, &sim::InlineCompute),
        Err(why) => ScriptFileReport {
            name: name.into_owned(),
            broken: vec![ScriptFailure {
                line: 1,
                text: "open".into(),
                why,
            }],
            ..ScriptFileReport::default()
        },
    }
}
