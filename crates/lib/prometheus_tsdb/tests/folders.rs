//! Compares data folders of Prometheus 3.14 with the results of its own querier.
//!
//! `tests/plain` was written by the server from remote writes with default settings.
//! `tests/starts` was written by its storage with XOR2 chunks, start timestamps, which the
//! server accepts only from scrapes, and a WAL compressed with zstd. Both processes ended without a
//! clean stop: the folders contain blocks, a checkpoint, a WAL, an out-of-order log, chunks of the
//! head, deletions, histograms of all kinds and exemplars. `expected.txt` has a line for each
//! sample that a querier over the whole folder returned:
//!
//! ```text
//! S name=value,..                      a series, in hexadecimal digits
//! f time start bits                    a float
//! h time start schema threshold count zeros sum Pindex:count,.. N.. Cbound,..    integer histogram
//! H ..                                 the same with the bits of floats
//! E series time bits labels            an exemplar
//! ```

use firn_model::error::Error;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, bucket_indexes};
use firn_model::labels::{Labels, LabelsRef};
use firn_prometheus_tsdb::{
    BlockFile, BlockFolder, ChunkBuilder, ChunkSegments, ChunkStartTimes, HeadChunkFile, HeadFiles,
    HeadOptions, HeadReader, IndexReader, NamedRangeFile, Tombstones, TsdbBlockMeta,
    TsdbBlockOptions, TsdbBlockReader, TsdbBlockWriter, TsdbChunkSamples, TsdbSample,
    TsdbSampleValue, Ulid,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

type Bytes = Vec<u8>;

/// Samples by timestamp, by the labels of their series.
type All = BTreeMap<Labels, BTreeMap<i64, TsdbSample>>;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    paths
}

fn open(path: &Path) -> NamedRangeFile<Bytes> {
    let bytes = std::fs::read(path).expect("the file is there");
    NamedRangeFile::new(path.display().to_string(), bytes)
}

/// Returns the files of a folder with the numbers in their names, without subfolders.
fn numbered(folder: &Path) -> Vec<(u32, NamedRangeFile<Bytes>)> {
    let files = list(folder).into_iter().filter(|path| path.is_file());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse().ok();
    files
        .filter_map(|path| Some((number(&path)?, open(&path))))
        .collect()
}

fn files(folder: &Path) -> Vec<NamedRangeFile<Bytes>> {
    numbered(folder).into_iter().map(|(_, file)| file).collect()
}

/// Returns the blocks of a data folder.
fn blocks(folder: &Path) -> Vec<(TsdbBlockMeta, PathBuf)> {
    let folders = list(folder).into_iter();
    let folders = folders.filter(|path| path.join("meta.json").exists());
    folders
        .map(|path| {
            let bytes = std::fs::read(path.join("meta.json")).expect("it is there");
            let meta = TsdbBlockMeta::read("meta.json", &bytes).expect("it is sound");
            assert_eq!(meta.write(), bytes, "written as Prometheus writes it");
            (meta, path)
        })
        .collect()
}

fn block(path: &Path) -> TsdbBlockReader<Bytes> {
    let index = IndexReader::open(open(&path.join("index"))).expect("it is sound");
    let segments = ChunkSegments::open(files(&path.join("chunks"))).expect("they are sound");
    let stones = std::fs::read(path.join("tombstones")).expect("it is there");
    let stones = Tombstones::read("tombstones", &stones).expect("they are sound");
    TsdbBlockReader::new(index, segments, Some(stones))
}

fn add_block(all: &mut All, path: &Path) {
    let mut block = block(path);
    while let Some(mut series) = block.next_series().expect("it is sound") {
        let samples = all.entry(series.labels().to_owned()).or_default();
        while let Some(sample) = series.next_sample().expect("it is sound") {
            samples.entry(sample.time).or_insert(sample);
        }
    }
}

fn head(
    folder: &Path,
    blocks: &[(TsdbBlockMeta, PathBuf)],
    memory_bytes: usize,
) -> HeadReader<Bytes> {
    let wal = folder.join("wal");
    let is_checkpoint = |path: &PathBuf| path.is_dir();
    let checkpoint = list(&wal).into_iter().rfind(is_checkpoint);
    let checkpoint = checkpoint.expect("there is one");
    let covered: u32 = checkpoint
        .extension()
        .and_then(|number| number.to_str()?.parse().ok())
        .expect("it has a number");
    let in_order = blocks.iter().filter(|(meta, _)| !meta.is_out_of_order());
    let files = HeadFiles {
        checkpoint: files(&checkpoint),
        wal: numbered(&wal)
            .into_iter()
            .filter(|(number, _)| *number > covered)
            .map(|(_, file)| file)
            .collect(),
        wbl: files(&folder.join("wbl")),
        chunks: numbered(&folder.join("chunks_head"))
            .into_iter()
            .map(|(number, file)| HeadChunkFile { number, file })
            .collect(),
    };
    let options = HeadOptions {
        memory_bytes,
        min_valid_time: in_order.map(|(meta, _)| meta.max_time).max(),
    };
    HeadReader::new(files, options)
}

