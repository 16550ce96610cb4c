//! Limits the number of queries of one tenant that run at one time.
//!
//! A query waits for a place of its tenant before it enters the queue of all tenants. Invariant:
//! queries of rules take no place and never wait for one. After a change of the limit, queries that
//! started before it do not count.

use super::queue::QueueClient;
use super::run::QueryRun;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of one tenant, and their number.
#[derive(Debug)]
struct TenantPlaces {
    count: usize,
    free: Arc<Semaphore>,
}

/// The places of the tenants that have a limit. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantSlots(Arc<Mutex<BTreeMap<TenantId, TenantPlaces>>>);

impl TenantSlots {
    /// Waits for a place of each tenant of `run` that has a limit. All queries wait for tenants in
    /// the same order, so that no two of them wait for each other.
    pub(super) async fn enter(&self, run: &QueryRun) -> Vec<OwnedSemaphorePermit> {
        let mut places = Vec::new();
        if run.question.line == QueueClient::Rules {
            return places;
        }
        for (tenant, max) in run.queries_max() {
            let free = self.places(tenant, (*max).min(Semaphore::MAX_PERMITS));
            // The semaphore is never closed.
            places.extend(free.acquire_owned().await);
        }
        places
    }

    fn places(&self, tenant: &TenantId, max: usize) -> Arc<Semaphore> {
        let mut tenants = lock(&self.0);
        if let Some(known) = tenants.get(tenant).filter(|known| known.count == max) {
            return known.free.clone();
        }
        let free = Arc::new(Semaphore::new(max));
        let places = TenantPlaces {
            count: max,
            free: free.clone(),
        };
        tenants.insert(tenant.clone(), places);
        free
    }
}
