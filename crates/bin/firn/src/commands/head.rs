//! A real head on a simulated disk, for PromQL scripts and tests of rules.

use firn_model::batch::Batch;
use firn_model::env::sim;
use firn_model::error::{Error, ErrorKind};
use firn_model::store::{Append, AppendBounds, AppendOutcome, Select};
use firn_model::tenant::TenantId;
use firn_promql::script::ScriptStore;
use firn_storage::store::{Store, StoreOptions};
use std::sync::Arc;

/// A duration in milliseconds that no script reaches, and that can be added to a time without
/// overflow.
const FOREVER_MS: i64 = i64::MAX / 4;

/// Seed of the simulated environment. Results of scripts do not depend on it.
const SEED: u64 = 1;

/// A store in a simulated environment, for one test or script. Nothing is written to a real disk.
pub(super) struct TestHead {
    store: Arc<Store>,
    tenant: TenantId,
}

impl TestHead {
    /// Opens an empty head in a simulated environment of its own.
    pub(super) fn open() -> Result<Self, Error> {
        let options = StoreOptions {
            shards: 1,
            retention_ms: FOREVER_MS,
            lateness_max_ms: FOREVER_MS,
            ..StoreOptions::new("/data")
        };
        Ok(Self {
            store: Store::open(sim::sim_env(SEED).env, options)?,
            tenant: TenantId::anonymous(),
        })
    }
}

impl TestHead {
    /// Appends the acceptable samples of `batch` and returns the outcome.
    pub(super) fn append_batch(&self, batch: &Batch) -> Result<AppendOutcome, Error> {
        let bounds = AppendBounds::up_to(i64::MAX);
        self.store.append(&self.tenant, batch, bounds).wait()
    }
}

impl ScriptStore for TestHead {
    fn clear(&mut self) -> Result<(), Error> {
        *self = Self::open()?;
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
        &*self.store
    }
}
