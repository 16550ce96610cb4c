//! Backfills of recording rules: evaluates the past instants of a group one after the other, from
//! the samples stored now, through the query queue and the ingest pipeline like live evaluations.
//!
//! A repeated backfill changes nothing: it produces the same samples, and the store recognizes
//! them as duplicates. An instant that the store cannot accept is evaluated again until it can.
//!
//! Instants whose samples a group could not store wait, one by one, for the groups whose series it
//! reads, because these may have such instants too.
//!
//! Invariant: at most [`RUNNING_MAX`] backfills run at a time, the others wait. The number of
//! backfills requested over HTTP is limited. Those requested by groups are limited by the number
//! of groups, because a group requests one at a time. A backfill in progress is never removed from
//! the list.

use super::RuleManagerState;
use super::runner::RuleGroupTaskState;
use firn_model::sync::lock;
use firn_rules::group::RuleGroup;
use firn_rules::instant::RuleInstant;
use firn_rules::machine::{BackfillRange, GroupMachine, GroupMachineSettings};
use firn_rules::view::{BackfillError, BackfillRequest, BackfillView};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of backfills in the list, and of requested backfills that have not ended.
const KEPT_MAX: usize = 100;

/// Backfills that run at a time. Each evaluates one rule at a time, in addition to live
/// evaluations.
const RUNNING_MAX: usize = 2;

/// Maximum number of instants of one backfill: a year of minutes.
const INSTANTS_MAX: u64 = 600_000;

/// Pause between two attempts to store the samples of an instant.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

type Shown = Arc<Mutex<BackfillView>>;

/// The backfills of a server: the running, the waiting, and the most recent ended ones.
pub(super) struct BackfillManager {
    known: Mutex<Vec<Shown>>,
    /// Permits of running backfills, [`RUNNING_MAX`] in total.
    turns: Semaphore,
}

impl Default for BackfillManager {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            turns: Semaphore::new(RUNNING_MAX),
        }
    }
}

/// The work of one backfill: a group, its settings, and the first and last instant to evaluate.
struct BackfillPlan {
    group: Arc<RuleGroup>,
    settings: GroupMachineSettings,
    first: RuleInstant,
    last: RuleInstant,
    /// Machine of the group whose unstored instants are evaluated, if a group requested the
    /// backfill.
    of: Option<Arc<Mutex<GroupMachine>>>,
}

impl BackfillManager {
    /// Returns the progress of each backfill in the list, the oldest first.
    pub(super) fn views(&self) -> Vec<BackfillView> {
        let known = lock(&self.known);
        known.iter().map(|view| lock(view).clone()).collect()
    }

    /// Starts a requested backfill. If the same one is in progress, returns its progress instead.
    pub(super) fn begin(
        &self,
        shared: Arc<RuleManagerState>,
        group: &RuleGroup,
        settings: GroupMachineSettings,
        request: BackfillRequest,
    ) -> Result<BackfillView, BackfillError> {
        let request = BackfillRequest {
            file: group.file.clone(),
            ..request
        };
        let (first, count) = instants(group, &request);
        if count > INSTANTS_MAX {
            return Err(BackfillError::TooLong {
                count,
                limit: INSTANTS_MAX,
            });
        }
        let view = BackfillView {
            request,
            done: 0,
            total: count,
            samples: 0,
            is_over: count == 0,
            last_error: String::new(),
        };
        let shown = match admit(&mut lock(&self.known), &view)? {
            BackfillAdmission::New(shown) => shown,
            BackfillAdmission::Same(view) => return Ok(view),
        };
        let plan = BackfillPlan {
            group: Arc::new(group.recording_only()),
            settings,
            first,
            last: view.request.end,
            of: None,
        };
        tokio::spawn(run(shared, plan, shown));
        Ok(view)
    }

    /// Evaluates the unstored instants of a group in the background, and reports the progress to
    /// `of`, the group's machine, after each instant.
    pub(super) fn make_up(
        &self,
        shared: Arc<RuleManagerState>,
        group: &RuleGroup,
        settings: GroupMachineSettings,
        owed: BackfillRange,
        of: Arc<Mutex<GroupMachine>>,
    ) {
        let request = BackfillRequest {
            group: group.name.clone(),
            file: group.file.clone(),
            start: owed.first,
            end: owed.last,
        };
        let (first, count) = instants(group, &request);
        let shown = Arc::new(Mutex::new(BackfillView {
            request,
            done: 0,
            total: count,
            samples: 0,
            is_over: false,
            last_error: String::new(),
        }));
        let mut known = lock(&self.known);
        forget_one(&mut known);
        known.push(shown.clone());
        let plan = BackfillPlan {
            group: Arc::new(group.recording_only()),
            settings,
            first,
            last: owed.last,
            of: Some(of),
        };
        tokio::spawn(run(shared, plan, shown));
    }
}

/// Outcome of admitting a request to the list: a new entry that must be run, or an existing one in
/// progress.
enum BackfillAdmission {
    New(Shown),
    /// The same backfill has not ended yet.
    Same(BackfillView),
}

