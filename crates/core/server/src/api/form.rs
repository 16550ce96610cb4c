//! Parameters of a request, from the URL and, for POST and PUT, from a form body.
//!
//! As in Go, values in the body precede those in the URL, the first value of a name is used where
//! one is expected, and a malformed pair is skipped.

use super::times::{parse_duration_nanos, parse_time};
use crate::app::ServerApp;
use crate::http::blocking::run_blocking;
use crate::http::body;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::http::request_head::LongUriTail;
use crate::metrics::ServerEndpoint;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use firn_model::budget::Reservation;
use firn_model::error::{Error, ErrorKind};
use firn_model::quote::quote;
use firn_model::sample::TimestampMs;
use std::borrow::Cow;
use std::sync::Arc;

/// Maximum number of parameters. A pair takes about a hundred bytes even if its text is short, so
/// the limit corresponds to one MiB. Clients send at most a few hundred selectors.
const PAIRS_MAX: usize = 10_000;

/// Size up to which a body is decoded on the async thread, which takes a tenth of a millisecond.
/// Longer ones are decoded on a blocking thread.
const QUICK_BYTES_MAX: usize = 64 << 10;

/// Decoded parameters in order of precedence. Created once per request; lookups scan the list.
#[derive(Debug, Default)]
pub(crate) struct RequestForm {
    pairs: Vec<(String, String)>,
    first_error: Option<String>,
    /// Memory of the values, reserved if they were received in a body.
    _held: Option<Reservation>,
}

impl RequestForm {
    /// Parses a form body (empty if there is none) and the query of a URL. Fails if there are too
    /// many parameters.
    pub(crate) fn parse(body: &str, url_query: &str) -> Result<Self, ApiFailure> {
        let count = pairs(body).count() + pairs(url_query).count();
        if count > PAIRS_MAX {
            let message = format!("request has {count} parameters, limit {PAIRS_MAX}");
            return Err(ApiFailure::bad_data(message));
        }
        let mut form = RequestForm::default();
        form.add_all(body);
        form.add_all(url_query);
        Ok(form)
    }

    /// Attaches the reservation for the memory of the values, which is released with the form.
    pub(crate) fn with_reservation(self, held: Reservation) -> Self {
        let _held = Some(held);
        Self { _held, ..self }
    }

    fn add_all(&mut self, text: &str) {
        for pair in pairs(text) {
            if let Err(e) = self.add(pair) {
                self.first_error.get_or_insert(e);
            }
        }
    }

    fn add(&mut self, pair: &str) -> Result<(), String> {
        if pair.contains(';') {
            return Err("invalid semicolon separator in query".into());
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        self.pairs.push((unescape(name)?, unescape(value)?));
        Ok(())
    }

    /// Returns the error of the first skipped pair; `None` if all were valid.
    pub(crate) fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Returns all pairs of name and value in order of precedence.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &(String, String)> {
        self.pairs.iter()
    }

    /// Returns the first value of `name` in order of precedence, or an empty string.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.pairs.iter().find(|(n, _)| n == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns all values of `name` in order of precedence; repeated parameters are lists.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    /// Parses a mandatory time parameter. A missing one is an error of the parser.
    pub(crate) fn time(&self, name: &str) -> Result<TimestampMs, ApiFailure> {
        parse_time(self.get(name)).map_err(|e| ApiFailure::parameter(name, e))
    }

    /// Parses an optional time parameter; returns `default` if it is missing.
    pub(crate) fn time_or(
        &self,
        name: &str,
        default: TimestampMs,
    ) -> Result<TimestampMs, ApiFailure> {
        match self.get(name) {
            "" => Ok(default),
            text => parse_time(text).map_err(|e| {
                ApiFailure::parameter(name, format!("invalid time value for '{name}': {e}"))
            }),
        }
    }

    /// Parses an optional boolean in the forms that Go accepts; returns false if it is missing.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiFailure> {
        match self.get(name) {
            "" => Ok(false),
            text => parse_bool(text).map_err(|why| {
                ApiFailure::parameter(name, format!("unable to parse boolean: {why}"))
            }),
        }
    }

