//! How far an import or an export has come: a line on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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

    /// What is worked on.
    pub fn turn_to(&self, what: String) {
        self.0.set_message(what);
    }

    /// So many units more are done.
    pub fn add(&self, units: u64) {
        self.0.inc(units);
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
