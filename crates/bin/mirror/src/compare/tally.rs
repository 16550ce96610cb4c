//! Outcomes of all queries of a run, in total and by round.
//!
//! Invariant: a query has at most one finding per pass, however often it is sent. The number of
//! rounds is bounded by the resolution of a chart; beyond it, neighbouring rounds are merged.

use super::artefact::SeriesSketch;
use crate::judge::DifferenceClass;
use firn_model::sample::TimestampMs;
use std::collections::BTreeMap;

/// Maximum number of rounds whose counts are kept separately.
const ROUNDS_MAX: usize = 1_000;

/// Maximum number of findings that are kept; further ones are only counted.
const FINDINGS_MAX: usize = 100_000;

/// Maximum number of findings that are drawn as charts; the points of others are dropped.
pub const SKETCHES_MAX: usize = 60;

/// The kinds of requests that are compared, in the order in which a round sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ComparisonPass {
    /// Instant queries of all collected expressions at the end of the stretch.
    Instant,
    /// Range queries of all collected expressions over the stretch.
    Range,
    /// One lookup of all label names, through `/api/v1/labels`.
    LabelNames,
    /// Lookups of the values of each label that both systems have.
    LabelValues,
    /// Lookups of the series that each selector of the queries matches.
    Series,
    /// One lookup of types and help texts of metrics, through `/api/v1/metadata`.
    Metadata,
}

impl ComparisonPass {
    /// All passes in the order in which a round runs them.
    pub const ALL: [ComparisonPass; 6] = [
        ComparisonPass::Instant,
        ComparisonPass::Range,
        ComparisonPass::LabelNames,
        ComparisonPass::LabelValues,
        ComparisonPass::Series,
        ComparisonPass::Metadata,
    ];

    /// Returns the name of the pass in flags, reports, metrics and names of folders.
    pub fn as_str(self) -> &'static str {
        match self {
            ComparisonPass::Instant => "instant",
            ComparisonPass::Range => "range",
            ComparisonPass::LabelNames => "label_names",
            ComparisonPass::LabelValues => "label_values",
            ComparisonPass::Series => "series",
            ComparisonPass::Metadata => "metadata",
        }
    }
}

/// The result of comparing the answers to a query. The order is that in which findings are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComparisonOutcome {
    /// The answers are equal, with values within the tolerance.
    Match,
    /// The answers differ in at least one class.
    Mismatch,
    /// A system failed to answer, or the errors differ.
    Error,
    /// The query was not sent, or its answers do not permit a comparison.
    Skip,
}

impl ComparisonOutcome {
    /// All outcomes in the order of reports, which is also that of [`OutcomeCounts`].
    pub const ALL: [ComparisonOutcome; 4] = [
        ComparisonOutcome::Match,
        ComparisonOutcome::Mismatch,
        ComparisonOutcome::Error,
        ComparisonOutcome::Skip,
    ];

    /// Returns the name of the outcome in reports and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ComparisonOutcome::Match => "match",
            ComparisonOutcome::Mismatch => "mismatch",
            ComparisonOutcome::Error => "error",
            ComparisonOutcome::Skip => "skip",
        }
    }
}

/// Why a match has little significance, so that reports count it separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VacuousMatchReason {
    /// Both answers are empty, for example because no series matches.
    Empty,
    /// Both systems returned the same type of error for the query.
    SameError,
}

impl VacuousMatchReason {
    /// All reasons in the order of reports, by which counts are indexed.
    pub const ALL: [VacuousMatchReason; 2] =
        [VacuousMatchReason::Empty, VacuousMatchReason::SameError];

    /// Returns the name of the reason in `report.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            VacuousMatchReason::Empty => "empty",
            VacuousMatchReason::SameError => "same_error",
        }
    }
}

