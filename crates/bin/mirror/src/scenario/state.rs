//! Progress of a run, stored in its directory so that an interrupted run can be continued.
//!
//! ```text
//! load -> compare -> check -> done
//! ```
//!
//! Invariant: the file names a phase only after the results of all earlier phases have been stored.

use crate::error::MirrorError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The phases of a run in the order of their execution. The state file stores the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScenarioPhase {
    /// The load is sent and the steps are executed.
    #[default]
    Load,
    /// The systems are compared with the baseline, one after the other.
    Compare,
    /// The conditions of the scenario are checked with the systems running.
    Check,
    /// The run is complete, and its result has been written.
    Done,
}

/// Results of the load, which comparison and checks need. They are stored, so that a continued run
/// has them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioLoadResults {
    /// Timestamp of the first samples in milliseconds since the epoch.
    pub start_ms: i64,
    /// End of the load's data in milliseconds since the epoch.
    pub end_ms: i64,
    /// Number of samples in requests that were acknowledged.
    pub samples: u64,
    /// Number of samples that queries return: all except staleness markers.
    pub visible: u64,
    /// Number of requests that were rejected or lost.
    pub failed: u64,
    /// Duration of the longest write in milliseconds.
    pub push_max_ms: f64,
    /// Results of the queries beside the load, if there were any.
    #[serde(default)]
    pub reads: Option<ScenarioReadResults>,
}

/// Results of the queries beside the load, read from its report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioReadResults {
    /// Number of queries that were due during the load.
    pub due: u64,
    /// Number of queries without a successful answer.
    pub failed: u64,
    /// Mean latency of the queries in milliseconds.
    pub average_ms: f64,
    /// Largest ratio between the 99th percentiles of queries of equal cost, if it could be
    /// determined.
    pub fairness: Option<f64>,
}

/// The stored progress of a run, which is rewritten after each event and each phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioState {
    /// The next phase to execute, which is the load at first.
    pub phase: ScenarioPhase,
    /// Start of the load in milliseconds; a continued run sends it again from this time.
    pub start_ms: Option<i64>,
    /// Number of events of the load that have happened.
    pub events: usize,
    /// Systems that were added, and the times from which they receive data, in milliseconds.
    pub joined_ms: BTreeMap<String, i64>,
    /// Results of the load; `None` until it is complete.
    pub loaded: Option<ScenarioLoadResults>,
}

impl ScenarioState {
    /// Reads the state of the run in `dir`; returns the initial state if there is none.
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

    /// Replaces the state file in `dir` atomically, so that an interruption leaves a complete one.
    pub fn store_in(&self, dir: &Path) -> Result<(), MirrorError> {
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
        assert_eq!(
            ScenarioState::read(dir.path()).unwrap(),
            ScenarioState::default()
        );
        let state = ScenarioState {
            phase: ScenarioPhase::Compare,
            start_ms: Some(5),
            events: 3,
            joined_ms: [("third".to_owned(), 9)].into(),
            loaded: Some(ScenarioLoadResults {
                start_ms: 5,
                end_ms: 8,
                samples: 7,
                visible: 6,
                failed: 0,
                push_max_ms: 1.25,
                reads: Some(ScenarioReadResults {
                    due: 9,
                    failed: 1,
                    average_ms: 2.5,
                    fairness: None,
                }),
            }),
        };
        state.store_in(dir.path()).unwrap();
        assert_eq!(ScenarioState::read(dir.path()).unwrap(), state);
        fs::write(dir.path().join("state.json"), "{\"phase\": \"lo").unwrap();
        let e = ScenarioState::read(dir.path()).unwrap_err().to_string();
        assert!(e.contains("state.json: not the state of a run: "), "{e}");
    }
}
