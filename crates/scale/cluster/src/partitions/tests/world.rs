//! A store and the partitions that divide its series, with equal random appends.

use super::source::{KeySource, LabelForm};
use crate::partitions::routing::RoutingFlaw;
use crate::partitions::store::PartitionedStore;
use firn_model::batch::{BatchSource, HistogramSample};
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::sim::{SimRng, sim_env};
use firn_model::error::Error;
use firn_model::exemplar::TimedExemplar;
use firn_model::histogram::{Histogram, HistogramCounts, ResetHint};
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::stats::{NamedStat, StoreStats};
use firn_model::store::{
    Append, AppendBounds, AppendOutcome, ExemplarRequest, LateSamplePolicy, MetadataRequest,
    Select, SelectRequest,
};
use firn_model::tenant::TenantId;
use firn_storage::store::{DuplicatePolicy, Store, StoreOptions};
use std::fmt::Debug;
use std::sync::Arc;

const HOUR: i64 = 3_600_000;
const MINUTE: i64 = 60_000;
const PARTITIONS: usize = 3;
const SERIES: u64 = 60;

/// Samples of a series as text, by labels.
type SelectedSeries = Vec<(Labels, Vec<String>)>;

pub(super) struct PartitionWorld {
    rng: SimRng,
    one: Arc<Store>,
    several: PartitionedStore,
    start: i64,
    now: i64,
}

/// Fails with both values unless they are equal.
fn compare<T: PartialEq + Debug>(what: &str, one: T, several: T) -> Result<(), String> {
    if one == several {
        return Ok(());
    }
    Err(format!("{what}:\n  one     {one:?}\n  several {several:?}"))
}

fn learned_metadata() -> MetadataBatch {
    let mut batch = MetadataBatch::default();
    for name in ["m0", "m1", "m2", "m9"] {
        batch.push(MetricMetadata {
            name,
            kind: MetricType::Gauge,
            help: &format!("Help of {name}."),
            unit: "",
        });
    }
    batch
}

impl PartitionWorld {
    pub(super) fn new(seed: u64, flaw: Option<RoutingFlaw>) -> Self {
        let rng = SimRng::new(seed);
        let options = StoreOptions {
            shards: 1 + rng.next_below(3) as usize,
            window_ms: [HOUR / 4, HOUR / 2][rng.next_below(2) as usize],
            cut_ms: [HOUR, 4 * HOUR][rng.next_below(2) as usize],
            late_window_ms: [0, HOUR / 2, 3 * HOUR][rng.next_below(3) as usize],
            duplicates: [DuplicatePolicy::KeepFirst, DuplicatePolicy::KeepLast]
                [rng.next_below(2) as usize],
            exemplars_max: 100_000,
            ..StoreOptions::new("/data")
        };
        // Equal seeds of the environments give equal seeds of fingerprints.
        let open = || Store::open(sim_env(seed).env, options.clone()).expect("an empty disk");
        let stores = (0..PARTITIONS).map(|_| open()).collect();
        let mut several = PartitionedStore::new(stores).expect("stores that hash alike");
        several.set_flaw(flaw);
        let one = open();
        one.set_metadata_source(Box::new(learned_metadata));
        several.set_metadata_source(learned_metadata);
        let start = rng.next_below(1_000) as i64 * HOUR;
        let world = Self {
            start,
            now: start,
            rng,
            one,
            several,
        };
        // The age limits of the first batch count from the first sample of each part.
        let mut source = KeySource::default();
        source.batch_mut().push_float(world.now, 0.0);
        source.end_series(&labels(0), LabelForm::Canonical);
        source.finish();
        let sent = world.send(source, AppendBounds::up_to(i64::MAX));
        sent.expect("one sample is the same everywhere");
        world
    }

    /// Appends a batch, lets time pass, or compares what readers see.
    pub(super) fn step(&mut self) -> Result<(), String> {
        match self.rng.next_below(12) {
            0 => self.now += self.rng.next_below(4) as i64 * HOUR,
            1 => {
                self.one.tick();
                self.several.tick();
            }
            2..5 => return self.check_reads(),
            _ => {
                self.now += self.rng.next_below(5 * MINUTE as u64) as i64;
                return self.append();
            }
        }
        Ok(())
    }

