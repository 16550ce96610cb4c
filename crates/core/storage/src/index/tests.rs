//! Compares the index with brute force: planned lookups return the same series as a scan of all
//! series.

use super::costs::LookupCosts;
use super::*;
use crate::ids::SeriesRef;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::COLUMN_VALUE_BYTES;
use firn_model::env::Rng;
use firn_model::env::sim::{InlineCompute, SimRng};
use firn_model::fingerprint::HashKeys;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::regex::Regex;
use firn_model::sample::TimeRange;
use std::collections::BTreeSet;
use std::sync::Arc;

fn index() -> Index {
    Index::new(Arc::new(HashKeys::new(&SimRng::new(7))))
}

fn create(index: &Index, series: &[Labels]) {
    let mut creation = index.create_series();
    for labels in series {
        let slot = creation.next_slot();
        creation
            .add_series(labels.as_ref(), HeadSeriesPlace(slot.0))
            .unwrap();
        index.mark_sample(slot, 0);
    }
}

/// Returns labels of a fleet in which labels appear and disappear and values repeat.
fn random_labels(rng: &SimRng, number: u64) -> Labels {
    let mut pairs = vec![
        ("__name__", format!("m{}", rng.next_u64() % 5)),
        ("id", number.to_string()),
        ("pod", format!("app-{}", number / 7)),
    ];
    if rng.next_u64().is_multiple_of(2) {
        pairs.push(("le", format!("{}", rng.next_u64() % 4)));
    }
    if rng.next_u64().is_multiple_of(3) {
        pairs.push(("zone", format!("z{}", rng.next_u64() % 2)));
    }
    Labels::from_pairs(pairs)
}

/// A set with so many values that checking a few candidates is cheaper.
const WIDE: &str = "([1-9][0-9]?[02468])";

fn random_matcher(rng: &SimRng) -> Matcher {
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    let (name, values): (_, &[&str]) = match rng.next_u64() % 5 {
        0 => ("__name__", &["m1", "m[0-2]", ".+", "", "m9", "m[^1]"]),
        1 => (
            "pod",
            &[
                "app-3",
                "app-1.*",
                ".*",
                "app-(0|2)",
                "",
                "(app-1|app-2).*",
                ".*p-.*",
            ],
        ),
        2 => ("le", &["1", "", ".+", "1|2", "(1)?", ".*", "|1", "0|1|2|3"]),
        3 => (
            "id",
            &["12", "1.", "", ".*3", "[0-9]+", "(?i)1.*", "1[^2]+", WIDE],
        ),
        _ => ("nowhere", &["", "x", ".*", ".+"]),
    };
    let value = values[(rng.next_u64() % values.len() as u64) as usize];
    let op = [Equal, NotEqual, Regex, NotRegex][(rng.next_u64() % 4) as usize];
    Matcher::new(name, op, value.as_bytes()).unwrap()
}

fn matches(labels: &Labels, matchers: &[Matcher]) -> bool {
    matchers.iter().all(|m| m.matches(labels.get(m.name())))
}

/// Returns costs with which any way of evaluating a matcher may be the cheapest.
fn random_costs(rng: &SimRng) -> LookupCosts {
    let cost = || [0, 1, 100, 1_000_000][rng.next_below(4) as usize];
    LookupCosts {
        run: cost(),
        term: cost(),
        value: cost(),
        members: cost(),
        series: cost(),
        check: cost(),
    }
}

#[test]
fn index_explains_that_a_matcher_of_many_values_is_checked_on_the_few_series_of_another() {
    let index = index();
    let series = (0..20_000).map(|number| {
        let pairs = [
            ("__name__", format!("m{}", number / 4)),
            ("id", format!("{number:x}")),
            ("job", "all".to_owned()),
        ];
        Labels::from_pairs(pairs)
    });
    create(&index, &series.collect::<Vec<_>>());
    let matcher = |name, op, value: &str| Matcher::new(name, op, value.as_bytes()).unwrap();
    let matchers = [
        matcher("id", MatchOp::Regex, ".*[0-9].*"),
        matcher("job", MatchOp::Equal, "all"),
        matcher("__name__", MatchOp::Equal, "m7"),
        matcher("zone", MatchOp::Equal, ""),
    ];
    let costs = index.explain(&matchers, TimeRange::ALL, &CancelToken::new());
    let costs = costs.unwrap();
    let deferred: Vec<bool> = costs.iter().map(|cost| cost.is_deferred).collect();
    assert_eq!(deferred, [true, false, false, false]);
    let series: Vec<u64> = costs.iter().filter_map(|cost| cost.series).collect();
    assert_eq!(series[1..], [20_000, 4, 20_000]);
    assert!(series[0] > 10_000, "{series:?}");
}

