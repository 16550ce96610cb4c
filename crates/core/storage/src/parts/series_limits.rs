//! The limits of new series that a config reload changes.

use super::options::NewSeriesBudget;
use crate::sync::{Mutex, lock};
use firn_model::store::SampleRejection;

/// The limits of series of a store. Beyond them, new series are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesLimits {
    /// Maximum number of series in memory; the limit of memory applies too.
    pub active: usize,
    /// Maximum number of new series per window.
    pub new: NewSeriesBudget,
    /// Length of a window in milliseconds of data time.
    pub window_ms: i64,
}

impl Default for SeriesLimits {
    /// Returns limits that no store exceeds, with windows of one hour.
    fn default() -> Self {
        Self {
            active: usize::MAX,
            new: NewSeriesBudget::NONE,
            window_ms: 3_600_000,
        }
    }
}

impl SeriesLimits {
    /// Returns limits of new series alone, with windows of one hour.
    pub(crate) fn for_new(new: NewSeriesBudget) -> Self {
        Self {
            new,
            ..Self::default()
        }
    }

    /// Returns the limits of one of `count` stores that divide the new series evenly. `active` is
    /// not divided, because all stores count their series in memory together.
    pub fn divide_among(self, count: usize) -> Self {
        let divide = |limit: usize| match limit {
            usize::MAX => usize::MAX,
            limit => limit.div_ceil(count),
        };
        Self {
            active: self.active,
            new: NewSeriesBudget {
                all: divide(self.new.all),
                of_job: divide(self.new.of_job),
            },
            window_ms: self.window_ms,
        }
    }

    /// Returns the value of the limit that a rejection is due to, if it is one of these limits.
    pub(crate) fn of(self, rejection: SampleRejection) -> Option<u64> {
        let limit = match rejection {
            SampleRejection::ActiveSeriesLimit => self.active,
            SampleRejection::NewSeriesLimit => self.new.all,
            SampleRejection::JobSeriesLimit => self.new.of_job,
            _ => return None,
        };
        Some(limit as u64)
    }
}

/// The current limits. Appends read them for each batch with new or rejected series.
#[derive(Debug)]
pub(crate) struct LiveSeriesLimits(Mutex<SeriesLimits>);

impl LiveSeriesLimits {
    pub(crate) fn new(limits: SeriesLimits) -> Self {
        Self(Mutex::new(limits))
    }

    pub(crate) fn get(&self) -> SeriesLimits {
        *lock(&self.0)
    }

    pub(crate) fn set(&self, limits: SeriesLimits) {
        *lock(&self.0) = limits;
    }
}
