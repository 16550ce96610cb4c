//! Initial corpora of the targets for Prometheus's files, from the fixtures of the tests of
//! `prometheus_tsdb`.

use firn_prometheus_tsdb::{ChunkBuilder, ChunkStartTimes};
use std::path::{Path, PathBuf};

/// Folder of the fixtures in the repository.
const FIXTURES: &str = "crates/lib/prometheus_tsdb/tests";

/// Maximum length of a seed in bytes.
const BYTES_MAX: usize = 48 << 10;

/// Returns the files whose paths contain `part`, without trailing zeros.
fn files(part: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let parents = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let fixtures = parents.map(|parent| parent.join(FIXTURES));
    let mut folders: Vec<PathBuf> = fixtures.filter(|folder| folder.is_dir()).collect();
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> = list(&folder);
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains(part) {
                let mut bytes = std::fs::read(&path).expect("the fixture can be read");
                let end = bytes.iter().rposition(|byte| *byte != 0);
                bytes.truncate(end.map_or(0, |end| end + 1).min(BYTES_MAX));
                found.push(bytes);
            }
        }
    }
    found
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the fixture is there");
    let entries = entries.map(|entry| entry.map(|entry| entry.path()));
    entries
        .collect::<Result<_, _>>()
        .expect("the fixture can be read")
}

/// Returns chunks of floats with and without start timestamps, and chunks of other encodings.
pub fn chunks() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (starts, start) in [(ChunkStartTimes::Drop, 0), (ChunkStartTimes::Keep, 7)] {
        let mut builder = ChunkBuilder::new(starts);
        for i in 0..30 {
            let pushed = builder.push_float(i * 15_000 + i % 3, start, (i * i) as f64 / 3.0);
            pushed.expect("times increase");
        }
        let chunk = builder.finish().expect("there are samples");
        seeds.push([&[chunk.encoding.number()][..], &chunk.data].concat());
    }
    for number in [2, 3, 5, 6] {
        for segment in files("/chunks/").iter().take(2) {
            seeds.push([&[number][..], segment.get(10..400).unwrap_or_default()].concat());
        }
    }
    seeds
}

/// Returns index, chunks and meta.json of blocks.
pub fn blocks() -> Vec<Vec<u8>> {
    let indexes = files("/index");
    let parts = indexes
        .iter()
        .zip(files("/chunks/"))
        .zip(files("/meta.json"));
    let seed = |((index, chunks), meta): ((&Vec<u8>, Vec<u8>), Vec<u8>)| {
        let lengths = [index.len() as u16, chunks.len() as u16].map(u16::to_le_bytes);
        [&lengths.concat()[..], index, &chunks, &meta].concat()
    };
    parts.map(seed).collect()
}

/// Returns WAL segments and files of `chunks_head`.
pub fn logs() -> Vec<Vec<u8>> {
    [files("/wal/"), files("/wbl/"), files("/chunks_head/")].concat()
}

/// Returns heads that consist of one segment of each kind.
pub fn heads() -> Vec<Vec<u8>> {
    let parts = files("/wal/0")
        .into_iter()
        .zip(files("/wbl/0"))
        .zip(files("/chunks_head/"));
    let seed = |((wal, wbl), chunks): ((Vec<u8>, Vec<u8>), Vec<u8>)| {
        let lengths = [0, wal.len() as u16, wbl.len() as u16].map(u16::to_be_bytes);
        [&lengths.concat()[..], &wal, &wbl, &chunks].concat()
    };
    parts.map(seed).collect()
}
