//! The command `firn tsdb import prometheus SRC --data DATA`: converts all samples of a Prometheus
//! data folder into blocks.
//!
//! ```text
//! block of SRC -> one block with the same id, so that a second run skips it
//! head of SRC  -> one block per part that fits into memory, committed together under an id
//!                 derived from the names and lengths of the files
//! ```
//!
//! A block is written, read back and counted before it is committed: either all samples read from
//! it are stored, or none. Series are read in Prometheus's order, which is the order of Firn's
//! blocks except for series with a label that sorts before `__name__`. Those are collected from the
//! index first, and inserted in their positions.

use super::progress::CommandProgressLine;
use super::source::{TsdbSource, TsdbSourceBlock, TsdbSourceFile, min_valid_time};
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsRef, METRIC_NAME};
use firn_prometheus_tsdb::{
    self, HeadFiles, HeadOptions, HeadReader, ReadRanges, TsdbBlockReader, TsdbBlockSeries,
    TsdbError, TsdbSample, TsdbSampleValue,
};
use firn_storage::block::compare_block_order;
use firn_storage::import::{
    BlockId, BlockImport, ChunkSample, ImportBuffer, ImportSeriesWriter, ImportSummary,
    ImportTarget, SampleColumns,
};
use std::cmp::Ordering;
use std::path::Path;

/// Samples of a series that are decoded at a time.
const PIECE_SAMPLES: usize = 8192;

/// Maximum bytes of labels and samples of a head in memory.
const HEAD_BYTES: usize = 256 << 20;

/// Maximum bytes of buffered samples of series that are out of the order of the head.
const APART_BYTES: usize = 64 << 20;

/// Result of an import, printed at its end. Counts cover only this run.
#[derive(Debug, Default)]
pub struct TsdbImportSummary {
    /// Totals of the blocks that were imported.
    pub imported: ImportSummary,
    /// Number of blocks and heads that were skipped, because an earlier run imported them.
    pub passed: usize,
    /// Remarks about the source: files that end in the middle of a record, and histograms that were
    /// skipped.
    pub notes: Vec<String>,
}

/// Imports the folder `source` into the data folder `data`. Blocks that were imported before are
/// skipped.
pub fn prometheus(env: &Env, source: &Path, data: &Path) -> Result<TsdbImportSummary, Error> {
    let source = TsdbSource::open(env, source)?;
    let blocks = source.blocks()?;
    let files = source.head()?;
    let target = ImportTarget::open_folder(env, data)?;
    let mut summary = TsdbImportSummary::default();
    let is_new = |block: &&TsdbSourceBlock| !target.has_block(id_of(block));
    let new: Vec<&TsdbSourceBlock> = blocks.iter().filter(is_new).collect();
    summary.passed = blocks.len() - new.len();
    let total = new.iter().map(|block| block.meta.stats.num_samples);
    let progress = CommandProgressLine::new(total.sum(), "samples");
    for block in new {
        progress.set_item(block.meta.ulid.to_string());
        let mut reader = source.reader(block)?;
        let imported = import_block(&target, id_of(block), &mut reader, &progress)?;
        summary.imported.add(imported);
    }
    progress.set_item("head".to_owned());
    let min_valid_time = min_valid_time(&blocks);
    let head = HeadImport::new(&target, files, min_valid_time, &progress);
    head.run(&mut summary)?;
    Ok(summary)
}

/// Returns the id of a block, which equals the name of the source block.
fn id_of(block: &TsdbSourceBlock) -> BlockId {
    let name = block.meta.ulid.0;
    BlockId::new((name >> 80) as i64, name)
}

/// Numbers of series and samples, to verify that the output contains the whole input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ImportCounts {
    series: u64,
    samples: u64,
}

impl ImportCounts {
    /// Commits the written block if its counts equal those that were read.
    fn commit(self, import: BlockImport) -> Result<ImportSummary, Error> {
        let written = import.verify()?;
        let there = ImportCounts {
            series: written.series,
            samples: written.samples,
        };
        if there != self {
            let ImportCounts { series, samples } = self;
            return Err(Error::new(
                ErrorKind::Internal,
                format!(
                    "{samples} samples of {series} series were read, and {} of {} written; \
                     nothing was kept",
                    there.samples, there.series
                ),
            ));
        }
        import.commit()
    }
}

