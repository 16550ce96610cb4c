//! Exports spans to a collector: OTLP over gRPC or HTTP.
//!
//! Invariant: an export is one request; the caller decides about spans that were not accepted. A
//! gRPC call is a plain HTTP/2 request: one frame in each direction, and a status in the trailers.

use firn_http_client::{
    BodyLimit, ClientTlsSettings, HttpClient, HttpSettings, ResponseBody, USER_AGENT, read_body,
};
use firn_model::trace::FinishedSpan;
use firn_wire::traces;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::USER_AGENT as AGENT;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use hyper::{Response, Uri};
use std::io::Write;
use std::time::Duration;
use tokio::time::timeout;

/// Service name in the exported spans.
const SERVICE: &str = "firn";

/// Path of the trace service over gRPC.
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Path for traces over HTTP.
const HTTP_PATH: &str = "/v1/traces";

/// Largest part of a response that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// gRPC status codes after which the protocol allows a retry: cancelled, deadline exceeded,
/// resource exhausted, aborted, out of range, unavailable, data loss.
const GRPC_RETRYABLE: [u32; 7] = [1, 4, 8, 10, 11, 14, 15];

/// The transport protocol for spans, which decides about path and framing. Collectors use different
/// ports for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanProtocol {
    /// gRPC over HTTP/2, with one unary call for each export.
    Grpc,
    /// Protobuf in HTTP requests, without gRPC framing.
    Http,
}

/// The settings of a collector, from the `tracing` section of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanCollector {
    /// Transport protocol of the collector.
    pub protocol: SpanProtocol,
    /// Host and port of the collector.
    pub endpoint: String,
    /// TLS settings; `None` for connections without TLS.
    pub tls: Option<ClientTlsSettings>,
    /// Headers of each request, for example for authentication.
    pub headers: Vec<(String, String)>,
    /// True if requests are compressed with gzip.
    pub is_compressed: bool,
    /// Timeout of a request.
    pub timeout: Duration,
}

/// The reason why spans were not accepted, and whether a retry is useful. The caller keeps or drops
/// the spans accordingly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError {
    /// Description of the error, for the log.
    pub why: String,
    /// True if the spans may be sent again.
    pub may_repeat: bool,
}

/// Sends spans to one collector, with the HTTP client and the URL that its settings require.
#[derive(Debug)]
pub struct SpanExporter {
    collector: SpanCollector,
    uri: Uri,
    client: HttpClient,
}

impl SpanExporter {
    /// Returns an exporter for `collector`; fails if its endpoint is not a valid address.
    pub fn new(collector: SpanCollector) -> Result<Self, String> {
        let scheme = match collector.tls {
            Some(_) => "https",
            None => "http",
        };
        let path = match collector.protocol {
            SpanProtocol::Grpc => GRPC_PATH,
            SpanProtocol::Http => HTTP_PATH,
        };
        let url = format!("{scheme}://{}{path}", collector.endpoint);
        let uri = url.parse().map_err(|e| format!("{url:?}: {e}"))?;
        let client = HttpClient::new(HttpSettings {
            tls: collector.tls.clone().unwrap_or_default(),
            follow_redirects: false,
            ..HttpSettings::default()
        });
        let client = match collector.protocol {
            SpanProtocol::Grpc => client.with_http2_only(),
            SpanProtocol::Http => client,
        };
        Ok(Self {
            collector,
            uri,
            client,
        })
    }

