//! `firn compare`: sends the same queries to two Prometheus-compatible systems and compares their
//! answers.
//!
//! ```text
//! query files, generated queries -> collection
//!   -> round: instant, range, label names, label values, series, metadata
//!   -> verdicts -> tally, folders of differences -> report; next round over a longer stretch
//! ```
//!
//! Both systems are compared over the *stretch*: the time range for which both have complete data.
//! It has a fixed start. Its end is fixed too or, while a run continues, slightly before the
//! present, so that each round covers more data until all queries have the history that they need.
//! Runs that last for weeks query only the end of the stretch (`--window`) and collect their
//! queries repeatedly.
//!
//! Invariant: a file that cannot be written adds a note to the report, but does not stop the run.
//! Only the last report must be written.

mod artefact;
mod asker;
mod folders;
mod lasting;
mod latency;
mod metrics;
mod minimise;
pub mod options;
mod report;
mod round;
mod system;
mod tally;
mod verdict;

use crate::api::SystemClientOptions;
use crate::error::MirrorError;
use crate::headers::headers_for;
use crate::progress::ProgressLine;
use crate::push::now_ms;
use crate::questions::generate::generate;
use crate::questions::lookup::SystemLookup;
use crate::questions::reach::CommonTimeRange;
use crate::questions::{self, QueryCollection, QueryFileContent, VariableTimes};
use clap::error::ErrorKind;
use firn_model::rounded::format_count;
use folders::DifferenceFolders;
use lasting::PersistentDifferences;
use options::Options;
use report::{CollectionStatistics, ComparisonReport, ReportedSystem};
use round::ComparisonRound;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use system::{ComparedSystem, SystemPair};
use tally::{ComparisonOutcome, ComparisonPass, ComparisonTally};
use verdict::IgnoredLabels;

/// Minimum step of a range query in milliseconds; it equals the usual scrape interval.
const STEP_MS: i64 = 15_000;

/// Number of steps of a range query whose step is derived from the length of the stretch.
const STEPS: u64 = 1_000;

/// Runs `firn compare` with the arguments that follow the subcommand. Writes the report to its
/// directory and a summary to `out`. Returns whether the match rate reaches the required minimum.
/// Fails with [`MirrorError::Usage`] for invalid flags and files, and if a system cannot be
/// reached.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
) -> Result<bool, MirrorError> {
    let matches = match options::matches(args) {
        Ok(matches) => matches,
        Err(e) if e.kind() == ErrorKind::DisplayHelp => {
            return print(out, &e.render().to_string()).map(|()| true);
        }
        Err(e) => return Err(e.into()),
    };
    let options = Options::from_matches(&matches)?;
    // Query files and the report directory are named on the command line, so that errors in them
    // are usage errors.
    let named = |e: MirrorError| MirrorError::Usage(e.to_string());
    let sources = questions::read(&options.queries).map_err(named)?;
    std::fs::create_dir_all(&options.report)
        .map_err(MirrorError::file("create", &options.report))
        .map_err(named)?;
    ComparisonRun::new(&options, sources)?.rounds(out)
}

fn print(out: &mut dyn Write, text: &str) -> Result<(), MirrorError> {
    out.write_all(text.as_bytes())
        .map_err(MirrorError::file("write", Path::new("summary")))
}

struct ComparisonRun<'a> {
    options: &'a Options,
    sources: Vec<QueryFileContent>,
    pair: Arc<SystemPair>,
    versions: [Option<String>; 2],
    ignored: IgnoredLabels,
    lasting: PersistentDifferences,
    folders: DifferenceFolders,
    tally: Arc<Mutex<ComparisonTally>>,
    progress: ProgressLine,
    began_ms: i64,
}

/// The queries of a run and the time at which they were last collected. They are used by all rounds
/// until they are older than [`Options::gather_every`].
struct CollectedQueries {
    collection: QueryCollection,
    at: Instant,
    /// How often queries were collected, and the error of the last attempt if it failed.
    gathering: CollectionStatistics,
}

