//! The subcommands of `firn`, and the command line that they form together: parsing, help, shell
//! completions and man pages.
//!
//! Each subcommand has a `command` function that describes its arguments and a `run` function that
//! does its work and returns an exit code. Errors in a command line are printed to standard error,
//! with the most similar flag or command; the exit code is then 2.

mod arguments;
mod check;
mod client;
mod cluster;
mod completions;
mod debug;
mod families;
mod head;
mod man;
mod mirror;
mod promql;
mod push;
mod query;
mod rules;
mod script;
mod service_discovery;
mod tsdb;

use crate::serve::signals::Signals;
use crate::{console, serve, version};
use arguments::{NOT_UNDERSTOOD, feature_names, switch, warn_of_unknown_features};
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use firn_config::flags;
use firn_mirror::error::MirrorError;
use firn_mirror::scenario::StopFlag;
use std::ffi::OsString;
use std::process::ExitCode;
use tokio::runtime::Builder;

/// Returns the complete command line of `firn`: all subcommands and the flags that they share.
fn tree() -> Command {
    Command::new("firn")
        .about("A metrics database compatible with Prometheus, and tools around it")
        .long_about(
            "A metrics database compatible with Prometheus, and tools around it.\n\n`firn serve` \
             starts a server at http://127.0.0.1:9090 that scrapes itself. `firn serve --config \
             prometheus.yml` scrapes the targets of your Prometheus configuration. `firn help \
             COMMAND` describes a command.",
        )
        .version(env!("CARGO_PKG_VERSION"))
        // promtool requires this flag for some commands. Here every command is always available.
        .arg(switch("experimental", "").hide(true))
        .arg(feature_names())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand_value_name("COMMAND")
        .subcommand_help_heading("Commands")
        .subcommands([
            flags::command(),
            check::command(),
            cluster::command(),
            debug::command(),
            firn_mirror::compare::options::command(),
            firn_mirror::load::options::command(),
            mirror::command(),
            promql::command(),
            push::command(),
            query::command(),
            firn_mirror::scenario::command(),
            script::command(),
            tsdb::command(),
            completions::command(),
            man::command(),
            Command::new("version").hide(true),
        ])
}

/// Runs the subcommand named by `args`, the arguments after `firn`, and returns its exit code.
pub fn run(args: &[OsString]) -> ExitCode {
    // These commands parse their own arguments and print their own errors.
    match args.split_first() {
        Some((command, rest)) if command == "serve" => return serve::run(rest),
        Some((command, rest)) if command == "compare" => return compare(rest),
        Some((command, rest)) if command == "load" => return load(rest),
        Some((command, rest)) if command == "scenario" => return scenario(rest),
        _ => {}
    }
    let words = std::iter::once("firn".into()).chain(args.iter().cloned());
    let matches = match tree().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(e) => return refuse(&e, args),
    };
    warn_of_unknown_features(&matches);
    match matches.subcommand() {
        Some(("check", matches)) => check::run(matches),
        Some(("cluster", matches)) => cluster::run(matches),
        Some(("debug", matches)) => debug::run(matches),
        Some(("mirror", matches)) => mirror::run(matches),
        Some(("promql", matches)) => promql::run(matches),
        Some(("push", matches)) => push::run(matches),
        Some(("query", matches)) => query::run(matches),
        Some(("test", matches)) => script::run(matches),
        Some(("tsdb", matches)) => tsdb::run(matches),
        Some(("completions", matches)) => completions::run(tree(), matches),
        Some(("man", matches)) => man::run(tree(), matches),
        _ => {
            console::out(&version::text());
            ExitCode::SUCCESS
        }
    }
}

fn compare(args: &[OsString]) -> ExitCode {
    let passed = firn_mirror::compare::run(args.iter().cloned(), &mut std::io::stdout());
    verdict("compare", passed)
}

fn scenario(args: &[OsString]) -> ExitCode {
    let firn = std::env::current_exe().unwrap_or_else(|_| "firn".into());
    let args = args.iter().cloned();
    let stop = StopFlag::default();
    let passed = match stop_on_signals(&stop) {
        Ok(()) => firn_mirror::scenario::run(args, &firn, &stop, &mut std::io::stdout()),
        Err(e) => {
            console::err(&format!("firn scenario: listen to signals: {e}"));
            return ExitCode::FAILURE;
        }
    };
    verdict("scenario", passed)
}

/// Sets `stop` when the process receives a signal to end. The thread lives as long as the process.
fn stop_on_signals(stop: &StopFlag) -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let mut signals = Signals::new()?;
    drop(entered);
    let stop = stop.clone();
    std::thread::spawn(move || {
        runtime.block_on(signals.stop());
        stop.set();
        // A second signal ends the process at once, without waiting for its child processes.
        runtime.block_on(signals.stop());
        std::process::exit(1);
    });
    Ok(())
}

/// Converts the outcome of a check into an exit code: 0 if it passed, 1 if it failed, and 2 for
/// wrong usage.
fn verdict(command: &str, passed: Result<bool, MirrorError>) -> ExitCode {
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            console::err(&format!("firn {command}: {e}"));
            match e {
                MirrorError::Usage(_) => ExitCode::from(NOT_UNDERSTOOD),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn load(args: &[OsString]) -> ExitCode {
    let ended = firn_mirror::load::run(args.iter().cloned(), &mut std::io::stdout());
    verdict("load", ended.map(|()| true))
}

/// Prints the requested help to standard output, or the error in the command line `args` to
/// standard error, and returns the exit code.
fn refuse(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp => {
            console::out(&text);
            return ExitCode::SUCCESS;
        }
        ErrorKind::DisplayVersion => {
            console::out(&version::text());
            return ExitCode::SUCCESS;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => console::err(text.trim_end()),
        ErrorKind::InvalidSubcommand => console::err(&unknown_command(error, &text, args)),
        _ => {
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let first = text.lines().next().unwrap_or_default();
            console::err(&match flags::suggest_serve_command(args) {
                Some(meant) => format!("firn: {first}\n  flags of serve need the command: {meant}"),
                None => format!("firn: {}", text.trim_end()),
            });
        }
    }
    ExitCode::from(NOT_UNDERSTOOD)
}

/// Formats the error for an unknown command: the error, the most similar command line, and the
/// parser's usage from `text`.
fn unknown_command(error: &clap::Error, text: &str, args: &[OsString]) -> String {
    let name = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => name.as_str(),
        _ => "",
    };
    let mut out = format!("firn: unknown command {name:?}\n");
    if let Some(similar) = similar_command(error, args) {
        let words = args.iter().map(|arg| match arg.to_str() {
            Some(word) if word == name => similar.clone(),
            _ => arg.to_string_lossy().into_owned(),
        });
        let meant = words.collect::<Vec<_>>().join(" ");
        out += &format!("  a similar command exists: firn {meant}\n");
    }
    let usage = text.find("Usage:").map_or("", |from| &text[from..]);
    format!("{out}\n{}", usage.trim_end())
}

/// Returns the command with the name most similar to the unknown one. The parser makes no
/// suggestion after `help`, so the same words are parsed again without it.
fn similar_command(error: &clap::Error, args: &[OsString]) -> Option<String> {
    let guess = |error: &clap::Error| match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.last().cloned(),
        Some(ContextValue::String(name)) => Some(name.clone()),
        _ => None,
    };
    let (first, rest) = args.split_first()?;
    guess(error).or_else(|| {
        let words = std::iter::once("firn".into()).chain(rest.iter().cloned());
        let error = tree().try_get_matches_from(words).err();
        error.filter(|_| first == "help").and_then(|e| guess(&e))
    })
}