    /// Parses a mandatory duration into nanoseconds. A missing one is an error.
    pub(crate) fn duration_nanos(&self, name: &str) -> Result<i64, ApiFailure> {
        parse_duration_nanos(self.get(name)).map_err(|e| ApiFailure::parameter(name, e))
    }

    /// Parses the parameter `limit`. `None` means no limit; zero does as well.
    pub(crate) fn limit(&self) -> Result<Option<usize>, ApiFailure> {
        let text = self.get("limit");
        if text.is_empty() {
            return Ok(None);
        }
        let limit = parse_integer(text).map_err(|e| ApiFailure::parameter("limit", e))?;
        match usize::try_from(limit) {
            Ok(0) => Ok(None),
            Ok(limit) => Ok(Some(limit)),
            Err(_) => Err(ApiFailure::parameter("limit", "limit must be non-negative")),
        }
    }
}

fn pairs(text: &str) -> impl Iterator<Item = &str> {
    text.split('&').filter(|pair| !pair.is_empty())
}

/// Parses a boolean like Go's `strconv.ParseBool`, with its error messages.
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        text => {
            let quoted = quote(text.as_bytes());
            Err(format!(
                "strconv.ParseBool: parsing {quoted}: invalid syntax"
            ))
        }
    }
}

/// Parses an integer like Go's `strconv.Atoi`, with its error messages.
pub(crate) fn parse_integer(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|e| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = match e.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {text:?}: {why}")
    })
}

/// Decodes `+` and percent escapes. Invalid UTF-8 becomes U+FFFD, because the store contains no
/// names or values that such bytes could select.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'+' => out.push(b' '),
            b'%' => {
                let decoded = tail.split_at_checked(2).and_then(|(hex, after)| {
                    Some((hex_digit(hex[0])? << 4 | hex_digit(hex[1])?, after))
                });
                let Some((byte, after)) = decoded else {
                    let shown: String = text[text.len() - tail.len() - 1..]
                        .chars()
                        .take(3)
                        .collect();
                    return Err(format!("invalid URL escape {shown:?}"));
                };
                out.push(byte);
                rest = after;
            }
            byte => out.push(*byte),
        }
    }
    Ok(match String::from_utf8(out) {
        Ok(text) => text,
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    })
}

/// Decodes the percent escapes of a path segment that [`unescape_path`] accepted, including those
/// that are not UTF-8.
pub(crate) fn unescape_bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = |at: usize| hex_digit(*tail.get(at)?);
        match (*first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                rest = &tail[2..];
            }
            (byte, ..) => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

