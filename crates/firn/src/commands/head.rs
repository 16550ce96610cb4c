//! A real head on a simulated disk, on which scripts and tests of rules run.

use firn_model::batch::Batch;
use firn_model::env::sim;
use firn_model::error::{Error, ErrorKind};
use firn_model::store::{Append, AppendBounds, Appended, Select};
use firn_model::tenant::TenantId;
use firn_promql::script::ScriptStore;
use firn_storage::store::{Store, StoreOptions};
use std::sync::Arc;

/// A span that no script reaches, and that added to a time does not overflow.
const FOREVER_MS: i64 = i64::MAX / 4;

/// The seed of the simulated world; scripts do not depend on it.
const SEED: u64 = 1;

/// The head.
pub(super) struct Head {
    store: Arc<Store>,
    tenant: TenantId,
}

impl Head {
    /// An empty head in a world of its own.
    pub(super) fn open() -> Result<Self, Error> {
        let options = StoreOptions {
            shards: 1,
            retention_ms: FOREVER_MS,
            lateness_max_ms: FOREVER_MS,
            ..StoreOptions::new("/data")
        };
        Ok(Self {
            store: Store::open(sim::env(SEED).env, options)?,
            tenant: TenantId::anonymous(),
        })
    }
}

impl Head {
    /// Stores what can be stored of `batch` and says what became of it.
    pub(super) fn offer(&self, batch: &Batch) -> Result<Appended, Error> {
        let bounds = AppendBounds::until(i64::MAX);
        self.store.append(&self.tenant, batch, bounds).wait()
    }
}

impl ScriptStore for Head {
    fn clear(&mut self) -> Result<(), Error> {
        *self = Self::open()?;
        Ok(())
    }

    fn append(&mut self, batch: &Batch) -> Result<(), Error> {
        let appended = self.offer(batch)?;
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
