//! Sorted values with their terms, contiguous in memory, each encoded relative to the previous one.
//!
//! ```text
//! run of 16 values = (bytes shared with the value before | bytes of its own | those) *
//! ```
//!
//! The first value of a run is stored in full, so that runs can be searched by bisection. An
//! automaton of the expression processes only the bytes that differ from the previous value. Values
//! with a prefix that cannot match any more are skipped, whole runs at a time.

use super::lookup_work::CANCEL_EACH;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::ids::TermId;
use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use firn_model::regex::{Regex, RegexStepper, RegexStepperState};
use std::cmp::Ordering;
use std::ops::Range;

/// Number of values of a run. Bisection reads one value per run, a scan reads all.
const RUN: usize = 16;

/// Minimum number of values for which an automaton is built. Building it takes as long as matching
/// that many values.
const STEPPER_VALUES_MIN: usize = 4_096;

/// Maximum memory of the automaton in bytes; filling it takes some milliseconds.
const STEPPER_BYTES_MAX: usize = 1 << 20;

/// An expression, prepared to be matched against many values.
pub(super) struct ValueRegexMatcher<'a> {
    regex: &'a Regex,
    stepper: Option<RegexStepper>,
    /// True if matching values are wanted, false if non-matching ones are.
    wants_match: bool,
}

impl<'a> ValueRegexMatcher<'a> {
    /// Prepares `regex` to be matched against about `count` values.
    pub(super) fn new(regex: &'a Regex, wants_match: bool, count: usize) -> Self {
        let is_led = count >= STEPPER_VALUES_MIN;
        Self {
            regex,
            stepper: is_led.then(|| regex.stepper(STEPPER_BYTES_MAX)).flatten(),
            wants_match,
        }
    }

    /// Returns whether `value` is wanted.
    pub(super) fn is_wanted(&self, value: &[u8]) -> bool {
        self.regex.is_match(value) == self.wants_match
    }
}

/// A sorted list of values and their terms, compressed by shared prefixes.
#[derive(Debug, Default)]
pub(super) struct SortedValues {
    /// Offset in `bytes` at which each run of 16 values begins.
    starts: Vec<usize>,
    bytes: Vec<u8>,
    terms: Vec<TermId>,
}

impl SortedValues {
    /// Sorts values that are stored in `arena` at the given ranges, in any order, with their terms.
    pub(super) fn from_unsorted(arena: &[u8], values: &[(Range<usize>, TermId)]) -> Self {
        let value = |number: u32| &arena[values[number as usize].0.clone()];
        let shared = (1..values.len() as u32).fold(usize::MAX, |shared, number| {
            let first = value(0);
            shared_prefix_len(&first[..shared.min(first.len())], value(number))
        });
        let key = |number: u32| prefix_key(value(number).get(shared..).unwrap_or_default());
        let numbers = 0..values.len() as u32;
        let mut order: Vec<(u128, u32)> = numbers.map(|number| (key(number), number)).collect();
        order.sort_unstable_by(|(a_key, a), (b_key, b)| {
            a_key.cmp(b_key).then_with(|| value(*a).cmp(value(*b)))
        });
        let mut list = SortedValuesBuilder::default();
        for (_, number) in order {
            list.push(value(number), values[number as usize].1);
        }
        list.finish()
    }

    /// Merges two lists into a new one, in order of values.
    pub(super) fn merge(&self, other: &Self) -> Self {
        let (mut a, mut b) = (SortedValueReader::new(self), SortedValueReader::new(other));
        let (mut a_term, mut b_term) = (a.next(), b.next());
        let mut joined = SortedValuesBuilder::default();
        loop {
            let a_first = match (&a_term, &b_term) {
                (Some(_), Some(_)) => a.value.cmp(&b.value) != Ordering::Greater,
                (None, None) => return joined.finish(),
                (left, _) => left.is_some(),
            };
            let (reader, term) = if a_first {
                (&mut a, &mut a_term)
            } else {
                (&mut b, &mut b_term)
            };
            if let Some((_, term)) = term {
                joined.push(&reader.value, *term);
            }
            *term = reader.next();
        }
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.terms.len()
    }

