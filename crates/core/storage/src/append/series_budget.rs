//! Budgets for new series: a maximum per window of data time, in total and per job.
//!
//! A label explosion uses up the budget of its own job only: existing series and new series of
//! other jobs are still accepted. Windows follow the newest sample of the store, so a replay gives
//! the same result as the original writes. A series that is restored after its eviction does not
//! count as new.

use crate::parts::options::NewSeriesBudget;
use firn_model::store::SampleRejection;
use std::collections::HashMap;

/// Maximum number of jobs that are counted separately in a window; all others share one budget.
const JOBS_MAX: usize = 1_024;

/// Counts of one job in the current window.
#[derive(Debug)]
struct JobSeriesCounts {
    name: Box<[u8]>,
    created: usize,
    refused: u64,
}

/// Counts of created and rejected series in the current window.
#[derive(Debug, Default)]
pub(super) struct SeriesBudgetWindow {
    /// Index of the window: the number of whole windows of `window_ms` since the epoch.
    window: i64,
    window_ms: i64,
    created: usize,
    jobs: Vec<JobSeriesCounts>,
    by_name: HashMap<Box<[u8]>, usize>,
    /// Index of the job of the last request; neighbouring series usually have the same job.
    last: usize,
}

impl SeriesBudgetWindow {
    /// Starts a new window if `newest`, a time in milliseconds, is after the current one, or if the
    /// length of windows has changed.
    pub(super) fn roll_window(&mut self, newest: i64, window_ms: i64) {
        let window = newest.div_euclid(window_ms.max(1));
        if self.jobs.is_empty() || window > self.window || window_ms != self.window_ms {
            *self = Self {
                window,
                window_ms,
                ..Self::default()
            };
        }
    }

    /// Counts one more series of `job` as created, or as rejected. Fails with the limit that is
    /// reached.
    pub(super) fn try_admit(
        &mut self,
        budget: NewSeriesBudget,
        job: &[u8],
    ) -> Result<(), SampleRejection> {
        if budget == NewSeriesBudget::NONE {
            return Ok(());
        }
        let is_over = self.created >= budget.all;
        let of_job = self.job_counts(job);
        let limit = if is_over {
            SampleRejection::NewSeriesLimit
        } else if of_job.created >= budget.of_job {
            SampleRejection::JobSeriesLimit
        } else {
            of_job.created += 1;
            self.created += 1;
            return Ok(());
        };
        of_job.refused += 1;
        Err(limit)
    }

    /// Reverts the last admission, which was for `job`.
    pub(super) fn revert_admission(&mut self, job: &[u8]) {
        self.created = self.created.saturating_sub(1);
        if !self.jobs.is_empty() {
            let of_job = self.job_counts(job);
            of_job.created = of_job.created.saturating_sub(1);
        }
    }

    /// Returns the counts of a job. Beyond [`JOBS_MAX`] jobs, returns the shared counts of all
    /// others.
    fn job_counts(&mut self, job: &[u8]) -> &mut JobSeriesCounts {
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

    /// Adds a job to the current window and returns its index.
    fn add(&mut self, job: &[u8]) -> usize {
        self.jobs.push(JobSeriesCounts {
            name: job.into(),
            created: 0,
            refused: 0,
        });
        self.by_name.insert(job.into(), self.jobs.len() - 1);
        self.jobs.len() - 1
    }

    /// Returns the jobs with rejected series and their counts, in the order of their first new
    /// series.
    pub(super) fn list_rejected_jobs(&self) -> Vec<(String, u64)> {
        let refused = self.jobs.iter().filter(|of_job| of_job.refused > 0);
        let line = |of_job: &JobSeriesCounts| {
            let name = String::from_utf8_lossy(&of_job.name);
            (name.into_owned(), of_job.refused)
        };
        refused.map(line).collect()
    }
}
