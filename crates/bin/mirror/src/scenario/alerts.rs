//! Receives the alerts of a system as an Alertmanager does, stores them in a file, and compares the
//! histories of two systems.
//!
//! Invariant: an alert is written to the file of its system before the request is answered, so that
//! a continued run has all alerts that were sent before the interruption.

use crate::error::MirrorError;
use crate::push::now_ms;
use crate::target::{self, ExpositionServer, Request};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Path at which Alertmanagers accept alerts.
const PATH: &str = "/api/v2/alerts";

/// One occurrence of a firing alert, from its first notification to its resolution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertOccurrence {
    /// Annotations of the alert when it was first sent.
    annotations: Value,
    /// End time and annotations at the end; `None` if no resolution was sent.
    resolved: Option<(String, Value)>,
}

/// All occurrences of all alerts, by the labels and the start time of each.
pub type History = BTreeMap<(String, String), AlertOccurrence>;

/// Accepts alerts at `address` until the process ends, and appends them to the file `path`.
pub fn listen(address: &str, path: &Path) -> Result<ExpositionServer, MirrorError> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let file = Mutex::new(opened.map_err(MirrorError::file("open", path))?);
    ExpositionServer::start(address, move |request, stream| {
        answer(request, &file, now_ms(), stream);
    })
}

fn answer(request: &Request, file: &Mutex<File>, at_ms: i64, stream: &mut TcpStream) {
    let mut say = |status: &str, why: &str| target::respond(stream, status, "text/plain", why);
    if request.path != PATH {
        return say("404 Not Found", "alerts are accepted at /api/v2/alerts\n");
    }
    let Ok(alerts) = serde_json::from_slice::<Vec<Map<String, Value>>>(&request.body) else {
        return say("400 Bad Request", "not a list of alerts\n");
    };
    let lines = alerts
        .into_iter()
        .map(|alert| format!("{}\n", json!({"at_ms": at_ms, "alert": alert})));
    let text: String = lines.collect();
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    match file.write_all(text.as_bytes()) {
        Ok(()) => say("200 OK", ""),
        Err(e) => say("500 Internal Server Error", &format!("{e}\n")),
    }
}

/// Reads the alerts in `path` up to `end_ms`. An alert whose end was in the future when it was sent
/// was firing; any other one was resolved.
pub fn history(path: &Path, end_ms: i64) -> Result<History, MirrorError> {
    let text = fs::read_to_string(path).map_err(MirrorError::file("read", path))?;
    let wrong = |number: usize| {
        let what = format!("{}:{number}: not an alert", path.display());
        MirrorError::Usage(what)
    };
    let mut history = History::new();
    for (i, line) in text.lines().enumerate() {
        let line: Value = serde_json::from_str(line).map_err(|_| wrong(i + 1))?;
        let alert = &line["alert"];
        let moment = |key: &str| {
            let text = alert[key].as_str()?;
            Some((text.to_owned(), milliseconds(text)?))
        };
        let known = (moment("startsAt"), moment("endsAt"), line["at_ms"].as_i64());
        let (Some((start, start_ms)), Some((end, resolved_ms)), Some(at_ms)) = known else {
            return Err(wrong(i + 1));
        };
        if start_ms > end_ms {
            continue;
        }
        let fired = history.entry((alert["labels"].to_string(), start));
        let fired = fired.or_insert_with(|| AlertOccurrence {
            annotations: alert["annotations"].clone(),
            resolved: None,
        });
        if resolved_ms <= at_ms.min(end_ms) && fired.resolved.is_none() {
            fired.resolved = Some((end, alert["annotations"].clone()));
        }
    }
    Ok(history)
}