/// Reads all samples of a folder, and its exemplars as text.
fn read(name: &str, memory_bytes: usize) -> (All, BTreeSet<String>) {
    let folder = folder(name);
    let blocks = blocks(&folder);
    let (mut all, mut exemplars) = (All::new(), BTreeSet::new());
    for (_, path) in &blocks {
        add_block(&mut all, path);
    }
    let mut head = head(&folder, &blocks, memory_bytes);
    while let Some(mut series) = head.next_series().expect("it is sound") {
        let labels = series.labels().to_owned();
        for exemplar in series.exemplars() {
            let (time, bits) = (exemplar.time, exemplar.value.to_bits());
            let (of, own) = (told(labels.as_ref()), told(exemplar.labels.as_ref()));
            exemplars.insert(format!("E {of} {time} {bits:x} {own}"));
        }
        let samples = all.entry(labels).or_default();
        while let Some(sample) = series.next_sample().expect("it is sound") {
            samples.entry(sample.time).or_insert(sample);
        }
    }
    all.retain(|_, samples| !samples.is_empty());
    (all, exemplars)
}

fn told(labels: LabelsRef<'_>) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let pairs = labels.pairs();
    pairs.fold(String::new(), |mut out, (name, value)| {
        write!(out, "{}={},", hex(name), hex(value)).expect("memory takes all");
        out
    })
}

fn side<T: Copy + PartialEq + Default>(
    spans: &[BucketSpan],
    counts: impl Iterator<Item = T>,
    word: impl Fn(T) -> String,
) -> String {
    let buckets = bucket_indexes(spans).zip(counts);
    let buckets = buckets.filter(|(_, count)| *count != T::default());
    buckets.fold(String::new(), |mut out, (index, count)| {
        write!(out, "{index}:{},", word(count)).expect("memory takes all");
        out
    })
}

fn histogram_told(histogram: &Histogram) -> (char, String) {
    let bits = |value: f64| format!("{:x}", value.to_bits());
    let shape = format!("{} {}", histogram.schema, bits(histogram.zero_threshold));
    let bounds: String = histogram
        .custom_values
        .iter()
        .map(|bound| format!("{},", bits(*bound)))
        .collect();
    let sum = bits(histogram.sum);
    let spans = (&histogram.positive_spans, &histogram.negative_spans);
    match &histogram.counts {
        HistogramCounts::Integer {
            count,
            zero_count,
            positive,
            negative,
        } => {
            let side = |spans: &[BucketSpan], deltas: &[i64]| {
                let mut count = 0;
                let counts = deltas.iter().map(|delta| {
                    count += delta;
                    count
                });
                side(spans, counts, |count| count.to_string())
            };
            let (p, n) = (side(spans.0, positive), side(spans.1, negative));
            let counts = format!("{count} {zero_count} {sum}");
            ('h', format!("{shape} {counts} P{p} N{n} C{bounds}"))
        }
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => {
            let counts = format!("{} {} {sum}", bits(*count), bits(*zero_count));
            let p = side(spans.0, positive.iter().copied(), bits);
            let n = side(spans.1, negative.iter().copied(), bits);
            ('H', format!("{shape} {counts} P{p} N{n} C{bounds}"))
        }
    }
}

/// Formats the samples like `expected.txt`.
fn lines(all: &All) -> Vec<String> {
    let mut lines = Vec::new();
    for (labels, samples) in all {
        lines.push(format!("S {}", told(labels.as_ref())));
        lines.extend(samples.values().map(|sample| {
            let times = format!("{} {}", sample.time, sample.start_time);
            match &sample.value {
                TsdbSampleValue::Float(value) => format!("f {times} {:x}", value.to_bits()),
                TsdbSampleValue::Histogram(histogram) => {
                    let (kind, rest) = histogram_told(histogram);
                    format!("{kind} {times} {rest}")
                }
            }
        }));
    }
    lines
}

/// Returns the samples and the exemplars that Prometheus returned.
fn expected(name: &str) -> (Vec<String>, BTreeSet<String>) {
    let text = std::fs::read_to_string(folder(name).join("expected.txt"));
    let text = text.expect("it is there");
    let (exemplars, samples): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("E "));
    (
        samples.into_iter().map(str::to_owned).collect(),
        exemplars.into_iter().map(str::to_owned).collect(),
    )
}

fn check(found: &[String], wanted: &[String]) {
    for (number, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found, wanted, "line {}", number + 1);
    }
    assert_eq!(found.len(), wanted.len());
}

#[test]
fn folders_of_prometheus_read_as_it_reads_them_whatever_the_memory() {
    for name in ["plain", "starts"] {
        let (samples, exemplars) = expected(name);
        for memory_bytes in [1 << 30, 100_000] {
            let (all, found) = read(name, memory_bytes);
            check(&lines(&all), &samples);
            assert_eq!(found, exemplars);
        }
    }
}

