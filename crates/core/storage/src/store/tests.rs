//! Tests of appends, reads and limits on a simulated disk, and the helpers of all tests of the
//! store. Random histories are compared with a model of plain maps in [`model`] (any order of time,
//! no disk faults) and [`crashes`] (disk faults).

mod any_age;
mod backlog;
mod block_damage;
mod block_faults;
mod blocks;
mod crashes;
mod damage;
mod damaged_page;
mod deletes;
mod empty_series;
mod eras;
mod exemplars;
mod extreme_times;
mod flaws;
mod full_disk;
mod journal;
mod late;
mod model;
mod page_memory;
mod peaks;
mod remote_log;
mod retention;
mod retention_rules;
mod retirement;
mod series_limits;
mod snapshot;
mod stuck_groups;
mod threads;
mod unread;
mod upgrade;

use super::*;
use crate::log::record::tests::histogram as histogram_row;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::batch::HistogramSample;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::JobKind;
use firn_model::env::sim::{self, SimEnv};
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use firn_model::log::LogPosition;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::stats::NamedStat;
use firn_model::store::{AppendOutcome, SampleRejection, Select, SelectRequest, Selection};

const ALWAYS: AppendBounds = AppendBounds::up_to(i64::MAX);

fn options() -> StoreOptions {
    StoreOptions {
        shards: 1,
        ..StoreOptions::new("/data")
    }
}

fn open(sim: &SimEnv, options: StoreOptions) -> Arc<Store> {
    Store::open(sim.env.clone(), options).unwrap()
}

fn labels(name: &str) -> Labels {
    Labels::from_pairs([("__name__", name), ("job", "test")])
}

/// Returns a batch with one native histogram of the series `h`.
fn histogram_at(time: i64) -> Batch {
    let mut batch = Batch::default();
    batch
        .label_bytes()
        .extend_from_slice(labels("h").as_bytes());
    batch.push_histogram(HistogramSample {
        time,
        start_time: 3,
        histogram: Histogram::clone(&histogram_row(0).value),
    });
    batch.end_series();
    batch
}

fn batch(series: &[(&str, &[(i64, f64)])]) -> Batch {
    let mut batch = Batch::default();
    for (name, samples) in series {
        batch.push_series(labels(name).as_ref(), samples);
    }
    batch
}

fn append(store: &Store, batch: &Batch, bounds: AppendBounds) -> AppendOutcome {
    let ticket = store.append(&TenantId::anonymous(), batch, bounds);
    ticket.wait().unwrap()
}

fn select(store: &Store, matchers: &[Matcher], range: TimeRange) -> Arc<dyn Selection> {
    select_of(store, matchers, (range, false))
}

/// Like `select`, for all samples or only the newest ones.
fn select_of(
    store: &Store,
    matchers: &[Matcher],
    (range, newest_only): (TimeRange, bool),
) -> Arc<dyn Selection> {
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers,
        range,
        newest_only,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    store.select(request).unwrap()
}

/// Returns everything in `range` as (name, samples), in the order of the selection.
fn contents(store: &Store, range: TimeRange) -> Vec<(String, Vec<(i64, f64)>)> {
    contents_of(&*select(store, &[], range))
}

/// Returns the samples of a selection by name.
fn contents_of(selection: &dyn Selection) -> Vec<(String, Vec<(i64, f64)>)> {
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch).unwrap();
    (0..selection.len())
        .map(|i| {
            let columns = batch.series(i);
            let name = selection.labels(i).get("__name__").to_vec();
            let samples = columns
                .times
                .iter()
                .copied()
                .zip(columns.values.iter().copied());
            (String::from_utf8(name).unwrap(), samples.collect())
        })
        .collect()
}

fn rejections(appended: &AppendOutcome) -> Vec<(SampleRejection, usize, i64)> {
    let each = appended.rejected.iter();
    each.map(|r| (r.rejection, r.count, r.first_time)).collect()
}

