//! The bytes of segments, COMMITs and checkpoints: golden files, damage, and arbitrary input.
//!
//! `tests/golden/generate.py` writes the files with an encoder that shares no code with this crate.
//! The random test prints its seed; `FIRN_SEED` repeats one and `FIRN_SEEDS` sets their number.

use firn_cluster::checkpoint::Checkpoint;
use firn_cluster::commit::{
    BlockChange, BlockState, CommitMismatch, CommitRecord, CommittedBlock, CommittedBlockKind,
    CommittedFile, ReplayFrom, StateFormatError,
};
use firn_cluster::ids::{ClusterId, Epoch, PartitionId, SegmentSequence, WriterId};
use firn_cluster::object_name::BlockName;
use firn_cluster::segment::{
    HEADER_BYTES, Segment, SegmentBody, SegmentBuilder, SegmentError, SegmentFrameKind,
    SegmentHeader, SegmentKind, SegmentPlace,
};
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use firn_model::tenant::TenantId;

const DATA: &[u8] = include_bytes!("golden/data.segment");
const FENCE: &[u8] = include_bytes!("golden/fence.segment");
const HAND_OFF: &[u8] = include_bytes!("golden/hand-off.segment");
const CHECKPOINT: &[u8] = include_bytes!("golden/checkpoint");

