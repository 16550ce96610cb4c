//! Limits how often a long computation checks whether the query is canceled.

use firn_model::cancel::CancelToken;

/// Number of samples between two checks of the cancel flag: some milliseconds of sorting.
const SAMPLES_PER_CHECK: usize = 1 << 16;

/// Counts samples and checks the cancel flag every [`SAMPLES_PER_CHECK`] samples.
pub(super) struct CancelChecker<'a> {
    cancel: &'a CancelToken,
    samples: usize,
}

impl<'a> CancelChecker<'a> {
    /// Creates a counter that starts at zero and checks the given flag.
    pub(super) fn new(cancel: &'a CancelToken) -> Self {
        Self { cancel, samples: 0 }
    }

    /// Adds `samples` to the counter. Returns whether the query is canceled, if a check is due.
    pub(super) fn advance_and_check(&mut self, samples: usize) -> bool {
        self.samples += samples;
        if self.samples < SAMPLES_PER_CHECK {
            return false;
        }
        self.samples = 0;
        self.cancel.reason().is_some()
    }
}
