//! The optional section of metric metadata: type, help and unit of the metrics of a block.
//!
//! ```text
//! section = metrics varint | table
//! unit    = metric*                      the table counts the metrics in the units before
//! metric  = name bytes | texts varint | texts x text
//! text    = first time zigzag varint | (last - first) varint | type byte | help bytes | unit bytes
//! ```
//!
//! A block cut from the head contains the current metadata, valid for the block's range; a merge
//! combines the metadata of its inputs. Identical entries are stored once, with a time range that
//! covers all of them. Invariant: names ascend; the entries of a metric are sorted by their last
//! time, newest first, and no entry occurs twice.

use super::cache::BlockUnit;
use super::files::BlockFiles;
use super::unit::{UnitEntry, UnitTable};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint, unzigzag, zigzag};
use crate::error::StorageError;
use crate::page::planner::IntRunPlanner;
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_model::sample::TimeRange;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of bytes after which a unit ends: about three hundred metrics.
const UNIT_BYTES: usize = 32 << 10;

/// Maximum number of entries of one metric in a block. The newest are kept; a text changes only
/// with a release of the application.
const TEXTS_MAX: usize = 8;

/// Maximum total length of help and unit of an entry, in bytes; longer ones are dropped. The
/// longest help texts in use have about a thousand bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Approximate maximum size of the metadata of a block, in bytes; the same limit applies to pushed
/// metadata. Entries beyond it are dropped.
const BYTES_MAX: usize = 16 << 20;

/// Memory of an entry besides its characters, in bytes.
const SAYING_BYTES: usize = size_of::<(OwnedMetadata, TimeRange)>();

/// The type, help and unit of a metric at some time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OwnedMetadata {
    kind: MetricType,
    help: Box<str>,
    unit: Box<str>,
}

impl OwnedMetadata {
    fn is_equal_to(&self, said: &MetricMetadata<'_>) -> bool {
        self.kind == said.kind && *self.help == *said.help && *self.unit == *said.unit
    }
}

/// Metric metadata with its time ranges. Each entry is valid from the first block that contains it
/// to the last. The order in which entries are added does not matter, except when a size limit
/// drops some of them.
#[derive(Clone, Debug, Default)]
pub struct MetricMetadataSet {
    by_name: BTreeMap<Box<str>, Vec<(OwnedMetadata, TimeRange)>>,
    bytes: usize,
}

/// All metadata entries of one metric, newest first, as borrowed from a `MetricMetadataSet`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricMetadataHistory<'a> {
    name: &'a str,
    texts: &'a [(OwnedMetadata, TimeRange)],
}

impl MetricMetadataSet {
    /// Creates a set from the entries of `batch`, each valid for the whole of `range`.
    pub fn from_batch(range: TimeRange, batch: &MetadataBatch) -> Self {
        let mut all = Self::default();
        batch.iter().for_each(|said| all.add(range, said));
        all
    }

    /// Adds an entry that is valid for `range`. Entries that exceed a size limit are dropped
    /// silently.
    pub fn add(&mut self, range: TimeRange, said: MetricMetadata<'_>) {
        let own = said.help.len() + said.unit.len();
        let bytes = SAYING_BYTES + said.name.len() + own;
        if said.name.is_empty() || own > TEXT_BYTES_MAX {
            return;
        }
        if let Some(texts) = self.by_name.get_mut(said.name)
            && let Some((_, times)) = texts.iter_mut().find(|(text, _)| text.is_equal_to(&said))
        {
            times.min = times.min.min(range.min);
            times.max = times.max.max(range.max);
            return sort_newest_first(texts);
        }
        if self.bytes + bytes > BYTES_MAX {
            return;
        }
        self.bytes += bytes;
        let text = OwnedMetadata {
            kind: said.kind,
            help: said.help.into(),
            unit: said.unit.into(),
        };
        let texts = self.by_name.entry(said.name.into()).or_default();
        texts.push((text, range));
        sort_newest_first(texts);
        if texts.len() > TEXTS_MAX
            && let Some((oldest, _)) = texts.pop()
        {
            let own = oldest.help.len() + oldest.unit.len();
            self.bytes -= SAYING_BYTES + said.name.len() + own;
        }
    }

