//! Request headers on the command line: `NAME=VALUE`, or `SYSTEM:NAME=VALUE` for only one of two
//! systems.
//!
//! Invariant: a parsed header is valid in a request, and no error message contains its value, which
//! may be a secret.

use crate::error::MirrorError;
use ureq::http::{HeaderName, HeaderValue};

/// A header from the command line that is added to the requests of one system or of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLineHeader {
    /// The system that receives the header; `None` for both.
    pub system: Option<&'static str>,
    /// Header name, already validated by [`CommandLineHeader::parse`].
    pub name: String,
    /// Header value, which may be a secret and is never shown.
    pub value: String,
}

impl CommandLineHeader {
    /// Parses and validates a header. `systems` are the names that may precede it. Errors never
    /// contain the value.
    pub fn parse(text: &str, systems: [&'static str; 2]) -> Result<Self, MirrorError> {
        let mut named = systems.into_iter().filter_map(|system| {
            let rest = text.strip_prefix(system)?.strip_prefix(':')?;
            Some((system, rest))
        });
        let (system, rest) = match named.next() {
            Some((system, rest)) => (Some(system), rest),
            None => (None, text),
        };
        let refuse = |why: String| Err(MirrorError::Usage(format!("--header: {why}")));
        let Some((name, value)) = rest.split_once('=') else {
            return refuse("expected NAME=VALUE".to_owned());
        };
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            return refuse(format!("not a valid header name: {name:?}"));
        }
        if HeaderValue::from_str(value).is_err() {
            return refuse(format!("the value of {name} is not a valid header value"));
        }
        Ok(Self {
            system,
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

/// Returns names and values of the headers that requests to `system` carry, in the order of the
/// command line.
pub fn headers_for(system: &str, headers: &[CommandLineHeader]) -> Vec<(String, String)> {
    let is_for_it = |header: &&CommandLineHeader| header.system.is_none_or(|name| name == system);
    let headers = headers.iter().filter(is_for_it);
    headers
        .map(|header| (header.name.clone(), header.value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_goes_to_the_system_that_it_names() {
        let read = |text| CommandLineHeader::parse(text, ["left", "right"]);
        let check = |text, left: &[(&str, &str)], right: &[(&str, &str)]| {
            let header = [read(text).unwrap()];
            for (system, expected) in [("left", left), ("right", right)] {
                let found = headers_for(system, &header);
                let found: Vec<_> = found.iter().map(|(n, v)| (&**n, &**v)).collect();
                assert_eq!(found, expected, "{text} to {system}");
            }
        };
        let both = [("X-Scope-OrgID", "t")];
        check("X-Scope-OrgID=t", &both, &both);
        check("left:A=b=c", &[("A", "b=c")], &[]);
        check(
            "right:Authorization=Bearer x",
            &[],
            &[("Authorization", "Bearer x")],
        );
        for (text, expected) in [
            ("x", "--header: expected NAME=VALUE"),
            ("=x", "--header: not a valid header name: \"\""),
            (
                "other:A=b",
                "--header: not a valid header name: \"other:A\"",
            ),
            (
                "A=b\nc",
                "--header: the value of A is not a valid header value",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expected);
        }
    }
}
