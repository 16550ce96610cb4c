//! `meta.json`: the description of a block, in the fields of Prometheus's version 1 plus the field
//! `firn`.
//!
//! ```text
//! { "ulid", "minTime", "maxTime" (exclusive), "stats", "compaction", "version": 1,
//!   "firn": { "format", "late", "resolution", "firstTime", "lastTime", "files", "crc" } }
//! ```
//!
//! The checksum covers all bytes before the name `crc`, and only fixed closing characters follow
//! it. A change of any byte is therefore detected.

use super::id::BlockId;
use super::layout::{INDEX, INDEX_COPY, VERSION, VERSION_BEFORE, data_file_name};
use crate::error::StorageError;
use firn_model::sample::{TimeRange, TimestampMs};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name of the file that describes a block.
pub(crate) const META: &str = "meta.json";

/// Maximum number of bytes that are read: a block has at most some thousands of sources and files.
pub(crate) const META_BYTES_MAX: u64 = 16 << 20;

/// The version of Prometheus's format of the file.
const META_VERSION: u32 = 1;

/// The text immediately before the checksum, and the text after it.
const CRC_NAME: &str = "\"crc\": \"";
const END: &str = "\"\n\t}\n}\n";

/// The entry of one file of a block, by which a reader detects missing, truncated and changed
/// files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMeta {
    /// Name of the file in the folder of the block.
    pub name: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// CRC-32C of the whole file.
    pub crc: u32,
}

/// The position of a block among several blocks that one merge wrote for the same time range. Each
/// of them contains a consecutive part of the series in block order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockShard {
    /// Id of the first block of the set.
    pub set: BlockId,
    /// Zero-based position of the block in the set.
    pub number: u32,
    /// True for the last block of the set.
    pub is_last: bool,
    /// Inclusive lower bound of the metric names in the block.
    pub first_metric: String,
    /// Inclusive upper bound of the metric names in the block, or `None` if it is not known.
    pub last_metric: Option<String>,
}

