//! Program of `make answers`: records the answers of a reference Prometheus, or compares a system
//! with the record.
//!
//! ```text
//! firn-answers record SET URL    stores the data of the set, runs SET.txt, writes SET.jsonl.gz
//! firn-answers check SET URL     stores the data, runs SET.txt again, prints different answers
//! firn-answers compare SET URL OTHER SEED COUNT
//!                                stores the data in both systems, runs COUNT new random
//!                                expressions of SEED in both, prints differing answers of OTHER
//! ```
//!
//! | set | data | for a system |
//! |---|---|---|
//! | `plain` | `data.txt` | without feature flags |
//! | `full` | `data.txt` | with all of PromQL's |
//! | `requests` | `data.txt` | with `promql-per-step-stats`, `search-api`, `exemplar-storage` |
//! | `filled` | its own scrapes and rules | that runs `filled.yml`, without feature flags |
//! | `starts` | `starts-data.txt` | with all of PromQL's and stored start timestamps |
//!
//! The sets `requests` and `filled` contain whole requests, whose answers must be equal byte by
//! byte; they are recorded and checked only. The system of `requests` runs with
//! `--web.enable-admin-api` and has no scrapes, no rules and no blocks; that of `filled` has
//! targets, rules, alerts and an Alertmanager.
//!
//! The systems must be empty and accept remote write. Those of `starts` run with the scrape config
//! `starts.yml`, and must be started after this program exposes the data: after a failed scrape the
//! data would be too old. Prometheus stores start timestamps with the features `st-storage`,
//! `xor2-encoding` and `histograms-st-encoding`, and keeps its series in order if no block ends
//! before the data does (`--storage.tsdb.min-block-duration=1500d
//! --storage.tsdb.max-block-duration=1500d`).

use clap::error::ErrorKind;
use clap::{Arg, Command, value_parser};
use firn_mirror::answers::data::AnswerTestData;
use firn_mirror::answers::expressions::ExpressionDialect;
use firn_mirror::answers::requests::{self, AnsweredRequest};
use firn_mirror::answers::{self, RecordedAnswer, queries};
use firn_mirror::target::ExpositionServer;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Names of the sets.
const SETS: [&str; 5] = ["plain", "full", "starts", "requests", "filled"];

/// Address at which the data of `starts` is exposed.
const SHOWN_AT: &str = "127.0.0.1:9917";

/// Time range of new random expressions in milliseconds: slightly longer than the data.
const SPAN_MS: i64 = 4_000_000;

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            // A reader that closed the pipe needs no more output.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(e) => {
            let _ = writeln!(io::stderr(), "{e}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the command line of the program.
fn command() -> Command {
    let word = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).value_name(name).required(true);
        arg.help(help)
    };
    let count =
        |name: &'static str, help: &'static str| word(name, help).value_parser(value_parser!(u64));
    let set = || word("SET", "Set of expressions and data").value_parser(SETS);
    let url = || word("URL", "Base URL of the system to query");
    Command::new("firn-answers")
        .about("Record the answers of a reference Prometheus, or check a system against them")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("record")
                .about("Store the data of a set, evaluate its expressions and record the answers")
                .args([set(), url()]),
            Command::new("check")
                .about("Store the data of a set, evaluate its expressions, print the differences")
                .args([set(), url()]),
            Command::new("compare")
                .about("Send random expressions to two systems and print the differences")
                .args([
                    set(),
                    url(),
                    word("OTHER", "Base URL of the system to compare"),
                ])
                .args([
                    count("SEED", "Seed of the random generator"),
                    count("COUNT", "Number of expressions"),
                ]),
        ])
}

fn run() -> Result<String, String> {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(e) if e.kind() == ErrorKind::DisplayHelp => return Ok(e.render().to_string()),
        Err(e) => return Err(e.render().to_string()),
    };
    let Some((name, matches)) = matches.subcommand() else {
        return Err("nothing is asked for".to_owned());
    };
    let text = |id| matches.get_one::<String>(id).map_or("", String::as_str);
    let number = |id| matches.get_one::<u64>(id).copied().unwrap_or_default();
    let set = Set::of(text("SET"))?;
    match name {
        "record" => record(&set, text("URL")),
        "check" => check(&set, text("URL")),
        _ => {
            let urls = (text("URL"), text("OTHER"));
            compare(&set, urls, number("SEED"), number("COUNT") as usize)
        }
    }
}

/// A set of expressions with the data that they query.
struct Set {
    name: String,
    data: AnswerTestData,
    /// Dialects of random expressions, beyond the recorded ones.
    dialects: [ExpressionDialect; 2],
    is_scraped: bool,
}

