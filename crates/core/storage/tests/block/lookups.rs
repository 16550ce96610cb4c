//! Lookups compared with a scan of all label sets.

use crate::fleet::{Written, random_series, write};
use crate::seeds;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim::SimRng;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_storage::page::SampleColumns;
use std::collections::BTreeSet;

const OPS: [MatchOp; 4] = [
    MatchOp::Equal,
    MatchOp::NotEqual,
    MatchOp::Regex,
    MatchOp::NotRegex,
];

fn random_matcher(rng: &SimRng) -> Matcher {
    let names = [
        "__name__", "job", "pod", "le", "Zone", "a b", "id", "none", "zz",
    ];
    let values = [
        "", "node", "metric_1", "metric_2", "pod-3", "pod-12", "1", "0.1", "+Inf", "z0", "other",
    ];
    let patterns = [
        "",
        ".*",
        ".+",
        "metric_.*",
        "metric_[0-3]",
        "pod-1|pod-2|pod-99",
        "pod-1.*",
        "pod-1|",
        "1|10",
        "0\\..*",
        "[0-9a-f]",
        "z.?",
        "(z0|z1)?",
        "no.*",
        "nod.",
        "a{0,3}",
        "[^n].*",
    ];
    let op = OPS[rng.next_below(4) as usize];
    let of = |list: &[&str]| list[rng.next_below(list.len() as u64) as usize].to_owned();
    let value = match op {
        MatchOp::Equal | MatchOp::NotEqual => of(&values),
        MatchOp::Regex | MatchOp::NotRegex => of(&patterns),
    };
    Matcher::new(&of(&names), op, value.as_bytes()).expect("the pattern is sound")
}

/// Returns the series that match, found by a scan of all label sets.
fn expected(written: &Written, matchers: &[Matcher]) -> Vec<u32> {
    let all = written.series.iter().zip(0..);
    let matching =
        all.filter(|((labels, _), _)| matchers.iter().all(|m| m.matches(labels.get(m.name()))));
    matching.map(|(_, ordinal)| ordinal).collect()
}

fn check(written: &Written, rng: &SimRng, rounds: usize, context: &str) {
    let block = written.open();
    let budget = Budget::new("test", usize::MAX);
    for _ in 0..rounds {
        let matchers: Vec<_> = (0..1 + rng.next_below(4))
            .map(|_| random_matcher(rng))
            .collect();
        let wanted = expected(written, &matchers);
        let context = format!("{matchers:?}, {context}");
        let (cancel, mut memory) = (CancelToken::new(), budget.create_reservation());
        let found = block
            .lookup(&matchers, &cancel, &mut memory)
            .expect("the block is sound");
        assert_eq!(found, wanted, "{context}");
        assert_eq!(memory.bytes(), wanted.len() * 4, "{context}");
        let costs = block.explain(&matchers, &cancel, &mut memory);
        let series = costs.expect("sound").into_iter().map(|cost| cost.series);
        let count = |m: &Matcher| expected(written, std::slice::from_ref(m)).len() as u64;
        let counts = matchers.iter().map(|m| Some(count(m)));
        assert_eq!(Vec::from_iter(series), Vec::from_iter(counts), "{context}");
        assert_eq!(memory.bytes(), wanted.len() * 4, "{context}");
        let labels = || wanted.iter().map(|at| &written.series[*at as usize].0);
        let names: BTreeSet<String> = labels()
            .flat_map(|l| l.iter().map(|(n, _)| n.to_owned()))
            .collect();
        let found = block.label_names(&matchers, &cancel, &mut memory);
        assert_eq!(found.expect("sound"), Vec::from_iter(names), "{context}");
        for name in ["__name__", "pod", "id", "none"] {
            let values: BTreeSet<Vec<u8>> = labels()
                .map(|l| l.get(name).to_vec())
                .filter(|value| !value.is_empty())
                .collect();
            let found = block.label_values(name, &matchers, &cancel, &mut memory);
            assert_eq!(
                found.expect("sound"),
                Vec::from_iter(values),
                "{name} of {context}"
            );
        }
    }
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn lookup_of_random_matchers_finds_what_a_look_at_all_finds() {
    for seed in seeds::seeds(60) {
        let rng = SimRng::new(seed);
        let count = [1, 20, 300, 3_000][rng.next_below(4) as usize];
        let written = write(random_series(&rng, 1 + rng.next_below(count), 2));
        check(&written, &rng, 40, &format!("seed {seed}"));
    }
}

#[test]
fn lookup_over_many_units_finds_what_a_look_at_all_finds() {
    let rng = SimRng::new(17);
    let written = write(random_series(&rng, 20_000, 1));
    check(&written, &rng, 60, "many units");
}

#[test]
fn lookup_of_a_value_that_is_not_there_reads_one_unit() {
    let written = write(random_series(&SimRng::new(17), 20_000, 1));
    let block = written.open();
    let is = |name: &str, value: &[u8]| Matcher::new(name, MatchOp::Equal, value).unwrap();
    let matchers = [is("__name__", b"metric_1"), is("id", b"none")];
    let mut memory = Budget::new("test", usize::MAX).create_reservation();
    let before = written.cache.misses.get();
    let found = block
        .lookup(&matchers, &CancelToken::new(), &mut memory)
        .expect("the block is sound");
    assert!(found.is_empty());
    assert_eq!(written.cache.misses.get() - before, 1);
}

#[test]
fn label_values_without_matchers_are_all_in_order() {
    let written = write(random_series(&SimRng::new(2), 5_000, 1));
    let block = written.open();
    let budget = Budget::new("test", usize::MAX);
    let mut memory = budget.create_reservation();
    let all = written.series.iter().map(|(labels, _)| labels);
    for name in ["__name__", "id", "le", "pod", "none"] {
        let values: BTreeSet<&[u8]> = all.clone().map(|l| l.get(name)).collect();
        let wanted: Vec<&[u8]> = values.into_iter().filter(|v| !v.is_empty()).collect();
        let found = block
            .label_values(name, &[], &CancelToken::new(), &mut memory)
            .unwrap();
        assert_eq!(found, wanted, "{name}");
    }
    let names = block
        .label_names(&[], &CancelToken::new(), &mut memory)
        .unwrap();
    assert_eq!(names, ["Zone", "__name__", "a b", "id", "job", "le", "pod"]);
}

#[test]
fn lookup_beyond_its_memory_is_refused() {
    let written = write(random_series(&SimRng::new(2), 5_000, 1));
    let block = written.open();
    let budget = Budget::new("query", 1_000);
    let mut memory = budget.create_reservation();
    let everything = [Matcher::new("job", MatchOp::Equal, b"node").unwrap()];
    let refused = block
        .lookup(&everything, &CancelToken::new(), &mut memory)
        .unwrap_err();
    assert!(
        refused.message.contains("query memory limit reached"),
        "{refused}"
    );
}

#[test]
fn lookup_that_is_canceled_ends() {
    let series = |i: u32| {
        let labels = Labels::from_pairs([("__name__", "m"), ("id", &i.to_string())]);
        let columns = SampleColumns {
            times: vec![1],
            values: vec![0.0],
            ..SampleColumns::default()
        };
        (labels, columns)
    };
    let written = write((0..3_000).map(series).collect());
    let block = written.open();
    let cancel = CancelToken::new();
    cancel.cancel(firn_model::cancel::CancelReason::Canceled);
    let slow = [Matcher::new("id", MatchOp::Regex, b"(.*[0-9])+").unwrap()];
    let mut memory = Budget::new("query", 1 << 20).create_reservation();
    assert!(block.lookup(&slow, &cancel, &mut memory).is_err());
}
