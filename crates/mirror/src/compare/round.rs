//! One round of questions over one stretch of data.
//!
//! ```text
//! question -> placed in time, or skipped -> both systems at once -> verdict
//!          -> they differ: ask the baseline again, make the question smaller, keep a folder
//! ```
//!
//! Invariant: both systems are asked the same, at the same time, and nothing outside the stretch.

mod lookups;
mod ties;

use super::artefact::{Artefact, Sketch};
use super::minimise::minimise;
use super::options::Options;
use super::progress::Progress;
use super::system::{Fetched, Pair, Params};
use super::tally::{Judged, Outcome, Pass, Tally};
use super::verdict::{IgnoredLabels, Verdict, judge};
use crate::answers::has_order;
use crate::api::seconds;
use crate::error::MirrorError;
use crate::judge::{Rules, Values};
use crate::questions::reach::{Grid, Reach, Stretch};
use crate::questions::{Collection, Question};
use firn_promql::ast::Expr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Points of a range question: what Prometheus gives.
const POINTS_MAX: i64 = 11_000;

/// Questions that are made smaller in a run; each takes some tens of requests.
const MINIMISED_MAX: usize = 300;

/// How often the baseline is asked to see whether it contradicts itself: where a map of it decides,
/// two answers are equal by chance now and then.
const ASKED_AGAIN: usize = 4;

/// Smaller questions that were found, for the rounds that follow.
pub type Minimised = Mutex<HashMap<(Pass, String), String>>;

/// What a round needs.
pub struct Round<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// Whom to ask.
    pub pair: &'a Pair,
    /// Over which times.
    pub stretch: Stretch,
    /// Time between two points.
    pub step_ms: i64,
    /// What.
    pub collection: &'a Collection,
    /// Labels that are not compared.
    pub ignored: &'a IgnoredLabels,
    /// What was made smaller already.
    pub minimised: &'a Minimised,
}

