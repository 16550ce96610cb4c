//! `make answers`: records what a reference Prometheus says, or holds a system against the record.
//!
//! ```text
//! firn-answers record SET URL    stores the data of the set, asks SET.txt, writes SET.jsonl.gz
//! firn-answers check SET URL     stores the data, asks again, prints where the answers differ
//! firn-answers compare SET URL OTHER SEED COUNT
//!                                stores the data in both systems, asks both COUNT new random
//!                                expressions of SEED, prints where the second one differs
//! ```
//!
//! | set | data | for a system |
//! |---|---|---|
//! | `plain` | `data.txt` | without feature flags |
//! | `full` | `data.txt` | with all of PromQL's |
//! | `starts` | `starts-data.txt` | with all of PromQL's and stored start timestamps |
//!
//! The systems must be empty and take remote write. Those of `starts` scrape as `starts.yml` says, and
//! are started once this program shows the data: behind a failed scrape it is too old.
//! Prometheus keeps starts with the features `st-storage`, `xor2-encoding` and
//! `histograms-st-encoding`, and its series in order if no block ends before the data does
//! (`--storage.tsdb.min-block-duration=1500d --storage.tsdb.max-block-duration=1500d`).

use firn_mirror::answers::data::Data;
use firn_mirror::answers::expressions::Dialect;
use firn_mirror::answers::{self, Failure, Recorded, queries};
use firn_mirror::target::Target;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the data of `starts` is shown.
const SHOWN_AT: &str = "127.0.0.1:9917";

/// Data time that new random expressions are asked over: a little more than there is data.
const SPAN_MS: i64 = 4_000_000;

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            // Whoever closed the pipe does not want the text.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(e) => {
            let _ = writeln!(io::stderr(), "{e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["record", set, url] => record(&Set::of(set)?, url),
        ["check", set, url] => check(&Set::of(set)?, url),
        ["compare", set, url, other, seed, count] => {
            let number = |text: &str| text.parse().map_err(|e| format!("{text}: {e}"));
            let (seed, count): (u64, u64) = (number(seed)?, number(count)?);
            compare(&Set::of(set)?, (url, other), seed, count as usize)
        }
        _ => Err(
            "usage: firn-answers record|check SET URL, or compare SET URL OTHER SEED COUNT"
                .to_owned(),
        ),
    }
}

/// A set of expressions and the data that they are asked over.
struct Set {
    name: String,
    data: Data,
    /// What it may be asked beyond what is recorded.
    dialects: [Dialect; 2],
    is_scraped: bool,
}

impl Set {
    fn of(name: &str) -> Result<Self, String> {
        let (data, dialects) = match name {
            "plain" => ("data.txt", [Dialect::Plain, Dialect::PlainHistograms]),
            "full" => ("data.txt", [Dialect::Floats, Dialect::Full]),
            "starts" => ("starts-data.txt", [Dialect::Floats, Dialect::Full]),
            _ => return Err(format!("no set {name}")),
        };
        Ok(Self {
            name: name.to_owned(),
            data: Data::parse(&read(data)?).map_err(|e| format!("{data}: {e}"))?,
            dialects,
            is_scraped: name == "starts",
        })
    }

    /// Stores the data in the systems at `urls`. What comes of it must be kept while they are asked.
    fn store(&self, urls: &[&str]) -> Result<Option<Target>, String> {
        if !self.is_scraped {
            for url in urls {
                answers::send(url, &self.data).map_err(|e| e.to_string())?;
            }
            return Ok(None);
        }
        let target = answers::expose(SHOWN_AT, &self.data).map_err(|e| e.to_string())?;
        for url in urls {
            answers::wait_scraped(url, &self.data).map_err(|e| e.to_string())?;
        }
        Ok(Some(target))
    }

    /// The file of the recorded answers.
    fn file(&self) -> PathBuf {
        folder().join(format!("{}.jsonl.gz", self.name))
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/answers")
}

fn read(name: &str) -> Result<String, String> {
    let path = folder().join(name);
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

fn record(set: &Set, url: &str) -> Result<String, String> {
    let name = format!("{}.txt", set.name);
    let asks = queries::parse(&read(&name)?, set.data.start_ms);
    let asks = asks.map_err(|e| format!("{name}: {e}"))?;
    let _target = set.store(&[url])?;
    let recorded = answers::record(url, asks).map_err(|e| e.to_string())?;
    let file = Recorded::pack(&recorded).map_err(|e| e.to_string())?;
    let path = set.file();
    std::fs::write(&path, file).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("{} answers: {}\n", recorded.len(), path.display()))
}

fn check(set: &Set, url: &str) -> Result<String, String> {
    let path = set.file();
    let file = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let recorded = Recorded::unpack(&file).map_err(|e| format!("{}: {e}", path.display()))?;
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
        let over = (set.data.start_ms, SPAN_MS);
        asks.extend(queries::random_asks(dialect, seed, count / 2, over));
    }
    let failures = answers::compare(url, other, &asks).map_err(|e| e.to_string())?;
    Ok(summary(&failures, asks.len()))
}

fn summary(failures: &[Failure], count: usize) -> String {
    let lines: String = failures.iter().map(|f| format!("{f}\n")).collect();
    let passed = count - failures.len();
    format!("{lines}{passed} passed, {} failed\n", failures.len())
}
