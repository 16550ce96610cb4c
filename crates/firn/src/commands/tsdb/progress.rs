//! How far a command has come: a line on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// How often the line is drawn in a second.
const HERTZ: u8 = 4;

/// The line, until it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// A line for work of so many units, which `unit` names.
    pub fn new(total: u64, unit: &str) -> Self {
        let bar =
            ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(HERTZ));
        let template = format!(
            "{{msg}}: {{human_pos}} of {{human_len}} {unit} ({{percent}}%), {{per_sec}}, \
             {{eta}} left"
        );
        // A template that is not understood leaves the usual line.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// The same for a command that prints all the while: no line if that goes to a terminal too.
    pub fn beside_output(unit: &str) -> Self {
        match std::io::stdout().is_terminal() {
            true => Self(ProgressBar::hidden()),
            false => Self::new(0, unit),
        }
    }

    /// Whether there is a line: what only tells how much there is need not be found out if not.
    pub fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// What is worked on.
    pub fn turn_to(&self, what: String) {
        self.0.set_message(what);
    }

    /// So many units more are done. Those that are done twice are more than were expected.
    pub fn add(&self, units: u64) {
        self.0.inc(units);
        let done = self.0.position();
        if self.0.length().is_some_and(|expected| expected < done) {
            self.0.set_length(done);
        }
    }

    /// So many units more are known of.
    pub fn expect(&self, units: u64) {
        self.0.inc_length(units);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
