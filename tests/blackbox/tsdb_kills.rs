//! The offline tools are killed at random moments and run again: the final data equals that of an
//! undisturbed run, and no part of an atomic change is ever visible. `FIRN_SEED` repeats the
//! moments, as shares of the duration of a run.

use crate::harness::server::firn;
use firn_model::env::sim::SimRng;
use firn_model::labels::Labels;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Number of kills that must hit a running tool, one after the other on the same folder, and
/// maximum number of attempts: each attempt that is too late halves the remaining moments on
/// average.
const KILLS: usize = 6;
const MOST_KILLS: usize = 60;

/// Resolution of the moments, as shares of the undisturbed run.
const SHARES: u64 = 1_000;

/// Number of two-hour ranges that the blocks of a source cover, and the first one. Each has its own
/// metric.
const BLOCKS: i64 = 4;
const FIRST_MS: i64 = 236_112 * BLOCK_MS;
const BLOCK_MS: i64 = 7_200_000;

const SERIES: i64 = 200;
const INTERVAL_MS: i64 = 60_000;

/// Bytes of a page of Prometheus's WAL, and of the header of a fragment.
const PAGE_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;

fn rng() -> SimRng {
    let seed = std::env::var("FIRN_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(crate::now_ms() as u64);
    println!("FIRN_SEED={seed}");
    SimRng::new(seed)
}

/// Returns the command `firn tsdb` with these arguments.
fn tsdb(args: &[&str]) -> Command {
    let mut command = firn();
    command.arg("tsdb").args(args).stdin(Stdio::null());
    command
}

/// Runs the tool to its successful end and returns the duration.
fn run(args: &[&str]) -> Duration {
    let start = Instant::now();
    let Output { status, stderr, .. } = tsdb(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success() && stderr.is_empty(), "{args:?}: {stderr}");
    start.elapsed()
}

/// Kills the tool repeatedly, checks the data after each kill, and finally runs it to its end. If a
/// run ends before its kill, the next moment is earlier, because the undisturbed run may have been
/// slow on a busy machine.
fn run_with_kills(args: &[&str], took: Duration, look: &mut dyn FnMut()) {
    let rng = rng();
    let (mut longest, mut met, mut kills) = (took, 0, 0);
    while met < KILLS {
        let moment = longest.mul_f64(rng.next_below(SHARES) as f64 / SHARES as f64);
        let mut command = tsdb(args);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = quiet.spawn().unwrap();
        std::thread::sleep(moment);
        if child.try_wait().unwrap().is_none() {
            met += 1;
        } else {
            longest = moment;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        println!("killed after {moment:?}");
        look();
        assert!(
            kills < MOST_KILLS,
            "{met} of {kills} runs were alive when they were killed"
        );
    }
    run(args);
    look();
}

/// Returns the lines of a dump by metric: each contains a series, a sample and its time. A folder
/// that does not exist yet has no lines.
fn dump(data: &Path) -> BTreeMap<String, Vec<String>> {
    if !data.join("FORMAT").exists() {
        return BTreeMap::new();
    }
    let output = tsdb(&["dump", "--data"]).arg(data).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let (_, behind) = line.split_once("__name__=\"").unwrap();
        let (metric, _) = behind.split_once('"').unwrap();
        let of_metric = lines.entry(metric.to_owned()).or_default();
        of_metric.push(line.to_owned());
    }
    lines
}

/// Returns a value with many digits that differs for each sample.
fn value(series: i64, time_ms: i64) -> f64 {
    ((series + 1) * (time_ms / INTERVAL_MS % 1_009)) as f64 * 0.1
}

/// Returns a text with one metric per block.
fn text() -> String {
    let mut text = String::new();
    for block in 0..BLOCKS {
        for series in 0..SERIES {
            let start = FIRST_MS + block * BLOCK_MS;
            for time in (start..start + BLOCK_MS).step_by(INTERVAL_MS as usize) {
                let (value, seconds) = (value(series, time), time / 1_000);
                let series = format!("block_{block}{{i=\"{series}\"}}");
                writeln!(text, "{series} {value} {seconds}").unwrap();
            }
        }
    }
    text + "# EOF\n"
}

/// Creates a folder with the text and the data folder of an undisturbed import.
fn source() -> (tempfile::TempDir, Duration) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text"), text()).unwrap();
    let took = run(&of_text(folder.path(), "data")
        .each_ref()
        .map(String::as_str));
    (folder, took)
}

fn of_text(folder: &Path, data: &str) -> [String; 5] {
    let at = |name: &str| folder.join(name).display().to_string();
    let args = ["create-blocks-from", "openmetrics"].map(str::to_owned);
    let [command, format] = args;
    [command, format, at("text"), "--data".to_owned(), at(data)]
}

fn of_prometheus(folder: &Path, verb: &str, place: &str, data: &str) -> [String; 5] {
    let at = |name: &str| folder.join(name).display().to_string();
    let [verb, kind] = [verb, "prometheus"].map(str::to_owned);
    [verb, kind, at(place), "--data".to_owned(), at(data)]
}

