//! Tests of writes that arrive faster than they are sealed.

use super::*;

fn send(store: &Store, time: i64) -> Result<AppendOutcome, firn_model::error::Error> {
    let batch = batch(&[("a", &[(time, time as f64)]), ("b", &[(time, 0.5)])]);
    store.append(&TenantId::anonymous(), &batch, ALWAYS).wait()
}

#[test]
fn writes_that_sealing_lags_behind_are_refused_until_it_caught_up() {
    let sim = sim::sim_env(1);
    let short = StoreOptions {
        log_segment_bytes: 200,
        backlog_bytes_max: 2_000,
        ..options()
    };
    let store = open(&sim, short.clone());
    let mut stored = Vec::new();
    let mut time = 0;
    for round in 1..=3 {
        let refusal = loop {
            time += 1;
            match send(&store, time) {
                Ok(_) => stored.push(time),
                Err(e) => break e,
            }
        };
        assert_eq!(refusal.kind, ErrorKind::Unavailable);
        let start = "sealing is behind: ";
        assert!(refusal.message.starts_with(start), "{}", refusal.message);
        assert_eq!(store.parts.metrics.backlog_refusals.get(), round);
        assert!(store.parts.log.pressure().kept_bytes < 2_600);
        // No window has ended; nevertheless the tick frees space.
        store.tick();
        assert!(store.parts.log.pressure().kept_bytes < 1_100);
    }
    assert!(stored.len() > 3, "{stored:?}");
    let held = |store: &Store| -> Vec<i64> {
        let all = contents(store, TimeRange::ALL);
        all[0].1.iter().map(|(time, _)| *time).collect()
    };
    assert_eq!(held(&store), stored);
    drop(store);
    sim.disk.crash();
    assert_eq!(held(&open(&sim, short)), stored);
}
