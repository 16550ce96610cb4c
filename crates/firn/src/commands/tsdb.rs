//! `firn tsdb verify DIR` reads everything that a data folder holds, and lists what is damaged;
//! `firn tsdb repair DIR` sets that aside once it was said what it costs.
//!
//! The exit code is 0 if the folder is whole, 1 if something is damaged, and 2 if it cannot be read
//! at all. `verify` changes nothing in the folder, and neither does a repair that nobody confirms.

mod print;

use crate::console;
use firn_model::env::{Env, real};
use firn_storage::repair::{self, Outcome};
use firn_storage::verify;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How to call it.
pub const USAGE: &str = "\
Usage:
  firn tsdb verify [--json] DIR
  firn tsdb repair [--yes] DIR

verify reads everything that the data folder DIR holds and lists what is damaged, what that costs,
and which files nobody knows. It changes nothing. No server may use the folder meanwhile.
repair does the same, asks, and then puts what is damaged into DIR/set-aside/TIME, byte for byte,
and in its place what of it is whole; nothing is deleted. --yes answers the question; without it and
without a terminal nothing is changed. Files that the disk does not deliver are not repaired.
Exit code: 0 if the folder is whole, 1 if something is damaged, 2 if it cannot be read.";

/// The folder cannot be read at all, or the call is not understood.
const CANNOT: u8 = 2;

/// What was asked for.
#[derive(Debug, Default)]
struct Arguments {
    folders: Vec<PathBuf>,
    is_json: bool,
    is_confirmed: bool,
}

/// Runs `firn tsdb` with the arguments behind it.
pub fn run(args: &[OsString]) -> ExitCode {
    let Some((command, rest)) = args.split_first() else {
        return usage("what to do is missing");
    };
    let arguments = match read_arguments(rest) {
        Ok(arguments) => arguments,
        Err(why) => return usage(&why),
    };
    let [folder] = arguments.folders.as_slice() else {
        return usage("one data folder must be given");
    };
    let env = match real::env() {
        Ok(env) => env,
        Err(e) => return cannot(&format!("start threads: {e}")),
    };
    match command.to_str() {
        Some("verify") if !arguments.is_confirmed => run_verify(&env, folder, arguments.is_json),
        Some("repair") if !arguments.is_json => run_repair(&env, folder, arguments.is_confirmed),
        Some(command @ ("verify" | "repair")) => {
            usage(&format!("{command} does not take that flag"))
        }
        _ => usage(&format!("unknown command {command:?}")),
    }
}

fn usage(why: &str) -> ExitCode {
    console::err(&format!("firn tsdb: {why}\n\n{USAGE}"));
    ExitCode::from(CANNOT)
}

fn cannot(why: &str) -> ExitCode {
    console::err(&format!("firn tsdb: {why}"));
    ExitCode::from(CANNOT)
}

fn read_arguments(args: &[OsString]) -> Result<Arguments, String> {
    let mut read = Arguments::default();
    let mut parser = lexopt::Parser::from_args(args.iter().cloned());
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            lexopt::Arg::Value(folder) => read.folders.push(folder.into()),
            lexopt::Arg::Long("json") => read.is_json = true,
            lexopt::Arg::Long("yes") => read.is_confirmed = true,
            _ => return Err(arg.unexpected().to_string()),
        }
    }
    Ok(read)
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

/// Asks whoever sits at the terminal; nobody says no.
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