const CLUSTER: ClusterId = ClusterId(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
const WRITER: WriterId = WriterId(0xf0f1_f2f3_f4f5_f6f7_f8f9_fafb_fcfd_feff);

fn place(sequence: u64) -> SegmentPlace {
    SegmentPlace {
        cluster: CLUSTER,
        partition: PartitionId(7),
        sequence: SegmentSequence(sequence),
    }
}

fn block(upload: u64) -> CommittedBlock {
    CommittedBlock {
        name: BlockName {
            tenant: TenantId::new("team-a").expect("the name is valid"),
            block: 1 << 80 | 7,
            upload,
        },
        kind: CommittedBlockKind::Main,
        is_bad: false,
        sequence: 300,
        level: 2,
        range: TimeRange::new(-1, 1_700_000_000_000),
        series: 391,
        samples: 763_000,
        files: vec![
            CommittedFile {
                name: "index".to_owned(),
                bytes: 1_048_576,
            },
            CommittedFile {
                name: "data-000".to_owned(),
                bytes: 7,
            },
        ],
    }
}

fn commit() -> CommitRecord {
    let mut removed = block(0xabd).name;
    removed.tenant = TenantId::anonymous();
    CommitRecord {
        version: 3,
        replay_from: ReplayFrom {
            position: LogPosition(1_000),
            sequence: SegmentSequence(42),
            epoch: Epoch(9),
            writer: WRITER,
        },
        change: BlockChange {
            cut: 1_770_206_400_000,
            late_through: LogPosition(999),
            added: vec![block(0xabc)],
            removed: vec![removed],
        },
    }
}

fn data() -> Segment {
    let mut builder = SegmentBuilder::new(SegmentSequence(42), LogPosition(1_000));
    builder.push(SegmentFrameKind::Record, b"plain");
    builder.push(SegmentFrameKind::DeltaRecord, b"");
    builder.push(SegmentFrameKind::Commit, &commit().encode());
    builder.push(SegmentFrameKind::Barrier, b"");
    let frames = builder.count();
    let (body, body_crc) = builder.finish();
    let header = SegmentHeader {
        cluster: CLUSTER,
        partition: PartitionId(7),
        sequence: SegmentSequence(42),
        kind: SegmentKind::Data,
        epoch: Epoch(9),
        writer: WRITER,
        first: LogPosition(1_000),
        frames,
        unit: SegmentSequence(42),
        body_crc,
    };
    Segment { header, body }
}

fn bare(kind: SegmentKind, sequence: u64) -> Segment {
    let header = SegmentHeader {
        sequence: SegmentSequence(sequence),
        kind,
        first: LogPosition(0),
        frames: 0,
        unit: SegmentSequence(0),
        body_crc: 0,
        ..data().header
    };
    let body = SegmentBody::default();
    Segment { header, body }
}

fn checkpoint() -> Checkpoint {
    let CommitRecord { change, .. } = commit();
    Checkpoint {
        cluster: CLUSTER,
        partition: PartitionId(7),
        epoch: Epoch(9),
        position: LogPosition(1_002),
        state: BlockState {
            version: 3,
            replay_from: commit().replay_from,
            cut: change.cut,
            late_through: change.late_through,
            blocks: change.added,
        },
        catalogue: b"series".to_vec(),
    }
}

#[test]
fn segment_encodes_to_its_golden_file_and_back() {
    let check = |golden: &[u8], segment: Segment| {
        assert_eq!(segment.encode(), golden);
        let place = segment.header.place();
        assert_eq!(Segment::decode(place, golden), Ok(segment));
    };
    check(DATA, data());
    check(FENCE, bare(SegmentKind::Fence, 38));
    check(HAND_OFF, bare(SegmentKind::HandOff, 50));
}

#[test]
fn checkpoint_encodes_to_its_golden_file_and_back() {
    assert_eq!(checkpoint().encode(), CHECKPOINT);
    assert_eq!(Checkpoint::decode(CHECKPOINT), Ok(checkpoint()));
}

#[test]
fn frames_of_a_segment_are_those_that_were_pushed() {
    let segment = Segment::decode(place(42), DATA).expect("an intact segment");
    assert!(segment.is_intact());
    let frames = segment.frames().map(|frame| {
        let frame = frame.expect("a known kind").expect("an intact frame");
        (frame.position.0, frame.kind, frame.payload.to_vec())
    });
    let expected = [
        (1_000, SegmentFrameKind::Record, b"plain".to_vec()),
        (1_001, SegmentFrameKind::DeltaRecord, Vec::new()),
        (1_002, SegmentFrameKind::Commit, commit().encode()),
        (1_003, SegmentFrameKind::Barrier, Vec::new()),
    ];
    assert!(frames.eq(expected));
}

/// Returns a header with other bytes and the right checksum.
fn with_bytes(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut segment = FENCE.to_vec();
    segment[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c::crc32c(&segment[..92]);
    segment[92..].copy_from_slice(&crc.to_le_bytes());
    segment
}

#[test]
fn segment_that_is_not_of_this_version_and_place_is_rejected_with_its_values() {
    let check = |bytes: &[u8], expected: &str| {
        let error = Segment::decode(place(38), bytes).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    };
    check(
        &FENCE[..95],
        "segment of 95 bytes is shorter than its header of 96",
    );
    let mut damaged = FENCE.to_vec();
    damaged[40] ^= 1;
    check(
        &damaged,
        "header of segment of 96 bytes differs from its checksum",
    );
    check(
        &with_bytes(8, &[2, 0, 0, 0, 9]),
        "segment has version 2 and kind 9, expected version 1",
    );
    check(
        &with_bytes(12, &[9]),
        "segment of version 1 has unknown kind 9, expected 1 to 3",
    );
    check(
        &with_bytes(40, &[39]),
        "segment belongs to cluster 000102030405060708090a0b0c0d0e0f, partition 7, number 39",
    );
    check(
        &[FENCE, &[0]].concat(),
        "segment of kind Fence has 0 frames in 97 bytes",
    );
    // A FENCE with frames, and zeros that are not zero.
    let damaged = SegmentError::Damaged { bytes: 96 };
    for bytes in [
        with_bytes(36, &[1]),
        with_bytes(13, &[1]),
        with_bytes(0, b"X"),
    ] {
        assert_eq!(Segment::decode(place(38), &bytes), Err(damaged));
    }
}

/// Reads the frames of DATA with one byte changed, as positions and losses.
fn frames_with_damage_at(at: usize) -> String {
    let mut bytes = DATA.to_vec();
    bytes[HEADER_BYTES + at] ^= 0x40;
    let segment = Segment::decode(place(42), &bytes).expect("an intact header");
    assert!(!segment.is_intact());
    let mut text = Vec::new();
    for frame in segment.frames() {
        text.push(match frame.expect("a known kind") {
            Ok(frame) => frame.position.0.to_string(),
            Err(damage) => format!("-{}x{}", damage.first.0, damage.count),
        });
    }
    text.join(" ")
}

#[test]
fn damaged_byte_costs_the_frame_that_it_hit() {
    let check = |at: usize, expected: &str| assert_eq!(frames_with_damage_at(at), expected);
    // The first frame: header checksum, length, payload.
    check(0, "-1000x1 1001 1002 1003");
    check(8, "-1000x1 1001 1002 1003");
    check(21, "-1000x1 1001 1002 1003");
    // The second frame, which is empty.
    check(26, "1000 -1001x1 1002 1003");
    // The payload of the COMMIT.
    check(26 + 21 + 21, "1000 1001 -1002x1 1003");
    // The last frame.
    check(DATA.len() - HEADER_BYTES - 1, "1000 1001 1002 -1003x1");
}

#[test]
fn cut_segment_keeps_the_frames_before_the_cut() {
    let bytes = &DATA[..HEADER_BYTES + 26 + 5];
    let segment = Segment::decode(place(42), bytes).expect("an intact header");
    let frames: Vec<_> = segment.frames().map(|f| f.expect("a known kind")).collect();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0].map(|frame| frame.position.0), Ok(1_000));
    let damage = frames[1].expect_err("three frames are lost");
    assert_eq!(
        (damage.first.0, damage.count, damage.offset),
        (1_001, 3, 26)
    );
}

#[test]
fn frame_of_unknown_kind_is_an_error_with_its_values() {
    let mut bytes = DATA.to_vec();
    let frame = &mut bytes[HEADER_BYTES..HEADER_BYTES + 21];
    frame[20] = 99;
    let mut covered = [0; 33];
    covered[0] = 42;
    covered[16..].copy_from_slice(&frame[4..]);
    let crc = crc32c::crc32c(&covered);
    frame[..4].copy_from_slice(&crc.to_le_bytes());
    let segment = Segment::decode(place(42), &bytes).expect("an intact header");
    let error = segment
        .frames()
        .next()
        .expect("a frame")
        .expect_err("kind 99");
    assert_eq!(
        error.to_string(),
        "frame at position 1000 of a segment of version 1 has unknown kind 99"
    );
}

