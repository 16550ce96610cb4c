//! Remembers persistent differences for later rounds: a query whose answers differ in the same
//! classes as before is neither repeated for confirmation nor minimised again.
//!
//! Invariant: the number of remembered differences is bounded; differences beyond the bound are
//! confirmed again in each round.

use super::tally::ComparisonPass;
use crate::judge::DifferenceClass;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered differences. In long runs the queries change as the fleet does, so
/// that the number would grow without bound.
const LASTING_MAX: usize = 20_000;

/// Maximum number of queries that are minimised per run; each takes dozens of requests.
const MINIMISED_MAX: usize = 300;

/// A confirmed difference: the classes in which the answers differed, and the minimised expression.
#[derive(Clone, Debug, PartialEq)]
struct ConfirmedDifference {
    classes: Vec<DifferenceClass>,
    minimised: String,
}

#[derive(Debug, Default)]
struct PersistentDifferencesState {
    known: HashMap<(ComparisonPass, String), ConfirmedDifference>,
    minimised: usize,
}

/// The persistent differences of a run, which all rounds and their threads share through a mutex.
#[derive(Debug, Default)]
pub struct PersistentDifferences(Mutex<PersistentDifferencesState>);

impl PersistentDifferences {
    fn lock(&self) -> MutexGuard<'_, PersistentDifferencesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the minimised expression of a query whose answers differed in exactly these classes
    /// before.
    pub fn minimised(
        &self,
        pass: ComparisonPass,
        question: &str,
        classes: &[DifferenceClass],
    ) -> Option<String> {
        let state = self.lock();
        let known = state.known.get(&(pass, question.to_owned()))?;
        (known.classes == classes).then(|| known.minimised.clone())
    }

    /// Returns whether another query may be minimised in this run, and counts it if so.
    pub fn may_minimise(&self) -> bool {
        let mut state = self.lock();
        let may = state.minimised < MINIMISED_MAX;
        state.minimised += usize::from(may);
        may
    }

    /// Remembers a confirmed difference. It replaces an earlier one of the same query; new ones are
    /// dropped when [`LASTING_MAX`] is reached.
    pub fn remember_difference(
        &self,
        pass: ComparisonPass,
        question: &str,
        classes: Vec<DifferenceClass>,
        minimised: String,
    ) {
        let mut state = self.lock();
        let key = (pass, question.to_owned());
        if state.known.len() < LASTING_MAX || state.known.contains_key(&key) {
            state
                .known
                .insert(key, ConfirmedDifference { classes, minimised });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_known_in_the_classes_in_which_it_lasted() {
        let lasting = PersistentDifferences::default();
        let value = vec![DifferenceClass::Value];
        lasting.remember_difference(ComparisonPass::Range, "a", value.clone(), "b".to_owned());
        let known = |pass, question, classes: &[DifferenceClass]| {
            lasting.minimised(pass, question, classes)
        };
        assert_eq!(
            known(ComparisonPass::Range, "a", &value).as_deref(),
            Some("b")
        );
        assert_eq!(
            known(ComparisonPass::Range, "a", &[DifferenceClass::Labels]),
            None
        );
        assert_eq!(known(ComparisonPass::Instant, "a", &value), None);
        assert_eq!(known(ComparisonPass::Range, "c", &value), None);
    }

    #[test]
    fn differences_that_are_kept_and_made_smaller_are_bounded() {
        let lasting = PersistentDifferences::default();
        for number in 0..LASTING_MAX + 5 {
            lasting.remember_difference(
                ComparisonPass::Range,
                &number.to_string(),
                Vec::new(),
                String::new(),
            );
        }
        assert_eq!(lasting.lock().known.len(), LASTING_MAX);
        let made = (0..1_000).filter(|_| lasting.may_minimise()).count();
        assert_eq!(made, MINIMISED_MAX);
    }
}
