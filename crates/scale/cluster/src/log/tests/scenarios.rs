//! The scenarios that the model searches, and the flaws that it must find.
//!
//! `FIRN_MODEL=large` searches larger ones too, for minutes. `FIRN_TRACE=1` prints the shortest way
//! to each violation: one move per line, with the log after it.
// Figures and traces are for the terminal.
#![allow(clippy::print_stdout)]

use super::moves::Scenario;
use super::search::{Found, search};
use crate::log::LogFlaw;

/// Two processes with leases, without COMMITs; a create may be late.
const SMALL: Scenario = Scenario {
    processes: 2,
    keys: 5,
    window: 2,
    records: 1,
    commits: 0,
    crashes: 0,
    hand_offs: 0,
    takeovers: u8::MAX,
    late: 1,
    losses: 0,
    is_leased: true,
    has_reads: true,
    is_brief: true,
    is_replay_slow: false,
    covers_all: true,
    begin: &[],
    flaw: None,
};

/// Two records, no late create.
const RECORDS: Scenario = Scenario {
    records: 2,
    late: 0,
    ..SMALL
};

/// A COMMIT with its checkpoint and trim.
const COMMIT: Scenario = Scenario {
    keys: 6,
    commits: 1,
    late: 0,
    ..SMALL
};

const HAND_OFF: Scenario = Scenario {
    keys: 8,
    hand_offs: 1,
    late: 0,
    ..SMALL
};

const NO_LEASE: Scenario = Scenario {
    is_leased: false,
    ..SMALL
};

const THREE: Scenario = Scenario {
    processes: 3,
    late: 0,
    ..SMALL
};

/// A replay during which others take over and trim the log, and one that slept before its create.
const SLOW_REPLAY: Scenario = Scenario {
    processes: 3,
    keys: 5,
    window: 1,
    crashes: 1,
    takeovers: 4,
    is_leased: false,
    has_reads: false,
    is_replay_slow: true,
    begin: &[
        "0 takes over",
        "ReadState of 0",
        "create 1 of 0: stored",
        "ReadState of 0",
        "2 takes over",
        "ReadState of 2",
        "0 appends record 0",
        "create 2 of 0: stored",
        "1 takes over",
        "ReadState of 1",
        "create 3 of 1: stored",
        "ReadState of 1",
    ],
    ..COMMIT
};

/// A leader whose create is stored, while the reply is lost.
const LOST_REPLY: Scenario = Scenario {
    keys: 7,
    records: 2,
    takeovers: 2,
    begin: &[
        "0 takes over",
        "ReadState of 0",
        "create 1 of 0: stored",
        "ReadState of 0",
        "time passes",
        "0 appends record 0",
        "create 3 of 0: stored, timeout",
    ],
    ..COMMIT
};

/// More than any scenario has, so that a search ends. A state that waits takes about a kilobyte.
const STATES_MAX: usize = 3_000_000;
const LARGE_STATES_MAX: usize = 16_000_000;

fn run(name: &str, scenario: &Scenario) -> Found {
    let is_large = std::env::var_os("FIRN_MODEL").is_some_and(|value| value == "large");
    let states_max = if is_large {
        LARGE_STATES_MAX
    } else {
        STATES_MAX
    };
    let found = search(scenario, states_max);
    println!(
        "{name}: {} states, depth {}, {} with two leaders: {}",
        found.states,
        found.depth,
        found.two_leaders,
        found.violation.as_ref().map_or("no violation", |v| &v.0)
    );
    if let Some((_, trace)) = &found.violation
        && std::env::var_os("FIRN_TRACE").is_some()
    {
        println!("{trace}");
    }
    found
}

/// Searches a scenario in which no invariant may break. It must reach states with two leaders.
fn check(name: &str, scenario: &Scenario) {
    let found = run(name, scenario);
    if let Some((text, trace)) = found.violation {
        panic!("{name}: {text}\n{trace}");
    }
    assert!(found.two_leaders > 1_000, "{name}: {found:?}");
}

#[test]
fn model_of_small_clusters_keeps_all_promises() {
    check("late creates", &Scenario { keys: 7, ..SMALL });
    check("lost creates", &Scenario { losses: 1, ..SMALL });
    check("records", &Scenario { keys: 6, ..RECORDS });
    check(
        "wide window",
        &Scenario {
            keys: 7,
            window: 3,
            ..RECORDS
        },
    );
    check(
        "slow replies",
        &Scenario {
            keys: 6,
            is_brief: false,
            ..SMALL
        },
    );
    check(
        "commit, crash",
        &Scenario {
            keys: 5,
            crashes: 1,
            ..COMMIT
        },
    );
    check("commit, trim", &COMMIT);
    check("handoff", &HAND_OFF);
    check("slow replay", &SLOW_REPLAY);
    check(
        "no leases",
        &Scenario {
            is_leased: false,
            ..RECORDS
        },
    );
    check("three processes", &Scenario { keys: 4, ..THREE });
}