fn import_block(
    target: &ImportTarget,
    id: BlockId,
    reader: &mut TsdbBlockReader<TsdbSourceFile>,
    progress: &CommandProgressLine,
) -> Result<ImportSummary, Error> {
    let apart = find_reordered_series(reader)?;
    let mut import = target.begin();
    let mut count = ImportCounts::default();
    import.write_block(id, None, |into| {
        let mut push = TsdbImportWriter::new(into, progress);
        let mut apart = apart.into_iter().peekable();
        while let Some(series) = reader.next_series()? {
            if is_apart(series.labels()) {
                continue;
            }
            let first = apart.peek().map(|(labels, _)| labels.as_ref());
            if !first.is_some_and(|first| is_before(first, series.labels())) {
                push.series_of_block(series)?;
                continue;
            }
            let (labels, reference) = (series.labels().to_owned(), series.reference());
            let comes_first =
                |(apart, _): &(Labels, u64)| is_before(apart.as_ref(), labels.as_ref());
            while let Some((_, reference)) = apart.next_if(comes_first) {
                push.series_of_block(reader.series_at(reference)?)?;
            }
            push.series_of_block(reader.series_at(reference)?)?;
        }
        for (_, reference) in apart {
            push.series_of_block(reader.series_at(reference)?)?;
        }
        count = push.count;
        Ok(())
    })?;
    count.commit(import)
}

/// Returns whether the order of a series may differ between Prometheus and Firn: its first label is
/// not its name.
fn is_apart(labels: LabelsRef<'_>) -> bool {
    let first = labels.pairs().next();
    first.is_none_or(|(name, _)| name != METRIC_NAME.as_bytes())
}

fn is_before(a: LabelsRef<'_>, b: LabelsRef<'_>) -> bool {
    compare_block_order(a, b) == Ordering::Less
}

/// Returns the series whose order may differ, in the order of Firn's blocks, with their references
/// in the index.
fn find_reordered_series(
    reader: &mut TsdbBlockReader<TsdbSourceFile>,
) -> Result<Vec<(Labels, u64)>, Error> {
    let mut apart = Vec::new();
    while let Some(series) = reader.next_series()? {
        if is_apart(series.labels()) {
            apart.push((series.labels().to_owned(), series.reference()));
        }
    }
    reader.rewind();
    apart.sort_unstable_by(|a, b| compare_block_order(a.0.as_ref(), b.0.as_ref()));
    Ok(apart)
}

/// Writes series with their samples to a block, counts them, and advances the progress line.
struct TsdbImportWriter<'p, 'w> {
    into: &'p mut ImportSeriesWriter<'w>,
    progress: &'p CommandProgressLine,
    columns: SampleColumns,
    count: ImportCounts,
}

impl<'p, 'w> TsdbImportWriter<'p, 'w> {
    fn new(into: &'p mut ImportSeriesWriter<'w>, progress: &'p CommandProgressLine) -> Self {
        Self {
            into,
            progress,
            columns: SampleColumns::default(),
            count: ImportCounts::default(),
        }
    }

    fn series_of_block<R: ReadRanges>(
        &mut self,
        mut series: TsdbBlockSeries<'_, R>,
    ) -> Result<(), Error> {
        let labels = series.labels().to_owned();
        self.series(labels.as_ref(), || series.next_sample())
    }

    /// Writes a series and its samples piece by piece. A series without samples is left out.
    fn series(
        &mut self,
        labels: LabelsRef<'_>,
        mut next: impl FnMut() -> Result<Option<TsdbSample>, TsdbError>,
    ) -> Result<(), Error> {
        let mut is_begun = false;
        loop {
            self.columns.clear();
            fill(&mut self.columns, PIECE_SAMPLES, &mut next)?;
            let samples = self.columns.times.len() as u64;
            if samples == 0 {
                return Ok(());
            }
            if !std::mem::replace(&mut is_begun, true) {
                self.into.push(labels, &self.columns)?;
                self.count.series += 1;
            } else {
                self.into.extend_last_series(&self.columns)?
            }
            self.count.samples += samples;
            self.progress.add(samples);
        }
    }
}

/// Adds samples of a series to `columns` until there are `max` or no more.
fn fill(
    columns: &mut SampleColumns,
    max: usize,
    next: &mut impl FnMut() -> Result<Option<TsdbSample>, TsdbError>,
) -> Result<(), Error> {
    while columns.times.len() < max {
        let Some(sample) = next()? else { break };
        columns.push(sample.time, sample.start_time, &value_of(sample.value));
    }
    Ok(())
}

fn value_of(value: TsdbSampleValue) -> ChunkSample {
    match value {
        TsdbSampleValue::Float(value) => ChunkSample::Float(value),
        TsdbSampleValue::Histogram(histogram) => ChunkSample::Histogram((*histogram).into()),
    }
}

