//! One round of queries over one stretch of data.
//!
//! ```text
//! query -> placed in time, or skipped -> sent to both systems at once -> verdict
//!       -> answers differ: query the baseline again, minimise the query, write a folder
//! ```
//!
//! Invariant: both systems receive the same request at the same time, and no request reads data
//! outside the stretch.

mod lookups;
mod probes;
mod ties;

use super::artefact::{DifferenceArtefact, SeriesSketch};
use super::folders::DifferenceFolders;
use super::lasting::PersistentDifferences;
use super::minimise::minimise;
use super::options::Options;
use super::system::{FetchResult, FetchResultPair, Params, SystemPair};
use super::tally::{
    ComparedQuery, ComparisonOutcome, ComparisonPass, ComparisonTally, VacuousMatchReason,
};
use super::verdict::{ComparisonVerdict, IgnoredLabels, judge_answers};
use crate::answers::has_order;
use crate::api::seconds;
use crate::judge::{ComparisonRules, ValueComparison};
use crate::progress::ProgressLine;
use crate::questions::reach::{CommonTimeRange, QueryGrid, SelectorReach};
use crate::questions::{CollectedQuery, QueryCollection};
use firn_promql::ast::Expr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

/// Maximum number of points that a comparison requests in a range query. Prometheus allows one
/// more.
const POINTS_MAX: i64 = 11_000;

/// Number of times that the baseline is queried to detect answers that vary. Where they depend on
/// the iteration order of a map, two answers can be equal by chance.
const ASKED_AGAIN: usize = 4;

/// Maximum length in bytes of the reason of a finding: a difference may contain two lists of any
/// length.
const REASON_BYTES_MAX: usize = 4_096;

/// The inputs of a round. The run creates a new value for each round, because the stretch and the
/// queries change, and shares the rest.
pub struct ComparisonRound<'a> {
    /// The options of the run, which do not change between rounds.
    pub options: &'a Options,
    /// The two systems that are compared.
    pub pair: &'a SystemPair,
    /// The time range for which both systems have complete data, and which queries may read.
    pub stretch: CommonTimeRange,
    /// The time range that is queried: the end of the stretch, or all of it.
    pub asked: CommonTimeRange,
    /// Step in milliseconds of the range queries that have none of their own.
    pub step_ms: i64,
    /// The queries to send, and those that could not be collected.
    pub collection: &'a QueryCollection,
    /// Labels that are ignored when answers are compared, for example tenant labels.
    pub ignored: &'a IgnoredLabels,
    /// Persistent differences of earlier rounds, to which this round adds its own.
    pub lasting: &'a PersistentDifferences,
    /// The folders to which differences of this round are written.
    pub folders: &'a DifferenceFolders,
}