    /// Returns the memory in bytes, the struct included.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.starts.len() * 8 + self.bytes.len() + self.terms.len() * 4
    }

    /// Returns the maximum number of values that begin with the prefix of all matching values.
    pub(super) fn count_regex_candidates(&self, regex: &Regex) -> usize {
        self.find_prefix_runs(regex.prefix()).len() * RUN
    }

    /// Returns the runs that may contain values with `prefix`.
    fn find_prefix_runs(&self, prefix: &[u8]) -> Range<usize> {
        let head = |start: &usize| {
            let first = self.first_value(*start);
            &first[..first.len().min(prefix.len())]
        };
        // Values with the prefix may begin in the run before the first one that begins with it.
        let first = self.starts.partition_point(|s| head(s) < prefix);
        let end = self.starts.partition_point(|s| head(s) <= prefix);
        first.saturating_sub(1)..end
    }

    fn first_value(&self, start: usize) -> &[u8] {
        let mut cursor = DecodeCursor::new(&self.bytes[start..]);
        let len = cursor
            .read_uvarint()
            .and_then(|_| cursor.read_uvarint())
            .unwrap_or(0);
        cursor.read_bytes(len as usize).unwrap_or_default()
    }

    fn run_terms(&self, runs: Range<usize>) -> &[TermId] {
        let end = self.terms.len().min(runs.end * RUN);
        &self.terms[(runs.start * RUN).min(end)..end]
    }

    /// Adds the terms of the wanted values. Returns the number of values that were read.
    pub(super) fn match_values(
        &self,
        question: &ValueRegexMatcher<'_>,
        terms: &mut Vec<TermId>,
        cancel: &CancelToken,
    ) -> Result<usize, Error> {
        let reach = self.find_prefix_runs(question.regex.prefix());
        let out_of_reach = [0..reach.start, reach.end..self.starts.len()];
        if !question.wants_match {
            for runs in out_of_reach {
                terms.extend_from_slice(self.run_terms(runs));
            }
        }
        match &question.stepper {
            Some(stepper) => {
                ValueAutomatonRunner::new(self, stepper).match_runs(reach, question, terms, cancel)
            }
            None => self.match_each_value(reach, question, terms, cancel),
        }
    }

    /// Matches every value of the runs `reach` one by one, without an automaton. Returns the number
    /// of values read.
    fn match_each_value(
        &self,
        reach: Range<usize>,
        question: &ValueRegexMatcher<'_>,
        into: &mut Vec<TermId>,
        cancel: &CancelToken,
    ) -> Result<usize, Error> {
        let mut reader = SortedValueReader::new(self);
        reader.seek_run(reach.start);
        let end = self.terms.len().min(reach.end * RUN);
        let mut count = 0usize;
        while reader.number < end
            && let Some((_, term)) = reader.next()
        {
            // Reading a value is a cache miss, and a pattern may take long.
            cancel.check()?;
            count += 1;
            if question.is_wanted(&reader.value) {
                into.push(term);
            }
        }
        Ok(count)
    }
}

/// A list under construction; values must be added in order.
#[derive(Default)]
struct SortedValuesBuilder {
    list: SortedValues,
    newest: Vec<u8>,
}

impl SortedValuesBuilder {
    fn push(&mut self, value: &[u8], term: TermId) {
        let list = &mut self.list;
        let shared = if list.terms.len().is_multiple_of(RUN) {
            list.starts.push(list.bytes.len());
            0
        } else {
            shared_prefix_len(&self.newest, value)
        };
        push_uvarint(&mut list.bytes, shared as u64);
        push_uvarint(&mut list.bytes, (value.len() - shared) as u64);
        list.bytes.extend_from_slice(&value[shared..]);
        list.terms.push(term);
        self.newest.truncate(shared);
        self.newest.extend_from_slice(&value[shared..]);
    }

    fn finish(mut self) -> SortedValues {
        self.list.starts.shrink_to_fit();
        self.list.bytes.shrink_to_fit();
        self.list.terms.shrink_to_fit();
        self.list
    }
}

/// Returns the first sixteen bytes as a number in the same order, except for zeros at the end:
/// whole values are compared if their keys are equal.
fn prefix_key(bytes: &[u8]) -> u128 {
    let mut first = [0; 16];
    let len = bytes.len().min(16);
    first[..len].copy_from_slice(&bytes[..len]);
    u128::from_be_bytes(first)
}

fn shared_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Reads the values one after the other.
struct SortedValueReader<'a> {
    list: &'a SortedValues,
    cursor: DecodeCursor<'a>,
    /// Index of the next value.
    number: usize,
    value: Vec<u8>,
}

impl<'a> SortedValueReader<'a> {
    fn new(list: &'a SortedValues) -> Self {
        Self {
            list,
            cursor: DecodeCursor::new(&list.bytes),
            number: 0,
            value: Vec::new(),
        }
    }

