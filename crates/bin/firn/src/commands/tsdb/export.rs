//! The command `firn tsdb export prometheus OUT --data DATA`: writes blocks that Prometheus can
//! open.
//!
//! ```text
//! each two hours of data time with samples -> OUT/<ulid>.tmp-for-creation -> OUT/<ulid>
//! ```
//!
//! A block gets its final name at once when it is complete. The name is derived from its two hours
//! and from the request, so that a repeated run skips completed blocks. Prometheus removes folders
//! with the temporary name when it starts.

use super::import::fnv;
use super::progress::CommandProgressLine;
use super::reading::DataFolderReader;
use firn_model::columns::SeriesColumns;
use firn_model::env::{Disk, DiskFile, Env, OpenMode};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimeRange};
use firn_prometheus_tsdb::{BlockFile, BlockFolder, TsdbBlockOptions, TsdbBlockWriter, Ulid};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Time range of a block in milliseconds, as in Prometheus.
const BLOCK_MS: i64 = 2 * 3_600_000;

/// Maximum number of time windows: two centuries. A wider range usually means that milliseconds
/// were taken for seconds.
const WINDOWS_MAX: usize = 1_000_000;

/// Suffix of the name of a block that is being written.
const TEMPORARY: &str = ".tmp-for-creation";

/// Request of an export, built from the command line: source, destination, series and time range.
#[derive(Debug)]
pub struct ExportRequest<'a> {
    /// Path of Firn's data folder.
    pub data: &'a Path,
    /// Path of the folder that receives the blocks; created if it does not exist.
    pub out: &'a Path,
    /// Selectors of series, of which one must match. Empty means all series.
    pub selectors: &'a [String],
    /// Time range of the exported samples, both ends included.
    pub range: TimeRange,
}

/// Result of an export, printed at its end. Counts cover only this run.
#[derive(Debug, Default)]
pub struct ExportSummary {
    /// Number of blocks that were written.
    pub blocks: u64,
    /// Number of exported series, counted once per block.
    pub series: u64,
    /// Number of samples in all blocks that were written.
    pub samples: u64,
    /// Number of blocks that existed before and were skipped.
    pub passed: usize,
    /// Descriptions of damage found in the folder. The samples lost there are not in the blocks.
    pub damages: Vec<String>,
}

/// Exports the requested samples as blocks and returns the totals.
pub fn prometheus(env: &Env, wanted: &ExportRequest<'_>) -> Result<ExportSummary, Error> {
    let folder = DataFolderReader::open(env, wanted.data, wanted.selectors)?;
    let disk = &*env.disk;
    // promtool reads only folders with a WAL folder, which may be empty.
    let made = disk.create_dir_all(&wanted.out.join("wal"));
    made.map_err(|e| refused("create folder in", wanted.out, &e))?;
    let names = disk.list(wanted.out);
    let there: BTreeSet<PathBuf> = names
        .map_err(|e| refused("list", wanted.out, &e))?
        .into_iter()
        .collect();
    let mut summary = ExportSummary::default();
    let windows = windows(&folder.ranges(), wanted.range)?;
    let progress = CommandProgressLine::new(windows.len() as u64, "blocks");
    for window in windows {
        let ulid = name_of(wanted, window);
        progress.set_item(ulid.to_string());
        if there.contains(Path::new(&ulid.to_string())) {
            summary.passed += 1
        } else {
            export_window(env, &folder, wanted, ulid, window, &mut summary)?
        }
        progress.add(1);
    }
    summary.damages = folder.damages();
    Ok(summary)
}

/// Returns the two-hour windows that may contain requested samples, the oldest first. Fails if
/// there are more than [`WINDOWS_MAX`].
fn windows(ranges: &[TimeRange], wanted: TimeRange) -> Result<Vec<TimeRange>, Error> {
    let mut windows = BTreeMap::new();
    for range in ranges {
        let (min, max) = (range.min.max(wanted.min), range.max.min(wanted.max));
        let mut start = min.div_euclid(BLOCK_MS).saturating_mul(BLOCK_MS);
        while start <= max {
            let end = start.saturating_add(BLOCK_MS - 1);
            let window = TimeRange::new(start.max(wanted.min), end.min(wanted.max));
            windows.insert(start, window);
            if windows.len() > WINDOWS_MAX {
                let why = format!(
                    "samples from {} to {} ms need more than {WINDOWS_MAX} blocks of two hours, \
                     the limit; choose a shorter range with --from and --to",
                    range.min, range.max
                );
                return Err(Error::new(ErrorKind::Limited, why));
            }
            if end == i64::MAX {
                break;
            }
            start = end + 1;
        }
    }
    Ok(windows.into_values().collect())
}