/// Endpoint and parameters of a request after its evaluation times have been chosen.
type Placed = (&'static str, Params);

impl ComparisonRound<'_> {
    /// Sends all queries and lookups of the round and counts their outcomes in `tally`.
    pub fn run(&self, tally: &Mutex<ComparisonTally>, progress: &ProgressLine) {
        let lock = || tally.lock().unwrap_or_else(PoisonError::into_inner);
        lock().begin(self.stretch.end_ms);
        let mut count = |judged: ComparedQuery| {
            progress.advance();
            lock().count(judged);
        };
        let passes = [ComparisonPass::Instant, ComparisonPass::Range].into_iter();
        for pass in passes.filter(|pass| self.has(*pass)) {
            let unasked = &self.collection.unasked;
            let questions = &self.collection.questions;
            progress.begin(pass.as_str(), questions.len() + unasked.len());
            for unasked in unasked {
                let judged = judged(
                    pass,
                    &unasked.text,
                    ComparisonOutcome::Skip,
                    unasked.reason.clone(),
                );
                let origin = unasked.origin.clone();
                count(ComparedQuery { origin, ..judged });
            }
            self.run_parallel(
                questions,
                &|question| self.compare_query(pass, question),
                &mut count,
            );
        }
        self.run_lookups(progress, &mut count);
    }

    fn has(&self, pass: ComparisonPass) -> bool {
        self.options.passes.contains(&pass)
    }

    /// Runs `work` on all items and passes the outcomes to the calling thread. The number of
    /// threads exceeds the concurrency by one, so that the systems are busy while a thread compares
    /// answers.
    fn run_parallel<T: Sync>(
        &self,
        items: &[T],
        work: &(dyn Fn(&T) -> ComparedQuery + Sync),
        done: &mut dyn FnMut(ComparedQuery),
    ) {
        let threads = (self.options.concurrency + 1).min(items.len());
        let next = AtomicUsize::new(0);
        let (sender, outcomes) = sync_channel(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let sent = sender.send(work(item));
                        sent.expect("outcomes are taken to the last one");
                    }
                });
            }
            drop(sender);
            outcomes.into_iter().for_each(done);
        });
    }

    fn rules(&self, is_ordered: bool) -> ComparisonRules {
        ComparisonRules {
            values: ValueComparison::Numbers(self.options.tolerance),
            ordered: is_ordered,
            to_the_letter: false,
        }
    }

    /// Chooses the times at which an expression is queried, or returns the reason why it is
    /// skipped. `range_ms` is the range and the step that belong to the query itself.
    fn place(
        &self,
        pass: ComparisonPass,
        expr: &Expr,
        range_ms: Option<(i64, i64)>,
    ) -> Result<Placed, String> {
        let end_ms = self.asked.end_ms;
        let (from_ms, step_ms) = match range_ms {
            Some((range_ms, step_ms)) => (end_ms.saturating_sub(range_ms), step_ms),
            None => (self.asked.start_ms, self.step_ms),
        };
        let grid = |start_ms| QueryGrid {
            start_ms,
            end_ms,
            step_ms,
        };
        let query = ("query", expr.to_string());
        if pass == ComparisonPass::Instant {
            let reach = SelectorReach::from_expr(expr, grid(end_ms), self.options.staleness_ms)?;
            reach.check_instant(self.stretch)?;
            return Ok(("query", vec![query, ("time", seconds(end_ms))]));
        }
        let reach = SelectorReach::from_expr(expr, grid(from_ms), self.options.staleness_ms)?;
        let first_ms = reach.range_start(self.stretch)?.max(from_ms);
        let first_ms = first_ms.max(end_ms.saturating_sub((POINTS_MAX - 1) * step_ms));
        let times = [("start", first_ms), ("end", end_ms), ("step", step_ms)];
        let mut params = vec![query];
        params.extend(times.map(|(name, ms)| (name, seconds(ms))));
        Ok(("query_range", params))
    }

    fn compare_query(&self, pass: ComparisonPass, question: &CollectedQuery) -> ComparedQuery {
        let shown = question.display_name(pass == ComparisonPass::Range);
        let of = |judged: ComparedQuery| ComparedQuery {
            origin: question.origin.clone(),
            weight: question.weight,
            ..judged
        };
        let skip = |reason| of(judged(pass, &shown, ComparisonOutcome::Skip, reason));
        let (endpoint, mut params) = match self.place(pass, &question.expr, question.range_ms) {
            Ok(placed) => placed,
            Err(reason) => return skip(reason),
        };
        // Sends the original text, because printing the parsed expression would change it.
        params[0].1.clone_from(&question.text);
        let is_ordered = pass == ComparisonPass::Instant && has_order(&question.expr);
        let FetchResultPair {
            baseline,
            candidate,
        } = self.pair.query_both(endpoint, &params);
        let verdict = self.verdict(&baseline, &candidate, is_ordered);
        if verdict.outcome == ComparisonOutcome::Match {
            return of(matched(pass, &shown, verdict.vacuous));
        }
        let answers = [&baseline, &candidate];
        let is_whole = answers.iter().all(|answer| answer.fault.is_none());
        let classes = verdict.found.classes();
        let known = self.lasting.minimised(pass, &shown, &classes);
        let doubt = if is_whole && known.is_none() {
            self.confirm_difference(pass, question, endpoint, &params, answers)
        } else {
            DifferenceConfirmation::None
        };
        let note = match doubt {
            DifferenceConfirmation::Skip(reason) => return skip(reason),
            DifferenceConfirmation::Gone => "; repeated, the answers were equal",
            DifferenceConfirmation::None => "",
        };
        let minimised = match known {
            Some(text) => text,
            None if is_whole && note.is_empty() => {
                let text = self.minimised(pass, question, &verdict);
                self.lasting
                    .remember_difference(pass, &shown, classes, text.clone());
                text
            }
            None => question.text.clone(),
        };
        let found = QueryDifference {
            pass,
            question: &shown,
            placed: &(endpoint, params),
            answers,
            minimised: &minimised,
            note,
        };
        of(self.keep_difference(&found, &verdict))
    }

    /// Repeats a query whose answers differ, to find out whether the difference is reliable.
    fn confirm_difference(
        &self,
        pass: ComparisonPass,
        question: &CollectedQuery,
        endpoint: &str,
        params: &Params,
        answers: [&FetchResult; 2],
    ) -> DifferenceConfirmation {
        if let Some(operand) = ties::operand(&question.expr) {
            let mut params = params.clone();
            params[0].1 = operand;
            let operand = self.pair.baseline.fetch(endpoint, &params);
            if ties::is_choice(answers, &operand, self.options.tolerance, self.ignored) {
                return DifferenceConfirmation::Skip(
                    "the systems chose different elements of equal value".to_owned(),
                );
            }
        }
        let is_ordered = pass == ComparisonPass::Instant && has_order(&question.expr);
        let FetchResultPair {
            baseline: mut again,
            candidate,
        } = self.pair.fetch(endpoint, params);
        let is_gone =
            self.verdict(&again, &candidate, is_ordered).outcome == ComparisonOutcome::Match;
        for asked in 1.. {
            let own = self.verdict(answers[0], &again, is_ordered);
            if let Some(spot) = own.found.first() {
                return DifferenceConfirmation::Skip(format!(
                    "the baseline contradicts itself: {spot}"
                ));
            }
            if asked == ASKED_AGAIN {
                break;
            }
            again = self.pair.baseline.fetch(endpoint, params);
        }
        if is_gone {
            DifferenceConfirmation::Gone
        } else {
            DifferenceConfirmation::None
        }
    }

    fn verdict(
        &self,
        baseline: &FetchResult,
        candidate: &FetchResult,
        is_ordered: bool,
    ) -> ComparisonVerdict {
        judge_answers(baseline, candidate, self.rules(is_ordered), self.ignored)
    }

    /// Returns a smaller expression for which the outcome is the same and at least one class of the
    /// differences remains.
    fn minimised(
        &self,
        pass: ComparisonPass,
        question: &CollectedQuery,
        verdict: &ComparisonVerdict,
    ) -> String {
        if !self.lasting.may_minimise() {
            return question.text.clone();
        }
        let classes = verdict.found.classes();
        minimise(&question.expr, &mut |step| {
            let Ok((endpoint, params)) = self.place(pass, step, question.range_ms) else {
                return false;
            };
            let FetchResultPair {
                baseline,
                candidate,
            } = self.pair.fetch(endpoint, &params);
            let is_ordered = pass == ComparisonPass::Instant && has_order(step);
            let found = self.verdict(&baseline, &candidate, is_ordered);
            let mut own = found.found.classes().into_iter();
            found.outcome == verdict.outcome && own.any(|class| classes.contains(&class))
        })
    }

    /// Writes a difference to a folder and converts it into an outcome.
    fn keep_difference(
        &self,
        found: &QueryDifference<'_>,
        verdict: &ComparisonVerdict,
    ) -> ComparedQuery {
        let Some(spot) = verdict.found.first() else {
            return matched(found.pass, found.question, verdict.vacuous);
        };
        let (endpoint, params) = found.placed;
        let artefact = DifferenceArtefact {
            pass: found.pass,
            question: found.question,
            systems: [&self.pair.baseline, &self.pair.candidate],
            endpoint,
            params,
            answers: found.answers,
            spot,
            minimised: found.minimised,
        };
        let classes = verdict.found.classes();
        let folder = self.folders.write_folder(&artefact, &classes);
        let counts = verdict.found.counts();
        let counts = counts.filter(|(_, count)| *count > 1);
        let counts: Vec<String> = counts
            .map(|(class, count)| format!("{count} times {}", class.as_str()))
            .collect();
        let counts = if counts.is_empty() {
            String::new()
        } else {
            format!(" ({})", counts.join(", "))
        };
        let mut reason = spot.to_string();
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        let reason = format!("{reason}{counts}{}", found.note);
        ComparedQuery {
            classes,
            folder,
            sketch: SeriesSketch::from_spot(spot, found.answers[0], found.answers[1]),
            ..judged(found.pass, found.question, verdict.outcome, reason)
        }
    }
}

