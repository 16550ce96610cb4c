//! Queue of alert samples that the store was unable to write.
//!
//! Samples of recording rules can be computed again from stored samples. Samples of alerts cannot,
//! because they record the state of this machine at a past instant. They are therefore kept here,
//! one piece per rule and evaluation, and written in order of age.
//!
//! Invariant: number and age of samples are bounded; beyond the limits the oldest are dropped.

use crate::instant::RuleInstant;
use firn_model::batch::Batch;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of queued samples, of about 200 bytes each: enough for a hundred alerts at an
/// interval of fifteen seconds for more than an hour.
const SAMPLES_MAX: usize = 1 << 16;

/// Queue of alert samples in order of their instants, with a limit on their number and age. Written
/// once the store accepts samples again.
#[derive(Clone, Debug, Default)]
pub(super) struct AlertSampleQueue {
    pieces: VecDeque<(RuleInstant, Batch)>,
    samples: usize,
}

impl AlertSampleQueue {
    /// Adds the samples of an evaluation at `instant`, and drops pieces that are more than `span`
    /// older or exceed the limit.
    pub(super) fn push(&mut self, instant: RuleInstant, piece: Batch, span: Duration) {
        self.samples += piece.sample_count();
        self.pieces.push_back((instant, piece));
        while let Some((oldest, _)) = self.pieces.front()
            && (self.samples > SAMPLES_MAX || instant.since(*oldest) > span)
        {
            self.pop();
        }
    }

    /// Returns the oldest piece, which must be written first; `None` if the queue is empty.
    pub(super) fn oldest(&self) -> Option<&Batch> {
        self.pieces.front().map(|(_, piece)| piece)
    }

    /// Removes the oldest piece, because it was stored or is dropped.
    pub(super) fn pop(&mut self) {
        if let Some((_, piece)) = self.pieces.pop_front() {
            self.samples -= piece.sample_count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::labels::Labels;

    fn piece(samples: usize) -> Batch {
        let mut batch = Batch::default();
        let labels = Labels::from_pairs([("alertname", "Hot")]);
        let samples: Vec<(i64, f64)> = (0..samples).map(|i| (i as i64, 1.0)).collect();
        batch.push_series(labels.as_ref(), &samples);
        batch
    }

    #[test]
    fn waiting_beyond_its_bounds_forgets_the_oldest() {
        let (at, span) = (RuleInstant::from_seconds, Duration::from_secs(60));
        let mut waiting = AlertSampleQueue::default();
        let sizes = |waiting: &AlertSampleQueue| -> Vec<usize> {
            waiting
                .pieces
                .iter()
                .map(|(_, p)| p.sample_count())
                .collect()
        };
        waiting.push(at(0), piece(1), span);
        waiting.push(at(60), piece(2), span);
        assert_eq!(sizes(&waiting), [1, 2]);
        waiting.push(at(61), piece(3), span);
        assert_eq!(sizes(&waiting), [2, 3]);
        waiting.push(at(62), piece(SAMPLES_MAX - 3), span);
        assert_eq!(sizes(&waiting), [3, SAMPLES_MAX - 3]);
        assert_eq!(waiting.samples, SAMPLES_MAX);
        waiting.push(at(63), piece(SAMPLES_MAX + 1), span);
        assert_eq!((sizes(&waiting), waiting.samples), (vec![], 0));
    }
}