    /// Returns the newest entry of each metric, sorted by name.
    pub fn newest(&self) -> impl Iterator<Item = MetricMetadata<'_>> {
        let all = self.by_name.iter();
        all.filter_map(|(name, texts)| {
            let (said, _) = texts.first()?;
            Some(MetricMetadata {
                name,
                kind: said.kind,
                help: &said.help,
                unit: &said.unit,
            })
        })
    }

    /// Returns the approximate memory of the set, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the entries of each metric, sorted by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = MetricMetadataHistory<'_>> {
        let all = self.by_name.iter();
        all.map(|(name, texts)| MetricMetadataHistory { name, texts })
    }
}

/// Sorts the entries of a metric by time, newest first.
fn sort_newest_first(texts: &mut [(OwnedMetadata, TimeRange)]) {
    texts.sort_by(|(a, of_a), (b, of_b)| {
        let (newer, older) = ((of_b.max, of_b.min), (of_a.max, of_a.min));
        newer.cmp(&older).then_with(|| a.cmp(b))
    });
}

impl<'a> MetricMetadataHistory<'a> {
    /// Returns the name of the metric family.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }
}

/// The decoded section: the number of metrics with metadata and the locations of the units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockMetadataTable {
    pub(crate) metrics: u64,
    pub(crate) units: UnitTable,
}

impl BlockMetadataTable {
    /// Appends the encoded section to `out`, with `planner` choosing the encoding of the integer
    /// columns.
    pub(crate) fn encode(&self, planner: &mut IntRunPlanner, out: &mut Vec<u8>) {
        push_uvarint(out, self.metrics);
        self.units.encode(planner, out);
    }

    /// Decodes a section whose units all end at or before the offset `end`.
    pub(crate) fn decode(bytes: &[u8], end: u64) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(bytes);
        let metrics = cursor.read_uvarint()?;
        let units = UnitTable::decode(&mut cursor, end)?;
        let begins = units.get(0).map(|unit| unit.first);
        if !cursor.is_empty() || metrics == 0 || begins != Some(0) {
            return Err(DecodeError("invalid section of metadata"));
        }
        Ok(Self { metrics, units })
    }
}

/// The metadata of a block that is being written, collected into units.
#[derive(Default)]
pub(super) struct MetadataDraft {
    bytes: Vec<u8>,
    metrics: u64,
    /// Number of metrics in the units that were ended.
    before: u64,
    units: UnitTable,
}

impl MetadataDraft {
    /// Appends the entries of a metric; names must ascend. Returns true if the current unit is full
    /// and should be ended.
    pub(super) fn push(&mut self, saying: MetricMetadataHistory<'_>) -> bool {
        let out = &mut self.bytes;
        push_string(out, saying.name);
        push_uvarint(out, saying.texts.len() as u64);
        for (said, times) in saying.texts {
            push_uvarint(out, zigzag(times.min));
            push_uvarint(out, times.max.wrapping_sub(times.min) as u64);
            out.push(said.kind.number());
            push_string(out, &said.help);
            push_string(out, &said.unit);
        }
        self.metrics += 1;
        out.len() >= UNIT_BYTES
    }

    /// Ends the current unit, if it has metrics, and writes it with `append`.
    pub(super) fn end_unit(
        &mut self,
        append: impl FnOnce(u64, &[u8]) -> Result<UnitEntry, StorageError>,
    ) -> Result<(), StorageError> {
        if !self.bytes.is_empty() {
            self.units.push(append(self.before, &self.bytes)?);
            self.before = self.metrics;
            self.bytes.clear();
        }
        Ok(())
    }

    /// Returns the section, or `None` if there is no metadata. All units must have been ended.
    pub(super) fn into_table(self) -> Option<BlockMetadataTable> {
        (self.metrics > 0).then_some(BlockMetadataTable {
            metrics: self.metrics,
            units: self.units,
        })
    }
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    push_uvarint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A verified unit of metadata, kept in encoded form.
#[derive(Debug)]
pub(super) struct MetadataUnit(Vec<u8>);

impl BlockUnit for MetadataUnit {
    fn memory_bytes(&self) -> usize {
        self.0.capacity()
    }
}

/// One entry of a metric. `rank` is the number of newer entries of that metric.
struct MetadataUnitEntry<'a> {
    rank: u64,
    times: TimeRange,
    said: MetricMetadata<'a>,
}

