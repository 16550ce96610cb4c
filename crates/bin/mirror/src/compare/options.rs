//! Command line of `firn compare`: its flags, their help and their validation.

mod arguments;

use super::folders::FolderRetention;
use super::tally::ComparisonPass;
use crate::error::MirrorError;
use crate::headers::CommandLineHeader;
use crate::judge::tolerance::Tolerance;
use crate::push::now_ms;
use crate::questions::reach::CommonTimeRange;
use crate::tls::TlsFilePaths;
pub use arguments::command;
use clap::ArgMatches;
use firn_model::sample::TimestampMs;
use firn_model::units::{parse_duration, parse_size};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Length of the stretch for runs without `--start`: long enough for most queries, and cheap to
/// read.
const STRETCH_MS: i64 = 3_600_000;

/// Upper bound of `--concurrency`; more requests would only measure the queues of the systems.
const CONCURRENCY_MAX: usize = 256;

/// Names of the two systems in flags and reports, in the order in which they are compared.
const NAMES: [&str; 2] = ["baseline", "candidate"];

/// Lower bound of `--busy` in percent. It bounds the pause after a request that used its whole
/// timeout.
const BUSY_MIN: f64 = 1.0;

/// The validated options of a run of `firn compare`, which all rounds share. All durations and
/// times are already converted from their text.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// URL of the system whose answers are considered correct.
    pub baseline: String,
    /// URL of the system that is compared with the baseline.
    pub candidate: String,
    /// `--queries`: files and directories from which queries are read.
    pub queries: Vec<PathBuf>,
    /// `--generate`: number of queries to generate from the metrics of the baseline.
    pub generate: usize,
    /// `--seed`: seed of the generated queries; another seed gives other queries.
    pub seed: u64,
    /// `--report`: directory to which the report and the difference folders are written.
    pub report: PathBuf,
    /// `--passes`: the passes that each round runs, in their fixed order.
    pub passes: Vec<ComparisonPass>,
    /// Selectors that restrict the label lookups; empty for all series.
    pub matches: Vec<String>,
    /// Labels that are ignored in comparisons, in addition to the built-in list.
    pub ignored_labels: Vec<String>,
    /// `--header`: headers that are added to requests of one or both systems.
    pub headers: Vec<CommandLineHeader>,
    /// Start of the data that both systems have, in milliseconds since the epoch.
    pub start_ms: TimestampMs,
    /// End of that data in milliseconds since the epoch, or `None` if it still grows.
    pub end_ms: Option<TimestampMs>,
    /// Fixed step of range queries in milliseconds; `None` derives it from the range.
    pub step_ms: Option<i64>,
    /// Time at which the run ends, in milliseconds since the epoch; `None` for a single round.
    pub until_ms: Option<TimestampMs>,
    /// Length of the end of the stretch that is queried, in milliseconds; `None` for all of it.
    pub window_ms: Option<i64>,
    /// `--gather-every`: age from which the queries are collected again.
    pub gather_every: Duration,
    /// `--pause`: time between the end of a round and the next one.
    pub pause: Duration,
    /// `--staleness-wait`: lookback delta of the systems in milliseconds, from which the history
    /// needed by a query is calculated.
    pub staleness_ms: i64,
    /// Delay in milliseconds until samples are visible in both systems.
    pub liveness_ms: i64,
    /// `--keep` and `--keep-bytes`: retention of the difference folders.
    pub keeping: FolderRetention,
    /// Timeout of a request, including the reading of its whole response.
    pub timeout: Duration,
    /// `--answer-limit`: maximum length of an answer in bytes; a longer one counts as an error.
    pub answer_bytes_max: u64,
    /// `--concurrency`: maximum number of concurrent requests to each system.
    pub concurrency: usize,
    /// Maximum share of the time that each connection spends on requests, in percent.
    pub busy: f64,
    /// Maximum difference between two values that count as equal.
    pub tolerance: Tolerance,
    /// `--fail-below`: minimum match rate for success, in percent.
    pub fail_below: f64,
    /// `--listen`: address at which metrics are served during the run, if any.
    pub listen: Option<String>,
    /// `--ca`, `--client-cert` and `--client-key`: certificate and key files for https.
    pub tls: TlsFilePaths,
}

