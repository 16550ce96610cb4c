//! Progress of a command: a line if standard error is a terminal, else nothing.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Number of updates of the line per second.
const HERTZ: u8 = 4;

/// The progress line of a command, which is removed from the terminal on drop.
pub struct CommandProgressLine(ProgressBar);

impl CommandProgressLine {
    /// Creates a line for `total` units of work. `unit` is their name.
    pub fn new(total: u64, unit: &str) -> Self {
        let bar =
            ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(HERTZ));
        let template = format!(
            "{{msg}}: {{human_pos}} of {{human_len}} {unit} ({{percent}}%), {{per_sec}}, \
             {{eta}} left"
        );
        // If the template is invalid, the default line is used.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Creates a line for a command that prints continuously. It is hidden if standard output is a
    /// terminal too.
    pub fn new_hidden_on_output(unit: &str) -> Self {
        if std::io::stdout().is_terminal() {
            Self(ProgressBar::hidden())
        } else {
            Self::new(0, unit)
        }
    }

    /// Returns whether the line is visible. If not, the expected amount of work need not be
    /// computed.
    pub fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Sets the name of the current work item, for example a file.
    pub fn set_item(&self, what: String) {
        self.0.set_message(what);
    }

    /// Advances the line by `units`. Repeated work increases the total if it exceeds it.
    pub fn add(&self, units: u64) {
        self.0.inc(units);
        let done = self.0.position();
        if self.0.length().is_some_and(|expected| expected < done) {
            self.0.set_length(done);
        }
    }

    /// Increases the total by `units` that were found later.
    pub fn increase_total(&self, units: u64) {
        self.0.inc_length(units);
    }
}

impl Drop for CommandProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
