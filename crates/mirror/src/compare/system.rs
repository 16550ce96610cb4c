//! The two systems, and how one is asked.

use super::latency::Latencies;
use super::options::Options;
use crate::api::{Bounds, Client};
use crate::error::MirrorError;
use crate::judge::Class;
use crate::judge::answer::{Answer, Data, Point, PointValue, Success, series_text};
use crate::questions::Lookup;
use crate::questions::reach::Stretch;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::tls::TlsConfig;

/// Parameters of a request.
pub type Params = Vec<(&'static str, String)>;

/// What a request brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// The body; empty if none came.
    pub body: Vec<u8>,
    /// Why there is no whole answer of the API.
    pub fault: Option<(Class, String)>,
}

impl Fetched {
    /// The answer, or why there is none.
    pub fn answer(&self) -> Result<Answer<'_>, (Class, String)> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Answer::parse(&self.body).map_err(|e| (Class::Error, e)),
        }
    }
}

/// A system.
#[derive(Debug)]
pub struct System {
    /// `baseline` or `candidate`.
    pub name: &'static str,
    /// Its URL, without what is secret in it.
    pub shown: String,
    /// Names of the headers that requests carry.
    pub header_names: Vec<String>,
    client: Client,
    latencies: Mutex<Latencies>,
}

impl System {
    /// The system that `options` name `name`, asked by `tls` if its URL is https.
    pub fn new(name: &'static str, url: &str, options: &Options, tls: &TlsConfig) -> Self {
        let is_for_it = |system: Option<&str>| system.is_none_or(|system| system == name);
        let headers = options
            .headers
            .iter()
            .filter(|header| is_for_it(header.system));
        let headers: Vec<_> = headers.map(|h| (h.name.clone(), h.value.clone())).collect();
        Self {
            name,
            shown: without_password(url),
            header_names: headers.iter().map(|(name, _)| name.clone()).collect(),
            client: Client::within(
                url,
                Bounds {
                    timeout: options.timeout,
                    answer_bytes_max: options.answer_bytes_max,
                    follows_redirects: false,
                    headers,
                    tls: tls.clone(),
                },
            ),
            latencies: Mutex::default(),
        }
    }

    /// Asks an endpoint below `/api/v1` and remembers how long it took.
    pub fn ask(&self, endpoint: &str, params: &Params) -> Fetched {
        let start = Instant::now();
        let fetched = self.fetch(endpoint, params);
        let mut latencies = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        latencies.record(start.elapsed());
        fetched
    }

    /// Asks without remembering how long it took: what is asked besides the questions.
    pub fn fetch(&self, endpoint: &str, params: &Params) -> Fetched {
        let none = |fault| Fetched {
            body: Vec::new(),
            fault: Some(fault),
        };
        match self.client.fetch(endpoint, params) {
            Ok(reply) if (300..400).contains(&reply.status) => {
                let to = reply.location.unwrap_or_default();
                let status = reply.status;
                let text = format!("status {status}: a redirect to {to:?}, which is not followed");
                none((Class::Error, text))
            }
            Ok(reply) => {
                let status = reply.status;
                let is_foreign = Answer::parse(&reply.body).is_err() && status != 200;
                let start = String::from_utf8_lossy(&reply.body[..reply.body.len().min(200)]);
                let text = || (Class::Error, format!("status {status}: {:?}", start.trim()));
                Fetched {
                    fault: is_foreign.then(text),
                    body: reply.body,
                }
            }
            Err(e) => none(fault_of(&e)),
        }
    }

    /// Whether the system can be asked at all: fails if there is no connection to it. Says which
    /// version it is, if it says so.
    pub fn probe(&self) -> Result<Option<String>, MirrorError> {
        match self.client.fetch("status/buildinfo", &Vec::new()) {
            Ok(reply) => {
                let answer: serde_json::Value =
                    serde_json::from_slice(&reply.body).unwrap_or_default();
                let text = |key: &str| answer["data"][key].as_str().map(str::to_owned);
                let own = text("firn_version").map(|version| format!("Firn {version}"));
                Ok(own.or_else(|| text("version")))
            }
            Err(MirrorError::Answer { .. }) => Ok(None),
            Err(e) => {
                let why = fault_of(&e).1;
                Err(MirrorError::Unasked {
                    system: self.name,
                    url: self.shown.clone(),
                    why,
                })
            }
        }
    }

    /// The times of all answers so far.
    pub fn latencies(&self) -> Latencies {
        let latencies = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        latencies.clone()
    }

    /// Whether a query has a result that is not empty, at the end of a stretch or anywhere in it.
    pub fn has_data(&self, expression: &str, stretch: Stretch, step_ms: i64) -> bool {
        let query = ("query", expression.to_owned());
        let end = crate::api::seconds(stretch.end_ms);
        let at_end = vec![query.clone(), ("time", end.clone())];
        let has_series = |fetched: Fetched| {
            fetched
                .answer()
                .is_ok_and(|answer| !answer.series().is_empty())
        };
        if has_series(self.fetch("query", &at_end)) {
            return true;
        }
        let start = crate::api::seconds(stretch.start_ms);
        let step = ("step", crate::api::seconds(step_ms));
        has_series(self.fetch(
            "query_range",
            &vec![query, ("start", start), ("end", end), step],
        ))
    }
}

