//! Text to the terminal, for the subcommands. Log lines go through [`crate::process::logs`].
//!
//! A reader that went away (`firn query ... | head`) is not an error.

use std::io::Write;

/// Writes `text` to standard output, as it is.
pub fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // A closed pipe ends the reader's interest, not the command.
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Writes `line` and a line break to standard error.
pub fn err(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{line}");
}
