//! A wall clock of nodes that a test moves, so that hours of data time pass between two rounds.
//!
//! A node that scrapes itself stores samples with its own time, so samples of a test cannot be far
//! from it. `shifted_clock.c` shifts that time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shifted wall clock of one node.
pub struct ShiftedClock {
    path: PathBuf,
    file: File,
}

/// Compiles the shift into a library in `folder`, and returns its path.
pub fn compile_shift(folder: &Path) -> PathBuf {
    let library = folder.join("shifted_clock.so");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../tests/crash/shifted_clock.c"
    );
    let mut command = Command::new("cc");
    command.args(["-O2", "-shared", "-fPIC", "-o"]);
    let status = command.arg(&library).arg(source).status();
    assert!(status.expect("a C compiler").success(), "the C compiler");
    library
}

impl ShiftedClock {
    /// Creates the clock of a node, without a shift.
    pub fn create(path: &Path) -> Self {
        let mut options = File::options();
        let opened = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path);
        let clock = Self {
            path: path.to_owned(),
            file: opened.unwrap(),
        };
        clock.set(0);
        clock
    }

    /// Sets the shift of the clock, also of a running process.
    pub fn set(&self, shift_s: i64) {
        self.file.write_all_at(&shift_s.to_ne_bytes(), 0).unwrap();
    }

    /// Gives this clock to a process, by a library of [`compile_shift`].
    pub fn apply(&self, library: &Path, command: &mut Command) {
        command.env("LD_PRELOAD", library);
        command.env("FIRN_TEST_CLOCK", &self.path);
    }
}
