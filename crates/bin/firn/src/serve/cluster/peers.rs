//! A server among peers: it listens for them, shares the partitions with them, and forwards what
//! they lead.

use super::super::error::ServeError;
use super::super::metadata::collect_metadata;
use super::super::opened_data::OpenedData;
use super::status::ClusterStatusSource;
use firn_cluster::forward::{
    ClusterSelect, ForwardMetrics, ForwardOptions, LeaderForwarder, MetadataProvider,
    NodePeerService, ReadMode,
};
use firn_cluster::members::OwnMember;
use firn_cluster::membership::{Membership, MembershipOptions, MembershipTasks, PeerDirectory};
use firn_cluster::node::ClusterNode;
use firn_cluster::partitions::append::PartitionedAppend;
use firn_cluster::partitions::select::{PartitionedSelect, join_metadata};
use firn_cluster::partitions::store::PartitionedStore;
use firn_config::config::cluster::ClusterSettings;
use firn_ingest::Pipeline;
use firn_model::budget::Budget;
use firn_model::env::{Env, real};
use firn_model::error::Error;
use firn_model::fingerprint::{HashKeys, SeriesHash};
use firn_model::metadata::MetadataBatch;
use firn_model::store::{MetadataRequest, Select};
use firn_peer::{PeerOptions, PeerSecret, PeerSecurity, PeerTls, serve_peers};
use firn_scrape::ScrapeManager;
use firn_wire::remote_write::KEY_FORMAT;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::warn;

/// The time for which a part of a write is sent again before the sender gets an error.
const FORWARD_WAIT_MAX: Duration = Duration::from_secs(10);

/// The pause between two looks whether the node leads its partitions.
const READY_PAUSE: Duration = Duration::from_millis(20);

/// The smallest secret in bytes.
const SECRET_BYTES_MIN: usize = 16;

/// Binds the listener for peers.
pub(super) async fn listen(address: &str) -> Result<TcpListener, ServeError> {
    // As for HTTP, an address without a host is all interfaces.
    let full = match address.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => address.to_owned(),
    };
    let bound = TcpListener::bind(&full).await;
    bound.map_err(|e| ServeError::Peers(format!("listen for peers on {address}: {e}")))
}

/// The membership of this server among its peers, and the tasks for it.
pub struct PeerMembership {
    membership: Arc<Membership>,
    service: Arc<NodePeerService>,
    metrics: Arc<ForwardMetrics>,
    _tasks: MembershipTasks,
    _listener: JoinSet<()>,
}

impl PeerMembership {
    /// Answers peers on `listener`, exchanges reports with them, and returns when this node leads
    /// its partitions.
    pub(super) async fn join(
        listener: TcpListener,
        node: Arc<ClusterNode>,
        settings: &ClusterSettings,
        status: &Arc<ClusterStatusSource>,
        env: &Env,
        budget: &Budget,
    ) -> Result<Self, ServeError> {
        let format = node.format();
        let options = PeerOptions {
            security: security(settings)?,
            ..PeerOptions::new(format.cluster.0, format.partitions.get())
        };
        let own = OwnMember {
            name: status.name().to_owned(),
            incarnation: incarnation(env),
            address: advertised(settings, &listener)?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let membership_options = MembershipOptions {
            own,
            peers: settings.peers.clone(),
            clock: Arc::new(real::boot_time),
        };
        let directory = PeerDirectory::new(options.clone(), Handle::current());
        let membership = Arc::new(Membership::new(node, directory, membership_options));
        status.set_membership(membership.clone());
        let service = NodePeerService::new(membership.clone(), settings.strong_wait);
        let service = Arc::new(service);
        let mut answering = JoinSet::new();
        let (answers, budget) = (service.clone(), budget.clone());
        answering.spawn(async move {
            let never = std::future::pending::<()>();
            let served = serve_peers(listener, options, budget, answers, never).await;
            if let Err(error) = served {
                warn!(%error, "the listener for peers ended");
            }
        });
        let tasks = membership.start().map_err(ServeError::Threads)?;
        while !membership.is_ready() {
            if let Some(fault) = membership.fault() {
                return Err(ServeError::Peers(fault));
            }
            tokio::time::sleep(READY_PAUSE).await;
        }
        Ok(Self {
            membership,
            service,
            metrics: Arc::default(),
            _tasks: tasks,
            _listener: answering,
        })
    }

    /// Returns the data of all partitions, wherever they are.
    pub(super) fn into_data(
        self,
        settings: &ClusterSettings,
        keeps_exemplars: bool,
    ) -> Result<OpenedData, ServeError> {
        let node = self.membership.node().clone();
        let format = node.format();
        let options = ForwardOptions {
            hash: SeriesHash {
                keys: Arc::new(HashKeys::from_seed(format.hash, format.seed)),
                format: KEY_FORMAT,
            },
            wait_max: FORWARD_WAIT_MAX,
            keeps_exemplars,
            metrics: self.metrics.clone(),
        };
        let forwarder = LeaderForwarder::new(self.membership.clone(), options);
        let append = PartitionedAppend::new(forwarder.partitions()).map_err(ServeError::Open)?;
        let append = append.with_forwarder(Arc::new(forwarder));
        let select = |mode| -> Arc<dyn Select> {
            let (membership, metrics) = (self.membership.clone(), self.metrics.clone());
            let wait_max = settings.strong_wait;
            Arc::new(ClusterSelect::new(membership, mode, wait_max, metrics))
        };
        let stores = node.open_stores().clone();
        let store =
            PartitionedStore::with_changing_stores(stores, append, select(ReadMode::Eventual));
        Ok(OpenedData {
            tenants: None,
            store: Arc::new(store),
            reads: select(ReadMode::Strong),
            partial: Some(select(ReadMode::Partial)),
            node: Some(node),
            peers: Some(self),
        })
    }

    /// Returns the metrics of forwarded writes and of reads.
    pub fn metrics(&self) -> Arc<ForwardMetrics> {
        self.metrics.clone()
    }

    /// Returns why this process has to end, if it has to.
    pub fn fault(&self) -> Option<String> {
        self.membership.fault()
    }

    /// Answers requests of peers for metadata: with that of targets, pushes and stores.
    pub fn set_metadata_sources(&self, pipeline: &Arc<Pipeline>, scraping: &Arc<ScrapeManager>) {
        let stores = self.membership.node().open_stores().clone();
        // Weak references, because both sources hold the store.
        let (pipeline, scraping) = (Arc::downgrade(pipeline), Arc::downgrade(scraping));
        let provide = move |request: MetadataRequest<'_>| {
            let mut received = MetadataBatch::default();
            if let Some(scraping) = scraping.upgrade() {
                let known = collect_metadata(pipeline.upgrade().as_deref(), &scraping);
                let is_asked = |name: &str| request.metric.is_none_or(|metric| metric == name);
                let asked = known.iter().filter(|metadata| is_asked(metadata.name));
                asked.for_each(|metadata| received.push(metadata));
            }
            let open = stores.stores();
            let open = open
                .iter()
                .map(|open| open.store.clone() as Arc<dyn Select>);
            let stored = PartitionedSelect::new(open.collect()).metadata(request)?;
            Ok(join_metadata(&[received, stored]))
        };
        let provider: MetadataProvider = Arc::new(provide);
        self.service.set_metadata_provider(provider);
    }

