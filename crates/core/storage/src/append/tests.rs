//! Tests of batches that interleave between the passes of an append.

use super::*;
use crate::store::{Store, StoreOptions};
use firn_model::budget::Budget;
use firn_model::env::sim;
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Append, Select, SelectRequest};
use firn_model::tenant::TenantId;

const ALWAYS: AppendWindow = AppendWindow {
    late_min: i64::MAX,
    late: firn_model::store::LateSamplePolicy::All,
    min: i64::MIN,
    max: i64::MAX,
};

#[test]
fn series_made_by_a_batch_that_was_overtaken_survives_without_it() {
    let sim = sim::sim_env(1);
    let open = || Store::open(sim.env.clone(), StoreOptions::new("/data")).unwrap();
    let store = open();
    let names = ["a", "b", "c", "d"].map(|name| Labels::from_pairs([("__name__", name)]));
    let batch_at = |time: TimestampMs| {
        let mut batch = Batch::default();
        for labels in &names {
            batch.push_series(labels.as_ref(), &[(time, 1.0)]);
        }
        batch
    };
    let overtaken = batch_at(1);
    let mut scratch = AppendScratch::default();
    scratch.begin(&store.appender.parts, &&overtaken);
    store.appender.find_batch_series(&mut scratch);
    store
        .appender
        .create_missing(&mut scratch, &overtaken, ALWAYS);
    let bounds = AppendBounds::up_to(i64::MAX);
    let ticket = store.append(&TenantId::anonymous(), &batch_at(2), bounds);
    assert_eq!(ticket.wait().unwrap().stored, names.len());
    drop(store);
    let matchers: [Matcher; 0] = [];
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: &matchers,
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &Default::default(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    assert_eq!(open().select(request).unwrap().len(), names.len());
}

#[test]
fn append_after_a_batch_was_given_up_half_way_fails_and_does_not_wait() {
    let sim = sim::sim_env(1);
    let store = Store::open(sim.env.clone(), StoreOptions::new("/data")).unwrap();
    let mut batch = Batch::default();
    let labels = Labels::from_pairs([("__name__", "a")]);
    batch.push_series(labels.as_ref(), &[(1, 1.0)]);
    let mut scratch = AppendScratch::default();
    scratch.begin(&store.appender.parts, &&batch);
    store.appender.find_batch_series(&mut scratch);
    drop(store.appender.append_samples(&mut scratch, &batch, ALWAYS));
    let bounds = AppendBounds::up_to(i64::MAX);
    let ticket = store.append(&TenantId::anonymous(), &batch, bounds);
    let error = ticket.wait().unwrap_err();
    assert!(error.message.contains("the write was aborted"), "{error}");
}