impl Set {
    fn of(name: &str) -> Result<Self, String> {
        let (data, dialects) = match name {
            "plain" | "requests" | "filled" => (
                "data.txt",
                [ExpressionDialect::Plain, ExpressionDialect::PlainHistograms],
            ),
            "full" => (
                "data.txt",
                [ExpressionDialect::Floats, ExpressionDialect::Full],
            ),
            "starts" => (
                "starts-data.txt",
                [ExpressionDialect::Floats, ExpressionDialect::Full],
            ),
            _ => return Err(format!("no set {name}")),
        };
        Ok(Self {
            name: name.to_owned(),
            data: AnswerTestData::parse(&read(data)?).map_err(|e| format!("{data}: {e}"))?,
            dialects,
            is_scraped: name == "starts",
        })
    }

    /// Stores the data in the systems at `urls`. The returned target must be kept while they are
    /// queried.
    fn store(&self, urls: &[&str]) -> Result<Option<ExpositionServer>, String> {
        if !self.is_scraped {
            for url in urls {
                match self.name.as_str() {
                    // This system has its own samples, which are years younger.
                    "filled" => requests::wait_filled(url),
                    _ => answers::send(url, &self.data),
                }
                .map_err(|e| e.to_string())?;
            }
            return Ok(None);
        }
        let target = answers::expose(SHOWN_AT, &self.data).map_err(|e| e.to_string())?;
        for url in urls {
            answers::wait_scraped(url, &self.data).map_err(|e| e.to_string())?;
        }
        Ok(Some(target))
    }

    fn is_of_requests(&self) -> bool {
        matches!(self.name.as_str(), "requests" | "filled")
    }

    /// Returns the path of the recorded answers.
    fn file(&self) -> PathBuf {
        folder().join(format!("{}.jsonl.gz", self.name))
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/answers")
}

fn read(name: &str) -> Result<String, String> {
    let path = folder().join(name);
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

fn record(set: &Set, url: &str) -> Result<String, String> {
    if set.is_of_requests() {
        return record_requests(set, url);
    }
    let name = format!("{}.txt", set.name);
    let asks = queries::parse(&read(&name)?, set.data.start_ms);
    let asks = asks.map_err(|e| format!("{name}: {e}"))?;
    let _target = set.store(&[url])?;
    let recorded = answers::record(url, asks).map_err(|e| e.to_string())?;
    let file = RecordedAnswer::pack(&recorded).map_err(|e| e.to_string())?;
    let path = set.file();
    std::fs::write(&path, file).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("{} answers: {}\n", recorded.len(), path.display()))
}

fn record_requests(set: &Set, url: &str) -> Result<String, String> {
    let name = format!("{}.txt", set.name);
    let asked = requests::parse(&read(&name)?);
    let asked = asked.map_err(|e| format!("{name}: {e}"))?;
    let _target = set.store(&[url])?;
    let answered = requests::record(url, &asked).map_err(|e| e.to_string())?;
    let file = AnsweredRequest::pack(&answered).map_err(|e| e.to_string())?;
    let path = set.file();
    std::fs::write(&path, file).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("{} answers: {}\n", answered.len(), path.display()))
}

fn check_requests(set: &Set, url: &str) -> Result<String, String> {
    let path = set.file();
    let file = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let answered =
        AnsweredRequest::unpack(&file).map_err(|e| format!("{}: {e}", path.display()))?;
    let _target = set.store(&[url])?;
    let failures = requests::check(url, &answered).map_err(|e| e.to_string())?;
    Ok(summary(&failures, answered.len()))
}

fn check(set: &Set, url: &str) -> Result<String, String> {
    if set.is_of_requests() {
        return check_requests(set, url);
    }
    let path = set.file();
    let file = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let recorded = RecordedAnswer::unpack(&file).map_err(|e| format!("{}: {e}", path.display()))?;
    let _target = set.store(&[url])?;
    let failures = answers::check(url, &recorded).map_err(|e| e.to_string())?;
    Ok(summary(&failures, recorded.len()))
}

fn compare(
    set: &Set,
    (url, other): (&str, &str),
    seed: u64,
    count: usize,
) -> Result<String, String> {
    let _target = set.store(&[url, other])?;
    let mut asks = Vec::new();
    for dialect in set.dialects {
        let start_ms = set.data.start_ms;
        asks.extend(queries::random_asks(
            dialect,
            seed,
            count / 2,
            start_ms,
            SPAN_MS,
        ));
    }
    let failures = answers::compare(url, other, &asks).map_err(|e| e.to_string())?;
    Ok(summary(&failures, asks.len()))
}

fn summary(failures: &[impl std::fmt::Display], count: usize) -> String {
    let lines: String = failures.iter().map(|f| format!("{f}\n")).collect();
    let passed = count - failures.len();
    format!("{lines}{passed} passed, {} failed\n", failures.len())
}
