//! What became of all questions of a run, round by round.
//!
//! Invariant: a question is one finding of its pass however often it is asked; rounds are as many
//! as can be drawn, neighbours are put together when there are more.

use super::artefact::Sketch;
use crate::judge::Class;
use firn_model::sample::TimestampMs;
use std::collections::BTreeMap;

/// Rounds that are kept apart.
const ROUNDS_MAX: usize = 1_000;

/// Findings that are kept; more of them are counted only.
const FINDINGS_MAX: usize = 100_000;

/// Differences that are drawn: what a person looks at. The points of others are not kept.
pub const SKETCHES_MAX: usize = 60;

/// Kinds of questions, in the order in which a round asks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// At one time.
    Instant,
    /// At every step of a range.
    Range,
    /// Which labels there are.
    LabelNames,
    /// Which values a label has.
    LabelValues,
    /// Which series a selector finds.
    Series,
    /// Types and help texts.
    Metadata,
}

impl Pass {
    /// All of them.
    pub const ALL: [Pass; 6] = [
        Pass::Instant,
        Pass::Range,
        Pass::LabelNames,
        Pass::LabelValues,
        Pass::Series,
        Pass::Metadata,
    ];

    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Pass::Instant => "instant",
            Pass::Range => "range",
            Pass::LabelNames => "label_names",
            Pass::LabelValues => "label_values",
            Pass::Series => "series",
            Pass::Metadata => "metadata",
        }
    }
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The answers are equal.
    Match,
    /// The answers differ.
    Mismatch,
    /// A system gave no answer, or another error.
    Error,
    /// It was not asked, or the answers say nothing.
    Skip,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 4] = [
        Outcome::Match,
        Outcome::Mismatch,
        Outcome::Error,
        Outcome::Skip,
    ];

    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Match => "match",
            Outcome::Mismatch => "mismatch",
            Outcome::Error => "error",
            Outcome::Skip => "skip",
        }
    }
}

/// Why a match says little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vacuous {
    /// Both answers are empty.
    Empty,
    /// Both systems gave the same error.
    SameError,
}

impl Vacuous {
    /// All of them.
    pub const ALL: [Vacuous; 2] = [Vacuous::Empty, Vacuous::SameError];

    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Vacuous::Empty => "empty",
            Vacuous::SameError => "same_error",
        }
    }
}

/// A question that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// As what it was asked.
    pub pass: Pass,
    /// What was asked.
    pub question: String,
    /// Where it comes from.
    pub origin: String,
    /// How often it was found there.
    pub weight: f64,
    /// What became of it.
    pub outcome: Outcome,
    /// Why a match says little, if it does.
    pub vacuous: Option<Vacuous>,
    /// In which ways the answers differ.
    pub classes: Vec<Class>,
    /// Where they differ first, or why it was skipped.
    pub reason: String,
    /// The folder with the answers.
    pub folder: Option<String>,
    /// What can be drawn of the difference.
    pub sketch: Option<Sketch>,
}

/// Questions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; 4]);

impl Counts {
    /// Those with an outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    fn add(&mut self, other: &Counts) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own += more;
        }
    }

    /// Matches in percent of what was compared; `None` if nothing was.
    pub fn match_rate(&self) -> Option<f64> {
        let compared: u64 = self.0[..Outcome::Skip as usize].iter().sum();
        (compared > 0).then(|| 100.0 * self.of(Outcome::Match) as f64 / compared as f64)
    }
}

/// The counts of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Up to which data time was asked.
    pub time_ms: TimestampMs,
    /// By pass.
    pub passes: [Counts; Pass::ALL.len()],
}

/// A question whose answers were not always equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How it was when it was last so.
    pub judged: Judged,
    /// In how many rounds it was so.
    pub times: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    rounds: Vec<Round>,
    all: [Counts; Pass::ALL.len()],
    vacuous: [[u64; Vacuous::ALL.len()]; Pass::ALL.len()],
    classes: BTreeMap<Class, u64>,
    /// The weights of what matched, and of all that was compared.
    weights: (f64, f64),
    findings: BTreeMap<(Pass, String), Finding>,
    /// Findings that can be drawn.
    sketches: usize,
    left_out: u64,
}

