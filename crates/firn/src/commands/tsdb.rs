//! `firn tsdb verify DIR` reads everything that a data folder holds, and lists what is damaged;
//! `firn tsdb repair DIR` sets that aside once it was said what it costs.
//!
//! The exit code is 0 if the folder is whole, 1 if something is damaged, and 2 if it cannot be read
//! at all. `verify` changes nothing in the folder, and neither does a repair that is not confirmed.

mod print;

use crate::console;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use firn_model::env::{Env, real};
use firn_storage::repair::{self, Outcome};
use firn_storage::verify;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXIT_CODES: &str =
    "Exit code: 0 if the folder is whole, 1 if something is damaged, 2 if it cannot be read.";

/// The folder cannot be read at all.
const CANNOT: u8 = 2;

/// What `firn tsdb` understands.
pub fn command() -> Command {
    let folder = || {
        Arg::new("dir")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .required(true)
            .help("The data folder; no server may use it meanwhile")
    };
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let verify = Command::new("verify")
        .about("Read everything in a data folder and list what is damaged; change nothing")
        .after_help(EXIT_CODES)
        .arg(flag("json").help("Print JSON instead of text"))
        .arg(folder());
    let repair = Command::new("repair")
        .about("List what is damaged, ask, and set it aside")
        .long_about(
            "Lists what is damaged as verify does, asks, and then puts what is damaged into \
             DIR/set-aside/TIME, byte for byte, and in its place what of it is whole; nothing is \
             deleted. Without --yes and without a terminal nothing is changed. Files that the disk \
             does not deliver are not repaired.",
        )
        .after_help(EXIT_CODES)
        .arg(flag("yes").help("Answer the question with yes"))
        .arg(folder());
    Command::new("tsdb")
        .about("Read a data folder: list and set aside what is damaged")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([verify, repair])
}

/// Runs `firn tsdb`.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let Some((command, matches)) = matches.subcommand() else {
        return cannot("what to do is missing");
    };
    let Some(folder) = matches.get_one::<PathBuf>("dir") else {
        return cannot("one data folder must be given");
    };
    let env = match real::env() {
        Ok(env) => env,
        Err(e) => return cannot(&format!("start threads: {e}")),
    };
    match command {
        "verify" => run_verify(&env, folder, matches.get_flag("json")),
        _ => run_repair(&env, folder, matches.get_flag("yes")),
    }
}

fn cannot(why: &str) -> ExitCode {
    console::err(&format!("firn tsdb: {why}"));
    ExitCode::from(CANNOT)
}

fn run_verify(env: &Env, folder: &Path, is_json: bool) -> ExitCode {
    let start = env.clock.monotonic();
    let report = match verify::verify(env, folder) {
        Ok(report) => report,
        Err(e) => return cannot(&e.to_string()),
    };
    let took = env.clock.monotonic().saturating_sub(start);
    let text = match is_json {
        true => print::json(folder, &report, took),
        false => print::text(folder, &report, took),
    };
    console::out(&text);
    ExitCode::from(u8::from(!report.is_whole()))
}

fn run_repair(env: &Env, folder: &Path, is_confirmed: bool) -> ExitCode {
    let start = env.clock.monotonic();
    let took = || env.clock.monotonic().saturating_sub(start);
    let name = print::file_time(env.clock.now_ms());
    let outcome = repair::repair(env, folder, &name, &mut |found| {
        console::out(&print::text(folder, found, took()));
        is_confirmed || ask()
    });
    match outcome {
        Ok(Outcome::Whole(report)) => {
            console::out(&print::text(folder, &report, took()));
            ExitCode::SUCCESS
        }
        Ok(Outcome::Declined) => {
            console::out("nothing was changed\n");
            ExitCode::FAILURE
        }
        Ok(Outcome::Repaired { set_aside, report }) => {
            console::out(&format!("set aside in {}\n", set_aside.display()));
            console::out(&print::text(folder, &report, took()));
            ExitCode::from(u8::from(!report.is_whole()))
        }
        Err(e) => cannot(&e.message),
    }
}

/// Asks the user at the terminal. Without a terminal the answer is no.
fn ask() -> bool {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        console::err("firn tsdb: there is no terminal to ask; --yes sets this aside");
        return false;
    }
    console::out("Set this aside? What is lost above is lost for queries. [y/N] ");
    let mut answer = String::new();
    let read = stdin.read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "yes")
}
