//! Tests that import data folders of Prometheus and export them again.

use super::reading::DataFolderReader;
use super::{export, import};
use firn_model::columns::SeriesColumns;
use firn_model::env::{Env, real};
use firn_model::histogram::{Histogram, HistogramCounts};
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimeRange};
use firn_prometheus_tsdb::{TsdbBlockOptions, TsdbBlockWriter, Ulid};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn env() -> Env {
    real::system_env().unwrap()
}

/// Returns a data folder written by Prometheus; see the tests of the crate `wire`.
fn recorded(name: &str) -> PathBuf {
    let recorded = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../lib/prometheus_tsdb/tests"
    );
    Path::new(recorded).join(name)
}

/// Returns the contents of all files below a folder, by their paths.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                let name = path.strip_prefix(dir).unwrap().to_path_buf();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn exported(data: &Path, out: &Path) -> export::ExportSummary {
    let wanted = export::ExportRequest {
        data,
        out,
        selectors: &[],
        range: TimeRange::ALL,
    };
    export::prometheus(&env(), &wanted).unwrap()
}

/// Imports a folder, exports it, and repeats both with the exported folder. Returns the first
/// export.
fn round(source: &Path, samples: u64) -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let before = files(source);
    let first = import::prometheus(&env(), source, &at("data")).unwrap();
    assert_eq!(files(source), before, "the source is only read");
    assert_eq!(first.passed, 0);
    let again = import::prometheus(&env(), source, &at("data")).unwrap();
    assert_eq!(again.imported.blocks, 0);
    assert_eq!(again.passed, first.imported.blocks);
    let out = exported(&at("data"), &at("out"));
    assert_eq!((out.samples, out.damages.len()), (samples, 0));
    let again = exported(&at("data"), &at("out"));
    assert_eq!((again.blocks, again.passed as u64), (0, out.blocks));
    let second = import::prometheus(&env(), &at("out"), &at("data-2")).unwrap();
    assert_eq!(second.imported.samples, samples);
    exported(&at("data-2"), &at("out-2"));
    let blocks = files(&at("out"));
    assert_eq!(files(&at("out-2")), blocks);
    blocks
}

/// A sample for comparison: kind, time, start time, and the bits of a float or the count and the
/// sum of a histogram.
type Told = (char, i64, i64, [String; 2]);

/// Parses recorded samples, one per line, preceded by the labels of their series.
fn expected(said: &str) -> BTreeMap<String, Vec<Told>> {
    let mut all: BTreeMap<String, Vec<Told>> = BTreeMap::new();
    let mut series = String::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        let text = |at: usize| words[at].to_owned();
        let told = match words[0] {
            "S" => {
                series = words[1].to_owned();
                continue;
            }
            "f" => ('f', number(1), number(2), [text(3), String::new()]),
            "h" => ('h', number(1), number(2), [text(5), text(7)]),
            "H" => ('H', number(1), number(2), [text(5), text(7)]),
            _ => continue,
        };
        all.entry(series.clone()).or_default().push(told);
    }
    all
}

/// Returns the samples of a data folder in the same form.
fn imported(data: &Path) -> BTreeMap<String, Vec<Told>> {
    let hex = |text: &[u8]| text.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let bits = |value: f64| format!("{:x}", value.to_bits());
    let mut all = BTreeMap::new();
    let folder = DataFolderReader::open(&env(), data, &[]).unwrap();
    let mut take = |labels: &Labels, columns: SeriesColumns<'_>| {
        let pairs = labels.iter();
        let pairs = pairs.map(|(name, value)| format!("{}={},", hex(name.as_bytes()), hex(value)));
        let told = |i: usize| {
            let (time, start) = (columns.times[i], columns.start_times.get(i));
            let start = start
                .copied()
                .filter(|start| *start != START_UNKNOWN)
                .unwrap_or(0);
            let is_it = |(at, _): &&(u32, Arc<Histogram>)| *at as usize == i;
            let Some((_, histogram)) = columns.histograms.iter().find(is_it) else {
                return ('f', time, start, [bits(columns.values[i]), String::new()]);
            };
            let sum = bits(histogram.sum);
            match &histogram.counts {
                HistogramCounts::Integer { count, .. } => {
                    ('h', time, start, [count.to_string(), sum])
                }
                HistogramCounts::Float { count, .. } => ('H', time, start, [bits(*count), sum]),
            }
        };
        let samples: Vec<Told> = (0..columns.times.len()).map(told).collect();
        all.insert(pairs.collect(), samples);
        Ok(())
    };
    folder.each_series(TimeRange::ALL, None, &mut take).unwrap();
    all
}

