//! `firn tsdb create-blocks-from rules FILE...`: what recording rules would have made becomes
//! blocks. Flags and texts are promtool's.
//!
//! ```text
//! rule file -> groups -> windows of two hours -> a range query for each rule -> samples -> blocks
//! ```
//!
//! Invariant: instants are those at which the group is evaluated. All blocks are committed at the
//! end: a query that fails leaves nothing. Rules that make alerts are left out, and so are native
//! histograms.

use super::transfer::parse_time;
use crate::commands::arguments::{files, paths_of};
use crate::commands::client::{CommandClient, Params, http_config, http_config_of};
use crate::commands::query::post;
use clap::{Arg, ArgMatches, Command, value_parser};
use firn_http_client::named_files;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::START_UNKNOWN;
use firn_model::units::{format_duration, parse_duration};
use firn_promql::Features;
use firn_rules::file::{RuleFileOptions, parse};
use firn_rules::group::RuleGroup;
use firn_rules::instant::RuleInstant;
use firn_rules::rule::Rule;
use firn_storage::import::{BlockImport, ChunkSample, ImportBuffer, ImportSummary, ImportTarget};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The stretch that one query is about, in seconds: as upstream, a block of Prometheus.
const WINDOW_SECONDS: i64 = 2 * 60 * 60;

/// Distance of the default end of the evaluation from now, in milliseconds. A server may still
/// evaluate newer times itself.
const END_BEFORE_NOW_MS: i64 = 3 * 60 * 60 * 1000;

/// Bytes of samples that wait in memory.
const BUFFER_BYTES: usize = 256 << 20;

/// Returns the command line: arguments, flags and help texts.
pub fn command() -> Command {
    let option = |name: &'static str, value: &'static str| {
        let arg = Arg::new(name).long(name).value_name(value);
        arg.allow_hyphen_values(true)
    };
    let interval = option("eval-interval", "DURATION")
        .default_value("60s")
        .value_parser(|text: &str| parse_duration(text).map_err(|e| e.to_string()));
    Command::new("rules")
        .about("Evaluate recording rules over a past time range and write the results as blocks")
        .long_about(
            "Queries a server for the expressions of recording rules, at the times at which it \
             would have evaluated them, and writes the results as blocks. Alerting rules are \
             skipped. If a query fails, the data folder is left unchanged.",
        )
        .args([
            http_config(),
            option("url", "URL")
                .default_value("http://localhost:9090")
                .help("URL of the server to query"),
            option("start", "TIME")
                .required(true)
                .help("First evaluation time, as RFC 3339 or seconds since the epoch"),
            option("end", "TIME").help(
                "Last evaluation time, as RFC 3339 or seconds since the epoch [default: 3h \
                     ago]",
            ),
            option("output-dir", "DIR")
                .alias("data")
                .default_value("data/")
                .value_parser(value_parser!(PathBuf))
                .help("Data folder; no server may be using it"),
            interval.help("Evaluation interval of groups without an interval"),
            files("Rule files"),
        ])
}

