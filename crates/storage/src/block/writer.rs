//! Writes a block, series by series.
//!
//! ```text
//! create -> (push -> push_more*)* -> finish -> meta
//! push: labels -> numbers of their values, lists of series; times -> their number;
//!       values -> a page, which goes to data-NNN when it is full
//! finish: terms, lists, columns of labels -> index and its copy; meta.json; all synced
//! ```
//!
//! Memory does not grow with the samples: a page, a unit of each section, the dictionary of terms
//! with the lists of their series ([`dictionary`]), 32 bytes for each distinct time column, and 24
//! for each unit and each 512 pages. Columns of labels are put aside in a file of the folder until
//! the numbers of values are known. Invariant: the bytes follow from the source and the pushes.

mod dictionary;
mod index;
mod output;

use super::data_page::DataPageBuilder;
use super::exemplars::Thinning;
use super::id::BlockId;
use super::layout::{INDEX, INDEX_COPY, VERSION, data_name};
use super::meta::{BlockMeta, BlockShard, META};
use super::metadata::Sayings;
use super::order::{block_order, family};
use super::pages::PageEntry;
use super::times::TimesWriter;
use crate::chunk::Columns;
use crate::error::StorageError;
use crate::page::limits::HISTOGRAM_NUMBERS_MAX;
use crate::page::mixed;
use dictionary::Dictionary;
use firn_model::env::Env;
use firn_model::exemplar::TimedExemplar;
use firn_model::fingerprint::HashKeys;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use firn_model::sample::TimeRange;
use index::IndexWriter;
use output::{Output, Twins};
use std::cmp::Ordering;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Samples of a column at most: a longer one goes on in the next page. Two days and twenty hours of
/// scrapes every 15 s; 128 KiB when decoded.
const PART_SAMPLES: usize = 1 << 14;

/// Buckets, spans and bounds of the histograms of a column at most, or one histogram: a megabyte
/// when decoded.
const PART_NUMBERS: usize = 1 << 17;

/// Bytes after which a file of pages ends, as Prometheus's segments of chunks do.
const DATA_BYTES: u64 = 512 << 20;

/// What the series of a family have behind its name.
const SERIES_ENDINGS: [&str; 7] = [
    "", "_total", "_bucket", "_count", "_sum", "_created", "_info",
];

/// What the file is called in which columns of labels are put aside.
const SPILL: &str = "series.tmp";

/// What the caller says of a block.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name.
    pub id: BlockId,
    /// Whether it is made of late samples alone.
    pub is_late: bool,
    /// How often its samples were compacted; 1 for a block that is cut.
    pub level: u32,
    /// The blocks of level 1 of which it is made; itself if it is one.
    pub sources: Vec<BlockId>,
    /// The range that it is made for, if it is made for one.
    pub range: Option<TimeRange>,
}

/// See the module.
pub struct BlockWriter {
    env: Env,
    dir: PathBuf,
    source: Source,
    index: IndexWriter,
    dictionary: Dictionary,
    times: TimesWriter,
    data: Output,
    files: Vec<super::meta::FileMeta>,
    page: DataPageBuilder,
    /// Of the page under way: its first series and part, and its times.
    begin: (u32, u32),
    page_range: Option<TimeRange>,
    /// The part of the newest series that comes next, and samples that wait for it.
    part: u32,
    waiting: Columns,
    last: Vec<u8>,
    first_metric: Vec<u8>,
    range: Option<TimeRange>,
    samples: u64,
    histograms: u64,
    columns: u64,
    thinning: Thinning,
    memory: Vec<u8>,
}

impl std::fmt::Debug for BlockWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockWriter({})", self.dir.display())
    }
}

