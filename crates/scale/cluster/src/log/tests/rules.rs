//! Single rules of the log core, as diaries; [`super::diary`] has the commands.

use super::diary::Diary;
use crate::ids::{SegmentSequence, WriterId};
use crate::log::LogRequest;
use crate::segment::{Segment, SegmentBody, SegmentHeader};

/// Runs a script with leases of 100 ms and compares the actions, after those of the last `;`.
#[track_caller]
fn check(script: &str, expected: &str) {
    check_with(100, script, expected);
}

#[track_caller]
fn check_with(lease_ms: u64, script: &str, expected: &str) {
    let mut diary = Diary::new(lease_ms);
    let (before, last) = script.rsplit_once("; ").unwrap_or(("at 0", script));
    diary.run(&before.replace("; ", " | "));
    assert_eq!(diary.run(last), expected, "{script}");
}

#[test]
fn takeover_of_an_empty_log_leads_and_acknowledges_after_its_wait() {
    check("take 1", "fence 1:0 | replay 0 | lead 1 from 1");
    check("take 1; append 7 | at 10", "data 3:1");
    check("take 1; append 7 | at 10; at 100", "");
    check("take 1; append 7 | at 10; at 101", "ack 7@1");
    check(
        "take 1; at 101; append 7 | append 8 | at 111",
        "data 3:2 | ack 7@1,8@2",
    );
}

#[test]
fn takeover_replays_and_continues_behind_the_void_keys() {
    let expected = "fence 5:0 | replay 0 | 1=7 | 2=8 | lead 2 from 3";
    check("take 1; large 7 | large 8; take 2", expected);
    let append = "take 1; large 7 | large 8; take 2; large 9 | at 101";
    check(append, "data 7:1 | ack 9@3");
}

#[test]
fn records_wait_for_others_until_they_are_due() {
    check("take 1; at 101; append 7 | at 110", "");
    check("take 1; at 101; append 7 | at 111", "data 3:1 | ack 7@1");
    check(
        "take 1; at 101; append 7 | large 8",
        "data 3:2 | ack 7@1,8@2",
    );
    let unit = "take 1; at 101; append 7 | unit 8 | at 111";
    check(unit, "data 3:1 | ack 7@1 | data 4:1 | ack 8@2");
}

#[test]
fn append_beyond_the_queue_is_rejected() {
    let full = "take 1; at 101; hold | large 1 | large 2 | large 3 | large 4 | large 5";
    check(&format!("{full}; large 6"), "QueueFull 6");
    let expected = "data 3:1 | ack 1@1 | data 4:1 | ack 2@2 | data 5:1 | ack 3@3 \
        | data 6:1 | ack 4@4 | data 7:1 | ack 5@5";
    check(&format!("{full}; large 6; go"), expected);
}

#[test]
fn append_is_acknowledged_when_all_before_it_are_stored() {
    let two = "take 1; at 101; hold | large 1 | large 2";
    check(&format!("{two}; created 4 stored"), "");
    check(
        &format!("{two}; created 4 stored; created 3 stored"),
        "ack 1@1,2@2",
    );
}

#[test]
fn uncertain_create_is_resolved_by_the_header() {
    let one = "take 1; at 101; hold | large 1";
    // Absent: created again. Own: stored. Another: fenced.
    check(
        &format!("{one}; created 3 ambiguous; go"),
        "data 3:1 | ack 1@1",
    );
    check(
        &format!("{one}; created 3 refused; go"),
        "data 3:1 | ack 1@1",
    );
    let mut diary = Diary::new(100);
    diary.run("take 1 | at 101 | hold | large 1");
    let LogRequest::Create(segment) = diary.requests[0].clone() else {
        panic!("a create is waiting");
    };
    diary.objects.insert(SegmentSequence(3), segment.encode());
    assert_eq!(diary.run("created 3 ambiguous | go"), "ack 1@1");
    let other = Segment {
        header: SegmentHeader {
            writer: WriterId(2),
            ..segment.header
        },
        body: segment.body,
    };
    diary.objects.insert(SegmentSequence(4), other.encode());
    let expected = "Unknown 2 | down: another writer created segment 4";
    assert_eq!(diary.run("large 2"), expected);
}