/// Converts a time of an alert to milliseconds since the epoch, rounded down; `None` if it is
/// malformed.
fn milliseconds(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

/// Describes the first occurrence that only one history contains or that differs between them.
pub fn difference(baseline: &History, candidate: &History) -> Option<String> {
    let mut keys: Vec<_> = baseline.keys().chain(candidate.keys()).collect();
    // Differences are ordered by time, because the first one may be the cause of the others.
    keys.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    let differs = |key: &&(String, String)| baseline.get(*key) != candidate.get(*key);
    let key = keys.into_iter().find(differs)?;
    let shown = |history: &History| match history.get(key) {
        None => "did not fire".to_owned(),
        Some(AlertOccurrence {
            annotations,
            resolved: None,
        }) => format!("fired with {annotations} and was not resolved"),
        Some(AlertOccurrence {
            annotations,
            resolved: Some((at, then)),
        }) => format!("fired with {annotations} until {at}, then {then}"),
    };
    Some(format!(
        "{} from {} on: {} in the baseline, {} in the other",
        key.0,
        key.1,
        shown(baseline),
        shown(candidate)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a body as a system does and returns the status of the response.
    fn post(address: &str, path: &str, body: &str) -> u16 {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        let sent = agent.post(format!("http://{address}{path}")).send(body);
        sent.unwrap().status().as_u16()
    }

    #[test]
    fn alerts_that_are_taken_are_in_the_file_by_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("alerts");
        let target = listen("127.0.0.1:0", &path).unwrap();
        let alert = r#"{"labels":{"alertname":"A"},"annotations":{"s":"1"},
            "startsAt":"2020-01-01T00:00:00.5Z","endsAt":"2120-01-01T00:00:00Z"}"#;
        assert_eq!(post(&target.address, PATH, &format!("[{alert}]")), 200);
        let known = history(&path, i64::MAX).unwrap();
        assert_eq!(known.len(), 1);
        assert_eq!(post(&target.address, PATH, "{}"), 400);
        assert_eq!(post(&target.address, PATH, "[1]"), 400);
        assert_eq!(post(&target.address, "/api/v1/alerts", "[]"), 404);
        assert_eq!(history(&path, i64::MAX).unwrap(), known);
    }

    /// Builds a history from alerts given as `name start end annotation at`, in seconds.
    fn history_of(alerts: &[(&str, i64, i64, &str, i64)], end: i64) -> History {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("alerts");
        let moment = |seconds: i64| {
            let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
            time.format(&Rfc3339).unwrap()
        };
        let lines = alerts.iter().map(|(name, start, end, summary, at)| {
            let alert = json!({
                "labels": {"alertname": name}, "annotations": {"summary": summary},
                "startsAt": moment(*start), "endsAt": moment(*end),
            });
            format!("{}\n", json!({"at_ms": at * 1000, "alert": alert}))
        });
        fs::write(&path, lines.collect::<String>()).unwrap();
        history(&path, end * 1000).unwrap()
    }

    #[test]
    fn histories_differ_by_what_fired_and_when_and_not_by_how_often_it_was_told() {
        let base = [
            ("A", 10, 250, "1", 10),
            ("A", 10, 40, "2", 40),
            ("B", 20, 260, "1", 20),
        ];
        let want = history_of(&base, 100);
        let check = |alerts: &[(&str, i64, i64, &str, i64)], expected: Option<&str>| {
            let found = difference(&want, &history_of(alerts, 100));
            match (found, expected) {
                (None, None) => {}
                (Some(found), Some(part)) => assert!(found.contains(part), "{found}"),
                (found, expected) => panic!("{found:?}, {expected:?} is expected: {alerts:?}"),
            }
        };
        let [fired, resolved, other] = base;
        check(&base, None);
        let again = ("A", 10, 270, "7", 30);
        check(&[fired, again, resolved, resolved, other], None);
        check(&[fired, resolved, other, ("A", 101, 400, "1", 101)], None);
        check(&[fired, resolved], Some("did not fire in the other"));
        check(&[fired, other], Some("was not resolved in the other"));
        check(
            &[("A", 11, 250, "1", 11), resolved, other],
            Some("fired with {\"summary\":\"2\"} until"),
        );
        check(
            &[("A", 10, 250, "3", 10), resolved, other],
            Some("fired with {\"summary\":\"3\"}"),
        );
        check(
            &[fired, ("A", 10, 41, "2", 41), other],
            Some("until 1970-01-01T00:00:41Z"),
        );
        // Flapping: the alert is resolved and fires again.
        check(
            &[fired, resolved, other, ("A", 50, 300, "1", 50)],
            Some("from 1970-01-01T00:00:50Z on: did not fire in the baseline"),
        );
    }
}
