//! The client of one peer.
//!
//! ```text
//! append, exchange   unary calls on a runtime       on two connections,
//! reads              a stream, from a thread        made when they are needed
//! ```
//!
//! Invariants: a failed connection is made again by the next request; a request ends after its
//! timeout at the latest. Nothing is repeated here.

mod read_stream;
mod selection;

use crate::codec::{APPEND_PATH, BuffersCodec, EXCHANGE_PATH};
use crate::connection::PeerConnector;
use crate::credentials::{FRAME_BYTES_HEADER, PeerCredentials};
use crate::failure::{PeerFailure, decode_answer};
use crate::frames::answers::{
    decode_exemplars, decode_metadata, decode_strings, decode_texts, split_found,
};
use crate::frames::append::EncodedAppend;
use crate::frames::append_parts::{PartAnswer, decode_answers, join_parts};
use crate::frames::requests::{
    MatcherText, PartitionScope, PeerReadRequest, SeriesRequest, TenantScope,
};
use crate::options::PeerOptions;
use crate::service::ReadConsistency;
use crate::tls::RenewedPeerTls;
use bytes::Bytes;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use firn_model::store::{ExemplarRequest, MetadataRequest, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use http::uri::PathAndQuery;
use read_stream::{ReadLimits, ReadStream};
use selection::PeerSelection;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// Number of connections to a peer. Appends and reads alternate between them.
const CONNECTIONS: usize = 2;

/// Maximum duration of a connection attempt, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The message of a status with which tonic ends a request after its timeout, at either end.
const TIMEOUT_TEXT: &str = "Timeout expired";

/// The interval of pings on a connection with open requests.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// The time after which a ping without an answer ends the connection, so that requests to a machine
/// that is gone fail about when its peers consider it dead.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Parts of the errors of connections that fail because of a certificate: that of the peer, which
/// this node rejects, or that of this node, which the peer rejects.
const CERTIFICATE_TEXTS: [&str; 2] = ["x509: ", "received fatal alert: "];

/// Bytes that a stream and a connection may receive before they are processed.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 2 << 20;
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Maximum size of an HTTP/2 frame in bytes. A message is in several of them: fewer frames cost
/// less, and a longer frame delays the other requests of its connection.
pub(crate) const HTTP2_FRAME_BYTES: u32 = 256 << 10;

/// A client of one peer. Cloning is cheap, and clones share the connections.
#[derive(Clone)]
pub struct PeerClient(Arc<PeerClientState>);

struct PeerClientState {
    address: Arc<str>,
    channels: [Channel; CONNECTIONS],
    next: AtomicUsize,
    credentials: PeerCredentials,
    frame_bytes_max: usize,
    runtime: Handle,
    /// True after [`PeerClient::disconnect`].
    is_disconnected: watch::Sender<bool>,
}

impl std::fmt::Debug for PeerClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeerClient({})", self.0.address)
    }
}

/// The partitions of a read, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReadScope {
    /// The numbers of the partitions, all of which the peer must have.
    pub partitions: Vec<u32>,
    /// The consistency of the look-up.
    pub consistency: ReadConsistency,
    /// Maximum duration of each request: of the look-up, and of each later read of a selection.
    pub timeout: Duration,
}

impl PeerReadScope {
    fn tenant_scope(&self, tenant: &TenantId, range: TimeRange) -> TenantScope {
        TenantScope {
            partitions: PartitionScope {
                partitions: self.partitions.clone(),
                consistency: self.consistency,
            },
            tenant: tenant.clone(),
            range,
        }
    }
}

