//! Writes a block, series by series.
//!
//! ```text
//! create -> (push -> push_more*)* -> finish -> meta
//! push: labels -> value numbers, posting lists; times -> time column number;
//!       values -> a page, which is written to data-NNN when it is full
//! finish: terms, posting lists, label columns -> index and its copy; meta.json; all synced
//! ```
//!
//! Memory does not grow with the number of samples. It consists of a page, one unit of each
//! section, the dictionary of terms and their posting lists ([`dictionary`]), 32 bytes for each
//! distinct time column, and 24 bytes for each unit and for every 512 pages. Label columns are
//! spilled to a temporary file in the folder until the final numbers of the values are determined.
//! Invariant: the bytes depend only on the source and on the pushed data.

mod dictionary;
mod index;
mod output;

use super::data_page::DataPageBuilder;
use super::exemplars::ExemplarThinning;
use super::id::BlockId;
use super::layout::{INDEX, INDEX_COPY, VERSION, data_file_name};
use super::meta::{BlockMeta, BlockShard, META};
use super::metadata::MetricMetadataSet;
use super::order::{compare_block_order, hash_family};
use super::pages::BlockPageEntry;
use super::times::TimesWriter;
use crate::chunk::SampleColumns;
use crate::error::StorageError;
use crate::page::limits::HISTOGRAM_NUMBERS_MAX;
use crate::page::mixed;
use dictionary::BlockLabelDictionary;
use firn_model::env::Env;
use firn_model::exemplar::TimedExemplar;
use firn_model::fingerprint::HashKeys;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use firn_model::sample::TimeRange;
use index::BlockIndexWriter;
use output::{BlockFileWriter, IndexFilePair};
use std::cmp::Ordering;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Maximum number of samples in a column; the rest continues on the next page. It is enough for two
/// days and twenty hours of scrapes every 15 s, and takes 128 KiB when decoded.
const PART_SAMPLES: usize = 1 << 14;

/// Maximum total number of buckets, spans and bounds of the histograms in a column, unless it has
/// only one histogram. They take about a megabyte when decoded.
const PART_NUMBERS: usize = 1 << 17;

/// Number of bytes after which a data file ends; the same size as Prometheus's chunk segments.
const DATA_BYTES: u64 = 512 << 20;

/// The suffixes that the series of a metric family add to the family's name.
const SERIES_ENDINGS: [&str; 7] = [
    "", "_total", "_bucket", "_count", "_sum", "_created", "_info",
];

/// Name of the temporary file to which label columns are spilled.
const SPILL: &str = "series.tmp";

/// The properties of a block that its caller chooses and that do not follow from the samples.
#[derive(Clone, Debug)]
pub struct BlockSpec {
    /// Id of the block, which is also the name of its folder.
    pub id: BlockId,
    /// True if the block contains only late samples.
    pub is_late: bool,
    /// Number of compactions that the samples went through; 1 for a block cut from the head.
    pub level: u32,
    /// Ids of the blocks of level 1 that it is compacted from, or its own id if its level is 1.
    pub sources: Vec<BlockId>,
    /// The aligned time range that the block is written for, or `None` if there is none.
    pub range: Option<TimeRange>,
}

/// Writes one block into its folder. The folder must not be used until `finish` has returned; see
/// the module documentation.
pub struct BlockWriter {
    env: Env,
    dir: PathBuf,
    source: BlockSpec,
    index: BlockIndexWriter,
    dictionary: BlockLabelDictionary,
    times: TimesWriter,
    data: BlockFileWriter,
    files: Vec<super::meta::FileMeta>,
    page: DataPageBuilder,
    /// First series, part and time range of the current page.
    begin: (u32, u32),
    page_range: Option<TimeRange>,
    /// Next part number of the current series, and its samples that have not been added to a page.
    part: u32,
    waiting: SampleColumns,
    last: Vec<u8>,
    first_metric: Vec<u8>,
    range: Option<TimeRange>,
    samples: u64,
    histograms: u64,
    columns: u64,
    thinning: ExemplarThinning,
    memory: Vec<u8>,
}

impl std::fmt::Debug for BlockWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockWriter({})", self.dir.display())
    }
}

