//! Output of the subcommands on the terminal. Log lines are written by [`crate::process::logs`].
//!
//! A closed pipe (`firn query ... | head`) is not an error.

use std::io::Write;

/// Writes `text` to standard output, without an added line break. Write errors are ignored.
pub fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // If the reader closed the pipe, the command continues without output.
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Writes `line` and a line break to standard error. Write errors are ignored.
pub fn err(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{line}");
}
