//! The initial corpus of the target `segment`: one input of each kind that it decodes.

use firn_cluster::checkpoint::Checkpoint;
use firn_cluster::cluster_format::{ClusterFormat, LogEngine};
use firn_cluster::commit::{
    BlockChange, BlockState, CommitRecord, CommittedBlock, CommittedBlockKind, CommittedFile,
    ReplayFrom,
};
use firn_cluster::ids::{ClusterId, Epoch, PartitionId, SegmentSequence, WriterId};
use firn_cluster::object_name::{BlockName, ObjectName};
use firn_cluster::segment::{
    Segment, SegmentBody, SegmentBuilder, SegmentFrameKind, SegmentHeader, SegmentKind,
};
use firn_model::fingerprint::{FingerprintSeed, HashKind};
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use firn_model::tenant::TenantId;
use std::num::NonZeroU32;

const HEADER: SegmentHeader = SegmentHeader {
    cluster: ClusterId(1),
    partition: PartitionId(2),
    sequence: SegmentSequence(3),
    kind: SegmentKind::Fence,
    epoch: Epoch(4),
    writer: WriterId(5),
    first: LogPosition(0),
    frames: 0,
    unit: SegmentSequence(0),
    body_crc: 0,
};

/// Returns a segment of each kind, a COMMIT, a checkpoint, keys and a cluster format.
pub fn all() -> Vec<Vec<u8>> {
    let block = block();
    let key = ObjectName::Block {
        partition: HEADER.partition,
        block: block.name.clone(),
        file: "index".to_owned(),
    };
    let commit = CommitRecord {
        version: 1,
        replay_from: ReplayFrom::BEGIN,
        change: BlockChange {
            cut: 1_000,
            late_through: LogPosition(9),
            added: vec![block.clone()],
            removed: vec![block.name.clone()],
        },
    };
    let checkpoint = Checkpoint {
        cluster: HEADER.cluster,
        partition: HEADER.partition,
        epoch: HEADER.epoch,
        position: LogPosition(11),
        state: BlockState {
            blocks: vec![block],
            ..BlockState::default()
        },
        catalogue: b"series".to_vec(),
    };
    vec![
        data(&commit.encode()),
        bare(SegmentKind::Fence),
        bare(SegmentKind::HandOff),
        commit.encode(),
        checkpoint.encode(),
        key.to_string().into_bytes(),
        format().into_bytes(),
    ]
}

fn data(commit: &[u8]) -> Vec<u8> {
    let mut builder = SegmentBuilder::new(HEADER.sequence, LogPosition(10));
    builder.push(SegmentFrameKind::Record, b"plain");
    builder.push(SegmentFrameKind::Commit, commit);
    builder.push(SegmentFrameKind::DeltaRecord, b"delta");
    builder.push(SegmentFrameKind::Barrier, b"");
    let frames = builder.count();
    let (body, body_crc) = builder.finish();
    let header = SegmentHeader {
        kind: SegmentKind::Data,
        first: LogPosition(10),
        frames,
        unit: HEADER.sequence,
        body_crc,
        ..HEADER
    };
    Segment { header, body }.encode()
}

fn bare(kind: SegmentKind) -> Vec<u8> {
    let header = SegmentHeader { kind, ..HEADER };
    let body = SegmentBody::default();
    Segment { header, body }.encode()
}

fn block() -> CommittedBlock {
    CommittedBlock {
        name: BlockName {
            tenant: TenantId::anonymous(),
            block: 1 << 90,
            upload: 7,
        },
        kind: CommittedBlockKind::Late,
        is_bad: true,
        sequence: 1,
        level: 1,
        range: TimeRange::new(-5, 1_000),
        series: 3,
        samples: 300,
        files: vec![CommittedFile {
            name: "data-000".to_owned(),
            bytes: 1 << 20,
        }],
    }
}

fn format() -> String {
    ClusterFormat {
        cluster: HEADER.cluster,
        seed: FingerprintSeed([1, 2]),
        hash: HashKind::Nh,
        partitions: NonZeroU32::MIN,
        window: NonZeroU32::MIN,
        engine: LogEngine::Kafka,
        min_version: "0.1.0".to_owned(),
    }
    .encode()
}
