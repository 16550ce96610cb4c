//! How much memory there is for the process: the cgroup's limit, or the machine's.
//!
//! Facts are from the kernel's `cgroup-v2.rst` and `cgroup-v1/memory.rst`: a limit of any ancestor
//! binds, `max` (v2) or a number near 2^63 (v1) is none.

use crate::config::MemoryLimit;
use std::path::{Path, PathBuf};

/// What is assumed where neither the cgroup nor `/proc` tells: small enough for any machine of
/// today.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The limit in bytes that `limit` means on this machine.
pub fn limit_bytes(limit: MemoryLimit) -> u64 {
    match limit {
        MemoryLimit::Bytes(bytes) => bytes,
        MemoryLimit::Percent(percent) => {
            let available = available_bytes(Path::new("/"));
            (available as f64 * percent / 100.0) as u64
        }
    }
}

/// The memory that the process may use, as the files below `root` tell.
fn available_bytes(root: &Path) -> u64 {
    let machine = machine_bytes(root);
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let group = groups
        .lines()
        .filter_map(|line| group_limit_bytes(root, line))
        .min();
    match (machine, group) {
        (Some(machine), Some(group)) => machine.min(group),
        (Some(bytes), None) | (None, Some(bytes)) => bytes,
        (None, None) => UNKNOWN_BYTES,
    }
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let info = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib = line
        .trim()
        .strip_suffix(" kB")?
        .trim()
        .parse::<u64>()
        .ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of the group in a line of `/proc/self/cgroup` and of the groups above it.
fn group_limit_bytes(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (base, file) = if controllers.is_empty() {
        (root.join("sys/fs/cgroup"), "memory.max")
    } else if controllers.split(',').any(|c| c == "memory") {
        (root.join("sys/fs/cgroup/memory"), "memory.limit_in_bytes")
    } else {
        return None;
    };
    let own = base.join(path.trim_start_matches('/'));
    let above = own.ancestors().take_while(|dir| dir.starts_with(&base));
    above.filter_map(|dir| read_limit(&dir.join(file))).min()
}

fn read_limit(file: &PathBuf) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16000 kB\nMemFree:  1 kB\n";

    fn check(files: &[(&str, &str)], want_bytes: u64) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(available_bytes(root.path()), want_bytes, "{files:?}");
    }

    #[test]
    fn memory_available_is_the_smallest_limit_that_binds() {
        check(&[], UNKNOWN_BYTES);
        check(&[("proc/meminfo", MEMINFO)], 16_384_000);
        let v2 = ("proc/self/cgroup", "0::/a/b\n");
        check(
            &[
                ("proc/meminfo", MEMINFO),
                v2,
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.max", "4096000\n"),
            ],
            4_096_000,
        );
        check(
            &[
                ("proc/meminfo", MEMINFO),
                v2,
                ("sys/fs/cgroup/a/b/memory.max", "9223372036854771712\n"),
            ],
            16_384_000,
        );
        check(
            &[
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", "4:cpu,memory:/x\n2:pids:/y\n"),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "8192\n"),
                ("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1\n"),
            ],
            8192,
        );
    }
}