/// A compared or skipped query with its outcome in one round. A round passes it to
/// [`ComparisonTally::count`].
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedQuery {
    /// The pass in which the query was sent, or would have been.
    pub pass: ComparisonPass,
    /// Text of the query with its range, or of the lookup.
    pub question: String,
    /// File and place from which the query was collected.
    pub origin: String,
    /// Number of times the query occurs there, by the weights of lists.
    pub weight: f64,
    /// Result of the comparison, by which it is counted.
    pub outcome: ComparisonOutcome,
    /// Why a match has little significance, if it does.
    pub vacuous: Option<VacuousMatchReason>,
    /// Classes of the differences between the answers, most severe first.
    pub classes: Vec<DifferenceClass>,
    /// The first difference, or the reason for skipping the query.
    pub reason: String,
    /// Name of the folder with the answers, if one was written.
    pub folder: Option<String>,
    /// Points of the differing series, if it can be drawn as a chart.
    pub sketch: Option<SeriesSketch>,
}

/// Number of queries of a round or of a pass by their outcome, indexed by [`ComparisonOutcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts([u64; 4]);

impl OutcomeCounts {
    /// Returns the number of queries with this outcome, in the round or pass that is counted.
    pub fn count_of(&self, outcome: ComparisonOutcome) -> u64 {
        self.0[outcome as usize]
    }

    fn add(&mut self, other: &OutcomeCounts) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own += more;
        }
    }

    /// Returns the percentage of matches among compared queries; `None` if nothing was compared.
    /// Skipped queries do not count.
    pub fn match_rate(&self) -> Option<f64> {
        let compared: u64 = self.0[..ComparisonOutcome::Skip as usize].iter().sum();
        (compared > 0)
            .then(|| 100.0 * self.count_of(ComparisonOutcome::Match) as f64 / compared as f64)
    }
}

/// The counts of a round, or of several neighbouring rounds that were merged because there were too
/// many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundCounts {
    /// End of the queried data of the round, in milliseconds since the epoch.
    pub time_ms: TimestampMs,
    /// Counts of the round, indexed by the number of the pass.
    pub passes: [OutcomeCounts; ComparisonPass::ALL.len()],
}

/// A query whose answers differed, failed or were skipped in at least one round. Each query has at
/// most one finding per pass.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonFinding {
    /// Most recent outcome that is not a match, with its reason.
    pub judged: ComparedQuery,
    /// Number of rounds in which the outcome was the same.
    pub times: u64,
}

/// Outcomes of a whole run: counts by round, pass and class, and the findings. It is bounded in
/// size, however long the run is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparisonTally {
    rounds: Vec<RoundCounts>,
    all: [OutcomeCounts; ComparisonPass::ALL.len()],
    vacuous: [[u64; VacuousMatchReason::ALL.len()]; ComparisonPass::ALL.len()],
    classes: BTreeMap<DifferenceClass, u64>,
    /// Total weight of the matches, and of all compared queries.
    weights: (f64, f64),
    findings: BTreeMap<(ComparisonPass, String), ComparisonFinding>,
    /// Number of findings that have a sketch, at most [`SKETCHES_MAX`].
    sketches: usize,
    left_out: u64,
}

impl ComparisonTally {
    /// Begins a round over data up to `time_ms`. Merges pairs of earlier rounds if there are too
    /// many.
    pub fn begin(&mut self, time_ms: TimestampMs) {
        if self.rounds.len() == ROUNDS_MAX {
            let merge = |pair: &[RoundCounts]| {
                let mut merged = pair[0];
                for round in &pair[1..] {
                    merged.time_ms = round.time_ms;
                    let both = merged.passes.iter_mut().zip(&round.passes);
                    both.for_each(|(own, more)| own.add(more));
                }
                merged
            };
            self.rounds = self.rounds.chunks(2).map(merge).collect();
        }
        self.rounds.push(RoundCounts {
            time_ms,
            passes: Default::default(),
        });
    }

