//! Expectations of a script besides values: failure, annotations and order.

use firn_model::regex::Regex;

/// The expected text of an error or annotation: any, exact, or a pattern.
#[derive(Debug)]
pub(super) enum ExpectedText {
    Anything,
    Message(String),
    /// A regular expression that must match somewhere in the text.
    Pattern(String, Regex),
}

/// The expectations of an `eval` command in addition to its values.
#[derive(Debug, Default)]
pub(super) struct EvalExpectations {
    /// Set if the query must fail, with the expected error.
    pub(super) fail: Option<ExpectedText>,
    pub(super) ordered: bool,
    pub(super) warnings: ExpectedAnnotations,
    pub(super) infos: ExpectedAnnotations,
}

/// The expected annotations of one kind: warnings or infos.
#[derive(Debug, Default)]
pub(super) struct ExpectedAnnotations {
    /// True if at least one annotation with any text is expected, as in the older form of scripts.
    pub(super) some: bool,
    pub(super) none: bool,
    pub(super) wanted: Vec<ExpectedText>,
}

impl ExpectedText {
    pub(super) fn message(text: &str) -> Self {
        ExpectedText::Message(text.trim().to_owned())
    }

    pub(super) fn pattern(text: &str) -> Result<Self, String> {
        let text = text.trim();
        // Firn's regular expressions are anchored and their dot matches newlines, unlike those of
        // scripts.
        let anywhere = format!("(?s:.*)(?-s:{text})(?s:.*)");
        let regex = Regex::new(anywhere.as_bytes()).map_err(|e| e.message)?;
        Ok(ExpectedText::Pattern(text.to_owned(), regex))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            ExpectedText::Anything => true,
            ExpectedText::Message(message) => message == text,
            ExpectedText::Pattern(_, regex) => regex.is_match(text.as_bytes()),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            ExpectedText::Anything => "anything".into(),
            ExpectedText::Message(message) => format!("message {message:?}"),
            ExpectedText::Pattern(pattern, _) => format!("pattern {pattern:?}"),
        }
    }
}

impl EvalExpectations {
    /// Parses the text after `expect`: `warn`, `fail msg: text`, `info regex: pattern`.
    pub(super) fn add(&mut self, text: &str) -> Result<(), String> {
        let (what, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let wanted = match rest.trim_start().split_once(':') {
            None if rest.trim().is_empty() => ExpectedText::Anything,
            Some(("msg", message)) => ExpectedText::message(message),
            Some(("regex", pattern)) => ExpectedText::pattern(pattern)?,
            _ => return Err(format!("expected msg: or regex: after {what}, got {rest}")),
        };
        match what {
            "ordered" => self.ordered = true,
            "warn" => self.warnings.wanted.push(wanted),
            "info" => self.infos.wanted.push(wanted),
            "no_warn" => self.warnings.none = true,
            "no_info" => self.infos.none = true,
            "fail" if self.fail.is_none() => self.fail = Some(wanted),
            "fail" => return Err("more than one expect fail".into()),
            _ => return Err(format!("unknown expectation {what}")),
        }
        let contradicts = |a: &ExpectedAnnotations| a.none && !a.wanted.is_empty();
        if contradicts(&self.warnings) || contradicts(&self.infos) {
            return Err("annotations are expected and not expected at once".into());
        }
        Ok(())
    }
}

impl ExpectedAnnotations {
    /// Checks the annotations of one kind, which error messages call `kind`.
    pub(super) fn check(&self, kind: &str, found: &[String]) -> Result<(), String> {
        let found: Vec<&str> = found.iter().map(|text| without_details(text)).collect();
        if self.none && !found.is_empty() {
            return Err(format!("expected no {kind}, got {found:?}"));
        }
        if found.is_empty() && (self.some || !self.wanted.is_empty()) {
            return Err(format!("expected {kind}, got none"));
        }
        for wanted in &self.wanted {
            if !found.iter().any(|text| wanted.matches(text)) {
                let wanted = wanted.describe();
                return Err(format!("expected {kind} with {wanted}, got {found:?}"));
            }
        }
        let unexpected = found
            .iter()
            .find(|text| !self.wanted.iter().any(|wanted| wanted.matches(text)));
        match unexpected {
            Some(text) if !self.wanted.is_empty() => Err(format!("unexpected {kind} {text:?}")),
            _ => Ok(()),
        }
    }
}

/// Returns the annotation without the details that are appended for users of the API: number of
/// occurrences, buckets, times and position in the query.
fn without_details(text: &str) -> &str {
    let text = without_parenthesis(text, |inside| {
        inside
            .split_once(':')
            .is_some_and(|(line, column)| is_number(line) && is_number(column))
    });
    let text = without_parenthesis(text, |inside| {
        inside.strip_suffix(" occurrences").is_some_and(is_number)
    });
    text.split_once(", from buckets ")
        .map_or(text, |(message, _)| message)
}

fn without_parenthesis(text: &str, is_detail: impl Fn(&str) -> bool) -> &str {
    let inside = text.strip_suffix(')').and_then(|t| t.rsplit_once(" ("));
    match inside {
        Some((message, detail)) if is_detail(detail) => message,
        _ => text,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}