#[test]
fn commit_of_another_version_or_length_is_rejected() {
    let mut bytes = commit().encode();
    assert_eq!(CommitRecord::decode(&bytes), Ok(commit()));
    bytes.push(0);
    let damaged = StateFormatError::Damaged { what: "commit" };
    assert_eq!(CommitRecord::decode(&bytes), Err(damaged));
    for len in 0..bytes.len() - 1 {
        assert_eq!(CommitRecord::decode(&bytes[..len]), Err(damaged), "{len}");
    }
    bytes[0] = 2;
    let error = CommitRecord::decode(&bytes).expect_err("version 2");
    assert_eq!(
        error.to_string(),
        "commit has version 2, expected version 1"
    );
}

#[test]
fn block_state_is_the_sum_of_its_commits() {
    let mut state = BlockState::default();
    let step = |version: u64, added: &[u64], removed: &[u64], sequence: u64| CommitRecord {
        version,
        replay_from: ReplayFrom {
            sequence: SegmentSequence(sequence),
            ..commit().replay_from
        },
        change: BlockChange {
            added: added.iter().map(|upload| block(*upload)).collect(),
            removed: removed.iter().map(|upload| block(*upload).name).collect(),
            ..commit().change
        },
    };
    assert_eq!(state.apply(&step(1, &[1, 2], &[], 5)), Ok(()));
    assert_eq!(state.apply(&step(2, &[3], &[1], 5)), Ok(()));
    let before = state.clone();
    let uploads: Vec<u64> = state.blocks.iter().map(|b| b.name.upload).collect();
    assert_eq!(uploads, [2, 3]);
    let mut check = |commit: CommitRecord, expected: CommitMismatch| {
        assert_eq!(state.apply(&commit), Err(expected));
        assert_eq!(state, before);
    };
    let (found, expected) = (4, 3);
    check(
        step(4, &[], &[], 5),
        CommitMismatch::Version { found, expected },
    );
    let (found, limit) = (SegmentSequence(4), SegmentSequence(5));
    check(
        step(3, &[], &[], 4),
        CommitMismatch::ReplayFrom { found, limit },
    );
    check(
        step(3, &[], &[1], 5),
        CommitMismatch::NotListed(block(1).name),
    );
    check(step(3, &[2], &[], 5), CommitMismatch::Listed(block(2).name));
}

#[test]
fn checkpoint_of_another_version_or_damaged_is_rejected() {
    let damaged = StateFormatError::Damaged { what: "checkpoint" };
    for at in 0..CHECKPOINT.len() {
        let mut bytes = CHECKPOINT.to_vec();
        bytes[at] ^= 1;
        assert_eq!(Checkpoint::decode(&bytes), Err(damaged), "{at}");
        assert_eq!(Checkpoint::decode(&CHECKPOINT[..at]), Err(damaged), "{at}");
    }
    let mut bytes = CHECKPOINT.to_vec();
    bytes[8] = 2;
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    let error = Checkpoint::decode(&bytes).expect_err("version 2");
    assert_eq!(
        error.to_string(),
        "checkpoint has version 2, expected version 1"
    );
}

/// The generator of numbers of Marsaglia, "Xorshift RNGs", 2003.
fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

#[test]
fn damaged_bytes_never_decode_to_other_frames() {
    let number = |name: &str, default: u64| {
        let value = std::env::var(name).ok();
        value.map_or(default, |text| text.parse().expect("a number"))
    };
    let first = number("FIRN_SEED", 1);
    for seed in first..first + number("FIRN_SEEDS", 500) {
        println!("FIRN_SEED={seed}");
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut bytes = DATA.to_vec();
        for _ in 0..1 + random(&mut state) % 8 {
            let at = HEADER_BYTES + random(&mut state) % (DATA.len() - HEADER_BYTES);
            bytes[at] = random(&mut state) as u8;
        }
        let len = HEADER_BYTES + 1 + random(&mut state) % (DATA.len() - HEADER_BYTES);
        let segment = Segment::decode(place(42), &bytes[..len]).expect("an intact header");
        let intact = data();
        let expected: Vec<_> = intact.frames().map(|f| f.expect("a known kind")).collect();
        let mut next = 1_000;
        for frame in segment.frames() {
            match frame.expect("a known kind") {
                Ok(frame) => {
                    assert_eq!(frame.position.0, next);
                    assert_eq!(Ok(frame), expected[(next - 1_000) as usize]);
                    next += 1;
                }
                Err(damage) => {
                    assert_eq!(damage.first.0, next);
                    next += damage.count;
                }
            }
        }
        assert_eq!(next, 1_004, "frames and losses add up");
    }
}
