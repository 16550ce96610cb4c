//! The two compared systems, and the requests to them.

pub use super::asker::Params;
use super::asker::RequestThreads;
use super::latency::LatencyHistogram;
use crate::api::{SystemClient, SystemClientOptions, SystemReply};
use crate::error::MirrorError;
use crate::judge::DifferenceClass;
use crate::judge::answer::{AnswerData, ApiAnswer, SuccessfulAnswer};
use crate::questions::reach::CommonTimeRange;
use std::time::Duration;

/// The result of a request: a response body or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchResult {
    /// The response body; empty if there was no response.
    pub body: Vec<u8>,
    /// Class and text of the failure if there is no complete API answer.
    pub fault: Option<(DifferenceClass, String)>,
}

impl FetchResult {
    /// Parses the body as an API answer. Fails with the class and the text of the failure.
    pub fn answer(&self) -> Result<ApiAnswer<'_>, (DifferenceClass, String)> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => ApiAnswer::parse(&self.body).map_err(|e| (DifferenceClass::Error, e)),
        }
    }
}

/// Converts a response or an error into a [`FetchResult`]. Redirects and foreign error pages become
/// faults.
fn fetched(replied: Result<SystemReply, MirrorError>) -> FetchResult {
    let none = |fault| FetchResult {
        body: Vec::new(),
        fault: Some(fault),
    };
    match replied {
        Ok(reply) if (300..400).contains(&reply.status) => {
            let to = reply.location.unwrap_or_default();
            let status = reply.status;
            let text = format!("status {status}: redirect to {to:?} not followed");
            none((DifferenceClass::Error, text))
        }
        Ok(reply) => {
            let status = reply.status;
            // With status 200 the verdict parses the body anyway and finds out whether it is an API
            // answer.
            let is_foreign = status != 200 && ApiAnswer::parse(&reply.body).is_err();
            let start = String::from_utf8_lossy(&reply.body[..reply.body.len().min(200)]);
            let text = || {
                (
                    DifferenceClass::Error,
                    format!("status {status}: {:?}", start.trim()),
                )
            };
            FetchResult {
                fault: is_foreign.then(text),
                body: reply.body,
            }
        }
        Err(e) => none(failure_class(&e)),
    }
}

/// One of the two compared systems, with the threads that send requests to it and the latencies
/// that they record.
#[derive(Debug)]
pub struct ComparedSystem {
    /// Name of the system in reports and messages: `baseline` or `candidate`.
    pub name: &'static str,
    /// URL of the system as it is shown, without the password.
    pub shown: String,
    /// Names of the headers that are added to requests.
    pub header_names: Vec<String>,
    askers: RequestThreads,
}

impl ComparedSystem {
    /// Creates the system at `url`, with at most `concurrency` concurrent requests, each connection
    /// of which is in use for at most `busy` percent of the time.
    pub fn new(
        name: &'static str,
        url: &str,
        bounds: &SystemClientOptions,
        concurrency: usize,
        busy: f64,
    ) -> Self {
        let headers = bounds.headers.iter();
        Self {
            name,
            shown: without_password(url),
            header_names: headers.map(|(name, _)| name.clone()).collect(),
            askers: RequestThreads::start(concurrency, busy, || {
                SystemClient::within(url, bounds.clone())
            }),
        }
    }

    /// Requests an endpoint below `/api/v1` without recording the latency. Used for all requests
    /// that are not compared queries.
    pub fn fetch(&self, endpoint: &str, params: &Params) -> FetchResult {
        fetched(self.askers.begin(endpoint, params, false).wait())
    }

    /// Requests an endpoint and returns its body. Fails with the text of the failure.
    pub fn body(&self, endpoint: &str, params: &Params) -> Result<Vec<u8>, String> {
        let FetchResult { body, fault } = self.fetch(endpoint, params);
        fault.map_or(Ok(body), |(_, text)| Err(text))
    }

