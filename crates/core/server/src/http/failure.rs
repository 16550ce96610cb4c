//! Failed requests and their responses: the only place that maps an error to an HTTP status, a
//! Prometheus error type and a `Retry-After` header.

use crate::admission::queries::QueryAbortReason;
use crate::json;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use firn_model::error::{Error, ErrorKind};
use firn_promql::value::PromqlError;

/// Cause of a failure from the point of view of HTTP. It decides the status, the error type and
/// whether to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
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
    /// An administrator ended the query.
    Ended,
    /// The operation is disabled, or was requested by a page of another origin.
    Forbidden,
}

/// An error on its way to the client: its cause and message. Converted into a response by
/// [`ApiFailure::into_json`] or [`ApiFailure::into_plain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiFailure {
    pub(crate) cause: FailureCause,
    pub(crate) message: String,
}

struct FailureStatus {
    status: u16,
    error_type: &'static str,
    retry_after_seconds: Option<u32>,
}

/// Status code of nginx for a request that the client cancelled, which upstream uses as well.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Long enough for the end of a body or sync, and short enough to avoid a backlog at the sender.
const RETRY_AFTER_SECONDS: u32 = 1;

fn verdict(cause: FailureCause) -> FailureStatus {
    use ErrorKind::{
        Canceled, Corrupt, Internal, Invalid, Limited, NotFound, RateLimited, Timeout, Unavailable,
    };
    let (status, error_type, retry_after_seconds) = match cause {
        FailureCause::Request(Invalid | Limited) => (400, "bad_data", None),
        FailureCause::Execution(Invalid | Limited) => (422, "execution", None),
        FailureCause::Request(NotFound) | FailureCause::Execution(NotFound) => {
            (404, "not_found", None)
        }
        FailureCause::Request(Canceled) | FailureCause::Execution(Canceled) => {
            (CLIENT_CLOSED_REQUEST, "canceled", None)
        }
        FailureCause::Request(Timeout) | FailureCause::Execution(Timeout) => (503, "timeout", None),
        FailureCause::Request(Unavailable) | FailureCause::Execution(Unavailable) => {
            (503, "unavailable", Some(RETRY_AFTER_SECONDS))
        }
        FailureCause::Request(Corrupt | Internal) | FailureCause::Execution(Corrupt | Internal) => {
            (500, "internal", None)
        }
        // Not 499, which means that the client closed the connection.
        FailureCause::Ended => (503, "canceled", None),
        FailureCause::Request(RateLimited {
            retry_after_seconds,
        })
        | FailureCause::Execution(RateLimited {
            retry_after_seconds,
        }) => (429, "too_many_requests", Some(retry_after_seconds)),
        FailureCause::BodyTooLarge => (413, "bad_data", None),
        FailureCause::HeadTooLarge => (431, "bad_data", None),
        FailureCause::BodyTooSlow => (408, "timeout", None),
        FailureCause::MediaType => (415, "bad_data", None),
        FailureCause::Off => (500, "unavailable", None),
        FailureCause::Unauthenticated => (401, "bad_data", None),
        FailureCause::Forbidden => (403, "bad_data", None),
    };
    FailureStatus {
        status,
        error_type,
        retry_after_seconds,
    }
}

impl ApiFailure {
    pub(crate) fn new(cause: FailureCause, message: impl Into<String>) -> Self {
        Self {
            cause,
            message: message.into(),
        }
    }

    /// Creates a failure caused by an invalid request, answered with 400.
    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self::new(FailureCause::Request(ErrorKind::Invalid), message)
    }

    /// Creates a failure with upstream's message for an invalid parameter, answered with 400.
    pub(crate) fn parameter(name: &str, why: impl std::fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter {name:?}: {why}"))
    }

    /// Creates a failure caused by a defect of Firn, answered with 500.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureCause::Execution(ErrorKind::Internal), message)
    }

    /// Converts an error of another crate that the content of the request caused, or the
    /// reservation of memory for it.
    pub(crate) fn request(error: Error) -> Self {
        Self::new(FailureCause::Request(error.kind), error.message)
    }

    /// Converts an error of another crate that occurred while a valid request was processed.
    pub(crate) fn execution(error: Error) -> Self {
        Self::new(FailureCause::Execution(error.kind), error.message)
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

impl FailureStatus {
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

impl ApiFailure {
    /// Converts an error of the parser. A parse error refers to the parameter `name`, except for
    /// endpoints where upstream omits it.
    pub(crate) fn from_parser(error: PromqlError, name: Option<&str>) -> Self {
        match (error, name) {
            (PromqlError::Parse(message), Some(name)) => ApiFailure::parameter(name, message),
            (PromqlError::Parse(message), None) => ApiFailure::bad_data(message),
            (other, _) => other.into(),
        }
    }
}

impl From<PromqlError> for ApiFailure {
    /// Converts a query error. As in upstream, a parse error is an invalid parameter and all others
    /// are execution errors.
    fn from(error: PromqlError) -> Self {
        match error {
            PromqlError::Parse(message) => ApiFailure::parameter("query", message),
            other => ApiFailure::new(FailureCause::Execution(other.kind()), other.to_string()),
        }
    }
}

impl From<QueryAbortReason> for ApiFailure {
    fn from(unfinished: QueryAbortReason) -> Self {
        let cause = match unfinished {
            QueryAbortReason::Waiting
            | QueryAbortReason::WaitingForTenant(_)
            | QueryAbortReason::Running => FailureCause::Execution(ErrorKind::Timeout),
            QueryAbortReason::Refused(_) => FailureCause::Execution(ErrorKind::Unavailable),
            QueryAbortReason::Ended => FailureCause::Ended,
            QueryAbortReason::Panicked => FailureCause::Execution(ErrorKind::Internal),
        };
        ApiFailure::new(cause, unfinished.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_of_every_kind_is_upstreams() {
        let cases = [
            (FailureCause::Request(ErrorKind::Invalid), 400, "bad_data"),
            (FailureCause::Request(ErrorKind::Limited), 400, "bad_data"),
            (
                FailureCause::Execution(ErrorKind::Invalid),
                422,
                "execution",
            ),
            (
                FailureCause::Execution(ErrorKind::Limited),
                422,
                "execution",
            ),
            (
                FailureCause::Execution(ErrorKind::NotFound),
                404,
                "not_found",
            ),
            (
                FailureCause::Execution(ErrorKind::Canceled),
                499,
                "canceled",
            ),
            (FailureCause::Execution(ErrorKind::Timeout), 503, "timeout"),
            (FailureCause::Ended, 503, "canceled"),
            (
                FailureCause::Execution(ErrorKind::Unavailable),
                503,
                "unavailable",
            ),
            (FailureCause::Execution(ErrorKind::Corrupt), 500, "internal"),
            (
                FailureCause::Execution(ErrorKind::Internal),
                500,
                "internal",
            ),
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
        let parse = ApiFailure::from(PromqlError::Parse("1:3: parse error: x".into()));
        assert_eq!(
            parse,
            ApiFailure::bad_data(r#"invalid parameter "query": 1:3: parse error: x"#)
        );
        let execution = ApiFailure::from(PromqlError::Execution("many-to-many".into()));
        assert_eq!(execution.cause, FailureCause::Execution(ErrorKind::Invalid));
    }
}
