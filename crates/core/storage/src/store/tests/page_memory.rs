//! Memory of queries over many pages: lists and open pages are reserved before they are allocated.

use super::*;
use firn_model::error::Error;

const HOUR: i64 = 3_600_000;

/// Number of pages of the group.
const PAGES: i64 = 60;

/// Returns a store with three series in many pages, none of which is cached.
fn many_pages(sim: &SimEnv) -> Arc<Store> {
    let uncached = StoreOptions {
        page_cache_bytes: 0,
        retention_ms: 1_000 * HOUR,
        cut_ms: 1_000 * HOUR,
        ..options()
    };
    for page in 0..PAGES {
        let store = open(sim, uncached.clone());
        let sample = [(page * HOUR, page as f64)];
        append(
            &store,
            &batch(&[("a", &sample), ("b", &sample), ("c", &sample)]),
            ALWAYS,
        );
        store.close().unwrap();
    }
    open(sim, uncached)
}

fn select_in(store: &Store, budget: &Budget) -> Result<Arc<dyn Selection>, Error> {
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
}

#[test]
fn selection_reserves_the_lists_of_its_pages_or_is_refused() {
    let store = many_pages(&sim::sim_env(1));
    let budget = Budget::new("query", usize::MAX);
    let selection = select_in(&store, &budget).unwrap();
    let held = budget.used_bytes();
    assert!(held >= PAGES as usize * size_of::<usize>(), "{held}");
    drop(selection);
    assert_eq!(budget.used_bytes(), 0);
    let small = Budget::new("query", held - 1);
    let refused = select_in(&store, &small).err().unwrap();
    assert_eq!(refused.kind, ErrorKind::Limited);
    assert!(refused.message.contains("query memory limit reached"));
    assert_eq!(small.used_bytes(), 0);
}

#[test]
fn read_reserves_the_pages_that_it_holds_or_is_refused() {
    let store = many_pages(&sim::sim_env(1));
    let all = Budget::new("query", usize::MAX);
    let held = {
        let _selection = select_in(&store, &all).unwrap();
        all.used_bytes()
    };
    let read = |budget: &Budget, series: std::ops::Range<usize>| {
        let selection = select_in(&store, budget).unwrap();
        let before = budget.used_bytes();
        let mut batch = SeriesBatch::default();
        let read = selection.read(series.clone(), &mut batch);
        assert_eq!(budget.used_bytes(), before, "given back when it is done");
        read.map(|()| {
            let counts = 0..series.len();
            let all = counts.map(|i| batch.series(i).times.len() as i64);
            assert!(all.into_iter().all(|count| count == PAGES));
            budget.peak_bytes() - before
        })
    };
    // Pages that other series need are all held.
    let together = read(&all, 0..3).unwrap();
    assert!(together > PAGES as usize * 1_024, "{together}");
    let small = Budget::new("query", held + together / 2);
    assert_eq!(read(&small, 0..3).unwrap_err().kind, ErrorKind::Limited);
    // Those of one series are closed one by one.
    let tiny = Budget::new("query", held + together / 20);
    for series in 0..3 {
        assert!(read(&tiny, series..series + 1).unwrap() < together / 20);
    }
}