    /// Appends a sample to each series, moves the others to blocks, and compares everything.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        for hours in [0, 12, 24] {
            let mut source = KeySource::default();
            for number in 0..SERIES {
                source
                    .batch_mut()
                    .push_float(self.now + hours * HOUR, number as f64);
                source.end_series(&labels(number), LabelForm::Canonical);
            }
            source.finish();
            self.send(source, AppendBounds::up_to(i64::MAX))?;
            for _ in 0..20 {
                self.one.tick();
                self.several.tick();
            }
        }
        (0..10).try_for_each(|_| self.check_reads())?;
        self.check_metadata()?;
        let of_one = self.one.stats(usize::MAX);
        compare(
            "statistics",
            tables(of_one),
            tables(self.several.stats(usize::MAX)),
        )?;
        let newest = |store: &dyn Append| store.newest_time(&TenantId::anonymous());
        compare("newest", newest(&*self.one), newest(&self.several))?;
        let blocks = (self.one.first_block_ms(), self.several.first_block_ms());
        compare("first block", blocks.0, blocks.1)?;
        compare(
            "blocks with samples",
            self.one.block_stats().blocks.is_empty(),
            self.several.block_stats().blocks.is_empty(),
        )
    }

    fn append(&mut self) -> Result<(), String> {
        let mut source = KeySource::default();
        let has_starts = self.rng.one_in(4);
        for _ in 0..self.rng.next_below(30) {
            self.add_series(&mut source, has_starts);
        }
        source.finish();
        if self.rng.one_in(3) {
            let hash = self.one.series_hash().expect("stores hash keys");
            let mut prints = Vec::new();
            let batch = source.batch();
            batch.push_fingerprints(&hash, &mut Vec::new(), &mut prints);
            source.fingerprints = Some(prints);
        }
        let late = [
            LateSamplePolicy::All,
            LateSamplePolicy::AllButStale,
            LateSamplePolicy::Nothing,
        ][self.rng.next_below(3) as usize];
        let time_max = self.now + MINUTE;
        let bounds = match self.rng.next_below(6) {
            0 => AppendBounds::any_age_up_to(time_max, self.now - HOUR / 2),
            _ => AppendBounds {
                late,
                ..AppendBounds::up_to(time_max)
            },
        };
        self.send(source, bounds)
    }

    fn add_series(&mut self, source: &mut KeySource, has_starts: bool) {
        let rng = &self.rng;
        let mut labels = labels(rng.next_below(SERIES));
        let mut form = LabelForm::VALID[rng.next_below(5) as usize];
        if rng.one_in(40) {
            let pairs: Vec<_> = labels.iter().chain([("invalid", &b"x"[..])]).collect();
            labels = Labels::from_pairs(pairs);
            form = LabelForm::VALID[1 + rng.next_below(4) as usize];
        }
        if rng.one_in(600) {
            form = LabelForm::Malformed;
        }
        let batch = source.batch_mut();
        let floats = rng.next_below(3);
        let has_floats = floats > 0;
        for _ in 0..floats {
            let value = rng.next_below(3) as f64;
            let time = random_time(rng, self.now);
            if has_starts {
                batch.push_float_with_start(time, value, time - 1);
            } else {
                batch.push_float(time, value);
            }
        }
        for _ in 0..rng.next_below(6).saturating_sub(3) {
            batch.push_histogram(HistogramSample {
                time: random_time(rng, self.now),
                start_time: 0,
                histogram: histogram(rng.next_below(3) as f64),
            });
        }
        // Later a silent series may have left the head of one store alone, which then rejects an
        // exemplar without a sample.
        let may_have_exemplars = self.now < self.start + HOUR / 2 || has_floats;
        for _ in 0..rng.next_below(5).saturating_sub(2) {
            if !may_have_exemplars {
                break;
            }
            let length = if rng.one_in(9) { 200 } else { 5 };
            let labels = Labels::from_pairs([("trace_id", "x".repeat(length))]);
            batch.push_exemplar(TimedExemplar {
                labels: labels.as_ref(),
                value: rng.next_below(3) as f64,
                time: random_time(rng, self.now),
                has_own_time: rng.one_in(2),
            });
        }
        source.end_series(&labels, form);
    }

    /// Sends equal batches, and compares the outcomes and the labels that were rejected.
    fn send(&self, source: KeySource, bounds: AppendBounds) -> Result<(), String> {
        let send = |store: &dyn Append| {
            let mut source = source.clone();
            let ticket = store.append_from(&TenantId::anonymous(), &mut source, bounds);
            source.rejected.sort();
            (ticket.wait(), source.rejected)
        };
        let (mut one, mut several): ((Result<AppendOutcome, Error>, _), _) =
            (send(&*self.one), send(&self.several));
        if self.has_blocks() {
            // A series that left the head has no newest exemplar, with which a store compares others,
            // and stores cut at different times.
            for outcome in [&mut one.0, &mut several.0].into_iter().flatten() {
                outcome.refused_exemplars.clear();
            }
        }
        // The labels that were decoded before an invalid key are not the same.
        let is_valid = one.0.is_ok();
        compare("outcome", one.0, several.0)?;
        if !is_valid {
            return Ok(());
        }
        compare("rejected labels", one.1, several.1)
    }

    fn random_matchers(&self) -> Vec<Matcher> {
        let matcher = |name, op, value: &str| {
            Matcher::new(name, op, value.as_bytes()).expect("a valid pattern")
        };
        match self.rng.next_below(5) {
            0 => Vec::new(),
            1 => vec![matcher("__name__", MatchOp::Equal, "m1")],
            2 => vec![matcher("instance", MatchOp::Regex, "1.*|3")],
            3 => vec![
                matcher("__name__", MatchOp::NotEqual, "m0"),
                matcher("zone", MatchOp::Equal, ""),
            ],
            _ => vec![matcher("zone", MatchOp::NotRegex, "z1")],
        }
    }

    fn random_range(&self) -> TimeRange {
        match self.rng.next_below(3) {
            0 => TimeRange::ALL,
            1 => TimeRange::new(self.now - 10 * MINUTE, self.now),
            _ => TimeRange::new(self.now - self.rng.next_below(24) as i64 * HOUR, self.now),
        }
    }

    /// Returns whether samples of any store are in blocks.
    pub(super) fn has_blocks(&self) -> bool {
        let one = self.one.first_block_ms();
        one.or(self.several.first_block_ms()).is_some()
    }

    fn check_reads(&self) -> Result<(), String> {
        let matchers = self.random_matchers();
        let range = self.random_range();
        let has_blocks = self.has_blocks();
        let limit = match self.rng.next_below(2) {
            // A series that a cut moved out of the head may count twice, and stores cut at
            // different times.
            0 if !has_blocks => self.rng.next_below(SERIES) as usize,
            _ => usize::MAX,
        };
        let stretch = 1 + self.rng.next_below(9) as usize;
        let newest_only = self.rng.one_in(3);
        let select = |store: &dyn Select| {
            let series = SeriesLimit::new(limit);
            let request = request(&matchers, range, newest_only, &series);
            read(store, request, stretch)
        };
        let (one, several) = (select(&*self.one), select(&self.several));
        if let (Ok(one), Ok(several)) = (&one, &several)
            && one.len() == several.len()
        {
            for (one, several) in one.iter().zip(several) {
                compare("series", one, several)?;
            }
        }
        compare("selection", one, several)?;
        let names = |store: &dyn Select| {
            let series = SeriesLimit::unlimited();
            // A store may return names of series without a sample in the range.
            let request = request(&matchers, TimeRange::ALL, false, &series);
            let values = ["__name__", "instance", "zone", "absent"];
            let values = values.map(|name| store.label_values(name, request));
            (store.label_names(request), values)
        };
        compare("names and values", names(&*self.one), names(&self.several))?;
        let sets = [matchers.clone(), self.random_matchers()];
        if has_blocks {
            // Stores cut at different times, and an exemplar whose series left the head is found in
            // its block.
            return Ok(());
        }
        let exemplars = |store: &dyn Select| {
            store.exemplars(ExemplarRequest {
                tenant: &TenantId::anonymous(),
                sets: &sets,
                range,
                cancel: &CancelToken::new(),
                budget: &Budget::new("test", 1 << 30),
            })
        };
        compare("exemplars", exemplars(&*self.one), exemplars(&self.several))
    }

    fn check_metadata(&self) -> Result<(), String> {
        for metric in [None, Some("m1"), Some("m9"), Some("none")] {
            let metadata = |store: &dyn Select| {
                let request = MetadataRequest {
                    tenant: &TenantId::anonymous(),
                    metric,
                    cancel: &CancelToken::new(),
                    budget: &Budget::new("test", 1 << 30),
                };
                let found = store.metadata(request).expect("metadata in memory");
                format!("{:?}", found.iter().collect::<Vec<_>>())
            };
            compare("metadata", metadata(&*self.one), metadata(&self.several))?;
        }
        Ok(())
    }
}