impl BlockWriter {
    /// Begins a block in the folder `dir`, which is made; what lies in it is removed.
    pub fn create(env: &Env, dir: &Path, source: Source) -> Result<Self, StorageError> {
        let disk = &*env.disk;
        disk.create_dir_all(dir)
            .map_err(StorageError::io("create folder", dir))?;
        remove_files(env, dir)?;
        let create = |name: &str| Output::create(disk, dir.join(name));
        let indexes = Twins::create(disk, [dir.join(INDEX), dir.join(INDEX_COPY)])?;
        let index = IndexWriter::new(indexes, create(SPILL)?);
        Ok(Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            source,
            index,
            dictionary: Dictionary::new(HashKeys::new(&*env.rng)),
            times: TimesWriter::new(HashKeys::new(&*env.rng)),
            data: create(&data_name(0))?,
            files: Vec::new(),
            page: DataPageBuilder::default(),
            begin: (0, 0),
            page_range: None,
            part: 0,
            waiting: Columns::default(),
            last: Vec::new(),
            first_metric: Vec::new(),
            range: None,
            samples: 0,
            histograms: 0,
            columns: 0,
            thinning: Thinning::of(0),
            memory: Vec::new(),
        })
    }

    /// Adds a series behind the others in the order of [`block_order`], with its first samples: one
    /// at least, their times ascending.
    pub fn push(&mut self, labels: LabelsRef<'_>, columns: &Columns) -> Result<(), StorageError> {
        self.end_series()?;
        let last = LabelsRef::from_canonical(&self.last);
        let is_first = self.index.series_count() == 0;
        let is_in_order = is_first || block_order(last, labels) == Ordering::Less;
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
            .push(series, labels, |label, value| index.set_label(label, value));
        self.part = 0;
        self.push_columns(labels, columns)
    }

    /// Adds samples to the newest series, newer than all it has. They are kept until there are as
    /// many as a page takes of one series.
    pub fn push_more(&mut self, columns: &Columns) -> Result<(), StorageError> {
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
        let numbers = mixed::numbers(&self.waiting);
        match self.waiting.times.len() >= PART_SAMPLES || numbers >= PART_NUMBERS {
            true => self.end_series(),
            false => Ok(()),
        }
    }

    /// Says how many exemplars will be offered: of more than a block takes only some are kept.
    pub fn expect_exemplars(&mut self, count: u64) {
        self.thinning = Thinning::of(count);
    }

    /// Offers all exemplars of the newest series, in any order and the same ones twice or once.
    pub fn push_exemplars<'a>(
        &mut self,
        of_series: impl Iterator<Item = TimedExemplar<'a>>,
    ) -> Result<(), StorageError> {
        assert!(self.index.series_count() > 0, "exemplars follow a series");
        let kept = self.thinning.kept(of_series);
        kept.iter()
            .try_for_each(|one| self.index.push_exemplar(one))
    }

    /// Says what metrics are, behind all series and once: what is of a family without a series in
    /// the block is left out.
    pub fn say(&mut self, all: &Sayings) -> Result<(), StorageError> {
        let mut series = String::new();
        for saying in all.iter() {
            let mut has = |ending: &&str| {
                series.clear();
                series.push_str(saying.name());
                series.push_str(ending);
                let metric = METRIC_NAME.as_bytes();
                self.dictionary.has(metric, series.as_bytes())
            };
            if SERIES_ENDINGS.iter().any(&mut has) {
                self.index.push_saying(saying)?;
            }
        }
        Ok(())
    }

    /// From its first sample to its newest.
    pub fn sample_range(&self) -> Option<TimeRange> {
        let waiting = &self.waiting.times;
        let ends = waiting.first().zip(waiting.last());
        let waiting = ends.map(|(first, last)| TimeRange::new(*first, *last));
        TimeRange::hull_of(self.range, waiting)
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        let files: u64 = self.files.iter().map(|file| file.bytes).sum();
        files + self.data.len() + 2 * self.index.len()
    }

    /// Samples so far.
    pub fn sample_count(&self) -> u64 {
        self.samples + self.waiting.times.len() as u64
    }

    /// Series so far.
    pub fn series_count(&self) -> u32 {
        self.index.series_count()
    }

    /// Ends the block: all its files are durable, and their names too. There is a series at least.
    pub fn finish(self) -> Result<BlockMeta, StorageError> {
        self.finish_as(None)
    }

    /// Ends the block, which is one of several: where it stands among them, and whether it is the
    /// last one. `set` is the name of the first.
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
            // What is no text is left out, which leaves bounds that are wider.
            first_metric: first_text(&self.first_metric).to_owned(),
            last_metric: std::str::from_utf8(metric).ok().map(str::to_owned),
        };
        self.finish_as(Some(shard))
    }

    fn finish_as(mut self, shard: Option<BlockShard>) -> Result<BlockMeta, StorageError> {
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
        let mut output = Output::create(&*self.env.disk, self.dir.join(META))?;
        output.append(&meta.encode())?;
        output.finish()?;
        let synced = self.env.disk.sync_dir(&self.dir);
        synced.map_err(StorageError::io("sync folder", &self.dir))?;
        Ok(meta)
    }

    /// Removes what was written.
    pub fn abandon(self) -> Result<(), StorageError> {
        remove_folder(&self.env, &self.dir)
    }

    /// Writes what waits of the newest series.
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

    /// Adds samples of the newest series, in as many parts as they need.
    fn push_columns(
        &mut self,
        labels: LabelsRef<'_>,
        columns: &Columns,
    ) -> Result<(), StorageError> {
        let samples = columns.times.len();
        assert!(
            samples > 0 && samples == columns.values.len(),
            "a series has a sample"
        );
        let family = family(labels, &mut self.memory);
        let whole = part_of(columns, 0)?;
        if whole == samples {
            return self.push_part(family, columns);
        }
        let (mut start, mut part) = (0, Columns::default());
        while start < samples {
            let end = part_of(columns, start)?;
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
        family: Option<crate::page::Family>,
        columns: &Columns,
    ) -> Result<(), StorageError> {
        let series = self.index.series_count() - 1;
        // A further part begins a page, so that it is found.
        if self.part > 0 || self.page.is_full() {
            self.end_page()?;
        }
        if self.page.len() == 0 {
            self.begin = (series, self.part);
        }
        let (first, last) = (columns.times[0], columns.times[columns.times.len() - 1]);
        let range = Some(TimeRange::new(first, last));
        let times = self.times.number(&columns.times);
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
            let name = data_name(self.files.len() + 1);
            let next = Output::create(&*self.env.disk, self.dir.join(name))?;
            self.files
                .push(std::mem::replace(&mut self.data, next).finish()?);
        }
        let bytes = self.page.finish();
        let offset = self.data.append(&bytes)?;
        self.index.push_page(PageEntry {
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

/// What of `bytes` is text, up to the first byte that is none.
fn first_text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Where the part ends that begins with a sample.
fn part_of(columns: &Columns, start: usize) -> Result<usize, StorageError> {
    let end = columns.times.len().min(start + PART_SAMPLES);
    let mut numbers = 0;
    for (i, histogram) in &columns.histograms {
        let i = *i as usize;
        if !(start..end).contains(&i) {
            continue;
        }
        let own = mixed::numbers_of(histogram);
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

/// Removes a folder of files.
pub(crate) fn remove_folder(env: &Env, dir: &Path) -> Result<(), StorageError> {
    remove_files(env, dir)?;
    env.disk
        .remove_dir(dir)
        .map_err(StorageError::io("remove", dir))
}

/// Removes the files in a folder, if there is one.
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
