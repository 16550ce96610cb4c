//! Resource usage of processes as reported by the kernel: CPU, memory and I/O; and sizes of
//! directories.

use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Resource usage of a process since its start, read from its files below `/proc`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time in user and kernel mode in seconds, over all threads including exited ones.
    pub cpu_seconds: f64,
    /// Resident memory in bytes at this moment (`VmRSS`).
    pub resident_bytes: u64,
    /// Maximum resident memory since the start in bytes (`VmHWM`).
    pub peak_bytes: u64,
    /// Number of bytes that the process caused to be written to disk.
    pub written_bytes: u64,
    /// Number of bytes that the process caused to be read from disk.
    pub read_bytes: u64,
    /// Number of bytes requested by reads of files and sockets, whether cached or not. Excludes
    /// mapped files.
    pub asked_bytes: u64,
}

/// Reads the usage of process `pid`. Returns `None` if the process is exiting and parts of it are
/// missing.
pub fn usage(pid: u32) -> Option<Usage> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let stat = read("stat")?;
    // The name in parentheses may contain spaces. The fields after it begin with the state.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let status = read("status")?;
    let io = read("io")?;
    Some(Usage {
        cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        resident_bytes: number_after(&status, "VmRSS:")? * 1024,
        peak_bytes: number_after(&status, "VmHWM:")? * 1024,
        written_bytes: number_after(&io, "\nwrite_bytes:")?,
        read_bytes: number_after(&io, "\nread_bytes:")?,
        asked_bytes: number_after(&io, "rchar:")?,
    })
}

/// Drops the files below `dir` from the page cache, after writing dirty pages to disk.
pub fn drop_page_cache(dir: &Path) -> io::Result<()> {
    // Dirty pages cannot be dropped.
    rustix::fs::sync();
    forget_files(dir)
}

fn forget_files(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            forget_files(&entry.path())?;
        } else {
            let file = fs::File::open(entry.path())?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Returns the total size in bytes of the indexes of blocks below `dir`, and the number of series
/// in those blocks. A block is a directory with `meta.json` and `index`, in Prometheus and in Firn.
pub fn block_indexes(dir: &Path) -> io::Result<(u64, u64)> {
    let (mut bytes, mut series) = (0, 0);
    if let (Ok(index), Ok(meta)) = (
        fs::metadata(dir.join("index")),
        fs::read(dir.join("meta.json")),
    ) {
        let meta: Value = serde_json::from_slice(&meta)?;
        return Ok((
            index.len(),
            meta["stats"]["numSeries"].as_u64().unwrap_or(0),
        ));
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            let (below_bytes, below_series) = block_indexes(&entry.path())?;
            bytes += below_bytes;
            series += below_series;
        }
    }
    Ok((bytes, series))
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns the disk usage of the files below `dir` in bytes, including preallocated space.
pub fn disk_bytes(dir: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(total)
}