#[test]
fn index_lookup_of_random_matchers_by_any_plan_equals_filtering_all_series() {
    for seed in 0..60 {
        let rng = SimRng::new(seed);
        let mut index = index();
        let mut alive = Vec::new();
        let mut garbage = Vec::new();
        for _ in 0..1 + rng.next_u64() % 12 {
            let start = index.published_end();
            let count = 1 + rng.next_u64() % 90;
            let series: Vec<Labels> = (0..count)
                .map(|i| random_labels(&rng, u64::from(start) + i))
                .collect();
            create(&index, &series);
            alive.extend((start..).map(SeriesRef).zip(series));
            if rng.next_u64().is_multiple_of(3) {
                let gone: BTreeSet<SeriesRef> = alive
                    .iter()
                    .map(|(slot, _)| *slot)
                    .filter(|slot| slot.0 % 5 < 2 && !rng.one_in(8))
                    .collect();
                alive.retain(|(slot, _)| !gone.contains(slot));
                garbage.push(index.remove_series(&gone.into_iter().collect::<Vec<_>>()));
            }
            if rng.next_u64().is_multiple_of(3) {
                garbage = garbage
                    .into_iter()
                    .filter_map(|g| index.free_garbage(g))
                    .collect();
                assert!(garbage.is_empty(), "there is no reader, seed {seed}");
            }
        }
        check_lookups(&index, &alive, &rng, seed);
        index.costs = random_costs(&rng);
        check_lookups(&index, &alive, &rng, seed);
    }
}

fn check_lookups(index: &Index, alive: &[(SeriesRef, Labels)], rng: &SimRng, seed: u64) {
    assert_eq!(index.series_count(), alive.len(), "seed {seed}");
    for (slot, labels) in alive {
        assert_eq!(
            index.dictionary.series_labels(*slot),
            *labels,
            "{slot:?}, seed {seed}"
        );
    }
    for _ in 0..30 {
        let matchers: Vec<_> = (0..rng.next_u64() % 4)
            .map(|_| random_matcher(rng))
            .collect();
        let expected: Vec<&(SeriesRef, Labels)> = alive
            .iter()
            .filter(|(_, l)| matches(l, &matchers))
            .collect();
        let slots: Vec<SeriesRef> = expected.iter().map(|(slot, _)| *slot).collect();
        let cancel = CancelToken::new();
        let all = TimeRange::ALL;
        let found = index.lookup(&matchers, all, &cancel).unwrap();
        let found: Vec<SeriesRef> = found.slots().collect();
        assert_eq!(found, slots, "{matchers:?}, seed {seed}");
        let costs = index.explain(&matchers, all, &cancel).unwrap();
        let series = costs.iter().map(|cost| cost.series.unwrap());
        let of_matcher = |m: &Matcher| {
            let of = alive
                .iter()
                .filter(|(_, l)| matches(l, std::slice::from_ref(m)));
            of.count() as u64
        };
        let counts: Vec<u64> = matchers.iter().map(of_matcher).collect();
        assert_eq!(
            series.collect::<Vec<_>>(),
            counts,
            "{matchers:?}, seed {seed}"
        );
        let names: BTreeSet<String> = expected
            .iter()
            .flat_map(|(_, l)| l.iter().map(|(n, _)| n.to_owned()).collect::<Vec<_>>())
            .collect();
        let got = index.label_names(&matchers, all, &cancel).unwrap();
        assert_eq!(
            got,
            names.into_iter().collect::<Vec<_>>(),
            "{matchers:?}, seed {seed}"
        );
        let values: BTreeSet<Vec<u8>> = expected
            .iter()
            .map(|(_, l)| l.get("le").to_vec())
            .filter(|v| !v.is_empty())
            .collect();
        let got = index.label_values("le", &matchers, all, &cancel).unwrap();
        assert_eq!(
            got,
            values.into_iter().collect::<Vec<_>>(),
            "{matchers:?}, seed {seed}"
        );
        let mut memory = Budget::new("query", usize::MAX).create_reservation();
        let column = index.read_label_column("le", &slots, &InlineCompute, &cancel, &mut memory);
        let column = column.unwrap();
        let values = column.values.iter().map(|v| v.len() + COLUMN_VALUE_BYTES);
        assert!(memory.bytes() >= slots.len() * 4 + values.sum::<usize>());
        for ((_, labels), id) in expected.iter().zip(&column.ids) {
            assert_eq!(
                *column.values[*id as usize],
                *labels.get("le"),
                "seed {seed}"
            );
        }
    }
}