    /// Hands off all partitions, and reports it to the peers.
    pub async fn close(self) -> Result<(), Error> {
        self.membership.close().await
    }
}

/// Returns the number of this process, higher than those of earlier processes of the node.
fn incarnation(env: &Env) -> u64 {
    let now_ms = u64::try_from(env.clock.now_ms()).unwrap_or(0);
    // Two processes that start in the same millisecond differ in the lower bits.
    now_ms << 12 | env.rng.next_u64() & 0xfff
}

fn security(settings: &ClusterSettings) -> Result<PeerSecurity, ServeError> {
    let secret = match &settings.secret_file {
        None => None,
        Some(path) => {
            let wrong = |why: String| {
                let file = path.display();
                ServeError::Peers(format!("firn.cluster.secret_file {file}: {why}"))
            };
            let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
            let secret = bytes.trim_ascii();
            if secret.len() < SECRET_BYTES_MIN {
                let bytes = secret.len();
                let why = format!("{bytes} bytes, at least {SECRET_BYTES_MIN} are required");
                return Err(wrong(why));
            }
            Some(PeerSecret::new(secret))
        }
    };
    let tls = settings.tls.as_ref().map(|files| PeerTls {
        cert_file: files.cert_file.clone(),
        key_file: files.key_file.clone(),
        ca_file: files.ca_file.clone(),
    });
    if let Some(tls) = &tls {
        let wrong = |why| ServeError::Peers(format!("firn.cluster.tls: {why}"));
        tls.check().map_err(wrong)?;
    }
    Ok(PeerSecurity { secret, tls })
}

/// Returns the address at which peers reach this node.
fn advertised(settings: &ClusterSettings, listener: &TcpListener) -> Result<String, ServeError> {
    if let Some(address) = &settings.advertise {
        return Ok(address.clone());
    }
    let unknown = |e| ServeError::Peers(format!("find the address of the listener for peers: {e}"));
    let bound = listener.local_addr().map_err(unknown)?;
    if !bound.ip().is_unspecified() {
        return Ok(bound.to_string());
    }
    let ip = route_to_peers(&settings.peers).ok_or_else(|| {
        let text = "firn.cluster.advertise: required, because no interface leads to the peers";
        ServeError::Peers(text.to_owned())
    })?;
    Ok(SocketAddr::new(ip, bound.port()).to_string())
}

/// Returns the address of the interface that leads to the first peer with a route. Sends nothing.
fn route_to_peers(peers: &[String]) -> Option<IpAddr> {
    let route = |peer: &String| {
        let any = ["[::]:0", "0.0.0.0:0"].into_iter();
        any.filter_map(|local| UdpSocket::bind(local).ok())
            .find_map(|socket| {
                socket.connect(peer.as_str()).ok()?;
                Some(socket.local_addr().ok()?.ip())
            })
    };
    peers.iter().find_map(route)
}
