//! Tests that whole blocks are read back as they were written.

use super::*;
use firn_model::error::{Error, ErrorKind};
use firn_model::histogram::ResetHint;
use firn_model::labels::Labels;
use firn_model::sample::{TimeRange, stale_nan};
use std::collections::BTreeMap;

/// A folder in memory.
#[derive(Debug, Default)]
struct Folder(BTreeMap<BlockFile, Vec<u8>>);

impl BlockFolder for Folder {
    fn append(&mut self, file: BlockFile, bytes: &[u8]) -> Result<(), Error> {
        self.0.entry(file).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, file: BlockFile, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        assert!(file.is_scratch(), "{file:?} is only written");
        let bytes = self.0.entry(file).or_default();
        into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
        Ok(())
    }
}

impl Folder {
    fn open(&self, tombstones: Option<Tombstones>) -> Result<TsdbBlockReader<&Vec<u8>>, TsdbError> {
        let index = NamedRangeFile::new("b/index", &self.0[&BlockFile::Index]);
        let segments = self.0.iter().filter_map(|(file, bytes)| match file {
            BlockFile::Chunks(_) => Some(NamedRangeFile::new(format!("b/{}", file.path()), bytes)),
            _ => None,
        });
        let segments = ChunkSegments::open(segments.collect())?;
        Ok(TsdbBlockReader::new(
            IndexReader::open(index)?,
            segments,
            tombstones,
        ))
    }
}

type Series = Vec<(Labels, Vec<TsdbSample>)>;

fn read(folder: &Folder, tombstones: Option<Tombstones>) -> Result<Series, TsdbError> {
    let mut block = folder.open(tombstones)?;
    let mut all = Vec::new();
    while let Some(mut series) = block.next_series()? {
        let labels = series.labels().to_owned();
        let mut samples = Vec::new();
        while let Some(sample) = series.next_sample()? {
            samples.push(sample);
        }
        all.push((labels, samples));
    }
    Ok(all)
}

fn options() -> TsdbBlockOptions {
    TsdbBlockOptions::new(Ulid(7), 0, 10_000_000)
}

fn labels(number: i64) -> Labels {
    Labels::from_pairs([
        ("__name__", "up".to_owned()),
        ("instance", format!("host-{number:03}")),
    ])
}

fn series(count: i64, samples: i64) -> Series {
    let sample = |number: i64, i: i64| TsdbSample {
        time: i * 15_000 + number,
        start_time: 0,
        value: TsdbSampleValue::Float(match i % 50 {
            49 => stale_nan(),
            _ => (number * i) as f64 / 7.0,
        }),
    };
    let samples = |number| (0..samples).map(|i| sample(number, i)).collect();
    (0..count).map(|n| (labels(n), samples(n))).collect()
}

fn write(series: &Series, options: TsdbBlockOptions) -> (Folder, Option<TsdbBlockMeta>) {
    let mut writer = TsdbBlockWriter::new(Folder::default(), options);
    for (labels, samples) in series {
        let started = writer.start_series(labels.as_ref());
        started.expect("series are in order");
        for sample in samples {
            let (time, start) = (sample.time, sample.start_time);
            let pushed = match &sample.value {
                TsdbSampleValue::Float(value) => writer.push_float(time, start, *value),
                TsdbSampleValue::Histogram(histogram) => {
                    writer.push_histogram(time, start, histogram)
                }
            };
            pushed.expect("samples are in order");
        }
    }
    writer.finish().expect("memory takes all")
}

/// Formats samples by their bits, because staleness markers are NaN and never equal.
fn told(series: &Series) -> Vec<String> {
    let bits = |sample: &TsdbSample| match &sample.value {
        TsdbSampleValue::Float(value) => format!("{} {:x}", sample.time, value.to_bits()),
        TsdbSampleValue::Histogram(histogram) => format!("{} {histogram:?}", sample.time),
    };
    let of = |(labels, samples): &(Labels, Vec<TsdbSample>)| {
        let samples: Vec<String> = samples.iter().map(bits).collect();
        format!("{labels} {}", samples.join(","))
    };
    series.iter().map(of).collect()
}

/// Returns the numbers of a block's series that tombstones use.
fn references(folder: &Folder) -> Vec<u64> {
    let index = IndexReader::open(NamedRangeFile::new("i", &folder.0[&BlockFile::Index]));
    let index = index.expect("it is sound");
    let (mut walk, mut entry) = (index.start_walk(), IndexSeries::default());
    let mut references = Vec::new();
    while index.advance(&mut walk, &mut entry).expect("it is sound") {
        references.push(entry.reference);
    }
    references
}

#[test]
fn block_written_reads_as_it_was_with_any_size_of_segments() {
    let series = series(20, 300);
    for (segment_bytes_max, segments) in [(1, 60), (3_000, 18), (512 << 20, 1)] {
        let options = TsdbBlockOptions {
            segment_bytes_max,
            memory_bytes: 0,
            ..options()
        };
        let (folder, meta) = write(&series, options);
        assert_eq!(
            told(&read(&folder, None).expect("it is sound")),
            told(&series)
        );
        let stats = meta.map(|meta| meta.stats);
        let wanted = TsdbBlockStats {
            num_samples: 6_000,
            num_float_samples: 6_000,
            num_series: 20,
            num_chunks: 60,
            ..TsdbBlockStats::default()
        };
        assert_eq!(stats, Some(wanted));
        let is_segment = |file: &&BlockFile| matches!(file, BlockFile::Chunks(_));
        assert_eq!(folder.0.keys().filter(is_segment).count(), segments);
    }
}