/// An existing series: its slot, its labels, and the epochs in which it has samples.
type Alive = (SeriesRef, Labels, BTreeSet<i64>);

/// Looks up one of `sets` in some epochs.
fn check_asked_again(index: &Index, alive: &[Alive], sets: &[Vec<Matcher>], rng: &SimRng) {
    let matchers = &sets[rng.next_below(sets.len() as u64) as usize];
    let (first, last) = (rng.next_below(4) as i64, rng.next_below(4) as i64);
    let epochs = first.min(last)..=first.max(last);
    let in_range = |of: &BTreeSet<i64>| of.range(epochs.clone()).next().is_some();
    let matching = alive
        .iter()
        .filter(|(_, labels, of)| matches(labels, matchers) && in_range(of));
    let expected: Vec<SeriesRef> = matching.map(|(slot, ..)| *slot).collect();
    let range = TimeRange::new(epochs.start() * EPOCH_MS, epochs.end() * EPOCH_MS);
    let found = index.lookup(matchers, range, &CancelToken::new()).unwrap();
    let found: Vec<SeriesRef> = found.slots().collect();
    assert_eq!(found, expected, "{matchers:?} in {epochs:?}");
}

#[test]
fn index_lookup_asked_again_after_creations_and_removals_equals_filtering_all_series() {
    for seed in 0..40 {
        let rng = SimRng::new(seed);
        let mut index = index();
        if rng.one_in(2) {
            index.costs = random_costs(&rng);
        }
        let set = |_| {
            (0..rng.next_below(4))
                .map(|_| random_matcher(&rng))
                .collect()
        };
        let sets: Vec<Vec<Matcher>> = (0..6).map(set).collect();
        let mut alive: Vec<Alive> = Vec::new();
        for _ in 0..60 {
            match rng.next_below(6) {
                0 => {
                    let start = index.published_end();
                    let epoch = rng.next_below(4) as i64;
                    // A few more than are looked up although they have no sample.
                    let count = 1 + rng.next_below(if rng.one_in(4) { 2_000 } else { 60 });
                    let mut creation = index.create_series();
                    for slot in start..start + count as u32 {
                        let labels = random_labels(&rng, u64::from(slot));
                        creation
                            .add_series(labels.as_ref(), HeadSeriesPlace(slot))
                            .unwrap();
                        let slot = SeriesRef(slot);
                        index.mark_sample(slot, epoch);
                        alive.push((slot, labels, BTreeSet::from([epoch])));
                    }
                }
                1 => {
                    let one_in = 2 + rng.next_below(8);
                    let (gone, left) = alive.into_iter().partition(|_| rng.one_in(one_in));
                    alive = left;
                    let gone: Vec<SeriesRef> =
                        gone.iter().map(|(slot, ..): &Alive| *slot).collect();
                    let garbage = index.remove_series(&gone);
                    assert!(
                        index.free_garbage(garbage).is_none(),
                        "there is no reader, seed {seed}"
                    );
                }
                2 => {
                    let epoch = rng.next_below(4) as i64;
                    for (slot, _, epochs) in alive.iter_mut().filter(|_| rng.one_in(3)) {
                        index.mark_sample(*slot, epoch);
                        epochs.insert(epoch);
                    }
                }
                _ => check_asked_again(&index, &alive, &sets, &rng),
            }
        }
    }
}