#[test]
fn calls_of_a_process_that_does_not_lead_are_rejected() {
    let calls = "append 1 | barrier 2 | commit 3 0 | read 4 | off | saved_nothing";
    let calls = calls.trim_end_matches(" | saved_nothing");
    let expected = "NotLeading 1 | NotLeading 2 | NotLeading 3 | refuse 4";
    check(calls, expected);
}

#[test]
fn strong_reads_need_a_lease_that_begins_with_a_create_or_a_head() {
    check("take 1; read 1", "");
    check("take 1; read 1; at 101", "grant 1");
    // The HEAD of the first read began at 101, the lease ends at 201.
    check("take 1; read 1 | at 101; hold | read 2 | at 200", "grant 2");
    check("take 1; read 1 | at 101; hold | at 201 | read 2", "");
    check(
        "take 1; read 1 | at 101; hold | at 201 | read 2; go",
        "grant 2",
    );
    // A create that began at 150.
    check(
        "take 1; at 150; large 7 | hold | at 249 | read 1",
        "data 3:1 | ack 7@1 | grant 1",
    );
    check(
        "take 1; at 150; large 7 | hold | at 250 | read 1",
        "data 3:1 | ack 7@1",
    );
    // While a create is in flight, it is the one that confirms.
    check(
        "take 1; at 150; hold | read 1 | large 7 | at 300 | read 2; go",
        "grant 1 | data 3:1 \
        | ack 7@1 | grant 2",
    );
}

#[test]
fn strong_reads_without_leases_need_a_head_that_begins_later() {
    check_with(0, "take 1; read 1", "grant 1");
    check_with(0, "take 1; hold | read 1 | read 2; go", "grant 1 | grant 2");
    let fenced = "take 1; hold | read 1";
    let mut diary = Diary::new(0);
    diary.run(&fenced.replace("; ", " | "));
    diary.objects.insert(SegmentSequence(3), Vec::new());
    let expected = "refuse 1 | down: another writer created segment 3";
    assert_eq!(diary.run("go"), expected);
}

#[test]
fn handoff_writes_the_queue_and_spares_the_wait() {
    let off = "take 1; at 101; append 7 | hold | read 1 | off | append 8 | read 2";
    check(off, "refuse 1 | NotLeading 8 | refuse 2");
    let done = "data 3:1 | ack 7@1 | handoff 4:0 | down: handed off";
    check(&format!("{off}; go"), done);
    let next = "fence 5:0 | replay 0 | 1=7 | lead 2 from 2 | data 7:1 | ack 9@2";
    check(&format!("{off}; go; take 2 | large 9"), next);
    // A leader that still waits hands off later.
    check("take 1; off | at 100", "");
    check(
        "take 1; off | at 100; at 101",
        "handoff 3:0 | down: handed off",
    );
}

#[test]
fn trim_deletes_data_before_the_unit_that_blocks_do_not_contain() {
    let units = "take 1; at 101; large 1 | unit 2 | large 3 | unit 4 | at 111";
    let commit = format!("{units}; commit 5 4 | at 121");
    // Blocks contain the records before position 4: the units of segments 3 and 4.
    check(&commit, "data 6:1 | checkpoint 5 | ack 5@5");
    check(&format!("{commit}; saved 5"), "delete 3,4");
    let next = "drop 3 | drop 4 | take 2";
    let expected = "fence 7:0 | replay 5 | 4=4 | 5=1 | lead 2 from 6";
    check(&format!("{commit}; saved 5; {next}"), expected);
    // A later COMMIT that contains less does not lower the begin of replays.
    let less = "commit 6 1 | at 131; saved 6";
    check(&format!("{commit}; saved 5; {less}"), "");
}

