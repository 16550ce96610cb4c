//! The object `cluster/format`: created by the first node, checked by each node at its start.

use crate::cluster_format::{ClusterFormat, ClusterFormatError, LogEngine};
use crate::ids::ClusterId;
use crate::object_name::ObjectName;
use firn_bucket::{
    BlockingBucket, Bucket, BucketError, BucketFailure, CheckOptions, Creation, KeyPrefix,
    ListRequest, ObjectKey, StoreVerdict, check_store,
};
use firn_model::env::Env;
use firn_model::fingerprint::{FingerprintSeed, HashKind};
use std::num::NonZeroU32;

/// The number of segments of a partition in flight, for new clusters.
const WINDOW: NonZeroU32 = NonZeroU32::new(4).unwrap();

/// The oldest version of Firn that can join a cluster that this version creates.
const MIN_VERSION: &str = "0.1.0";

/// Settings of a node that must agree with `cluster/format`.
#[derive(Clone, Copy, Debug)]
pub struct JoinOptions<'a> {
    /// The number of partitions of the config.
    pub partitions: NonZeroU32,
    /// The version of this process, such as `0.2.0`.
    pub version: &'a str,
}

/// The reason why a node cannot join a cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A request to the bucket failed.
    #[error("cluster bucket: {0}")]
    Bucket(#[from] BucketError),
    /// The store does not keep its promises: a cluster on it would lose data.
    #[error("cluster bucket: the store cannot carry a log: {0}")]
    Store(String),
    /// There is no `cluster/format`, but another object of a cluster.
    #[error(
        "cluster bucket: cluster/format is missing, but there is {0}: restore it from a version or \
         a replica of the bucket, or use another prefix"
    )]
    FormatMissing(ObjectKey),
    /// `cluster/format` is damaged, or written by a newer version.
    #[error("{0}")]
    Format(#[from] ClusterFormatError),
    /// The config has another number of partitions than the cluster.
    #[error(
        "firn.cluster.partitions: {config}, but the cluster in the bucket has {cluster}; the \
         number of partitions cannot change"
    )]
    Partitions {
        /// The number in the config.
        config: NonZeroU32,
        /// The number in the bucket.
        cluster: NonZeroU32,
    },
    /// The cluster keeps its log in Kafka, which this version does not support.
    #[error("the cluster keeps its log in Kafka, which this version does not support")]
    Engine,
    /// The cluster requires a newer version.
    #[error("the cluster requires Firn {required} or newer, this is {version}")]
    Version {
        /// The oldest version that may join.
        required: String,
        /// The version of this process.
        version: String,
    },
}

impl JoinError {
    /// Returns whether a later attempt may succeed without a change of the config or the bucket:
    /// the store did not answer or was busy.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Bucket(error) => matches!(
                error.failure,
                BucketFailure::Timeout
                    | BucketFailure::Connection
                    | BucketFailure::Throttled
                    | BucketFailure::Server
                    | BucketFailure::Conflict
                    | BucketFailure::Damaged
            ),
            _ => false,
        }
    }
}

/// Reads `cluster/format` and checks it, or tests the store and creates the object. Blocks for a
/// few requests, of a new cluster for some 1,000. Of several nodes that create it at once one
/// succeeds, and all return the same format.
pub fn join_cluster(
    bucket: &dyn Bucket,
    env: &Env,
    options: JoinOptions<'_>,
) -> Result<ClusterFormat, JoinError> {
    let format = match read_format(bucket)? {
        Some(format) => format,
        None => match find_object(bucket)? {
            None => create_format(bucket, env, options)?,
            // Another node may have created the cluster meanwhile.
            Some(key) => read_format(bucket)?.ok_or(JoinError::FormatMissing(key))?,
        },
    };
    if format.engine != LogEngine::Bucket {
        return Err(JoinError::Engine);
    }
    if format.partitions != options.partitions {
        return Err(JoinError::Partitions {
            config: options.partitions,
            cluster: format.partitions,
        });
    }
    if version_parts(options.version) < version_parts(&format.min_version) {
        return Err(JoinError::Version {
            required: format.min_version,
            version: options.version.to_owned(),
        });
    }
    Ok(format)
}

