//! The files of a head, and the passes over them.

use super::part::{HeadPart, HeadPartFull, SeriesHashShare};
use super::series::{CollectedHeadSeries, HeadSeries};
use crate::error::TsdbError;
use crate::head_chunks::{HeadChunkFile, HeadChunks};
use crate::ranges::{NamedRangeFile, ReadRanges};
use crate::wal::{WalEntries, WalEntry, WalReader, WalTailPolicy};
use firn_model::sample::TimestampMs;

/// Largest number of shares: a share that does not fit then contains one series, or several whose
/// hashes collide.
const SHARES_MAX: u64 = 1 << 24;

/// The files that Prometheus replays at its start, opened by the caller; all lists are sorted by
/// file number. Missing folders are empty lists.
#[derive(Clone, Debug)]
pub struct HeadFiles<R> {
    /// Segments of the newest folder `wal/checkpoint.N`.
    pub checkpoint: Vec<NamedRangeFile<R>>,
    /// Segments of `wal` with greater numbers than the checkpoint.
    pub wal: Vec<NamedRangeFile<R>>,
    /// Segments of `wbl`.
    pub wbl: Vec<NamedRangeFile<R>>,
    /// Files of `chunks_head`.
    pub chunks: Vec<HeadChunkFile<R>>,
}

/// Options for reading a head: the memory limit, and the end of the blocks. Only the latter affects
/// which samples are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadOptions {
    /// Largest memory in bytes for the labels and samples that are collected at a time.
    pub memory_bytes: usize,
    /// The largest `max_time` of the blocks with in-order samples. Earlier in-order samples of the
    /// head are in those blocks and are left out.
    pub min_valid_time: Option<TimestampMs>,
}

/// Findings besides samples, for a report to the user. It is complete only after the last series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadReport {
    /// Files that end in the middle of a record or chunk, with the offset.
    pub torn: Vec<(String, u64)>,
    /// Number of histograms with unknown schemas, which were left out.
    pub unknown_schemas: u64,
    /// Number of parts that were read.
    pub parts: u64,
}

/// Reads the series of a head, part by part, so that memory stays below the limit.
#[derive(Debug)]
pub struct HeadReader<R> {
    files: HeadFiles<R>,
    options: HeadOptions,
    /// Shares that remain to be read; the last one is next.
    shares: Vec<SeriesHashShare>,
    series: std::vec::IntoIter<CollectedHeadSeries>,
    report: HeadReport,
}

/// The reason why a part could not be collected: it is too large, or a file cannot be read.
enum HeadPartError {
    Full(HeadPartFull),
    Failed(TsdbError),
}

impl From<HeadPartFull> for HeadPartError {
    fn from(full: HeadPartFull) -> Self {
        HeadPartError::Full(full)
    }
}

impl From<TsdbError> for HeadPartError {
    fn from(error: TsdbError) -> Self {
        HeadPartError::Failed(error)
    }
}

impl<R: ReadRanges> HeadReader<R> {
    /// Returns a reader before the first series.
    pub fn new(files: HeadFiles<R>, options: HeadOptions) -> Self {
        Self {
            files,
            options,
            shares: vec![SeriesHashShare::ALL],
            series: Vec::new().into_iter(),
            report: HeadReport::default(),
        }
    }