#[test]
fn store_append_refuses_by_reason_and_stores_the_rest() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    const HOUR: i64 = 3_600_000;
    let first = batch(&[("a", &[(0, 1.0), (10 * HOUR, 2.0)]), ("b", &[(-HOUR, 5.0)])]);
    let appended = append(&store, &first, ALWAYS);
    assert_eq!((appended.stored, appended.rejected.len()), (3, 0));
    let second = batch(&[
        (
            "a",
            &[(10 * HOUR, 2.0), (10 * HOUR, 3.0), (10 * HOUR - 1, 2.0)],
        ),
        ("b", &[(9 * HOUR - 1, 6.0), (9 * HOUR, 7.0), (-HOUR, 5.0)]),
        ("c", &[(9 * HOUR - 1, 6.0)]),
        ("d", &[(11 * HOUR + 1, 1.0), (11 * HOUR, 1.0)]),
    ]);
    let bounds = AppendBounds::up_to(11 * HOUR);
    let appended = append(&store, &second, bounds);
    assert_eq!(appended.stored, 3);
    let expected = [
        (SampleRejection::DuplicateTimestamp, 1, 10 * HOUR),
        (SampleRejection::OutOfOrder, 1, 10 * HOUR - 1),
        (SampleRejection::OutOfBounds, 3, 9 * HOUR - 1),
        (SampleRejection::TooFarInFuture, 1, 11 * HOUR + 1),
    ];
    assert_eq!(rejections(&appended), expected);
    assert_eq!(appended.rejected[2].first_labels, labels("b"));
    let held = [
        ("a".to_owned(), vec![(0, 1.0), (10 * HOUR, 2.0)]),
        ("b".to_owned(), vec![(-HOUR, 5.0), (9 * HOUR, 7.0)]),
        ("d".to_owned(), vec![(11 * HOUR, 1.0)]),
    ];
    assert_eq!(contents(&store, TimeRange::ALL), held);
    // `d` has no sample in this range.
    assert_eq!(contents(&store, TimeRange::new(1, 10 * HOUR)).len(), 2);
}

#[test]
fn store_append_beyond_series_max_refuses_new_series_only() {
    let sim = sim::sim_env(1);
    let limited = StoreOptions {
        series_max: 2,
        ..options()
    };
    let store = open(&sim, limited.clone());
    let appended = append(
        &store,
        &batch(&[("a", &[(1, 1.0)]), ("b", &[(1, 1.0)])]),
        ALWAYS,
    );
    assert_eq!(appended.stored, 2);
    let next = batch(&[("c", &[(2, 1.0), (3, 1.0)]), ("a", &[(2, 1.0)])]);
    let appended = append(&store, &next, ALWAYS);
    assert_eq!(appended.stored, 1);
    assert_eq!(
        rejections(&appended),
        [(SampleRejection::SeriesLimit, 2, 2)]
    );
    drop(store);
    assert_eq!(open(&sim, limited).stats(1).series, 2);
}

#[test]
fn store_append_beyond_head_bytes_max_refuses_new_series_only() {
    let sim = sim::sim_env(1);
    let limited = StoreOptions {
        head_bytes_max: 4_000,
        ..options()
    };
    let store = open(&sim, limited);
    let long = "x".repeat(1_000);
    let names: Vec<String> = (0..8).map(|i| format!("{long}{i}")).collect();
    let at = |time: i64| {
        let mut next = Batch::default();
        for name in &names {
            let labels = Labels::from_pairs([("__name__", name.as_str())]);
            next.push_series(labels.as_ref(), &[(time, 1.0)]);
        }
        next
    };
    for time in 1..4 {
        let appended = append(&store, &at(time), ALWAYS);
        assert_eq!(appended.stored, 3, "{:?}", rejections(&appended));
        assert_eq!(
            rejections(&appended),
            [(SampleRejection::SeriesLimit, 5, time)]
        );
    }
}

#[test]
fn stores_with_one_head_usage_share_series_max() {
    let usage = HeadUsage::default();
    let open_shared = |seed| {
        let limited = StoreOptions {
            head_usage: usage.clone(),
            series_max: 3,
            ..options()
        };
        open(&sim::sim_env(seed), limited)
    };
    let stored = |store: &Store, name| append(store, &batch(&[(name, &[(1, 1.0)])]), ALWAYS).stored;
    let (first, second) = (open_shared(1), open_shared(2));
    assert_eq!(
        stored(&first, "a") + stored(&first, "b") + stored(&second, "c"),
        3
    );
    assert_eq!(stored(&first, "d") + stored(&second, "d"), 0);
    drop(first);
    assert_eq!(stored(&second, "d") + stored(&second, "e"), 2);
    assert_eq!(stored(&second, "f"), 0);
}

