//! Interprets the response of a target to a body.
//!
//! Statuses are interpreted as Prometheus's sender does: 2xx is accepted, 5xx is retried, and all
//! others are final. 429 is always retried, because Prometheus's default loses data that the
//! receiver wants later. For a target to which bodies are only forwarded
//! ([`DeliveryMode::Patient`]), statuses about access or the URL are retried too: the body is
//! valid, and an expired token would cost the whole queue. So are redirects, which the client of
//! such a target does not follow: most turn a POST into a GET, whose 200 would confirm a body that
//! no receiver accepted.

use firn_model::sample::TimestampMs;
use firn_wire::remote_write::WriteRequestContents;
use std::time::Duration;

/// Maximum wait that a target may request; otherwise a wrong clock of the target could silence it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// How the responses of a target are interpreted: `firn serve` as a sender, or `firn mirror` as a
/// forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMode {
    /// As by Prometheus's sender: each status except 2xx, 429 and 5xx is final, and a receiver of
    /// version 2.0 reports what it has written.
    Sender,
    /// Statuses that do not depend on the body are not final.
    Patient,
}

/// The relevant parts of a target's response, read by the transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetResponse {
    /// The HTTP status code, by which the verdict is decided.
    pub status: u16,
    /// The `Retry-After` header, if present, unparsed.
    pub retry_after: Option<String>,
    /// The `Location` header, if present, for the log.
    pub location: Option<String>,
    /// Numbers of samples, histograms and exemplars that it reports as written.
    pub written: [u64; 3],
    /// The beginning of the body, which is logged as the error.
    pub text: String,
}

impl TargetResponse {
    /// Returns the contents of `sent`, a request of version 2.0, that the target did not report as
    /// written.
    fn missing_contents(&self, sent: WriteRequestContents) -> WriteRequestContents {
        let [samples, histograms, exemplars] = self.written;
        sent.without(WriteRequestContents {
            samples,
            histograms,
            exemplars,
            ..WriteRequestContents::default()
        })
    }
}

/// Reason for which an attempt is repeated; used as a label of the metric of repeated attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryReason {
    /// The connection could not be established, or it broke.
    Connection,
    /// There was no response before the timeout of the target.
    Timeout,
    /// Status 429, too many requests.
    Throttled,
    /// Status 5xx, or another unexpected status.
    Server,
    /// Status 3xx, which is not followed but repeated.
    Redirect,
    /// 401, 403, 404, 405 or 407: the target accepts no body with these credentials or this URL.
    Access,
}

impl RetryReason {
    /// All reasons, in the order of the metric's series.
    pub const ALL: [Self; 6] = [
        Self::Connection,
        Self::Timeout,
        Self::Throttled,
        Self::Server,
        Self::Redirect,
        Self::Access,
    ];

    /// Returns the value of the metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::Throttled => "throttled",
            Self::Server => "server",
            Self::Redirect => "redirect",
            Self::Access => "access",
        }
    }
}

/// The consequence of a response for the request: it is accepted, rejected for good, or repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryVerdict {
    /// The target has accepted the request, except for the contents that it did not report as
    /// written.
    Taken(WriteRequestContents),
    /// The target will never accept this request as it is.
    Refused {
        /// Status and message of the response, for the log.
        why: String,
        /// Whether the reason does not depend on the body, but on access, URL or media type.
        is_of_all: bool,
    },
    /// The request is repeated after a pause.
    Again {
        /// Reason for the metric of repeated attempts.
        trouble: RetryReason,
        /// Status and message of the response, for the log.
        why: String,
        /// Minimum wait that the target requested in `Retry-After`, if any.
        after: Option<Duration>,
    },
}

impl DeliveryVerdict {
    /// Interprets `answer`, which arrived at `now_ms`, according to `manner`.
    pub fn from_response(
        answer: &TargetResponse,
        now_ms: TimestampMs,
        manner: DeliveryMode,
    ) -> Self {
        let said = match answer.text.trim() {
            "" => format!("status {}", answer.status),
            text => format!("status {}: {text}", answer.status),
        };
        let trouble = match answer.status {
            200..=299 => return Self::Taken(WriteRequestContents::default()),
            429 => RetryReason::Throttled,
            401 | 403..=405 | 407 if manner == DeliveryMode::Patient => RetryReason::Access,
            408 if manner == DeliveryMode::Patient => RetryReason::Timeout,
            status @ 400..=499 => {
                return Self::Refused {
                    why: said,
                    is_of_all: matches!(status, 401 | 403 | 404 | 405 | 407 | 415),
                };
            }
            300..=399 if manner == DeliveryMode::Patient => RetryReason::Redirect,
            500..=599 => RetryReason::Server,
            _ if manner == DeliveryMode::Patient => RetryReason::Server,
            _ => {
                return Self::Refused {
                    why: with_location(said, answer),
                    is_of_all: true,
                };
            }
        };
        let why = with_location(said, answer);
        let after = answer.retry_after.as_deref();
        Self::Again {
            trouble,
            why,
            after: after.and_then(|text| parse_retry_after(text, now_ms)),
        }
    }

