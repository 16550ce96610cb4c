//! How often a long computation checks whether the query is cancelled.

use firn_model::cancel::Cancel;

/// Samples between two checks of the cancel flag: some milliseconds of sorting.
const SAMPLES_PER_CHECK: usize = 1 << 16;

/// Counts samples and checks the cancel flag every [`SAMPLES_PER_CHECK`].
pub(super) struct Pace<'a> {
    cancel: &'a Cancel,
    samples: usize,
}

impl<'a> Pace<'a> {
    /// Starts to count.
    pub(super) fn new(cancel: &'a Cancel) -> Self {
        Self { cancel, samples: 0 }
    }

    /// Counts `samples` more; returns whether the query is cancelled.
    pub(super) fn is_stopped(&mut self, samples: usize) -> bool {
        self.samples += samples;
        if self.samples < SAMPLES_PER_CHECK {
            return false;
        }
        self.samples = 0;
        self.cancel.reason().is_some()
    }
}
