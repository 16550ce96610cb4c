//! Memory available to the process: the minimum of the machine's memory, the limits of its cgroups,
//! and the address space that the process may use (`ulimit -v`).
//!
//! The formats follow the kernel's `cgroup-v2.rst` and `cgroup-v1/memory.rst`: the limits of all
//! ancestor groups apply; `max` (v2) or a number near 2^63 (v1) is no limit.

use firn_config::config::MemoryLimit;
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// Available memory in bytes if neither the cgroup nor `/proc` has a limit: small enough for any
/// current machine.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// Returns the limit in bytes that `limit` amounts to on this machine.
pub fn limit_bytes(limit: MemoryLimit) -> u64 {
    match limit {
        MemoryLimit::Bytes(bytes) => bytes,
        MemoryLimit::Percent(percent) => {
            let address_space = getrlimit(Resource::As).current;
            let available = available_bytes(Path::new("/"), address_space);
            (available as f64 * percent / 100.0) as u64
        }
    }
}

/// Returns the bytes that the process may use: the minimum of the limits in the files below `root`
/// and the limit of its address space.
fn available_bytes(root: &Path, address_space: Option<u64>) -> u64 {
    let machine = machine_bytes(root);
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let group = groups
        .lines()
        .filter_map(|line| group_limit_bytes(root, line))
        .min();
    let limits = [machine, group, address_space];
    limits.into_iter().flatten().min().unwrap_or(UNKNOWN_BYTES)
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

/// Returns the smallest limit, in bytes, of the group in a line of `/proc/self/cgroup` and of its
/// ancestors.
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

    fn check(files: &[(&str, &str)], address_space: Option<u64>, want_bytes: u64) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let got = available_bytes(root.path(), address_space);
        assert_eq!(got, want_bytes, "{files:?} {address_space:?}");
    }

    #[test]
    fn memory_available_is_the_smallest_limit_that_binds() {
        check(&[], None, UNKNOWN_BYTES);
        check(&[], Some(4096), 4096);
        let machine = ("proc/meminfo", MEMINFO);
        check(&[machine], None, 16_384_000);
        check(&[machine], Some(8_000_000), 8_000_000);
        check(&[machine], Some(u64::MAX - 1), 16_384_000);
        let v2 = ("proc/self/cgroup", "0::/a/b\n");
        check(
            &[
                ("proc/meminfo", MEMINFO),
                v2,
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.max", "4096000\n"),
            ],
            Some(5_000_000),
            4_096_000,
        );
        check(
            &[
                ("proc/meminfo", MEMINFO),
                v2,
                ("sys/fs/cgroup/a/b/memory.max", "9223372036854771712\n"),
            ],
            None,
            16_384_000,
        );
        check(
            &[
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", "4:cpu,memory:/x\n2:pids:/y\n"),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "8192\n"),
                ("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1\n"),
            ],
            None,
            8192,
        );
    }
}
