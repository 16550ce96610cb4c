//! Runs the pipeline over a store on a simulated disk that loses power after each possible change:
//! results and stored samples must equal those of a run without a crash.

use crate::limits::IngestLimits;
use crate::pipeline::{InstantAge, Pipeline};
use firn_aggregation::{
    AggregatedMetricKind, AggregationGroupSpec, AggregationGrouping, AggregationInputs,
    AggregationOp, AggregationRuleSpec, AggregationSpec,
};
use firn_model::batch::{Batch, BatchSource};
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::sim::{self, InlineCompute, SimEnv, SimRng};
use firn_model::error::Error;
use firn_model::fingerprint::{FingerprintSeed, SeriesHash};
use firn_model::labels::Labels;
use firn_model::log::JournalRecord;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::{TimeRange, TimestampMs, stale_nan};
use firn_model::series_limit::SeriesLimit;
use firn_model::shares::BudgetShares;
use firn_model::store::{Append, AppendBounds, Select, SelectRequest, Ticket};
use firn_model::tenant::TenantId;
use firn_storage::store::{Store, StoreOptions};
use firn_wire::remote_write::KEY_FORMAT;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Number of batches in a history.
const BATCHES: u64 = 24;

/// Represents a staleness marker among expected samples.
const STALE: f64 = -12345.0;

thread_local! {
    /// True if the stores of this thread lose the journal of results: a fault that a test detects.
    static LOSES_JOURNAL: Cell<bool> = const { Cell::new(false) };
}

/// Timestamp and bits of the samples of each series.
type Contents = BTreeMap<String, Vec<(i64, u64)>>;

/// Passes batches to the store, without the journal of results if [`LOSES_JOURNAL`] is set.
struct JournalLoser(Arc<Store>);

impl Append for JournalLoser {
    fn append(&self, tenant: &TenantId, batch: &Batch, bounds: AppendBounds) -> Ticket {
        if !LOSES_JOURNAL.get() || batch.is_empty() {
            return self.0.append(tenant, batch, bounds);
        }
        let mut without = batch.clone();
        without.set_journal(JournalRecord::default());
        self.0.append(tenant, &without, bounds)
    }

    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        if source.batch().journal().is_empty() {
            self.0.append_from(tenant, source, bounds)
        } else {
            self.append(tenant, source.batch(), bounds)
        }
    }

    fn check_append(&self, tenant: &TenantId) -> Result<(), Error> {
        self.0.check_append(tenant)
    }

    fn begin_log_unit(&self, tenant: &TenantId) -> Result<(), Error> {
        self.0.begin_log_unit(tenant)
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        self.0.series_hash()
    }

    fn write_held_record(&self) {
        self.0.write_held_record();
    }

    fn may_wait(&self) -> bool {
        self.0.may_wait()
    }

    fn first_sample_times(
        &self,
        tenant: &TenantId,
        bounds: AppendBounds,
    ) -> RangeInclusive<TimestampMs> {
        self.0.first_sample_times(tenant, bounds)
    }

    fn can_store_exemplars(&self) -> bool {
        self.0.can_store_exemplars()
    }
}

fn rule(op: AggregationOp, name: &str) -> AggregationRuleSpec {
    AggregationRuleSpec {
        record: "job:x".into(),
        expr: format!("{op:?} of {name}"),
        op,
        grouping: AggregationGrouping::By(vec!["job".into()]),
        matchers: vec![Matcher::new("__name__", MatchOp::Equal, name.as_bytes()).unwrap()],
        labels: vec![("by".into(), "rule".into())],
        drops: false,
        kind: None,
    }
}

fn spec() -> AggregationSpec {
    let dropped = AggregationRuleSpec {
        record: "c".into(),
        drops: true,
        kind: Some(AggregatedMetricKind::Counter),
        ..rule(AggregationOp::Sum, "counter")
    };
    let kept = AggregationRuleSpec {
        record: "g".into(),
        ..rule(AggregationOp::Max, "gauge")
    };
    AggregationSpec {
        groups: vec![AggregationGroupSpec {
            name: "g".into(),
            interval_ms: 10_000,
            delay_ms: 0,
            lookback_ms: 25_000,
            rules: [dropped, kept].into(),
        }],
    }
}

/// Returns batches of a few sources; all samples of some sources are dropped.
fn history(seed: u64) -> Vec<Batch> {
    let rng = SimRng::new(seed);
    let mut values = [0.0; 6];
    let mut now = 1_000_000;
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        now += rng.next_below(6_000) as i64 + 1;
        let mut batch = Batch::default();
        let counters_only = rng.one_in(2);
        for (pod, value) in values.iter_mut().enumerate() {
            let is_counter = pod < 3;
            if rng.one_in(3) || counters_only && !is_counter {
                continue;
            }
            *value += rng.next_below(5) as f64;
            let name = if is_counter { "counter" } else { "gauge" };
            let number = pod.to_string();
            let pairs = [("__name__", name), ("job", "a"), ("pod", number.as_str())];
            let sent = if rng.one_in(20) { stale_nan() } else { *value };
            batch.push_series(Labels::from_pairs(pairs).as_ref(), &[(now, sent)]);
        }
        if !batch.is_empty() {
            batches.push(batch);
        }
    }
    batches
}