#[test]
fn recorded_folder_imported_and_exported_has_all_samples_and_stays_the_same() {
    for name in ["plain", "starts"] {
        let said = std::fs::read_to_string(recorded(name).join("expected.txt")).unwrap();
        let expected = expected(&said);
        let samples: usize = expected.values().map(Vec::len).sum();
        round(&recorded(name), samples as u64);
        let folder = tempfile::tempdir().unwrap();
        import::prometheus(&env(), &recorded(name), folder.path()).unwrap();
        let imported = imported(folder.path());
        assert!(imported.keys().eq(expected.keys()), "{name}");
        for (series, samples) in &expected {
            assert_eq!(&imported[series], samples, "{name}: {series}");
        }
    }
}

#[test]
fn series_with_labels_before_the_name_is_put_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let ulid = Ulid(7);
    let dir = source.join(ulid.to_string());
    let output = export::OutputFolder::create(&env(), &dir).unwrap();
    let mut writer = TsdbBlockWriter::new(output, TsdbBlockOptions::new(ulid, 0, 7_200_000));
    let sets: [&[(&str, &str)]; 6] = [
        &[("A", "1"), ("__name__", "b")],
        &[("A", "2"), ("__name__", "a")],
        &[("A", "3"), ("__name__", "z")],
        &[("__name__", "a"), ("x", "1")],
        &[("__name__", "b")],
        &[("job", "no name")],
    ];
    for (i, set) in sets.into_iter().enumerate() {
        let labels = Labels::from_pairs(set.iter().copied());
        writer.start_series(labels.as_ref()).unwrap();
        // More samples than are decoded at a time.
        for time in 0..20_000 {
            writer
                .push_float(time, 0, (i * time as usize) as f64)
                .unwrap();
        }
    }
    let (output, _) = writer.finish().unwrap();
    output.finish().unwrap();
    let wrote = files(&dir);
    let blocks = round(&source, 120_000);
    let same = |name: &str| {
        let found = blocks.iter().find(|(path, _)| path.ends_with(name));
        assert_eq!(found.map(|(_, bytes)| bytes), wrote.get(Path::new(name)));
    };
    same("index");
    same("chunks/000001");
}

#[test]
fn import_broken_off_in_front_of_the_head_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Simulates a run that was interrupted after the blocks: the source had no head then.
    for entry in std::fs::read_dir(recorded("plain")).unwrap() {
        let path = entry.unwrap().path();
        if path.join("meta.json").exists() {
            let to = at("blocks").join(path.file_name().unwrap());
            std::fs::create_dir_all(to.join("chunks")).unwrap();
            for name in files(&path).keys() {
                std::fs::copy(path.join(name), to.join(name)).unwrap();
            }
        }
    }
    let first = import::prometheus(&env(), &at("blocks"), &at("data")).unwrap();
    assert_eq!((first.imported.blocks, first.passed), (2, 0));
    let rest = import::prometheus(&env(), &recorded("plain"), &at("data")).unwrap();
    assert_eq!((rest.imported.blocks, rest.passed), (1, 2));
}

#[test]
fn folder_that_is_none_of_prometheus_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = import::prometheus(&env(), folder.path(), &folder.path().join("data"));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.ends_with("it contains neither a block nor a wal"),
        "{text}"
    );
    assert!(!folder.path().join("data").exists());
}
