//! Recording rules for times that are gone: the instants of the grid, one after the other, from
//! what is stored now, through the queue of queries and the pipeline as ever.
//!
//! Doing it again changes nothing: the same samples are found, and taken as known. An instant that
//! the store cannot take is made again until it can.
//!
//! What a group could not store waits, instant by instant, for the groups that it reads, which owe
//! theirs too.
//!
//! Invariant: so many run at one time at most, the others wait; those that were asked for over HTTP
//! are bounded in number, those that groups ask for by the number of groups, each of which asks
//! for one at a time. One that goes on is never forgotten.

use super::Shared;
use super::runner::Running;
use firn_model::sync::lock;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::machine::{Machine, MachineSettings, Owed};
use firn_rules::view::{BackfillError, BackfillRequest, BackfillView};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Back-fills that are told of; so many may be asked for that have not ended.
const KEPT_MAX: usize = 100;

/// Back-fills that run at one time: each evaluates one rule at a time, beside those that run live.
const RUNNING_MAX: usize = 2;

/// The most instants of one back-fill: a year of minutes.
const INSTANTS_MAX: u64 = 600_000;

/// Between two tries to store an instant.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

type Shown = Arc<Mutex<BackfillView>>;

/// The back-fills of a server.
pub(super) struct Backfills {
    known: Mutex<Vec<Shown>>,
    /// Those that run.
    turns: Semaphore,
}

impl Default for Backfills {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            turns: Semaphore::new(RUNNING_MAX),
        }
    }
}

/// What to make.
struct Plan {
    group: Arc<Group>,
    settings: MachineSettings,
    first: Instant,
    last: Instant,
    /// The group that owes it.
    of: Option<Arc<Mutex<Machine>>>,
}

impl Backfills {
    /// How far each is, the oldest first.
    pub(super) fn views(&self) -> Vec<BackfillView> {
        let known = lock(&self.known);
        known.iter().map(|view| lock(view).clone()).collect()
    }

    /// Begins one that was asked for, or says how far the same one is.
    pub(super) fn begin(
        &self,
        shared: Arc<Shared>,
        group: &Group,
        settings: MachineSettings,
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
            Admitted::New(shown) => shown,
            Admitted::Same(view) => return Ok(view),
        };
        let plan = Plan {
            group: Arc::new(group.recording()),
            settings,
            first,
            last: view.request.end,
            of: None,
        };
        tokio::spawn(run(shared, plan, shown));
        Ok(view)
    }

    /// Makes what `of`, the machine of a group, owes, and tells it when that is done.
    pub(super) fn make_up(
        &self,
        shared: Arc<Shared>,
        group: &Group,
        settings: MachineSettings,
        (owed, of): (Owed, Arc<Mutex<Machine>>),
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
        let plan = Plan {
            group: Arc::new(group.recording()),
            settings,
            first,
            last: owed.last,
            of: Some(of),
        };
        tokio::spawn(run(shared, plan, shown));
    }
}

/// What becomes of a request.
enum Admitted {
    New(Shown),
    /// It goes on already.
    Same(BackfillView),
}

/// Adds a back-fill to those that are known, unless there are too many that have not ended.
fn admit(known: &mut Vec<Shown>, view: &BackfillView) -> Result<Admitted, BackfillError> {
    let mut running = 0;
    for other in known.iter() {
        let other = lock(other);
        if other.is_over {
            continue;
        }
        if other.request == view.request {
            return Ok(Admitted::Same(other.clone()));
        }
        running += 1;
    }
    if running >= KEPT_MAX {
        return Err(BackfillError::TooMany(KEPT_MAX));
    }
    forget_one(known);
    let shown = Arc::new(Mutex::new(view.clone()));
    known.push(shown.clone());
    Ok(Admitted::New(shown))
}

/// Forgets the oldest one that has ended, if as many are known as are told of.
fn forget_one(known: &mut Vec<Shown>) {
    if known.len() >= KEPT_MAX
        && let Some(at) = known.iter().position(|view| lock(view).is_over)
    {
        known.remove(at);
    }
}

/// The first instant, and how many there are.
fn instants(group: &Group, request: &BackfillRequest) -> (Instant, u64) {
    let first = group.instant_from(request.start);
    if first > request.end {
        return (first, 0);
    }
    let span = request.end.since(first).as_nanos();
    let count = span / group.interval.as_nanos().max(1) + 1;
    (first, u64::try_from(count).unwrap_or(u64::MAX))
}

async fn run(shared: Arc<Shared>, plan: Plan, shown: Shown) {
    // One rule at a time: those that run live go first.
    let settings = MachineSettings {
        rules_at_once: 1,
        ..plan.settings
    };
    let (group, mut instant) = (plan.group, plan.first);
    let mut machine = Machine::added(group.clone(), settings, instant);
    machine.stop();
    let running = Running {
        shared: shared.clone(),
        group: group.clone(),
        machine: Arc::new(Mutex::new(machine)),
        is_past: true,
        spans: Mutex::default(),
    };
    let (key, progress) = (group.key(), &shared.progress);
    loop {
        if let Some(of) = &plan.of {
            lock(of).made_up_before(instant);
            progress.reach(&key, of);
        }
        if instant > plan.last {
            break;
        }
        if plan.of.is_some() {
            // Without a turn: the groups that it waits for need one.
            progress.made_up(&key, instant).await;
        }
        // The semaphore is never closed.
        let _turn = shared.backfills.turns.acquire().await;
        if plan.of.is_some() && instant == plan.first {
            // Series that ended within have their ends, as if the group had never stopped.
            let before = instant.before(group.interval);
            let actions = lock(&running.machine).recall_at(before);
            running.finish(actions, before).await;
        }
        make(&running, instant, &shown).await;
        instant = instant.after(group.interval);
    }
    lock(&shown).is_over = true;
}

/// Makes one instant.
async fn make(running: &Running, instant: Instant, shown: &Shown) {
    loop {
        let actions = lock(&running.machine).begin_at(instant);
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
                start: Instant::from_seconds(second),
                end: Instant::from_seconds(second + 1),
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
            assert!(matches!(admitted, Ok(Admitted::New(_))), "{second}");
        }
        let same = admit(&mut known, &view(7, false));
        assert!(matches!(same, Ok(Admitted::Same(_))));
        let more = admit(&mut known, &view(limit, false));
        assert!(matches!(more, Err(BackfillError::TooMany(KEPT_MAX))));
        // One in the midst ends: it makes room, and those that go on stay.
        lock(&known[50]).is_over = true;
        let more = admit(&mut known, &view(limit, false));
        assert!(matches!(more, Ok(Admitted::New(_))));
        assert_eq!(known.len(), KEPT_MAX);
        assert!(known.iter().all(|view| !lock(view).is_over));
    }
}