/// Returns a request whose memory is not limited.
fn request<'a>(
    matchers: &'a [Matcher],
    range: TimeRange,
    newest_only: bool,
    series: &'a SeriesLimit,
) -> SelectRequest<'a> {
    static SETTINGS: std::sync::LazyLock<(TenantId, CancelToken, Budget)> =
        std::sync::LazyLock::new(|| {
            let budget = Budget::new("test", 1 << 30);
            (TenantId::anonymous(), CancelToken::new(), budget)
        });
    let (tenant, cancel, budget) = &*SETTINGS;
    SelectRequest {
        tenant,
        matchers,
        range,
        newest_only,
        cancel,
        budget,
        series,
        span: None,
    }
}

/// Returns all samples of a selection by labels. Reads `stretch` series at a time, and checks the
/// columns of all labels.
fn read(
    store: &dyn Select,
    request: SelectRequest<'_>,
    stretch: usize,
) -> Result<SelectedSeries, Error> {
    let selection = store.select(request)?;
    let mut found = Vec::new();
    let mut batch = SeriesBatch::default();
    for start in (0..selection.len()).step_by(stretch) {
        batch.clear();
        let end = selection.len().min(start + stretch);
        selection.read(start..end, &mut batch)?;
        for number in start..end {
            let columns = batch.series(number - start);
            let values = columns.values.iter().map(|value| value.to_bits());
            let samples = columns.times.iter().zip(values).enumerate();
            let samples = samples.map(|(at, (time, value))| {
                let histogram = columns.histograms.iter().find(|(i, _)| *i as usize == at);
                // Hints depend on the time at which a sample was sealed.
                let histogram = histogram.map(|(_, histogram)| Histogram {
                    reset_hint: ResetHint::Unknown,
                    ..Histogram::clone(histogram)
                });
                let start = columns.start_times.get(at).filter(|start| **start != 0);
                format!("{time} {value} {start:?} {histogram:?}")
            });
            let mut samples: Vec<String> = samples.collect();
            if request.newest_only {
                // How many older samples are omitted is up to the store.
                samples.drain(..samples.len().saturating_sub(1));
            }
            found.push((selection.labels(number), samples));
        }
    }
    let mut memory = request.budget.create_reservation();
    for name in ["__name__", "instance", "zone", "absent"] {
        let column = selection.label_column(name, request.cancel, &mut memory)?;
        assert_eq!(column.ids.len(), selection.len());
        for (number, id) in column.ids.iter().enumerate() {
            let labels = selection.labels(number);
            assert_eq!(&*column.values[*id as usize], labels.get(name));
        }
        let mut values = column.values;
        values.sort();
        assert!(values.is_sorted_by(|a, b| a < b), "{values:?}");
    }
    // A selection may have series without samples.
    found.retain(|(_, samples): &(Labels, Vec<String>)| !samples.is_empty());
    found.sort();
    Ok(found)
}

