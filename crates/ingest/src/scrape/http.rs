//! Fetches targets over HTTP.

use super::fetch::{Fetch, Fetching, MakeFetch};
use super::settings::JobSettings;
use super::target::Target;
use firn_http_client::{
    BodyLimit, HttpClient, HttpSettings, Places, ResponseBody, USER_AGENT, read_body, with_trace,
};
use firn_model::budget::Budget;
use firn_model::error::{Error, ErrorKind};
use firn_model::sync::lock;
use firn_model::trace::Span;
use firn_wire::exposition::{Format, ScrapeProtocol, accept_header};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, USER_AGENT as AGENT,
};
use hyper::{Response, StatusCode, Uri};
use std::sync::{Arc, Mutex};

const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// Creates fetchers that share one client, with its tokens and connections, for all targets of a
/// job. Replaced settings create a new client.
pub(super) struct HttpFetches {
    client: Mutex<(HttpSettings, Arc<HttpClient>)>,
    places: Places,
    bodies: Budget,
}

impl HttpFetches {
    pub(super) fn new(settings: &HttpSettings, places: Places, bodies: Budget) -> Self {
        let client = HttpClient::within(places.clone(), settings.clone());
        Self {
            client: Mutex::new((settings.clone(), Arc::new(client))),
            places,
            bodies,
        }
    }

    /// Returns the client for `settings`; creates a new one if they have changed.
    fn client(&self, settings: &HttpSettings) -> Arc<HttpClient> {
        let mut held = lock(&self.client);
        if held.0 != *settings {
            let client = HttpClient::within(self.places.clone(), settings.clone());
            *held = (settings.clone(), Arc::new(client));
        }
        held.1.clone()
    }
}

impl MakeFetch for HttpFetches {
    fn make(&self, job: &JobSettings, target: &Target) -> Arc<dyn Fetch> {
        Arc::new(HttpTarget {
            client: self.client(&job.http),
            url: target.url.clone(),
            uri: target.url.parse().map_err(|e| format!("{e}")),
            headers: headers(job, target),
            body_bytes_max: job.limits.body_bytes,
            bodies: self.bodies.clone(),
        })
    }
}

fn headers(job: &JobSettings, target: &Target) -> HeaderMap {
    // Request only formats that the parser supports.
    let is_readable =
        |protocol: &ScrapeProtocol| Format::of_content_type("", Some(*protocol)).is_ok();
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
struct HttpTarget {
    client: Arc<HttpClient>,
    url: String,
    uri: Result<Uri, String>,
    headers: HeaderMap,
    body_bytes_max: u64,
    bodies: Budget,
}

impl HttpTarget {
    /// Sends the request, with the trace context of its span in the headers; returns when the
    /// response headers have arrived.
    async fn ask(&self, uri: &Uri, mut span: Span) -> Result<Response<ResponseBody>, Error> {
        span.set("url", || self.url.as_str());
        let headers = with_trace(&self.headers, span.parent());
        let answer = self.client.get(uri, &headers).await;
        match &answer {
            Ok(response) => span.set("http.response.status_code", || {
                i64::from(response.status().as_u16())
            }),
            Err(e) => span.fail(e),
        }
        answer
    }
}

impl Fetch for HttpTarget {
    fn fetch<'f>(&'f self, scrape: &'f Span) -> Fetching<'f> {
        Box::pin(async {
            let unavailable = |message: String| Error::new(ErrorKind::Unavailable, message);
            let uri = self
                .uri
                .as_ref()
                .map_err(|e| unavailable(format!("parse {:?}: {e}", self.url)))?;
            let response = self.ask(uri, scrape.child_asking("scrapeRequest")).await?;
            let status = response.status();
            if status != StatusCode::OK {
                return Err(unavailable(format!("server returned HTTP status {status}")));
            }
            let limit = BodyLimit::bytes(self.body_bytes_max).within(&self.bodies)?;
            let mut reading = scrape.child("scrapeRead");
            let read = read_body(response, limit).await;
            match &read {
                Ok(body) => reading.set("bytes", || body.bytes.len()),
                Err(e) => reading.fail(e),
            }
            read
        })
    }
}
