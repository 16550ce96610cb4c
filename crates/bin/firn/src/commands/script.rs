//! The command `firn test promql FILE...`: runs PromQL scripts on a real head with a simulated
//! disk, or on several, among which the series are divided. `firn test rules` is in
//! [`super::rules`].
//!
//! One shard and computation on the calling thread make a run deterministic. The exit code is 1 if
//! an evaluation failed or a script could not be read, so that a build can depend on a list of
//! scripts.

use super::arguments::{files, paths_of};
use super::head::TestHead;
use super::rules;
use crate::console;
use clap::{Arg, ArgMatches, Command, value_parser};
use firn_model::env::sim;
use firn_promql::script::{self, ScriptFailure, ScriptFileReport, ScriptReport};
use std::num::NonZeroU8;
use std::path::Path;
use std::process::ExitCode;

/// Id of the flag for the number of stores.
const PARTITIONS: &str = "partitions";

/// Returns the command line of `firn test` with its subcommands: arguments, flags and help texts.
pub fn command() -> Command {
    let promql = Command::new("promql")
        .about("Run PromQL test scripts; the exit code is 1 if an evaluation fails")
        .arg(files("Scripts in the format of Prometheus's PromQL tests"))
        .arg(
            Arg::new(PARTITIONS)
                .long(PARTITIONS)
                .value_name("N")
                .value_parser(value_parser!(NonZeroU8))
                .default_value("1")
                .help("Number of stores among which the series are divided, as in a cluster"),
        );
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
    if let Some((_, matches)) = matches.subcommand() {
        let partitions = matches.get_one::<NonZeroU8>(PARTITIONS).copied();
        let partitions = partitions.unwrap_or(NonZeroU8::MIN);
        let files = paths_of(matches);
        report.files = files
            .iter()
            .map(|file| run_file(file, partitions))
            .collect();
    }
    console::out(&format!("{report}\n"));
    ExitCode::from(u8::from(!report.is_success()))
}

fn run_file(file: &Path, partitions: NonZeroU8) -> ScriptFileReport {
    let name = file.to_string_lossy();
    let open = || TestHead::open_partitions(partitions).map_err(|e| e.message);
    let world = std::fs::read_to_string(file)
        .map_err(|e| e.to_string())
        .and_then(|text| Ok((text, open()?)));
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