/// Import of a head into one or more blocks, which are committed together.
struct HeadImport<'a> {
    target: &'a ImportTarget,
    id: BlockId,
    reader: HeadReader<TsdbSourceFile>,
    progress: &'a CommandProgressLine,
    /// Series that is out of order after its predecessor, and begins the next block.
    next: Option<(Labels, SampleColumns)>,
    last: Option<Labels>,
    is_at_end: bool,
    apart: ImportBuffer,
    count: ImportCounts,
}

impl<'a> HeadImport<'a> {
    fn new(
        target: &'a ImportTarget,
        files: HeadFiles<TsdbSourceFile>,
        min_valid_time: Option<i64>,
        progress: &'a CommandProgressLine,
    ) -> Self {
        let options = HeadOptions {
            memory_bytes: HEAD_BYTES,
            min_valid_time,
        };
        Self {
            target,
            id: id_of_head(&files, min_valid_time),
            reader: HeadReader::new(files, options),
            progress,
            next: None,
            last: None,
            is_at_end: false,
            apart: ImportBuffer::default(),
            count: ImportCounts::default(),
        }
    }

    fn run(mut self, summary: &mut TsdbImportSummary) -> Result<(), Error> {
        if self.target.has_block(self.id) {
            summary.passed += 1;
            return Ok(());
        }
        let mut import = self.target.begin_for_block(self.id);
        let mut held = ImportCounts::default();
        while !self.is_at_end || self.next.is_some() {
            let id = self.target.new_id(self.id.time_ms());
            import.write_block(id, None, |into| self.fill_block(into))?;
            held.samples += self.apart.sample_count();
            self.apart.flush(&mut import)?;
        }
        for (file, offset) in &self.reader.report().torn {
            let what = "the file ends in the middle of a record, as after a crash";
            summary.notes.push(format!("{file} at {offset}: {what}"));
        }
        let unknown = self.reader.report().unknown_schemas;
        if unknown > 0 {
            let what = "histograms in the WAL with an unknown schema were skipped";
            summary.notes.push(format!("{unknown} {what}"));
        }
        // A series that is written in several time windows is counted in each of them.
        let mut count = self.count;
        count.samples += held.samples;
        let written = import.verify()?;
        if held.samples > 0 {
            count.series = written.series;
        }
        summary.imported.add(count.commit(import)?);
        Ok(())
    }

    /// Fills a block with the following series, as long as they are in order.
    fn fill_block(&mut self, into: &mut ImportSeriesWriter<'_>) -> Result<(), Error> {
        let mut columns = SampleColumns::default();
        if let Some((labels, first)) = self.next.take() {
            self.push(into, labels, &first)?;
        }
        while self.apart.memory_bytes() < APART_BYTES {
            let Some(mut series) = self.reader.next_series()? else {
                self.is_at_end = true;
                return Ok(());
            };
            let labels = series.labels().to_owned();
            columns.clear();
            fill(&mut columns, usize::MAX, &mut || series.next_sample())?;
            if columns.times.is_empty() {
                continue;
            }
            if is_apart(labels.as_ref()) {
                for (time, start, value) in columns.samples() {
                    self.apart.push(labels.as_ref(), time, start, value);
                }
                continue;
            }
            let last = self.last.as_ref().map(Labels::as_ref);
            if last.is_some_and(|last| !is_before(last, labels.as_ref())) {
                self.last = None;
                self.next = Some((labels, columns));
                return Ok(());
            }
            self.push(into, labels, &columns)?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        into: &mut ImportSeriesWriter<'_>,
        labels: Labels,
        columns: &SampleColumns,
    ) -> Result<(), Error> {
        into.push(labels.as_ref(), columns)?;
        let samples = columns.times.len() as u64;
        self.count.series += 1;
        self.count.samples += samples;
        self.progress.increase_total(samples);
        self.progress.add(samples);
        self.last = Some(labels);
        Ok(())
    }
}

/// Returns an id for the contents of the head. It changes if samples are appended or blocks are
/// cut.
fn id_of_head(files: &HeadFiles<TsdbSourceFile>, min_valid_time: Option<i64>) -> BlockId {
    let chunks = files.chunks.iter().map(|chunks| &chunks.file);
    let logs = files.checkpoint.iter().chain(&files.wal).chain(&files.wbl);
    let mut told = String::new();
    for file in logs.chain(chunks) {
        let name = file.name().rsplit('/').next().unwrap_or_default();
        told += &format!("{name} {}\n", file.len());
    }
    let time = min_valid_time.unwrap_or(0).max(0);
    told += &time.to_string();
    BlockId::new(time, fnv(told.as_bytes()))
}

/// Returns the FNV-1a hash of 128 bits, which is the same in every version.
pub fn fnv(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(BASIS, step)
}