#[test]
fn store_append_over_the_budget_of_new_series_refuses_only_those_of_the_job() {
    const HOUR: i64 = 3_600_000;
    let sim = sim::sim_env(1);
    let store = open(
        &sim,
        StoreOptions {
            new_series: NewSeriesBudget { all: 5, of_job: 3 },
            ..options()
        },
    );
    let send = |job: &str, names: std::ops::Range<u32>, time: i64| {
        let mut batch = Batch::default();
        for name in names {
            let labels = Labels::from_pairs([("__name__", &*format!("m{name}")), ("job", job)]);
            batch.push_series(labels.as_ref(), &[(time, 1.0)]);
        }
        append(&store, &batch, ALWAYS).stored
    };
    assert_eq!(send("bomb", 0..10, 1), 3);
    assert_eq!(send("bomb", 0..10, 2), 3, "those that are known go on");
    assert_eq!(
        send("calm", 0..3, 3),
        2,
        "all jobs together have a budget too"
    );
    let refused = store.stats(2).refused_series_by_job;
    let refused: Vec<_> = refused.iter().map(|s| (s.name.as_str(), s.value)).collect();
    assert_eq!(refused, [("bomb", 14), ("calm", 1)]);
    assert_eq!(store.parts.metrics.refused_series.get(), 15);
    // The newest sample starts the next hour; the following batch has a fresh budget.
    assert_eq!(send("calm", 0..1, HOUR), 1);
    assert_eq!(send("bomb", 3..10, HOUR + 1), 3);
}

#[test]
fn store_append_of_one_series_twice_in_a_batch_is_one_series() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    let twice = batch(&[("a", &[(1, 1.0)]), ("b", &[(1, 2.0)]), ("a", &[(2, 3.0)])]);
    assert_eq!(append(&store, &twice, ALWAYS).stored, 3);
    drop(store);
    let held = [
        ("a".to_owned(), vec![(1, 1.0), (2, 3.0)]),
        ("b".to_owned(), vec![(1, 2.0)]),
    ];
    assert_eq!(contents(&open(&sim, options()), TimeRange::ALL), held);
}

#[test]
fn store_opened_again_hashes_as_before_unless_its_manifest_is_lost() {
    let sim = sim::sim_env(1);
    let seed = || {
        let store = open(&sim, options());
        append(&store, &batch(&[("up", &[(1, 1.0)])]), ALWAYS);
        let seed = store.series_hash().unwrap().keys.seed();
        drop(store);
        sim.disk.crash();
        seed
    };
    let first = seed();
    assert_eq!(seed(), first);
    sim.disk.remove_durably("/data/MANIFEST".as_ref());
    assert_ne!(seed(), first);
}

#[test]
fn store_of_one_tenant_keeps_no_other() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    append(&store, &batch(&[("a", &[(1, 1.0)])]), ALWAYS);
    let other = TenantId::new("other").unwrap();
    let refused = store
        .append(&other, &batch(&[("a", &[(2, 1.0)])]), ALWAYS)
        .wait();
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Invalid);
    let request = SelectRequest {
        tenant: &other,
        matchers: &[],
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    assert!(store.select(request).unwrap().is_empty());
    assert!(store.label_names(request).unwrap().is_empty());
    assert!(store.label_values("job", request).unwrap().is_empty());
}

#[test]
fn range_that_ends_before_it_starts_names_everything_of_what_it_lies_in() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    append(
        &store,
        &batch(&[("a", &[(10, 1.0)]), ("b", &[(50, 1.0)])]),
        ALWAYS,
    );
    for (start, end, is_found) in [
        (40, 20, true),
        (50, 10, true),
        (51, 20, false),
        (40, 9, false),
        (i64::MAX, i64::MIN, false),
    ] {
        let request = SelectRequest {
            tenant: &TenantId::anonymous(),
            matchers: &[],
            range: TimeRange::new(start, end),
            newest_only: false,
            cancel: &CancelToken::new(),
            budget: &Budget::new("query", usize::MAX),
            series: &SeriesLimit::unlimited(),
            span: None,
        };
        let names = store.label_names(request).unwrap();
        let values = store.label_values("__name__", request).unwrap();
        let want = if is_found { (2, 2) } else { (0, 0) };
        assert_eq!((names.len(), values.len()), want, "{start} to {end}");
    }
}

