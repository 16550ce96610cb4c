//! `firn query instant|range|series|labels`: asks any Prometheus-compatible server over HTTP.
//!
//! Arguments, output formats, texts and exit codes are promtool's, so that scripts written for it
//! work.

mod client;
mod print;

use crate::console;
use client::{Client, ClientError, Params};
use firn_model::units::parse_duration;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// How to call it.
pub const USAGE: &str = "\
Usage:
  firn query instant [--time TIME] [--header NAME=VALUE] [-o promql|json] SERVER EXPR
  firn query range [--start TIME] [--end TIME] [--step DURATION] [--header NAME=VALUE]
                   [-o promql|json] SERVER EXPR
  firn query series --match SELECTOR... [--start TIME] [--end TIME] [-o promql|json] SERVER
  firn query labels [--match SELECTOR...] [--start TIME] [--end TIME] [-o promql|json]
                    SERVER NAME

TIME is RFC 3339 or seconds since the epoch.";

/// The span of a range query that names no start, as in promtool.
const RANGE_SECONDS: f64 = 300.0;

/// How far from now series and labels are looked for if no time is given, as in promtool.
const FAR_SECONDS: f64 = 9999.0 * 3600.0;

/// Why a query was not answered.
#[derive(Debug, thiserror::Error)]
enum QueryError {
    #[error("{0}\n\n{USAGE}")]
    Usage(String),
    #[error("error parsing {what}: cannot parse {text:?} to a valid timestamp")]
    Time { what: &'static str, text: String },
    #[error("start time is not before end time")]
    Order,
    #[error("query error: {0}")]
    Client(#[from] ClientError),
}

#[derive(Default)]
struct Arguments {
    positional: Vec<String>,
    time: Option<String>,
    start: Option<String>,
    end: Option<String>,
    step: Option<Duration>,
    matchers: Vec<String>,
    headers: Vec<(String, String)>,
    is_json: bool,
}

/// Runs `firn query` with the arguments behind it.
pub fn run(args: &[OsString]) -> ExitCode {
    match answer(args) {
        Ok(text) => {
            console::out(&text);
            ExitCode::SUCCESS
        }
        Err(e) => {
            console::err(&e.to_string());
            ExitCode::from(if matches!(e, QueryError::Usage(_)) {
                2
            } else {
                1
            })
        }
    }
}

fn answer(args: &[OsString]) -> Result<String, QueryError> {
    let usage = |why: &str| Err(QueryError::Usage(why.to_owned()));
    let Some((kind, rest)) = args.split_first() else {
        return usage("what to query is missing");
    };
    let a = read_arguments(rest)?;
    let positional: Vec<&str> = a.positional.iter().map(String::as_str).collect();
    match (kind.to_str().unwrap_or_default(), positional.as_slice()) {
        ("instant", [server, expr]) => instant(&a, server, expr),
        ("range", [server, expr]) => range(&a, server, expr),
        ("series", [server]) if !a.matchers.is_empty() => series(&a, server),
        ("series", [_]) => usage("required flag --match not provided"),
        ("labels", [server, name]) => labels(&a, server, name),
        ("instant" | "range" | "series" | "labels", _) => usage("wrong number of arguments"),
        (other, _) => usage(&format!("cannot query {other:?}")),
    }
}

fn read_arguments(args: &[OsString]) -> Result<Arguments, QueryError> {
    use lexopt::Arg::{Long, Short, Value};
    let usage = |e: lexopt::Error| QueryError::Usage(e.to_string());
    let mut read = Arguments::default();
    let mut parser = lexopt::Parser::from_args(args.iter().cloned());
    while let Some(arg) = parser.next().map_err(usage)? {
        let name = match arg {
            Value(word) => {
                read.positional.push(word.to_string_lossy().into_owned());
                continue;
            }
            Long(name) => name.to_owned(),
            Short('o') => "format".to_owned(),
            Short(_) => return Err(usage(arg.unexpected())),
        };
        let value = parser
            .value()
            .map_err(usage)?
            .to_string_lossy()
            .into_owned();
        read.set(&name, value).map_err(QueryError::Usage)?;
    }
    Ok(read)
}

impl Arguments {
    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "time" => self.time = Some(value),
            "start" => self.start = Some(value),
            "end" => self.end = Some(value),
            "match" => self.matchers.push(value),
            "step" => self.step = Some(parse_duration(&value).map_err(|e| e.to_string())?),
            "header" => {
                let (name, value) = value
                    .split_once(['=', ':'])
                    .ok_or_else(|| format!("expected NAME=VALUE, got {value:?}"))?;
                self.headers.push((name.to_owned(), value.to_owned()));
            }
            "format" => match value.as_str() {
                "promql" => self.is_json = false,
                "json" => self.is_json = true,
                _ => return Err(format!("format must be promql or json, got {value:?}")),
            },
            _ => return Err(format!("unknown flag --{name}")),
        }
        Ok(())
    }
}

fn instant(a: &Arguments, server: &str, expr: &str) -> Result<String, QueryError> {
    let time = seconds(a.time.as_deref(), "evaluation time")?.unwrap_or_else(now);
    let params: Params<'_> = vec![("query", expr.to_owned()), ("time", time.to_string())];
    let data = Client::new(server, &a.headers).post("/api/v1/query", &params)?;
    Ok(print::value(&data, a.is_json))
}

fn range(a: &Arguments, server: &str, expr: &str) -> Result<String, QueryError> {
    let end = seconds(a.end.as_deref(), "end time")?.unwrap_or_else(now);
    let start = seconds(a.start.as_deref(), "start time")?.unwrap_or(end - RANGE_SECONDS);
    if start >= end {
        return Err(QueryError::Order);
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
    let data = Client::new(server, &a.headers).post("/api/v1/query_range", &params)?;
    Ok(print::value(&data, a.is_json))
}

fn series(a: &Arguments, server: &str) -> Result<String, QueryError> {
    let params = look_up_params(a)?;
    let data = Client::new(server, &a.headers).post("/api/v1/series", &params)?;
    Ok(print::series(&data, a.is_json))
}

fn labels(a: &Arguments, server: &str, name: &str) -> Result<String, QueryError> {
    let params = look_up_params(a)?;
    let client = Client::new(server, &a.headers);
    let data = client.get(
        &format!("/api/v1/label/{}/values", client::escape(name)),
        &params,
    )?;
    Ok(print::label_values(&data, a.is_json))
}

fn look_up_params(a: &Arguments) -> Result<Params<'static>, QueryError> {
    let start = seconds(a.start.as_deref(), "start time")?.unwrap_or_else(|| now() - FAR_SECONDS);
    let end = seconds(a.end.as_deref(), "end time")?.unwrap_or_else(|| now() + FAR_SECONDS);
    let mut params: Params<'_> = vec![("start", start.to_string()), ("end", end.to_string())];
    params.extend(a.matchers.iter().map(|m| ("match[]", m.clone())));
    Ok(params)
}

/// Seconds since the epoch of a time argument, if there is one.
fn seconds(text: Option<&str>, what: &'static str) -> Result<Option<f64>, QueryError> {
    let Some(text) = text else {
        return Ok(None);
    };
    if let Ok(seconds) = text.parse::<f64>()
        && seconds.is_finite()
    {
        return Ok(Some(seconds));
    }
    match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(time) => Ok(Some(time.unix_timestamp_nanos() as f64 / 1e9)),
        Err(_) => Err(QueryError::Time {
            what,
            text: text.to_owned(),
        }),
    }
}

/// Now, to the millisecond: no server keeps finer times.
fn now() -> f64 {
    (OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000) as f64 / 1e3
}
