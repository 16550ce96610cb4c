//! How far a run has come: what it goes on with after a break.
//!
//! ```text
//! load -> compare -> check -> done
//! ```
//!
//! Invariant: the file names a phase only once what the phases before it left is in the folder.

use crate::error::MirrorError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The part of a run that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The load is sent and the steps happen.
    #[default]
    Load,
    /// The systems are compared.
    Compare,
    /// What must hold is looked at.
    Check,
    /// Nothing is left to do.
    Done,
}

/// What is known once the load is done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// The time of the first samples.
    pub start_ms: i64,
    /// The time of the last ones.
    pub end_ms: i64,
    /// Acknowledged samples.
    pub samples: u64,
    /// Those of them that queries see: all but staleness markers.
    pub visible: u64,
    /// Requests that were not acknowledged.
    pub failed: u64,
    /// The longest push, in milliseconds.
    pub push_max_ms: f64,
    /// What became of the questions beside it, if some were asked.
    #[serde(default)]
    pub reads: Option<Reads>,
}

/// What became of questions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// How many were due.
    pub due: u64,
    /// How many got no good answer.
    pub failed: u64,
    /// How long they took on average, in milliseconds.
    pub average_ms: f64,
    /// The largest ratio between the tails of questions of equal cost, if it is known.
    pub fairness: Option<f64>,
}

/// How far a run has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// What comes next.
    pub phase: Phase,
    /// When the load began; it is sent again from there after a break.
    pub start_ms: Option<i64>,
    /// How many events of the load have happened.
    pub events: usize,
    /// Systems that were added, and since when they get what is sent.
    pub joined_ms: BTreeMap<String, i64>,
    /// What the load left.
    pub loaded: Option<Loaded>,
}

impl State {
    /// What the run in `dir` left; a new state if there was none.
    pub fn read(dir: &Path) -> Result<Self, MirrorError> {
        let path = dir.join("state.json");
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read(&path).map_err(MirrorError::file("read", &path))?;
        let wrong =
            |e| MirrorError::Usage(format!("{}: not the state of a run: {e}", path.display()));
        serde_json::from_slice(&text).map_err(wrong)
    }

    /// Keeps the state in `dir`.
    pub fn keep(&self, dir: &Path) -> Result<(), MirrorError> {
        let path = dir.join("state.json");
        let new = path.with_extension("new");
        let text = serde_json::to_string_pretty(self).expect("a state is plain JSON");
        fs::write(&new, text + "\n").map_err(MirrorError::file("write", &new))?;
        fs::rename(&new, &path).map_err(MirrorError::file("replace", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_run_reads_back_and_a_torn_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(State::read(dir.path()).unwrap(), State::default());
        let state = State {
            phase: Phase::Compare,
            start_ms: Some(5),
            events: 3,
            joined_ms: [("third".to_owned(), 9)].into(),
            loaded: Some(Loaded {
                start_ms: 5,
                end_ms: 8,
                samples: 7,
                visible: 6,
                failed: 0,
                push_max_ms: 1.25,
                reads: Some(Reads {
                    due: 9,
                    failed: 1,
                    average_ms: 2.5,
                    fairness: None,
                }),
            }),
        };
        state.keep(dir.path()).unwrap();
        assert_eq!(State::read(dir.path()).unwrap(), state);
        fs::write(dir.path().join("state.json"), "{\"phase\": \"lo").unwrap();
        let e = State::read(dir.path()).unwrap_err().to_string();
        assert!(e.contains("state.json: not the state of a run: "), "{e}");
    }
}
