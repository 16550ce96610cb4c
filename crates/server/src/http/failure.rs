//! Failed requests and their responses: the only place that maps an error to an HTTP status, a
//! Prometheus error type and a `Retry-After` header.

use crate::admission::queries::Unfinished;
use crate::json;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use firn_model::error::{Error, ErrorKind};
use firn_promql::value::QueryError;

/// Cause of a failure from the point of view of HTTP. It decides the status, the error type and
/// whether to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An error in the parameters of a request or the samples of a write.
    Request(ErrorKind),
    /// An error while a valid request was processed.
    Execution(ErrorKind),
    /// The body is longer than the limit.
    BodyTooLarge,
    /// The request line and headers are longer than the limit.
    HeadTooLarge,
    /// The body was received too slowly.
    BodyTooSlow,
    /// The media type or encoding of the body is not supported.
    MediaType,
    /// The requested feature is disabled. Upstream answers 500.
    Off,
    /// The request does not contain the mandatory tenant.
    Unauthenticated,
    /// The operation is disabled, or was requested by a page of another origin.
    Forbidden,
}

/// An error on its way to the client: its cause and message. Converted into a response by
/// [`Failure::into_json`] or [`Failure::into_plain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    pub(crate) message: String,
}

struct Verdict {
    status: u16,
    error_type: &'static str,
    retry_after_seconds: Option<u32>,
}

/// Status code of nginx for a request that the client cancelled, which upstream uses as well.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Long enough for the end of a body or sync, and short enough to avoid a backlog at the sender.
const RETRY_AFTER_SECONDS: u32 = 1;

fn verdict(cause: Cause) -> Verdict {
    use ErrorKind::{
        Canceled, Corrupt, Internal, Invalid, Limited, NotFound, Timeout, Unavailable,
    };
    let (status, error_type, retry_after_seconds) = match cause {
        Cause::Request(Invalid | Limited) => (400, "bad_data", None),
        Cause::Execution(Invalid | Limited) => (422, "execution", None),
        Cause::Request(NotFound) | Cause::Execution(NotFound) => (404, "not_found", None),
        Cause::Request(Canceled) | Cause::Execution(Canceled) => {
            (CLIENT_CLOSED_REQUEST, "canceled", None)
        }
        Cause::Request(Timeout) | Cause::Execution(Timeout) => (503, "timeout", None),
        Cause::Request(Unavailable) | Cause::Execution(Unavailable) => {
            (503, "unavailable", Some(RETRY_AFTER_SECONDS))
        }
        Cause::Request(Corrupt | Internal) | Cause::Execution(Corrupt | Internal) => {
            (500, "internal", None)
        }
        Cause::BodyTooLarge => (413, "bad_data", None),
        Cause::HeadTooLarge => (431, "bad_data", None),
        Cause::BodyTooSlow => (408, "timeout", None),
        Cause::MediaType => (415, "bad_data", None),
        Cause::Off => (500, "unavailable", None),
        Cause::Unauthenticated => (401, "bad_data", None),
        Cause::Forbidden => (403, "bad_data", None),
    };
    Verdict {
        status,
        error_type,
        retry_after_seconds,
    }
}

impl Failure {
    pub(crate) fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self {
            cause,
            message: message.into(),
        }
    }

    /// Creates a failure caused by an invalid request, answered with 400.
    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self::new(Cause::Request(ErrorKind::Invalid), message)
    }

    /// Creates a failure with upstream's message for an invalid parameter, answered with 400.
    pub(crate) fn parameter(name: &str, why: impl std::fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter {name:?}: {why}"))
    }

    /// Creates a failure caused by a defect of Firn, answered with 500.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Cause::Execution(ErrorKind::Internal), message)
    }

    /// Converts an error of another crate that occurred while a valid request was processed.
    pub(crate) fn execution(error: Error) -> Self {
        Self::new(Cause::Execution(error.kind), error.message)
    }

    /// Returns the response in the JSON format of the API.
    pub(crate) fn into_json(self) -> Response<Body> {
        let verdict = verdict(self.cause);
        let mut body = br#"{"status":"error","errorType":"#.to_vec();
        json::push_html_string(&mut body, verdict.error_type.as_bytes());
        body.extend_from_slice(br#","error":"#);
        json::push_html_string(&mut body, self.message.as_bytes());
        body.push(b'}');
        verdict.response("application/json", body)
    }

    /// Returns the response as plain text, for endpoints where upstream does so.
    pub(crate) fn into_plain(self) -> Response<Body> {
        let mut body = self.message.into_bytes();
        body.push(b'\n');
        let mut response = verdict(self.cause).response("text/plain; charset=utf-8", body);
        // The text may quote the request; browsers must not interpret it as HTML.
        response.headers_mut().insert(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        response
    }
}

impl Verdict {
    fn response(&self, content_type: &'static str, body: Vec<u8>) -> Response<Body> {
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).expect("the table holds statuses of three digits");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl Failure {
    /// Converts an error of the parser. A parse error refers to the parameter `name`, except for
    /// endpoints where upstream omits it.
    pub(crate) fn of_parser(error: QueryError, name: Option<&str>) -> Self {
        match (error, name) {
            (QueryError::Parse(message), Some(name)) => Failure::parameter(name, message),
            (QueryError::Parse(message), None) => Failure::bad_data(message),
            (other, _) => other.into(),
        }
    }
}

impl From<QueryError> for Failure {
    /// Converts a query error. As in upstream, a parse error is an invalid parameter and all others
    /// are execution errors.
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Parse(message) => Failure::parameter("query", message),
            other => Failure::new(Cause::Execution(other.kind()), other.to_string()),
        }
    }
}

impl From<Unfinished> for Failure {
    fn from(unfinished: Unfinished) -> Self {
        let kind = match unfinished {
            Unfinished::Waiting | Unfinished::Running => ErrorKind::Timeout,
            Unfinished::Refused(_) => ErrorKind::Unavailable,
            Unfinished::Panicked => ErrorKind::Internal,
        };
        Failure::new(Cause::Execution(kind), unfinished.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_of_every_kind_is_upstreams() {
        let cases = [
            (Cause::Request(ErrorKind::Invalid), 400, "bad_data"),
            (Cause::Request(ErrorKind::Limited), 400, "bad_data"),
            (Cause::Execution(ErrorKind::Invalid), 422, "execution"),
            (Cause::Execution(ErrorKind::Limited), 422, "execution"),
            (Cause::Execution(ErrorKind::NotFound), 404, "not_found"),
            (Cause::Execution(ErrorKind::Canceled), 499, "canceled"),
            (Cause::Execution(ErrorKind::Timeout), 503, "timeout"),
            (Cause::Execution(ErrorKind::Unavailable), 503, "unavailable"),
            (Cause::Execution(ErrorKind::Corrupt), 500, "internal"),
            (Cause::Execution(ErrorKind::Internal), 500, "internal"),
        ];
        for (cause, status, error_type) in cases {
            let got = verdict(cause);
            assert_eq!(
                (got.status, got.error_type),
                (status, error_type),
                "{cause:?}"
            );
        }
    }

    #[test]
    fn failure_from_query_error_marks_parse_errors_as_parameter() {
        let parse = Failure::from(QueryError::Parse("1:3: parse error: x".into()));
        assert_eq!(
            parse,
            Failure::bad_data(r#"invalid parameter "query": 1:3: parse error: x"#)
        );
        let execution = Failure::from(QueryError::Execution("many-to-many".into()));
        assert_eq!(execution.cause, Cause::Execution(ErrorKind::Invalid));
    }
}