impl PeerClient {
    /// Creates a client of the peer at `host:port`, whose tasks run on `runtime`. Connects when the
    /// first request is sent.
    ///
    /// # Errors
    ///
    /// [`PeerFailure::Rejected`] if the address or a certificate is invalid.
    pub fn new(address: &str, options: &PeerOptions, runtime: Handle) -> Result<Self, PeerFailure> {
        let invalid = |text: String| PeerFailure::Rejected(format!("peer {address:?}: {text}"));
        let tls = options.security.tls.as_ref().map(RenewedPeerTls::open);
        let tls = tls.transpose().map_err(invalid)?;
        let connector = PeerConnector::new(address, tls).map_err(PeerFailure::Rejected)?;
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.map_err(|e| invalid(e.to_string()))?;
        let uri = endpoint.uri();
        if uri.port_u16().is_none() || uri.path() != "/" {
            return Err(invalid("the address is not a host and a port".into()));
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(HTTP2_FRAME_BYTES)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT);
        // A channel starts a task.
        let _entered = runtime.enter();
        let connect = || endpoint.connect_with_connector_lazy(connector.clone());
        let channels = [connect(), connect()];
        Ok(Self(Arc::new(PeerClientState {
            address: address.into(),
            channels,
            next: AtomicUsize::new(0),
            credentials: PeerCredentials::new(options),
            frame_bytes_max: options.frame_bytes_max,
            runtime: runtime.clone(),
            is_disconnected: watch::Sender::new(false),
        })))
    }

    /// Fails all requests under way, and all later ones, with [`PeerFailure::Unavailable`]. For a
    /// peer that is considered dead: a connection to a machine that is gone may never fail by
    /// itself.
    pub fn disconnect(&self) {
        self.0.is_disconnected.send_replace(true);
    }

    /// Returns whether the client was disconnected.
    pub(crate) fn is_disconnected(&self) -> bool {
        *self.0.is_disconnected.borrow()
    }

    pub(crate) fn disconnected_failure(&self) -> PeerFailure {
        let address = self.address();
        PeerFailure::Unavailable(format!("peer {address} is considered dead"))
    }

    /// Returns the address of the peer, as it was given.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Exchanges the state of members with the peer. Both sides interpret the bytes.
    ///
    /// # Errors
    ///
    /// The failure of the peer, or of the connection; and [`ErrorKind::Limited`] for a request or
    /// an answer above the limit of frames.
    pub async fn exchange(&self, request: Bytes, timeout: Duration) -> Result<Bytes, PeerFailure> {
        self.call(EXCHANGE_PATH, vec![request], timeout).await
    }

    /// Appends parts of batches at the peer. Returns when each of them has failed, or its samples
    /// are durable and visible there. The answers are in the order of `parts`.
    ///
    /// # Errors
    ///
    /// The failure of the connection, or of the request as a whole. After
    /// [`PeerFailure::Unavailable`], of the request or of a part, the samples may be stored; a
    /// repetition stores them once. [`ErrorKind::Limited`] for a request above the limit of frames.
    pub async fn append(
        &self,
        parts: &[EncodedAppend],
        timeout: Duration,
    ) -> Result<Vec<PartAnswer>, PeerFailure> {
        let payload = self.call(APPEND_PATH, join_parts(parts), timeout).await?;
        let mut answers = decode_answers(&payload, parts.len())?;
        for (part, answer) in parts.iter().zip(&mut answers) {
            if let Ok(appended) = answer
                && let Err(error) = part.restore_numbers(&mut appended.outcome)
            {
                *answer = Err(error.into());
            }
        }
        Ok(answers)
    }

    /// Opens a selection at the peer. The calling thread waits, so it must not be one of a runtime.
    /// Labels are fetched in chunks when they are needed.
    ///
    /// # Errors
    ///
    /// The failure of the peer or of the connection, and [`PeerFailure::Failed`] if a limit of the
    /// request is exceeded or it was canceled. This holds for all reads.
    pub fn select(
        &self,
        scope: &PeerReadScope,
        request: SelectRequest<'_>,
    ) -> Result<Arc<dyn Selection>, PeerFailure> {
        let selection = PeerSelection::open(self, scope, request, false)?;
        Ok(Arc::new(selection))
    }

    /// Opens a selection whose samples will not be read. Fetches all labels.
    pub fn select_labels(
        &self,
        scope: &PeerReadScope,
        request: SelectRequest<'_>,
    ) -> Result<Arc<dyn Selection>, PeerFailure> {
        let selection = PeerSelection::open(self, scope, request, true)?;
        Ok(Arc::new(selection))
    }