#[test]
fn index_lookup_asked_again_reads_what_was_born_since() {
    use MatchOp::{Equal, NotRegex, Regex};
    let index = index();
    let series = |i: u32| {
        let (pod, number) = (format!("app-{}", i / 20), format!("{}", i % 20));
        Labels::from_pairs([
            ("__name__", "m"),
            ("number", number.as_str()),
            ("pod", pod.as_str()),
        ])
    };
    let asked = [
        ("__name__", Equal, "m"),
        ("number", Regex, "1[0-9]*"),
        ("pod", NotRegex, "app-(3|5)"),
    ];
    create(&index, &(0..10_000).map(series).collect::<Vec<_>>());
    let (found, anew) = work_of(&index, &asked);
    let expected = 11 * (500 - 2);
    assert_eq!(found, expected);
    assert!(anew.iter().sum::<u64>() > 500, "{anew:?}");
    assert_eq!(work_of(&index, &asked), (expected, [0; 3]));
    create(&index, &(10_000..10_020).map(series).collect::<Vec<_>>());
    let (found, [runs, values, series]) = work_of(&index, &asked);
    assert_eq!(found, expected + 11);
    assert!(runs + values < 40, "{runs} runs, {values} values");
    assert!(series <= 20, "{series} series");
}

/// Returns the number of series found and the work of a lookup: runs of postings, values, series.
fn work_of(index: &Index, matchers: &[(&str, MatchOp, &str)]) -> (usize, [u64; 3]) {
    let matchers = matchers.iter().map(|(name, op, value)| {
        let matcher = Matcher::new(name, *op, value.as_bytes());
        matcher.unwrap()
    });
    let matchers: Vec<_> = matchers.collect();
    let so_far = || [&index.work.runs, &index.work.values, &index.work.series].map(|c| c.get());
    let before = so_far();
    let all = TimeRange::ALL;
    let found = index.lookup(&matchers, all, &CancelToken::new()).unwrap();
    let after = so_far();
    (found.len(), [0, 1, 2].map(|i| after[i] - before[i]))
}

#[test]
fn index_lookup_with_broad_matchers_reads_no_more_postings() {
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    let index = index();
    let series = |i: u32| {
        // Every label occurs in runs of one slot.
        let (pod, half) = (i / 50, if i.is_multiple_of(2) { "even" } else { "" });
        Labels::from_pairs([
            ("__name__", format!("m{}", i % 50)),
            ("cluster", format!("c{}", i % 3)),
            ("half", half.to_owned()),
            ("node", format!("n{}", pod / 38)),
            ("pod", format!("app-{pod}")),
        ])
    };
    create(&index, &(0..20_000).map(series).collect::<Vec<_>>());
    let narrow = [("__name__", Equal, "m8"), ("node", Equal, "n7")];
    let (found, alone) = work_of(&index, &narrow);
    assert_eq!((found, alone[2]), (38, 0));
    let wide = (0..5_000).map(|i| format!("app-{i}")).collect::<Vec<_>>();
    let wide = wide.join("|");
    let broad = [
        [("cluster", Regex, ".*"), ("pod", Regex, ".*")],
        [("cluster", Regex, ".+"), ("half", Regex, ".+")],
        [("cluster", NotEqual, ""), ("half", NotEqual, "")],
        [("cluster", Regex, "c.*"), ("pod", Regex, "app-.*")],
        [("cluster", Regex, "c0|c1|c2"), ("pod", Regex, &wide)],
        [("cluster", NotRegex, "rare.*"), ("pod", NotRegex, ".*rare")],
        [("cluster", NotEqual, "c7"), ("half", NotRegex, "odd|rare")],
    ];
    for two in broad {
        let (found, with) = work_of(&index, &[narrow, two].concat());
        assert_eq!(found, 38, "{two:?}");
        let [runs, values, series] = [0, 1, 2].map(|i| with[i] - alone[i]);
        assert!(runs <= 4, "{two:?} read {runs} runs more");
        assert!(values <= 6, "{two:?} asked of {values} values more");
        assert!(series <= 38, "{two:?} read {series} series");
    }
    let all: Vec<_> = broad.into_iter().flatten().collect();
    let (found, with) = work_of(&index, &[&narrow[..], &all].concat());
    assert_eq!((found, with[2]), (38, 38));
}