    /// Moves to the first value of a run.
    fn seek_run(&mut self, run: usize) {
        let start = self.list.starts.get(run).copied();
        let rest = start.and_then(|start| self.list.bytes.get(start..));
        self.cursor = DecodeCursor::new(rest.unwrap_or_default());
        self.number = run * RUN;
    }

    /// Reads a value. Returns the number of bytes that it shares with the previous one, and its
    /// term.
    #[inline]
    fn next(&mut self) -> Option<(usize, TermId)> {
        let term = *self.list.terms.get(self.number)?;
        // Only this file writes these bytes, so none of this fails.
        let coded = self.cursor.read_uvarint().ok()? as usize;
        let len = self.cursor.read_uvarint().ok()? as usize;
        let own = self.cursor.read_bytes(len).ok()?;
        let shared = if self.number.is_multiple_of(RUN) {
            shared_prefix_len(&self.value, own)
        } else {
            coded
        };
        self.value.truncate(coded);
        self.value.extend_from_slice(own);
        self.number += 1;
        Some((shared, term))
    }
}

/// Runs an automaton over the values of a list.
struct ValueAutomatonRunner<'a> {
    reader: SortedValueReader<'a>,
    stepper: &'a RegexStepper,
    /// The state after each byte of the last value, up to the first dead one.
    states: Vec<RegexStepperState>,
}

impl<'a> ValueAutomatonRunner<'a> {
    fn new(list: &'a SortedValues, stepper: &'a RegexStepper) -> Self {
        Self {
            reader: SortedValueReader::new(list),
            stepper,
            states: vec![stepper.start()],
        }
    }

    /// Runs the automaton over the runs `reach` and adds the wanted terms. Returns the number of
    /// values read.
    fn match_runs(
        mut self,
        reach: Range<usize>,
        question: &ValueRegexMatcher<'_>,
        into: &mut Vec<TermId>,
        cancel: &CancelToken,
    ) -> Result<usize, Error> {
        let list = self.reader.list;
        let mut count = 0;
        let mut visited = 0usize;
        let mut run = reach.start;
        while run < reach.end {
            if visited.is_multiple_of(CANCEL_EACH / RUN) {
                cancel.check()?;
            }
            visited += 1;
            self.reader.seek_run(run);
            let end = list.terms.len().min((run + 1) * RUN);
            while self.reader.number < end
                && let Some((shared, term)) = self.reader.next()
            {
                count += 1;
                if self.accepts(shared) == question.wants_match {
                    into.push(term);
                }
            }
            let next = self.skip_dead_runs(run + 1, reach.end);
            if !question.wants_match {
                into.extend_from_slice(list.run_terms(run + 1..next));
            }
            run = next;
        }
        Ok(count)
    }

    /// Returns whether the current value matches. `shared` is the number of bytes that it shares
    /// with the previous value.
    #[inline]
    fn accepts(&mut self, shared: usize) -> bool {
        self.states.truncate(shared + 1);
        let known = self.states.len() - 1;
        let Some(mut state) = self.states.last().copied() else {
            return false;
        };
        if self.stepper.is_dead(state) {
            return false;
        }
        for byte in &self.reader.value[known..] {
            state = self.stepper.step(state, *byte);
            self.states.push(state);
            if self.stepper.is_dead(state) {
                return false;
            }
        }
        self.stepper.is_accepting(state)
    }

