//! The machine's name.

use std::fs;

/// The name of the machine, as the kernel knows it; empty where it does not say.
pub fn name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
