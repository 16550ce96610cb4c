//! Agent mode: received samples are forwarded and not stored.
//!
//! The rest of the server is unchanged and uses a store that stays empty; an empty log, head and
//! blocks cost nothing. Data for receivers waits in the queue of [`super::sending`], and an
//! acknowledgement waits for that queue as in server mode.

use firn_model::batch::Batch;
use firn_model::sample::TimestampMs;
use firn_model::store::{
    Append, AppendBounds, AppendOutcome, RejectedSamples, SampleRejection, Ticket,
};
use firn_model::tenant::TenantId;

/// Accepts every batch and stores nothing. Samples too far in the future are rejected like in a
/// store, and are not forwarded.
pub struct DiscardingStore;

impl Append for DiscardingStore {
    fn append(&self, _: &TenantId, batch: &Batch, bounds: AppendBounds) -> Ticket {
        let mut appended = AppendOutcome {
            stored: batch.sample_count(),
            ..AppendOutcome::default()
        };
        let mut refused: Option<RejectedSamples> = None;
        for (number, series) in batch.iter_with_index() {
            appended.stored_histograms += series.histograms.len();
            let mut refuse = |time: TimestampMs| {
                appended.stored -= 1;
                let refused = refused.get_or_insert_with(|| RejectedSamples {
                    rejection: SampleRejection::TooFarInFuture,
                    count: 0,
                    first_labels: series.labels.to_owned(),
                    first_time: time,
                    first_series: number as usize,
                    limit: None,
                });
                refused.count += 1;
            };
            let times = series.times.iter().copied();
            times
                .filter(|time| *time > bounds.time_max)
                .for_each(&mut refuse);
            for histogram in series.histograms {
                if histogram.time > bounds.time_max {
                    refuse(histogram.time);
                    appended.stored_histograms -= 1;
                }
            }
        }
        appended.rejected.extend(refused);
        Ticket::resolved(Ok(appended))
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn can_store_exemplars(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::labels::Labels;

    #[test]
    fn sample_too_far_in_the_future_is_refused_and_the_others_are_taken() {
        let mut batch = Batch::default();
        let labels = Labels::from_pairs([("__name__", "m")]);
        batch.push_series(
            labels.as_ref(),
            &[(5, 1.0), (11, 1.0), (10, 1.0), (12, 1.0)],
        );
        let tenant = TenantId::anonymous();
        let taken = DiscardingStore
            .append(&tenant, &batch, AppendBounds::up_to(10))
            .wait();
        let taken = taken.unwrap();
        let [refused] = &taken.rejected[..] else {
            panic!("{taken:?}");
        };
        assert_eq!(
            (taken.stored, refused.count, refused.first_time),
            (2, 2, 11)
        );
        assert_eq!(refused.rejection, SampleRejection::TooFarInFuture);
    }
}
