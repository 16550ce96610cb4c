//! Patterns of matchers and of functions: the library [`firn_goregex`], with the memory budget and
//! the cancel flag of a query as its limits.

use crate::budget::Budget;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind};
pub use firn_goregex::parse_memory_bytes;
pub use firn_goregex::{CaptureRegex, Regex, RegexStepper, RegexStepperState, ValueSet};
use firn_goregex::{RegexError, RegexErrorKind, RegexLimits};
use std::sync::Arc;

/// The budget in which patterns of a query reserve their memory, and the flag that cancels them.
#[derive(Debug)]
struct QueryRegexLimits {
    budget: Budget,
    cancel: CancelToken,
}

/// Creates the limits of patterns from the budget and the cancel flag of a query.
pub fn regex_limits(budget: &Budget, cancel: &CancelToken) -> Arc<dyn RegexLimits> {
    Arc::new(QueryRegexLimits {
        budget: budget.clone(),
        cancel: cancel.clone(),
    })
}

impl RegexLimits for QueryRegexLimits {
    fn reserve(&self, bytes: usize) -> Result<(), RegexError> {
        self.budget.reserve_bytes(bytes).map_err(to_regex_error)
    }

    fn release(&self, bytes: usize) {
        self.budget.release_bytes(bytes);
    }

    fn check(&self) -> Result<(), RegexError> {
        self.cancel.check().map_err(to_regex_error)
    }
}

/// Converts an error of a budget or a cancel flag, so that it passes through the library.
fn to_regex_error(e: Error) -> RegexError {
    let kind = match e.kind {
        ErrorKind::Canceled => RegexErrorKind::Canceled,
        ErrorKind::Timeout => RegexErrorKind::Timeout,
        _ => RegexErrorKind::Memory,
    };
    RegexError::new(kind, e.message)
}

impl From<RegexError> for Error {
    fn from(e: RegexError) -> Self {
        let kind = match e.kind {
            RegexErrorKind::Syntax => ErrorKind::Invalid,
            RegexErrorKind::Memory => ErrorKind::Limited,
            RegexErrorKind::Canceled => ErrorKind::Canceled,
            RegexErrorKind::Timeout => ErrorKind::Timeout,
        };
        Self::new(kind, e.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::CancelReason;

    /// A pattern that needs a large engine, and a value that makes it run.
    fn large_pattern() -> (Regex, String) {
        let pattern = b".*(a|b.{500}).{500}.{1000}(b|c).*(a|b.{1000})x".repeat(8);
        (Regex::new(&pattern).unwrap(), "ab".repeat(4_000))
    }

    #[test]
    fn pattern_without_memory_fails_with_the_text_of_the_budget() {
        let budget = Budget::new("query", 1 << 10);
        let regex = Regex::new(b"[a-z]+b?x").unwrap();
        regex.bind(regex_limits(&budget, &CancelToken::new()));
        let e = Error::from(regex.prepare().unwrap_err());
        assert_eq!(e.kind, ErrorKind::Limited);
        assert!(e.message.starts_with("query memory limit reached"), "{e}");
        assert!(!regex.is_match(b"abx"));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn pattern_that_is_canceled_fails_with_the_reason() {
        for (reason, kind) in [
            (CancelReason::Timeout, ErrorKind::Timeout),
            (CancelReason::Canceled, ErrorKind::Canceled),
        ] {
            let budget = Budget::new("query", usize::MAX);
            let cancel = CancelToken::new();
            let (regex, value) = large_pattern();
            regex.bind(regex_limits(&budget, &cancel));
            regex.prepare().unwrap();
            assert!(budget.used_bytes() > 0);
            cancel.cancel(reason);
            assert!(!regex.is_match(value.as_bytes()));
            assert_eq!(Error::from(regex.prepare().unwrap_err()).kind, kind);
            drop(regex);
            assert_eq!(budget.used_bytes(), 0);
        }
    }

    #[test]
    fn pattern_that_is_invalid_fails_with_the_text_of_go() {
        let e = Error::from(Regex::new(b"(a").unwrap_err());
        assert_eq!(e.kind, ErrorKind::Invalid);
        assert_eq!(e.message, "error parsing regexp: missing closing ): `(a`");
    }
}
