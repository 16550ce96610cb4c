//! The server of a node for its peers.
//!
//! ```text
//! connection -> headers checked -> append:   memory reserved -> body -> store -> ticket -> outcome
//!                               -> exchange: memory reserved -> body -> service
//!                               -> read:     a session, one request after another
//! ```
//!
//! Limits: the memory of appends and reads counts in the budget of the server; at most
//! [`READS_MAX`] reads compute at once, on threads of their own and not in the queue of queries, so
//! that nodes that query each other cannot wait in a circle. Invariant: no body of a peer without
//! valid headers is read.

mod append;
mod read_session;
mod reads;

use crate::client::{
    CONNECTION_WINDOW_BYTES, HTTP2_FRAME_BYTES, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT,
    STREAM_WINDOW_BYTES,
};
use crate::codec::{APPEND_PATH, EXCHANGE_PATH, READ_PATH, RawCodec};
use crate::connection::accept_connections;
use crate::credentials::{FRAME_BYTES_HEADER, PeerCredentials};
use crate::failure::encode_answer;
use crate::options::PeerOptions;
use crate::service::PeerService;
use crate::tls::RenewedPeerTls;
use append::IdleBatches;
use bytes::Bytes;
use firn_model::budget::{Budget, Reservation};
use http::HeaderMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

/// Maximum number of reads that compute at once.
const READS_MAX: usize = 16;

/// Maximum number of requests of a connection at once.
const STREAMS_MAX: u32 = 4096;

/// Number of connections that wait until the server processes them.
const ACCEPTED_MAX: usize = 16;

/// Number of frames of an answer that wait for the network.
const FRAMES_AHEAD: usize = 2;

/// Maximum time for requests in progress after the server was stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts of a server that all requests share.
struct PeerServerState {
    credentials: PeerCredentials,
    options: PeerOptions,
    budget: Budget,
    service: Arc<dyn PeerService>,
    reads: Arc<Semaphore>,
    batches: IdleBatches,
    is_stopping: watch::Receiver<bool>,
}

