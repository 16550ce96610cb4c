//! The store: log, head and active index behind the two traits that the other rooms see.

mod options;
mod stats;

pub use options::{CHECKPOINT_LOG_BYTES, LATENESS_MAX_MS, RETENTION_MS, StoreOptions, SyncMode};
pub use stats::{Stat, StoreStats};

use firn_model::batch::Batch;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::metrics::{Collect, Sink};
use firn_model::store::{Append, AppendBounds, Select, SelectRequest, Selection, Ticket};
use firn_model::tenant::TenantId;
use std::sync::Arc;

/// The local store of one tenant.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
}

impl Store {
    /// Opens the store in `options.dir` and brings back everything that was acked.
    pub fn open(env: Env, options: StoreOptions) -> Result<Arc<Store>, Error> {
        let _ = env;
        Ok(Arc::new(Store { options }))
    }

    /// Starts background work that is due. The binary calls it once a second.
    pub fn tick(self: &Arc<Self>) {}

    /// Ends cleanly: writes the last checkpoint and trims the log. Appends fail from here on.
    pub fn close(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Figures about the head; each table has at most `top` lines.
    pub fn stats(&self, top: usize) -> StoreStats {
        let _ = top;
        StoreStats::default()
    }

    /// The metrics of the store.
    pub fn metrics(&self) -> &dyn Collect {
        self
    }

    fn unavailable(&self) -> Error {
        Error::new(
            ErrorKind::Unavailable,
            format!("store {} is not open", self.options.dir.display()),
        )
    }
}

impl Collect for Store {
    fn collect(&self, _sink: &mut dyn Sink) {}
}

impl Append for Store {
    fn append(&self, _tenant: &TenantId, _batch: &Batch, _bounds: AppendBounds) -> Ticket {
        Ticket::ready(Err(self.unavailable()))
    }
}

impl Select for Store {
    fn select(&self, _request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        Err(self.unavailable())
    }

    fn label_names(&self, _request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        Err(self.unavailable())
    }

    fn label_values(
        &self,
        _name: &str,
        _request: SelectRequest<'_>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        Err(self.unavailable())
    }
}
