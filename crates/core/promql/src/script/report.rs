//! Reports about the commands of test scripts.

use std::fmt;

/// A command that failed: an evaluation with a wrong result, or a line that could not be parsed or
/// executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFailure {
    /// The line number of the command, counted from one.
    pub line: usize,
    /// The query text, or the first line of the command.
    pub text: String,
    /// The reason of the failure, as a text for the user.
    pub why: String,
}

impl ScriptFailure {
    /// Returns whether the failed command is an `eval`, judging by its text.
    pub(super) fn is_eval(&self) -> bool {
        let command = self.text.get(..4);
        command.is_some_and(|word| word.eq_ignore_ascii_case("eval"))
    }
}

impl fmt::Display for ScriptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}\n    {}", self.line, self.text, self.why)
    }
}

/// The results of all commands of one script. Its printed form lists the failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptFileReport {
    /// The name of the script, usually that of its file.
    pub name: String,
    /// Number of `eval` commands that passed in all ways of evaluation.
    pub passed: usize,
    /// The `eval` commands that failed or could not be parsed.
    pub failed: Vec<ScriptFailure>,
    /// The other commands that could not be parsed or executed.
    pub broken: Vec<ScriptFailure>,
}

/// The results of several scripts. Its printed form ends with `N passed, N failed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptReport {
    /// One report for each script, in order of execution.
    pub files: Vec<ScriptFileReport>,
}

impl ScriptReport {
    /// Returns whether all evaluations passed and all other commands were executed.
    pub fn is_success(&self) -> bool {
        self.files
            .iter()
            .all(|f| f.failed.is_empty() && f.broken.is_empty())
    }
}

impl fmt::Display for ScriptFileReport {
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
