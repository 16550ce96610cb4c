//! Fetches targets over HTTP.

use super::fetch::{Fetch, FetchFactory, Fetching};
use super::settings::ScrapeJobSettings;
use firn_http_client::{
    BodyLimit, ConnectionSlots, HttpClient, HttpSettings, ResponseBody, USER_AGENT, read_body,
    status_text, with_trace,
};
use firn_ingest::targets::ScrapeTarget;
use firn_model::budget::Budget;
use firn_model::error::{Error, ErrorKind};
use firn_model::sync::lock;
use firn_model::trace::TraceSpan;
use firn_wire::exposition::{ExpositionFormat, ScrapeProtocol, accept_header};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, USER_AGENT as AGENT,
};
use hyper::{Response, StatusCode, Uri};
use std::sync::{Arc, Mutex};

const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// Creates fetchers that share one client, with its tokens and connections, for all targets of a
/// job. Replaced settings create a new client.
pub(super) struct HttpFetchFactory {
    client: Mutex<(HttpSettings, Arc<HttpClient>)>,
    places: ConnectionSlots,
    bodies: Budget,
}

impl HttpFetchFactory {
    pub(super) fn new(settings: &HttpSettings, places: ConnectionSlots, bodies: Budget) -> Self {
        let client = HttpClient::with_connection_slots(places.clone(), settings.clone());
        Self {
            client: Mutex::new((settings.clone(), Arc::new(client))),
            places,
            bodies,
        }
    }

    /// Returns the client for `settings`; creates a new one if they have changed.
    fn client_for(&self, settings: &HttpSettings) -> Arc<HttpClient> {
        let mut held = lock(&self.client);
        if held.0 != *settings {
            let client = HttpClient::with_connection_slots(self.places.clone(), settings.clone());
            *held = (settings.clone(), Arc::new(client));
        }
        held.1.clone()
    }
}

impl FetchFactory for HttpFetchFactory {
    fn make_fetcher(&self, job: &ScrapeJobSettings, target: &ScrapeTarget) -> Arc<dyn Fetch> {
        Arc::new(HttpTargetFetcher {
            client: self.client_for(&job.http),
            url: target.url.clone(),
            uri: target.url.parse().map_err(|e| format!("{e}")),
            headers: build_headers(job, target),
            body_bytes_max: job.limits.body_bytes,
            bodies: self.bodies.clone(),
        })
    }
}

fn build_headers(job: &ScrapeJobSettings, target: &ScrapeTarget) -> HeaderMap {
    // Request only formats that the parser supports.
    let is_readable = |protocol: &ScrapeProtocol| {
        ExpositionFormat::from_content_type("", Some(*protocol)).is_ok()
    };
    let protocols: Vec<_> = job.protocols.iter().copied().filter(is_readable).collect();
    let encoding = if job.enable_compression {
        "gzip"
    } else {
        "identity"
    };
    let texts = [
        (ACCEPT, accept_header(&protocols, job.escaping)),
        (ACCEPT_ENCODING, encoding.to_owned()),
        (AGENT, USER_AGENT.to_owned()),
        (TIMEOUT_HEADER, target.timeout.as_secs_f64().to_string()),
    ];
    let values = texts.into_iter().filter_map(|(name, text)| {
        let value = HeaderValue::from_str(&text).ok()?;
        Some((name, value))
    });
    values.collect()
}

/// The fetcher of one target, with its URL and headers computed once.
struct HttpTargetFetcher {
    client: Arc<HttpClient>,
    url: String,
    uri: Result<Uri, String>,
    headers: HeaderMap,
    body_bytes_max: u64,
    bodies: Budget,
}

impl HttpTargetFetcher {
    /// Sends the request, with the trace context of its span in the headers; returns when the
    /// response headers have arrived.
    async fn send_request(
        &self,
        uri: &Uri,
        mut span: TraceSpan,
    ) -> Result<Response<ResponseBody>, Error> {
        span.set_attribute("url", || self.url.as_str());
        let headers = with_trace(&self.headers, span.parent());
        let answer = self.client.get(uri, &headers).await;
        match &answer {
            Ok(response) => span.set_attribute("http.response.status_code", || {
                i64::from(response.status().as_u16())
            }),
            Err(e) => span.set_error(e),
        }
        answer
    }
}

impl Fetch for HttpTargetFetcher {
    fn start_fetch<'f>(&'f self, scrape: &'f TraceSpan) -> Fetching<'f> {
        Box::pin(async {
            let unavailable = |message: String| Error::new(ErrorKind::Unavailable, message);
            let uri = self
                .uri
                .as_ref()
                .map_err(|e| unavailable(format!("parse {:?}: {e}", self.url)))?;
            let response = self
                .send_request(uri, scrape.begin_client_child("scrapeRequest"))
                .await?;
            if response.status() != StatusCode::OK {
                let status = status_text(&response);
                return Err(unavailable(format!("server returned HTTP status {status}")));
            }
            let limit = BodyLimit::from_bytes_max(self.body_bytes_max).with_budget(&self.bodies)?;
            let mut reading = scrape.begin_child("scrapeRead");
            let read = read_body(response, limit).await;
            match &read {
                Ok(body) => reading.set_attribute("bytes", || body.bytes.len()),
                Err(e) => reading.set_error(e),
            }
            read
        })
    }
}