#[test]
fn model_of_larger_clusters_keeps_all_promises() {
    if std::env::var_os("FIRN_MODEL").is_none_or(|value| value != "large") {
        return;
    }
    check(
        "no leases",
        &Scenario {
            is_leased: false,
            keys: 6,
            ..RECORDS
        },
    );
    check("three processes", &THREE);
    check(
        "commit, late creates",
        &Scenario {
            keys: 5,
            late: 1,
            ..COMMIT
        },
    );
    check(
        "commit, slow replies",
        &Scenario {
            is_brief: false,
            ..COMMIT
        },
    );
    check(
        "commit, crash",
        &Scenario {
            keys: 7,
            crashes: 1,
            ..COMMIT
        },
    );
    check(
        "commits",
        &Scenario {
            keys: 7,
            commits: 2,
            ..COMMIT
        },
    );
    check(
        "commit, records",
        &Scenario {
            keys: 7,
            records: 2,
            ..COMMIT
        },
    );
    check(
        "commit, handoff",
        &Scenario {
            keys: 7,
            hand_offs: 1,
            ..COMMIT
        },
    );
    check(
        "commit, no leases",
        &Scenario {
            is_leased: false,
            ..COMMIT
        },
    );
    check(
        "commit, wide window",
        &Scenario {
            keys: 7,
            window: 3,
            ..COMMIT
        },
    );
    check(
        "handoff, late creates",
        &Scenario {
            keys: 7,
            late: 1,
            ..HAND_OFF
        },
    );
    check(
        "handoff, three processes",
        &Scenario {
            keys: 7,
            hand_offs: 1,
            ..THREE
        },
    );
    check(
        "three processes, late creates",
        &Scenario { late: 1, ..THREE },
    );
    check(
        "three processes, commit",
        &Scenario {
            keys: 5,
            commits: 1,
            takeovers: 3,
            ..THREE
        },
    );
    check(
        "no leases, slow replies",
        &Scenario {
            keys: 6,
            is_brief: false,
            ..NO_LEASE
        },
    );
    check(
        "crashes, late creates",
        &Scenario {
            keys: 7,
            crashes: 2,
            ..SMALL
        },
    );
}

/// The smallest scenario in which a flaw breaks an invariant.
fn scenario_of(flaw: LogFlaw) -> Scenario {
    match flaw {
        LogFlaw::AcksBeforePrefix | LogFlaw::ProbesEndAgain | LogFlaw::ReplaysVoid => RECORDS,
        LogFlaw::AcksBeforeCreate | LogFlaw::ExistsIsStored => SMALL,
        LogFlaw::ExistsIsFenced | LogFlaw::OmitsWriter => SMALL,
        LogFlaw::ReusesVoid | LogFlaw::OmitsWait => SMALL,
        LogFlaw::OmitsEpoch => SLOW_REPLAY,
        LogFlaw::DeletesFences
        | LogFlaw::OmitsSecondRead
        | LogFlaw::ReplaysFromFirstRead
        | LogFlaw::TrimsBeforeCheckpoint
        | LogFlaw::ChecksInBeforePrefix => COMMIT,
        LogFlaw::KeepsStaleFence => Scenario {
            keys: 5,
            records: 2,
            ..COMMIT
        },
        LogFlaw::LowersReplayFrom => Scenario {
            commits: 2,
            covers_all: false,
            ..COMMIT
        },
        LogFlaw::ReadsBeforeWait | LogFlaw::LeasesFromEnd => Scenario { keys: 6, ..RECORDS },
        LogFlaw::LeasesFromRepeat => LOST_REPLY,
        LogFlaw::LeasesBeforePrefix => Scenario {
            records: 3,
            ..RECORDS
        },
        LogFlaw::HeadCoversLaterReads => Scenario {
            late: 0,
            ..NO_LEASE
        },
        LogFlaw::HeadCountsGrantedReads => Scenario {
            is_leased: false,
            keys: 6,
            ..RECORDS
        },
        LogFlaw::HandsOffBeforeWait | LogFlaw::ReadsWhileHandingOff | LogFlaw::TrustsOldHandOff => {
            HAND_OFF
        }
    }
}

#[test]
fn model_finds_each_planted_flaw() {
    let flaws = [
        LogFlaw::AcksBeforePrefix,
        LogFlaw::AcksBeforeCreate,
        LogFlaw::ExistsIsStored,
        LogFlaw::ExistsIsFenced,
        LogFlaw::OmitsWriter,
        LogFlaw::OmitsEpoch,
        LogFlaw::DeletesFences,
        LogFlaw::OmitsSecondRead,
        LogFlaw::ReplaysFromFirstRead,
        LogFlaw::KeepsStaleFence,
        LogFlaw::ProbesEndAgain,
        LogFlaw::ReplaysVoid,
        LogFlaw::ReusesVoid,
        LogFlaw::TrimsBeforeCheckpoint,
        LogFlaw::ChecksInBeforePrefix,
        LogFlaw::LowersReplayFrom,
        LogFlaw::OmitsWait,
        LogFlaw::ReadsBeforeWait,
        LogFlaw::LeasesFromEnd,
        LogFlaw::LeasesFromRepeat,
        LogFlaw::LeasesBeforePrefix,
        LogFlaw::HeadCoversLaterReads,
        LogFlaw::HeadCountsGrantedReads,
        LogFlaw::HandsOffBeforeWait,
        LogFlaw::ReadsWhileHandingOff,
        LogFlaw::TrustsOldHandOff,
    ];
    for flaw in flaws {
        let scenario = Scenario {
            flaw: Some(flaw),
            ..scenario_of(flaw)
        };
        let found = run(&format!("{flaw:?}"), &scenario);
        assert!(
            found.violation.is_some(),
            "the model does not find {flaw:?}"
        );
    }
}