/// Parses the arguments that follow `firn compare` without validating their combination. Fails with
/// clap's error, which may be the requested help.
pub(super) fn matches(args: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, clap::Error> {
    command().try_get_matches_from(std::iter::once("compare".into()).chain(args))
}

impl Options {
    /// Parses and validates the arguments that follow `firn compare`. Fails with a usage error.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, MirrorError> {
        Self::from_matches(&matches(args)?)
    }

    /// Converts parsed arguments into options and validates them, including their combination.
    pub(super) fn from_matches(matches: &ArgMatches) -> Result<Self, MirrorError> {
        let given = |id: &str| matches.get_one::<String>(id);
        let list = |id: &str| -> Vec<String> {
            let values = matches.get_many(id).into_iter().flatten();
            values.cloned().collect()
        };
        let queries = matches.get_many::<PathBuf>("queries").into_iter().flatten();
        let RunPeriod {
            start_ms,
            end,
            until_ms,
            liveness_ms,
        } = RunPeriod::from_matches(matches)?;
        let options = Self {
            baseline: url(matches, "baseline")?,
            candidate: url(matches, "candidate")?,
            queries: queries.cloned().collect(),
            generate: value(matches, "generate")?,
            seed: value(matches, "seed")?,
            report: value(matches, "report")?,
            passes: passes(&list("passes")),
            matches: list("match"),
            ignored_labels: list("ignore-label"),
            headers: list("header")
                .iter()
                .map(|text| CommandLineHeader::parse(text, NAMES))
                .collect::<Result<_, _>>()?,
            start_ms,
            end_ms: end,
            step_ms: optional_ms(matches, "step")?,
            until_ms,
            window_ms: optional_ms(matches, "window")?,
            gather_every: millis(duration_ms(matches, "gather-every")?),
            pause: millis(duration_ms(matches, "pause")?),
            staleness_ms: duration_ms(matches, "staleness-wait")?,
            liveness_ms,
            keeping: FolderRetention {
                age_max: millis(duration_ms(matches, "keep")?),
                bytes_max: size(matches, "keep-bytes")?,
            },
            timeout: millis(duration_ms(matches, "timeout")?),
            answer_bytes_max: size(matches, "answer-limit")?,
            concurrency: value(matches, "concurrency")?,
            busy: value(matches, "busy")?,
            tolerance: Tolerance {
                relative: value(matches, "tolerance-relative")?,
                absolute: value(matches, "tolerance-absolute")?,
                ulps: value(matches, "tolerance-ulps")?,
            },
            fail_below: value(matches, "fail-below")?,
            listen: given("listen").cloned(),
            tls: tls_files(matches),
        };
        options.check()?;
        Ok(options)
    }

    /// Returns the part of `stretch` that is queried: all of it, or its end of length `--window`.
    pub fn queried_range(&self, stretch: CommonTimeRange) -> CommonTimeRange {
        let from = self.window_ms.map(|ms| stretch.end_ms.saturating_sub(ms));
        CommonTimeRange {
            start_ms: from.map_or(stretch.start_ms, |from| from.max(stretch.start_ms)),
            ..stretch
        }
    }

    /// Returns whether any of the passes sends collected queries, so that at least one is required.
    pub fn needs_questions(&self) -> bool {
        let of_questions = [
            ComparisonPass::Instant,
            ComparisonPass::Range,
            ComparisonPass::Series,
        ];
        self.passes.iter().any(|pass| of_questions.contains(pass))
    }

    fn check(&self) -> Result<(), MirrorError> {
        let refuse = |what: String| Err(MirrorError::Usage(what));
        if self.queries.is_empty() && self.generate == 0 && self.needs_questions() {
            return refuse("no queries: pass --queries FILE or --generate N".to_owned());
        }
        if let Some(end) = self.end_ms
            && end < self.start_ms
        {
            return refuse("--start must not be later than --end".to_owned());
        }
        for (flag, tolerance) in [
            ("relative", self.tolerance.relative),
            ("absolute", self.tolerance.absolute),
        ] {
            if !(tolerance >= 0.0 && tolerance.is_finite()) {
                return refuse(format!(
                    "--tolerance-{flag} must be at least 0: {tolerance}"
                ));
            }
        }
        if !(0.0..=100.0).contains(&self.fail_below) {
            return refuse(format!(
                "--fail-below must be between 0 and 100: {}",
                self.fail_below
            ));
        }
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return refuse(format!(
                "--concurrency must be between 1 and {CONCURRENCY_MAX}: {}",
                self.concurrency
            ));
        }
        if !(BUSY_MIN..=100.0).contains(&self.busy) {
            return refuse(format!(
                "--busy must be between {BUSY_MIN} and 100: {}",
                self.busy
            ));
        }
        if self.timeout.is_zero() || self.step_ms == Some(0) || self.answer_bytes_max == 0 {
            return refuse("--timeout, --step and --answer-limit must not be 0".to_owned());
        }
        if self.window_ms == Some(0) || self.keeping.bytes_max == 0 {
            return refuse("--window and --keep-bytes must not be 0".to_owned());
        }
        for selector in &self.matches {
            if let Err(e) = firn_promql::parser::parse_selector(selector) {
                return refuse(format!("--match {selector:?}: {e}"));
            }
        }
        Ok(())
    }
}

