//! Checkpoints on a disk that is nearly full.

use super::*;

const MIB: u64 = 1 << 20;

/// A store that owes a checkpoint after its first batch.
fn store_with_a_batch(sim: &Sim) -> Arc<Store> {
    let eager = StoreOptions {
        checkpoint_log_bytes: 0,
        ..options()
    };
    let store = open(sim, eager);
    append(&store, &batch(&[("a", &[(1, 1.0)])]), ALWAYS);
    store
}

/// Failed and written checkpoints.
fn outcomes(store: &Store) -> (u64, bool) {
    let failures = store.metrics.checkpoint_failures.get();
    (failures, store.metrics.checkpoint_bytes.get() > 0)
}

#[test]
fn checkpoint_that_would_eat_the_reserve_of_the_log_waits_and_tries_again_later() {
    let sim = sim::env(1);
    let store = store_with_a_batch(&sim);
    sim.disk.set_free_bytes(128 * MIB - 1);
    store.tick();
    store.tick();
    assert_eq!(outcomes(&store), (1, false));
    sim.disk.set_free_bytes(129 * MIB);
    store.tick();
    assert_eq!(outcomes(&store), (1, false), "it pauses after a failure");
    sim.clock.advance_ms(60_000);
    store.tick();
    assert_eq!(outcomes(&store), (1, true));
}

#[test]
fn checkpoint_of_a_log_that_refuses_takes_half_of_the_reserve() {
    let sim = sim::env(1);
    let store = open(&sim, options());
    sim.disk.set_free_bytes(100 * MIB);
    let mut is_refused = false;
    for time in 0..1_000 {
        let one = batch(&[("a", &[(time, 1.0)])]);
        is_refused |= store
            .append(&TenantId::anonymous(), &one, ALWAYS)
            .wait()
            .is_err();
    }
    assert!(is_refused);
    store.tick();
    assert_eq!(outcomes(&store), (0, true));
}
