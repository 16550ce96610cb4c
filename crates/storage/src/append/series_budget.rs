//! Budgets for new series: so many in a window of data time, altogether and of each job.
//!
//! A label bomb costs its own job the budget and no other job: series that are known go on, and so
//! do new ones of other jobs. Windows follow the newest sample, so a replay is judged as life is. A
//! series that comes back after its eviction is not new.

use crate::parts::options::NewSeriesBudget;
use std::collections::HashMap;

/// The length of a window.
const WINDOW_MS: i64 = 3_600_000;

/// Jobs that are counted apart in a window; all others share the budget of one.
const JOBS_MAX: usize = 1_024;

#[derive(Debug)]
struct OfJob {
    name: Box<[u8]>,
    created: usize,
    refused: u64,
}

/// What was created in the window under way.
#[derive(Debug, Default)]
pub(super) struct SeriesBudget {
    window: i64,
    created: usize,
    jobs: Vec<OfJob>,
    by_name: HashMap<Box<[u8]>, usize>,
    /// The job of the last request: neighbours are of one job.
    last: usize,
}

impl SeriesBudget {
    /// Begins the window of `newest` if it is a later one.
    pub(super) fn turn_to(&mut self, newest: i64) {
        let window = newest.div_euclid(WINDOW_MS);
        if self.jobs.is_empty() || window > self.window {
            *self = Self {
                window,
                ..Self::default()
            };
        }
    }

    /// Whether one more series of `job` may be created. Counts it as created if so, else as
    /// refused.
    pub(super) fn admit(&mut self, budget: NewSeriesBudget, job: &[u8]) -> bool {
        if budget == NewSeriesBudget::NONE {
            return true;
        }
        let is_over = self.created >= budget.all;
        let of_job = self.of_job(job);
        if is_over || of_job.created >= budget.of_job {
            of_job.refused += 1;
            return false;
        }
        of_job.created += 1;
        self.created += 1;
        true
    }

    /// Takes back the last admission, which was of `job`.
    pub(super) fn take_back(&mut self, job: &[u8]) {
        self.created = self.created.saturating_sub(1);
        if !self.jobs.is_empty() {
            let of_job = self.of_job(job);
            of_job.created = of_job.created.saturating_sub(1);
        }
    }

    fn of_job(&mut self, job: &[u8]) -> &mut OfJob {
        if self
            .jobs
            .get(self.last)
            .is_none_or(|last| *last.name != *job)
        {
            let has_room = self.jobs.len() < JOBS_MAX;
            self.last = match self.by_name.get(job) {
                Some(known) => *known,
                None if has_room => self.add(job),
                None => match self.by_name.get(b"".as_slice()) {
                    Some(shared) => *shared,
                    None => self.add(b""),
                },
            };
        }
        &mut self.jobs[self.last]
    }

    fn add(&mut self, job: &[u8]) -> usize {
        self.jobs.push(OfJob {
            name: job.into(),
            created: 0,
            refused: 0,
        });
        self.by_name.insert(job.into(), self.jobs.len() - 1);
        self.jobs.len() - 1
    }

    /// The jobs of which series were refused, with how often, the most first; `top` at most.
    pub(super) fn offenders(&self, top: usize) -> Vec<(String, u64)> {
        let refused = self.jobs.iter().filter(|of_job| of_job.refused > 0);
        let mut lines: Vec<(String, u64)> = refused
            .map(|of_job| {
                let name = String::from_utf8_lossy(&of_job.name);
                (name.into_owned(), of_job.refused)
            })
            .collect();
        lines.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        lines.truncate(top);
        lines
    }
}
