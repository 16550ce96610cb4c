//! The command `firn tsdb`, for work on a data folder without a server. `verify` reads all data and
//! lists damage; `repair` sets damaged files aside after it has printed the loss; `list` prints the
//! blocks; `analyze` prints the contents of a block; `snapshot` copies the data into a new data
//! folder. Other subcommands import and export samples, and `bench` measures.
//!
//! The exit code is 0 if the folder is intact, 1 if something is damaged, and 2 if it cannot be
//! read at all. Neither `verify` nor an unconfirmed `repair` changes the folder.

mod analyze;
mod bench;
mod dump;
mod export;
mod heads;
mod import;
mod kept;
mod openmetrics;
mod print;
mod progress;
mod reading;
mod rule_blocks;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod transfer;
mod watched;

use crate::console;
use crate::file_time::{file_time, snapshot_name};
use crate::serve::store_settings;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use firn_model::env::{Env, real};
use firn_storage::repair::{self, RepairOutcome};
use firn_storage::{listing, snapshot, verify};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXIT_CODES: &str = "Exit code: 0 if the folder is intact, 1 if something is damaged, 2 if \
                          the folder cannot be read.";

/// Exit code if the folder cannot be read at all.
const CANNOT: u8 = 2;

/// Returns the command line of `firn tsdb`.
pub fn command() -> Command {
    let folder = || {
        Arg::new("dir")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .required(true)
            .help("Data folder; no server may be using it")
    };
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let verify = Command::new("verify")
        .about("Read all files of a data folder and list the damaged ones; changes nothing")
        .after_help(EXIT_CODES)
        .arg(flag("json").help("Print JSON instead of text"))
        .arg(folder());
    let repair = Command::new("repair")
        .about("Set damaged files aside, after confirmation")
        .long_about(
            "Lists damaged files as verify does and asks for confirmation. It then moves damaged \
             files to DIR/set-aside/TIME, unchanged, and replaces them with their intact parts. \
             Nothing is deleted. Without --yes and without a terminal, nothing is changed. Files \
             that the disk cannot read are not repaired.",
        )
        .after_help(EXIT_CODES)
        .arg(flag("yes").help("Answer yes to the confirmation"))
        .arg(folder());
    let list = Command::new("list")
        .about("List the blocks of a data folder; a server may be using it")
        .arg(
            flag("human-readable")
                .short('r')
                .help("Print times and sizes in human-readable form"),
        )
        .arg(
            Arg::new("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .default_value("data/")
                .help("Data folder"),
        );
    let snapshot = Command::new("snapshot")
        .about("Create a snapshot of a data folder and print its path")
        .long_about(
            "Creates DIR/snapshots/NAME, a data folder with all data of DIR, and prints its path. \
             Both folders share files that never change (hard links), so a snapshot needs little \
             space. DIR itself is not modified. A running server creates the same snapshot on \
             POST /api/v1/admin/tsdb/snapshot.",
        )
        .arg(folder());
    Command::new("tsdb")
        .about("Inspect, repair, import and export data folders")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            list,
            analyze::command(),
            snapshot,
            verify,
            repair,
            transfer::import_command(),
            transfer::export_command(),
            transfer::create_command(),
            transfer::dump_command(dump::DumpFormat::Plain),
            transfer::dump_command(dump::DumpFormat::OpenMetrics),
            bench::command(),
        ])
}

/// Returns the flag for the data folder, for commands that have other paths too.
fn data_argument() -> Arg {
    Arg::new("data")
        .long("data")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help("Data folder; no server may be using it")
}