/// Returns the tables of statistics without the order of equal lines, which is that of creation.
fn tables(stats: StoreStats) -> (u64, [Vec<(String, u64)>; 4]) {
    let sorted = |lines: Vec<NamedStat>| {
        let lines = lines.into_iter().map(|line| (line.name, line.value));
        let mut lines: Vec<(String, u64)> = lines.collect();
        lines.sort();
        lines
    };
    let tables = [
        stats.series_count_by_metric_name,
        stats.label_value_count_by_label_name,
        stats.memory_in_bytes_by_label_name,
        stats.series_count_by_label_value_pair,
    ];
    (stats.label_pairs, tables.map(sorted))
}

fn labels(number: u64) -> Labels {
    let mut pairs = vec![
        ("__name__", format!("m{}", number % 3)),
        ("instance", (number / 3).to_string()),
    ];
    if !number.is_multiple_of(4) {
        pairs.push(("zone", format!("z{}", number % 2)));
    }
    if number.is_multiple_of(7) {
        pairs.push(("long", "v".repeat(200)));
    }
    Labels::from_pairs(pairs)
}

/// Returns a time near the present, of a late sample, or in the future.
fn random_time(rng: &SimRng, now: i64) -> i64 {
    match rng.next_below(12) {
        0 => now - rng.next_below(6 * HOUR as u64) as i64,
        1 => now - rng.next_below(HOUR as u64) as i64,
        2 => now + rng.next_below(2 * MINUTE as u64) as i64,
        _ => now + rng.next_below(4) as i64,
    }
}

fn histogram(count: f64) -> Histogram {
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 2,
        zero_threshold: 0.0,
        sum: count * 3.0,
        counts: HistogramCounts::Float {
            count,
            zero_count: count,
            positive: Vec::new(),
            negative: Vec::new(),
        },
        positive_spans: Vec::new(),
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    }
}