    /// Refines the verdict about a request of version 2.0 that contained `sent`. Receivers of 2.0
    /// must report the number of written samples. A receiver that reports nothing supports only
    /// 1.0: it ignores the fields of such a request and responds with success.
    pub fn refine_with_written(self, answer: &TargetResponse, sent: WriteRequestContents) -> Self {
        let missing = answer.missing_contents(sent);
        let count = |of: WriteRequestContents| of.all_samples() + of.exemplars;
        if !matches!(self, Self::Taken(_)) || count(missing) == 0 {
            return self;
        }
        if answer.written == [0; 3] {
            let why = format!(
                "status {}, without a count of written samples for {} samples, {} histograms and \
                 {} exemplars in a request of version 2.0: the receiver may support only 1.0",
                answer.status, sent.samples, sent.histograms, sent.exemplars
            );
            return Self::Refused {
                why,
                is_of_all: true,
            };
        }
        Self::Taken(missing)
    }
}

/// Appends the target of a redirect that was not followed, and the setting to change.
fn with_location(said: String, answer: &TargetResponse) -> String {
    match (answer.status, &answer.location) {
        (300..=399, Some(to)) => format!(
            "{said}: the redirect to {to:?} was not followed: set the receiver's own URL, or \
             follow_redirects where there is such a setting"
        ),
        _ => said,
    }
}

/// Parses a `Retry-After` header, either seconds or an HTTP date.
fn parse_retry_after(text: &str, now_ms: TimestampMs) -> Option<Duration> {
    let text = text.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
            let now = Duration::from_millis(u64::try_from(now_ms).ok()?);
            at.saturating_sub(now)
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, retry_after: Option<&str>, expected: &str) {
        for manner in [DeliveryMode::Sender, DeliveryMode::Patient] {
            check_as(manner, status, retry_after, expected);
        }
    }

    fn check_as(manner: DeliveryMode, status: u16, retry_after: Option<&str>, expected: &str) {
        let answer = TargetResponse {
            status,
            retry_after: retry_after.map(str::to_owned),
            location: (status == 307).then(|| "/x".to_owned()),
            written: [0; 3],
            text: "why\n".to_owned(),
        };
        let verdict = match DeliveryVerdict::from_response(&answer, 784_111_777_000, manner) {
            DeliveryVerdict::Taken(_) => "taken".to_owned(),
            DeliveryVerdict::Refused { why, is_of_all } => {
                format!(
                    "refused{}: {why}",
                    ["", " whatever it is"][usize::from(is_of_all)]
                )
            }
            DeliveryVerdict::Again { trouble, after, .. } => {
                format!("{} {after:?}", trouble.label())
            }
        };
        assert_eq!(verdict, expected, "{status} {retry_after:?}");
    }

    #[test]
    fn verdict_follows_the_status() {
        check(200, None, "taken");
        check(204, None, "taken");
        check(400, None, "refused: status 400: why");
        check(413, Some("1"), "refused: status 413: why");
        check(422, None, "refused: status 422: why");
        check(415, None, "refused whatever it is: status 415: why");
        for status in [401, 403, 404, 405, 407] {
            let expected = format!("refused whatever it is: status {status}: why");
            check_as(DeliveryMode::Sender, status, None, &expected);
            check_as(DeliveryMode::Patient, status, Some("7"), "access Some(7s)");
        }
        check_as(DeliveryMode::Sender, 408, None, "refused: status 408: why");
        check_as(DeliveryMode::Patient, 408, None, "timeout None");
        let redirect = "refused whatever it is: status 307: why: the redirect to \"/x\" was not \
                        followed: set the receiver's own URL, or follow_redirects where there is \
                        such a setting";
        check_as(DeliveryMode::Sender, 307, None, redirect);
        check_as(DeliveryMode::Patient, 307, None, "redirect None");
        check(500, None, "server None");
        check(503, Some("7"), "server Some(7s)");
        let unknown = "refused whatever it is: status 600: why";
        check_as(DeliveryMode::Sender, 600, None, unknown);
        check_as(DeliveryMode::Patient, 600, None, "server None");
        check(429, Some(" 2 "), "throttled Some(2s)");
        check(429, Some("100000"), "throttled Some(300s)");
        check(429, Some("soon"), "throttled None");
        check(
            429,
            Some("Sun, 06 Nov 1994 08:49:40 GMT"),
            "throttled Some(3s)",
        );
        check(
            429,
            Some("Sun, 06 Nov 1994 08:49:30 GMT"),
            "throttled Some(0ns)",
        );
    }

    #[test]
    fn request_of_2_0_is_taken_as_far_as_its_receiver_says_so() {
        let sent = WriteRequestContents {
            samples: 5,
            histograms: 2,
            exemplars: 1,
            ..WriteRequestContents::default()
        };
        for (status, written, sent, expected) in [
            (204, [5, 2, 1], sent, Some([0, 0, 0])),
            (200, [9, 9, 9], sent, Some([0, 0, 0])),
            (204, [4, 2, 0], sent, Some([1, 0, 1])),
            (204, [0, 0, 1], sent, Some([5, 2, 0])),
            (204, [0, 0, 0], sent, None),
            (
                204,
                [0, 0, 0],
                WriteRequestContents::default(),
                Some([0, 0, 0]),
            ),
            (400, [4, 2, 1], sent, None),
        ] {
            let answer = TargetResponse {
                status,
                written,
                ..TargetResponse::default()
            };
            let verdict = DeliveryVerdict::from_response(&answer, 0, DeliveryMode::Sender)
                .refine_with_written(&answer, sent);
            let missing = match verdict {
                DeliveryVerdict::Taken(of) => Some([of.samples, of.histograms, of.exemplars]),
                _ => None,
            };
            assert_eq!(missing, expected, "{status} {written:?}");
        }
    }
}
