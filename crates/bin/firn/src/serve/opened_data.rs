//! The data of a server: its locked folder, and the store in it or the partitions in a bucket.

use super::cluster::ClusterMember;
use super::error::ServeError;
use firn_cluster::node::{ClusterNode, StrongSelect};
use firn_cluster::partitions::store::PartitionedStore;
use firn_model::env::Env;
use firn_model::store::Select;
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
    /// The partitions with a log in a bucket, or `None` if the log is in the data folder.
    pub node: Option<Arc<ClusterNode>>,
    /// The lock of a scratch folder. Other folders are locked by their store.
    _scratch: Option<DataDir>,
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

/// Opens the store in the data folder, or those of the partitions in a bucket.
pub async fn open_data(
    member: Option<&ClusterMember>,
    dir: DataDir,
    env: &Env,
    options: &StoreOptions,
) -> Result<OpenedData, ServeError> {
    if let Some(member) = member {
        let node = member.lead(env, options).await?;
        let store = join_stores(node.stores().to_vec())?;
        let (logs, wait_max) = (node.logs().to_vec(), member.read_wait());
        return Ok(OpenedData {
            reads: Arc::new(StrongSelect::new(logs, store.clone(), wait_max)),
            store,
            node: Some(node),
            _scratch: Some(dir),
        });
    }
    let (env, options) = (env.clone(), options.clone());
    let opened = spawn_blocking(move || Store::open_in(dir, env, options));
    let store = opened.await?.map_err(ServeError::Open)?;
    let store = join_stores(vec![store])?;
    Ok(OpenedData {
        reads: store.clone(),
        store,
        node: None,
        _scratch: None,
    })
}

fn join_stores(stores: Vec<Arc<Store>>) -> Result<Arc<PartitionedStore>, ServeError> {
    let store = PartitionedStore::new(stores).map_err(ServeError::Open)?;
    Ok(Arc::new(store))
}
