//! `firn query instant|range|series|labels|analyze`: asks any Prometheus-compatible server over
//! HTTP.
//!
//! Arguments, output formats, texts and exit codes are promtool's, so that scripts written for it
//! work.

mod analyze;
mod client;
mod plan;
mod print;

use super::arguments::{NOT_UNDERSTOOD, texts};
use super::client::{CommandClient, CommandClientError, Params, http_config, http_config_of};
use crate::console;
use clap::{Arg, ArgAction, ArgMatches, Command};
use client::ApiError;
pub(super) use client::{get, post};
use firn_mirror::api::label_values;
use firn_model::go_time::parse_rfc3339;
use firn_model::units::parse_duration;
use plan::PlanParameter;
use std::process::ExitCode;
use std::time::Duration;
use time::OffsetDateTime;

/// The span of a range query that names no start, as in promtool.
const RANGE_SECONDS: f64 = 300.0;

/// Distance of the default time range of series and labels from now, in seconds, as in promtool.
const FAR_SECONDS: f64 = 9999.0 * 3600.0;

/// The reason why a query failed.
#[derive(Debug, thiserror::Error)]
enum QueryCommandError {
    #[error("{0}\n\nFor more information, try 'firn query --help'.")]
    Usage(String),
    #[error("error parsing {what}: cannot parse {text:?} to a valid timestamp")]
    Time { what: &'static str, text: String },
    #[error("start time is not before end time")]
    Order,
    #[error("query error: {0}")]
    Api(#[from] ApiError),
    #[error(transparent)]
    Client(#[from] CommandClientError),
    #[error("{0}")]
    Other(String),
}

/// What `firn query` understands.
pub fn command() -> Command {
    let time = |name: &'static str, help: &'static str| option(name, "TIME").help(help);
    let start = || {
        time(
            "start",
            "Start of the time range, as RFC 3339 or seconds since the epoch",
        )
    };
    let end = || {
        time(
            "end",
            "End of the time range, as RFC 3339 or seconds since the epoch",
        )
    };
    let instant = Command::new("instant")
        .about("Evaluate an expression at one point in time")
        .arg(time(
            "time",
            "Evaluation time, as RFC 3339 or seconds since the epoch [default: now]",
        ))
        .arg(word(2, "expr", "EXPR", "A PromQL expression"));
    let step = option("step", "DURATION").help("Query resolution step, for example 15s or 1m30s");
    let range = Command::new("range")
        .about("Evaluate an expression over a time range [default: the last 5 minutes]")
        .args([start(), end(), step])
        .arg(word(2, "expr", "EXPR", "A PromQL expression"));
    let matcher = || option("match", "SELECTOR").action(ArgAction::Append);
    let series = Command::new("series")
        .about("List the label sets of series")
        .arg(matcher().help(
            "Selector of the series to list, for example up{job=\"x\"}; may be repeated [required]",
        ))
        .args([start(), end()]);
    let labels =
        Command::new("labels")
            .about("List the values of a label")
            .arg(matcher().help(
                "Selector of the series to consider, for example up{job=\"x\"}; may be repeated",
            ))
            .args([start(), end()])
            .arg(word(2, "name", "NAME", "Name of the label"));
    let server = word(
        1,
        "server",
        "SERVER",
        "URL or address of the server, for example localhost:9090",
    );
    let kinds = [instant, range, series, labels];
    let header = option("header", "NAME=VALUE").action(ArgAction::Append);
    let header = header.help("Header to add to every request; may be repeated");
    let kinds = kinds.map(|kind| kind.arg(server.clone()).arg(header.clone()));
    Command::new("query")
        .about("Query a Prometheus-compatible server")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args([http_config(), format()].map(|arg| arg.global(true)))
        .args(plan::arguments())
        .subcommands(kinds)
        .subcommand(analyze_command())
}

/// What `firn query analyze` understands.
fn analyze_command() -> Command {
    let span = option("duration", "DURATION")
        .default_value("1h")
        .value_parser(|text: &str| parse_duration(text).map_err(|e| e.to_string()));
    Command::new("analyze")
        .about("Show how many histogram buckets are in use")
        .args([
            option("server", "SERVER")
                .required(true)
                .help("URL or address of the server, for example localhost:9090"),
            option("type", "TYPE")
                .required(true)
                .help("Type of metric to analyze: histogram"),
            span.help("Length of the time range to analyze, which ends at --time"),
            option("time", "TIME").help(
                "End of the time range to analyze, as RFC 3339 or seconds since the epoch \
                 [default: now]",
            ),
            option("match", "SELECTOR")
                .action(ArgAction::Append)
                .required(true)
                .help("Selector of histogram series; may be repeated"),
        ])
}

/// The format of the output, which stands before and behind the kind of query.
fn format() -> Arg {
    option("format", "FORMAT")
        .short('o')
        .default_value("promql")
        .value_parser(["promql", "json"])
        .help("Output format")
}

fn option(name: &'static str, value: &'static str) -> Arg {
    // A time may be negative.
    let arg = Arg::new(name).long(name).value_name(value);
    arg.allow_hyphen_values(true)
}

/// The argument in place `index`, from one on.
fn word(index: usize, id: &'static str, value: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(id).index(index).value_name(value);
    arg.required(true).help(help)
}

/// Runs `firn query`.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let Some((kind, matches)) = matches.subcommand() else {
        return ExitCode::from(NOT_UNDERSTOOD);
    };
    match answer(kind, matches) {
        Ok(text) => {
            console::out(&text);
            ExitCode::SUCCESS
        }
        Err(e) => {
            console::err(&e.to_string());
            ExitCode::from(match e {
                QueryCommandError::Usage(_) => NOT_UNDERSTOOD,
                _ => 1,
            })
        }
    }
}

/// The arguments of a query.
struct QueryArguments {
    time: Option<String>,
    start: Option<String>,
    end: Option<String>,
    step: Option<Duration>,
    matchers: Vec<String>,
    client: CommandClient,
    is_json: bool,
    report: Option<PlanParameter>,
}

impl QueryArguments {
    fn from_matches(matches: &ArgMatches) -> Result<Self, QueryCommandError> {
        // Not every kind of query has every argument.
        let text = |id| matches.try_get_one::<String>(id).ok().flatten().cloned();
        let step = text("step").map(|step| parse_duration(&step)).transpose();
        let matchers = matches.try_get_many::<String>("match").ok().flatten();
        Ok(Self {
            time: text("time"),
            start: text("start"),
            end: text("end"),
            step: step.map_err(|e| QueryCommandError::Usage(e.to_string()))?,
            matchers: matchers.into_iter().flatten().cloned().collect(),
            client: client_of(matches, &text("server").unwrap_or_default())?,
            is_json: text("format").as_deref() == Some("json"),
            report: PlanParameter::from_matches(matches),
        })
    }
}

/// Creates the client with the options of the command line.
fn client_of(matches: &ArgMatches, server: &str) -> Result<CommandClient, QueryCommandError> {
    let file = http_config_of(matches).map(std::path::PathBuf::as_path);
    let headers = match matches.try_contains_id("header") {
        Ok(_) => headers(matches).map_err(QueryCommandError::Usage)?,
        Err(_) => Vec::new(),
    };
    Ok(CommandClient::new(server, file, &headers)?)
}

fn headers(matches: &ArgMatches) -> Result<Vec<(String, String)>, String> {
    let split = |text: String| match text.split_once(['=', ':']) {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("expected NAME=VALUE, got {text:?}")),
    };
    texts(matches, "header").into_iter().map(split).collect()
}

