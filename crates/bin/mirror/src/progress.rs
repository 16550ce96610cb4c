//! Progress of a run: one line on a terminal, and nothing if standard error is redirected.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Number of updates of the line per second.
const HERTZ: u8 = 4;

/// The progress line on standard error, which is removed when this value is dropped.
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    fn new(template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(HERTZ));
        // If the template is invalid, the default line remains.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Creates a line that counts queries and estimates the time left.
    pub fn questions() -> Self {
        Self::new("{msg}: {human_pos} of {human_len} queries ({percent}%), {per_sec}, {eta} left")
    }

    /// Creates a line that shows how much of a period has passed, in milliseconds.
    pub fn time() -> Self {
        Self::new("{wide_bar} {percent}%, {eta} left: {msg}")
    }

    /// Begins a new phase with `count` steps, which the message names.
    pub fn begin(&self, what: &str, count: usize) {
        self.0.reset();
        self.0.set_length(count as u64);
        self.0.set_message(what.to_owned());
    }

    /// Advances the line by one step, as after each compared query.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// Sets the number of completed steps and the message behind the bar.
    pub fn set_position(&self, done: u64, what: String) {
        self.0.set_message(what);
        self.0.set_position(done);
    }

    /// Shows the reason for a pause instead of a count.
    pub fn wait(&self, why: &str) {
        self.0.reset();
        self.0.set_length(0);
        self.0.set_message(why.to_owned());
        self.0.tick();
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
