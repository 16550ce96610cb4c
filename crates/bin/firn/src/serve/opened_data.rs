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
use std::time::Duration;
use tokio::task::spawn_blocking;

/// The open data of a server.
pub struct OpenedData {
    /// The store, or those of all partitions as one.
    pub store: Arc<PartitionedStore>,
    /// The partitions with a log in a bucket, or `None` if the log is in the data folder.
    pub node: Option<Arc<ClusterNode>>,
    /// The lock of a scratch folder. Other folders are locked by their store.
    _scratch: Option<DataDir>,
}

impl OpenedData {
    /// Returns reads of all samples that any node acknowledged before. `wait_max` limits the wait
    /// for the confirmation of a bucket.
    pub fn reads(&self, wait_max: Duration) -> Arc<dyn Select> {
        match &self.node {
            None => self.store.clone(),
            Some(node) => {
                let logs = node.logs().to_vec();
                Arc::new(StrongSelect::new(logs, self.store.clone(), wait_max))
            }
        }
    }
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
        return Ok(OpenedData {
            store: join_stores(node.stores().to_vec())?,
            node: Some(node),
            _scratch: Some(dir),
        });
    }
    let (env, options) = (env.clone(), options.clone());
    let opened = spawn_blocking(move || Store::open_in(dir, env, options));
    let store = opened.await?.map_err(ServeError::Open)?;
    Ok(OpenedData {
        store: join_stores(vec![store])?,
        node: None,
        _scratch: None,
    })
}

fn join_stores(stores: Vec<Arc<Store>>) -> Result<Arc<PartitionedStore>, ServeError> {
    let store = PartitionedStore::new(stores).map_err(ServeError::Open)?;
    Ok(Arc::new(store))
}