/// A process that uses the disk.
struct Process {
    store: Arc<Store>,
    pipeline: Pipeline,
}

fn start(sim: &SimEnv) -> Option<Process> {
    let options = StoreOptions {
        window_ms: 30_000,
        is_jittered: false,
        log_segment_bytes: 300,
        // The format of pushes, so that aggregation shares the fingerprints of the store.
        key_format: KEY_FORMAT,
        ..StoreOptions::new("data")
    };
    let store = Store::open(sim.env.clone(), options).ok()?;
    let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(1 << 30));
    let memory = Budget::new("all", 1 << 30);
    let pipeline = Pipeline::new(
        Arc::new(JournalLoser(store.clone())),
        sim.env.clock.clone(),
        limits,
        &memory,
    );
    let start = AggregationInputs {
        seed: FingerprintSeed([7, 7]),
        sources_max: usize::MAX,
        kind_of: Arc::new(|_| None),
        journal: &store.take_journal(),
    };
    pipeline.configure_aggregation(&spec(), start).ok()?;
    Some(Process { store, pipeline })
}

/// Restarts until it succeeds; the power is on again.
fn restart(sim: &SimEnv) -> Process {
    for _ in 0..3 {
        sim.disk.crash();
        if let Some(process) = start(sim) {
            return process;
        }
    }
    panic!("the store does not start");
}

fn contents(store: &Store) -> Contents {
    let (cancel, budget) = (CancelToken::new(), Budget::new("all", usize::MAX));
    let series = SeriesLimit::new(usize::MAX);
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: &[],
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &cancel,
        budget: &budget,
        series: &series,
        span: None,
    };
    let selection = store.select(request).unwrap();
    let mut contents = Contents::new();
    for i in 0..selection.len() {
        let mut read = SeriesBatch::default();
        selection.read(i..i + 1, &mut read).unwrap();
        let columns = read.series(0);
        let samples = columns.times.iter().zip(columns.values);
        let samples = samples
            .map(|(time, value)| (*time, value.to_bits()))
            .collect();
        contents.insert(selection.labels(i).to_string(), samples);
    }
    contents
}

/// Sends a history to a disk that loses power after `changes`; returns whether it did, and the
/// stored samples. A batch that was not acknowledged is sent again.
fn run(seed: u64, changes: Option<u64>) -> (bool, Contents) {
    let sim = sim::sim_env_with(seed, Arc::new(InlineCompute));
    sim.clock.set_ms(10_000_000);
    let mut process = start(&sim).unwrap();
    if let Some(changes) = changes {
        sim.disk.power_off_after(changes);
    }
    let mut is_hit = false;
    for batch in history(seed) {
        for attempt in 0.. {
            let bounds = AppendBounds::up_to(i64::MAX);
            let tenant = TenantId::anonymous();
            let sent = process.pipeline.append(&tenant, &batch, bounds).wait();
            process.store.tick();
            if sent.is_ok() && !sim.disk.is_off() {
                break;
            }
            assert!(attempt < 3, "seed {seed}, {changes:?}: {sent:?}");
            let is_acked = sent.is_ok();
            is_hit = true;
            drop(process);
            process = restart(&sim);
            if is_acked {
                break;
            }
        }
    }
    let contents = contents(&process.store);
    (is_hit, contents)
}

/// Returns the first power cut after which the stored samples differ from a run without one.
fn first_trouble(seeds: std::ops::Range<u64>) -> Option<String> {
    for seed in seeds {
        let (_, expected) = run(seed, None);
        assert!(expected.keys().all(|labels| !labels.contains("counter")));
        let results = expected
            .keys()
            .filter(|labels| labels.contains("by=\"rule\""));
        assert_eq!(results.count(), 2, "{expected:?}");
        for changes in 0.. {
            let (is_hit, found) = run(seed, Some(changes));
            if found != expected {
                return Some(format!(
                    "seed {seed}, {changes}: {found:?}\nnot {expected:?}"
                ));
            }
            if !is_hit {
                break;
            }
        }
    }
    None
}

#[test]
fn aggregation_over_a_power_cut_at_every_change_of_the_disk_is_exact() {
    if let Some(trouble) = first_trouble(0..2) {
        panic!("{trouble}");
    }
}

#[test]
fn results_without_the_journal_beside_them_are_caught() {
    LOSES_JOURNAL.set(true);
    let caught = first_trouble(0..1);
    LOSES_JOURNAL.set(false);
    assert!(caught.is_some());
}

