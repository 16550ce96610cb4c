//! The `meta.json` file of a block (`tsdb/block.go`).

use super::error::TsdbError;
use super::ulid::Ulid;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version of the file.
const VERSION: u32 = 1;

/// The hint in the metadata of blocks with out-of-order samples.
pub const HINT_OUT_OF_ORDER: &str = "from-out-of-order";

/// The metadata of a block. Its serialized form equals that of Prometheus, field by field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TsdbBlockMeta {
    /// Name of the block, which is that of its folder.
    #[serde(with = "as_text")]
    pub ulid: Ulid,
    /// First millisecond of the time range.
    pub min_time: i64,
    /// End of the time range in milliseconds, exclusive.
    pub max_time: i64,
    /// Numbers of samples, series and chunks in the block.
    #[serde(default)]
    pub stats: TsdbBlockStats,
    /// Origin of the block: its level and source blocks.
    #[serde(default)]
    pub compaction: TsdbBlockCompaction,
    /// Version of the file, always 1.
    pub version: u32,
}

/// The size of a block in samples, series and chunks. Prometheus uses these numbers for information
/// only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TsdbBlockStats {
    /// Number of samples of both kinds.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_samples: u64,
    /// Number of float samples, including staleness markers.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_float_samples: u64,
    /// Number of histograms.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_histogram_samples: u64,
    /// Number of series with at least one sample.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_series: u64,
    /// Number of chunks.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_chunks: u64,
    /// Number of deleted intervals.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_tombstones: u64,
}

/// The blocks that a block was compacted from. Prometheus deletes the parents that a block lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TsdbBlockCompaction {
    /// Compaction level; 1 for a block cut from the head.
    pub level: u32,
    /// Blocks cut from the head whose samples it contains.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "as_texts")]
    pub sources: Vec<Ulid>,
    /// True if compaction left no sample of the block.
    #[serde(skip_serializing_if = "is_false")]
    pub deletable: bool,
    /// Blocks that were merged into it directly.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_none")]
    pub parents: Vec<BlockParent>,
    /// True if its compaction failed, so that Prometheus skips it.
    #[serde(skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Further properties, for example [`HINT_OUT_OF_ORDER`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_none")]
    pub hints: Vec<String>,
}

/// A block that was merged into another one. It can be deleted once the new block is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockParent {
    /// Name of the block.
    #[serde(with = "as_text")]
    pub ulid: Ulid,
    /// First millisecond of the time range.
    pub min_time: i64,
    /// End of the time range in milliseconds, exclusive.
    pub max_time: i64,
}

impl TsdbBlockMeta {
    /// Returns the metadata of a block cut from a head, which is its own source.
    pub fn new(ulid: Ulid, min_time: i64, max_time: i64) -> Self {
        Self {
            ulid,
            min_time,
            max_time,
            stats: TsdbBlockStats::default(),
            compaction: TsdbBlockCompaction {
                level: 1,
                sources: vec![ulid],
                ..TsdbBlockCompaction::default()
            },
            version: VERSION,
        }
    }

    /// Parses the bytes of a file, which has the name `file` in errors. Unknown fields are ignored,
    /// as in upstream.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, TsdbError> {
        let meta: Self = serde_json::from_slice(bytes).map_err(|error| TsdbError::Damaged {
            file: file.to_owned(),
            offset: offset_of(bytes, error.line(), error.column()),
            what: error.to_string(),
        })?;
        match meta.version {
            VERSION => Ok(meta),
            version => Err(TsdbError::Unsupported {
                file: file.to_owned(),
                what: format!("unexpected meta file version {version}"),
            }),
        }
    }

    /// Formats the file like Prometheus. Indentation and order of fields are the same.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        let mut serializer = serde_json::Serializer::with_formatter(&mut out, format);
        let written = self.serialize(&mut serializer);
        written.expect("numbers and texts can always be written to memory");
        out
    }

    /// Returns whether the block contains out-of-order samples. Compaction marks such blocks by a
    /// hint.
    pub fn is_out_of_order(&self) -> bool {
        let mut hints = self.compaction.hints.iter();
        hints.any(|hint| hint == HINT_OUT_OF_ORDER)
    }
}

fn offset_of(bytes: &[u8], line: usize, column: usize) -> u64 {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (before + column.saturating_sub(1)) as u64
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Accepts null as an empty list, because Go writes nil slices that way.
fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

mod as_text {
    use super::*;

    pub fn serialize<S: Serializer>(ulid: &Ulid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(ulid)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Ulid, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

mod as_texts {
    use super::*;

    pub fn serialize<S: Serializer>(ulids: &[Ulid], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ulids.iter().map(Ulid::to_string))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Ulid>, D::Error> {
        let texts: Vec<String> = or_none(from)?;
        let ulids = texts.iter().map(|text| text.parse());
        ulids
            .collect::<Result<_, _>>()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = r#"{
	"ulid": "01HX0000000000000000000000",
	"minTime": -5,
	"maxTime": 7200000,
	"stats": {
		"numSamples": 3,
		"numFloatSamples": 3,
		"numSeries": 1,
		"numChunks": 1
	},
	"compaction": {
		"level": 1,
		"sources": [
			"01HX0000000000000000000000"
		],
		"hints": [
			"from-out-of-order"
		]
	},
	"version": 1
}"#;

    #[test]
    fn meta_written_has_the_layout_of_prometheus() {
        let ulid = "01HX0000000000000000000000".parse().expect("a ULID");
        let mut meta = TsdbBlockMeta::new(ulid, -5, 7_200_000);
        meta.stats = TsdbBlockStats {
            num_samples: 3,
            num_float_samples: 3,
            num_series: 1,
            num_chunks: 1,
            ..TsdbBlockStats::default()
        };
        meta.compaction.hints.push(HINT_OUT_OF_ORDER.to_owned());
        assert_eq!(String::from_utf8(meta.write()).as_deref(), Ok(WRITTEN));
        assert_eq!(
            TsdbBlockMeta::read("meta.json", WRITTEN.as_bytes()),
            Ok(meta)
        );
    }

    #[test]
    fn meta_with_unknown_fields_and_nulls_is_read() {
        let text = r#"{"ulid":"01HX0000000000000000000000","minTime":1,"maxTime":2,"new":[{}],
            "compaction":{"level":2,"sources":null,"parents":null,"hints":null},"version":1}"#;
        let meta = TsdbBlockMeta::read("meta.json", text.as_bytes()).expect("it is sound");
        assert_eq!((meta.compaction.level, meta.is_out_of_order()), (2, false));
    }

    #[test]
    fn meta_of_another_version_or_cut_is_an_error_that_names_the_file() {
        let other = WRITTEN.replace("\"version\": 1", "\"version\": 2");
        let error = TsdbBlockMeta::read("b/meta.json", other.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "b/meta.json: unexpected meta file version 2"
        );
        let cut = TsdbBlockMeta::read("b/meta.json", &WRITTEN.as_bytes()[..90]).unwrap_err();
        assert!(cut.to_string().starts_with("b/meta.json: "), "{cut}");
        assert!(
            matches!(cut, TsdbError::Damaged { offset: 60.., .. }),
            "{cut:?}"
        );
    }
}