impl MetadataUnit {
    /// Verifies that a unit can be decoded and is sorted.
    pub(super) fn open(bytes: Vec<u8>) -> Result<Self, DecodeError> {
        let (mut last, mut newest): (Option<&str>, Option<TimeRange>) = (None, None);
        decode_entries(&bytes, |text| {
            let name = text.said.name;
            let is_in_order = match text.rank {
                0 => last.is_none_or(|last| last < name),
                _ => newest.is_some_and(|newest| newest.max >= text.times.max),
            };
            if !is_in_order || name.is_empty() {
                return Err(DecodeError("metadata out of order"));
            }
            (last, newest) = (Some(name), Some(text.times));
            Ok(())
        })?;
        match last {
            Some(_) => Ok(Self(bytes)),
            None => Err(DecodeError("unit without metadata")),
        }
    }

    /// Calls `each` with all entries of the unit. Errors cannot occur because `open`
    /// decoded the same bytes.
    fn for_each_entry<'a>(&'a self, mut each: impl FnMut(MetadataUnitEntry<'a>)) {
        let _ = decode_entries(&self.0, |text| {
            each(text);
            Ok(())
        });
    }

    /// Returns the names of the first and the last metric of the unit, and the number of metrics.
    pub(super) fn name_range(&self) -> (&str, &str, u64) {
        let mut span = ("", "", 0);
        self.for_each_entry(|text| {
            if span.2 == 0 {
                span.0 = text.said.name;
            }
            span.1 = text.said.name;
            span.2 += u64::from(text.rank == 0);
        });
        span
    }
}

/// Calls `each` with the entries of a unit in order, and stops at the first error.
fn decode_entries<'a>(
    bytes: &'a [u8],
    mut each: impl FnMut(MetadataUnitEntry<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut cursor = DecodeCursor::new(bytes);
    while !cursor.is_empty() {
        let name = read_string(&mut cursor)?;
        let texts = cursor.read_uvarint()?;
        if texts == 0 || texts > TEXTS_MAX as u64 {
            return Err(DecodeError("number of texts of a metric"));
        }
        for rank in 0..texts {
            let min = unzigzag(cursor.read_uvarint()?);
            let max = min.wrapping_add(cursor.read_uvarint()? as i64);
            if max < min {
                return Err(DecodeError("times of a text"));
            }
            let kind = MetricType::from_number(cursor.read_byte()?);
            let said = MetricMetadata {
                name,
                kind: kind.ok_or(DecodeError("number of no type of metrics"))?,
                help: read_string(&mut cursor)?,
                unit: read_string(&mut cursor)?,
            };
            let times = TimeRange::new(min, max);
            each(MetadataUnitEntry { rank, times, said })?;
        }
    }
    Ok(())
}

fn read_string<'a>(cursor: &mut DecodeCursor<'a>) -> Result<&'a str, DecodeError> {
    let text = std::str::from_utf8(cursor.read_prefixed()?);
    text.map_err(|_| DecodeError("metadata is not UTF-8"))
}

impl BlockMetadataTable {
    /// Adds the metadata of `metric`, or of all metrics if it is `None`, to `into`.
    pub(super) fn read(
        &self,
        files: &BlockFiles,
        metric: Option<&str>,
        into: &mut MetricMetadataSet,
    ) -> Result<(), StorageError> {
        let units = match metric {
            Some(metric) => {
                let unit = self.find_unit(files, metric)?;
                unit..unit + 1
            }
            None => 0..self.units.len(),
        };
        for unit in units.filter_map(|index| self.units.get(index)) {
            open_unit(files, unit)?.for_each_entry(|text| {
                if metric.is_none_or(|metric| metric == text.said.name) {
                    into.add(text.times, text.said);
                }
            });
        }
        Ok(())
    }

    /// Returns the index of the only unit that can contain a metric: the last one whose first name
    /// is not greater.
    fn find_unit(&self, files: &BlockFiles, metric: &str) -> Result<usize, StorageError> {
        let (mut from, mut to) = (0, self.units.len());
        while to - from > 1 {
            let middle = from.midpoint(to);
            let Some(entry) = self.units.get(middle) else {
                break;
            };
            if open_unit(files, entry)?.name_range().0 <= metric {
                from = middle
            } else {
                to = middle
            }
        }
        Ok(from)
    }
}

fn open_unit(files: &BlockFiles, entry: &UnitEntry) -> Result<Arc<MetadataUnit>, StorageError> {
    files.load_unit(Some(entry), MetadataUnit::open)
}
