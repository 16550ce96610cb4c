//! Exemplars: through the log, the ring and the file, and through crashes.

use super::*;
use firn_model::env::sim::SimRng;
use firn_model::exemplar::TimedExemplar;
use firn_model::store::ExemplarRequest;

const MINUTE: i64 = 60_000;

fn keeping(max: usize) -> StoreOptions {
    StoreOptions {
        exemplars_max: max,
        // A few batches a segment, so that the log is trimmed all the time.
        log_segment_bytes: 4 << 10,
        ..options()
    }
}

fn push(batch: &mut Batch, id: &str, value: f64, time: i64) {
    batch.push_exemplar(TimedExemplar {
        labels: Labels::from_pairs([("trace_id", id)]).as_ref(),
        value,
        time,
        has_own_time: true,
    });
}

/// A series as remote write sends it: exemplars in a series of their own.
fn add_exemplars(batch: &mut Batch, name: &str, exemplars: &[(f64, i64)]) {
    batch
        .label_bytes()
        .extend_from_slice(labels(name).as_bytes());
    for (value, time) in exemplars {
        push(batch, &format!("{name}-{time}"), *value, *time);
    }
    batch.end_series();
}

/// What is found of `job="test"`, as `name value@time`.
fn found(store: &Store, range: TimeRange) -> Vec<String> {
    let sets = [vec![Matcher::new("job", MatchOp::Equal, b"test").unwrap()]];
    let request = ExemplarRequest {
        tenant: &TenantId::anonymous(),
        sets: &sets,
        range,
        cancel: &Cancel::new(),
    };
    let mut lines = Vec::new();
    for found in Select::exemplars(store, request).unwrap() {
        let name = String::from_utf8_lossy(found.series.get("__name__")).into_owned();
        for exemplar in found.exemplars {
            let id = format!("{name}-{}", exemplar.time);
            assert_eq!(exemplar.labels, Labels::from_pairs([("trace_id", id)]));
            lines.push(format!("{name} {}@{}", exemplar.value, exemplar.time));
        }
    }
    lines
}

fn all(store: &Store) -> Vec<String> {
    found(store, TimeRange::ALL)
}

#[test]
fn exemplars_survive_a_crash_and_a_clean_stop() {
    let sim = sim::env(1);
    let store = open(&sim, keeping(10));
    let mut sent = batch(&[("a", &[(1, 1.0)]), ("b", &[(1, 1.0)])]);
    add_exemplars(&mut sent, "b", &[(0.5, 7), (0.25, 9)]);
    add_exemplars(&mut sent, "a", &[(2.0, 8)]);
    assert_eq!(append(&store, &sent, ALWAYS).stored, 2);
    let wanted = ["a 2@8", "b 0.5@7", "b 0.25@9"];
    assert_eq!(all(&store), wanted);
    assert_eq!(found(&store, TimeRange::new(8, 8)), ["a 2@8"]);
    drop(store);
    sim.disk.crash();
    let store = open(&sim, keeping(10));
    assert_eq!(all(&store), wanted);
    store.close().unwrap();
    drop(store);
    let store = open(&sim, keeping(2));
    assert_eq!(all(&store), ["a 2@8", "b 0.25@9"]);
    store.set_exemplars_max(1);
    assert_eq!(all(&store), ["a 2@8"]);
    assert!(store.takes_exemplars());
    store.set_exemplars_max(0);
    assert!(!store.takes_exemplars());
    assert_eq!(all(&store), [""; 0]);
}

#[test]
fn exemplars_that_cannot_be_kept_are_passed_over() {
    let sim = sim::env(1);
    let store = open(&sim, keeping(10));
    let mut sent = batch(&[("a", &[(HOUR, 1.0)])]);
    push(&mut sent, "of no series", 1.0, 1);
    sent.drop_series();
    add_exemplars(&mut sent, "unknown", &[(1.0, 1)]);
    add_exemplars(&mut sent, "a", &[(1.0, 2), (1.0, 2), (1.0, 1), (0.5, 2)]);
    sent.label_bytes().extend_from_slice(labels("a").as_bytes());
    push(&mut sent, &"x".repeat(200), 1.0, 3);
    sent.end_series();
    // Its only sample is too old, and so the exemplar goes with it.
    sent.label_bytes().extend_from_slice(labels("a").as_bytes());
    sent.push_float(-HOUR, 1.0);
    push(&mut sent, "a-4", 1.0, 4);
    sent.end_series();
    append(&store, &sent, ALWAYS);
    assert_eq!(all(&store), ["a 1@2"]);
    assert_eq!(contents(&store, TimeRange::ALL).len(), 1);
    // Nothing to keep is nothing to log.
    let blocks = store.parts.log.positions().last;
    let mut again = Batch::default();
    add_exemplars(&mut again, "a", &[(1.0, 2)]);
    append(&store, &again, ALWAYS);
    assert_eq!(store.parts.log.positions().last, blocks);
}

#[test]
fn exemplars_without_room_leave_batches_as_they_are() {
    let sim = sim::env(1);
    let store = open(&sim, options());
    let mut sent = batch(&[("a", &[(1, 1.0)])]);
    add_exemplars(&mut sent, "a", &[(1.0, 2)]);
    assert_eq!(append(&store, &sent, ALWAYS).stored, 1);
    assert_eq!(all(&store), [""; 0]);
}

const HOUR: i64 = 60 * MINUTE;

/// Random batches, ticks, crashes and stops beside a list of the newest exemplars.
#[test]
fn exemplars_through_trims_and_crashes_are_the_newest_acked() {
    for seed in 0..10 {
        let rng = SimRng::new(seed);
        let sim = sim::env(seed);
        let max = 1 + rng.below(60) as usize;
        let mut store = open(&sim, keeping(max));
        let mut model: Vec<(String, f64, i64)> = Vec::new();
        let mut now = 0;
        for step in 0..100 {
            now += 1 + rng.below(MINUTE as u64 * 2) as i64;
            let names: Vec<String> = (0..6).map(|i| format!("s{i}")).collect();
            let samples = [(now, step as f64)];
            let series: Vec<_> = names.iter().map(|n| (n.as_str(), &samples[..])).collect();
            let mut sent = batch(&series);
            for name in &names {
                if rng.one_in(3) {
                    let value = rng.below(9) as f64;
                    add_exemplars(&mut sent, name, &[(value, now)]);
                    model.push((name.clone(), value, now));
                }
            }
            append(&store, &sent, ALWAYS);
            let over = model.len().saturating_sub(max);
            model.drain(..over);
            match rng.below(12) {
                0 => {
                    drop(store);
                    sim.disk.crash();
                    store = open(&sim, keeping(max));
                }
                1 => {
                    store.close().unwrap();
                    drop(store);
                    store = open(&sim, keeping(max));
                }
                _ => store.tick(),
            }
            let mut wanted = model.clone();
            wanted.sort_by(|a, b| (&a.0, a.2).cmp(&(&b.0, b.2)));
            let wanted: Vec<_> = wanted
                .iter()
                .map(|(name, value, time)| format!("{name} {value}@{time}"))
                .collect();
            assert_eq!(all(&store), wanted, "seed {seed} step {step}");
        }
    }
}