#[test]
fn block_without_samples_is_none() {
    let (folder, meta) = write(&vec![(labels(1), Vec::new())], options());
    assert_eq!(meta, None);
    assert!(folder.0.is_empty(), "{folder:?}");
}

#[test]
fn block_writer_refuses_what_makes_no_block() {
    let refused = |change: &dyn Fn(&mut TsdbBlockWriter<Folder>) -> Result<(), TsdbError>| {
        let mut writer = TsdbBlockWriter::new(Folder::default(), options());
        let started = writer.start_series(labels(5).as_ref());
        started.expect("it is the first");
        let error = change(&mut writer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    let text = refused(&|writer| writer.start_series(labels(5).as_ref()));
    assert!(text.contains("is not sorted after"), "{text}");
    let text = refused(&|writer| writer.start_series(Labels::empty().as_ref()));
    assert!(text.contains("series {} is not sorted after"), "{text}");
    for time in [-1, 10_000_000] {
        let text = refused(&|writer| writer.push_float(time, 0, 1.0));
        assert!(
            text.contains(&format!("sample at {time} is outside")),
            "{text}"
        );
    }
    let text = refused(&|writer| {
        writer.push_float(5, 0, 1.0)?;
        writer.push_float(4, 0, 1.0)
    });
    assert!(text.contains("is not after"), "{text}");
}

#[test]
fn deleted_samples_are_left_out() {
    let series = series(3, 300);
    let (folder, _) = write(&series, options());
    let numbers = references(&folder);
    let mut tombstones = Tombstones::default();
    tombstones.add(numbers[0], TimeRange::new(0, 3_000_000));
    tombstones.add(numbers[2], TimeRange::ALL);
    let found = read(&folder, Some(tombstones)).expect("it is sound");
    let kept = |from: i64| {
        series.iter().map(move |(l, s)| {
            (
                l.clone(),
                s.iter().filter(|s| s.time > from).cloned().collect(),
            )
        })
    };
    let wanted: Series = kept(3_000_000)
        .take(1)
        .chain(series.iter().skip(1).take(1).cloned())
        .chain([(labels(2), Vec::new())])
        .collect();
    assert_eq!(told(&found), told(&wanted));
    let mut block = folder.open(None).expect("it is sound");
    for _ in 0..2 {
        assert!(block.next_series().expect("it is sound").is_some());
        block.rewind();
    }
}

#[test]
fn histogram_behind_deleted_ones_of_its_chunk_says_nothing_of_resets() {
    let histogram = sample::stale_histogram(1.0, false);
    let samples = (0..10).map(|time| TsdbSample {
        time,
        start_time: 0,
        value: TsdbSampleValue::Histogram(Box::new(histogram.clone())),
    });
    let (folder, _) = write(&vec![(labels(1), samples.collect())], options());
    let hints = |tombstones| -> Vec<ResetHint> {
        let series = read(&folder, tombstones).expect("it is sound");
        let samples = series.iter().flat_map(|(_, samples)| samples);
        let hint = |sample: &TsdbSample| match &sample.value {
            TsdbSampleValue::Histogram(histogram) => histogram.reset_hint,
            TsdbSampleValue::Float(_) => panic!("none was pushed"),
        };
        samples.map(hint).collect()
    };
    assert_eq!(
        hints(None)[..3],
        [ResetHint::Unknown, ResetHint::NotReset, ResetHint::NotReset]
    );
    let mut tombstones = Tombstones::default();
    tombstones.add(references(&folder)[0], TimeRange::new(0, 4));
    assert_eq!(
        hints(Some(tombstones))[..2],
        [ResetHint::Unknown, ResetHint::NotReset]
    );
}

#[test]
fn damage_in_a_segment_is_an_error_that_names_file_and_offset() {
    let (folder, _) = write(&series(2, 200), options());
    let sound = &folder.0[&BlockFile::Chunks(1)];
    for at in 0..sound.len() {
        let mut files = folder.0.clone();
        let bytes = files.get_mut(&BlockFile::Chunks(1)).expect("there is one");
        bytes[at] ^= 0x11;
        match read(&Folder(files.clone()), None) {
            Ok(_) => assert!((5..8).contains(&at), "byte {at} is no padding"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("b/chunks/000001: "), "{text}");
            }
        }
        files.insert(BlockFile::Chunks(1), sound[..at].to_vec());
        assert!(read(&Folder(files), None).is_err(), "cut at {at}");
    }
    let mut files = folder.0.clone();
    files.remove(&BlockFile::Chunks(1));
    let error = read(&Folder(files), None).unwrap_err().to_string();
    assert!(error.contains("a chunk is in segment 1 of 0"), "{error}");
}
