//! Tests that the journal restores saved state from complete, torn and damaged files.

use super::*;
use crate::alert::{Alert, AlertState};
use crate::machine::SavedRule;
use firn_model::env::sim;
use firn_model::labels::Labels;
use std::time::Duration;

fn group(name: &str, second: i64, alerts: usize) -> SavedGroup {
    let alert = |i: usize| Alert {
        labels: Labels::from_pairs([("alertname", "A".to_owned()), ("i", i.to_string())]),
        annotations: vec![("summary".into(), String::new())],
        state: AlertState::Firing,
        value: f64::NAN.copysign(-1.0),
        active_at: RuleInstant::from_nanos(-5),
        fired_at: Some(RuleInstant::from_seconds(second)),
        ..Alert::default()
    };
    SavedGroup {
        file: "rules.yml".into(),
        name: name.into(),
        interval: Duration::from_secs(15),
        instant: RuleInstant::from_seconds(second),
        restore_after: 1,
        owed: None,
        rules: vec![SavedRule {
            name: "A".into(),
            labels: [("a".into(), "b".into())].into(),
            is_restored: true,
            is_shown: true,
            alerts: (0..alerts).map(alert).collect(),
        }],
    }
}

/// Formats a group for comparison, so that NaN equals itself.
fn shown(group: Option<SavedGroup>) -> String {
    format!("{group:?}")
}

#[test]
fn journal_keeps_the_newest_state_of_each_group() {
    let world = sim::sim_env(1);
    let dir = Path::new("/rules");
    let open = || RuleJournal::open(world.disk.clone(), dir).unwrap();
    let mut journal = open();
    for second in 1..4 {
        journal.save(&group("a", second, 2)).unwrap();
        journal.save(&group("b", second, 0)).unwrap();
    }
    journal.save(&group("c", 9, 1)).unwrap();
    journal.retain(|key| key != "rules.yml;c").unwrap();
    journal.sync().unwrap();
    for _ in 0..2 {
        let journal = open();
        assert_eq!(
            shown(journal.find("rules.yml", "a")),
            shown(Some(group("a", 3, 2)))
        );
        assert_eq!(
            shown(journal.find("rules.yml", "b")),
            shown(Some(group("b", 3, 0)))
        );
        assert_eq!(journal.find("rules.yml", "c"), None);
    }
}

#[test]
fn journal_whose_writes_fail_says_what_it_said_before() {
    let world = sim::sim_env(1);
    let dir = Path::new("/rules");
    let open = || RuleJournal::open(world.disk.clone(), dir).unwrap();
    let mut journal = open();
    journal.save(&group("a", 1, 1)).unwrap();
    for failing in [true, false] {
        world
            .disk
            .fail_always(sim::SimDiskOperation::Write, failing);
        // The bodies change once here; the first attempt to save them fails.
        for (name, alerts) in [("a", 2), ("new", 1)] {
            let saved = journal.save(&SavedGroup {
                instant: RuleInstant::from_seconds(9),
                ..group(name, 2, alerts)
            });
            assert_eq!(saved.is_err(), failing);
        }
    }
    // Records of other groups after the failed ones are read as well.
    journal.save(&group("b", 3, 1)).unwrap();
    world.disk.kill();
    let journal = open();
    for (name, second, alerts) in [("a", 2, 2), ("new", 2, 1), ("b", 3, 1)] {
        let found = journal.find("rules.yml", name).map(|group| group.rules);
        let want = group(name, second, alerts).rules;
        assert_eq!(format!("{found:?}"), format!("{:?}", Some(want)), "{name}");
    }
}