fn answer(kind: &str, matches: &ArgMatches) -> Result<String, QueryCommandError> {
    if let Some(report) = PlanParameter::from_matches(matches)
        && !matches!(kind, "instant" | "range")
    {
        let why = format!("--{} needs the command instant or range", report.name());
        return Err(QueryCommandError::Usage(why));
    }
    if kind == "analyze" {
        let server = matches.get_one::<String>("server");
        let client = client_of(matches, server.map_or("", String::as_str))?;
        return analyze::analyze(&client, matches);
    }
    let a = QueryArguments::from_matches(matches)?;
    let text = |id| matches.get_one::<String>(id).map_or("", String::as_str);
    match kind {
        "instant" => instant(&a, text("expr")),
        "range" => range(&a, text("expr")),
        "series" if a.matchers.is_empty() => {
            let why = "required flag --match not provided";
            Err(QueryCommandError::Usage(why.to_owned()))
        }
        "series" => series(&a),
        _ => labels(&a, text("name")),
    }
}

fn instant(a: &QueryArguments, expr: &str) -> Result<String, QueryCommandError> {
    let time = seconds(a.time.as_deref(), "evaluation time")?.unwrap_or_else(now);
    let params: Params<'_> = vec![("query", expr.to_owned()), ("time", time.to_string())];
    evaluate(a, "/api/v1/query", params)
}