#[test]
fn stats_of_blocks_are_those_of_their_series() {
    for name in ["plain", "starts"] {
        for (meta, path) in blocks(&folder(name)) {
            let mut block = block(&path);
            let (mut series_count, mut chunk_count, mut samples) = (0, 0, 0);
            while let Some(mut series) = block.next_series().expect("it is sound") {
                series_count += 1;
                for chunk in series.chunks().to_vec() {
                    let (encoding, data) = series.chunk(chunk).expect("it is sound");
                    let read = TsdbChunkSamples::new(encoding, data).expect("it is sound");
                    chunk_count += 1;
                    samples += u64::from(read.remaining());
                }
            }
            let stats = meta.stats;
            assert_eq!(
                (series_count, chunk_count, samples),
                (stats.num_series, stats.num_chunks, stats.num_samples)
            );
        }
    }
}

/// Builds a chunk from the floats of a chunk; returns `None` if they do not form one chunk of the
/// same encoding.
fn written_anew(samples: TsdbChunkSamples<'_>, starts: ChunkStartTimes) -> Option<Bytes> {
    let mut builder = ChunkBuilder::new(starts);
    for sample in samples {
        let sample = sample.expect("it is sound");
        let TsdbSampleValue::Float(value) = sample.value else {
            return None;
        };
        let closed = builder.push_float(sample.time, sample.start_time, value);
        // A chunk without start timestamps ends where later samples have one.
        if closed.expect("times increase").is_some() {
            return None;
        }
    }
    builder.finish().map(|chunk| chunk.data)
}

#[test]
fn float_chunks_of_prometheus_written_anew_are_the_same_bytes() {
    for (name, starts) in [
        ("plain", ChunkStartTimes::Drop),
        ("starts", ChunkStartTimes::Keep),
    ] {
        let mut same = 0;
        for (_, path) in blocks(&folder(name)) {
            let mut block = block(&path);
            while let Some(mut series) = block.next_series().expect("it is sound") {
                for chunk in series.chunks().to_vec() {
                    let (encoding, data) = series.chunk(chunk).expect("it is sound");
                    let samples = TsdbChunkSamples::new(encoding, data).expect("it is sound");
                    let has_start = samples
                        .clone()
                        .next()
                        .is_some_and(|sample| sample.expect("it is sound").start_time != 0);
                    if starts == ChunkStartTimes::Keep && !has_start {
                        continue;
                    }
                    if let Some(written) = written_anew(samples, starts) {
                        assert_eq!(written, data, "{}", path.display());
                        same += 1;
                    }
                }
            }
        }
        assert!(same >= 10, "{name}: {same}");
    }
}

/// A block in memory.
#[derive(Default)]
struct Folder(BTreeMap<BlockFile, Bytes>);

impl BlockFolder for Folder {
    fn append(&mut self, file: BlockFile, bytes: &[u8]) -> Result<(), Error> {
        self.0.entry(file).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, file: BlockFile, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = self.0.entry(file).or_default();
        into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
        Ok(())
    }
}

fn write(all: &All, start_times: ChunkStartTimes) -> Folder {
    let times = || all.values().flat_map(|samples| samples.keys());
    let (min, max) = (times().min(), times().max());
    let (min, max) = min.zip(max).expect("there are samples");
    let options = TsdbBlockOptions {
        start_times,
        ..TsdbBlockOptions::new(Ulid(1), *min, max + 1)
    };
    let mut writer = TsdbBlockWriter::new(Folder::default(), options);
    for (labels, samples) in all {
        writer.start_series(labels.as_ref()).expect("in order");
        for sample in samples.values() {
            let (time, start) = (sample.time, sample.start_time);
            let pushed = match &sample.value {
                TsdbSampleValue::Float(value) => writer.push_float(time, start, *value),
                TsdbSampleValue::Histogram(histogram) => {
                    writer.push_histogram(time, start, histogram)
                }
            };
            pushed.expect("in order");
        }
    }
    writer.finish().expect("memory takes all").0
}

#[test]
fn folders_of_prometheus_written_as_one_block_read_the_same() {
    for (name, starts) in [
        ("plain", ChunkStartTimes::Drop),
        ("starts", ChunkStartTimes::Keep),
    ] {
        let (all, _) = read(name, 1 << 30);
        let mut folder = write(&all, starts);
        let mut file = |file| folder.0.remove(&file).expect("it was written");
        let index = NamedRangeFile::new("index", file(BlockFile::Index));
        let chunks = NamedRangeFile::new("chunks", file(BlockFile::Chunks(1)));
        let index = IndexReader::open(index).expect("it is sound");
        let segments = ChunkSegments::open(vec![chunks]).expect("it is sound");
        let mut block = TsdbBlockReader::new(index, segments, None);
        let mut found = All::new();
        while let Some(mut series) = block.next_series().expect("it is sound") {
            let samples = found.entry(series.labels().to_owned()).or_default();
            while let Some(sample) = series.next_sample().expect("it is sound") {
                samples.insert(sample.time, sample);
            }
        }
        check(&lines(&found), &expected(name).0);
    }
}