    /// Returns the label names of the matching series, sorted.
    pub fn label_names(
        &self,
        scope: &PeerReadScope,
        request: SelectRequest<'_>,
    ) -> Result<Vec<String>, PeerFailure> {
        let names = PeerReadRequest::LabelNames(series_request(scope, &request));
        self.look_up(names, scope, request, |bytes| Ok(decode_texts(bytes)?))
    }

    /// Returns the values of the label `name` on the matching series, sorted.
    pub fn label_values(
        &self,
        name: &str,
        scope: &PeerReadScope,
        request: SelectRequest<'_>,
    ) -> Result<Vec<Vec<u8>>, PeerFailure> {
        let values = PeerReadRequest::LabelValues {
            name: name.to_owned(),
            series: series_request(scope, &request),
        };
        self.look_up(values, scope, request, |bytes| Ok(decode_strings(bytes)?))
    }

    /// Returns the exemplars of the matching series, ordered by the labels of the series.
    pub fn exemplars(
        &self,
        scope: &PeerReadScope,
        request: ExemplarRequest<'_>,
    ) -> Result<Vec<SeriesExemplarResult>, PeerFailure> {
        let text = |set: &Vec<_>| set.iter().map(MatcherText::from_matcher).collect();
        let exemplars = PeerReadRequest::Exemplars {
            scope: scope.tenant_scope(request.tenant, request.range),
            sets: request.sets.iter().map(text).collect(),
        };
        let limits = ReadLimits {
            cancel: request.cancel,
            budget: request.budget,
            timeout: scope.timeout,
        };
        self.request_once(exemplars, limits, |bytes| Ok(decode_exemplars(bytes)?))
    }

    /// Returns the metadata that the peer has received or stored.
    pub fn metadata(
        &self,
        request: MetadataRequest<'_>,
        timeout: Duration,
    ) -> Result<MetadataBatch, PeerFailure> {
        let metadata = PeerReadRequest::Metadata {
            tenant: request.tenant.clone(),
            metric: request.metric.map(str::to_owned),
        };
        let limits = ReadLimits {
            cancel: request.cancel,
            budget: request.budget,
            timeout,
        };
        self.request_once(metadata, limits, |bytes| Ok(decode_metadata(bytes)?))
    }

    /// Returns texts about lost data of `tenant` in `range`; with `of_labels`, about data that
    /// label names and values need. The number of texts beyond the longest list is approximate.
    pub fn losses(
        &self,
        scope: &PeerReadScope,
        tenant: &TenantId,
        range: TimeRange,
        of_labels: bool,
    ) -> Result<DataLossWarnings, PeerFailure> {
        let losses = PeerReadRequest::Losses {
            scope: scope.tenant_scope(tenant, range),
            is_of_labels: of_labels,
        };
        let limits = ReadLimits {
            cancel: &CancelToken::new(),
            budget: &Budget::new("losses", self.0.frame_bytes_max),
            timeout: scope.timeout,
        };
        let texts = self.request_once(losses, limits, |bytes| Ok(decode_texts(bytes)?))?;
        let losses = DataLossWarnings::default();
        texts.iter().for_each(|text| losses.add(text));
        Ok(losses)
    }

    /// Sends a look-up whose answer is a message with the number of found series and a result.
    fn look_up<T>(
        &self,
        request: PeerReadRequest,
        scope: &PeerReadScope,
        select: SelectRequest<'_>,
        decode: impl FnOnce(&[u8]) -> Result<T, PeerFailure>,
    ) -> Result<T, PeerFailure> {
        let limits = ReadLimits::of_select(&select, scope);
        self.request_once(request, limits, |bytes| {
            let (found, answer) = split_found(bytes)?;
            select.series.add_series(found)?;
            decode(decode_answer(answer)?)
        })
    }

    /// Sends a request whose answer is one message.
    fn request_once<T>(
        &self,
        request: PeerReadRequest,
        limits: ReadLimits<'_>,
        decode: impl FnOnce(&[u8]) -> Result<T, PeerFailure>,
    ) -> Result<T, PeerFailure> {
        let stream = ReadStream::open(self);
        let mut answer = stream.request(request, limits)?;
        let message = answer.expect_message()?;
        decode(&message.bytes)
    }

