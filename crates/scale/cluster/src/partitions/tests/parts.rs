//! Tests of the layers over partitions with partitions that record batches.

use super::source::{KeySource, LabelForm};
use crate::ids::PartitionId;
use crate::partitions::append::{PartForwarder, PartitionedAppend, RoutedBatch};
use crate::partitions::metric_sums::MetricSums;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{FingerprintSeed, HashKeys, HashKind, SeriesHash};
use firn_model::labels::Labels;
use firn_model::log::{JournalMark, JournalRecord};
use firn_model::metrics::{DurationHistogram, MetricSink, MetricValue};
use firn_model::series_key::CanonicalKeys;
use firn_model::store::{Append, AppendBounds, AppendOutcome, Ticket, TicketResolver};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A partition that records its batches and resolves their tickets on request.
struct RecordingPartition {
    hash: SeriesHash,
    refuses: bool,
    state: Mutex<RecordedBatches>,
}

#[derive(Default)]
struct RecordedBatches {
    /// Address, number of series, and length of the journal of each batch.
    batches: Vec<(usize, usize, usize)>,
    tickets: Vec<TicketResolver>,
}

impl RecordingPartition {
    fn new(seed: u64) -> Self {
        Self {
            hash: SeriesHash {
                keys: Arc::new(HashKeys::from_seed(
                    HashKind::Nh,
                    FingerprintSeed([seed, seed]),
                )),
                format: &CanonicalKeys,
            },
            refuses: false,
            state: Mutex::default(),
        }
    }

    fn resolve(&self, outcome: Result<AppendOutcome, Error>) {
        let tickets = std::mem::take(&mut lock(&self.state).tickets);
        tickets.into_iter().for_each(|t| t.resolve(outcome.clone()));
    }

    fn batches(&self) -> Vec<(usize, usize, usize)> {
        lock(&self.state).batches.clone()
    }
}

impl Append for RecordingPartition {
    fn append(&self, _: &TenantId, batch: &Batch, _: AppendBounds) -> Ticket {
        let (ticket, resolver) = Ticket::new();
        let address = std::ptr::from_ref(batch).addr();
        let journal = batch.journal().bytes.len();
        let mut state = lock(&self.state);
        state.batches.push((address, batch.series_count(), journal));
        state.tickets.push(resolver);
        ticket
    }

    fn check_append(&self, _: &TenantId) -> Result<(), Error> {
        if self.refuses {
            return Err(Error::unavailable("the log is closed"));
        }
        Ok(())
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        Some(self.hash.clone())
    }
}

/// Joins these partitions.
fn join(partitions: &[Arc<RecordingPartition>]) -> Result<PartitionedAppend, Error> {
    let partitions = partitions.iter().map(|p| p.clone() as Arc<dyn Append>);
    PartitionedAppend::new(partitions.collect())
}

fn recording(count: usize) -> Vec<Arc<RecordingPartition>> {
    (0..count)
        .map(|_| Arc::new(RecordingPartition::new(1)))
        .collect()
}

/// Returns a batch of series that are in all partitions.
fn batch() -> KeySource {
    let mut source = KeySource::default();
    for number in 0..30 {
        source.batch_mut().push_float(1, 1.0);
        let labels = Labels::from_pairs([("id", number.to_string())]);
        source.end_series(&labels, LabelForm::Canonical);
    }
    source.finish();
    source
}

fn send(append: &PartitionedAppend, source: &mut KeySource) -> Ticket {
    append.append_from(&TenantId::anonymous(), source, AppendBounds::up_to(9))
}

#[test]
fn single_partition_receives_the_batch_itself() {
    let partitions = recording(1);
    let append = join(&partitions).expect("one partition");
    let mut source = batch();
    let address = std::ptr::from_ref(source.batch()).addr();
    drop(send(&append, &mut source));
    let tenant = TenantId::anonymous();
    drop(append.append(&tenant, source.batch(), AppendBounds::up_to(9)));
    assert_eq!(
        partitions[0].batches(),
        [(address, 30, 0), (address, 30, 0)]
    );
}