impl Tally {
    /// Begins a round.
    pub fn begin(&mut self, time_ms: TimestampMs) {
        if self.rounds.len() == ROUNDS_MAX {
            let merge = |pair: &[Round]| {
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
        self.rounds.push(Round {
            time_ms,
            passes: Default::default(),
        });
    }

    /// Counts what became of a question in this round.
    pub fn count(&mut self, judged: Judged) {
        let mut one = Counts::default();
        one.0[judged.outcome as usize] = 1;
        self.all[judged.pass as usize].add(&one);
        if let Some(round) = self.rounds.last_mut() {
            round.passes[judged.pass as usize].add(&one);
        }
        if judged.outcome != Outcome::Skip {
            self.weights.1 += judged.weight;
        }
        if judged.outcome == Outcome::Match {
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
            Outcome::Match => self.forget_skip(&key),
            _ => self.find(key, judged),
        }
    }

    /// What was skipped until now was asked.
    fn forget_skip(&mut self, key: &(Pass, String)) {
        let known = self.findings.get(key);
        if known.is_some_and(|finding| finding.judged.outcome == Outcome::Skip) {
            self.findings.remove(key);
        }
    }

    fn find(&mut self, key: (Pass, String), mut judged: Judged) {
        let is_full = self.findings.len() >= FINDINGS_MAX;
        let known = self.findings.get(&key);
        let times = match known {
            // A difference that was seen once stays, whatever comes of the question later.
            Some(known)
                if judged.outcome == Outcome::Skip && known.judged.outcome != Outcome::Skip =>
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
        let is_drawn = |judged: &Judged| usize::from(judged.sketch.is_some());
        self.sketches -= known.map_or(0, |known| is_drawn(&known.judged));
        if self.sketches >= SKETCHES_MAX {
            judged.sketch = None;
        }
        self.sketches += is_drawn(&judged);
        self.findings.insert(key, Finding { judged, times });
    }

    /// The rounds, the oldest first.
    pub fn rounds(&self) -> &[Round] {
        &self.rounds
    }

    /// The counts of a pass over all rounds.
    pub fn counts(&self, pass: Pass) -> Counts {
        self.all[pass as usize]
    }

    /// Differences by class.
    pub fn classes(&self) -> &BTreeMap<Class, u64> {
        &self.classes
    }

    /// Matches in percent of all that was compared; `None` if nothing was.
    pub fn match_rate(&self) -> Option<f64> {
        let mut sum = Counts::default();
        self.all.iter().for_each(|counts| sum.add(counts));
        sum.match_rate()
    }

    /// Like [`Tally::match_rate`], each question as often as it was found.
    pub fn weighted_match_rate(&self) -> Option<f64> {
        let (matched, compared) = self.weights;
        (compared > 0.0).then(|| 100.0 * matched / compared)
    }

    /// The matches of a pass that say little, by why they do.
    pub fn vacuous(&self, pass: Pass) -> [(Vacuous, u64); Vacuous::ALL.len()] {
        Vacuous::ALL.map(|why| (why, self.vacuous[pass as usize][why as usize]))
    }

    /// What differed, what went wrong, what was skipped, in this order.
    pub fn findings(&self) -> Vec<&Finding> {
        let mut all: Vec<&Finding> = self.findings.values().collect();
        all.sort_by_key(|finding| finding.judged.outcome);
        all
    }

    /// Findings that were counted only.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(question: &str, outcome: Outcome) -> Judged {
        Judged {
            pass: Pass::Range,
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
        let mut tally = Tally::default();
        assert_eq!(tally.match_rate(), None);
        for (round, outcomes) in [
            [Outcome::Skip, Outcome::Mismatch],
            [Outcome::Match, Outcome::Mismatch],
            [Outcome::Match, Outcome::Match],
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
        let counts = tally.counts(Pass::Range);
        assert_eq!(Outcome::ALL.map(|outcome| counts.of(outcome)), [3, 2, 0, 1]);
    }

    #[test]
    fn sketches_are_kept_of_as_many_findings_as_are_drawn() {
        let mut tally = Tally::default();
        let drawn = |question: &str| Judged {
            sketch: Some(Sketch {
                series: String::new(),
                baseline: Vec::new(),
                candidate: Vec::new(),
            }),
            ..judged(question, Outcome::Mismatch)
        };
        for _ in 0..2 {
            tally.begin(0);
            for number in 0..SKETCHES_MAX + 20 {
                tally.count(drawn(&number.to_string()));
            }
        }
        let kept = |tally: &Tally| {
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
        // One that cannot be drawn any more makes room.
        tally.count(judged("0", Outcome::Mismatch));
        tally.count(drawn("new"));
        assert_eq!((kept(&tally), tally.sketches), (SKETCHES_MAX, SKETCHES_MAX));
    }

    #[test]
    fn matches_that_say_little_are_counted_by_pass() {
        let mut tally = Tally::default();
        tally.begin(0);
        for vacuous in [
            None,
            Some(Vacuous::Empty),
            Some(Vacuous::SameError),
            Some(Vacuous::Empty),
        ] {
            tally.count(Judged {
                vacuous,
                ..judged("a", Outcome::Match)
            });
        }
        let counted = tally.vacuous(Pass::Range);
        assert_eq!(counted, [(Vacuous::Empty, 2), (Vacuous::SameError, 1)]);
        assert_eq!(tally.vacuous(Pass::Instant).map(|(_, count)| count), [0, 0]);
    }

    #[test]
    fn rounds_are_bounded_and_keep_their_counts() {
        let mut tally = Tally::default();
        for round in 0..2_500 {
            tally.begin(round);
            tally.count(judged("a", Outcome::Match));
        }
        let rounds = tally.rounds();
        assert!(rounds.len() <= ROUNDS_MAX, "{}", rounds.len());
        let sum: u64 = rounds.iter().map(|r| r.passes[1].of(Outcome::Match)).sum();
        assert_eq!((sum, rounds.last().unwrap().time_ms), (2_500, 2_499));
    }
}