/// Where and with what a question is asked.
type Placed = (&'static str, Params);

impl Round<'_> {
    /// Asks everything and counts it.
    pub fn run(&self, tally: &Mutex<Tally>, progress: &Progress) -> Result<(), MirrorError> {
        let lock = || tally.lock().unwrap_or_else(PoisonError::into_inner);
        lock().begin(self.stretch.end_ms);
        let mut count = |judged: Judged| {
            progress.advance();
            lock().count(judged);
        };
        for pass in [Pass::Instant, Pass::Range] {
            let unasked = &self.collection.unasked;
            let questions = &self.collection.questions;
            progress.begin(pass.as_str(), questions.len() + unasked.len());
            for unasked in unasked {
                let judged = judged(pass, &unasked.text, Outcome::Skip, unasked.reason.clone());
                let origin = unasked.origin.clone();
                count(Judged { origin, ..judged });
            }
            self.each(questions, &|question| self.ask(pass, question), &mut count)?;
        }
        self.run_lookups(progress, &mut count)
    }

    /// Works on all items, several at once; hands the outcomes to the calling thread.
    fn each<T: Sync>(
        &self,
        items: &[T],
        work: &(dyn Fn(&T) -> Result<Judged, MirrorError> + Sync),
        done: &mut dyn FnMut(Judged),
    ) -> Result<(), MirrorError> {
        let next = AtomicUsize::new(0);
        let (sender, outcomes) = sync_channel(self.options.concurrency);
        std::thread::scope(|scope| {
            for _ in 0..self.options.concurrency.min(items.len()) {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    let mut pause = Duration::ZERO;
                    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        std::thread::sleep(pause);
                        let begun = Instant::now();
                        let outcome = work(item);
                        pause = pause_after(begun.elapsed(), self.options.busy);
                        // The other side went away after an error.
                        if sender.send(outcome).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for outcome in outcomes {
                done(outcome?);
            }
            Ok(())
        })
    }

    fn rules(&self, is_ordered: bool) -> Rules {
        Rules {
            values: Values::Numbers(self.options.tolerance),
            ordered: is_ordered,
            to_the_letter: false,
        }
    }

    /// Where an expression is asked; if it is not, why.
    fn place(&self, pass: Pass, expr: &Expr) -> Result<Placed, String> {
        let Stretch { start_ms, end_ms } = self.stretch;
        let step_ms = self.step_ms;
        let grid = |start_ms| Grid {
            start_ms,
            end_ms,
            step_ms,
        };
        let query = ("query", expr.to_string());
        if pass == Pass::Instant {
            let reach = Reach::of(expr, grid(end_ms), self.options.staleness_ms)?;
            reach.check_instant(self.stretch)?;
            return Ok(("query", vec![query, ("time", seconds(end_ms))]));
        }
        let reach = Reach::of(expr, grid(start_ms), self.options.staleness_ms)?;
        let first_ms = reach.range_start(self.stretch)?;
        let first_ms = first_ms.max(end_ms.saturating_sub((POINTS_MAX - 1) * step_ms));
        let times = [("start", first_ms), ("end", end_ms), ("step", step_ms)];
        let mut params = vec![query];
        params.extend(times.map(|(name, ms)| (name, seconds(ms))));
        Ok(("query_range", params))
    }

    fn ask(&self, pass: Pass, question: &Question) -> Result<Judged, MirrorError> {
        let (endpoint, mut params) = match self.place(pass, &question.expr) {
            Ok(placed) => placed,
            Err(reason) => {
                let judged = judged(pass, &question.text, Outcome::Skip, reason);
                return Ok(of(question, judged));
            }
        };
        // As it was written: what is made of it by printing is another text.
        params[0].1.clone_from(&question.text);
        let is_ordered = pass == Pass::Instant && has_order(&question.expr);
        let (baseline, candidate) = self.pair.ask(endpoint, &params);
        let verdict = self.verdict(&baseline, &candidate, is_ordered);
        if verdict.outcome == Outcome::Match {
            return Ok(of(
                question,
                judged(pass, &question.text, Outcome::Match, String::new()),
            ));
        }
        let is_whole = baseline.fault.is_none() && candidate.fault.is_none();
        let mut note = "";
        if is_whole {
            match self.doubt(pass, question, (endpoint, &params), [&baseline, &candidate]) {
                Doubt::Skip(reason) => {
                    return Ok(of(
                        question,
                        judged(pass, &question.text, Outcome::Skip, reason),
                    ));
                }
                Doubt::Gone => note = "; asked again, the answers were equal",
                Doubt::None => {}
            }
        }
        let is_lasting = is_whole && note.is_empty();
        let minimised = self.minimised(pass, question, &verdict, is_lasting);
        let answers = [&baseline, &candidate];
        let found = Found {
            pass,
            question: &question.text,
            placed: &(endpoint, params),
            answers,
            minimised: &minimised,
            note,
        };
        self.keep(&found, &verdict)
            .map(|judged| of(question, judged))
    }

    /// Whether a difference is one, by what the systems say when they are asked again.
    fn doubt(
        &self,
        pass: Pass,
        question: &Question,
        (endpoint, params): (&str, &Params),
        answers: [&Fetched; 2],
    ) -> Doubt {
        let is_ordered = pass == Pass::Instant && has_order(&question.expr);
        let mut again = self.fetch_both(endpoint, params);
        let is_gone = self.verdict(&again.0, &again.1, is_ordered).outcome == Outcome::Match;
        for _ in 1..ASKED_AGAIN {
            let own = self.verdict(answers[0], &again.0, is_ordered);
            if let Some(spot) = own.found.first() {
                return Doubt::Skip(format!("the baseline contradicts itself: {spot}"));
            }
            again.0 = self.pair.baseline.fetch(endpoint, params);
        }
        if let Some(operand) = ties::operand(&question.expr) {
            let mut params = params.clone();
            params[0].1 = operand;
            let operand = self.pair.baseline.fetch(endpoint, &params);
            if ties::is_choice(answers, &operand, self.options.tolerance, self.ignored) {
                return Doubt::Skip("the systems choose others of equal elements".to_owned());
            }
        }
        match is_gone {
            true => Doubt::Gone,
            false => Doubt::None,
        }
    }

    fn fetch_both(&self, endpoint: &str, params: &Params) -> (Fetched, Fetched) {
        std::thread::scope(|scope| {
            let candidate = scope.spawn(|| self.pair.candidate.fetch(endpoint, params));
            let baseline = self.pair.baseline.fetch(endpoint, params);
            (baseline, candidate.join().expect("asking does not panic"))
        })
    }

    fn verdict(&self, baseline: &Fetched, candidate: &Fetched, is_ordered: bool) -> Verdict {
        judge(baseline, candidate, self.rules(is_ordered), self.ignored)
    }

    /// A smaller expression about which the systems differ in the same way.
    fn minimised(
        &self,
        pass: Pass,
        question: &Question,
        verdict: &Verdict,
        is_lasting: bool,
    ) -> String {
        let key = (pass, question.text.clone());
        let known = || {
            self.minimised
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(text) = known().get(&key) {
            return text.clone();
        }
        if !is_lasting || known().len() >= MINIMISED_MAX {
            return question.text.clone();
        }
        let classes = verdict.found.classes();
        let text = minimise(&question.expr, &mut |step| {
            let Ok((endpoint, params)) = self.place(pass, step) else {
                return false;
            };
            let (baseline, candidate) = self.fetch_both(endpoint, &params);
            let is_ordered = pass == Pass::Instant && has_order(step);
            let found = self.verdict(&baseline, &candidate, is_ordered);
            found.outcome == verdict.outcome
                && found
                    .found
                    .classes()
                    .iter()
                    .any(|class| classes.contains(class))
        });
        known().insert(key, text.clone());
        text
    }

    /// Keeps a difference in a folder.
    fn keep(&self, found: &Found<'_>, verdict: &Verdict) -> Result<Judged, MirrorError> {
        let Some(spot) = verdict.found.first() else {
            return Ok(judged(
                found.pass,
                found.question,
                Outcome::Match,
                String::new(),
            ));
        };
        let (endpoint, params) = found.placed;
        let artefact = Artefact {
            pass: found.pass,
            question: found.question,
            systems: [&self.pair.baseline, &self.pair.candidate],
            endpoint,
            params,
            answers: found.answers,
            spot,
            minimised: found.minimised,
        };
        let folder = artefact.write(&self.options.report)?;
        let counts = verdict.found.counts();
        let counts = counts.filter(|(_, count)| *count > 1);
        let counts: Vec<String> = counts
            .map(|(class, count)| format!("{count} times {}", class.as_str()))
            .collect();
        let counts = match counts.is_empty() {
            true => String::new(),
            false => format!(" ({})", counts.join(", ")),
        };
        let reason = format!("{spot}{counts}{}", found.note);
        Ok(Judged {
            classes: verdict.found.classes(),
            folder: Some(folder),
            sketch: Sketch::of(spot, found.answers[0], found.answers[1]),
            ..judged(found.pass, found.question, verdict.outcome, reason)
        })
    }
}

/// How long to ask nothing after having asked for `busy`, so that this is `percent` of both.
fn pause_after(busy: Duration, percent: f64) -> Duration {
    busy.mul_f64((100.0 - percent) / percent)
}

/// What speaks against a difference.
enum Doubt {
    /// Nothing.
    None,
    /// The answers are equal now.
    Gone,
    /// The answers say nothing about the systems.
    Skip(String),
}

/// A question about which the answers differ.
struct Found<'a> {
    pass: Pass,
    question: &'a str,
    placed: &'a (&'a str, Params),
    answers: [&'a Fetched; 2],
    minimised: &'a str,
    note: &'a str,
}

fn judged(pass: Pass, question: &str, outcome: Outcome, reason: String) -> Judged {
    Judged {
        pass,
        question: question.to_owned(),
        origin: String::new(),
        weight: 1,
        outcome,
        classes: Vec::new(),
        reason,
        folder: None,
        sketch: None,
    }
}

fn of(question: &Question, judged: Judged) -> Judged {
    Judged {
        origin: question.origin.clone(),
        weight: question.weight,
        ..judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_makes_a_question_the_share_of_the_time_that_it_may_be() {
        for (busy_ms, percent, pause_ms) in [(10, 100.0, 0), (10, 50.0, 10), (10, 5.0, 190)] {
            let pause = pause_after(Duration::from_millis(busy_ms), percent);
            assert_eq!(
                pause,
                Duration::from_millis(pause_ms),
                "{busy_ms} {percent}"
            );
        }
    }
}
