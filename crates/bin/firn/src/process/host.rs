//! Host name of the machine.

use std::fs;

/// Returns the host name from `/proc/sys/kernel/hostname`, or an empty string if it cannot be read.
pub fn name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
