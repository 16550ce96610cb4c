//! The command line of `firn mirror`, which forwards remote write to several targets.

use super::arguments::texts;
use crate::console;
use crate::serve::mirror::{MirrorArguments, MirrorTargetSource, run as run_mirror};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use firn_config::{LogFormat, listen_address};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing::Level;

/// Default address. The port differs from the server's 9090, so that both can run on one machine.
const LISTEN: &str = "127.0.0.1:9095";

/// Returns the command line of `firn mirror`: arguments, flags and help texts.
pub fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let target = option(
        "target",
        "URL",
        "Complete URL of a remote write receiver; may be repeated",
    );
    let config = option(
        "config",
        "FILE",
        "Configuration file that lists the targets",
    );
    let listen = option(
        "listen",
        "ADDRESS",
        "Address on which to accept remote write requests; may be repeated",
    );
    let data = option(
        "data",
        "DIR",
        "Folder for the request bodies that wait for delivery",
    );
    let web = option(
        "web.config.file",
        "FILE",
        "Web configuration file (exporter-toolkit format) with TLS and the users of senders; \
         reloaded when it changes",
    );
    let level = option("log.level", "LEVEL", "Minimum severity of logged messages");
    let format = option("log.format", "FORMAT", "Format of log lines");
    Command::new("mirror")
        .about("Accept remote write requests and forward them to several targets")
        .long_about(
            "Accept remote write requests and forward each body to every target, unchanged and in \
             order. Firn acknowledges a body when it is durable on disk. Bodies wait on disk for \
             targets that are slow or unavailable. See docs/mirror.md.",
        )
        .args([
            config.value_parser(value_parser!(PathBuf)),
            target.action(ArgAction::Append),
            listen
                .action(ArgAction::Append)
                .value_parser(listen_address::checked)
                .default_value(LISTEN),
            data.value_parser(value_parser!(PathBuf))
                .default_value("./mirror"),
            web.value_parser(value_parser!(PathBuf)),
            level
                .value_parser(["debug", "info", "warn", "error"])
                .default_value("info"),
            format
                .value_parser(["logfmt", "json"])
                .default_value("logfmt"),
        ])
        .group(
            ArgGroup::new("targets")
                .args(["config", "target"])
                .required(true),
        )
}

/// Runs `firn mirror` until a signal stops it, and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match run_mirror(&line(matches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            console::err(&format!("firn: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn line(matches: &ArgMatches) -> MirrorArguments {
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned();
    let text = |id: &str| matches.get_one::<String>(id).map_or("", String::as_str);
    MirrorArguments {
        listen: texts(matches, "listen"),
        data_dir: path("data").unwrap_or_default(),
        source: match path("config") {
            Some(file) => MirrorTargetSource::File(file),
            None => MirrorTargetSource::Urls(texts(matches, "target")),
        },
        web_config: path("web.config.file"),
        log_level: match text("log.level") {
            "debug" => Level::DEBUG,
            "warn" => Level::WARN,
            "error" => Level::ERROR,
            _ => Level::INFO,
        },
        log_format: match text("log.format") {
            "json" => LogFormat::Json,
            _ => LogFormat::Logfmt,
        },
    }
}
