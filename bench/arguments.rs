//! Command line of `firn-bench`: its flags and the sizes of its loads.

use crate::history;
use crate::system::{ALL, Kind};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use firn_model::units::parse_duration;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Size of the loads and number of queries of a dashboard run, for `--short` or `--full`.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of series of the fleet, which are rounded up to whole pods.
    pub fleet_series: usize,
    /// Number of samples of each series of the fleet, at an interval of 15 s.
    pub fleet_samples: u64,
    /// Number of series of the load that creates many new series at once.
    pub new_series: usize,
    /// Number of samples of each of these new series, at an interval of 15 s.
    pub new_series_samples: u64,
    /// Time between the load and the measurement of memory and disk, for deferred work.
    pub settle: Duration,
    /// Time range of the dashboard's queries in milliseconds, up to the newest sample.
    pub dashboard_ms: i64,
    /// Number of turns of each system whose latencies are recorded.
    pub turns: usize,
}

const SHORT: Size = Size {
    fleet_series: 96_000,
    fleet_samples: 60,
    new_series: 200_000,
    new_series_samples: 2,
    settle: Duration::from_secs(2),
    dashboard_ms: 600_000,
    turns: 7,
};

const FULL: Size = Size {
    fleet_series: 96_000,
    fleet_samples: 240,
    new_series: 1_000_000,
    new_series_samples: 8,
    settle: Duration::from_secs(10),
    dashboard_ms: 1_200_000,
    turns: 11,
};

/// Default sizes of a history: 15 days, or two days with `--short`.
const LONG_HISTORY: history::Plan = history::Plan {
    span_ms: 15 * 86_400_000,
    interval_ms: 15_000,
    crowd: 1_000_000,
};

const SHORT_HISTORY: history::Plan = history::Plan {
    span_ms: 2 * 86_400_000,
    interval_ms: 60_000,
    crowd: 100_000,
};

/// Modes that cannot be combined with `--short` or `--full`, because their loads have only one
/// size.
const OF_ONE_SIZE: [&str; 10] = [
    "churn", "ablation", "doors", "scrape", "rules", "reads", "refresh", "create", "record",
    "replay",
];

/// The benchmark to run; exactly one per invocation. Each has a module of its own.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The standard benchmark: fleet load, dashboard, restarts, and many new series.
    Dashboard,
    /// Six hours of pods that are replaced, with a query that runs all the time.
    Churn,
    /// Days of pods that are replaced, with measurements at several ages of the data.
    History,
    /// Firn with and without two features of sealing, jitter and background sealing.
    Ablation,
    /// Firn over other protocols, over TLS, and with remote write to a receiver.
    Doors,
    /// Three nodes on a bucket, compared with a single node.
    Cluster,
    /// Scraping of many small targets by Firn and Prometheus.
    Scrape,
    /// A thousand recording rules beside a live load, compared with the load alone.
    Rules,
    /// Remote reads of all data in chunked frames, from Firn and Prometheus.
    Reads,
    /// A dashboard that is refreshed, with and without the results cache of Firn.
    Refresh,
    /// Creation of blocks from an OpenMetrics text, by Firn and promtool.
    Create,
    /// Recording of a real sender's requests into this directory, without a measurement.
    Record(PathBuf),
    /// Cost of ingesting a recording from this directory, beside that of a generated load.
    Replay(PathBuf),
}

/// The parsed command line, which determines the benchmark, its sizes and the output files.
pub struct Arguments {
    /// Sizes of the dashboard run, selected by `--short` and `--full`.
    pub size: Size,
    /// Length, interval and number of new series of a history, with all flags applied.
    pub history: history::Plan,
    /// The benchmark to run; the dashboard run by default.
    pub mode: Mode,
    /// `--svg`: file for the chart of a churn run.
    pub svg: Option<PathBuf>,
    /// `--only`: the systems to measure; empty for all installed ones.
    pub only: Vec<Kind>,
    /// `--json`: file for all figures; by default a file in the directory for temporary files.
    pub json: Option<PathBuf>,
    /// `--dir`: directory for loads and data; by default a temporary one.
    pub dir: Option<PathBuf>,
    /// `--keep`: whether loads and data are kept after the run.
    pub keep: bool,
}

