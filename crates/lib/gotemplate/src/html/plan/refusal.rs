//! The error of a template that cannot be escaped.

use crate::tree::TemplateFile;

/// Error of the planning, without the name of the definition in which it occurred.
#[derive(Debug)]
pub(super) struct EscapeRefusal {
    /// File, line and column of the error.
    location: Option<String>,
    pub(super) line: Option<usize>,
    pub(super) description: String,
}

impl EscapeRefusal {
    pub(super) fn new(description: impl Into<String>) -> Self {
        Self {
            location: None,
            line: None,
            description: description.into(),
        }
    }

    pub(super) fn at_position(file: &TemplateFile, position: usize, description: String) -> Self {
        Self {
            location: Some(file.location(position)),
            line: None,
            description,
        }
    }

    /// Adds the line of a loop to an error in its second iteration.
    pub(super) fn in_loop(self, line: usize, when: &str) -> Self {
        Self {
            line: Some(line),
            description: format!("{when}: {}", self.description),
            ..self
        }
    }

    /// Returns Go's error message for an error in the definition `name`.
    pub(super) fn text(&self, name: &str) -> String {
        let description = &self.description;
        match (&self.location, self.line) {
            (Some(location), _) => format!("html/template:{location}: {description}"),
            (None, Some(line)) => format!("html/template:{name}:{line}: {description}"),
            (None, None) => format!("html/template:{name}: {description}"),
        }
    }
}