/// Adds a backfill to the list, unless too many of them have not ended.
fn admit(known: &mut Vec<Shown>, view: &BackfillView) -> Result<BackfillAdmission, BackfillError> {
    let mut running = 0;
    for other in known.iter() {
        let other = lock(other);
        if other.is_over {
            continue;
        }
        if other.request == view.request {
            return Ok(BackfillAdmission::Same(other.clone()));
        }
        running += 1;
    }
    if running >= KEPT_MAX {
        return Err(BackfillError::TooMany(KEPT_MAX));
    }
    forget_one(known);
    let shown = Arc::new(Mutex::new(view.clone()));
    known.push(shown.clone());
    Ok(BackfillAdmission::New(shown))
}

/// Removes the oldest ended backfill if the list is full.
fn forget_one(known: &mut Vec<Shown>) {
    if known.len() >= KEPT_MAX
        && let Some(at) = known.iter().position(|view| lock(view).is_over)
    {
        known.remove(at);
    }
}

/// Returns the first instant of the requested range and the number of instants.
fn instants(group: &RuleGroup, request: &BackfillRequest) -> (RuleInstant, u64) {
    let first = group.instant_from(request.start);
    if first > request.end {
        return (first, 0);
    }
    let span = request.end.since(first).as_nanos();
    let count = span / group.interval.as_nanos().max(1) + 1;
    (first, u64::try_from(count).unwrap_or(u64::MAX))
}

async fn run(shared: Arc<RuleManagerState>, plan: BackfillPlan, shown: Shown) {
    // Evaluates one rule at a time, because live evaluations have priority.
    let settings = GroupMachineSettings {
        rules_at_once: 1,
        ..plan.settings
    };
    let (group, mut instant) = (plan.group, plan.first);
    let mut machine = GroupMachine::start_added(group.clone(), settings, instant);
    machine.stop();
    let running = RuleGroupTaskState {
        shared: shared.clone(),
        group: group.clone(),
        machine: Arc::new(Mutex::new(machine)),
        is_past: true,
        spans: Mutex::default(),
    };
    let (key, progress) = (group.key(), &shared.progress);
    loop {
        if let Some(of) = &plan.of {
            lock(of).record_backfilled(instant);
            progress.record_progress(&key, of);
        }
        if instant > plan.last {
            break;
        }
        if plan.of.is_some() {
            // Waits without a permit, because the groups that it waits for need one.
            progress.wait_until_filled(&key, instant).await;
        }
        // The semaphore is never closed.
        let _turn = shared.backfills.turns.acquire().await;
        if plan.of.is_some() && instant == plan.first {
            // Series that ended within the range get staleness markers, as if the group had never
            // stopped.
            let before = instant.before(group.interval);
            let actions = lock(&running.machine).query_series_at(before);
            running.finish(actions, before).await;
        }
        make(&running, instant, &shown).await;
        instant = instant.after(group.interval);
    }
    lock(&shown).is_over = true;
}

/// Evaluates one instant, repeatedly with pauses until the store has accepted its samples.
async fn make(running: &RuleGroupTaskState, instant: RuleInstant, shown: &Shown) {
    loop {
        let actions = lock(&running.machine).start_evaluation_at(instant);
        running.finish(actions, instant).await;
        let is_stored = {
            let mut machine = lock(&running.machine);
            let is_stored = machine.take_unstored().is_none();
            let mut view = lock(shown);
            if is_stored {
                view.done += 1;
                view.samples += machine.counts().samples;
            }
            let failed = machine.rules().iter().map(|rule| &rule.last_error);
            if let Some(error) = failed.rev().find(|error| !error.is_empty()) {
                view.last_error.clone_from(error);
            }
            is_stored
        };
        if is_stored {
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(second: i64, is_over: bool) -> BackfillView {
        BackfillView {
            request: BackfillRequest {
                group: "g".into(),
                file: "f".into(),
                start: RuleInstant::from_seconds(second),
                end: RuleInstant::from_seconds(second + 1),
            },
            done: 0,
            total: 1,
            samples: 0,
            is_over,
            last_error: String::new(),
        }
    }

    #[test]
    fn backfills_that_go_on_are_bounded_and_not_forgotten() {
        let mut known: Vec<Shown> = Vec::new();
        let limit = KEPT_MAX as i64;
        for second in 0..limit {
            let admitted = admit(&mut known, &view(second, false));
            assert!(
                matches!(admitted, Ok(BackfillAdmission::New(_))),
                "{second}"
            );
        }
        let same = admit(&mut known, &view(7, false));
        assert!(matches!(same, Ok(BackfillAdmission::Same(_))));
        let more = admit(&mut known, &view(limit, false));
        assert!(matches!(more, Err(BackfillError::TooMany(KEPT_MAX))));
        // An ended entry in the middle is removed to make room, and running entries stay.
        lock(&known[50]).is_over = true;
        let more = admit(&mut known, &view(limit, false));
        assert!(matches!(more, Ok(BackfillAdmission::New(_))));
        assert_eq!(known.len(), KEPT_MAX);
        assert!(known.iter().all(|view| !lock(view).is_over));
    }
}
