//! `firn compare`: asks two Prometheus-compatible systems the same questions and compares the
//! answers.
//!
//! ```text
//! files, made-up questions -> collection
//!   -> round: instant, range, label names, label values, series, metadata
//!   -> verdicts -> tally, folders of differences -> report; the next round over a longer stretch
//! ```
//!
//! Two systems are compared over the *stretch* of data that both have whole. It begins at a fixed
//! time and ends at a fixed one, or, while a run goes on, a little before now: every round asks for
//! more, until all questions have the history that they need.

mod artefact;
mod latency;
mod metrics;
mod minimise;
pub mod options;
mod progress;
mod report;
mod round;
mod system;
mod tally;

mod verdict;

use crate::error::MirrorError;
use crate::push::now_ms;
use crate::questions::generate::generate;
use crate::questions::reach::Stretch;
use crate::questions::{self, Collection, Source, Times};
use clap::error::ErrorKind;
use options::Options;
use progress::Progress;
use report::{Report, Side};
use round::{Minimised, Round};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use system::{Pair, StretchLookup, System};
use tally::{Outcome, Pass, Tally};
use verdict::IgnoredLabels;

/// The shortest step that is chosen: how often targets are scraped, mostly.
const STEP_MS: i64 = 15_000;

/// Steps of a range whose step is chosen.
const STEPS: u64 = 1_000;

/// Runs `firn compare` with the arguments that follow it, writes the report, and a summary of it to
/// `out`. Says whether the match rate is high enough. Fails with [`MirrorError::Usage`] for flags
/// and files that are not understood, and if a system cannot be asked.
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
    let options = Options::of(&matches)?;
    // Whatever is wrong with a file is wrong with the command line.
    let named = |e: MirrorError| MirrorError::Usage(e.to_string());
    let sources = questions::read(&options.queries).map_err(named)?;
    std::fs::create_dir_all(&options.report)
        .map_err(MirrorError::file("create", &options.report))
        .map_err(named)?;
    Run::new(&options, sources)?.rounds(out)
}

fn print(out: &mut dyn Write, text: &str) -> Result<(), MirrorError> {
    out.write_all(text.as_bytes())
        .map_err(MirrorError::file("write", Path::new("summary")))
}

struct Run<'a> {
    options: &'a Options,
    sources: Vec<Source>,
    pair: Arc<Pair>,
    versions: [Option<String>; 2],
    ignored: IgnoredLabels,
    minimised: Minimised,
    tally: Arc<Mutex<Tally>>,
    progress: Progress,
    began_ms: i64,
}