/// Returns the size of the log in bytes after a clean stop that follows `samples` of one source.
fn log_after_a_stop_behind(samples: i64) -> u64 {
    let sim = sim::sim_env_with(1, Arc::new(InlineCompute));
    sim.clock.set_ms(10_000_000);
    let process = start(&sim).unwrap();
    for number in 0..samples {
        let labels = Labels::from_pairs([("__name__", "counter"), ("job", "a")]);
        let mut batch = Batch::default();
        batch.push_series(labels.as_ref(), &[(1_005_000 + number, number as f64)]);
        let bounds = AppendBounds::up_to(i64::MAX);
        let ticket = process
            .pipeline
            .append(&TenantId::anonymous(), &batch, bounds);
        ticket.wait().unwrap();
    }
    process.pipeline.finish_aggregation().unwrap();
    process.store.close().unwrap();
    let files = sim.disk.files().into_iter();
    let log = files.filter(|file| file.extension().is_some_and(|e| e == "wal"));
    log.map(|file| sim.disk.contents(&file).unwrap().len() as u64)
        .sum()
}

#[test]
fn clean_stop_leaves_a_log_of_the_state_alone() {
    let (few, many) = (log_after_a_stop_behind(2), log_after_a_stop_behind(500));
    assert!(few > 0, "the state is in the log");
    // Within two sectors, because numbers have more digits. Each batch took at least one sector.
    assert!(
        many <= few + 1_024,
        "{many} bytes of log, {few} for the state"
    );
}

#[test]
fn clean_stop_keeps_the_state_and_a_config_without_groups_ends_it() {
    let sim = sim::sim_env_with(1, Arc::new(InlineCompute));
    sim.clock.set_ms(10_000_000);
    let mut process = start(&sim).unwrap();
    let send = |process: &Process, second: i64, value: f64| {
        let labels = Labels::from_pairs([("__name__", "counter"), ("job", "a")]);
        let mut batch = Batch::default();
        batch.push_series(labels.as_ref(), &[(second * 1000, value)]);
        let bounds = AppendBounds::up_to(i64::MAX);
        process
            .pipeline
            .append(&TenantId::anonymous(), &batch, bounds)
            .wait()
            .unwrap();
    };
    for (second, value) in [(1_005, 1.0), (1_015, 4.0)] {
        send(&process, second, value);
        process.pipeline.finish_aggregation().unwrap();
        process.store.close().unwrap();
        drop(process);
        process = start(&sim).unwrap();
    }
    send(&process, 1_025, 9.0);
    let key = r#"{__name__="c", by="rule", job="a"}"#;
    let values = |process: &Process| -> Vec<(i64, f64)> {
        let row = contents(&process.store).remove(key).unwrap();
        let shown = |bits| match f64::from_bits(bits) {
            value if firn_model::sample::is_stale(value) => STALE,
            value => value,
        };
        row.into_iter()
            .map(|(time, bits)| (time / 1000, shown(bits)))
            .collect()
    };
    assert_eq!(values(&process), [(1_010, 0.0), (1_020, 3.0)]);
    let end = AggregationInputs {
        seed: FingerprintSeed([7, 7]),
        sources_max: usize::MAX,
        kind_of: Arc::new(|_| None),
        journal: &[],
    };
    let nothing = AggregationSpec::default();
    process
        .pipeline
        .configure_aggregation(&nothing, end)
        .unwrap();
    assert_eq!(
        values(&process),
        [(1_010, 0.0), (1_020, 3.0), (1_030, STALE)]
    );
    process.store.close().unwrap();
    drop(process);
    let process = start(&sim).unwrap();
    assert!(process.store.take_journal().is_empty());
    send(&process, 1_035, 9.0);
    assert_eq!(values(&process).len(), 3);
}

#[test]
fn instants_that_rules_make_up_for_are_aggregated_and_those_of_the_past_are_not() {
    for (age, is_stored) in [
        (InstantAge::Live, false),
        (InstantAge::MadeUp, false),
        (InstantAge::Past, true),
    ] {
        let sim = sim::sim_env_with(7, Arc::new(InlineCompute));
        sim.clock.set_ms(10_000_000);
        let process = start(&sim).unwrap();
        let source = [("__name__", "counter"), ("job", "a"), ("pod", "1")];
        for (time, value) in [(9_000_000, 1.0), (9_010_000, 5.0), (9_060_000, 5.0)] {
            let mut batch = Batch::default();
            batch.push_series(Labels::from_pairs(source).as_ref(), &[(time, value)]);
            let tenant = TenantId::anonymous();
            let sent = process
                .pipeline
                .append_rule_results(&tenant, "g", age, &batch);
            sent.wait().unwrap();
        }
        let contents = contents(&process.store);
        let has = |text: &str| contents.keys().any(|series| series.contains(text));
        assert_eq!(has("pod"), is_stored, "{age:?}: {contents:?}");
        assert_eq!(has("\"c\""), !is_stored, "{age:?}: {contents:?}");
    }
}