/// Decodes the percent escapes of a path segment, in which `+` is literal.
pub(crate) fn unescape_path(text: &str) -> Result<String, ApiFailure> {
    unescape(&text.replace('+', "%2B")).map_err(ApiFailure::bad_data)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Converts a lack of memory for a body into a failure with a retry: too many concurrent bodies are
/// not an error of the sender.
fn overloaded(error: Error) -> ApiFailure {
    ApiFailure::new(FailureCause::Request(ErrorKind::Unavailable), error.message)
}

/// Reads the parameters of a request, including its form body. Waits until memory is available for
/// the body.
pub(crate) async fn read_form(
    app: &ServerApp,
    endpoint: ServerEndpoint,
    request: Request,
) -> Result<RequestForm, ApiFailure> {
    let (mut head, body) = request.into_parts();
    let long = head.extensions.remove::<Arc<LongUriTail>>();
    let url_query = match (head.uri.query(), &long) {
        (Some(query), Some(line)) => {
            Cow::Owned(format!("{query}{}", String::from_utf8_lossy(&line.text)))
        }
        (query, _) => Cow::Borrowed(query.unwrap_or_default()),
    };
    let has_body = matches!(head.method, Method::POST | Method::PUT);
    if !has_body || !is_form(&head.headers) {
        let form = RequestForm::parse("", &url_query)?;
        return Ok(match long.and_then(Arc::into_inner) {
            Some(line) => form.with_reservation(line.held),
            None => form,
        });
    }
    let mut held = app.budgets.form().create_reservation();
    let hold = |bytes: usize| {
        let more = bytes.saturating_sub(held.bytes());
        held.grow(more).map_err(overloaded)
    };
    let bytes_max = app.limits().form_body_bytes_max;
    let metrics = app.metrics.endpoint(endpoint);
    let bytes = body::read(app.limits(), metrics, body, Vec::new(), bytes_max, hold).await?;
    let (url_query, is_quick) = (url_query.into_owned(), bytes.len() <= QUICK_BYTES_MAX);
    let decode = move || {
        let text = String::from_utf8_lossy(&bytes);
        // The decoded text is at most as long as the encoded one.
        held.grow(text.len()).map_err(overloaded)?;
        Ok(RequestForm::parse(&text, &url_query)?.with_reservation(held))
    };
    if is_quick {
        decode()
    } else {
        run_blocking(decode).await?
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_parse_puts_body_before_url() {
        let body = "a=1&match%5B%5D=up%7Bx%3D%22y+z%22%7D";
        let form = RequestForm::parse(body, "a=2&match[]=b&c").unwrap();
        assert_eq!((form.get("a"), form.get("c"), form.get("d")), ("1", "", ""));
        let matches: Vec<&str> = form.all("match[]").collect();
        assert_eq!(matches, [r#"up{x="y z"}"#, "b"]);
        assert_eq!(form.first_error(), None);
    }

    #[test]
    fn form_parse_of_malformed_pair_keeps_the_others() {
        let cases = [
            ("a=%zz&b=1", "invalid URL escape \"%zz\""),
            ("a=%2&b=1", "invalid URL escape \"%2\""),
            ("a=%é&b=1", "invalid URL escape \"%é\""),
            ("a=1;c=2&b=1", "invalid semicolon separator in query"),
        ];
        for (text, error) in cases {
            let form = RequestForm::parse(text, "").unwrap();
            assert_eq!(
                (form.get("b"), form.first_error()),
                ("1", Some(error)),
                "{text}"
            );
            assert_eq!(form.get("a"), "", "{text}");
        }
        let form = RequestForm::parse("a=%ff", "").unwrap();
        assert_eq!(form.get("a"), "\u{fffd}");
    }

    #[test]
    fn form_parse_of_too_many_pairs_is_refused() {
        for (in_body, in_url, error) in [
            (PAIRS_MAX - 1, 1, None),
            (
                PAIRS_MAX,
                1,
                Some("request has 10001 parameters, limit 10000"),
            ),
            (
                0,
                PAIRS_MAX + 5,
                Some("request has 10005 parameters, limit 10000"),
            ),
        ] {
            let outcome = RequestForm::parse(&"a&".repeat(in_body), &"b&".repeat(in_url));
            let got = outcome.err().map(|failure| failure.message);
            assert_eq!(got.as_deref(), error, "{in_body} {in_url}");
        }
    }

    #[test]
    fn limit_errors_read_as_upstreams() {
        let cases = [
            ("", Ok(None)),
            ("limit=0", Ok(None)),
            ("limit=7", Ok(Some(7))),
            ("limit=-1", Err("limit must be non-negative")),
            (
                "limit=x",
                Err("strconv.Atoi: parsing \"x\": invalid syntax"),
            ),
            (
                "limit=99999999999999999999",
                Err("strconv.Atoi: parsing \"99999999999999999999\": value out of range"),
            ),
        ];
        for (text, want) in cases {
            let want = want.map_err(|e| ApiFailure::parameter("limit", e));
            assert_eq!(
                RequestForm::parse(text, "").unwrap().limit(),
                want,
                "{text}"
            );
        }
    }
}
