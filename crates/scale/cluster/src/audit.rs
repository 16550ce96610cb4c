//! An audit of a cluster in its bucket: all objects are read from outside, without the log core.
//!
//! ```text
//! LIST of all objects -> by partition: segments, checkpoints, files of blocks; the rest is foreign
//! newest checkpoint -> segments from its begin of replays on -> block list -> its files
//! ```
//!
//! The audit changes nothing. Beside running nodes it reads objects of different moments: a file
//! that it misses is looked for again, and uploads under way count as files in no list. Invariant:
//! a finding means that a takeover would fail or that data is lost or unreadable; everything else
//! is a number of the table.

mod partition;
mod walk;

use crate::cluster_format::ClusterFormat;
use crate::ids::PartitionId;
use crate::object_name::ObjectName;
use firn_bucket::{BlockingBucket, Bucket, BucketError, KeyPrefix, ObjectKey};
use partition::ListedPartition;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of objects of a cluster.
const OBJECTS_MAX: usize = 50_000_000;

/// Maximum number of foreign objects whose keys the text of a report contains.
const FOREIGN_SHOWN: usize = 10;

/// The result of [`audit`]. Its `Display` is a table with the findings below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditReport {
    /// The partitions in ascending order.
    pub partitions: Vec<PartitionAudit>,
    /// Objects whose keys no partition of the cluster has.
    pub foreign: Vec<ObjectKey>,
}

/// The audit of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionAudit {
    /// The partition.
    pub partition: PartitionId,
    /// Number of segments of the log, of every kind.
    pub segments: u64,
    /// Their size in bytes.
    pub segment_bytes: u64,
    /// Number of DATA segments before the begin of replays, which a trim has not deleted yet.
    pub untrimmed: u64,
    /// Number of segments at keys that a FENCE made void.
    pub void: u64,
    /// Number of frames from the begin of replays on.
    pub frames: u64,
    /// Number of COMMITs behind the newest checkpoint.
    pub commits: u64,
    /// Number of checkpoints.
    pub checkpoints: u64,
    /// Number of listed blocks.
    pub blocks: u64,
    /// Their size in bytes.
    pub block_bytes: u64,
    /// Number of files that the block list does not name: uploads under way, removed blocks within
    /// their grace, and garbage.
    pub orphans: u64,
    /// Their size in bytes.
    pub orphan_bytes: u64,
    /// Descriptions of errors.
    pub findings: Vec<String>,
}

impl AuditReport {
    /// Returns whether there are no findings. Foreign objects are none.
    pub fn is_sound(&self) -> bool {
        let mut partitions = self.partitions.iter();
        partitions.all(|partition| partition.findings.is_empty())
    }
}

/// Audits all partitions of a cluster. Reads the log from the begin of replays on, one partition
/// after the other.
///
/// # Errors
///
/// A request to the bucket fails.
pub fn audit(bucket: &dyn Bucket, cluster: &ClusterFormat) -> Result<AuditReport, BucketError> {
    let listed = BlockingBucket(bucket).list_all(&KeyPrefix::default(), OBJECTS_MAX)?;
    let numbers = 0..cluster.partitions.get();
    let mut partitions: BTreeMap<PartitionId, ListedPartition> = numbers
        .map(|number| (PartitionId(number), ListedPartition::default()))
        .collect();
    let mut foreign = Vec::new();
    for object in listed {
        let name = object.key.as_str().parse::<ObjectName>();
        let partition = match &name {
            Ok(ObjectName::Format) => continue,
            Ok(
                ObjectName::Segment(partition, _)
                | ObjectName::State(partition, _)
                | ObjectName::Block { partition, .. },
            ) => partitions.get_mut(partition),
            Err(_) => None,
        };
        match (partition, name) {
            (Some(partition), Ok(name)) => partition.add(name, object),
            _ => foreign.push(object.key),
        }
    }
    let mut report = AuditReport {
        partitions: Vec::new(),
        foreign,
    };
    for (partition, listed) in partitions {
        let audited = listed.audit(bucket, cluster, partition)?;
        report.partitions.push(audited);
    }
    Ok(report)
}

/// The columns of the table: title and number.
type AuditColumn = (&'static str, fn(&PartitionAudit) -> u64);

const COLUMNS: [AuditColumn; 12] = [
    ("segments", |p| p.segments),
    ("bytes", |p| p.segment_bytes),
    ("untrimmed", |p| p.untrimmed),
    ("void", |p| p.void),
    ("frames", |p| p.frames),
    ("commits", |p| p.commits),
    ("checkpoints", |p| p.checkpoints),
    ("blocks", |p| p.blocks),
    ("block bytes", |p| p.block_bytes),
    ("orphans", |p| p.orphans),
    ("orphan bytes", |p| p.orphan_bytes),
    ("findings", |p| p.findings.len() as u64),
];

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9}", "partition")?;
        for (title, _) in COLUMNS {
            write!(f, "  {title:>12}")?;
        }
        writeln!(f)?;
        for partition in &self.partitions {
            write!(f, "{:>9}", partition.partition.0)?;
            for (_, number) in COLUMNS {
                write!(f, "  {:>12}", number(partition))?;
            }
            writeln!(f)?;
        }
        for partition in &self.partitions {
            for finding in &partition.findings {
                writeln!(f, "partition {}: {finding}", partition.partition)?;
            }
        }
        if !self.foreign.is_empty() {
            let shown = self.foreign.iter().take(FOREIGN_SHOWN);
            let keys: Vec<&str> = shown.map(ObjectKey::as_str).collect();
            let keys = keys.join(", ");
            writeln!(f, "foreign objects: {} ({keys})", self.foreign.len())?;
        }
        Ok(())
    }
}
