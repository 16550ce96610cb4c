//! Command lines with which the server must not start.

use crate::harness::cluster::wait_within;
use crate::harness::server::{DEADLINE, spawn};
use std::process::Command;
use std::time::Duration;

/// Outcome of a process that never served.
pub struct Refusal {
    pub code: Option<i32>,
    pub stderr: String,
}

impl Refusal {
    /// Runs `command` to its end.
    pub fn of(command: Command) -> Refusal {
        Self::within(DEADLINE, command)
    }

    /// Runs `command` to its end, which must be within `deadline`.
    pub fn within(deadline: Duration, command: Command) -> Refusal {
        let mut child = spawn(command);
        let stderr = child.stderr.take().expect("standard error is a pipe");
        let mut status = None;
        wait_within("the process to fail", deadline, || {
            status = child.try_wait().expect("the process is ours");
            status.is_some()
        });
        Refusal {
            code: status.and_then(|s| s.code()),
            stderr: std::io::read_to_string(stderr).expect("standard error is text"),
        }
    }

    /// Returns the only line of the error.
    pub fn line(&self) -> &str {
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        let mut lines = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("firn: "));
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("no line: {}", self.stderr));
        assert_eq!(lines.next(), None, "more than one line: {}", self.stderr);
        line
    }
}