impl<'a> Run<'a> {
    /// Looks for both systems.
    fn new(options: &'a Options, sources: Vec<Source>) -> Result<Self, MirrorError> {
        let named = |e: MirrorError| MirrorError::Usage(e.to_string());
        let tls = options.tls.read().map_err(named)?;
        let system = |name, url| System::new(name, url, options, &tls);
        let pair = Arc::new(Pair {
            baseline: system("baseline", &options.baseline),
            candidate: system("candidate", &options.candidate),
        });
        let versions = [pair.baseline.probe()?, pair.candidate.probe()?];
        let tally = Arc::new(Mutex::new(Tally::default()));
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
            minimised: Minimised::default(),
            tally,
            progress: Progress::default(),
            began_ms: now_ms(),
        })
    }

    fn rounds(&self, out: &mut dyn Write) -> Result<bool, MirrorError> {
        self.wait_for_data();
        let mut gathered = None;
        loop {
            let stretch = self.stretch();
            let step_ms = self.options.step_ms.unwrap_or_else(|| step_ms(stretch));
            let collection = match &gathered {
                Some(collection) => collection,
                None => gathered.insert(self.collect(stretch, step_ms)?),
            };
            let round = Round {
                options: self.options,
                pair: &self.pair,
                stretch,
                step_ms,
                collection,
                ignored: &self.ignored,
                minimised: &self.minimised,
            };
            round.run(&self.tally, &self.progress)?;
            artefact::remove_old(&self.options.report, self.options.keep);
            let is_last = self.options.until_ms.is_none_or(|until| now_ms() >= until);
            let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            let report = self.report(stretch, step_ms, collection, &tally);
            report.write(&self.options.report)?;
            if is_last {
                print(out, &summary(&report, &self.options.report))?;
                return Ok(report.is_success());
            }
            drop(tally);
            self.progress.wait("waiting for the next round");
            std::thread::sleep(self.pause());
        }
    }

    /// Waits until the stretch is long enough for the first question, where it grows.
    fn wait_for_data(&self) {
        let options = self.options;
        if options.until_ms.is_some() {
            let needed = options.staleness_ms + options.liveness_ms;
            let ready_ms = options.start_ms.saturating_add(needed);
            self.progress
                .wait("waiting until both systems have enough data");
            std::thread::sleep(system::until(ready_ms));
        }
    }

    /// Between rounds, but not longer than the run.
    fn pause(&self) -> std::time::Duration {
        let left = self
            .options
            .until_ms
            .map_or(std::time::Duration::MAX, system::until);
        self.options.pause.min(left)
    }

    fn stretch(&self) -> Stretch {
        let live_ms = now_ms() - self.options.liveness_ms;
        let end_ms = match (self.options.end_ms, self.options.until_ms) {
            (Some(end_ms), None) => end_ms,
            (Some(end_ms), Some(_)) => end_ms.min(live_ms),
            (None, _) => live_ms,
        };
        Stretch {
            start_ms: self.options.start_ms,
            end_ms,
        }
    }

    fn collect(&self, stretch: Stretch, step_ms: i64) -> Result<Collection, MirrorError> {
        let lookup = StretchLookup {
            system: &self.pair.baseline,
            stretch,
        };
        let made = match self.options.generate {
            0 => Vec::new(),
            count => {
                generate(count, self.options.seed, &lookup).map_err(|why| MirrorError::Unasked {
                    system: "baseline",
                    url: self.pair.baseline.shown.clone(),
                    why,
                })?
            }
        };
        let times = Times {
            start_ms: stretch.start_ms,
            end_ms: stretch.end_ms,
            step_ms,
        };
        let collection = Collection::gather(&self.sources, made, &lookup, &times);
        match collection.questions.is_empty() && collection.unasked.is_empty() {
            true => Err(MirrorError::Usage(
                "there is no question in what was given".to_owned(),
            )),
            false => Ok(collection),
        }
    }

    fn report<'t>(
        &self,
        stretch: Stretch,
        step_ms: i64,
        collection: &Collection,
        tally: &'t Tally,
    ) -> Report<'t> {
        let side = |system: &System, version: &Option<String>| Side {
            url: system.shown.clone(),
            version: version.clone(),
            latencies: system.latencies(),
        };
        Report {
            baseline: side(&self.pair.baseline, &self.versions[0]),
            candidate: side(&self.pair.candidate, &self.versions[1]),
            began_ms: self.began_ms,
            made_ms: now_ms(),
            stretch,
            step_ms,
            questions: collection.questions.len(),
            fail_below: self.options.fail_below,
            tally,
        }
    }
}

/// A step that gives no more points than a picture has.
fn step_ms(stretch: Stretch) -> i64 {
    let length_ms = (stretch.end_ms - stretch.start_ms).max(0);
    let seconds = (length_ms.unsigned_abs() / STEPS).div_ceil(1000) as i64;
    (seconds * 1000).max(STEP_MS)
}

fn summary(report: &Report<'_>, dir: &Path) -> String {
    let mut out = String::new();
    for pass in Pass::ALL {
        let counts = report.tally.counts(pass);
        let counts = Outcome::ALL.map(|o| format!("{} {}", counts.of(o), o.as_str()));
        out += &format!("{:<13}{}\n", pass.as_str(), counts.join(", "));
    }
    out += &format!("match rate   {} %\n", report.match_rate());
    if report.tally.match_rate().is_none() {
        out += "nothing was compared: no question has the history that it needs\n";
    }
    out + &format!("report       {}\n", dir.join("report.html").display())
}
