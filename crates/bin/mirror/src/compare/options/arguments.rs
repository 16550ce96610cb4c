//! The command line of `firn compare`.

use crate::compare::tally::ComparisonPass;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, value_parser};
use std::path::PathBuf;

/// Returns the command `firn compare` with its flags, for parsing, help, completions and man pages.
pub fn command() -> Command {
    Command::new("compare")
        .bin_name("firn compare")
        .about("Send the same queries to two Prometheus-compatible systems and compare the answers")
        .long_about(
            "Sends the same queries to two Prometheus-compatible systems at the same time, \
             compares the answers point by point, and writes a report. Exit code 0: the match \
             rate is at least --fail-below. 1: the match rate is lower, or a system cannot be \
             queried. 2: a flag or a file is not valid.",
        )
        .args_override_self(true)
        .args(target_arguments())
        .args(time_arguments())
        .args(comparison_arguments())
        .args(access_arguments())
}

pub(super) fn text(name: &'static str, value: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).value_name(value);
    // As in other tools, the word after a flag is its value even if it begins with a hyphen.
    arg.allow_hyphen_values(true)
}

fn several(name: &'static str, value: &'static str) -> Arg {
    text(name, value).action(ArgAction::Append)
}

fn target_arguments() -> [Arg; 10] {
    [
        text("baseline", "URL")
            .required(true)
            .help("URL of the reference system"),
        text("candidate", "URL")
            .required(true)
            .help("URL of the system to compare with the baseline"),
        Arg::new("queries")
            .long("queries")
            .value_name("FILE")
            .num_args(1..)
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .help(
                "Queries to send, from Grafana dashboards, rule files, query logs, \
                 queries.active, lists with one expression per line, or folders of these",
            ),
        text("generate", "N")
            .default_value("0")
            .value_parser(value_parser!(usize))
            .help("Number of queries to generate from the metrics of the baseline"),
        text("seed", "N")
            .default_value("1")
            .value_parser(value_parser!(u64))
            .help("Seed of the random generator; a different seed generates different queries"),
        text("report", "DIR")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("Folder for the report, with a subfolder for each mismatch"),
        several("match", "SELECTOR").help(
            "Selector of the series whose label names and values are compared; may be repeated",
        ),
        several("ignore-label", "NAME").help(
            "Label to exclude from the comparison, such as one that a system adds itself; may \
                 be repeated",
        ),
        several("header", "[SYSTEM:]NAME=VALUE").help(
            "Header to add to every request, or only to requests to `baseline` or `candidate`; \
             may be repeated",
        ),
        several("passes", "PASS,...")
            .value_delimiter(',')
            .value_parser(PossibleValuesParser::new(
                ComparisonPass::ALL.map(ComparisonPass::as_str),
            ))
            .help("Passes of a round, separated by commas [default: all passes]"),
    ]
}

fn time_arguments() -> [Arg; 11] {
    let span = |name, default| text(name, "DURATION").default_value(default);
    [
        text("start", "TIME").help(
            "Time from which both systems have the same data, as RFC 3339 or seconds since the \
             epoch [default: the start of the run with --duration, otherwise one hour before the \
             end]",
        ),
        text("end", "TIME").help(
            "End of the compared time range; if it is in the past, a single round runs \
             immediately [default: now minus the liveness delay]",
        ),
        text("step", "DURATION").help(
            "Step of range queries [default: 15s, or longer if the range exceeds a thousand steps]",
        ),
        text("duration", "DURATION").help("Length of the run; rounds are repeated until it ends"),
        text("window", "DURATION").help(
            "Length of the part of the time range that a round queries, counted from its end; for \
             runs of weeks [default: the whole range]",
        ),
        span("gather-every", "1h").help(
            "Maximum age of the queries, after which variables are looked up and queries \
             generated again",
        ),
        span("pause", "15s").help("Pause between two rounds"),
        span("staleness-wait", "5m")
            .help("Lookback of the systems: the maximum age of a sample that a selector returns"),
        span("liveness-delay", "90s").help(
            "Maximum time until a sample is visible in both systems; used if the end is not \
                 in the past",
        ),
        span("keep", "7d").help("Retention time of the mismatch folders"),
        text("keep-bytes", "SIZE")
            .default_value("1GB")
            .help("Maximum total size of the mismatch folders; the oldest are deleted first"),
    ]
}

fn comparison_arguments() -> [Arg; 9] {
    let number = |name, help| {
        let arg = text(name, "N")
            .default_value("0")
            .value_parser(value_parser!(f64));
        arg.help(help)
    };
    [
        text("timeout", "DURATION")
            .default_value("30s")
            .help("Timeout of a query, until its answer is complete"),
        text("answer-limit", "SIZE")
            .default_value("64MB")
            .help("Maximum size of an answer"),
        text("concurrency", "N")
            .default_value("1")
            .value_parser(value_parser!(usize))
            .help("Number of concurrent queries per system"),
        text("busy", "PERCENT")
            .default_value("100")
            .value_parser(value_parser!(f64))
            .help(
                "Maximum share of time in which a connection has a query in progress, in percent; \
                 it pauses for the rest",
            ),
        number(
            "tolerance-relative",
            "Maximum relative difference between two values, as a fraction of the larger one",
        ),
        number(
            "tolerance-absolute",
            "Maximum absolute difference between two values",
        ),
        text("tolerance-ulps", "N")
            .default_value("0")
            .value_parser(value_parser!(u64))
            .help(
                "Maximum difference between two values, as a number of representable floats (ULPs)",
            ),
        text("fail-below", "PERCENT")
            .default_value("100")
            .value_parser(value_parser!(f64))
            .help("Minimum match rate for exit code 0, in percent"),
        text("listen", "ADDRESS")
            .help("Address at which to serve metrics of the run, under /metrics"),
    ]
}

fn access_arguments() -> [Arg; 3] {
    let file = |name| text(name, "FILE").value_parser(value_parser!(PathBuf));
    [
        file("ca")
            .action(ArgAction::Append)
            .help("Trust only the certificate authorities in this PEM file; may be repeated"),
        file("client-cert")
            .requires("client-key")
            .help("Client certificate for systems that request one, in PEM"),
        file("client-key")
            .requires("client-cert")
            .help("Key of the client certificate, in PEM"),
    ]
}
