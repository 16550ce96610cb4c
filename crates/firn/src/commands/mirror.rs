//! `firn mirror`: the command line of what passes remote write on to several targets.

use super::arguments::texts;
use crate::console;
use crate::serve::mirror::{MirrorLine, Source, run as run_mirror};
use crate::settings::{LogFormat, listen_address};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing::Level;

/// Beside the server's own 9090, so that both can run on one machine.
const LISTEN: &str = "127.0.0.1:9095";

/// What `firn mirror` understands.
pub fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let target = option(
        "target",
        "URL",
        "A receiver of remote write, by its whole URL; may be repeated",
    );
    let config = option("config", "FILE", "A config that names the targets");
    let listen = option(
        "listen",
        "ADDRESS",
        "Address to take remote write at; may be repeated",
    );
    let data = option(
        "data",
        "DIR",
        "Folder in which bodies wait for their targets",
    );
    let web = option(
        "web.config.file",
        "FILE",
        "TLS and users of senders: the web config of exporter-toolkit, read again when it changes",
    );
    let level = option("log.level", "LEVEL", "Least severe level that is logged");
    let format = option("log.format", "FORMAT", "Format of log lines");
    Command::new("mirror")
        .about("Take remote write and pass it on to several targets")
        .long_about(
            "Take remote write and pass each body on to every target, as it came and in order. \
             A body is acknowledged once it is safe on disk, where it waits for targets that are \
             slow or away. See docs/mirror.md.",
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

/// Runs `firn mirror`.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match run_mirror(&line(matches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            console::err(&format!("firn: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn line(matches: &ArgMatches) -> MirrorLine {
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned();
    let text = |id: &str| matches.get_one::<String>(id).map_or("", String::as_str);
    MirrorLine {
        listen: texts(matches, "listen"),
        data_dir: path("data").unwrap_or_default(),
        source: match path("config") {
            Some(file) => Source::File(file),
            None => Source::Urls(texts(matches, "target")),
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