/// Start, end and duration of a run, derived from the flags about time and from the current time.
struct RunPeriod {
    start_ms: TimestampMs,
    end: Option<TimestampMs>,
    until_ms: Option<TimestampMs>,
    liveness_ms: i64,
}

impl RunPeriod {
    fn from_matches(matches: &ArgMatches) -> Result<Self, MirrorError> {
        let now = now_ms();
        let given = |id: &str| matches.get_one::<String>(id);
        let end = given("end").map(|text| time_ms("end", text)).transpose()?;
        let is_past = end.is_some_and(|end| end <= now);
        let liveness_ms = duration_ms(matches, "liveness-delay")?;
        let lasting = optional_ms(matches, "duration")?;
        let until_ms = match (lasting.filter(|_| !is_past), end.filter(|_| !is_past)) {
            (Some(ms), _) => Some(now.saturating_add(ms)),
            (None, Some(end)) => Some(end.saturating_add(liveness_ms)),
            (None, None) => None,
        };
        let start_ms = match given("start") {
            Some(text) => time_ms("start", text)?,
            None if until_ms.is_some() => now,
            None => end.unwrap_or(now - liveness_ms) - STRETCH_MS,
        };
        Ok(Self {
            start_ms,
            end,
            until_ms,
            liveness_ms,
        })
    }
}

