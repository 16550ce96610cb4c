//! Options that turn a load into a load test: queries beside the writes, goals, and presets.
//!
//! - [`asking`] sends queries when they are due; [`list`] reads them from files.
//! - [`goals`] are the requirements that the system must meet.
//! - [`text`] formats the report for people.

pub mod asking;
pub mod goals;
pub mod list;
pub mod text;

use super::arguments::{duration_ms, value};
use super::extras::LoadExtras;
use crate::error::MirrorError;
use asking::{QueryLoadPlan, base_url};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use goals::LoadGoals;
use std::path::PathBuf;
use std::time::Duration;

/// Format of the printed report, from `--format` and `--json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// JSON for programs, with all figures.
    Json,
    /// Text for people, with rounded figures.
    #[default]
    Text,
}

/// The queries, goals and extras of a load test, read from the flags. All of them are optional.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadTest {
    /// The queries to send, if `--queries` or a preset specifies any.
    pub plan: Option<QueryLoadPlan>,
    /// The goals, if `--slo` or a preset enables their check.
    pub goals: Option<LoadGoals>,
    /// Data time in milliseconds during which the fleet and the query rate grow to their full size.
    pub ramp_ms: i64,
    /// Replicas, late samples and exemplars of the load.
    pub extras: LoadExtras,
    /// Format of the report that is printed at the end.
    pub format: ReportFormat,
}

/// Maximum number of replicas, far more than anyone runs for one fleet.
const REPLICAS_MAX: u64 = 100;

/// The benchmark that Prometheus runs for pull requests: half a million series in 850 targets,
/// 110,000 samples per second, and 60 % of the instances replaced every 15 minutes.
const PROMBENCH: [(&str, &str); 9] = [
    ("series", "500000"),
    ("targets", "850"),
    ("interval", "4545ms"),
    ("duration", "30m"),
    ("senders", "10"),
    ("churn", "0.6"),
    ("churn-period", "15m"),
    ("query-rate", "2"),
    ("ramp", "1m"),
];

fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).value_name(value).help(help);
    // As in other tools, the word after a flag is its value even if it begins with a hyphen.
    arg.allow_hyphen_values(true)
}

/// Returns the flags of a load test, in addition to those of a plain load.
pub fn arguments() -> Vec<Arg> {
    let mut arguments = vec![
        text(
            "preset",
            "NAME",
            "Named load; sets all flags that are not given",
        )
        .value_parser(["prombench"]),
        text(
            "scale",
            "FACTOR",
            "Factor by which the preset's series and queries are scaled",
        )
        .value_parser(parse_scale)
        .requires("preset"),
        text(
            "queries",
            "FILE",
            "Queries to send during the load, from Grafana dashboards, rule files, query logs, \
             queries.active, lists with lines such as `weight=2 range=1h up`, or folders of these",
        )
        .num_args(1..)
        .allow_hyphen_values(false)
        .action(ArgAction::Append)
        .value_parser(value_parser!(PathBuf)),
        text(
            "query-url",
            "URL",
            "Base URL of the system to query [default: --url without /api/v1/write]",
        ),
        text(
            "query-rate",
            "N",
            "Queries to send per second, regardless of outstanding answers",
        )
        .value_parser(value_parser!(f64))
        .default_value("1"),
        text(
            "query-connections",
            "N",
            "Maximum number of concurrent queries",
        )
        .value_parser(value_parser!(usize))
        .default_value("20"),
        text("query-timeout", "DURATION", "Timeout of a query").default_value("2m"),
        text(
            "ramp",
            "DURATION",
            "Data time in which the number of series and queries grows to its full value",
        )
        .default_value("0s"),
    ];
    arguments.extend(extra_arguments());
    arguments.extend(goal_arguments());
    arguments
}

/// Returns the flags for replicas, late samples and exemplars of the generated samples.
fn extra_arguments() -> [Arg; 4] {
    [
        text(
            "replicas",
            "N",
            "Number of servers that scrape the fleet; their samples differ in the label \
             __replica__",
        )
        .value_parser(value_parser!(u64))
        .default_value("1"),
        text(
            "late",
            "SHARE",
            "Fraction of samples sent late, from 0 to 1",
        )
        .value_parser(value_parser!(f64))
        .default_value("0"),
        text("late-by", "DURATION", "Delay of late samples, in data time").default_value("5m"),
        text(
            "exemplars",
            "SHARE",
            "Fraction of histogram samples with an exemplar, from 0 to 1",
        )
        .value_parser(value_parser!(f64))
        .default_value("0"),
    ]
}

/// Returns the flags for goals and for the format of the report.
fn goal_arguments() -> [Arg; 8] {
    [
        Arg::new("slo").long("slo").action(ArgAction::SetTrue).help(
            "Check the goals below; exit with code 1 if one is missed [default with a preset]",
        ),
        text(
            "slo-write-share",
            "SHARE",
            "Fraction of writes that must be accepted in time, from 0 to 1",
        )
        .value_parser(value_parser!(f64))
        .default_value("0.999"),
        text(
            "slo-write-within",
            "DURATION",
            "Maximum duration of a write that counts as in time",
        )
        .default_value("10s"),
        text(
            "slo-read-share",
            "SHARE",
            "Fraction of queries that must succeed, from 0 to 1",
        )
        .value_parser(value_parser!(f64))
        .default_value("0.999"),
        text(
            "slo-read-average",
            "DURATION",
            "Maximum average duration of queries",
        )
        .default_value("2s"),
        text(
            "slo-fairness",
            "FACTOR",
            "Maximum ratio between the 99th percentiles of queries of equal cost",
        )
        .value_parser(value_parser!(f64))
        .default_value("4"),
        text("format", "FORMAT", "Format of the report")
            .value_parser(["json", "text"])
            .default_value("text"),
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("Print the report as JSON, with exact numbers"),
    ]
}