fn format_key() -> ObjectKey {
    let name = ObjectName::Format.to_string();
    ObjectKey::new(&name).expect("names of objects are keys")
}

/// Reads `cluster/format`. Returns `None` if there is no cluster in the bucket.
pub fn read_format(bucket: &dyn Bucket) -> Result<Option<ClusterFormat>, JoinError> {
    let Some(bytes) = BlockingBucket(bucket).get(&format_key())? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|e| ClusterFormatError::Syntax(e.to_string()))?;
    Ok(Some(ClusterFormat::decode(text)?))
}

/// Creates `cluster/format` of a running cluster again after another program deleted it. Returns
/// false if it exists.
pub fn restore_format(bucket: &dyn Bucket, format: &ClusterFormat) -> Result<bool, BucketError> {
    let bytes = format.encode().into_bytes().into();
    match BlockingBucket(bucket).put_new(&format_key(), bytes) {
        Creation::Stored => Ok(true),
        Creation::Exists => Ok(false),
        Creation::Ambiguous(error) | Creation::Refused(error) => Err(error),
    }
}

/// Returns the key of a segment, a checkpoint or a file of a block, if there is any.
fn find_object(bucket: &dyn Bucket) -> Result<Option<ObjectKey>, BucketError> {
    for prefix in ["log/", "state/", "blk/"] {
        let request = ListRequest::all(KeyPrefix::new(prefix)?);
        let page = BlockingBucket(bucket).list(&request)?;
        let mut keys = page.objects.into_iter().map(|object| object.key);
        let found = keys.find(|key| key.as_str().parse::<ObjectName>().is_ok());
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn create_format(
    bucket: &dyn Bucket,
    env: &Env,
    options: JoinOptions<'_>,
) -> Result<ClusterFormat, JoinError> {
    tracing::info!("the bucket is new: testing whether its store can carry a log");
    let report = check_store(bucket, &env.clock, &CheckOptions::new(env.rng.next_u64()));
    match report.verdict {
        StoreVerdict::Accepted => {}
        StoreVerdict::Refused(reason) => return Err(JoinError::Store(reason)),
        StoreVerdict::Unfinished(error) => return Err(error.into()),
    }
    let random = || u128::from(env.rng.next_u64());
    let format = ClusterFormat {
        cluster: ClusterId(random() << 64 | random()),
        seed: FingerprintSeed::generate(&*env.rng),
        hash: HashKind::fastest(),
        partitions: options.partitions,
        window: WINDOW,
        engine: LogEngine::Bucket,
        min_version: MIN_VERSION.to_owned(),
    };
    let bytes = format.encode().into_bytes().into();
    match BlockingBucket(bucket).put_new(&format_key(), bytes) {
        Creation::Stored => {
            tracing::info!(cluster = %format.cluster, "created a cluster in the bucket");
            Ok(format)
        }
        Creation::Refused(error) => Err(error.into()),
        // Another node, or a repeat of this creation, was first.
        creation @ (Creation::Exists | Creation::Ambiguous(_)) => {
            let error = || match &creation {
                Creation::Ambiguous(error) => error.clone(),
                _ => {
                    let text = "cluster/format exists, but cannot be read";
                    BucketError::new(BucketFailure::WrongAnswer, text)
                }
            };
            read_format(bucket)?.ok_or_else(|| error().into())
        }
    }
}

/// Returns the numbers of a version, such as 0, 1 and 0. Suffixes after `-` or `+` do not count.
fn version_parts(version: &str) -> Vec<u64> {
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let parts = numbers.split('.').map(|part| part.parse().unwrap_or(0));
    parts.collect()
}
