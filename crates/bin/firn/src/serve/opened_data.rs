//! The data of a server: its locked folder, and the store in it or the partitions in a bucket.

use super::cluster::ClusterMember;
use super::cluster::peers::PeerMembership;
use super::error::ServeError;
use firn_cluster::node::ClusterNode;
use firn_cluster::partitions::store::PartitionedStore;
use firn_cluster::tenants::{TenantStoreSettings, TenantStores};
use firn_model::budget::Budget;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::store::{Append, Select};
use firn_storage::data_dir::DataDir;
use firn_storage::store::{Store, StoreOptions};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// The open data of a server.
pub struct OpenedData {
    /// The store, or those of all partitions as one.
    pub store: Arc<PartitionedStore>,
    /// Reads of `store` that include all samples that any process acknowledged before.
    pub reads: Arc<dyn Select>,
    /// Reads that leave out partitions without an answer, with a warning; `None` if no partition is
    /// at another node.
    pub partial: Option<Arc<dyn Select>>,
    /// The stores of all tenants, of which `store` is that of `anonymous`; `None` without
    /// multitenancy.
    pub tenants: Option<Arc<TenantStores>>,
    /// The partitions with a log in a bucket, or `None` if the log is in the data folder.
    pub node: Option<Arc<ClusterNode>>,
    /// The membership among peers, or `None` for a server without peers.
    pub peers: Option<PeerMembership>,
}

impl OpenedData {
    /// Returns the store for appends: that of all tenants, if there are several.
    pub fn writes(&self) -> Arc<dyn Append> {
        match &self.tenants {
            Some(tenants) => tenants.clone(),
            None => self.store.clone(),
        }
    }

    /// Schedules background work that is due in all stores.
    pub fn tick(&self) {
        self.store.tick();
        if let Some(tenants) = self.tenants.clone() {
            // Closing and opening stores waits for the disk.
            spawn_blocking(move || tenants.tend());
        }
    }

    /// Returns the memory of all open stores in bytes.
    pub fn memory_bytes(&self) -> usize {
        let tenants = self.tenants.as_ref();
        self.store.memory_bytes() + tenants.map_or(0, |tenants| tenants.memory_bytes())
    }

    /// Returns why this process has to end, if it has to: it lost a partition that only it leads,
    /// or its peers reject it.
    pub fn fault(&self) -> Option<String> {
        match &self.peers {
            Some(peers) => peers.fault(),
            None => self.node.as_ref()?.fault(),
        }
    }
}

/// Closes the data: hands off all partitions to peers, if there are any, then closes all stores.
pub async fn close_data(
    peers: Option<PeerMembership>,
    tenants: Option<Arc<TenantStores>>,
    store: Arc<PartitionedStore>,
) -> Result<Result<(), Error>, ServeError> {
    if let Some(peers) = peers {
        return Ok(peers.close().await);
    }
    Ok(spawn_blocking(move || match tenants {
        Some(tenants) => tenants.close(),
        None => store.close(),
    })
    .await?)
}

/// Locks the data folder. That of a server with its log elsewhere is scratch, and is emptied.
pub async fn take_folder(
    env: &Env,
    options: &StoreOptions,
    is_scratch: bool,
) -> Result<DataDir, ServeError> {
    let (env, dir) = (env.clone(), options.dir.clone());
    let open = if is_scratch {
        DataDir::open_scratch
    } else {
        DataDir::open
    };
    Ok(spawn_blocking(move || open(&env, &dir)).await??)
}

/// Opens the store in the data folder, or those of the partitions in a bucket. `dir` is the lock of
/// the folder, which the returned value holds if the folder is scratch; others are locked by their
/// store.
pub async fn open_data(
    member: Option<&ClusterMember>,
    dir: DataDir,
    env: &Env,
    options: &StoreOptions,
    budget: &Budget,
    tenancy: Option<TenantStoreSettings>,
) -> Result<(OpenedData, Option<DataDir>), ServeError> {
    if let Some(member) = member {
        let data = member.open_data(env, options, budget).await?;
        return Ok((data, Some(dir)));
    }
    let (env, options) = (env.clone(), options.clone());
    let opened = spawn_blocking(move || open_stores(dir, env, options, tenancy));
    let (store, tenants) = opened.await??;
    let data = OpenedData {
        reads: match &tenants {
            Some(tenants) => tenants.clone(),
            None => store.clone(),
        },
        tenants,
        partial: None,
        store,
        node: None,
        peers: None,
    };
    Ok((data, None))
}

/// Opens the store in the data folder, and with `tenancy` those of all tenants.
fn open_stores(
    dir: DataDir,
    env: Env,
    options: StoreOptions,
    tenancy: Option<TenantStoreSettings>,
) -> Result<(Arc<PartitionedStore>, Option<Arc<TenantStores>>), ServeError> {
    let store = Store::open_in(dir, env.clone(), options.clone()).map_err(ServeError::Open)?;
    let store = join_stores(vec![store])?;
    let Some(tenancy) = tenancy else {
        return Ok((store, None));
    };
    let tenants = TenantStores::open(env, store.clone(), options, tenancy);
    Ok((store, Some(tenants.map_err(ServeError::Open)?)))
}

/// Joins the stores of all partitions, which stay open until the process ends.
pub fn join_stores(stores: Vec<Arc<Store>>) -> Result<Arc<PartitionedStore>, ServeError> {
    let store = PartitionedStore::new(stores).map_err(ServeError::Open)?;
    Ok(Arc::new(store))
}
