//! What the answer of a target means for the body that it was sent.
//!
//! Statuses mean what they mean to Prometheus's sender: 2xx is taken, 5xx may be tried again, other
//! 4xx never helps. 429 is tried again whatever the configuration says, since Prometheus's default
//! loses what it was told to send later. A redirect is not followed: most turn a POST into a GET,
//! whose 200 would say that a body was taken which no receiver saw. It is tried again, since the
//! configuration is wrong then, and nothing is lost before the queue is full.

use firn_model::sample::TimestampMs;
use std::time::Duration;

/// The longest wait that a target may ask for; beyond it a slip of its clock would silence it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// What a target said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// `Retry-After`, if there was one.
    pub retry_after: Option<String>,
    /// `Location`, if there was one.
    pub location: Option<String>,
    /// The beginning of the body.
    pub text: String,
}

/// Why an attempt is repeated: the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No connection, or one that broke off.
    Connection,
    /// No answer in time.
    Timeout,
    /// 429.
    Throttled,
    /// 5xx, or a status that means nothing here.
    Server,
    /// 3xx.
    Redirect,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Connection,
        Self::Timeout,
        Self::Throttled,
        Self::Server,
        Self::Redirect,
    ];

    /// Its name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::Throttled => "throttled",
            Self::Server => "server",
            Self::Redirect => "redirect",
        }
    }
}

/// What becomes of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target has it.
    Taken,
    /// It will never be taken.
    Refused {
        /// Why, for the log.
        why: String,
        /// Whether that is a matter of no body: of access, of the URL, of the media type.
        is_of_all: bool,
    },
    /// It is sent again, after this time at least.
    Again {
        /// Why, for the metric.
        trouble: Trouble,
        /// Why, for the log.
        why: String,
        /// What the target asked for.
        after: Option<Duration>,
    },
}

impl Verdict {
    /// What `answer`, which came at `now_ms`, means.
    pub fn of(answer: &Answer, now_ms: TimestampMs) -> Self {
        let said = match answer.text.trim() {
            "" => format!("status {}", answer.status),
            text => format!("status {}: {text}", answer.status),
        };
        let trouble = match answer.status {
            200..=299 => return Self::Taken,
            429 => Trouble::Throttled,
            status @ 400..=499 => {
                return Self::Refused {
                    why: said,
                    is_of_all: matches!(status, 401 | 403 | 404 | 405 | 407 | 415),
                };
            }
            300..=399 => Trouble::Redirect,
            _ => Trouble::Server,
        };
        let why = match (trouble, &answer.location) {
            (Trouble::Redirect, Some(to)) => {
                format!("{said}: redirects to {to:?} are not followed: name the receiver's own URL")
            }
            _ => said,
        };
        let after = answer.retry_after.as_deref();
        Self::Again {
            trouble,
            why,
            after: after.and_then(|text| parse_retry_after(text, now_ms)),
        }
    }
}

/// Seconds, or an HTTP date.
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
        let answer = Answer {
            status,
            retry_after: retry_after.map(str::to_owned),
            location: (status == 307).then(|| "/x".to_owned()),
            text: "why\n".to_owned(),
        };
        let verdict = match Verdict::of(&answer, 784_111_777_000) {
            Verdict::Taken => "taken".to_owned(),
            Verdict::Refused { why, is_of_all } => {
                format!(
                    "refused{}: {why}",
                    ["", " whatever it is"][usize::from(is_of_all)]
                )
            }
            Verdict::Again { trouble, after, .. } => format!("{} {after:?}", trouble.label()),
        };
        assert_eq!(verdict, expected, "{status} {retry_after:?}");
    }

    #[test]
    fn verdict_follows_the_status() {
        check(200, None, "taken");
        check(204, None, "taken");
        check(400, None, "refused: status 400: why");
        check(413, Some("1"), "refused: status 413: why");
        for status in [401, 403, 404, 405, 407, 415] {
            let expected = format!("refused whatever it is: status {status}: why");
            check(status, None, &expected);
        }
        check(307, None, "redirect None");
        check(500, None, "server None");
        check(503, Some("7"), "server Some(7s)");
        check(600, None, "server None");
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
}