/// The content of `meta.json`: the description of a block. The writer creates it, and readers
/// validate the block against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMeta {
    /// Version of the block format.
    pub format: u32,
    /// Id of the block, which is also the name of its folder.
    pub id: BlockId,
    /// True if the block contains only samples that arrived late, so that it may overlap other
    /// blocks.
    pub is_late: bool,
    /// 1 for a block from a cut, a flush or an import, plus one for each merge.
    pub level: u32,
    /// Ids of the blocks of level 1 that it was compacted from, or its own id if its level is 1.
    pub sources: Vec<BlockId>,
    /// Time range from the first to the last sample, both inclusive.
    pub range: TimeRange,
    /// The aligned time range that the block was written for, or `None` if there was none.
    pub nominal: Option<TimeRange>,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples that are histograms.
    pub histograms: u64,
    /// Number of series.
    pub series: u32,
    /// Number of columns in its pages. Each series has at least one.
    pub columns: u64,
    /// Its position among the blocks of one merge, or `None` if that merge wrote a single block.
    pub shard: Option<BlockShard>,
    /// All files of the block except `meta.json`.
    pub files: Vec<FileMeta>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockMetaJson {
    ulid: String,
    min_time: TimestampMs,
    max_time: TimestampMs,
    stats: BlockStatsJson,
    compaction: BlockCompactionJson,
    version: u32,
    firn: BlockFirnJson,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStatsJson {
    num_samples: u64,
    num_float_samples: u64,
    num_histogram_samples: u64,
    num_series: u32,
    num_chunks: u64,
}

#[derive(Serialize, Deserialize)]
struct BlockCompactionJson {
    level: u32,
    sources: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockFirnJson {
    format: u32,
    late: bool,
    /// Interval between samples of a downsampled block, in milliseconds; always zero today.
    resolution: i64,
    nominal: bool,
    first_time: TimestampMs,
    last_time: TimestampMs,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shard: Option<BlockShardJson>,
    files: Vec<BlockFileJson>,
    crc: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockShardJson {
    set: String,
    number: u32,
    last: bool,
    first_metric: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_metric: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct BlockFileJson {
    name: String,
    bytes: u64,
    crc: String,
}

impl BlockShard {
    /// Returns whether the metric name is within the bounds of the block.
    pub fn may_contain_metric(&self, metric: &[u8]) -> bool {
        let is_behind = |last: &String| metric > last.as_bytes();
        self.first_metric.as_bytes() <= metric && !self.last_metric.as_ref().is_some_and(is_behind)
    }
}

impl BlockMeta {
    /// Returns the total size of all files except `meta.json`, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the number of leading entries in `files` that are the index and its copy. Data files
    /// follow them.
    pub(crate) fn index_file_count(&self) -> usize {
        match self.format {
            VERSION_BEFORE => 1,
            _ => 2,
        }
    }

    /// Returns whether there is at least one series, and the files are the index, its copy and the
    /// data files in order.
    pub(crate) fn is_valid_block(&self) -> bool {
        let indexes = [INDEX, INDEX_COPY].map(str::to_owned).into_iter();
        let pages = self.files.len().saturating_sub(self.index_file_count());
        let names = indexes
            .take(self.index_file_count())
            .chain((0..pages).map(data_file_name));
        let is_named = self.files.iter().map(|file| file.name.clone()).eq(names);
        is_named && pages > 0 && self.series > 0
    }

    /// Encodes the text of `meta.json`, including its checksum. Equal metadata always gives equal
    /// bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let stated = self.nominal.unwrap_or(self.range);
        let text = BlockMetaJson {
            ulid: self.id.to_string(),
            min_time: stated.min,
            max_time: stated.max.saturating_add(1),
            stats: BlockStatsJson {
                num_samples: self.samples,
                num_float_samples: self.samples - self.histograms,
                num_histogram_samples: self.histograms,
                num_series: self.series,
                num_chunks: self.columns,
            },
            compaction: BlockCompactionJson {
                level: self.level,
                sources: self.sources.iter().map(BlockId::to_string).collect(),
            },
            version: META_VERSION,
            firn: BlockFirnJson {
                format: self.format,
                late: self.is_late,
                resolution: 0,
                nominal: self.nominal.is_some(),
                first_time: self.range.min,
                last_time: self.range.max,
                shard: self.shard.as_ref().map(BlockShardJson::from_shard),
                files: self.files.iter().map(BlockFileJson::from_file).collect(),
                crc: String::new(),
            },
        };
        let mut bytes = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, format);
        let written = text.serialize(&mut serializer);
        written.expect("strings and numbers become JSON in memory");
        bytes.push(b'\n');
        bytes.truncate(bytes.len() - END.len() - CRC_NAME.len());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(format!("{CRC_NAME}{crc:08x}{END}").as_bytes());
        bytes
    }

    /// Decodes the text of `meta.json`. `path` is used in errors only. Returns an error if the
    /// checksum does not match or the version is not supported.
    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Self, StorageError> {
        let damaged = |offset: usize, what: String| StorageError::Damaged {
            path: path.to_path_buf(),
            offset: offset as u64,
            what,
        };
        let text = std::str::from_utf8(bytes)
            .map_err(|e| damaged(e.valid_up_to(), "text that is not UTF-8".to_owned()))?;
        let summed = text.rfind(CRC_NAME);
        let summed = summed.ok_or_else(|| damaged(0, "no checksum".to_owned()))?;
        let crc = crc32c::crc32c(&bytes[..summed]);
        if text[summed..] != format!("{CRC_NAME}{crc:08x}{END}") {
            return Err(damaged(0, "checksum mismatch".to_owned()));
        }
        let text: BlockMetaJson =
            serde_json::from_str(text).map_err(|e| damaged(0, e.to_string()))?;
        let is_read = [VERSION, VERSION_BEFORE].contains(&text.firn.format);
        if text.version != META_VERSION || !is_read {
            return Err(StorageError::Format {
                path: path.to_path_buf(),
                found: format!("{}/{}", text.version, text.firn.format),
                known: VERSION,
            });
        }
        text.into_meta().map_err(|what| damaged(0, what.to_owned()))
    }
}

impl BlockShardJson {
    fn from_shard(shard: &BlockShard) -> Self {
        Self {
            set: shard.set.to_string(),
            number: shard.number,
            last: shard.is_last,
            first_metric: shard.first_metric.clone(),
            last_metric: shard.last_metric.clone(),
        }
    }

    fn into_shard(self) -> Result<BlockShard, &'static str> {
        Ok(BlockShard {
            set: self.set.parse().map_err(|_| "name is not a ULID")?,
            number: self.number,
            is_last: self.last,
            first_metric: self.first_metric,
            last_metric: self.last_metric,
        })
    }
}

impl BlockFileJson {
    fn from_file(file: &FileMeta) -> Self {
        Self {
            name: file.name.clone(),
            bytes: file.bytes,
            crc: format!("{:08x}", file.crc),
        }
    }

    fn into_file(self) -> Result<FileMeta, &'static str> {
        Ok(FileMeta {
            name: self.name,
            bytes: self.bytes,
            crc: u32::from_str_radix(&self.crc, 16).map_err(|_| "checksum is not a number")?,
        })
    }
}