    async fn call(
        &self,
        path: &'static str,
        body: Vec<Bytes>,
        timeout: Duration,
    ) -> Result<Bytes, PeerFailure> {
        let bytes: usize = body.iter().map(Bytes::len).sum();
        let limit = self.0.frame_bytes_max;
        if bytes > limit {
            let text = format!("frame for a peer is too large: {bytes} bytes, limit {limit}");
            return Err(Error::new(ErrorKind::Limited, text).into());
        }
        let mut request = Request::new(body);
        self.0.credentials.sign(request.metadata_mut());
        request
            .metadata_mut()
            .insert(FRAME_BYTES_HEADER, bytes.into());
        request.set_timeout(timeout);
        let mut grpc = self.grpc();
        let calling = async {
            let ready = grpc.ready().await;
            ready.map_err(|e| Status::from_error(Box::new(e)))?;
            grpc.unary(request, PathAndQuery::from_static(path), BuffersCodec)
                .await
        };
        let mut disconnects = self.0.is_disconnected.subscribe();
        let called = tokio::select! {
            called = tokio::time::timeout(timeout, calling) => called,
            _ = disconnects.wait_for(|is_disconnected| *is_disconnected) => {
                return Err(self.disconnected_failure());
            }
        };
        let answer = match called {
            Err(_) => return Err(self.timeout_failure(timeout)),
            // Both ends of the connection count the time, too.
            Ok(Err(status)) if status.message().contains(TIMEOUT_TEXT) => {
                return Err(self.timeout_failure(timeout));
            }
            Ok(Err(status)) => return Err(self.status_failure(&status)),
            Ok(Ok(response)) => response.into_inner(),
        };
        let payload = decode_answer(&answer)?;
        Ok(answer.slice_ref(payload))
    }

    fn grpc(&self) -> Grpc<Channel> {
        let next = self.0.next.fetch_add(1, Ordering::Relaxed);
        let channel = self.0.channels[next % CONNECTIONS].clone();
        Grpc::new(channel)
            .max_decoding_message_size(self.0.frame_bytes_max)
            .max_encoding_message_size(self.0.frame_bytes_max)
    }

    fn timeout_failure(&self, timeout: Duration) -> PeerFailure {
        let address = self.address();
        PeerFailure::Unavailable(format!("peer {address} did not answer within {timeout:?}"))
    }

    /// Returns the failure of a request that the peer, or the connection, did not answer.
    fn status_failure(&self, status: &Status) -> PeerFailure {
        let mut text = format!("peer {}: {}", self.address(), status.message());
        let mut source = std::error::Error::source(status);
        let mut is_refused = false;
        while let Some(reason) = source {
            let kind = reason.downcast_ref::<io::Error>().map(io::Error::kind);
            is_refused |= kind == Some(io::ErrorKind::ConnectionRefused);
            let reason_text = reason.to_string();
            if !text.ends_with(&reason_text) {
                text.push_str(": ");
                text.push_str(&reason_text);
            }
            source = reason.source();
        }
        if CERTIFICATE_TEXTS.iter().any(|part| text.contains(part)) {
            return PeerFailure::Rejected(text);
        }
        match status.code() {
            Code::FailedPrecondition | Code::Unimplemented => PeerFailure::Rejected(text),
            Code::OutOfRange => PeerFailure::Failed(Error::new(ErrorKind::Limited, text)),
            _ if is_refused => PeerFailure::Refused(text),
            _ => PeerFailure::Unavailable(text),
        }
    }
}

fn series_request(scope: &PeerReadScope, request: &SelectRequest<'_>) -> SeriesRequest {
    let matchers = request.matchers.iter().map(MatcherText::from_matcher);
    SeriesRequest {
        scope: scope.tenant_scope(request.tenant, request.range),
        matchers: matchers.collect(),
        is_newest_only: request.newest_only,
        series_max: request.series.remaining() as u64,
    }
}