/// Runs `firn tsdb` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let Some((command, matches)) = matches.subcommand() else {
        return cannot("missing subcommand");
    };
    let env = match real::system_env() {
        Ok(env) => env,
        Err(e) => return cannot(&format!("start threads: {e}")),
    };
    match command {
        "import" => return transfer::run_import(&env, matches),
        "export" => return transfer::run_export(&env, matches),
        "create-blocks-from" => return transfer::run_create(&env, matches),
        "dump" => return transfer::run_dump(&env, matches, dump::DumpFormat::Plain),
        "analyze" => return transfer::finish(analyze::run(&env, matches).map(|text| (text, true))),
        "bench" => {
            let Some((_, matches)) = matches.subcommand() else {
                return cannot("missing subcommand: the benchmark to run");
            };
            return transfer::finish(bench::run(&env, matches).map(|()| (String::new(), true)));
        }
        "dump-openmetrics" => {
            return transfer::run_dump(&env, matches, dump::DumpFormat::OpenMetrics);
        }
        _ => {}
    }
    let Some(folder) = matches.get_one::<PathBuf>("dir") else {
        return cannot("exactly one data folder is required");
    };
    match command {
        "list" => run_list(&env, folder, matches.get_flag("human-readable")),
        "snapshot" => run_snapshot(&env, folder),
        "verify" => run_verify(&env, folder, matches.get_flag("json")),
        _ => run_repair(&env, folder, matches.get_flag("yes")),
    }
}

fn cannot(why: &str) -> ExitCode {
    console::err(&format!("firn tsdb: {why}"));
    ExitCode::from(CANNOT)
}

fn run_list(env: &Env, folder: &Path, for_people: bool) -> ExitCode {
    match listing::list(env, folder) {
        Ok(blocks) => {
            console::out(&table::table(&blocks, for_people));
            ExitCode::SUCCESS
        }
        Err(e) => cannot(&e.to_string()),
    }
}

fn run_snapshot(env: &Env, folder: &Path) -> ExitCode {
    let taken = snapshot::create_snapshot(
        &watched::watched(env, folder),
        folder,
        &snapshot_name(env),
        &store_settings::list_snapshot_files(),
    );
    match taken {
        Ok(place) => {
            console::out(&format!("{}\n", place.display()));
            ExitCode::SUCCESS
        }
        Err(e) => cannot(&e.message),
    }
}

fn run_verify(env: &Env, folder: &Path, is_json: bool) -> ExitCode {
    let start = env.clock.monotonic();
    let verified = verify::verify(&watched::watched(env, folder), folder);
    let report = match verified {
        Ok(report) => report,
        Err(e) => return cannot(&e.to_string()),
    };
    let took = env.clock.monotonic().saturating_sub(start);
    let text = if is_json {
        print::json(folder, &report, took)
    } else {
        print::text(folder, &report, took)
    };
    console::out(&text);
    ExitCode::from(u8::from(!report.is_whole()))
}

fn run_repair(env: &Env, folder: &Path, is_confirmed: bool) -> ExitCode {
    let start = env.clock.monotonic();
    let took = || env.clock.monotonic().saturating_sub(start);
    let name = file_time(env.clock.now_ms());
    let outcome = repair::repair(env, folder, &name, &mut |found| {
        console::out(&print::text(folder, found, took()));
        is_confirmed || confirm()
    });
    match outcome {
        Ok(RepairOutcome::Whole(report)) => {
            console::out(&print::text(folder, &report, took()));
            ExitCode::SUCCESS
        }
        Ok(RepairOutcome::Declined) => {
            console::out("nothing was changed\n");
            ExitCode::FAILURE
        }
        Ok(RepairOutcome::Repaired { set_aside, report }) => {
            console::out(&format!("set aside in {}\n", set_aside.display()));
            console::out(&print::text(folder, &report, took()));
            ExitCode::from(u8::from(!report.is_whole()))
        }
        Err(e) => cannot(&e.message),
    }
}

/// Asks the user for confirmation on the terminal. Returns false if there is no terminal.
fn confirm() -> bool {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        console::err(
            "firn tsdb: standard input is not a terminal; pass --yes to set the damaged files \
             aside",
        );
        return false;
    }
    console::out("Set these files aside? Queries lose the samples listed above. [y/N] ");
    let mut answer = String::new();
    let read = stdin.read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "yes")
}