    /// Checks that the system is reachable and returns its version, if it reports one. Fails if no
    /// connection can be made.
    pub fn probe(&self) -> Result<Option<String>, MirrorError> {
        let begun = self.askers.begin("status/buildinfo", &Vec::new(), false);
        match begun.wait() {
            Ok(reply) => {
                let answer: serde_json::Value =
                    serde_json::from_slice(&reply.body).unwrap_or_default();
                let text = |key: &str| answer["data"][key].as_str().map(str::to_owned);
                let own = text("firn_version").map(|version| format!("Firn {version}"));
                Ok(own.or_else(|| text("version")))
            }
            Err(MirrorError::Answer { .. }) => Ok(None),
            Err(e) => {
                let why = failure_class(&e).1;
                Err(MirrorError::Unasked {
                    system: self.name,
                    url: self.shown.clone(),
                    why,
                })
            }
        }
    }

    /// Returns a copy of the latencies of all compared queries so far.
    pub fn latencies(&self) -> LatencyHistogram {
        self.askers.latencies()
    }

    /// Returns whether a query has a result at the end of a stretch or anywhere in it. Fails with
    /// the system's error if it cannot answer.
    pub fn has_data(
        &self,
        expression: &str,
        stretch: CommonTimeRange,
        step_ms: i64,
    ) -> Result<bool, String> {
        let query = ("query", expression.to_owned());
        let end = crate::api::seconds(stretch.end_ms);
        let at_end = vec![query.clone(), ("time", end.clone())];
        let has_series = |fetched: &FetchResult| {
            success(fetched).map(|success| match success.data {
                AnswerData::Series(series) => !series.is_empty(),
                _ => false,
            })
        };
        if has_series(&self.fetch("query", &at_end))? {
            return Ok(true);
        }
        let start = crate::api::seconds(stretch.start_ms);
        let step = ("step", crate::api::seconds(step_ms));
        let within = vec![query, ("start", start), ("end", end), step];
        has_series(&self.fetch("query_range", &within))
    }
}

/// Returns the class and the text of a failed request.
fn failure_class(error: &MirrorError) -> (DifferenceClass, String) {
    let MirrorError::Transport { source, .. } = error else {
        let MirrorError::Answer { what, .. } = error else {
            return (DifferenceClass::Error, error.to_string());
        };
        return (DifferenceClass::Error, what.clone());
    };
    match source.as_ref() {
        ureq::Error::Timeout(_) => (
            DifferenceClass::Timeout,
            "no complete answer before the timeout".to_owned(),
        ),
        other => {
            let text = other.to_string();
            let text = if text.contains("certificate") {
                format!("its certificate is not accepted: {text}")
            } else {
                text
            };
            (DifferenceClass::Error, text)
        }
    }
}

/// Removes the password from the user information of a URL.
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

/// The two systems that a run compares. Requests to both are sent at the same time.
#[derive(Debug)]
pub struct SystemPair {
    /// The system whose answers are considered correct.
    pub baseline: ComparedSystem,
    /// The system that is compared with the baseline.
    pub candidate: ComparedSystem,
}

/// The results of one request to both systems of a [`SystemPair`].
#[derive(Debug)]
pub struct FetchResultPair {
    /// The result of the baseline.
    pub baseline: FetchResult,
    /// The result of the candidate.
    pub candidate: FetchResult,
}

impl SystemPair {
    /// Sends a request to both systems at once and records the latencies.
    pub fn query_both(&self, endpoint: &str, params: &Params) -> FetchResultPair {
        self.send_to_both(endpoint, params, true)
    }

    /// Sends a request to both systems at once without recording the latencies.
    pub fn fetch(&self, endpoint: &str, params: &Params) -> FetchResultPair {
        self.send_to_both(endpoint, params, false)
    }

    fn send_to_both(&self, endpoint: &str, params: &Params, is_question: bool) -> FetchResultPair {
        let begin = |system: &ComparedSystem| system.askers.begin(endpoint, params, is_question);
        let (baseline, candidate) = (begin(&self.baseline), begin(&self.candidate));
        FetchResultPair {
            baseline: fetched(baseline.wait()),
            candidate: fetched(candidate.wait()),
        }
    }
}

fn success(fetched: &FetchResult) -> Result<SuccessfulAnswer<'_>, String> {
    let answer = fetched.answer().map_err(|(_, text)| text)?;
    answer.success()
}

/// Returns the time left until `time_ms`; zero if it has passed.
pub fn time_until(time_ms: i64) -> Duration {
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
}