#[test]
fn text_killed_at_any_moment_is_imported_as_a_whole_or_not() {
    let (folder, took) = source();
    let whole = dump(&folder.path().join("data"));
    assert_eq!(whole.len() as i64, BLOCKS);
    let killed = folder.path().join("killed");
    let args = of_text(folder.path(), "killed");
    let args = args.each_ref().map(String::as_str);
    let mut there = BTreeMap::new();
    run_with_kills(&args, took, &mut || {
        let was_there = std::mem::replace(&mut there, dump(&killed));
        assert!(there.is_empty() || there == whole, "a part was imported");
        assert!(there.len() >= was_there.len(), "what was imported is lost");
    });
    assert!(there == whole);
    run(&["verify", killed.to_str().unwrap()]);
}

/// Returns the contents of all files below a folder, by their paths.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let names = std::fs::read_dir(&folder);
        for entry in names.into_iter().flatten() {
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

#[test]
fn export_killed_at_any_moment_has_whole_blocks_alone() {
    let (folder, _) = source();
    let args = |place: &str| of_prometheus(folder.path(), "export", place, "data");
    let took = run(&args("whole").each_ref().map(String::as_str));
    let whole = files(&folder.path().join("whole"));
    let block_of = |path: &Path| path.iter().next().unwrap().to_str().unwrap().to_owned();
    let blocks: BTreeSet<String> = whole.keys().map(|path| block_of(path)).collect();
    assert_eq!(blocks.len() as i64, BLOCKS);
    let killed = folder.path().join("killed");
    let args = args("killed");
    let args = args.each_ref().map(String::as_str);
    let mut there = BTreeMap::new();
    run_with_kills(&args, took, &mut || {
        there = files(&killed);
        // Prometheus removes other folders when it starts.
        let named: BTreeSet<String> = there.keys().map(|path| block_of(path)).collect();
        for block in named.intersection(&blocks) {
            let expected = whole.iter().filter(|(path, _)| path.starts_with(block));
            let found = there.iter().filter(|(path, _)| path.starts_with(block));
            assert!(found.eq(expected), "{block} is not whole");
        }
    });
    assert!(there == whole, "{:?}", there.keys());
}

/// Returns a segment of Prometheus's WAL with these records.
fn segment(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let mut rest = &record[..];
        let mut is_first = true;
        while is_first || !rest.is_empty() {
            let left = PAGE_BYTES - out.len() % PAGE_BYTES;
            if left <= HEADER_BYTES {
                out.resize(out.len() + left, 0);
                continue;
            }
            let (part, behind) = rest.split_at(rest.len().min(left - HEADER_BYTES));
            rest = behind;
            out.push(match (is_first, rest.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            });
            out.extend((part.len() as u16).to_be_bytes());
            out.extend(crc32c::crc32c(part).to_be_bytes());
            out.extend(part);
            is_first = false;
        }
    }
    out
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Returns a WAL of Prometheus for the time after the blocks. Some of its series have a label that
/// sorts before the name, so that they need separate blocks.
fn log() -> Vec<u8> {
    let start = FIRST_MS + BLOCKS * BLOCK_MS;
    let mut records = Vec::new();
    for series in 0..SERIES {
        let label = if series % 3 == 0 { "A" } else { "i" };
        let number = series.to_string();
        let labels = Labels::from_pairs([("__name__", "head"), (label, number.as_str())]);
        let mut record = vec![1];
        record.extend(series.to_be_bytes());
        record.push(2);
        record.extend(labels.as_bytes());
        records.push(record);
    }
    for time in (start..start + 2 * BLOCK_MS).step_by(INTERVAL_MS as usize) {
        let mut record = vec![2];
        record.extend(0_u64.to_be_bytes());
        record.extend(time.to_be_bytes());
        for series in 0..SERIES {
            varint(&mut record, series);
            varint(&mut record, 0);
            record.extend(value(series, time).to_bits().to_be_bytes());
        }
        records.push(record);
    }
    segment(&records)
}

#[track_caller]
fn check_import_with_kills(folder: &Path, metrics: i64) {
    let args = |data: &str| of_prometheus(folder, "import", "source", data);
    let took = run(&args("undisturbed").each_ref().map(String::as_str));
    let whole = dump(&folder.join("undisturbed"));
    assert_eq!(whole.len() as i64, metrics);
    let killed = folder.join("killed");
    let args = args("killed");
    let args = args.each_ref().map(String::as_str);
    let mut there = BTreeMap::new();
    run_with_kills(&args, took, &mut || {
        let was_there = std::mem::replace(&mut there, dump(&killed));
        for (metric, lines) in &there {
            assert!(whole[metric] == *lines, "a part of {metric} was imported");
        }
        assert!(there.len() >= was_there.len(), "what was imported is lost");
    });
    assert!(there == whole, "{:?}", there.keys());
    run(&["verify", killed.to_str().unwrap()]);
}

#[test]
fn import_killed_at_any_moment_has_whole_blocks_and_the_whole_head() {
    let (folder, _) = source();
    let export = of_prometheus(folder.path(), "export", "source", "data");
    run(&export.each_ref().map(String::as_str));
    let wal = folder.path().join("source/wal");
    std::fs::write(wal.join("00000000"), log()).unwrap();
    check_import_with_kills(folder.path(), BLOCKS + 1);
}

#[test]
fn import_of_a_head_alone_killed_at_any_moment_has_it_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let wal = folder.path().join("source/wal");
    std::fs::create_dir_all(&wal).unwrap();
    std::fs::write(wal.join("00000000"), log()).unwrap();
    check_import_with_kills(folder.path(), 1);
}