fn name_of(wanted: &ExportRequest<'_>, window: TimeRange) -> Ulid {
    let mut selectors = wanted.selectors.to_vec();
    selectors.sort();
    let told = format!("firn {} {} {selectors:?}", window.min, window.max);
    let time = window.max.clamp(0, (1 << 48) - 1) as u128;
    let rest = fnv(told.as_bytes()) & ((1 << 80) - 1);
    Ulid(time << 80 | rest)
}

fn export_window(
    env: &Env,
    folder: &DataFolderReader,
    wanted: &ExportRequest<'_>,
    ulid: Ulid,
    window: TimeRange,
    summary: &mut ExportSummary,
) -> Result<(), Error> {
    let dir = wanted.out.join(format!("{ulid}{TEMPORARY}"));
    let output = OutputFolder::create(env, &dir)?;
    let start = window.min.div_euclid(BLOCK_MS).saturating_mul(BLOCK_MS);
    let options = TsdbBlockOptions::new(ulid, start, start.saturating_add(BLOCK_MS));
    let mut writer = TsdbBlockWriter::new(output, options);
    folder.each_series(window, None, &mut |labels, columns| {
        write_series(&mut writer, labels, columns)
    })?;
    let (output, meta) = writer.finish()?;
    let Some(meta) = meta else {
        return output.remove();
    };
    output.finish()?;
    let place = wanted.out.join(ulid.to_string());
    let renamed = env.disk.rename(&dir, &place);
    renamed.map_err(|e| refused("rename folder to", &place, &e))?;
    let synced = env.disk.sync_dir(wanted.out);
    synced.map_err(|e| refused("sync folder", wanted.out, &e))?;
    summary.blocks += 1;
    summary.series += meta.stats.num_series;
    summary.samples += meta.stats.num_samples;
    Ok(())
}

fn write_series(
    writer: &mut TsdbBlockWriter<OutputFolder>,
    labels: &Labels,
    columns: SeriesColumns<'_>,
) -> Result<(), Error> {
    writer.start_series(labels.as_ref())?;
    let mut histograms = columns.histograms.iter().peekable();
    for (i, (time, value)) in columns.times.iter().zip(columns.values).enumerate() {
        let start = columns.start_times.get(i).copied().unwrap_or(START_UNKNOWN);
        match histograms.next_if(|(at, _)| *at as usize == i) {
            Some((_, histogram)) => writer.push_histogram(*time, start, histogram)?,
            None => writer.push_float(*time, start, *value)?,
        }
    }
    Ok(())
}

/// A folder of a block that is being written, under its temporary name.
pub struct OutputFolder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Open files with their lengths in bytes.
    files: BTreeMap<BlockFile, (Arc<dyn DiskFile>, u64)>,
}

impl OutputFolder {
    /// Creates an empty folder at `dir` and removes leftovers of an earlier run.
    pub fn create(env: &Env, dir: &Path) -> Result<Self, Error> {
        let disk = &env.disk;
        let chunks = dir.join("chunks");
        for folder in [dir, &chunks] {
            let made = disk.create_dir_all(folder);
            made.map_err(|e| refused("create folder", folder, &e))?;
        }
        for folder in [&chunks, dir] {
            let names = disk.list(folder);
            for name in names.map_err(|e| refused("list", folder, &e))? {
                let path = folder.join(name);
                if path != chunks {
                    let removed = disk.remove_file(&path);
                    removed.map_err(|e| refused("remove", &path, &e))?;
                }
            }
        }
        Ok(Self {
            disk: disk.clone(),
            dir: dir.to_path_buf(),
            files: BTreeMap::new(),
        })
    }

