//! What became of the commands of scripts.

use std::fmt;

/// What became of an evaluation that failed, or of a line that could not be read or done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The line of the command, from one.
    pub line: usize,
    /// The expression, or the command's line.
    pub text: String,
    /// Why.
    pub why: String,
}

impl Failure {
    /// Whether the command is an `eval`.
    pub(super) fn is_eval(&self) -> bool {
        let command = self.text.get(..4);
        command.is_some_and(|word| word.eq_ignore_ascii_case("eval"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}\n    {}", self.line, self.text, self.why)
    }
}

/// What became of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileReport {
    /// The script's name.
    pub name: String,
    /// `eval` commands that held.
    pub passed: usize,
    /// `eval` commands that did not, or could not be read.
    pub failed: Vec<Failure>,
    /// Other commands that could not be read or done.
    pub broken: Vec<Failure>,
}

/// What became of several scripts. Shown, it ends with `N passed, N failed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptReport {
    /// One report a script, in the order in which they ran.
    pub files: Vec<FileReport>,
}

impl ScriptReport {
    /// Whether every evaluation of every script held and every command could be done.
    pub fn is_success(&self) -> bool {
        self.files
            .iter()
            .all(|f| f.failed.is_empty() && f.broken.is_empty())
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.passed + self.failed.len();
        writeln!(f, "{}: {}/{total}", self.name, self.passed)?;
        for failure in self.broken.iter().chain(&self.failed) {
            writeln!(f, "  {failure}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ScriptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut passed, mut failed) = (0, 0);
        for file in &self.files {
            write!(f, "{file}")?;
            passed += file.passed;
            failed += file.failed.len();
        }
        write!(f, "{passed} passed, {failed} failed")
    }
}