impl BlockWriter {
    /// Creates the folder `dir` of a new block, or removes the files in it if it exists.
    pub fn create(env: &Env, dir: &Path, source: BlockSpec) -> Result<Self, StorageError> {
        let disk = &*env.disk;
        disk.create_dir_all(dir)
            .map_err(StorageError::io("create folder", dir))?;
        remove_files(env, dir)?;
        let create = |name: &str| BlockFileWriter::create(disk, dir.join(name));
        let indexes = IndexFilePair::create(disk, [dir.join(INDEX), dir.join(INDEX_COPY)])?;
        let index = BlockIndexWriter::new(indexes, create(SPILL)?);
        Ok(Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            source,
            index,
            dictionary: BlockLabelDictionary::new(HashKeys::new(&*env.rng)),
            times: TimesWriter::new(HashKeys::new(&*env.rng)),
            data: create(&data_file_name(0))?,
            files: Vec::new(),
            page: DataPageBuilder::default(),
            begin: (0, 0),
            page_range: None,
            part: 0,
            waiting: SampleColumns::default(),
            last: Vec::new(),
            first_metric: Vec::new(),
            range: None,
            samples: 0,
            histograms: 0,
            columns: 0,
            thinning: ExemplarThinning::from_count(0),
            memory: Vec::new(),
        })
    }

    /// Adds a series with its first samples, of which there must be at least one, in ascending
    /// order of time. Series must be pushed in the order of [`compare_block_order`].
    pub fn push(
        &mut self,
        labels: LabelsRef<'_>,
        columns: &SampleColumns,
    ) -> Result<(), StorageError> {
        self.end_series()?;
        let last = LabelsRef::from_canonical(&self.last);
        let is_first = self.index.series_count() == 0;
        let is_in_order = is_first || compare_block_order(last, labels) == Ordering::Less;
        assert!(is_in_order, "series are pushed in the order of the block");
        if is_first {
            let metric = labels.get(METRIC_NAME);
            self.first_metric.extend_from_slice(metric);
        }
        self.last.clear();
        self.last.extend_from_slice(labels.as_bytes());
        let series = self.index.series_count();
        self.index.begin_series()?;
        let index = &mut self.index;
        self.dictionary
            .push_labels(series, labels, |label, value| index.set_label(label, value));
        self.part = 0;
        self.push_columns(labels, columns)
    }

    /// Appends samples to the last pushed series; they must be newer than all its samples so far.
    /// They are buffered until they fill a column.
    pub fn push_more(&mut self, columns: &SampleColumns) -> Result<(), StorageError> {
        assert!(self.index.series_count() > 0, "samples follow a series");
        let base = self.waiting.times.len();
        self.waiting.times.extend_from_slice(&columns.times);
        self.waiting.values.extend_from_slice(&columns.values);
        if !columns.start_times.is_empty() || !self.waiting.start_times.is_empty() {
            self.waiting.start_times.resize(base, 0);
            self.waiting
                .start_times
                .extend_from_slice(&columns.start_times);
            self.waiting.start_times.resize(self.waiting.times.len(), 0);
        }
        let histograms = columns.histograms.iter();
        let behind = histograms.map(|(i, histogram)| (base as u32 + i, histogram.clone()));
        self.waiting.histograms.extend(behind);
        let numbers = mixed::count_numbers(&self.waiting);
        if self.waiting.times.len() >= PART_SAMPLES || numbers >= PART_NUMBERS {
            self.end_series()
        } else {
            Ok(())
        }
    }

    /// Announces the number of exemplars that will be pushed. If it exceeds the limit of a block,
    /// only a sample of them is kept.
    pub fn expect_exemplars(&mut self, count: u64) {
        self.thinning = ExemplarThinning::from_count(count);
    }

    /// Adds the exemplars of the last pushed series, in any order and possibly with duplicates.
    /// Must be called at most once per series.
    pub fn push_exemplars<'a>(
        &mut self,
        of_series: impl Iterator<Item = TimedExemplar<'a>>,
    ) -> Result<(), StorageError> {
        assert!(self.index.series_count() > 0, "exemplars follow a series");
        let kept = self.thinning.select_exemplars(of_series);
        kept.iter()
            .try_for_each(|one| self.index.push_exemplar(one))
    }

    /// Adds metric metadata. Must be called at most once, after all series; entries of metric
    /// families without a series in the block are dropped.
    pub fn push_metadata(&mut self, all: &MetricMetadataSet) -> Result<(), StorageError> {
        let mut series = String::new();
        for saying in all.iter() {
            let mut has = |ending: &&str| {
                series.clear();
                series.push_str(saying.name());
                series.push_str(ending);
                let metric = METRIC_NAME.as_bytes();
                self.dictionary.has_label_value(metric, series.as_bytes())
            };
            if SERIES_ENDINGS.iter().any(&mut has) {
                self.index.push_metadata(saying)?;
            }
        }
        Ok(())
    }

    /// Returns the time range of the samples so far, or `None` if there are none.
    pub fn sample_range(&self) -> Option<TimeRange> {
        let waiting = &self.waiting.times;
        let ends = waiting.first().zip(waiting.last());
        let waiting = ends.map(|(first, last)| TimeRange::new(*first, *last));
        TimeRange::hull_of(self.range, waiting)
    }

    /// Returns the number of bytes written so far, including buffered bytes of the files.
    pub fn written_bytes(&self) -> u64 {
        let files: u64 = self.files.iter().map(|file| file.bytes).sum();
        files + self.data.len() + 2 * self.index.len()
    }

    /// Returns the number of samples pushed so far.
    pub fn sample_count(&self) -> u64 {
        self.samples + self.waiting.times.len() as u64
    }

    /// Returns the number of series pushed so far.
    pub fn series_count(&self) -> u32 {
        self.index.series_count()
    }

    /// Completes the block and syncs its files and its folder. The block must have at least one
    /// series.
    pub fn finish(self) -> Result<BlockMeta, StorageError> {
        self.finish_with_shard(None)
    }

    /// Completes a block that is one of several of the same merge. `set` is the id of the first of
    /// them, and `number` is the zero-based position of this one.
    pub fn finish_shard(
        self,
        set: BlockId,
        number: u32,
        is_last: bool,
    ) -> Result<BlockMeta, StorageError> {
        let metric = LabelsRef::from_canonical(&self.last).get(METRIC_NAME);
        let shard = BlockShard {
            set,
            number,
            is_last,
            // Metric names that are not UTF-8 are shortened or omitted, which only widens the
            // bounds.
            first_metric: utf8_prefix(&self.first_metric).to_owned(),
            last_metric: std::str::from_utf8(metric).ok().map(str::to_owned),
        };
        self.finish_with_shard(Some(shard))
    }

    fn finish_with_shard(mut self, shard: Option<BlockShard>) -> Result<BlockMeta, StorageError> {
        self.end_series()?;
        let range = self.range.expect("a block has a sample");
        self.end_page()?;
        self.index.end_times_unit(&mut self.times)?;
        self.files.push(self.data.finish()?);
        let mut meta = BlockMeta {
            format: VERSION,
            id: self.source.id,
            is_late: self.source.is_late,
            level: self.source.level,
            sources: self.source.sources,
            range,
            nominal: self.source.range,
            samples: self.samples,
            histograms: self.histograms,
            series: self.index.series_count(),
            columns: self.columns,
            shard,
            files: self.files,
        };
        let indexes = self.index.finish(self.dictionary, &meta)?;
        meta.files.splice(0..0, indexes);
        let spill = self.dir.join(SPILL);
        let removed = self.env.disk.remove_file(&spill);
        removed.map_err(StorageError::io("remove", &spill))?;
        let mut output = BlockFileWriter::create(&*self.env.disk, self.dir.join(META))?;
        output.append(&meta.encode())?;
        output.finish()?;
        let synced = self.env.disk.sync_dir(&self.dir);
        synced.map_err(StorageError::io("sync folder", &self.dir))?;
        Ok(meta)
    }

    /// Removes the folder and the files written so far, for a block that is not needed after all.
    pub fn abandon(self) -> Result<(), StorageError> {
        remove_folder(&self.env, &self.dir)
    }

    /// Adds the buffered samples of the current series to pages.
    fn end_series(&mut self) -> Result<(), StorageError> {
        if self.waiting.times.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let last = std::mem::take(&mut self.last);
        let pushed = self.push_columns(LabelsRef::from_canonical(&last), &waiting);
        self.last = last;
        self.waiting = waiting;
        self.waiting.clear();
        pushed
    }

    /// Adds samples of the current series to pages, split into as many parts as necessary.
    fn push_columns(
        &mut self,
        labels: LabelsRef<'_>,
        columns: &SampleColumns,
    ) -> Result<(), StorageError> {
        let samples = columns.times.len();
        assert!(
            samples > 0 && samples == columns.values.len(),
            "a series has a sample"
        );
        debug_assert!(columns.times.is_sorted_by(|a, b| a < b));
        let family = hash_family(labels, &mut self.memory);
        let whole = find_part_end(columns, 0)?;
        if whole == samples {
            return self.push_part(family, columns);
        }
        let (mut start, mut part) = (0, SampleColumns::default());
        while start < samples {
            let end = find_part_end(columns, start)?;
            part.clear();
            part.times.extend_from_slice(&columns.times[start..end]);
            part.values.extend_from_slice(&columns.values[start..end]);
            let starts = columns.start_times.get(start..end).unwrap_or(&[]);
            part.start_times.extend_from_slice(starts);
            let histograms = columns.histograms.iter();
            let is_in = |i: u32| (start..end).contains(&(i as usize));
            let of_part = histograms.filter(|(i, _)| is_in(*i));
            part.histograms
                .extend(of_part.map(|(i, h)| (i - start as u32, h.clone())));
            self.push_part(family, &part)?;
            start = end;
        }
        Ok(())
    }

    fn push_part(
        &mut self,
        family: Option<crate::page::HistogramFamilyHash>,
        columns: &SampleColumns,
    ) -> Result<(), StorageError> {
        let series = self.index.series_count() - 1;
        // A further part must begin a page, because only the first column of a page has its part
        // number stored.
        if self.part > 0 || self.page.is_full() {
            self.end_page()?;
        }
        if self.page.len() == 0 {
            self.begin = (series, self.part);
        }
        let (first, last) = (columns.times[0], columns.times[columns.times.len() - 1]);
        let range = Some(TimeRange::new(first, last));
        let times = self.times.intern_times(&columns.times);
        if self.times.is_full() {
            self.index.end_times_unit(&mut self.times)?;
        }
        self.page.push(times, family, columns);
        self.page_range = TimeRange::hull_of(self.page_range, range);
        self.range = TimeRange::hull_of(self.range, range);
        self.samples += columns.times.len() as u64;
        self.histograms += columns.histograms.len() as u64;
        self.columns += 1;
        self.part += 1;
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), StorageError> {
        let Some(range) = self.page_range.take() else {
            return Ok(());
        };
        if self.data.len() >= DATA_BYTES {
            let name = data_file_name(self.files.len() + 1);
            let next = BlockFileWriter::create(&*self.env.disk, self.dir.join(name))?;
            self.files
                .push(std::mem::replace(&mut self.data, next).finish()?);
        }
        let bytes = self.page.finish();
        let offset = self.data.append(&bytes)?;
        self.index.push_page(BlockPageEntry {
            first: self.begin.0,
            part: self.begin.1,
            file: self.files.len() as u32,
            offset,
            bytes: bytes.len() as u32,
            crc: crc32c::crc32c(&bytes),
            range,
        })
    }
}

