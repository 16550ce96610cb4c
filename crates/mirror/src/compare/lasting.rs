//! Remembers persistent differences for later rounds: a query whose answers differ in the same
//! classes as before is neither repeated for confirmation nor minimised again.
//!
//! Invariant: the number of remembered differences is bounded; differences beyond the bound are
//! confirmed again in each round.

use super::tally::Pass;
use crate::judge::Class;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered differences. In long runs the queries change as the fleet does, so
/// that the number would grow without bound.
const LASTING_MAX: usize = 20_000;

/// Maximum number of queries that are minimised per run; each takes dozens of requests.
const MINIMISED_MAX: usize = 300;

/// A confirmed difference: the classes in which the answers differed, and the minimised expression.
#[derive(Clone, Debug, PartialEq)]
struct Difference {
    classes: Vec<Class>,
    minimised: String,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<(Pass, String), Difference>,
    minimised: usize,
}

/// The persistent differences of a run, which all rounds and their threads share through a mutex.
#[derive(Debug, Default)]
pub struct Lasting(Mutex<State>);

impl Lasting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the minimised expression of a query whose answers differed in exactly these classes
    /// before.
    pub fn minimised(&self, pass: Pass, question: &str, classes: &[Class]) -> Option<String> {
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
    pub fn note(&self, pass: Pass, question: &str, classes: Vec<Class>, minimised: String) {
        let mut state = self.lock();
        let key = (pass, question.to_owned());
        if state.known.len() < LASTING_MAX || state.known.contains_key(&key) {
            state.known.insert(key, Difference { classes, minimised });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_known_in_the_classes_in_which_it_lasted() {
        let lasting = Lasting::default();
        let value = vec![Class::Value];
        lasting.note(Pass::Range, "a", value.clone(), "b".to_owned());
        let known = |pass, question, classes: &[Class]| lasting.minimised(pass, question, classes);
        assert_eq!(known(Pass::Range, "a", &value).as_deref(), Some("b"));
        assert_eq!(known(Pass::Range, "a", &[Class::Labels]), None);
        assert_eq!(known(Pass::Instant, "a", &value), None);
        assert_eq!(known(Pass::Range, "c", &value), None);
    }

    #[test]
    fn differences_that_are_kept_and_made_smaller_are_bounded() {
        let lasting = Lasting::default();
        for number in 0..LASTING_MAX + 5 {
            lasting.note(Pass::Range, &number.to_string(), Vec::new(), String::new());
        }
        assert_eq!(lasting.lock().known.len(), LASTING_MAX);
        let made = (0..1_000).filter(|_| lasting.may_minimise()).count();
        assert_eq!(made, MINIMISED_MAX);
    }
}