impl<'a> ComparisonRun<'a> {
    /// Checks that both systems respond, and prepares the report directory and the metrics
    /// listener.
    fn new(options: &'a Options, sources: Vec<QueryFileContent>) -> Result<Self, MirrorError> {
        let named = |e: MirrorError| MirrorError::Usage(e.to_string());
        let tls = options.tls.read().map_err(named)?;
        let system = |name, url: &str| {
            let bounds = SystemClientOptions {
                timeout: options.timeout,
                answer_bytes_max: options.answer_bytes_max,
                follows_redirects: false,
                headers: headers_for(name, &options.headers),
                tls: tls.clone(),
            };
            ComparedSystem::new(name, url, &bounds, options.concurrency, options.busy)
        };
        let pair = Arc::new(SystemPair {
            baseline: system("baseline", &options.baseline),
            candidate: system("candidate", &options.candidate),
        });
        let versions = [pair.baseline.probe()?, pair.candidate.probe()?];
        let tally = Arc::new(Mutex::new(ComparisonTally::default()));
        if let Some(address) = &options.listen {
            metrics::listen(address, Arc::clone(&tally), Arc::clone(&pair))?;
        }
        Ok(Self {
            options,
            sources,
            pair,
            versions,
            ignored: IgnoredLabels {
                more: options.ignored_labels.clone(),
            },
            lasting: PersistentDifferences::default(),
            folders: DifferenceFolders::open(&options.report, options.keeping),
            tally,
            progress: ProgressLine::questions(),
            began_ms: now_ms(),
        })
    }

    fn rounds(&self, out: &mut dyn Write) -> Result<bool, MirrorError> {
        self.wait_for_data();
        let mut held = None;
        loop {
            let stretch = self.stretch();
            let asked = self.options.queried_range(stretch);
            let step_ms = self.options.step_ms.unwrap_or_else(|| step_ms(asked));
            let gathered = self.gather(held, asked, step_ms)?;
            let round = ComparisonRound {
                options: self.options,
                pair: &self.pair,
                stretch,
                asked,
                step_ms,
                collection: &gathered.collection,
                ignored: &self.ignored,
                lasting: &self.lasting,
                folders: &self.folders,
            };
            round.run(&self.tally, &self.progress);
            self.folders.remove_old();
            let is_last = self.options.until_ms.is_none_or(|until| now_ms() >= until);
            let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            let report = self.report(asked, step_ms, &gathered, &tally);
            let written = report.write(&self.options.report);
            if is_last {
                print(out, &summary(&report, &self.options.report))?;
                return written.map(|()| report.is_success());
            }
            drop(tally);
            if let Err(e) = written {
                self.folders.note_failure(&e);
            }
            held = Some(gathered);
            self.progress.wait("waiting for the next round");
            std::thread::sleep(self.pause());
        }
    }

    /// Returns the queries of the next round: `held` until they are older than `gather_every`, then
    /// newly collected ones. If collecting fails, `held` is used for another period and the error
    /// is noted.
    fn gather(
        &self,
        held: Option<CollectedQueries>,
        asked: CommonTimeRange,
        step_ms: i64,
    ) -> Result<CollectedQueries, MirrorError> {
        let is_due = |held: &CollectedQueries| held.at.elapsed() >= self.options.gather_every;
        let gathered = |collection, times| CollectedQueries {
            collection,
            at: Instant::now(),
            gathering: CollectionStatistics {
                times,
                failure: None,
            },
        };
        match held {
            None => Ok(gathered(self.collect(asked, step_ms)?, 1)),
            Some(held) if !is_due(&held) => Ok(held),
            Some(held) => Ok(match self.collect_again(&held.collection, asked, step_ms) {
                Ok(collection) => gathered(collection, held.gathering.times + 1),
                Err(failure) => CollectedQueries {
                    at: Instant::now(),
                    gathering: CollectionStatistics {
                        failure: Some(failure),
                        ..held.gathering
                    },
                    ..held
                },
            }),
        }
    }

    /// Collects queries to replace `held`. Fails if the new collection has more queries that could
    /// not be collected than `held` has.
    fn collect_again(
        &self,
        held: &QueryCollection,
        asked: CommonTimeRange,
        step_ms: i64,
    ) -> Result<QueryCollection, String> {
        let collection = self.collect(asked, step_ms).map_err(|e| e.to_string())?;
        match collection.unasked.last() {
            Some(unasked) if collection.unasked.len() > held.unasked.len() => {
                Err(format!("{}: {}", unasked.text, unasked.reason))
            }
            _ => Ok(collection),
        }
    }

