//! How far a run has come: a line on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the line is drawn in a second.
const HERTZ: u8 = 4;

/// The line, until it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    fn new(template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(HERTZ));
        // A template that is not understood leaves the usual line.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// A line that counts questions.
    pub fn questions() -> Self {
        Self::new("{msg}: {human_pos} of {human_len} queries ({percent}%), {per_sec}, {eta} left")
    }

    /// A line that says how much of a time is over, in milliseconds.
    pub fn time() -> Self {
        Self::new("{wide_bar} {percent}%, {eta} left: {msg}")
    }

    /// Turns to so many of one kind.
    pub fn begin(&self, what: &str, count: usize) {
        self.0.reset();
        self.0.set_length(count as u64);
        self.0.set_message(what.to_owned());
    }

    /// One more is done.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// So many are done, and this is what can be said of them.
    pub fn reach(&self, done: u64, what: String) {
        self.0.set_message(what);
        self.0.set_position(done);
    }

    /// Says why nothing happens.
    pub fn wait(&self, why: &str) {
        self.0.reset();
        self.0.set_length(0);
        self.0.set_message(why.to_owned());
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