/// Returns the longest prefix of `bytes` that is valid UTF-8.
fn utf8_prefix(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Returns the index after the last sample of the part that begins at `start`.
fn find_part_end(columns: &SampleColumns, start: usize) -> Result<usize, StorageError> {
    let end = columns.times.len().min(start + PART_SAMPLES);
    let mut numbers = 0;
    for (i, histogram) in &columns.histograms {
        let i = *i as usize;
        if !(start..end).contains(&i) {
            continue;
        }
        let own = mixed::count_histogram_numbers(histogram);
        if own > HISTOGRAM_NUMBERS_MAX {
            return Err(StorageError::TooManyBuckets {
                buckets: own,
                limit: HISTOGRAM_NUMBERS_MAX,
            });
        }
        numbers += own;
        if numbers > PART_NUMBERS && i > start {
            return Ok(i);
        }
    }
    Ok(end)
}

/// Removes a folder that contains only files.
pub(crate) fn remove_folder(env: &Env, dir: &Path) -> Result<(), StorageError> {
    remove_files(env, dir)?;
    env.disk
        .remove_dir(dir)
        .map_err(StorageError::io("remove", dir))
}

/// Removes the files in a folder, if the folder exists.
fn remove_files(env: &Env, dir: &Path) -> Result<(), StorageError> {
    let names = match env.disk.list(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(StorageError::io("list", dir))?,
    };
    for name in names {
        let path = dir.join(name);
        env.disk
            .remove_file(&path)
            .map_err(StorageError::io("remove", &path))?;
    }
    Ok(())
}