    /// Counts the outcome of a query in the current round and updates its finding.
    pub fn count(&mut self, judged: ComparedQuery) {
        let mut one = OutcomeCounts::default();
        one.0[judged.outcome as usize] = 1;
        self.all[judged.pass as usize].add(&one);
        if let Some(round) = self.rounds.last_mut() {
            round.passes[judged.pass as usize].add(&one);
        }
        if judged.outcome != ComparisonOutcome::Skip {
            self.weights.1 += judged.weight;
        }
        if judged.outcome == ComparisonOutcome::Match {
            self.weights.0 += judged.weight;
        }
        if let Some(vacuous) = judged.vacuous {
            self.vacuous[judged.pass as usize][vacuous as usize] += 1;
        }
        for class in &judged.classes {
            *self.classes.entry(*class).or_default() += 1;
        }
        let key = (judged.pass, judged.question.clone());
        match judged.outcome {
            ComparisonOutcome::Match => self.forget_skip(&key),
            _ => self.find(key, judged),
        }
    }

    /// Removes the finding of a query that was skipped before and has now been compared.
    fn forget_skip(&mut self, key: &(ComparisonPass, String)) {
        let known = self.findings.get(key);
        if known.is_some_and(|finding| finding.judged.outcome == ComparisonOutcome::Skip) {
            self.findings.remove(key);
        }
    }

    fn find(&mut self, key: (ComparisonPass, String), mut judged: ComparedQuery) {
        let is_full = self.findings.len() >= FINDINGS_MAX;
        let known = self.findings.get(&key);
        let times = match known {
            // A difference remains a finding even if the query is skipped later.
            Some(known)
                if judged.outcome == ComparisonOutcome::Skip
                    && known.judged.outcome != ComparisonOutcome::Skip =>
            {
                return;
            }
            None if is_full => {
                self.left_out += 1;
                return;
            }
            Some(known) if known.judged.outcome == judged.outcome => known.times + 1,
            _ => 1,
        };
        let is_drawn = |judged: &ComparedQuery| usize::from(judged.sketch.is_some());
        self.sketches -= known.map_or(0, |known| is_drawn(&known.judged));
        if self.sketches >= SKETCHES_MAX {
            judged.sketch = None;
        }
        self.sketches += is_drawn(&judged);
        self.findings
            .insert(key, ComparisonFinding { judged, times });
    }

    /// Returns the counts by round, oldest first; each entry may represent several merged
    /// rounds.
    pub fn rounds(&self) -> &[RoundCounts] {
        &self.rounds
    }

    /// Returns the counts of a pass over all rounds, which are exact even after rounds were merged.
    pub fn counts(&self, pass: ComparisonPass) -> OutcomeCounts {
        self.all[pass as usize]
    }

    /// Returns the number of answers that differed by class, over all rounds and passes.
    pub fn classes(&self) -> &BTreeMap<DifferenceClass, u64> {
        &self.classes
    }

    /// Returns the percentage of matches over all passes and rounds; `None` if nothing was
    /// compared.
    pub fn match_rate(&self) -> Option<f64> {
        let mut sum = OutcomeCounts::default();
        self.all.iter().for_each(|counts| sum.add(counts));
        sum.match_rate()
    }

    /// Returns the match rate like [`ComparisonTally::match_rate`], with each query weighted by its
    /// frequency.
    pub fn weighted_match_rate(&self) -> Option<f64> {
        let (matched, compared) = self.weights;
        (compared > 0.0).then(|| 100.0 * matched / compared)
    }

    /// Returns the number of matches of a pass that have little significance, by reason.
    pub fn vacuous(
        &self,
        pass: ComparisonPass,
    ) -> [(VacuousMatchReason, u64); VacuousMatchReason::ALL.len()] {
        VacuousMatchReason::ALL.map(|why| (why, self.vacuous[pass as usize][why as usize]))
    }

    /// Returns the findings: first mismatches, then errors, then skipped queries, each sorted by
    /// pass and query.
    pub fn findings(&self) -> Vec<&ComparisonFinding> {
        let mut all: Vec<&ComparisonFinding> = self.findings.values().collect();
        all.sort_by_key(|finding| finding.judged.outcome);
        all
    }

