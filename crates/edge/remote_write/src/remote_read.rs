//! Client of a remote read server, configured by an entry of `remote_read`.
//!
//! Invariant: memory for a response is reserved in the reservation of the calling query before it
//! is used. A response that is too large fails the query; the caller reports other failures as
//! warnings.

use firn_http_client::{
    BodyLimit, HttpClient, HttpSettings, ResponseBody, USER_AGENT, read_body, with_trace,
};
use firn_model::budget::Reservation;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::metrics::{DurationHistogram, Gauge, MetricSink, MetricValue};
use firn_model::sync::lock;
use firn_model::trace::{SpanContext, TraceSpan};
use firn_wire::remote_read::{
    ChunkFrameReader, OutgoingReadRequest, RemoteReadSeries, decode_samples,
};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    USER_AGENT as AGENT,
};
use hyper::{Response, Uri};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Number of bytes of an error response that are read.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// Prefix of the content type of a response with samples in one message.
const TYPE_SAMPLES: &str = "application/x-protobuf";

/// Prefix of the content type of a streamed response with chunks in frames.
const TYPE_CHUNKS: &str = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";

/// Settings of a remote read server: its URL, HTTP client and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteReadSettings {
    /// Name of the server in metrics.
    pub name: String,
    /// URL of the remote read endpoint.
    pub url: String,
    /// Maximum size of a frame in bytes.
    pub frame_bytes_max: u64,
    /// Settings of the HTTP client that calls the server.
    pub http: HttpSettings,
}

/// Client of one remote read server, with its metrics. Shared by all queries.
#[derive(Debug)]
pub struct RemoteReadClient {
    settings: RemoteReadSettings,
    uri: Uri,
    client: HttpClient,
    under_way: Gauge,
    sampled: DurationHistogram,
    chunked: DurationHistogram,
    unsupported: DurationHistogram,
    /// Number of responses by response type and status.
    answers: Mutex<BTreeMap<(&'static str, String), u64>>,
}

/// Response types in metrics.
const SAMPLED: &str = "sampled";
const CHUNKED: &str = "chunked";
const UNSUPPORTED: &str = "unsupported";

/// Label value that replaces the status of an interrupted stream.
const ABORTED: &str = "aborted_stream";

impl RemoteReadClient {
    /// Creates a client from `settings`. Fails if the URL is invalid.
    pub fn new(settings: RemoteReadSettings) -> Result<Self, String> {
        super::forward::host_and_port(&settings.url)?;
        let uri = settings.url.parse();
        Ok(Self {
            uri: uri.map_err(|e| format!("{:?}: {e}", settings.url))?,
            client: HttpClient::new(settings.http.clone()),
            under_way: Gauge::default(),
            sampled: DurationHistogram::default(),
            chunked: DurationHistogram::default(),
            unsupported: DurationHistogram::default(),
            answers: Mutex::default(),
            settings,
        })
    }

    /// Returns the settings of this client.
    pub fn settings(&self) -> &RemoteReadSettings {
        &self.settings
    }