#[test]
fn partitions_that_hash_differently_are_rejected() {
    let partitions = [1, 1, 2].map(|seed| Arc::new(RecordingPartition::new(seed)));
    assert!(join(&partitions[..2]).is_ok());
    for wrong in [&partitions[..], &[]] {
        let error = join(wrong).err().map(|e| e.kind);
        assert_eq!(error, Some(ErrorKind::Invalid));
    }
}

#[test]
fn batch_whose_part_is_rejected_by_its_partition_is_not_appended() {
    let mut partitions = recording(2);
    partitions.push(Arc::new(RecordingPartition {
        refuses: true,
        ..RecordingPartition::new(1)
    }));
    let append = join(&partitions).expect("partitions that hash alike");
    let outcome = send(&append, &mut batch()).wait();
    assert_eq!(outcome, Err(Error::unavailable("the log is closed")));
    assert!(append.check_append(&TenantId::anonymous()).is_err());
    assert!(partitions.iter().all(|p| p.batches().is_empty()));
}

#[test]
fn ticket_resolves_with_all_parts_or_with_the_first_error() {
    for fails in [false, true] {
        let partitions = recording(3);
        let append = join(&partitions).expect("partitions that hash alike");
        let ticket = send(&append, &mut batch());
        let series = partitions.iter().map(|p| p.batches()[0].1);
        assert_eq!(series.sum::<usize>(), 30);
        let stored = AppendOutcome {
            stored: 2,
            ..AppendOutcome::default()
        };
        partitions[1].resolve(Ok(stored.clone()));
        if fails {
            partitions[2].resolve(Err(Error::unavailable("fenced")));
            assert_eq!(ticket.wait(), Err(Error::unavailable("fenced")));
            partitions[0].resolve(Ok(stored));
        } else {
            partitions[2].resolve(Ok(stored.clone()));
            partitions[0].resolve(Ok(stored));
            assert_eq!(ticket.wait().map(|outcome| outcome.stored), Ok(6));
        }
    }
}

/// A forwarder of some partitions that records the series of its parts and resolves their tickets
/// on request.
struct RecordingForwarder {
    hash: SeriesHash,
    elsewhere: Vec<PartitionId>,
    /// The partitions of each call, with the number of series of each.
    calls: Mutex<Vec<Vec<(PartitionId, usize)>>>,
    tickets: Mutex<Vec<TicketResolver>>,
}

impl PartForwarder for RecordingForwarder {
    fn is_elsewhere(&self, partition: PartitionId) -> bool {
        self.elsewhere.contains(&partition)
    }

    fn forward(
        &self,
        _: &TenantId,
        batch: &RoutedBatch<'_>,
        partitions: &[PartitionId],
        _: AppendBounds,
    ) -> Vec<Ticket> {
        let (mut call, mut tickets) = (Vec::new(), Vec::new());
        for partition in partitions {
            let series = batch.series_of(*partition);
            for number in series {
                let key = batch.batch.key(*number as usize).expect("an unread key");
                let print = batch.prints[*number as usize];
                assert_eq!(print, self.hash.keys.fingerprint(key));
            }
            call.push((*partition, series.len()));
            let (ticket, resolver) = Ticket::new();
            lock(&self.tickets).push(resolver);
            tickets.push(ticket);
        }
        lock(&self.calls).push(call);
        tickets
    }
}

