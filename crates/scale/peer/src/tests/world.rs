//! Servers and clients on loopback for tests, with a store of the test or a double.

use crate::{
    PeerClient, PeerFailure, PeerOptions, PeerReadScope, PeerSecret, PeerService, ReadConsistency,
    serve_peers,
};
use bytes::Bytes;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim::sim_env;
use firn_model::matcher::Matcher;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Append, MetadataRequest, Select, SelectRequest};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_storage::store::{Store, StoreOptions};
use firn_wire::remote_write::KEY_FORMAT;
use std::net::TcpListener;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than any request of a test takes.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const PARTITIONS: u32 = 4;

/// Returns the settings of all nodes of a test.
pub(super) fn options() -> PeerOptions {
    let mut options = PeerOptions::new(0x1234, PARTITIONS);
    options.security.secret = Some(PeerSecret::new(b"swordfish"));
    options
}

/// Returns a runtime with several threads.
pub(super) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    builder.build().expect("threads")
}

/// Opens an empty store whose series have keys of remote write.
pub(super) fn open_store(seed: u64) -> Arc<Store> {
    let options = StoreOptions {
        key_format: KEY_FORMAT,
        exemplars_max: 100_000,
        late_window_ms: 10_000,
        shards: 2,
        ..StoreOptions::new("/data")
    };
    Store::open(sim_env(seed).env, options).expect("an empty disk")
}

/// A service that leads all partitions except those in `others`, which are one store.
pub(super) struct TestService {
    append: Arc<dyn Append>,
    select: Arc<dyn Select>,
    /// The failure for all partitions, if there is one.
    pub(super) failure: Mutex<Option<PeerFailure>>,
    /// The reads that the service received.
    pub(super) reads: Mutex<Vec<(Vec<u32>, ReadConsistency)>>,
}

impl TestService {
    pub(super) fn new(append: Arc<dyn Append>, select: Arc<dyn Select>) -> Arc<Self> {
        Arc::new(Self {
            append,
            select,
            failure: Mutex::default(),
            reads: Mutex::default(),
        })
    }

    /// Creates the service of a store.
    pub(super) fn of_store(store: &Arc<Store>) -> Arc<Self> {
        Self::new(store.clone(), store.clone())
    }

    fn check(&self) -> Result<(), PeerFailure> {
        lock(&self.failure).clone().map_or(Ok(()), Err)
    }
}

impl PeerService for TestService {
    fn exchange(&self, request: Bytes) -> Result<Bytes, PeerFailure> {
        self.check()?;
        Ok([b"exchanged ", &request[..]].concat().into())
    }

    fn appender(&self, _: u32) -> Result<Arc<dyn Append>, PeerFailure> {
        self.check()?;
        Ok(self.append.clone())
    }

    fn reader(
        &self,
        partitions: &[u32],
        consistency: ReadConsistency,
    ) -> Result<Arc<dyn Select>, PeerFailure> {
        lock(&self.reads).push((partitions.to_vec(), consistency));
        self.check()?;
        Ok(self.select.clone())
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, PeerFailure> {
        self.check()?;
        Ok(self.select.metadata(request)?)
    }
}

/// A server with a runtime of its own.
pub(super) struct TestServer {
    runtime: Option<Runtime>,
    pub(super) address: String,
    pub(super) budget: Budget,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<std::io::Result<()>>>,
}

impl TestServer {
    pub(super) fn start(service: Arc<dyn PeerService>) -> Self {
        Self::start_at("127.0.0.1:0", &options(), service)
    }

    pub(super) fn start_at(
        address: &str,
        options: &PeerOptions,
        service: Arc<dyn PeerService>,
    ) -> Self {
        Self::start_within(Budget::new("peers", 1 << 30), address, options, service)
    }

    pub(super) fn start_within(
        budget: Budget,
        address: &str,
        options: &PeerOptions,
        service: Arc<dyn PeerService>,
    ) -> Self {
        let runtime = runtime();
        let listener = TcpListener::bind(address).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("a bound socket").to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let (options, of_server) = (options.clone(), budget.clone());
        let task = runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let stop = async {
                let _ = stopped.await;
            };
            serve_peers(listener, options, of_server, service, stop).await
        });
        Self {
            runtime: Some(runtime),
            address,
            budget,
            stop: Some(stop),
            task: Some(task),
        }
    }

    /// Stops the server and returns when it has ended.
    pub(super) fn stop(&mut self) {
        drop(self.stop.take());
        if let (Some(runtime), Some(task)) = (&self.runtime, self.task.take()) {
            runtime.block_on(task).expect("no panic").expect("no error");
        }
        self.kill();
    }

    /// Ends all tasks and connections at once.
    pub(super) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The runtime of all clients.
pub(super) fn client_runtime() -> Handle {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(runtime);
    RUNTIME.handle().clone()
}

/// Creates a client of a server.
pub(super) fn client(server: &TestServer) -> PeerClient {
    client_with(server, &options())
}

pub(super) fn client_with(server: &TestServer, options: &PeerOptions) -> PeerClient {
    PeerClient::new(&server.address, options, client_runtime()).expect("a valid address")
}

/// Returns the scope of all reads of a test.
pub(super) fn scope() -> PeerReadScope {
    PeerReadScope {
        partitions: vec![0, 2],
        consistency: ReadConsistency::Strong,
        timeout: TIMEOUT,
    }
}

/// The owned parts of a request for series.
pub(super) struct Query {
    pub(super) tenant: TenantId,
    pub(super) matchers: Vec<Matcher>,
    pub(super) range: TimeRange,
    pub(super) cancel: CancelToken,
    pub(super) budget: Budget,
    pub(super) series: SeriesLimit,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            tenant: TenantId::anonymous(),
            matchers: Vec::new(),
            range: TimeRange::ALL,
            cancel: CancelToken::new(),
            budget: Budget::new("query", 1 << 30),
            series: SeriesLimit::unlimited(),
        }
    }
}

impl Query {
    pub(super) fn request(&self) -> SelectRequest<'_> {
        SelectRequest {
            tenant: &self.tenant,
            matchers: &self.matchers,
            range: self.range,
            newest_only: false,
            cancel: &self.cancel,
            budget: &self.budget,
            series: &self.series,
            span: None,
        }
    }
}
