//! The `firn` binary: settings, wiring and subcommands. No logic.
//!
//! Invariant: this room alone reads flags, files and the environment and installs signal handlers;
//! what it reads it hands to the others as values.

mod commands;
mod console;
mod process;
mod serve;
mod settings;

use commands::{check, query, script, tsdb};
use std::ffi::OsString;
use std::process::ExitCode;

/// jemalloc: the least memory for a heap of many small objects that live and die together, and
/// heap profiles. Its options stand in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The version of Prometheus whose behaviour this version of Firn has.
const PROMETHEUS_VERSION: &str = "3.14.0";

const USAGE: &str = "\
Usage: firn COMMAND

Commands:
  serve          take writes and answer queries (firn serve --help)
  check config   check config files
  load           send the load of a fleet to a server (firn load --help)
  query          ask a server: instant, range, series, labels (firn query)
  test promql    run PromQL scripts
  tsdb           read a data folder and list what is damaged: verify, repair (firn tsdb)
  --version      print the version
  --help         print this
";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        console::err(USAGE.trim_end());
        return ExitCode::from(2);
    };
    match command.to_str().unwrap_or_default() {
        "check" => check::run(rest),
        "load" => load(rest),
        "query" => query::run(rest),
        "serve" => serve::run(rest),
        "test" => script::run(rest),
        "tsdb" => tsdb::run(rest),
        "help" | "--help" | "-h" => {
            console::out(USAGE);
            ExitCode::SUCCESS
        }
        "version" | "--version" | "-V" => {
            let version = env!("CARGO_PKG_VERSION");
            console::out(&format!(
                "firn {version} (compatible with Prometheus {PROMETHEUS_VERSION})\n"
            ));
            ExitCode::SUCCESS
        }
        other => {
            console::err(&format!(
                "firn: unknown command {other:?}\n\n{}",
                USAGE.trim_end()
            ));
            ExitCode::from(2)
        }
    }
}

fn load(args: &[OsString]) -> ExitCode {
    match firn_mirror::load::run(args.iter().cloned(), &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            console::err(&format!("firn load: {e}"));
            ExitCode::FAILURE
        }
    }
}