/// Answers the requests of peers until `stop` completes and requests in progress have ended, which
/// takes at most 10 seconds. Memory of requests counts in `budget`. Must run on a runtime with
/// several threads.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if the address is not a loopback address and the options contain
/// no security, or if a certificate is invalid; other errors of the listener.
pub async fn serve_peers(
    listener: TcpListener,
    options: PeerOptions,
    budget: Budget,
    service: Arc<dyn PeerService>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let address = listener.local_addr()?;
    if options.security.is_none() && !address.ip().is_loopback() {
        return Err(invalid(format!(
            "peers connect to {address}, which is not a loopback address: a secret or \
             certificates are required"
        )));
    }
    let tls = options.security.tls.as_ref().map(RenewedPeerTls::open);
    let tls = tls.transpose().map_err(invalid)?;
    let (stopping, mut is_stopping) = watch::channel(false);
    let state = PeerServerState {
        credentials: PeerCredentials::new(&options),
        options,
        budget,
        service,
        reads: Arc::new(Semaphore::new(READS_MAX)),
        batches: IdleBatches::default(),
        is_stopping: is_stopping.clone(),
    };
    let (accepted, incoming) = mpsc::channel(ACCEPTED_MAX);
    tokio::spawn(accept_connections(listener, tls, accepted));
    let serving = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(HTTP2_FRAME_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .serve_with_incoming_shutdown(
            PeerRoutes(Arc::new(state)),
            ReceiverStream::new(incoming),
            async move {
                stop.await;
                // A receiver exists as long as this function runs.
                let _ = stopping.send(true);
            },
        );
    let stopped = async {
        wait_for_stop(&mut is_stopping).await;
        tokio::time::sleep(STOP_TIMEOUT).await;
    };
    tokio::select! {
        served = serving => served.map_err(io::Error::other),
        () = stopped => Ok(()),
    }
}

/// Waits until the server is stopped, or does not run any more.
async fn wait_for_stop(is_stopping: &mut watch::Receiver<bool>) {
    // The error means that the sender is gone, with the server.
    let _ = is_stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// The service of all connections.
#[derive(Clone)]
struct PeerRoutes(Arc<PeerServerState>);

type HttpResponse = http::Response<Body>;

impl Service<http::Request<Body>> for PeerRoutes {
    type Response = HttpResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let state = self.0.clone();
        Box::pin(async move {
            let answered = answer_request(state, request).await;
            Ok(answered.unwrap_or_else(Status::into_http))
        })
    }
}

async fn answer_request(
    state: Arc<PeerServerState>,
    request: http::Request<Body>,
) -> Result<HttpResponse, Status> {
    if let Err(failure) = state.credentials.check(request.headers()) {
        tracing::warn!(%failure, "a peer was rejected");
        return Err(Status::failed_precondition(failure.to_string()));
    }
    let limit = state.options.frame_bytes_max;
    let grpc = Grpc::new(RawCodec).max_encoding_message_size(limit);
    match request.uri().path() {
        path @ (APPEND_PATH | EXCHANGE_PATH) => {
            let is_append = path == APPEND_PATH;
            let memory = state.reserve_body(request.headers())?;
            let mut grpc = grpc.max_decoding_message_size(memory.bytes().min(limit));
            let memory = Some(memory);
            let route = UnaryRoute {
                state,
                memory,
                is_append,
            };
            Ok(grpc.unary(route, request).await)
        }
        READ_PATH => {
            let mut grpc = grpc.max_decoding_message_size(limit);
            Ok(grpc.streaming(ReadRoute(state), request).await)
        }
        path => Err(Status::unimplemented(format!("unknown request {path:?}"))),
    }
}

impl PeerServerState {
    /// Reserves the memory of a body before it is read.
    fn reserve_body(&self, headers: &HeaderMap) -> Result<Reservation, Status> {
        let text = headers.get(FRAME_BYTES_HEADER);
        let bytes = text.and_then(|text| text.to_str().ok()?.parse::<usize>().ok());
        let Some(bytes) = bytes else {
            let text = format!("header {FRAME_BYTES_HEADER} is missing or invalid");
            return Err(Status::failed_precondition(text));
        };
        let limit = self.options.frame_bytes_max;
        if bytes > limit {
            let text = format!("frame of a peer is too large: {bytes} bytes, limit {limit}");
            return Err(Status::out_of_range(text));
        }
        let reserved = self.budget.reserve(bytes);
        reserved.map_err(|e| Status::resource_exhausted(e.message))
    }
}

/// Answers an append or an exchange.
struct UnaryRoute {
    state: Arc<PeerServerState>,
    /// The memory of the body, until it is processed.
    memory: Option<Reservation>,
    is_append: bool,
}

impl UnaryService<Bytes> for UnaryRoute {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (state, is_append) = (self.state.clone(), self.is_append);
        let memory = self.memory.take();
        Box::pin(async move {
            let body = request.into_inner();
            let answer = if is_append {
                append::answer_append(state, body, memory).await
            } else {
                let answer = state.service.exchange(body);
                encode_answer(&answer, |bytes, into| into.extend_from_slice(bytes))
            };
            Ok(Response::new(answer.into()))
        })
    }
}

/// Answers a stream of reads.
struct ReadRoute(Arc<PeerServerState>);

impl StreamingService<Bytes> for ReadRoute {
    type Response = Bytes;
    type ResponseStream = ReceiverStream<Result<Bytes, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, requests: Request<Streaming<Bytes>>) -> Self::Future {
        let (answers, frames) = mpsc::channel(FRAMES_AHEAD);
        tokio::spawn(reads::serve_reads(
            self.0.clone(),
            requests.into_inner(),
            answers,
        ));
        std::future::ready(Ok(Response::new(ReceiverStream::new(frames))))
    }
}
