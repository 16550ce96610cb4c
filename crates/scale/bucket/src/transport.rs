//! The HTTP connections of `object_store`: hyper over HTTP/1, with TLS by rustls and ring.
//!
//! ```text
//! object_store -- request --> HyperService -- TCP or TLS --> store
//!      S3 requests carry an `Exchange`, which records the response or the reason why there is none
//! ```
//!
//! Invariants: a request that may have reached the server is never sent again. The body of an error
//! response is replaced by its error code and message, so that no error text repeats headers, which
//! contain session tokens. Every body has a size limit.

pub(crate) mod exchange;
mod tls;

pub(crate) use exchange::Exchange;

use async_trait::async_trait;
use bytes::Bytes;
use exchange::{ExchangeAnswer, reason};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Method, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpRequestBody, HttpResponse, HttpResponseBody, HttpService,
};
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use tls::tls_config;

/// Maximum duration of a connection attempt. The time of the operation limits it further.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Idle time after which a connection is closed, shorter than in common stores and proxies.
const IDLE: Duration = Duration::from_secs(15);

/// Interval of probes of silent connections.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Maximum size of the body of an error response, of which the code is read.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a response with credentials.
const CREDENTIALS_BYTES_MAX: usize = 1 << 20;

type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Creates the HTTP clients of a store: one for its objects, and others for credentials.
#[derive(Clone, Debug)]
pub(crate) struct HyperConnector {
    tls: Arc<ClientConfig>,
}

impl HyperConnector {
    pub(crate) fn new(tls: Arc<ClientConfig>) -> Self {
        Self { tls }
    }
}

impl HttpConnector for HyperConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let allows_http = allows_http.is_some_and(|value| value == "true");
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(KEEPALIVE));
        let builder = HttpsConnectorBuilder::new().with_tls_config((*self.tls).clone());
        let schemes = if allows_http {
            builder.https_or_http()
        } else {
            builder.https_only()
        };
        let connector = schemes.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            // Repeats only requests of which no byte was written, because the server had closed
            // the idle connection.
            .retry_canceled_requests(true)
            .build(connector);
        Ok(HttpClient::new(HyperService { client }))
    }
}

#[derive(Debug)]
struct HyperService {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
}

#[async_trait]
impl HttpService for HyperService {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut exchange = request.extensions_mut().remove::<Exchange>();
        if request.method() == Method::DELETE {
            exchange = exchange.or_else(Exchange::current_deletion);
        }
        let agent = HeaderValue::from_static(firn_http_client::USER_AGENT);
        request.headers_mut().insert(USER_AGENT, agent);
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) => return Err(failed(exchange.as_ref(), error)),
        };
        let status = response.status();
        if !status.is_success() {
            return Ok(error_response(exchange.as_ref(), response).await);
        }
        if let Some(exchange) = &exchange {
            exchange.answered(ExchangeAnswer::status(status, b""));
        }
        let bytes_max = exchange.map_or(CREDENTIALS_BYTES_MAX, |e| e.body_bytes_max());
        Ok(response.map(|body| limited(body, bytes_max)))
    }
}

/// Records that there is no response, and converts the error.
fn failed(exchange: Option<&Exchange>, error: ClientError) -> HttpError {
    let text = reason(&error);
    let (answer, kind) = if error.is_connect() {
        (ExchangeAnswer::Unsent(text.clone()), HttpErrorKind::Connect)
    } else {
        (
            ExchangeAnswer::Lost(text.clone()),
            HttpErrorKind::Interrupted,
        )
    };
    if let Some(exchange) = exchange {
        exchange.answered(answer);
    }
    HttpError::new_boxed(kind, text.into())
}

/// Records the code and the message of an error, and returns a response with nothing else.
async fn error_response(exchange: Option<&Exchange>, response: Response<Incoming>) -> HttpResponse {
    let (parts, body) = response.into_parts();
    // Of a body that cannot be read, the status remains.
    let read = Limited::new(body, ERROR_BYTES_MAX).collect().await;
    let bytes = read.map(|body| body.to_bytes()).unwrap_or_default();
    let answer = ExchangeAnswer::status(parts.status, &bytes);
    let text = answer.to_string();
    if let Some(exchange) = exchange {
        exchange.answered(answer);
    }
    Response::from_parts(parts, HttpResponseBody::from(Bytes::from(text)))
}

fn limited(body: Incoming, bytes_max: usize) -> HttpResponseBody {
    let broken =
        |e: BodyError| HttpError::new_boxed(HttpErrorKind::Interrupted, reason(&*e).into());
    HttpResponseBody::new(Limited::new(body, bytes_max).map_err(broken))
}