/// Sends a query and returns its result, or its plan if the command line selects it.
fn evaluate(
    a: &QueryArguments,
    path: &str,
    mut params: Params<'_>,
) -> Result<String, QueryCommandError> {
    if let Some(report) = a.report {
        params.push((report.name(), "1".to_owned()));
    }
    let data = client::post(&a.client, path, &params)?;
    match a.report {
        Some(report) => plan::text(&data, report, a.is_json).map_err(QueryCommandError::Other),
        None => Ok(print::value(&data, a.is_json)),
    }
}

fn range(a: &QueryArguments, expr: &str) -> Result<String, QueryCommandError> {
    let end = seconds(a.end.as_deref(), "end time")?.unwrap_or_else(now);
    let start = seconds(a.start.as_deref(), "start time")?.unwrap_or(end - RANGE_SECONDS);
    if start >= end {
        return Err(QueryCommandError::Order);
    }
    // 250 steps, but none shorter than a second: a screen has no room for more.
    let step = match a.step {
        Some(step) if !step.is_zero() => step.as_secs_f64(),
        _ => ((end - start) / 250.0).floor().max(1.0),
    };
    let params: Params<'_> = vec![
        ("query", expr.to_owned()),
        ("start", start.to_string()),
        ("end", end.to_string()),
        ("step", step.to_string()),
    ];
    evaluate(a, "/api/v1/query_range", params)
}

fn series(a: &QueryArguments) -> Result<String, QueryCommandError> {
    let params = look_up_params(a)?;
    let data = client::post(&a.client, "/api/v1/series", &params)?;
    Ok(print::series(&data, a.is_json))
}

fn labels(a: &QueryArguments, name: &str) -> Result<String, QueryCommandError> {
    let params = look_up_params(a)?;
    let path = format!("/api/v1/{}", label_values(name));
    let data = client::get(&a.client, &path, &params)?;
    Ok(print::label_values(&data, a.is_json))
}

fn look_up_params(a: &QueryArguments) -> Result<Params<'static>, QueryCommandError> {
    let start = seconds(a.start.as_deref(), "start time")?.unwrap_or_else(|| now() - FAR_SECONDS);
    let end = seconds(a.end.as_deref(), "end time")?.unwrap_or_else(|| now() + FAR_SECONDS);
    let mut params: Params<'_> = vec![("start", start.to_string()), ("end", end.to_string())];
    params.extend(a.matchers.iter().map(|m| ("match[]", m.clone())));
    Ok(params)
}

/// Seconds since the epoch of a time argument, if there is one and it is not empty.
fn seconds(text: Option<&str>, what: &'static str) -> Result<Option<f64>, QueryCommandError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    if let Ok(seconds) = text.parse::<f64>()
        && seconds.is_finite()
    {
        return Ok(Some(seconds));
    }
    match parse_rfc3339(text) {
        Some(nanos) => Ok(Some(nanos as f64 / 1e9)),
        None => Err(QueryCommandError::Time {
            what,
            text: text.to_owned(),
        }),
    }
}

/// Now, to the millisecond: no server keeps finer times.
fn now() -> f64 {
    (OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000) as f64 / 1e3
}
