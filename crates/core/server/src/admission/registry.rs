//! The registry of queries: all that wait, run or are being answered.
//!
//! Invariant: no query is dropped under the lock, because its end takes the lock. The number of
//! entries is limited by the queue, its places and the number of connections.

use super::question::RequestedQuery;
use super::run::{QueryAllowance, QueryRun};
use firn_model::env::Clock;
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// All queries of the server. One instance exists per server.
pub(crate) struct QueryRegistry {
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<QueryRegistryState>,
}

#[derive(Default)]
struct QueryRegistryState {
    last_id: u64,
    active: BTreeMap<u64, Weak<QueryRun>>,
}

impl QueryRegistry {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Registers a query, which starts now. It is listed until the last clone of the result is
    /// dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        question: RequestedQuery,
        allowance: QueryAllowance,
    ) -> Arc<QueryRun> {
        let mut state = lock(&self.state);
        state.last_id += 1;
        let id = state.last_id;
        let run = Arc::new(QueryRun::new(id, question, allowance, self.clone()));
        state.active.insert(id, Arc::downgrade(&run));
        run
    }

    /// Returns all queries, the oldest first.
    pub(crate) fn active(&self) -> Vec<Arc<QueryRun>> {
        let state = lock(&self.state);
        state.active.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the query with this number, if it has not ended.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<QueryRun>> {
        lock(&self.state).active.get(&id).and_then(Weak::upgrade)
    }

    /// Removes a query, which is being dropped.
    pub(super) fn remove(&self, run: &QueryRun) {
        lock(&self.state).active.remove(&run.id);
    }
}