#[test]
fn index_lookup_by_expression_over_many_values_follows_creations_and_removals() {
    for seed in 0..6 {
        let rng = SimRng::new(seed);
        let index = index();
        let mut alive: Vec<(SeriesRef, Labels)> = Vec::new();
        for _ in 0..8 {
            let start = index.published_end();
            let series: Vec<Labels> = (0..1 + rng.next_below(500))
                .map(|i| random_labels(&rng, u64::from(start) + i))
                .collect();
            create(&index, &series);
            alive.extend((start..).map(SeriesRef).zip(series));
            if rng.one_in(3) {
                let gone: BTreeSet<SeriesRef> = alive
                    .iter()
                    .map(|(slot, _)| *slot)
                    .filter(|_| !rng.one_in(4))
                    .collect();
                alive.retain(|(slot, _)| !gone.contains(slot));
                let garbage = index.remove_series(&gone.into_iter().collect::<Vec<_>>());
                assert!(
                    index.free_garbage(garbage).is_none(),
                    "there is no reader, seed {seed}"
                );
            }
            for (op, pattern) in [
                (MatchOp::Regex, ".*7"),
                (MatchOp::Regex, "1[0-4]+"),
                (MatchOp::NotRegex, "1.*"),
                (MatchOp::NotRegex, "[12][0-9]*"),
                (MatchOp::Regex, "(3.*)?"),
            ] {
                let matcher = Matcher::new("id", op, pattern.as_bytes()).unwrap();
                let matching = alive
                    .iter()
                    .filter(|(_, l)| matches(l, std::slice::from_ref(&matcher)));
                let expected: Vec<SeriesRef> = matching.map(|(slot, _)| *slot).collect();
                let found = index.lookup(&[matcher], TimeRange::ALL, &CancelToken::new());
                let found: Vec<SeriesRef> = found.unwrap().slots().collect();
                assert_eq!(found, expected, "{op:?} {pattern}, seed {seed}");
            }
        }
    }
}

#[test]
fn index_lookup_by_expression_over_very_many_values_puts_a_share_in_order_each_time() {
    const SHARE: usize = 1 << 16;
    const COUNT: usize = 2 * SHARE + 5_000;
    let index = index();
    let labels = |i: usize| Labels::from_pairs([("id", format!("{:06}", i * 7 % 1_000_000))]);
    create(&index, &(0..COUNT).map(labels).collect::<Vec<_>>());
    let in_order = |index: &Index| {
        let label = index.dictionary.label("id").unwrap();
        COUNT
            - label
                .dictionary
                .count_regex_candidates(&Regex::new(b"x?").unwrap(), false, COUNT)
                .1
    };
    for (round, sorted) in [SHARE, 2 * SHARE, COUNT, COUNT].into_iter().enumerate() {
        // A different one each time, because a repeated one would be cached.
        let ending = format!("7{round}");
        let matcher = Matcher::new("id", MatchOp::Regex, format!(".*{ending}").as_bytes());
        let found = index.lookup(&[matcher.unwrap()], TimeRange::ALL, &CancelToken::new());
        let ends = |i: &usize| labels(*i).get("id").ends_with(ending.as_bytes());
        assert_eq!(
            found.unwrap().len(),
            (0..COUNT).filter(ends).count(),
            "{ending}"
        );
        assert_eq!(in_order(&index), sorted, "{ending}");
    }
}