    /// Makes all files durable, except scratch files, which are removed.
    pub fn finish(mut self) -> Result<(), Error> {
        self.remove_if(BlockFile::is_scratch)?;
        for (file, (handle, _)) in &self.files {
            let synced = handle.sync_data();
            synced.map_err(|e| refused("sync", &self.dir.join(file.path()), &e))?;
        }
        for folder in [self.dir.join("chunks"), self.dir.clone()] {
            let synced = self.disk.sync_dir(&folder);
            synced.map_err(|e| refused("sync folder", &folder, &e))?;
        }
        Ok(())
    }

    /// Removes the folder with all its files, if the block is empty.
    fn remove(mut self) -> Result<(), Error> {
        self.remove_if(|_| true)?;
        for folder in [self.dir.join("chunks"), self.dir.clone()] {
            let removed = self.disk.remove_dir(&folder);
            removed.map_err(|e| refused("remove", &folder, &e))?;
        }
        Ok(())
    }

    fn remove_if(&mut self, is_removed: impl Fn(BlockFile) -> bool) -> Result<(), Error> {
        let files: Vec<BlockFile> = self.files.keys().copied().collect();
        for file in files.into_iter().filter(|file| is_removed(*file)) {
            let path = self.dir.join(file.path());
            let removed = self.disk.remove_file(&path);
            removed.map_err(|e| refused("remove", &path, &e))?;
            self.files.remove(&file);
        }
        Ok(())
    }
}

impl BlockFolder for OutputFolder {
    fn append(&mut self, file: BlockFile, bytes: &[u8]) -> Result<(), Error> {
        let path = self.dir.join(file.path());
        let (handle, len) = match self.files.entry(file) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let opened = self.disk.open(&path, OpenMode::CreateNew);
                new.insert((opened.map_err(|e| refused("create", &path, &e))?, 0))
            }
        };
        let written = handle.write_all_at(*len, bytes);
        written.map_err(|e| refused("write", &path, &e))?;
        *len += bytes.len() as u64;
        Ok(())
    }

    fn read(&mut self, file: BlockFile, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let path = self.dir.join(file.path());
        let missing = std::io::Error::from(IoErrorKind::NotFound);
        let known = self.files.get(&file);
        let (handle, _) = known.ok_or_else(|| refused("read", &path, &missing))?;
        let mut done = 0;
        while done < into.len() {
            let read = handle.read_at(offset + done as u64, &mut into[done..]);
            match read.map_err(|e| refused("read", &path, &e))? {
                0 => {
                    let short = std::io::Error::from(IoErrorKind::UnexpectedEof);
                    return Err(refused("read", &path, &short));
                }
                count => done += count,
            }
        }
        Ok(())
    }
}

fn refused(action: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!("{action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ranges: &[(i64, i64)], wanted: TimeRange, expected: Result<&[(i64, i64)], &str>) {
        let hours = |(min, max)| TimeRange::new(min * 3_600_000, max * 3_600_000 - 1);
        let ranges: Vec<TimeRange> = ranges.iter().copied().map(hours).collect();
        match (windows(&ranges, wanted), expected) {
            (Ok(found), Ok(expected)) => {
                let expected: Vec<TimeRange> = expected.iter().copied().map(hours).collect();
                assert_eq!(found, expected);
            }
            (found, expected) => assert_eq!(
                found.map_err(|e| e.message),
                Err(expected.unwrap_err().to_owned())
            ),
        }
    }

    #[test]
    fn windows_are_two_hours_each_and_bounded() {
        let all = TimeRange::ALL;
        check(
            &[(1, 3), (2, 5), (10, 11)],
            all,
            Ok(&[(0, 2), (2, 4), (4, 6), (10, 12)]),
        );
        check(
            &[(1, 9)],
            TimeRange::new(3 * 3_600_000, 5 * 3_600_000 - 1),
            Ok(&[(3, 4), (4, 5)]),
        );
        check(
            &[(0, 1), (0, 4_000_000)],
            all,
            Err(
                "samples from 0 to 14399999999999 ms need more than 1000000 blocks of two hours, \
                 the limit; choose a shorter range with --from and --to",
            ),
        );
    }
}