fn tls_files(matches: &ArgMatches) -> TlsFilePaths {
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned();
    let authorities = matches.get_many::<PathBuf>("ca").into_iter().flatten();
    TlsFilePaths {
        authorities: authorities.cloned().collect(),
        client: path("client-cert").zip(path("client-key")),
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

/// Returns the value of a flag that is required or has a default.
fn value<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    id: &str,
) -> Result<T, MirrorError> {
    let value = matches.get_one::<T>(id).cloned();
    value.ok_or_else(|| MirrorError::Usage(format!("flag --{id} needs a value")))
}

fn duration_ms(matches: &ArgMatches, id: &str) -> Result<i64, MirrorError> {
    let text: String = value(matches, id)?;
    let duration = parse_duration(&text);
    let duration = duration.map_err(|e| MirrorError::Usage(format!("--{id}: {e}")))?;
    Ok(duration.as_millis() as i64)
}

/// Returns the value of a duration flag without a default in milliseconds; `None` if it is not
/// given.
fn optional_ms(matches: &ArgMatches, id: &str) -> Result<Option<i64>, MirrorError> {
    if matches.contains_id(id) {
        duration_ms(matches, id).map(Some)
    } else {
        Ok(None)
    }
}

fn size(matches: &ArgMatches, id: &str) -> Result<u64, MirrorError> {
    let text: String = value(matches, id)?;
    let size = parse_size(&text).map_err(|e| MirrorError::Usage(format!("--{id}: {e}")))?;
    // The limit keeps sizes within the address space.
    Ok(size.min(1 << 40))
}

fn url(matches: &ArgMatches, id: &str) -> Result<String, MirrorError> {
    let text: String = value(matches, id)?;
    let parsed = text.parse::<ureq::http::Uri>();
    let is_url = parsed.as_ref().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
    });
    if is_url {
        Ok(text)
    } else {
        Err(MirrorError::Usage(format!(
            "--{id}: not a URL such as http://127.0.0.1:9090: {text:?}"
        )))
    }
}

fn time_ms(id: &str, text: &str) -> Result<TimestampMs, MirrorError> {
    if let Ok(seconds) = text.parse::<f64>()
        && seconds.is_finite()
        && seconds.abs() < 1e13
    {
        return Ok((seconds * 1000.0).round() as i64);
    }
    match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(time) => Ok((time.unix_timestamp_nanos() / 1_000_000) as i64),
        Err(_) => Err(MirrorError::Usage(format!(
            "--{id}: not a time: {text:?}, expected RFC 3339 or seconds since the epoch"
        ))),
    }
}

