//! Cuts, blocks and merges of a store that works: what is found, what is forgotten, what comes
//! back.

use super::*;
use std::collections::BTreeMap;
use std::path::Path;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

type Model = BTreeMap<String, Vec<(i64, f64)>>;

/// A store to which one steady series and one that lives for an hour are sent.
struct Churn {
    sim: Sim,
    store: Option<Arc<Store>>,
    model: Model,
    now: i64,
}

impl Churn {
    fn new(seed: u64) -> Self {
        let sim = sim::env(seed);
        Self {
            store: Some(open(&sim, options())),
            sim,
            model: Model::new(),
            now: 0,
        }
    }

    /// Sends for so many hours, with a tick a minute.
    fn send(&mut self, hours: i64) {
        let end = self.now + hours * HOUR;
        while self.now < end {
            let short = format!("short{}", self.now / HOUR);
            let value = (self.now / 1_000 % 977) as f64;
            let samples = [(self.now, value)];
            let sent = batch(&[("steady", &samples), (&short, &samples)]);
            assert_eq!(append(self.store(), &sent, ALWAYS).stored, 2);
            for name in ["steady", &short] {
                let series = self.model.entry(name.to_owned()).or_default();
                series.push((self.now, value));
            }
            self.store().tick();
            self.now += MINUTE;
        }
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(open(&self.sim, options()));
    }

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().unwrap()
    }

    #[track_caller]
    fn check(&self, range: TimeRange) {
        let mut expected = Model::new();
        for (name, samples) in &self.model {
            let inside = samples.iter().filter(|(time, _)| range.contains(*time));
            let inside: Vec<_> = inside.copied().collect();
            if !inside.is_empty() {
                expected.insert(name.clone(), inside);
            }
        }
        let found = contents(self.store(), range).into_iter();
        let found: Model = found.filter(|(_, samples)| !samples.is_empty()).collect();
        assert!(
            found == expected,
            "{range:?}: {} and {} series",
            found.len(),
            expected.len()
        );
    }

    fn check_all(&self) {
        self.check(TimeRange::ALL);
        for start in 0..self.now / HOUR {
            let start = start * HOUR + 17 * MINUTE;
            self.check(TimeRange::new(start, start + 3 * HOUR));
        }
    }

    fn blocks(&self) -> Vec<(i64, i64)> {
        let list = self.store().parts.blocks.list();
        let hours = |block: &crate::blocks::BlockEntry| {
            (block.range.min / HOUR, (block.range.max + MINUTE) / HOUR)
        };
        list.blocks.iter().map(hours).collect()
    }
}

#[test]
fn samples_of_a_day_are_found_in_blocks_pages_and_head() {
    let mut churn = Churn::new(1);
    for _ in 0..26 {
        churn.send(1);
        churn.check(TimeRange::ALL);
    }
    churn.check_all();
    assert_eq!(churn.blocks(), [(0, 8), (8, 16), (16, 24)]);
    churn.store().close().unwrap();
    churn.reopen();
    churn.check_all();
    churn.sim.disk.crash();
    churn.reopen();
    churn.check_all();
}

#[test]
fn index_after_cuts_knows_the_series_of_the_last_hours() {
    let mut churn = Churn::new(2);
    churn.send(40);
    let index = churn.store().parts.index.series_count();
    assert!(index <= 6, "{index} series");
    let pages = churn.store().parts.sealed.directory.summary();
    assert!(pages.oldest >= Some(36 * HOUR), "{pages:?}");
    churn.reopen();
    let index = churn.store().parts.index.series_count();
    // The catalogue may name as many again that are gone; the first ticks forget them.
    churn.send(1);
    let after = churn.store().parts.index.series_count();
    assert!(after <= 7, "{index} series after a start, then {after}");
}

#[test]
fn names_and_values_of_labels_are_those_of_head_and_blocks() {
    let mut churn = Churn::new(3);
    churn.send(12);
    let request = |range| SelectRequest {
        tenant: Box::leak(Box::new(TenantId::anonymous())),
        matchers: &[],
        range,
        newest_only: false,
        cancel: Box::leak(Box::new(Cancel::new())),
        budget: Box::leak(Box::new(Budget::new("query", usize::MAX))),
        series: Box::leak(Box::new(SeriesLimit::none())),
    };
    let names = churn.store().label_names(request(TimeRange::ALL)).unwrap();
    assert_eq!(names, ["__name__", "job"]);
    let values = churn
        .store()
        .label_values("__name__", request(TimeRange::ALL))
        .unwrap();
    let expected: Vec<Vec<u8>> = churn
        .model
        .keys()
        .map(|name| name.clone().into_bytes())
        .collect();
    assert_eq!(values, expected);
}

#[test]
fn block_whose_index_is_damaged_costs_itself_alone() {
    let mut churn = Churn::new(4);
    churn.send(12);
    let list = churn.store().parts.blocks.list();
    let bad = list.blocks[0].clone();
    let index = Path::new("/data/blocks")
        .join(bad.id.to_string())
        .join("index");
    churn.store().close().unwrap();
    let mut bytes = churn.sim.disk.contents(&index).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    churn.sim.disk.overwrite(&index, &bytes);
    churn.reopen();
    let damages = churn.store().damages();
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert_eq!(damages[0].range, Some(bad.range));
    churn
        .model
        .values_mut()
        .for_each(|samples| samples.retain(|(t, _)| !bad.range.contains(*t)));
    churn.check(TimeRange::ALL);
    let selection = select(churn.store(), &[], bad.range);
    assert_eq!(selection.losses().texts().len(), 1);
    churn.send(2);
    churn.check(TimeRange::ALL);
    let after = churn.store().parts.blocks.list();
    assert!(
        after
            .blocks
            .iter()
            .any(|block| block.is_bad && block.id == bad.id)
    );
}