#[test]
fn selection_holds_its_memory_in_the_budget_or_is_refused() {
    let store = open(&sim::sim_env(1), options());
    let names: Vec<String> = (0..3_000).map(|i| format!("m{i}")).collect();
    let series: Vec<(&str, &[(i64, f64)])> = names
        .iter()
        .map(|n| (n.as_str(), &[(1, 1.0)][..]))
        .collect();
    append(&store, &batch(&series), ALWAYS);
    let select = |budget: &Budget| {
        store.select(SelectRequest {
            tenant: &TenantId::anonymous(),
            matchers: &[],
            range: TimeRange::ALL,
            newest_only: false,
            cancel: &CancelToken::new(),
            budget,
            series: &SeriesLimit::unlimited(),
            span: None,
        })
    };
    let budget = Budget::new("query", usize::MAX);
    let selection = select(&budget).unwrap();
    let held = budget.used_bytes();
    assert!((3_000 * 60..3_000 * 160).contains(&held), "{held}");
    drop(selection);
    assert_eq!(budget.used_bytes(), 0);
    for limit in [1_000, held - 1] {
        let budget = Budget::new("query", limit);
        assert_eq!(
            select(&budget).err().map(|e| e.kind),
            Some(ErrorKind::Limited)
        );
        assert_eq!(budget.used_bytes(), 0);
    }
}

#[test]
fn store_after_close_holds_everything_in_pages_and_no_log() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    append(
        &store,
        &batch(&[("a", &[(1, 1.0), (2, 2.5)]), ("b", &[(1, f64::INFINITY)])]),
        ALWAYS,
    );
    let held = contents(&store, TimeRange::ALL);
    store.close().unwrap();
    let refused = store.append(
        &TenantId::anonymous(),
        &batch(&[("a", &[(3, 1.0)])]),
        ALWAYS,
    );
    assert!(refused.wait().is_err());
    drop(store);
    let names = |folder: &str| sim.env.disk.list(std::path::Path::new(folder)).unwrap();
    assert_eq!(
        [
            names("/data/wal").len(),
            names("/data/pages").len(),
            names("/data/series").len()
        ],
        [0, 1, 2]
    );
    let store = open(&sim, options());
    assert_eq!(contents(&store, TimeRange::ALL), held);
    assert_eq!(
        append(&store, &batch(&[("a", &[(2, 2.5), (3, 3.0)])]), ALWAYS).stored,
        2
    );
    drop(store);
    let store = open(&sim, options());
    assert_eq!(
        contents(&store, TimeRange::ALL)[0].1,
        [(1, 1.0), (2, 2.5), (3, 3.0)]
    );
    assert_eq!(store.stats(1).series, 2);
}

#[test]
fn store_stats_count_what_is_there() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    const HOUR: i64 = 3_600_000;
    append(
        &store,
        &batch(&[("a", &[(5, 1.0), (HOUR, 2.0)]), ("b", &[(7, 1.0)])]),
        ALWAYS,
    );
    for _ in 0..8 {
        store.tick();
    }
    let stats = store.stats(1);
    assert_eq!((stats.series, stats.active_series, stats.chunks), (2, 1, 2));
    assert_eq!((stats.min_time, stats.max_time), (Some(5), Some(HOUR)));
    assert_eq!(stats.label_pairs, 3);
    let line = |name: &str, value| {
        vec![NamedStat {
            name: name.to_owned(),
            value,
        }]
    };
    assert_eq!(stats.series_count_by_label_value_pair, line("job=test", 2));
}

#[test]
fn selection_made_before_a_removal_still_knows_its_series() {
    const HOUR: i64 = 3_600_000;
    let sim = sim::sim_env(1);
    let store = open(
        &sim,
        StoreOptions {
            retention_ms: 4 * HOUR,
            ..options()
        },
    );
    append(
        &store,
        &batch(&[("old", &[(0, 1.0)]), ("new", &[(0, 1.0)])]),
        ALWAYS,
    );
    let matcher = Matcher::new("__name__", MatchOp::Equal, b"old").unwrap();
    let before = select(&store, std::slice::from_ref(&matcher), TimeRange::ALL);
    append(&store, &batch(&[("new", &[(24 * HOUR, 1.0)])]), ALWAYS);
    for _ in 0..4 {
        store.tick();
    }
    assert_eq!(store.stats(0).series, 1);
    assert!(select(&store, std::slice::from_ref(&matcher), TimeRange::ALL).is_empty());
    assert_eq!(before.labels(0), labels("old"));
    let mut memory = Budget::new("query", usize::MAX).create_reservation();
    let jobs = before.label_column("job", &CancelToken::new(), &mut memory);
    assert_eq!(*jobs.unwrap().values[0], *b"test");
    append(&store, &batch(&[("old", &[(24 * HOUR, 2.0)])]), ALWAYS);
    let names: Vec<_> = contents(&store, TimeRange::ALL)
        .into_iter()
        .map(|(n, _)| n)
        .collect();
    assert_eq!(names, ["new", "old"], "a series that returns is born again");
}