    /// Sends a read request and returns the series in the response. The request contains the
    /// additional `header` if there is one, and its span is a child of `within`. Fails with
    /// [`ErrorKind::Limited`] if `memory` is insufficient, otherwise with Prometheus's error text.
    /// The caller sets the deadline.
    pub async fn read_series(
        &self,
        question: OutgoingReadRequest<'_>,
        header: Option<(&'static str, &str)>,
        within: Option<&SpanContext>,
        clock: &dyn Clock,
        memory: &mut Reservation,
    ) -> Result<Vec<RemoteReadSeries>, Error> {
        let _under_way = RemoteReadInFlight::start_counting(&self.under_way);
        let begun = clock.monotonic();
        let response = self.send_request(question, header, within).await?;
        if !response.status().is_success() {
            return Err(self.error_from_response(response).await);
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let status = response.status().as_u16().to_string();
        let took = clock.monotonic().saturating_sub(begun);
        if content_type.starts_with(TYPE_SAMPLES) {
            self.sampled.observe(took);
            self.count_response(SAMPLED, &status);
            let body = read_whole_body(response, memory).await?;
            let series = decode_samples(&body, question.range, memory);
            memory.shrink_to(memory.bytes() - body.len());
            series
        } else if content_type.starts_with(TYPE_CHUNKS) {
            self.chunked.observe(took);
            let series = self.read_chunked_frames(response, question, memory).await;
            self.count_response(CHUNKED, if series.is_ok() { &status } else { ABORTED });
            series
        } else {
            self.unsupported.observe(took);
            self.count_response(UNSUPPORTED, &status);
            Err(failed_request_error(format!(
                "unsupported content type: {content_type}"
            )))
        }
    }

    /// Sends the request and returns as soon as the response head has arrived. Records a span.
    async fn send_request(
        &self,
        question: OutgoingReadRequest<'_>,
        header: Option<(&'static str, &str)>,
        within: Option<&SpanContext>,
    ) -> Result<Response<ResponseBody>, Error> {
        let mut span = within.map_or(TraceSpan::default(), |whole| {
            whole.begin_client("Remote Read")
        });
        span.set_attribute("remote_name", || self.settings.name.as_str());
        span.set_attribute("url", || self.settings.url.as_str());
        let headers = build_headers(header);
        let headers = with_trace(&headers, span.parent());
        let body = Bytes::from(question.encode());
        let response = self.client.post(&self.uri, &headers, body).await;
        let response =
            response.map_err(|e| failed_request_error(format!("error sending request: {e}")));
        match &response {
            Ok(response) => span.set_attribute("http.response.status_code", || {
                i64::from(response.status().as_u16())
            }),
            Err(e) => span.set_error(e),
        }
        response
    }

    async fn read_chunked_frames(
        &self,
        response: Response<ResponseBody>,
        question: OutgoingReadRequest<'_>,
        memory: &mut Reservation,
    ) -> Result<Vec<RemoteReadSeries>, Error> {
        let mut frames = ChunkFrameReader::new(question.range, self.settings.frame_bytes_max);
        let mut body = response.into_body();
        while let Some(piece) = body.frame().await {
            let piece =
                piece.map_err(|e| failed_request_error(format!("error reading response: {e}")))?;
            if let Some(data) = piece.data_ref() {
                frames.push(data, memory)?;
            }
        }
        frames.finish()
    }

    /// Builds the error for a response with a status other than 2xx; it contains the beginning of
    /// the body.
    async fn error_from_response(&self, response: Response<ResponseBody>) -> Error {
        let status = response.status();
        let read = read_body(response, BodyLimit::from_bytes_max(ERROR_BYTES_MAX)).await;
        let text = read.map(|body| body.bytes).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let (url, text) = (&self.settings.url, text.trim_matches('\n'));
        failed_request_error(format!(
            "remote server {url} returned http status {status}: {text}"
        ))
    }

    fn count_response(&self, form: &'static str, status: &str) {
        let mut answers = lock(&self.answers);
        *answers.entry((form, status.to_owned())).or_default() += 1;
    }
}

/// Counts a request in a gauge until it is dropped, whether it succeeds or not.
struct RemoteReadInFlight<'g>(&'g Gauge);

impl<'g> RemoteReadInFlight<'g> {
    fn start_counting(gauge: &'g Gauge) -> Self {
        gauge.add(1);
        Self(gauge)
    }
}

impl Drop for RemoteReadInFlight<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

fn build_headers(further: Option<(&'static str, &str)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (CONTENT_ENCODING, "snappy"),
        (ACCEPT_ENCODING, "snappy"),
        (CONTENT_TYPE, TYPE_SAMPLES),
        (AGENT, USER_AGENT),
        (
            HeaderName::from_static("x-prometheus-remote-read-version"),
            "0.1.0",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some((name, value)) = further
        && let Ok(value) = HeaderValue::from_str(value)
    {
        headers.insert(HeaderName::from_static(name), value);
    }
    headers
}

async fn read_whole_body(
    response: Response<ResponseBody>,
    memory: &mut Reservation,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut body = response.into_body();
    while let Some(piece) = body.frame().await {
        let piece =
            piece.map_err(|e| failed_request_error(format!("error reading response: {e}")))?;
        if let Some(data) = piece.data_ref() {
            memory.grow(data.len())?;
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

fn failed_request_error(message: String) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}

/// Writes the metrics of all `readers` to `sink`, under the names that Prometheus uses.
pub fn collect(readers: &[Arc<RemoteReadClient>], sink: &mut dyn MetricSink) {
    for reader in readers {
        sink.metric(
            "prometheus_remote_read_client_queries",
            "The number of in-flight remote read queries.",
            &reader.labels(),
            MetricValue::Gauge(reader.under_way.get() as f64),
        );
    }
    for reader in readers {
        for ((form, status), count) in &*lock(&reader.answers) {
            let [name, url] = reader.labels();
            sink.metric(
                "prometheus_remote_read_client_queries_total",
                "The total number of remote read queries.",
                &[("code", status), name, ("response_type", form), url],
                MetricValue::Counter(*count as f64),
            );
        }
    }
    for reader in readers {
        for (form, durations) in [
            (CHUNKED, &reader.chunked),
            (SAMPLED, &reader.sampled),
            (UNSUPPORTED, &reader.unsupported),
        ] {
            if durations.bucket_counts().iter().all(|count| *count == 0) {
                continue;
            }
            let [name, url] = reader.labels();
            sink.metric(
                "prometheus_remote_read_client_request_duration_seconds",
                "Time until the start of the response.",
                &[name, ("response_type", form), url],
                MetricValue::Histogram(durations),
            );
        }
    }
}

impl RemoteReadClient {
    fn labels(&self) -> [(&str, &str); 2] {
        let settings = &self.settings;
        [("remote_name", &settings.name), ("url", &settings.url)]
    }
}