/// Returns the passes with the given names, or all passes if `names` is empty.
fn passes(names: &[String]) -> Vec<ComparisonPass> {
    let is_named =
        |pass: &ComparisonPass| names.is_empty() || names.iter().any(|n| n == pass.as_str());
    ComparisonPass::ALL.into_iter().filter(is_named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let args = line.split_whitespace().map(OsString::from);
        let matches = matches(args).map_err(|e| MirrorError::from(e).to_string())?;
        Options::from_matches(&matches).map_err(|e| e.to_string())
    }

    const SHORT: &str = "--baseline http://a:1 --candidate https://b/p?x=1 --report d";

    #[test]
    fn options_of_a_whole_line_are_read() {
        let options = parse(&format!(
            "{SHORT} --queries a.json b.txt --queries c --start 1970-01-01T00:00:10Z --end 100.5 \
             --step 1m --timeout 2s --tolerance-relative 1e-9 --tolerance-absolute 0.1 \
             --tolerance-ulps 4 --fail-below 99.5 --header candidate:X-Scope-OrgID=t \
             --header A=b=c --ignore-label x"
        ))
        .unwrap();
        assert_eq!(options.queries, ["a.json", "b.txt", "c"].map(PathBuf::from));
        assert_eq!((options.start_ms, options.end_ms), (10_000, Some(100_500)));
        assert_eq!((options.step_ms, options.until_ms), (Some(60_000), None));
        assert_eq!(options.tolerance.ulps, 4);
        assert_eq!(options.fail_below, 99.5);
        assert_eq!(options.timeout, Duration::from_secs(2));
        let headers: Vec<_> = options
            .headers
            .iter()
            .map(|h| (h.system, h.name.as_str(), h.value.as_str()))
            .collect();
        let expected = [
            (Some("candidate"), "X-Scope-OrgID", "t"),
            (None, "A", "b=c"),
        ];
        assert_eq!(headers, expected);
    }

    #[test]
    fn stretch_follows_from_what_is_given() {
        let before = now_ms();
        let plain = parse(&format!("{SHORT} --generate 5")).unwrap();
        assert!((before - 90_000 - STRETCH_MS..).contains(&plain.start_ms));
        assert_eq!((plain.end_ms, plain.until_ms), (None, None));
        let long = parse(&format!("{SHORT} --generate 5 --duration 1h")).unwrap();
        assert!(long.start_ms >= before);
        assert!(long.until_ms.unwrap() >= before + 3_600_000);
        let past = parse(&format!("{SHORT} --generate 5 --duration 1h --end 5000")).unwrap();
        assert_eq!(
            (past.start_ms, past.until_ms),
            (5_000_000 - STRETCH_MS, None)
        );
        let future = before / 1000 + 1000;
        let future = parse(&format!("{SHORT} --generate 5 --end {future}")).unwrap();
        assert_eq!(future.until_ms, Some(future.end_ms.unwrap() + 90_000));
    }

    #[test]
    fn passes_are_those_that_are_named_in_the_order_of_a_round() {
        let named = |flags: &str| parse(&format!("{SHORT} {flags}")).unwrap().passes;
        assert_eq!(named("--generate 1"), ComparisonPass::ALL);
        let two = [ComparisonPass::Instant, ComparisonPass::Metadata];
        assert_eq!(named("--generate 1 --passes metadata,instant"), two);
        assert_eq!(
            named("--passes label_names --passes metadata"),
            [ComparisonPass::LabelNames, ComparisonPass::Metadata]
        );
    }

    #[test]
    fn window_is_the_end_of_a_stretch_that_is_longer() {
        let stretch = CommonTimeRange {
            start_ms: 0,
            end_ms: 100_000,
        };
        for (flags, expected) in [("", 0), ("--window 30s", 70_000), ("--window 1h", 0)] {
            let options = parse(&format!("{SHORT} --generate 1 {flags}")).unwrap();
            let asked = options.queried_range(stretch);
            assert_eq!(
                (asked.start_ms, asked.end_ms),
                (expected, 100_000),
                "{flags}"
            );
        }
    }

    #[test]
    fn options_that_make_no_comparison_are_refused() {
        let cases = [
            ("", "no queries: pass --queries FILE or --generate N"),
            (
                "--generate 1 --fail-below 101",
                "--fail-below must be between 0 and 100: 101",
            ),
            (
                "--generate 1 --concurrency 0",
                "--concurrency must be between 1 and 256: 0",
            ),
            (
                "--generate 1 --busy 0",
                "--busy must be between 1 and 100: 0",
            ),
            (
                "--generate 1 --tolerance-relative NaN",
                "--tolerance-relative must be at least 0",
            ),
            (
                "--generate 1 --timeout 0",
                "--timeout, --step and --answer-limit must not be 0",
            ),
            (
                "--generate 1 --timeout 5",
                "--timeout: not a valid duration string: \"5\"",
            ),
            (
                "--generate 1 --start 5 --end 4",
                "--start must not be later than --end",
            ),
            (
                "--generate 1 --end noon",
                "--end: not a time: \"noon\", expected RFC 3339",
            ),
            ("--generate 1 --match {", "--match \"{\": 1:2: parse error"),
            (
                "--generate 1 --baseline x",
                "--baseline: not a URL such as http://127.0.0.1:9090",
            ),
            ("--generate 1 --header x", "--header: expected NAME=VALUE"),
            (
                "--generate 1 --window 0s",
                "--window and --keep-bytes must not be 0",
            ),
            (
                "--generate 1 --passes instant,all",
                "invalid value 'all' for '--passes <PASS,...>'",
            ),
            (
                "--passes labels_names,series",
                "invalid value 'labels_names'",
            ),
            (
                "--passes series",
                "no queries: pass --queries FILE or --generate N",
            ),
            (
                "--generat 1",
                "unknown flag: --generat; a similar flag exists: --generate",
            ),
        ];
        for (line, expected) in cases {
            let e = parse(&format!("{SHORT} {line}")).unwrap_err();
            assert!(e.starts_with(expected), "{line}: {e}");
        }
        let e = parse("--baseline http://a").unwrap_err();
        assert!(e.contains("required arguments"), "{e}");
    }
}
