//! Fuzzes segments, COMMITs, checkpoints, keys and the cluster format: decoding terminates, an
//! accepted input encodes to itself, and frames and losses of a segment add up.

#![cfg_attr(fuzzing, no_main)]

use firn_cluster::checkpoint::Checkpoint;
use firn_cluster::cluster_format::ClusterFormat;
use firn_cluster::commit::{BlockState, CommitRecord};
use firn_cluster::ids::{ClusterId, PartitionId, SegmentSequence};
use firn_cluster::object_name::ObjectName;
use firn_cluster::segment::{Segment, SegmentFrameKind, SegmentPlace};

fn segment(bytes: &[u8]) {
    let place = SegmentPlace {
        cluster: ClusterId(1),
        partition: PartitionId(2),
        sequence: SegmentSequence(3),
    };
    let Ok(segment) = Segment::decode(place, bytes) else {
        return;
    };
    assert_eq!(segment.encode(), bytes);
    let mut next = segment.header.first.0;
    for frame in segment.frames() {
        let Ok(frame) = frame else {
            return;
        };
        match frame {
            Ok(frame) => {
                assert_eq!(frame.position.0, next);
                next += 1;
                if frame.kind == SegmentFrameKind::Commit {
                    commit(frame.payload);
                }
            }
            Err(damage) => {
                assert_eq!(damage.first.0, next);
                assert!(damage.count > 0);
                next += damage.count;
            }
        }
    }
    assert_eq!(next, segment.header.end().0);
}

fn commit(bytes: &[u8]) {
    if let Ok(commit) = CommitRecord::decode(bytes) {
        assert_eq!(commit.encode(), bytes);
        let _ = BlockState::default().apply(&commit);
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    segment(bytes);
    commit(bytes);
    if let Ok(checkpoint) = Checkpoint::decode(bytes) {
        assert_eq!(checkpoint.encode(), bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(name) = text.parse::<ObjectName>() {
        assert_eq!(name.to_string(), text);
    }
    if let Ok(format) = ClusterFormat::decode(text) {
        let again = ClusterFormat::decode(&format.encode());
        assert_eq!(again, Ok(format));
    }
});
