//! Recording rules for times that are gone: the instants of the grid, one after the other, from
//! what is stored now, through the queue of queries and the pipeline as ever.
//!
//! Doing it again changes nothing: the same samples are found, and taken as known.

use super::Shared;
use super::runner::Running;
use firn_model::sync::lock;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::machine::{Machine, MachineSettings};
use firn_rules::view::{BackfillRequest, BackfillView};
use std::sync::{Arc, Mutex};

/// Back-fills that are told of.
const KEPT_MAX: usize = 100;

/// The most instants of one back-fill: a year of minutes.
const INSTANTS_MAX: u64 = 600_000;

/// The back-fills of a server.
#[derive(Default)]
pub(super) struct Backfills(Mutex<Vec<Arc<Mutex<BackfillView>>>>);

impl Backfills {
    /// How far each is, the oldest first.
    pub(super) fn views(&self) -> Vec<BackfillView> {
        lock(&self.0)
            .iter()
            .map(|view| lock(view).clone())
            .collect()
    }

    /// Begins one, or says how far the same one is.
    pub(super) fn begin(
        &self,
        shared: Arc<Shared>,
        group: &Group,
        settings: MachineSettings,
        request: BackfillRequest,
    ) -> Result<BackfillView, String> {
        let request = BackfillRequest {
            file: group.file.clone(),
            ..request
        };
        let instants = instants(group, &request);
        if instants.1 > INSTANTS_MAX {
            return Err(format!(
                "too many instants: {}, limit {INSTANTS_MAX}",
                instants.1
            ));
        }
        let mut known = lock(&self.0);
        let same = known.iter().map(|view| lock(view).clone());
        if let Some(same) = same
            .into_iter()
            .find(|v| !v.is_over && v.request == request)
        {
            return Ok(same);
        }
        let view = BackfillView {
            request,
            done: 0,
            total: instants.1,
            samples: 0,
            is_over: instants.1 == 0,
            last_error: String::new(),
        };
        let shown = Arc::new(Mutex::new(view.clone()));
        if known.len() == KEPT_MAX {
            known.remove(0);
        }
        known.push(shown.clone());
        let group = Arc::new(group.recording());
        tokio::spawn(run(shared, group, settings, instants, shown));
        Ok(view)
    }
}

/// The first instant, and how many there are.
fn instants(group: &Group, request: &BackfillRequest) -> (Instant, u64) {
    let before = group.instant_at(request.start);
    let first = match before == request.start {
        true => before,
        false => before.after(group.interval),
    };
    if first > request.end {
        return (first, 0);
    }
    let span = request.end.since(first).as_nanos();
    let count = span / group.interval.as_nanos().max(1) + 1;
    (first, u64::try_from(count).unwrap_or(u64::MAX))
}

async fn run(
    shared: Arc<Shared>,
    group: Arc<Group>,
    settings: MachineSettings,
    (first, count): (Instant, u64),
    shown: Arc<Mutex<BackfillView>>,
) {
    // One rule at a time: those that run live go first.
    let settings = MachineSettings {
        rules_at_once: 1,
        ..settings
    };
    let mut machine = Machine::added(group.clone(), settings, first);
    machine.stop();
    let running = Running {
        shared,
        group: group.clone(),
        machine: Arc::new(Mutex::new(machine)),
        is_past: true,
        spans: Mutex::default(),
    };
    let mut instant = first;
    for _ in 0..count {
        running.evaluate_at(instant).await;
        instant = instant.after(group.interval);
        let machine = lock(&running.machine);
        let mut view = lock(&shown);
        view.done += 1;
        view.samples += machine.counts().samples;
        let failed = machine.rules().iter().map(|rule| &rule.last_error);
        if let Some(error) = failed.rev().find(|error| !error.is_empty()) {
            view.last_error.clone_from(error);
        }
    }
    lock(&shown).is_over = true;
}