    /// Exports `spans` in one request, with this `version` of the service. Fails after the timeout
    /// or if the collector does not accept them.
    pub async fn export_spans(
        &self,
        version: &str,
        spans: &[FinishedSpan],
    ) -> Result<(), ExportError> {
        let message = traces::encode(SERVICE, version, spans);
        let message = if self.collector.is_compressed {
            compress_gzip(&message)
        } else {
            message
        };
        let body = match self.collector.protocol {
            SpanProtocol::Grpc => traces::grpc_frame(&message, self.collector.is_compressed),
            SpanProtocol::Http => message,
        };
        let headers = self.build_headers();
        let asked = async {
            let response = self.client.post(&self.uri, &headers, body.into()).await;
            let response = response.map_err(|e| retryable_error(e.message))?;
            match self.collector.protocol {
                SpanProtocol::Grpc => check_grpc_response(response).await,
                SpanProtocol::Http => check_http_response(response).await,
            }
        };
        let limit = self.collector.timeout;
        let none = || retryable_error(format!("no answer of {} within {limit:?}", self.uri));
        timeout(limit, asked).await.unwrap_or_else(|_| Err(none()))
    }

    fn build_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.collector.headers {
            let name = HeaderName::try_from(name.as_str());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                headers.append(name, value);
            }
        }
        let is_compressed = self.collector.is_compressed;
        let gzip = HeaderValue::from_static("gzip");
        headers.insert(AGENT, HeaderValue::from_static(USER_AGENT));
        match self.collector.protocol {
            SpanProtocol::Grpc => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                headers.insert(TE, HeaderValue::from_static("trailers"));
                if is_compressed {
                    headers.insert(HeaderName::from_static("grpc-encoding"), gzip);
                }
            }
            SpanProtocol::Http => {
                let kind = HeaderValue::from_static("application/x-protobuf");
                headers.insert(CONTENT_TYPE, kind);
                if is_compressed {
                    headers.insert(CONTENT_ENCODING, gzip);
                }
            }
        }
        headers
    }
}

fn compress_gzip(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(message);
    encoder.finish().unwrap_or_default()
}

fn retryable_error(why: String) -> ExportError {
    let may_repeat = true;
    ExportError { why, may_repeat }
}

async fn check_http_response(response: Response<ResponseBody>) -> Result<(), ExportError> {
    let status = response.status();
    let read = read_body(response, BodyLimit::from_bytes_max(ANSWER_BYTES_MAX)).await;
    if status.is_success() {
        return Ok(());
    }
    let text = read.map(|body| body.bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    Err(ExportError {
        why: format!("{status}: {}", text.trim()),
        may_repeat: matches!(status.as_u16(), 429 | 502..=504),
    })
}

async fn check_grpc_response(response: Response<ResponseBody>) -> Result<(), ExportError> {
    let status = response.status();
    if !status.is_success() {
        let may_repeat = matches!(status.as_u16(), 429 | 502..=504);
        let why = status.to_string();
        return Err(ExportError { why, may_repeat });
    }
    // A response without a message has its status in the headers.
    let mut told = find_grpc_status(response.headers());
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| retryable_error(format!("read answer: {e}")))?;
        bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        if bytes > ANSWER_BYTES_MAX {
            return Err(retryable_error("the response does not end".to_owned()));
        }
        if let Some(trailers) = frame.trailers_ref() {
            told = find_grpc_status(trailers);
        }
    }
    match told {
        Some((0, _)) => Ok(()),
        Some((code, message)) => Err(ExportError {
            why: format!("status {code} of gRPC: {message}"),
            may_repeat: GRPC_RETRYABLE.contains(&code),
        }),
        None => Err(retryable_error(
            "the response has no gRPC status".to_owned(),
        )),
    }
}