#[test]
fn log_without_the_segments_that_a_checkpoint_needs_ends_the_takeover() {
    let units = "take 1; at 101; large 1 | unit 2 | large 3 | unit 4 | at 111";
    let trimmed = format!("{units}; commit 5 4 | at 121; saved 5; drop 3 | drop 4");
    let gap = "is missing or does not follow the one before it";
    // Replays begin at segment 5, the COMMIT is in segment 6.
    check(
        &format!("{trimmed} | drop 5 | drop 6 | take 2"),
        &format!("down: segment 5 {gap}"),
    );
    check(
        &format!("{trimmed} | drop 6 | take 2"),
        &format!("fence 6:0 | replay 5 | 4=4 | down: segment 6 {gap}"),
    );
    // The positions of lost records are not used again.
    let lost = "segment { sequence: segmentsequence(6), bytes: ";
    let mut diary = Diary::new(100);
    diary.run(&format!("{trimmed} | header 6").replace("; ", " | "));
    let text = diary.run("take 2");
    assert!(text.contains(lost), "{text}");
    assert!(text.ends_with("| lead 2 from 6"), "{text}");
}

#[test]
fn damage_costs_records_and_an_unknown_version_ends_the_takeover() {
    let log = "take 1; at 101; large 7 | large 8";
    let replay = "fence 5:0 | replay 0";
    let lost = "frames { sequence: segmentsequence(3), damage: framedamage { \
        first: logposition(1), count: 1, offset: 0 } }";
    check(
        &format!("{log}; damage 3 | take 2"),
        &format!("{replay} | {lost} | 2=8 | lead 2 from 3"),
    );
    check(
        &format!("{log}; header 3 | take 2"),
        &format!(
            "{replay} | segment {{ sequence: segmentsequence(3), bytes: 217 }} | 2=8 | lead 2 from 3"
        ),
    );
    let unknown = "segment has version 7 and kind 1, expected version 1";
    check(
        &format!("{log}; version 4 | take 2"),
        &format!("{replay} | 1=7 | down: segment 4: {unknown}"),
    );
    // A FENCE cannot be judged, so nothing is created behind it.
    check(
        &format!("{log}; header 1 | take 2"),
        "down: segment 1: header of segment of 96 bytes differs from its checksum",
    );
}

#[test]
fn log_with_a_gap_ends_the_takeover() {
    let log = "take 1; at 101; large 7 | large 8";
    let mut diary = Diary::new(100);
    diary.run(&log.replace("; ", " | "));
    // The segment vanishes after it was listed.
    diary.run("hold | take 2");
    for _ in 0..2 {
        let request = diary.requests.pop_front().expect("a request");
        let reply = diary.answer(request);
        diary.reply(reply);
    }
    diary.objects.remove(&SegmentSequence(4));
    let expected = "fence 5:0 | replay 0 | 1=7 \
        | down: segment 4 is missing or does not follow the one before it";
    assert_eq!(diary.run("go"), expected);
}

#[test]
fn log_with_a_gap_before_listed_segments_gets_no_fence() {
    let log = "take 1; at 101; large 1 | large 2 | large 3 | large 4";
    let gap = "down: segment 4 is missing or does not follow the one before it";
    check(&format!("{log}; drop 4 | take 2"), gap);
    // Less than a window is missing: the segments behind it may have been in flight.
    let expected = "fence 5:0 | replay 0 | 1=1 | 2=2 | lead 2 from 3";
    check(&format!("{log}; drop 5 | take 2"), expected);
}

#[test]
fn stale_fence_within_a_replay_does_not_end_it() {
    let mut diary = Diary::new(100);
    diary.run("take 1 | at 101 | large 7 | large 8 | hold | take 2");
    for _ in 0..5 {
        let request = diary.requests.pop_front().expect("a request");
        let reply = diary.answer(request);
        diary.reply(reply);
    }
    assert_eq!(diary.run("hold"), "fence 5:0 | replay 0");
    // A later leader deleted segments 3 and 4, and a process that slept created its FENCE there.
    let fence = diary.objects[&SegmentSequence(5)].clone();
    let fence = SegmentHeader::decode(diary.options.place(SegmentSequence(5)), &fence);
    let header = SegmentHeader {
        sequence: SegmentSequence(3),
        writer: WriterId(9),
        ..fence.expect("the FENCE of writer 2")
    };
    let body = SegmentBody::default();
    diary
        .objects
        .insert(SegmentSequence(3), Segment { header, body }.encode());
    let expected = "down: segment 5 is missing or does not follow the one before it";
    assert_eq!(diary.run("go"), expected);
}
