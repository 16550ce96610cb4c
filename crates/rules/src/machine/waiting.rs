//! Samples about alerts that the store could not take, until it can.
//!
//! What rules record is made again from what is stored. Series about alerts cannot be: they say how
//! the alerts of this machine were at an instant that is over. So their samples wait here, an
//! evaluation of a rule in a piece, the oldest first.
//!
//! Invariant: bounded in samples and in age; what is beyond goes, the oldest first.

use crate::instant::Instant;
use firn_model::batch::Batch;
use std::collections::VecDeque;
use std::time::Duration;

/// Samples that wait at most, of some 200 bytes each: a hundred alerts of fifteen seconds for an
/// hour and more.
const SAMPLES_MAX: usize = 1 << 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    pieces: VecDeque<(Instant, Batch)>,
    samples: usize,
}

impl Waiting {
    /// Keeps what an evaluation at `instant` made, and forgets what is more than `span` older.
    pub(super) fn push(&mut self, instant: Instant, piece: Batch, span: Duration) {
        self.samples += piece.sample_count();
        self.pieces.push_back((instant, piece));
        while let Some((oldest, _)) = self.pieces.front()
            && (self.samples > SAMPLES_MAX || instant.since(*oldest) > span)
        {
            self.pop();
        }
    }

    /// The oldest piece.
    pub(super) fn oldest(&self) -> Option<&Batch> {
        self.pieces.front().map(|(_, piece)| piece)
    }

    /// Forgets the oldest piece.
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
        let (at, span) = (Instant::from_seconds, Duration::from_secs(60));
        let mut waiting = Waiting::default();
        let sizes = |waiting: &Waiting| -> Vec<usize> {
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