/// A failed request in a class and in words.
fn fault_of(error: &MirrorError) -> (Class, String) {
    let MirrorError::Transport { source, .. } = error else {
        let MirrorError::Answer { what, .. } = error else {
            return (Class::Error, error.to_string());
        };
        return (Class::Error, what.clone());
    };
    match source.as_ref() {
        ureq::Error::Timeout(_) => (Class::Timeout, "no whole answer in time".to_owned()),
        other => {
            let text = other.to_string();
            let text = match text.contains("certificate") {
                true => format!("its certificate is not accepted: {text}"),
                false => text,
            };
            (Class::Error, text)
        }
    }
}

/// A URL whose user has no password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        None => url.to_owned(),
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{host}{}", &rest[authority.len()..])
        }
    }
}

/// Both systems.
#[derive(Debug)]
pub struct Pair {
    /// The one whose answers count as right.
    pub baseline: System,
    /// The one that is held against it.
    pub candidate: System,
}

impl Pair {
    /// Asks both at once.
    pub fn ask(&self, endpoint: &str, params: &Params) -> (Fetched, Fetched) {
        std::thread::scope(|scope| {
            let candidate = scope.spawn(|| self.candidate.ask(endpoint, params));
            let baseline = self.baseline.ask(endpoint, params);
            (baseline, candidate.join().expect("asking does not panic"))
        })
    }
}

/// Looks up in one system, over a stretch, what variables and made questions need.
#[derive(Clone, Copy, Debug)]
pub struct StretchLookup<'a> {
    /// Whom to ask.
    pub system: &'a System,
    /// Over which times.
    pub stretch: Stretch,
}

impl StretchLookup<'_> {
    fn names(&self, endpoint: &str, selector: Option<&str>) -> Result<Vec<String>, String> {
        let seconds = crate::api::seconds;
        let mut params: Params = vec![
            ("start", seconds(self.stretch.start_ms)),
            ("end", seconds(self.stretch.end_ms)),
        ];
        params.extend(selector.map(|selector| ("match[]", selector.to_owned())));
        let fetched = self.system.fetch(endpoint, &params);
        match success(&fetched)?.data {
            Data::Other(names) => {
                let names = names.as_array().into_iter().flatten();
                Ok(names
                    .filter_map(|name| name.as_str().map(str::to_owned))
                    .collect())
            }
            _ => Err("not a list of names".to_owned()),
        }
    }
}

fn success(fetched: &Fetched) -> Result<Success<'_>, String> {
    match fetched.answer().map_err(|(_, text)| text)? {
        Answer::Success(success) => Ok(success),
        Answer::Failure { kind, text } => Err(format!("{kind}: {text}")),
    }
}

impl Lookup for StretchLookup<'_> {
    fn label_names(&self, selector: Option<&str>) -> Result<Vec<String>, String> {
        self.names("labels", selector)
    }

    fn label_values(&self, label: &str, selector: Option<&str>) -> Result<Vec<String>, String> {
        self.names(&format!("label/{}/values", escape(label)), selector)
    }

    fn query_result(&self, expression: &str) -> Result<Vec<String>, String> {
        let time = crate::api::seconds(self.stretch.end_ms);
        let params = vec![("query", expression.to_owned()), ("time", time)];
        let fetched = self.system.fetch("query", &params);
        let line = |labels: &str, point: &Point<'_>| match point.value {
            PointValue::Float(value) => format!("{labels} {value} {}", point.time_ms),
            PointValue::Histogram(_) => labels.to_owned(),
        };
        Ok(match success(&fetched)?.data {
            Data::Series(series) => {
                let lines = series.iter().filter_map(|series| {
                    Some(line(&series_text(&series.labels), series.points.first()?))
                });
                lines.collect()
            }
            Data::Scalar(point) => vec![line("", &point).trim_start().to_owned()],
            Data::Other(_) => Vec::new(),
        })
    }
}

/// `text` as a segment of a URL's path.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte as char);
            }
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

/// How long until then; nothing if it is past.
pub fn until(time_ms: i64) -> Duration {
    let ms = time_ms.saturating_sub(crate::push::now_ms());
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_shown_without_its_password() {
        for (url, shown) in [
            ("http://a:1/p?x=y@z", "http://a:1/p?x=y@z"),
            ("https://user:secret@a/p", "https://user@a/p"),
            ("https://user:s@ecret@a", "https://user@a"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn label_name_is_escaped_in_a_path() {
        assert_eq!(escape("a_b.c"), "a_b.c");
        assert_eq!(escape("ä/b c"), "%C3%A4%2Fb%20c");
    }
}