fn command() -> Command {
    let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let path = |name: &'static str, value: &'static str| {
        let arg = Arg::new(name).long(name).value_name(value);
        arg.value_parser(value_parser!(PathBuf))
    };
    let span = |name: &'static str| {
        let arg = Arg::new(name).long(name).value_name("DURATION");
        arg.requires("history").value_parser(milliseconds)
    };
    Command::new("firn-bench")
        .about("Benchmark Firn against Prometheus and VictoriaMetrics on one machine")
        .after_help(
            "Programs are taken from BENCH_FIRN, BENCH_PROMETHEUS and BENCH_VICTORIA_METRICS, \
             otherwise from the folder of this program, otherwise from PATH.",
        )
        .args([
            switch("short")
                .conflicts_with_all(OF_ONE_SIZE)
                .help("Short run: about three minutes on two cores [default]"),
            switch("full")
                .conflicts_with_all(OF_ONE_SIZE)
                .conflicts_with("history")
                .help(
                    "Full run: 96 k series for an hour, and a million new series with 8 samples \
                     each",
                ),
            switch("churn").help(
                "Churn: six hours of 20 k series, with 60 % of the pods replaced every 15 \
                     minutes",
            ),
            switch("history").help(
                "History: 15 days (two with --short) of 6 k series, with 60 % of the pods \
                 replaced every half hour; measures memory, starts and queries by the age of the \
                 data",
            ),
            switch("ablation").help(
                "Ablation: three hours of 20 k series sent to Firn only, with sealing spread over \
                 time or not, and in the background or not",
            ),
            switch("doors").help(
                "Protocols: the same samples sent to Firn only, by remote write 1.0 and 2.0, over \
                 TLS, and forwarded to a receiver",
            ),
            switch("cluster").help(
                "Cluster: three nodes on a bucket next to a single node; the bucket is served by \
                 versitygw, from BENCH_VERSITYGW or PATH, or is a folder",
            ),
            switch("scrape").help("Scraping: 2,000 targets scraped every 15 s"),
            switch("rules").help(
                "Rules: a thousand recording rules over 100 k series every minute, next to the \
                 same load without rules",
            ),
            switch("reads").help("Remote read: two hours of 20 k series read in chunks"),
            switch("refresh").help(
                "Results cache: a dashboard over six hours of 10 k series that is refreshed every \
                 ten seconds, with and without the cache",
            ),
            switch("create").help(
                "Import: blocks created from a text of twenty million samples, by firn and by \
                 promtool from PATH",
            ),
            path("record", "DIR").help(
                "Record the requests that a real Prometheus with four shards sends in a \
                     minute, in DIR",
            ),
            path("replay", "DIR")
                .help("CPU time per sample of a recording in DIR, and of a generated load"),
        ])
        .group(ArgGroup::new("size").args(["short", "full"]))
        .group(ArgGroup::new("mode").args([
            "history", "churn", "ablation", "doors", "cluster", "scrape", "rules", "reads",
            "refresh", "create", "record", "replay",
        ]))
        .args([
            span("span").help("Length of the history [default: 15d, or 2d with --short]"),
            span("interval")
                .help("Interval between samples of the history [default: 15s, or 1m with --short]"),
            Arg::new("crowd")
                .long("crowd")
                .value_name("N")
                .requires("history")
                .value_parser(value_parser!(usize))
                .help(
                    "Number of new series after the history [default: 1000000, or 100000 with \
                     --short]",
                ),
            Arg::new("only")
                .long("only")
                .value_name("SYSTEM")
                .value_parser(ALL.map(Kind::program_name))
                .action(ArgAction::Append)
                .help("System to measure; may be repeated [default: all]"),
            path("json", "FILE")
                .help("File for all results [default: bench-DATE.json in the scratch folder]"),
            path("svg", "FILE").help("File for the chart of a churn run"),
            path("dir", "DIR").help("Folder for loads and data [default: the scratch folder]"),
            switch("keep").help("Keep loads and data after the run"),
        ])
}

/// Parses a duration such as `15d` into milliseconds, as a value parser of clap.
fn milliseconds(text: &str) -> Result<i64, String> {
    let duration =
        parse_duration(text).map_err(|_| format!("{text:?} is not a duration such as 15d"))?;
    Ok(duration.as_millis() as i64)
}

impl Arguments {
    /// Parses a command line that begins with the name of the program. The error may be the
    /// requested help.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let matches = command().try_get_matches_from(words)?;
        let path = |id| matches.get_one::<PathBuf>(id).cloned();
        let only = matches.get_many::<String>("only").into_iter().flatten();
        let kind = |name: &String| ALL.into_iter().find(|k| k.program_name() == name);
        Ok(Self {
            size: if matches.get_flag("full") {
                FULL
            } else {
                SHORT
            },
            history: history(&matches),
            mode: mode(&matches),
            svg: path("svg"),
            only: only.filter_map(kind).collect(),
            json: path("json"),
            dir: path("dir"),
            keep: matches.get_flag("keep"),
        })
    }

    /// Returns whether a system is to be measured according to `--only`.
    pub fn wants(&self, kind: Kind) -> bool {
        self.only.is_empty() || self.only.contains(&kind)
    }
}

fn history(matches: &ArgMatches) -> history::Plan {
    let plan = if matches.get_flag("short") {
        SHORT_HISTORY
    } else {
        LONG_HISTORY
    };
    let given = |id| matches.get_one::<i64>(id).copied();
    history::Plan {
        span_ms: given("span").unwrap_or(plan.span_ms),
        interval_ms: given("interval").unwrap_or(plan.interval_ms),
        crowd: matches.get_one("crowd").copied().unwrap_or(plan.crowd),
    }
}

fn mode(matches: &ArgMatches) -> Mode {
    let folder = |id| matches.get_one::<PathBuf>(id).cloned();
    let switches = [
        ("churn", Mode::Churn),
        ("history", Mode::History),
        ("ablation", Mode::Ablation),
        ("doors", Mode::Doors),
        ("cluster", Mode::Cluster),
        ("scrape", Mode::Scrape),
        ("rules", Mode::Rules),
        ("reads", Mode::Reads),
        ("refresh", Mode::Refresh),
        ("create", Mode::Create),
    ];
    let switch = switches.into_iter().find(|(id, _)| matches.get_flag(id));
    match (folder("record"), folder("replay"), switch) {
        (Some(dir), ..) => Mode::Record(dir),
        (_, Some(dir), _) => Mode::Replay(dir),
        (.., Some((_, mode))) => mode,
        _ => Mode::Dashboard,
    }
}
