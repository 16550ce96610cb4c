//! Tests of exemplars in log, ring and file, and through crashes.

use super::*;
use firn_model::env::sim::SimRng;
use firn_model::exemplar::TimedExemplar;
use firn_model::store::ExemplarRequest;

const MINUTE: i64 = 60_000;

fn keeping(max: usize) -> StoreOptions {
    StoreOptions {
        exemplars_max: max,
        // A few batches per segment, so that the log is trimmed all the time.
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

/// Adds a series as remote write sends it: exemplars in a separate entry.
pub(super) fn add_exemplars(batch: &mut Batch, name: &str, exemplars: &[(f64, i64)]) {
    batch
        .label_bytes()
        .extend_from_slice(labels(name).as_bytes());
    for (value, time) in exemplars {
        push(batch, &format!("{name}-{time}"), *value, *time);
    }
    batch.end_series();
}

/// Returns the exemplars of `job="test"`, as `name value@time`.
fn found(store: &Store, range: TimeRange) -> Vec<String> {
    let sets = [vec![Matcher::new("job", MatchOp::Equal, b"test").unwrap()]];
    let request = ExemplarRequest {
        tenant: &TenantId::anonymous(),
        sets: &sets,
        range,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
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

pub(super) fn all(store: &Store) -> Vec<String> {
    found(store, TimeRange::ALL)
}

#[test]
fn exemplars_survive_a_crash_and_a_clean_stop() {
    let sim = sim::sim_env(1);
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
    assert!(store.can_store_exemplars());
    store.set_exemplars_max(0);
    assert!(!store.can_store_exemplars());
    assert_eq!(all(&store), [""; 0]);
}

#[test]
fn exemplars_that_cannot_be_kept_are_passed_over() {
    let sim = sim::sim_env(1);
    let store = open(&sim, keeping(10));
    let mut sent = batch(&[("a", &[(HOUR, 1.0)])]);
    push(&mut sent, "of no series", 1.0, 1);
    sent.drop_series();
    add_exemplars(&mut sent, "unknown", &[(1.0, 1)]);
    add_exemplars(&mut sent, "a", &[(1.0, 2), (1.0, 2), (1.0, 1), (0.5, 2)]);
    sent.label_bytes().extend_from_slice(labels("a").as_bytes());
    push(&mut sent, &"x".repeat(200), 1.0, 3);
    sent.end_series();
    // Its only sample is too old, so the exemplar is rejected too.
    sent.label_bytes().extend_from_slice(labels("a").as_bytes());
    sent.push_float(-HOUR, 1.0);
    push(&mut sent, "a-4", 1.0, 4);
    sent.end_series();
    append(&store, &sent, ALWAYS);
    assert_eq!(all(&store), ["a 1@2"]);
    assert_eq!(contents(&store, TimeRange::ALL).len(), 1);
    // If nothing is stored, nothing is logged.
    let blocks = store.parts.log.positions().last;
    let mut again = Batch::default();
    add_exemplars(&mut again, "a", &[(1.0, 2)]);
    append(&store, &again, ALWAYS);
    assert_eq!(store.parts.log.positions().last, blocks);
}

#[test]
fn exemplars_without_room_leave_batches_as_they_are() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    let mut sent = batch(&[("a", &[(1, 1.0)])]);
    add_exemplars(&mut sent, "a", &[(1.0, 2)]);
    assert_eq!(append(&store, &sent, ALWAYS).stored, 1);
    assert_eq!(all(&store), [""; 0]);
}

const HOUR: i64 = 60 * MINUTE;

/// Compares random batches, ticks, crashes and stops with a list of the newest exemplars.
#[test]
fn exemplars_through_trims_and_crashes_are_the_newest_acked() {
    for seed in 0..10 {
        let rng = SimRng::new(seed);
        let sim = sim::sim_env(seed);
        let max = 1 + rng.next_below(60) as usize;
        let mut store = open(&sim, keeping(max));
        let mut model: Vec<(String, f64, i64)> = Vec::new();
        let mut now = 0;
        for step in 0..100 {
            now += 1 + rng.next_below(MINUTE as u64 * 2) as i64;
            let names: Vec<String> = (0..6).map(|i| format!("s{i}")).collect();
            let samples = [(now, step as f64)];
            let series: Vec<_> = names.iter().map(|n| (n.as_str(), &samples[..])).collect();
            let mut sent = batch(&series);
            for name in &names {
                if rng.one_in(3) {
                    let value = rng.next_below(9) as f64;
                    add_exemplars(&mut sent, name, &[(value, now)]);
                    model.push((name.clone(), value, now));
                }
            }
            append(&store, &sent, ALWAYS);
            let over = model.len().saturating_sub(max);
            model.drain(..over);
            match rng.next_below(12) {
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

/// Sends `hours` of data time with a tick per minute: a steady series, and one for each hour with
/// an exemplar every ten minutes.
fn send_hours(store: &Store, hours: std::ops::Range<i64>) {
    for minute in hours.start * 60..hours.end * 60 {
        let now = minute * MINUTE;
        let name = format!("hour{}", minute / 60);
        let mut sent = batch(&[("steady", &[(now, 1.0)]), (&name, &[(now, 1.0)])]);
        if minute % 10 == 0 {
            // Observed before the scrape.
            add_exemplars(&mut sent, &name, &[(0.5, now - 1_000)]);
        }
        append(store, &sent, ALWAYS);
        store.tick();
    }
}

/// Returns the sent exemplars in the form of [`found`].
fn sent_of(hours: std::ops::Range<i64>) -> Vec<String> {
    let mut sent = Vec::new();
    for hour in hours {
        for minute in (0..60).step_by(10) {
            let time = (hour * 60 + minute) * MINUTE - 1_000;
            sent.push((format!("hour{hour}"), time));
        }
    }
    sent.sort();
    let lines = sent.iter().map(|(name, time)| format!("{name} 0.5@{time}"));
    lines.collect()
}

#[test]
fn exemplars_of_series_that_left_the_head_are_found_in_blocks() {
    let sim = sim::sim_env(1);
    let mut store = open(&sim, keeping(1_000));
    send_hours(&store, 0..26);
    assert_eq!(all(&store), sent_of(0..26));
    assert!(store.parts.head.index.series_count() < 9);
    // Merged blocks, not those of the cut.
    let levels = store.parts.blocks.list().blocks;
    assert!(levels.iter().all(|block| block.level > 1), "{levels:?}");
    store.close().unwrap();
    drop(store);
    sim.disk.crash();
    // Exemplars that were only in the ring are gone without it; their series are gone already.
    store = open(&sim, keeping(0));
    let cut = store.parts.blocks.view().cut / HOUR;
    assert_eq!(cut, 24);
    let of_blocks: Vec<_> = sent_of(0..26)
        .into_iter()
        .filter(|line| {
            let time = line.rsplit('@').next().unwrap();
            time.parse::<i64>().unwrap() < cut * HOUR
        })
        .filter(|line| !line.starts_with("hour24"))
        .collect();
    assert_eq!(all(&store), of_blocks);
    let range = TimeRange::new(5 * HOUR, 5 * HOUR + 30 * MINUTE);
    let names = found(&store, range);
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn exemplars_of_a_block_take_memory_of_the_query() {
    let sim = sim::sim_env(1);
    let store = open(&sim, keeping(1_000));
    send_hours(&store, 0..9);
    let sets = [vec![Matcher::new("job", MatchOp::Equal, b"test").unwrap()]];
    let ask = |bytes: usize| {
        let budget = Budget::new("query", bytes);
        let request = ExemplarRequest {
            tenant: &TenantId::anonymous(),
            sets: &sets,
            range: TimeRange::new(0, 2 * HOUR),
            cancel: &CancelToken::new(),
            budget: &budget,
        };
        Select::exemplars(&*store, request).map(|found| found.len())
    };
    assert_eq!(ask(1 << 20).unwrap(), 3);
    assert_eq!(ask(512).unwrap_err().kind, ErrorKind::Limited);
}

#[test]
fn exemplars_of_a_damaged_unit_are_left_out_and_reported() {
    let sim = sim::sim_env(1);
    let store = open(&sim, keeping(1_000));
    send_hours(&store, 0..9);
    let cut = store.parts.blocks.view().cut;
    let block = store.parts.blocks.list().blocks[0].clone();
    let folder = std::path::Path::new("/data/blocks").join(block.id.to_string());
    let paths = super::blocks::indexes_of(&folder);
    drop(store);
    let mut bytes = sim.disk.contents(&paths[0]).unwrap();
    // The only unit of exemplars begins with the labels of the first one.
    let at = bytes.windows(8).position(|w| w == b"hour0--1").unwrap();
    bytes[at] ^= 1;
    // Each index has the unit that is damaged in the other.
    sim.disk.overwrite(&paths[0], &bytes);
    let store = open(&sim, keeping(0));
    assert_eq!(all(&store), sent_of(0..6));
    assert_eq!(store.damages().len(), 1);
    drop(store);
    sim.disk.overwrite(&paths[1], &bytes);
    let store = open(&sim, keeping(0));
    assert_eq!(cut, store.parts.blocks.view().cut);
    assert_eq!(all(&store), sent_of(2..6));
    let damages = store.damages();
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert_eq!(damages[0].range, Some(block.range));
}
