//! A real head on simulated disks, for PromQL scripts and tests of rules. Several stores may divide
//! its series, as the partitions of a cluster do.

use firn_cluster::partitions::store::PartitionedStore;
use firn_model::batch::Batch;
use firn_model::env::sim;
use firn_model::error::{Error, ErrorKind};
use firn_model::store::{Append, AppendBounds, AppendOutcome, Select};
use firn_model::tenant::TenantId;
use firn_promql::script::ScriptStore;
use firn_storage::store::{Store, StoreOptions};
use std::num::NonZeroU8;

/// A duration in milliseconds that no script reaches, and that can be added to a time without
/// overflow.
const FOREVER_MS: i64 = i64::MAX / 4;

/// Seed of the simulated environments, with which all stores hash alike. Results of scripts do not
/// depend on it.
const SEED: u64 = 1;

/// The stores of one test or script. Nothing is written to a real disk.
pub(super) struct TestHead {
    store: PartitionedStore,
    partitions: NonZeroU8,
    tenant: TenantId,
}

impl TestHead {
    /// Opens an empty head of one store.
    pub(super) fn open() -> Result<Self, Error> {
        Self::open_partitions(NonZeroU8::MIN)
    }

    /// Opens an empty head whose series are divided among `partitions` stores, each in a simulated
    /// environment of its own.
    pub(super) fn open_partitions(partitions: NonZeroU8) -> Result<Self, Error> {
        let options = StoreOptions {
            shards: 1,
            retention_ms: FOREVER_MS,
            lateness_max_ms: FOREVER_MS,
            ..StoreOptions::new("/data")
        };
        let open = |_| Store::open(sim::sim_env(SEED).env, options.clone());
        let stores: Result<Vec<_>, Error> = (0..partitions.get()).map(open).collect();
        Ok(Self {
            store: PartitionedStore::new(stores?)?,
            partitions,
            tenant: TenantId::anonymous(),
        })
    }

    /// Appends the acceptable samples of `batch` and returns the outcome.
    pub(super) fn append_batch(&self, batch: &Batch) -> Result<AppendOutcome, Error> {
        let bounds = AppendBounds::up_to(i64::MAX);
        self.store.append(&self.tenant, batch, bounds).wait()
    }
}

impl ScriptStore for TestHead {
    fn clear(&mut self) -> Result<(), Error> {
        *self = Self::open_partitions(self.partitions)?;
        Ok(())
    }

    fn append(&mut self, batch: &Batch) -> Result<(), Error> {
        let appended = self.append_batch(batch)?;
        match appended.rejected.first() {
            None => Ok(()),
            Some(first) => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{:?}: {} samples, the first of {} at {}",
                    first.rejection, first.count, first.first_labels, first.first_time
                ),
            )),
        }
    }

    fn select(&self) -> &dyn Select {
        &self.store
    }
}