/// Returns the arguments of the preset that `matches` names, to be inserted before the user's
/// arguments.
pub fn preset(matches: &ArgMatches) -> Vec<String> {
    if matches.get_one::<String>("preset").is_none() {
        return Vec::new();
    }
    let scale = matches.get_one::<f64>("scale").copied().unwrap_or(1.0);
    // With an explicit number of series, the preset's number of targets does not apply.
    let is_given = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
    let scaled = |name: &str, text: &str| match (name, text.parse::<f64>()) {
        ("series", Ok(number)) => (number * scale).ceil().to_string(),
        ("targets", Ok(number)) => (number * scale).round().max(1.0).to_string(),
        ("query-rate", Ok(number)) => (number * scale).to_string(),
        _ => text.to_owned(),
    };
    let set = PROMBENCH
        .iter()
        .filter(|(name, _)| *name != "targets" || !is_given("series"))
        .map(|(name, text)| format!("--{name}={}", scaled(name, text)));
    set.chain(["--live".to_owned(), "--slo".to_owned()])
        .collect()
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok();
    let scale = scale.filter(|scale| *scale > 0.0 && *scale <= 1000.0);
    scale.ok_or_else(|| "must be a number greater than 0 and at most 1000".to_owned())
}

impl LoadTest {
    /// Reads the flags of a load test. `url` is the receiver of the writes, from which the query
    /// URL is derived by default.
    pub fn from_matches(matches: &ArgMatches, url: &str) -> Result<Self, MirrorError> {
        let ramp_ms = duration_ms(matches, "ramp")?;
        let plan = plan(matches, url, ramp_ms)?;
        let goals = matches.get_flag("slo").then(|| goals(matches));
        let text: String = value(matches, "format")?;
        Ok(Self {
            plan,
            goals: goals.transpose()?,
            ramp_ms,
            extras: extras(matches)?,
            format: match text.as_str() {
                "text" if !matches.get_flag("json") => ReportFormat::Text,
                _ => ReportFormat::Json,
            },
        })
    }
}

fn plan(
    matches: &ArgMatches,
    url: &str,
    ramp_ms: i64,
) -> Result<Option<QueryLoadPlan>, MirrorError> {
    let has_preset = matches.get_one::<String>("preset").is_some();
    let files = matches.get_many::<PathBuf>("queries").into_iter().flatten();
    let files: Vec<PathBuf> = files.cloned().collect();
    let (questions, dashboards) = match (files.is_empty(), has_preset) {
        (false, _) => list::read(&files)?,
        (true, true) => (list::default_fleet_queries(), Vec::new()),
        (true, false) => return Ok(None),
    };
    let rate: f64 = value(matches, "query-rate")?;
    if rate == 0.0 {
        return Ok(None);
    }
    if !(rate > 0.0 && rate <= 1e6) {
        let what = format!("--query-rate must be between 0 and 1000000: {rate}");
        return Err(MirrorError::Usage(what));
    }
    let connections: usize = value(matches, "query-connections")?;
    if connections == 0 || connections > 10_000 {
        let what = format!("--query-connections must be between 1 and 10000: {connections}");
        return Err(MirrorError::Usage(what));
    }
    let timeout_ms = duration_ms(matches, "query-timeout")?;
    Ok(Some(QueryLoadPlan {
        base: match matches.get_one::<String>("query-url") {
            Some(base) => base.clone(),
            None => base_url(url)?,
        },
        questions,
        dashboards,
        rate,
        ramp: milliseconds(ramp_ms),
        connections,
        timeout: milliseconds(timeout_ms.max(1)),
        seed: value(matches, "seed")?,
    }))
}

/// Returns the value of a flag that must be between 0 and 1. Fails with a usage error otherwise.
fn share(matches: &ArgMatches, name: &str) -> Result<f64, MirrorError> {
    let share: f64 = value(matches, name)?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(MirrorError::Usage(format!(
            "--{name} must be between 0 and 1: {share}"
        )))
    }
}

fn extras(matches: &ArgMatches) -> Result<LoadExtras, MirrorError> {
    let replicas = value(matches, "replicas")?;
    if !(1..=REPLICAS_MAX).contains(&replicas) {
        let what = format!("--replicas must be between 1 and {REPLICAS_MAX}: {replicas}");
        return Err(MirrorError::Usage(what));
    }
    Ok(LoadExtras {
        replicas,
        late_share: share(matches, "late")?,
        late_by_ms: duration_ms(matches, "late-by")?,
        exemplar_share: share(matches, "exemplars")?,
    })
}

fn goals(matches: &ArgMatches) -> Result<LoadGoals, MirrorError> {
    Ok(LoadGoals {
        write_share: share(matches, "slo-write-share")?,
        write_within: milliseconds(duration_ms(matches, "slo-write-within")?),
        read_share: share(matches, "slo-read-share")?,
        read_average: milliseconds(duration_ms(matches, "slo-read-average")?),
        fairness: value(matches, "slo-fairness")?,
    })
}

fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