#[test]
fn parts_of_other_nodes_are_forwarded_together_and_their_outcomes_joined() {
    let partitions = recording(4);
    let elsewhere = vec![PartitionId(0), PartitionId(2), PartitionId(3)];
    let forwarder = Arc::new(RecordingForwarder {
        hash: partitions[0].hash.clone(),
        elsewhere: elsewhere.clone(),
        calls: Mutex::default(),
        tickets: Mutex::default(),
    });
    let append = join(&partitions).expect("partitions that hash alike");
    let append = append.with_forwarder(forwarder.clone());
    let ticket = send(&append, &mut batch());
    let call = lock(&forwarder.calls).concat();
    let forwarded: Vec<PartitionId> = call.iter().map(|(partition, _)| *partition).collect();
    assert_eq!(forwarded, elsewhere);
    let own = partitions[1].batches();
    let series: usize = call.iter().map(|(_, series)| series).sum();
    assert_eq!((own.len(), own[0].1 + series), (1, 30));
    assert!(
        [0, 2, 3]
            .iter()
            .all(|n| partitions[*n].batches().is_empty())
    );
    let stored = AppendOutcome {
        stored: 2,
        ..AppendOutcome::default()
    };
    partitions[1].resolve(Ok(stored.clone()));
    for ticket in std::mem::take(&mut *lock(&forwarder.tickets)) {
        ticket.resolve(Ok(stored.clone()));
    }
    assert_eq!(ticket.wait().map(|outcome| outcome.stored), Ok(8));
    // A journal is logged by a store, never by another node.
    let mut source = batch();
    source.batch_mut().set_journal(JournalRecord {
        bytes: vec![1; 7],
        mark: JournalMark::default(),
    });
    drop(send(&append, &mut source));
    assert_eq!(lock(&forwarder.calls).len(), 1);
    assert!(partitions.iter().all(|p| !p.batches().is_empty()));
}

#[test]
fn journal_reaches_the_first_partition_with_its_part() {
    let mut partitions = recording(2);
    partitions.push(Arc::new(RecordingPartition {
        refuses: true,
        ..RecordingPartition::new(1)
    }));
    let append = join(&partitions).expect("partitions that hash alike");
    let journal = JournalRecord {
        bytes: vec![1; 7],
        mark: JournalMark::default(),
    };
    let mut source = batch();
    source.batch_mut().set_journal(journal.clone());
    drop(send(&append, &mut source));
    // The caller was admitted before, so no partition is checked again.
    let journals: Vec<usize> = partitions.iter().map(|p| p.batches()[0].2).collect();
    assert_eq!(journals, [7, 0, 0]);
    let mut alone = KeySource::default();
    alone.finish();
    alone.batch_mut().set_journal(journal);
    drop(send(&append, &mut alone));
    assert_eq!(partitions[0].batches()[1].1, 0);
    assert_eq!(partitions[1].batches().len(), 1);
}

/// The metrics as `name{labels} value`, or with the count and the sum of a histogram.
#[derive(Default)]
struct MetricLines(Vec<String>);

impl MetricSink for MetricLines {
    fn metric(&mut self, name: &str, _: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
        let value = match value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => value.to_string(),
            MetricValue::Histogram(histogram) => {
                let count: u64 = histogram.bucket_counts().iter().sum();
                format!("{count} {}", histogram.sum_seconds())
            }
        };
        let labels: Vec<&str> = labels.iter().map(|(_, value)| *value).collect();
        self.0.push(format!("{name}{labels:?} {value}"));
    }
}

#[test]
fn metrics_of_stores_are_added_except_states_and_times() {
    let histogram = DurationHistogram::default();
    histogram.observe(Duration::from_millis(500));
    let mut sums = MetricSums::default();
    let oldest = "firn_storage_exemplars_oldest_timestamp_seconds";
    for store in 0..3 {
        let number = f64::from(store);
        let mut metric = |name: &str, labels: &[(&str, &str)], value| {
            sums.metric(name, "Help.", labels, value);
        };
        metric("a_total", &[("kind", "x")], MetricValue::Counter(1.0));
        metric("a_total", &[("kind", "y")], MetricValue::Counter(number));
        metric("b", &[], MetricValue::Gauge(number));
        metric("firn_storage_wal_stalled", &[], MetricValue::Gauge(1.0));
        metric(oldest, &[], MetricValue::Gauge(number * 10.0));
        metric("c_seconds", &[], MetricValue::Histogram(&histogram));
        if store == 2 {
            metric("of_last", &[], MetricValue::Gauge(0.0));
        }
        metric("d", &[], MetricValue::Gauge(2.0));
    }
    let mut lines = MetricLines::default();
    sums.write(&mut lines);
    let expected = [
        "a_total[\"x\"] 3",
        "a_total[\"y\"] 3",
        "b[] 3",
        "firn_storage_wal_stalled[] 1",
        &format!("{oldest}[] 10"),
        "c_seconds[] 3 1.5",
        "d[] 6",
        "of_last[] 0",
    ];
    assert_eq!(lines.0, expected);
}