fn find_grpc_status(headers: &HeaderMap) -> Option<(u32, String)> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let code = text("grpc-status")?.parse().ok()?;
    Some((code, text("grpc-message").unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_http_client::{ClientTlsSettings, Secret};
    use firn_model::trace::SpanKind;
    use http_body_util::combinators::BoxBody;
    use http_body_util::{Full, StreamBody};
    use hyper::body::{Frame, Incoming};
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};
    use tokio::net::TcpListener;

    fn span() -> FinishedSpan {
        FinishedSpan {
            trace: 1,
            span: 2,
            parent: None,
            name: "work".to_owned(),
            kind: SpanKind::Internal,
            start_ns: 1,
            end_ns: 2,
            attributes: Vec::new(),
            error: None,
        }
    }

    /// The requests that a collector has received: the path with the headers, and the body.
    type Asked = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

    /// Starts a gRPC collector without TLS that responds with this status, in trailers or in
    /// headers.
    async fn collector(status: &'static str, is_in_headers: bool) -> (String, Asked) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Asked::default();
        let kept = asked.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let kept = kept.clone();
                let answer = service_fn(move |request: hyper::Request<Incoming>| {
                    let kept = kept.clone();
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let head = format!("{} {:?}", head.uri.path(), head.headers);
                        kept.lock().unwrap().push((head, body.to_vec()));
                        Ok::<_, Infallible>(answer(status, is_in_headers))
                    }
                });
                let http2 = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(http2.serve_connection(TokioIo::new(stream), answer));
            }
        });
        (address, asked)
    }

    fn answer(
        status: &'static str,
        is_in_headers: bool,
    ) -> hyper::Response<BoxBody<Bytes, Infallible>> {
        let mut told = HeaderMap::new();
        told.insert("grpc-status", HeaderValue::from_static(status));
        told.insert("grpc-message", HeaderValue::from_static("why"));
        if is_in_headers {
            let mut response = hyper::Response::new(BoxBody::new(Full::default()));
            response.headers_mut().extend(told);
            return response;
        }
        let frames = [
            Frame::data(Bytes::from_static(&[0; 5])),
            Frame::trailers(told),
        ];
        let frames = futures_util::stream::iter(frames.map(Ok));
        hyper::Response::new(BoxBody::new(StreamBody::new(frames)))
    }

    fn exporter(endpoint: &str, is_compressed: bool) -> SpanExporter {
        let collector = SpanCollector {
            protocol: SpanProtocol::Grpc,
            endpoint: endpoint.to_owned(),
            tls: None,
            headers: vec![("x-team".to_owned(), "a".to_owned())],
            is_compressed,
            timeout: Duration::from_secs(10),
        };
        SpanExporter::new(collector).unwrap()
    }

    #[tokio::test]
    async fn export_by_grpc_is_a_frame_and_its_status_is_heard() {
        for (status, is_in_headers, want) in [
            ("0", false, Ok(())),
            ("14", false, Err(true)),
            ("3", false, Err(false)),
            ("16", true, Err(false)),
        ] {
            let (address, asked) = collector(status, is_in_headers).await;
            for is_compressed in [false, true] {
                let exporter = exporter(&address, is_compressed);
                let told = exporter.export_spans("1.0", &[span()]).await;
                assert_eq!(told.map_err(|e| e.may_repeat), want, "{status}");
            }
            let asked = asked.lock().unwrap();
            let [(head, plain), (_, packed)] = &asked[..] else {
                panic!("{asked:?}")
            };
            assert!(head.starts_with(GRPC_PATH), "{head}");
            for header in ["application/grpc", "trailers", "x-team"] {
                assert!(head.contains(header), "{head}");
            }
            let message = traces::encode(SERVICE, "1.0", &[span()]);
            assert_eq!(*plain, traces::grpc_frame(&message, false));
            assert_eq!(*packed, traces::grpc_frame(&compress_gzip(&message), true));
        }
    }

    #[tokio::test]
    async fn export_to_nobody_may_be_repeated() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let told = exporter(&address, false)
            .export_spans("1.0", &[span()])
            .await;
        assert!(told.unwrap_err().may_repeat);
    }

    #[test]
    fn collector_that_is_no_address_is_refused() {
        let told = SpanExporter::new(SpanCollector {
            protocol: SpanProtocol::Http,
            endpoint: "a b".to_owned(),
            tls: Some(ClientTlsSettings {
                ca: Some(Secret::Inline(String::new())),
                ..ClientTlsSettings::default()
            }),
            headers: Vec::new(),
            is_compressed: false,
            timeout: Duration::from_secs(10),
        });
        assert!(told.unwrap_err().contains("a b"));
    }
}