    /// Returns the first run from `next` on with values that do not begin with the dead prefix of
    /// the current value. Searches in steps that double.
    fn skip_dead_runs(&self, next: usize, end: usize) -> usize {
        let dead = self.states.last().is_some_and(|s| self.stepper.is_dead(*s));
        let begun = &self.reader.value[..self.states.len() - 1];
        let list = self.reader.list;
        let is_dead = |start: &usize| list.first_value(*start).starts_with(begun);
        let mut known = next;
        let mut step = 1;
        while dead
            && let Some(start) = list.starts[..end].get(known + step - 1)
            && is_dead(start)
        {
            known += step;
            step *= 2;
        }
        if known == next {
            return next;
        }
        let near = &list.starts[known..end.min(known + step)];
        // The last run that begins with the prefix may end with other values.
        known + near.partition_point(is_dead) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    /// Returns short values of few letters, so that they share prefixes and patterns match some of
    /// them.
    fn random_value(rng: &SimRng) -> Vec<u8> {
        let letters = [&b"a"[..], b"b", b"-", "é".as_bytes(), b"\xff", b"ab-ab-ab-"];
        let count = rng.next_below(7) as usize;
        let letter = |_| letters[rng.next_below(letters.len() as u64) as usize];
        (0..count).flat_map(letter).copied().collect()
    }

    fn random_pattern(rng: &SimRng) -> String {
        let parts = [
            "a",
            "b",
            "-",
            "ab-",
            ".*",
            ".+",
            ".",
            "[ab]",
            "[^a]",
            "(a|b-)",
            "(ab-)+",
            "(?i:AB)",
            "é",
            "a?",
            "(?:ab-ab|ba)-.*",
            "b{2}",
        ];
        let count = 1 + rng.next_below(4) as usize;
        let part = |_| parts[rng.next_below(parts.len() as u64) as usize];
        (0..count).map(part).collect()
    }

    fn sorted(values: &[(Vec<u8>, TermId)]) -> SortedValues {
        let mut arena = Vec::new();
        let place = |(value, term): &(Vec<u8>, TermId)| {
            let start = arena.len();
            arena.extend_from_slice(value);
            (start..arena.len(), *term)
        };
        let placed: Vec<_> = values.iter().map(place).collect();
        SortedValues::from_unsorted(&arena, &placed)
    }

    fn check(list: &SortedValues, values: &[(Vec<u8>, TermId)], pattern: &str, seed: u64) {
        let regex = Regex::new(pattern.as_bytes()).unwrap();
        for (wants_match, count) in [(true, 1 << 20), (false, 1 << 20), (true, 0), (false, 0)] {
            let question = ValueRegexMatcher::new(&regex, wants_match, count);
            let mut found = Vec::new();
            let looked_at = list
                .match_values(&question, &mut found, &CancelToken::new())
                .unwrap();
            found.sort_unstable();
            let wanted = |value: &[u8]| regex.is_match(value) == wants_match;
            let expected = values.iter().filter(|(value, _)| wanted(value));
            let mut expected: Vec<TermId> = expected.map(|(_, term)| *term).collect();
            expected.sort_unstable();
            assert_eq!(
                found, expected,
                "{pattern} wanted {wants_match}, seed {seed}"
            );
            assert!(looked_at <= values.len(), "{pattern}, seed {seed}");
            let begin = values.iter().filter(|(v, _)| v.starts_with(regex.prefix()));
            assert!(
                begin.count() <= list.count_regex_candidates(&regex),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn sorted_values_asked_random_patterns_answer_as_each_value_does() {
        for seed in 0..80 {
            let rng = SimRng::new(seed);
            let mut values: Vec<(Vec<u8>, TermId)> = Vec::new();
            let mut list = SortedValues::default();
            for _ in 0..1 + rng.next_below(3) {
                let first = values.len() as u32;
                let count = rng.next_below(200) as u32;
                let more: Vec<_> = (first..first + count)
                    .map(|term| (random_value(&rng), TermId(term)))
                    .collect();
                list = list.merge(&sorted(&more));
                values.extend(more);
            }
            assert_eq!(list.len(), values.len(), "seed {seed}");
            for _ in 0..10 {
                check(&list, &values, &random_pattern(&rng), seed);
            }
        }
    }

    #[test]
    fn sorted_values_that_begin_otherwise_are_not_looked_at() {
        let name = |i: u32| format!("service-{:03}-{:04}", i / 1_000, i % 1_000);
        let values: Vec<_> = (0..100_000)
            .map(|i| (name(i).into_bytes(), TermId(i)))
            .collect();
        let list = sorted(&values);
        let cases = [
            ("service-012-.*", 1_000, 1_040),
            ("service-(012|077)-.*", 2_000, 3_000),
            ("(?i)SERVICE-012-.*", 1_000, 2_000),
            ("(service|server)-012-00[0-9]+", 100, 1_000),
            ("nothing-[0-9]", 0, 32),
            ("[^s].*", 0, 64),
        ];
        for (pattern, matching, most) in cases {
            let regex = Regex::new(pattern.as_bytes()).unwrap();
            let mut terms = Vec::new();
            let question = ValueRegexMatcher::new(&regex, true, values.len());
            let looked_at = list
                .match_values(&question, &mut terms, &CancelToken::new())
                .unwrap();
            assert_eq!(terms.len(), matching, "{pattern}");
            assert!(looked_at <= most, "{pattern} looked at {looked_at}");
        }
        let bytes = list.memory_bytes() / values.len();
        assert!(bytes <= 12, "{bytes} bytes a value");
    }
}