#[test]
fn journal_with_a_record_of_an_unknown_group_is_read_to_its_end() {
    let mut bytes = MAGIC.to_vec();
    let mut unknown = JournalEncoder(vec![WENT_ON]);
    unknown.write_text("rules.yml;unknown");
    unknown.write_number(7);
    push_record(&mut bytes, &unknown.0);
    let mut body = JournalEncoder::default();
    codec::write_group(&mut body, &group("a", 1, 1));
    let owed = BackfillRange {
        first: RuleInstant::from_seconds(3),
        last: RuleInstant::from_seconds(5),
    };
    let kept = JournaledGroup {
        instant: RuleInstant::from_seconds(1),
        owed: Some(owed),
        body: body.0,
    };
    let mut payload = JournalEncoder::default();
    write_journaled_group(&mut payload, &kept);
    push_record(&mut bytes, &payload.0);
    let groups = replay(&bytes).unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups["rules.yml;a"].owed, Some(owed));
}

#[test]
fn journal_whose_sync_failed_is_written_anew() {
    for seed in 0..20 {
        let world = sim::sim_env(seed);
        let dir = Path::new("/rules");
        let mut journal = RuleJournal::open(world.disk.clone(), dir).unwrap();
        journal.save(&group("a", 1, 2)).unwrap();
        world.disk.fail_after(sim::SimDiskOperation::Sync, 0);
        assert!(journal.sync().is_err(), "seed {seed}");
        journal.save(&group("b", 1, 2)).unwrap();
        journal.sync().unwrap();
        world.disk.crash();
        let journal = RuleJournal::open(world.disk.clone(), dir).unwrap();
        for name in ["a", "b"] {
            let found = shown(journal.find("rules.yml", name));
            assert_eq!(found, shown(Some(group(name, 1, 2))), "seed {seed}");
        }
    }
}

#[test]
fn journal_that_grows_is_rewritten() {
    let world = sim::sim_env(1);
    let mut journal = RuleJournal::open(world.disk.clone(), Path::new("/rules")).unwrap();
    for second in 0..2_000 {
        journal.save(&group("a", second, 5)).unwrap();
        assert!(journal.bytes <= REWRITE_BYTES_MIN + 10_000);
    }
    let journal = RuleJournal::open(world.disk, Path::new("/rules")).unwrap();
    let want = shown(Some(group("a", 1_999, 5)));
    assert_eq!(shown(journal.find("rules.yml", "a")), want);
}

#[test]
fn journal_of_damaged_bytes_ends_before_them() {
    let mut bytes = MAGIC.to_vec();
    for (name, alerts) in [("a", 1), ("b", 2)] {
        let mut body = JournalEncoder::default();
        codec::write_group(&mut body, &group(name, 1, alerts));
        let mut payload = JournalEncoder::default();
        let kept = JournaledGroup {
            instant: RuleInstant::from_seconds(1),
            owed: None,
            body: body.0,
        };
        write_journaled_group(&mut payload, &kept);
        push_record(&mut bytes, &payload.0);
    }
    let all = replay(&bytes).unwrap();
    assert_eq!(all.len(), 2);
    for at in 0..bytes.len() {
        let cut = replay(&bytes[..at]);
        assert_eq!(cut.is_err(), (1..MAGIC.len()).contains(&at), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        match replay(&damaged) {
            Ok(groups) => assert!(groups.len() < 2, "damage at {at} is not seen"),
            Err(_) => assert!(at < MAGIC.len(), "damage at {at}"),
        }
    }
}

#[test]
fn journal_of_bytes_that_lie_is_read_without_panic() {
    let rng = sim::SimRng::new(7);
    for _ in 0..2_000 {
        let length = rng.next_below(80) as usize;
        let mut payload: Vec<u8> = (0..length).map(|_| rng.next_below(256) as u8).collect();
        payload.insert(0, rng.next_below(5) as u8);
        // Zeros make most lengths small, so that decoding gets further.
        for byte in payload.iter_mut().skip(1) {
            *byte = if rng.one_in(3) { *byte } else { 0 };
        }
        let mut bytes = MAGIC.to_vec();
        push_record(&mut bytes, &payload);
        let groups = replay(&bytes).unwrap();
        assert!(groups.len() <= 1);
    }
}