#[test]
fn index_lookup_outside_of_a_series_epochs_leaves_it_out() {
    let index = index();
    create(&index, &[Labels::from_pairs([("__name__", "up")])]);
    let lookup = |range| index.lookup(&[], range, &CancelToken::new()).unwrap().len();
    assert_eq!(lookup(TimeRange::new(0, 1)), 1);
    assert_eq!(lookup(TimeRange::new(EPOCH_MS, 9 * EPOCH_MS)), 0);
    index.mark_sample(SeriesRef(0), 3);
    assert_eq!(lookup(TimeRange::new(EPOCH_MS, 9 * EPOCH_MS)), 1);
    assert!(index.drop_epochs_before(4));
    assert_eq!(lookup(TimeRange::ALL), 0);
}

#[test]
fn index_sweep_while_a_reader_holds_the_generation_waits() {
    let index = index();
    create(&index, &[Labels::from_pairs([("__name__", "up")])]);
    let held = index.generation();
    let garbage = index
        .free_garbage(index.remove_series(&[SeriesRef(0)]))
        .unwrap();
    assert_eq!(
        index.dictionary.series_labels(SeriesRef(0)).get("__name__"),
        b"up"
    );
    assert!(
        index
            .lookup(&[], TimeRange::ALL, &CancelToken::new())
            .is_ok()
    );
    drop(held);
    assert!(index.free_garbage(garbage).is_none());
    assert!(index.dictionary.series_labels(SeriesRef(0)).is_empty());
}

#[test]
fn index_series_created_after_skip_keep_their_slots() {
    let index = index();
    let labels = |i: u32| Labels::from_pairs([("__name__", format!("m{i}"))]);
    let slots = [0, 1, 255, 256, 700, 701, 1_024];
    for slot in slots {
        let mut creation = index.create_series();
        creation.reserve_slots_below(slot);
        creation
            .add_series(labels(slot).as_ref(), HeadSeriesPlace(slot + 1))
            .unwrap();
    }
    for slot in 0..1_200 {
        let is_there = slots.contains(&slot);
        let place = SeriesCursor::new(&index.dictionary).place(SeriesRef(slot));
        assert_eq!(
            place,
            is_there.then_some(HeadSeriesPlace(slot + 1)),
            "{slot}"
        );
        assert_eq!(
            index.dictionary.series_labels(SeriesRef(slot)),
            if is_there {
                labels(slot)
            } else {
                Labels::empty()
            }
        );
    }
}

#[test]
fn index_tables_count_series_values_and_bytes() {
    let index = index();
    let labels = |name: &str, le: &str| Labels::from_pairs([("__name__", name), ("le", le)]);
    create(
        &index,
        &[labels("a", "1"), labels("a", "20"), labels("b", "1")],
    );
    let tables = IndexStatusTables::build(&[&index], 1);
    let line = |name: &str, value| vec![(name.to_owned(), value)];
    assert_eq!(tables.series_by_metric, line("a", 2));
    assert_eq!(tables.values_by_label, line("__name__", 2));
    assert_eq!(tables.bytes_by_label, line("le", 4));
    assert_eq!(tables.series_by_pair, line("__name__=a", 2));
    assert_eq!(tables.label_pairs, 4);
}

#[test]
fn status_tables_of_several_indexes_are_those_of_one_with_all_series() {
    let rng = SimRng::new(9);
    let series: Vec<Labels> = (0..400).map(|i| random_labels(&rng, i)).collect();
    let one = index();
    create(&one, &series);
    let several = [index(), index(), index()];
    for (number, index) in several.iter().enumerate() {
        let own = series.iter().skip(number).step_by(3);
        create(index, &own.cloned().collect::<Vec<_>>());
    }
    let sorted = |indexes: &[&Index]| {
        let tables = IndexStatusTables::build(indexes, usize::MAX);
        let mut lists = [
            tables.series_by_metric,
            tables.values_by_label,
            tables.bytes_by_label,
            tables.series_by_pair,
        ];
        // The order of lines with equal numbers is that of creation.
        lists.iter_mut().for_each(|lines| lines.sort());
        (tables.label_pairs, lists)
    };
    assert_eq!(sorted(&[&one]), sorted(&several.each_ref()));
}
