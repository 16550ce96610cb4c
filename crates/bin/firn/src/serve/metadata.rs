//! Metric metadata. Metadata from pushes is stored in the data folder, and the server works without
//! that file. Blocks store the metadata of their metrics when they are cut.

use super::sending::RemoteWriteManager;
use firn_cluster::partitions::store::PartitionedStore;
use firn_cluster::tenants::TenantStores;
use firn_ingest::Pipeline;
use firn_ingest::metadata::FILE_NAME;
use firn_model::env::Env;
use firn_model::metadata::MetadataBatch;
use firn_model::tenant::TenantId;
use firn_remote_write::RemoteWriteMetadata;
use firn_scrape::ScrapeManager;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

/// Name of the folder for pushed metadata, relative to the data folder.
const FOLDER: &str = "metadata";

/// Returns the path of the file of pushed metadata, relative to the data folder.
pub fn pushed_file() -> PathBuf {
    Path::new(FOLDER).join(FILE_NAME)
}

/// Loads stored metadata; a failure is only logged. May block. The data folder must be locked by
/// this process.
pub fn open(pipeline: &Pipeline, env: &Env, data_dir: &Path) {
    let (disk, now) = (env.disk.clone(), env.clock.now_ms());
    let opened = pipeline
        .metadata()
        .open_file(disk, &data_dir.join(FOLDER), now);
    if let Err(e) = opened {
        warn!(error = %e, "pushed metadata is not stored: delete its file to start over");
    }
}

/// Stores changed metadata if it is due, or at once if `is_last`, after all writes have ended. May
/// block.
pub fn store_if_due(pipeline: &Pipeline, is_last: bool) {
    if let Err(e) = pipeline.write_metadata(is_last) {
        warn!(error = %e, "failed to store pushed metadata");
    }
}

/// Returns the metadata of all metrics: from targets, else from pushes. Iterates over all targets.
pub fn collect_metadata(
    pipeline: Option<&Pipeline>,
    scraping: &ScrapeManager,
) -> RemoteWriteMetadata {
    let mut known = RemoteWriteMetadata::default();
    for target in scraping
        .pool_views()
        .iter()
        .flat_map(|view| view.active_targets())
    {
        target
            .status
            .for_each_metadata(|name, said| known.add_family(name, said));
    }
    if let Some(pipeline) = pipeline {
        let (tenant, pushed) = (TenantId::anonymous(), pipeline.metadata());
        pushed.for_each_family(&tenant, |name, said| known.add_family(name, said));
    }
    known
}

/// Connects the sources of metadata with the receivers of `sending` and with the store, which
/// writes it to blocks.
pub fn set_metadata_sources(
    store: &PartitionedStore,
    sending: &RemoteWriteManager,
    pipeline: &Arc<Pipeline>,
    scraping: &Arc<ScrapeManager>,
) {
    sending.learn_from(pipeline, scraping);
    // Weak references, because both sources hold the store.
    let (pipeline, scraping) = (Arc::downgrade(pipeline), Arc::downgrade(scraping));
    store.set_metadata_source(move || {
        let mut batch = MetadataBatch::default();
        if let Some(scraping) = scraping.upgrade() {
            let known = collect_metadata(pipeline.upgrade().as_deref(), &scraping);
            known.iter().for_each(|said| batch.push(said));
        }
        batch
    });
}

/// Connects the metadata of pushes of each tenant with its store.
pub fn set_tenant_sources(tenants: &TenantStores, pipeline: &Arc<Pipeline>) {
    // A weak reference, because the pipeline holds the stores.
    let pipeline = Arc::downgrade(pipeline);
    tenants.set_metadata_source(Arc::new(move |tenant| {
        let mut batch = MetadataBatch::default();
        if let Some(pipeline) = pipeline.upgrade() {
            let mut known = RemoteWriteMetadata::default();
            let pushed = pipeline.metadata();
            pushed.for_each_family(tenant, |name, said| known.add_family(name, said));
            known.iter().for_each(|said| batch.push(said));
        }
        batch
    }));
}