    /// Returns the number of findings that were counted but not kept.
    pub fn omitted_findings(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(question: &str, outcome: ComparisonOutcome) -> ComparedQuery {
        ComparedQuery {
            pass: ComparisonPass::Range,
            question: question.to_owned(),
            origin: String::new(),
            weight: 3.0,
            outcome,
            vacuous: None,
            classes: Vec::new(),
            reason: String::new(),
            folder: None,
            sketch: None,
        }
    }

    #[test]
    fn question_of_many_rounds_is_one_finding() {
        let mut tally = ComparisonTally::default();
        assert_eq!(tally.match_rate(), None);
        for (round, outcomes) in [
            [ComparisonOutcome::Skip, ComparisonOutcome::Mismatch],
            [ComparisonOutcome::Match, ComparisonOutcome::Mismatch],
            [ComparisonOutcome::Match, ComparisonOutcome::Match],
        ]
        .into_iter()
        .enumerate()
        {
            tally.begin(round as i64);
            for (question, outcome) in ["a", "b"].into_iter().zip(outcomes) {
                tally.count(judged(question, outcome));
            }
        }
        let findings = tally.findings();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(
            (findings[0].judged.question.as_str(), findings[0].times),
            ("b", 2)
        );
        assert_eq!(tally.match_rate(), Some(60.0));
        assert_eq!(tally.weighted_match_rate(), Some(60.0));
        let counts = tally.counts(ComparisonPass::Range);
        assert_eq!(
            ComparisonOutcome::ALL.map(|outcome| counts.count_of(outcome)),
            [3, 2, 0, 1]
        );
    }

    #[test]
    fn sketches_are_kept_of_as_many_findings_as_are_drawn() {
        let mut tally = ComparisonTally::default();
        let drawn = |question: &str| ComparedQuery {
            sketch: Some(SeriesSketch {
                series: String::new(),
                baseline: Vec::new(),
                candidate: Vec::new(),
            }),
            ..judged(question, ComparisonOutcome::Mismatch)
        };
        for _ in 0..2 {
            tally.begin(0);
            for number in 0..SKETCHES_MAX + 20 {
                tally.count(drawn(&number.to_string()));
            }
        }
        let kept = |tally: &ComparisonTally| {
            let findings = tally.findings();
            findings
                .iter()
                .filter(|f| f.judged.sketch.is_some())
                .count()
        };
        assert_eq!(
            (kept(&tally), tally.findings().len()),
            (SKETCHES_MAX, SKETCHES_MAX + 20)
        );
        // A finding that loses its sketch makes room for another one.
        tally.count(judged("0", ComparisonOutcome::Mismatch));
        tally.count(drawn("new"));
        assert_eq!((kept(&tally), tally.sketches), (SKETCHES_MAX, SKETCHES_MAX));
    }

    #[test]
    fn matches_that_say_little_are_counted_by_pass() {
        let mut tally = ComparisonTally::default();
        tally.begin(0);
        for vacuous in [
            None,
            Some(VacuousMatchReason::Empty),
            Some(VacuousMatchReason::SameError),
            Some(VacuousMatchReason::Empty),
        ] {
            tally.count(ComparedQuery {
                vacuous,
                ..judged("a", ComparisonOutcome::Match)
            });
        }
        let counted = tally.vacuous(ComparisonPass::Range);
        assert_eq!(
            counted,
            [
                (VacuousMatchReason::Empty, 2),
                (VacuousMatchReason::SameError, 1)
            ]
        );
        assert_eq!(
            tally
                .vacuous(ComparisonPass::Instant)
                .map(|(_, count)| count),
            [0, 0]
        );
    }

    #[test]
    fn rounds_are_bounded_and_keep_their_counts() {
        let mut tally = ComparisonTally::default();
        for round in 0..2_500 {
            tally.begin(round);
            tally.count(judged("a", ComparisonOutcome::Match));
        }
        let rounds = tally.rounds();
        assert!(rounds.len() <= ROUNDS_MAX, "{}", rounds.len());
        let sum: u64 = rounds
            .iter()
            .map(|r| r.passes[1].count_of(ComparisonOutcome::Match))
            .sum();
        assert_eq!((sum, rounds.last().unwrap().time_ms), (2_500, 2_499));
    }
}
