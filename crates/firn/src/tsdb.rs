//! `firn tsdb verify DIR`: reads everything that a data folder holds, and lists what is damaged.
//!
//! The exit code is 0 if the folder is whole, 1 if something is damaged, and 2 if it cannot be read
//! at all. Nothing in the folder is changed.

mod print;

use crate::console;
use firn_model::env::{Env, real};
use firn_storage::verify;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How to call it.
pub const USAGE: &str = "\
Usage:
  firn tsdb verify [--json] DIR

verify reads everything that the data folder DIR holds and lists what is damaged, what that costs,
and which files nobody knows. It changes nothing. No server may use the folder meanwhile.
Exit code: 0 if the folder is whole, 1 if something is damaged, 2 if it cannot be read.";

/// The folder cannot be read at all, or the call is not understood.
const CANNOT: u8 = 2;

/// What was asked for.
#[derive(Debug, Default)]
struct Arguments {
    folders: Vec<PathBuf>,
    is_json: bool,
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
        Some("verify") => run_verify(&env, folder, arguments.is_json),
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