/// Whether a difference was confirmed when the query was repeated, as a safeguard against answers
/// that vary.
enum DifferenceConfirmation {
    /// There is no reason to doubt the difference, because it was confirmed or was not checked.
    None,
    /// The repeated answers are equal, which the finding mentions.
    Gone,
    /// The difference is not a fault of the candidate, for the given reason, and the query is
    /// skipped.
    Skip(String),
}

/// A query with differing answers and everything that [`ComparisonRound::keep`] needs to write its
/// folder.
struct QueryDifference<'a> {
    pass: ComparisonPass,
    question: &'a str,
    placed: &'a (&'a str, Params),
    answers: [&'a FetchResult; 2],
    minimised: &'a str,
    note: &'a str,
}

fn judged(
    pass: ComparisonPass,
    question: &str,
    outcome: ComparisonOutcome,
    reason: String,
) -> ComparedQuery {
    ComparedQuery {
        pass,
        question: question.to_owned(),
        origin: String::new(),
        weight: 1.0,
        outcome,
        vacuous: None,
        classes: Vec::new(),
        reason,
        folder: None,
        sketch: None,
    }
}

fn matched(
    pass: ComparisonPass,
    question: &str,
    vacuous: Option<VacuousMatchReason>,
) -> ComparedQuery {
    ComparedQuery {
        vacuous,
        ..judged(pass, question, ComparisonOutcome::Match, String::new())
    }
}