    /// Returns the next series, or `None` at the end. All samples of a series may be deleted. Fails
    /// if a file is damaged or a single series needs too much memory.
    pub fn next_series(&mut self) -> Result<Option<HeadSeries<'_, R>>, TsdbError> {
        loop {
            if let Some(series) = self.series.next() {
                let min_valid_time = self.options.min_valid_time.unwrap_or(TimestampMs::MIN);
                let files = &self.files.chunks;
                return Ok(Some(HeadSeries::new(series, files, min_valid_time)));
            }
            let Some(share) = self.shares.pop() else {
                return Ok(None);
            };
            match self.collect(share) {
                Ok(series) => {
                    self.report.parts += 1;
                    self.series = series.into_iter();
                }
                Err(HeadPartError::Failed(error)) => return Err(error),
                Err(HeadPartError::Full(full)) => self.collect_part(share, full)?,
            }
        }
    }

    /// Returns the findings so far. It grows until the last series was returned.
    pub fn report(&self) -> &HeadReport {
        &self.report
    }

    fn collect_part(
        &mut self,
        share: SeriesHashShare,
        full: HeadPartFull,
    ) -> Result<(), TsdbError> {
        if full.only.is_some() || share.modulus >= SHARES_MAX {
            let labels = full.only.unwrap_or_default();
            return Err(TsdbError::SeriesTooLarge {
                labels: labels.to_string(),
                limit: self.options.memory_bytes,
            });
        }
        let [first, second] = share.halves();
        self.shares.extend([second, first]);
        Ok(())
    }

    fn collect(
        &mut self,
        share: SeriesHashShare,
    ) -> Result<Vec<CollectedHeadSeries>, HeadPartError> {
        let min_valid_time = self.options.min_valid_time.unwrap_or(TimestampMs::MIN);
        let mut part = HeadPart::new(share, min_valid_time, self.options.memory_bytes);
        let mut torn = Vec::new();
        let mut unknown_schemas = 0;
        self.for_each_log_entry(true, &mut Vec::new(), |entry| match &entry {
            WalEntry::Series { series, labels } => part.expect_series(*series, labels),
            _ => Ok(()),
        })?;
        self.collect_chunks(&mut part, &mut torn)?;
        self.for_each_log_entry(false, &mut torn, |entry| {
            if let WalEntry::UnknownSchema { .. } = entry {
                unknown_schemas += 1;
            }
            part.add(entry)
        })?;
        let late = &self.files.wbl;
        for_each_entry(late, WalTailPolicy::MayBeTorn, false, &mut torn, |entry| {
            part.add_late(entry)
        })?;
        self.report.torn = torn;
        self.report.unknown_schemas = unknown_schemas;
        Ok(part.finish())
    }

    /// Calls `take` with each entry of the checkpoint, then of the WAL after it. Stops at the first
    /// error.
    fn for_each_log_entry(
        &self,
        series_only: bool,
        torn: &mut Vec<(String, u64)>,
        mut take: impl FnMut(WalEntry<'_>) -> Result<(), HeadPartFull>,
    ) -> Result<(), HeadPartError> {
        let checkpoint = &self.files.checkpoint;
        for_each_entry(
            checkpoint,
            WalTailPolicy::IsWhole,
            series_only,
            torn,
            &mut take,
        )?;
        for_each_entry(
            &self.files.wal,
            WalTailPolicy::MayBeTorn,
            series_only,
            torn,
            &mut take,
        )
    }

    fn collect_chunks(
        &self,
        part: &mut HeadPart,
        torn: &mut Vec<(String, u64)>,
    ) -> Result<(), HeadPartError> {
        let mut chunks = HeadChunks::new(&self.files.chunks);
        while let Some(chunk) = chunks.next_chunk()? {
            if let Some((before, range)) = part.find_overlap(&chunk) {
                let what = format!(
                    "chunk of series {} from {} to {} is out of order: it follows one from {} to \
                     {}",
                    chunk.series, range.min, range.max, before.min, before.max
                );
                return Err(chunk.damage_error(&self.files.chunks, what).into());
            }
            part.add_chunk(chunk)?;
        }
        torn.extend(chunks.torn_end().map(|(name, at)| (name.to_owned(), at)));
        Ok(())
    }
}

fn for_each_entry<R: ReadRanges>(
    segments: &[NamedRangeFile<R>],
    tail: WalTailPolicy,
    series_only: bool,
    torn: &mut Vec<(String, u64)>,
    mut take: impl FnMut(WalEntry<'_>) -> Result<(), HeadPartFull>,
) -> Result<(), HeadPartError> {
    let mut reader = WalReader::new(segments, tail);
    while let Some(record) = reader.next_record()? {
        let entries = WalEntries::new(record);
        if series_only && !entries.has_series_entries() {
            continue;
        }
        let mut failed = None;
        for entry in entries {
            match entry {
                Ok(entry) => take(entry)?,
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(reader.damage_error(error).into());
        }
    }
    torn.extend(reader.torn_end().map(|(name, at)| (name.to_owned(), at)));
    Ok(())
}