/// Makes the blocks.
pub fn run(env: &Env, matches: &ArgMatches) -> Result<ImportSummary, Error> {
    let text = |id: &str| matches.get_one::<String>(id).map(String::as_str);
    let time = |text: &str, what: &str| {
        parse_time(text).ok_or_else(|| {
            let why = format!("cannot parse {text:?} to a valid timestamp");
            invalid(format!("error parsing {what} time: {why}"))
        })
    };
    let end_ms = match text("end") {
        Some(end) => time(end, "end")?,
        None => env.clock.now_ms() - END_BEFORE_NOW_MS,
    };
    let start_ms = time(text("start").unwrap_or_default(), "start")?;
    if start_ms >= end_ms {
        return Err(invalid("start time is not before end time".to_owned()));
    }
    let interval = matches.get_one::<Duration>("eval-interval").copied();
    let interval = interval.filter(|interval| !interval.is_zero());
    let interval = interval.ok_or_else(|| invalid("--eval-interval is zero".to_owned()))?;
    let groups = groups_of(&paths_of(matches), interval)?;
    let http = http_config_of(matches).map(PathBuf::as_path);
    let client = CommandClient::new(text("url").unwrap_or_default(), http, &[]);
    let client = client.map_err(|e| invalid(e.to_string()))?;
    let data = matches.get_one::<PathBuf>("output-dir");
    let target = ImportTarget::open_folder(env, data.map_or(Path::new("data"), PathBuf::as_path))?;
    let mut making = RuleBlockWriter {
        client,
        import: target.begin(),
        buffer: ImportBuffer::default(),
    };
    for group in &groups {
        for rule in &group.rules {
            let (start, end) = (start_ms.div_euclid(1000), end_ms.div_euclid(1000));
            making.rule(group, rule, start, end)?;
        }
    }
    making.buffer.flush(&mut making.import)?;
    making.import.verify()?;
    making.import.commit()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// The groups of all files, with their recording rules alone.
fn groups_of(files: &[PathBuf], interval: Duration) -> Result<Vec<RuleGroup>, Error> {
    let wrong = |path: &str, e: &dyn std::fmt::Display| {
        invalid(format!("rule importer parse error: {path}: {e}"))
    };
    let mut groups = Vec::new();
    for file in files {
        let path = file.display().to_string();
        let text = named_files::read_any_text(file).map_err(|e| wrong(&path, &e))?;
        // Whatever a server may be switched to: it is the one that evaluates.
        let options = RuleFileOptions {
            features: Features::ALL,
            ..RuleFileOptions::default()
        };
        let read = parse(&text, options);
        let read = read.map_err(|errors| match errors.first() {
            Some(e) => wrong(&path, e),
            None => wrong(&path, &"no rules"),
        })?;
        let of_file = RuleGroup::from_file(&path, &read, interval, options.features);
        let of_file = of_file.map_err(|e| invalid(format!("rule importer parse error: {e}")))?;
        groups.extend(of_file.iter().map(RuleGroup::recording_only));
    }
    Ok(groups)
}

/// Instants from `start` to `end`, in seconds, of a window of them; `None` if there is none.
fn instants(group: &RuleGroup, start: i64, end: i64) -> Option<(RuleInstant, RuleInstant)> {
    let wanted = RuleInstant::from_seconds(start);
    let mut first = group.instant_at(wanted);
    // As upstream, which looks at whole seconds.
    while first.seconds() < start {
        first = first.after(group.interval);
    }
    let end = RuleInstant::from_seconds(end);
    (first <= end).then_some((first, end))
}

/// What asks, and where answers go.
struct RuleBlockWriter {
    client: CommandClient,
    import: BlockImport,
    buffer: ImportBuffer,
}

impl RuleBlockWriter {
    /// Evaluates a rule from `start` to `end`, in seconds, a window after the other.
    fn rule(&mut self, group: &RuleGroup, rule: &Rule, start: i64, end: i64) -> Result<(), Error> {
        let mut window = start.div_euclid(WINDOW_SECONDS) * WINDOW_SECONDS;
        while window <= end {
            let last = (window + WINDOW_SECONDS - 1).min(end);
            if let Some((first, last)) = instants(group, window.max(start), last) {
                let data = self.query_window(group, rule, first, last)?;
                self.add_answer(rule, &data)?;
            }
            window += WINDOW_SECONDS;
        }
        Ok(())
    }

    fn query_window(
        &self,
        group: &RuleGroup,
        rule: &Rule,
        first: RuleInstant,
        last: RuleInstant,
    ) -> Result<Value, Error> {
        // To the nanosecond: servers round, where rules cut.
        let seconds = |instant: RuleInstant| {
            let rest = instant.nanos().rem_euclid(1_000_000_000);
            format!("{}.{rest:09}", instant.seconds())
        };
        let params: Params<'_> = vec![
            ("query", rule.query.clone()),
            ("start", seconds(first)),
            ("end", seconds(last)),
            ("step", format_duration(group.interval)),
        ];
        let data = post(&self.client, "/api/v1/query_range", &params);
        data.map_err(|e| {
            let name = &rule.name;
            Error::unavailable(format!("rule importer error: {name}: query range: {e}"))
        })
    }

    /// Keeps the samples of an answer, as series of the rule.
    fn add_answer(&mut self, rule: &Rule, data: &Value) -> Result<(), Error> {
        if data["resultType"] != "matrix" {
            let kind = data["resultType"].as_str().unwrap_or("of no type");
            return Err(invalid(format!("rule result is wrong type {kind}")));
        }
        for series in data["result"].as_array().into_iter().flatten() {
            let labels = labels_of(rule, &series["metric"]);
            for pair in series["values"].as_array().into_iter().flatten() {
                let time = pair[0]
                    .as_f64()
                    .map(|seconds| (seconds * 1e3).round() as i64);
                let value = pair[1].as_str().and_then(|text| text.parse::<f64>().ok());
                let (Some(time), Some(value)) = (time, value) else {
                    return Err(invalid(format!("the response contains no sample: {pair}")));
                };
                let sample = ChunkSample::Float(value);
                self.buffer
                    .push(labels.as_ref(), time, START_UNKNOWN, sample);
            }
            if self.buffer.memory_bytes() >= BUFFER_BYTES {
                self.buffer.flush(&mut self.import)?;
            }
        }
        Ok(())
    }
}

/// The labels of a series that a rule makes of one with `metric`.
fn labels_of(rule: &Rule, metric: &Value) -> Labels {
    let mut labels = LabelsBuilder::default();
    for (name, value) in metric.as_object().into_iter().flatten() {
        labels.set(name, value.as_str().unwrap_or_default().as_bytes());
    }
    for (name, value) in &rule.labels {
        labels.set(name, value.as_bytes());
    }
    labels.set(METRIC_NAME, rule.name.as_bytes());
    labels.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(rules: &str) -> RuleGroup {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.yml");
        let text = format!("groups: [{{name: g, interval: 7s, rules: [{rules}]}}]");
        std::fs::write(&file, text).unwrap();
        groups_of(&[file], Duration::from_secs(60))
            .unwrap()
            .remove(0)
    }

    #[test]
    fn rules_that_make_alerts_are_left_out_and_labels_of_the_rule_win() {
        let group = group("{alert: A, expr: up}, {record: 'a:b', expr: up, labels: {x: r, y: ''}}");
        assert_eq!(group.rules.len(), 1);
        let metric = serde_json::json!({"__name__": "up", "x": "q", "y": "q", "z": "q"});
        let labels = labels_of(&group.rules[0], &metric);
        assert_eq!(labels.to_string(), "{__name__=\"a:b\", x=\"r\", z=\"q\"}");
    }

    #[test]
    fn instants_are_those_of_the_group_and_lie_within_the_window() {
        let group = group("{record: a, expr: up}");
        let (first, last) = instants(&group, 1_000, 2_000).unwrap();
        assert_eq!(first, group.instant_at(first));
        assert!((1_000..1_008).contains(&first.seconds()), "{first:?}");
        assert_eq!(last, RuleInstant::from_seconds(2_000));
        let second = first.seconds();
        assert_eq!(instants(&group, second + 1, second + 2), None);
    }
}