    /// Waits until the stretch is long enough for the first query, in runs whose stretch grows.
    fn wait_for_data(&self) {
        let options = self.options;
        if options.until_ms.is_some() {
            let needed = options.staleness_ms + options.liveness_ms;
            let ready_ms = options.start_ms.saturating_add(needed);
            self.progress
                .wait("waiting until both systems have enough data");
            std::thread::sleep(system::time_until(ready_ms));
        }
    }

    /// Returns the pause before the next round, which ends with the run at the latest.
    fn pause(&self) -> std::time::Duration {
        let left = self
            .options
            .until_ms
            .map_or(std::time::Duration::MAX, system::time_until);
        self.options.pause.min(left)
    }

    fn stretch(&self) -> CommonTimeRange {
        let live_ms = now_ms() - self.options.liveness_ms;
        let end_ms = match (self.options.end_ms, self.options.until_ms) {
            (Some(end_ms), None) => end_ms,
            (Some(end_ms), Some(_)) => end_ms.min(live_ms),
            (None, _) => live_ms,
        };
        CommonTimeRange {
            start_ms: self.options.start_ms,
            end_ms,
        }
    }

    fn collect(
        &self,
        stretch: CommonTimeRange,
        step_ms: i64,
    ) -> Result<QueryCollection, MirrorError> {
        let baseline = &self.pair.baseline;
        let lookup = SystemLookup {
            fetch: &|endpoint, params| baseline.body(endpoint, &params.to_vec()),
            stretch,
        };
        let made = match self.options.generate {
            0 => Vec::new(),
            count => {
                generate(count, self.options.seed, &lookup).map_err(|why| MirrorError::Unasked {
                    system: "baseline",
                    url: baseline.shown.clone(),
                    why,
                })?
            }
        };
        let times = VariableTimes {
            start_ms: stretch.start_ms,
            end_ms: stretch.end_ms,
            step_ms,
        };
        let collection = QueryCollection::gather(&self.sources, made, &lookup, &times);
        let is_empty = collection.questions.is_empty() && collection.unasked.is_empty();
        if is_empty && self.options.needs_questions() {
            Err(MirrorError::Usage(
                "the given files contain no queries".to_owned(),
            ))
        } else {
            Ok(collection)
        }
    }

    fn report<'t>(
        &'t self,
        stretch: CommonTimeRange,
        step_ms: i64,
        gathered: &'t CollectedQueries,
        tally: &'t ComparisonTally,
    ) -> ComparisonReport<'t> {
        let side = |system: &ComparedSystem, version: &Option<String>| ReportedSystem {
            url: system.shown.clone(),
            version: version.clone(),
            latencies: system.latencies(),
        };
        ComparisonReport {
            baseline: side(&self.pair.baseline, &self.versions[0]),
            candidate: side(&self.pair.candidate, &self.versions[1]),
            began_ms: self.began_ms,
            made_ms: now_ms(),
            stretch,
            step_ms,
            questions: gathered.collection.questions.len(),
            gathering: &gathered.gathering,
            fail_below: self.options.fail_below,
            tally,
            folders: &self.folders,
        }
    }
}

/// Returns the step in milliseconds for queries over `stretch`: whole seconds, at least
/// [`STEP_MS`], with about [`STEPS`] points for the whole range.
fn step_ms(stretch: CommonTimeRange) -> i64 {
    let length_ms = (stretch.end_ms - stretch.start_ms).max(0);
    let seconds = (length_ms.unsigned_abs() / STEPS).div_ceil(1000) as i64;
    (seconds * 1000).max(STEP_MS)
}

fn summary(report: &ComparisonReport<'_>, dir: &Path) -> String {
    let mut out = String::new();
    for pass in ComparisonPass::ALL {
        let counts = report.tally.counts(pass);
        let counts = ComparisonOutcome::ALL
            .map(|o| format!("{} {}", format_count(counts.count_of(o)), o.as_str()));
        out += &format!("{:<13}{}\n", pass.as_str(), counts.join(", "));
    }
    out += &format!("match rate   {} %\n", report.match_rate());
    if report.tally.match_rate().is_none() {
        out += "nothing was compared: no query has the history that it needs\n";
    }
    if let Some(text) = report.vacuous_text() {
        out += &format!("of them      {text}\n");
    }
    for note in report.notes() {
        out += &format!("note         {note}\n");
    }
    out + &format!("report       {}\n", dir.join("report.html").display())
}