impl BlockMetaJson {
    fn into_meta(self) -> Result<BlockMeta, &'static str> {
        let id = |text: &String| text.parse().map_err(|_| "name is not a ULID");
        let firn = self.firn;
        if self.stats.num_histogram_samples > self.stats.num_samples {
            return Err("more histograms than samples");
        }
        let nominal = TimeRange::new(self.min_time, self.max_time.saturating_sub(1));
        Ok(BlockMeta {
            format: firn.format,
            id: id(&self.ulid)?,
            is_late: firn.late,
            level: self.compaction.level,
            sources: self
                .compaction
                .sources
                .iter()
                .map(id)
                .collect::<Result<_, _>>()?,
            range: TimeRange::new(firn.first_time, firn.last_time),
            nominal: firn.nominal.then_some(nominal),
            samples: self.stats.num_samples,
            histograms: self.stats.num_histogram_samples,
            series: self.stats.num_series,
            columns: self.stats.num_chunks,
            shard: firn.shard.map(BlockShardJson::into_shard).transpose()?,
            files: firn
                .files
                .into_iter()
                .map(BlockFileJson::into_file)
                .collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> BlockMeta {
        let id = BlockId::new(1_763_000_000_000, 0x1234_5678_9abc_def0);
        BlockMeta {
            format: VERSION,
            id,
            is_late: true,
            level: 2,
            sources: vec![id, BlockId::new(7, 8)],
            range: TimeRange::new(-5, 7_199_999),
            nominal: Some(TimeRange::new(-10, i64::MAX - 1)),
            samples: 1_000,
            histograms: 30,
            series: 12,
            columns: 13,
            shard: None,
            files: vec![FileMeta {
                name: "index".to_owned(),
                bytes: 4_096,
                crc: 0xdead_beef,
            }],
        }
    }

    #[test]
    fn meta_returns_from_its_text() {
        let path = Path::new("blocks/x/meta.json");
        let shard = |last_metric: Option<&str>| BlockShard {
            set: meta().id,
            number: 3,
            is_last: true,
            first_metric: "a\"\n".to_owned(),
            last_metric: last_metric.map(str::to_owned),
        };
        for (nominal, shard) in [
            (None, None),
            (meta().nominal, Some(shard(None))),
            (meta().nominal, Some(shard(Some("\u{e9}")))),
        ] {
            let meta = BlockMeta {
                nominal,
                shard,
                ..meta()
            };
            let bytes = meta.encode();
            assert_eq!(BlockMeta::decode(&bytes, path).unwrap(), meta);
            let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let max = nominal.map_or(7_200_000, |n| n.max + 1);
            assert_eq!(value["maxTime"], max);
            assert_eq!(value["stats"]["numFloatSamples"], 970);
        }
    }

    #[test]
    fn shard_may_have_the_metrics_between_its_bounds() {
        let mut shard = BlockShard {
            set: meta().id,
            number: 0,
            is_last: false,
            first_metric: "b".to_owned(),
            last_metric: Some("dd".to_owned()),
        };
        for (metric, may) in [
            ("a", false),
            ("b", true),
            ("c", true),
            ("dd", true),
            ("dda", false),
        ] {
            assert_eq!(shard.may_contain_metric(metric.as_bytes()), may, "{metric}");
        }
        assert!(!shard.may_contain_metric(b""));
        (shard.first_metric, shard.last_metric) = (String::new(), None);
        assert!(shard.may_contain_metric(b"") && shard.may_contain_metric(&[0xff]));
    }

    #[test]
    fn meta_with_a_flipped_byte_is_damaged() {
        let path = Path::new("blocks/x/meta.json");
        let bytes = meta().encode();
        for at in 0..bytes.len() {
            for flip in [1, 0x10, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                let read = BlockMeta::decode(&changed, path);
                let is_named = |e: &StorageError| e.to_string().contains("blocks/x/meta.json");
                assert!(read.is_err_and(|e| is_named(&e)), "byte {at}");
            }
        }
        for len in 0..bytes.len() {
            assert!(
                BlockMeta::decode(&bytes[..len], path).is_err(),
                "{len} bytes"
            );
        }
    }
}
