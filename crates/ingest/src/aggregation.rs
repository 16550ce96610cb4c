//! Stream aggregation: results are made of samples on their way in, and sources need not be stored.
//!
//! ```text
//! batch of any door -> machine -> what of it is stored -> store
//!                         \----> results with the journal -> store, one record
//! ```
//!
//! The state is kept in memory and in the log of the store: the record that a batch leaves holds
//! what it changed, and results stand in the record of the step that made them. A batch is
//! acknowledged when both its own record and that one are durable, so whatever a crash leaves, a
//! sample that was acknowledged counts once, and one that is sent again is known
//! (`docs/adr/0130-aggregation-keeps-its-state-in-the-log.md`).
//!
//! Invariant: records are appended in the order in which the state changed, under one lock. This
//! file is the edge of the pure machine ([`machine`]); it knows no expressions, which the settings
//! turn into a [`AggregationSpec`].

mod code;
mod entries;
mod failpoints;
mod fold;
mod hashing;
mod lane;
mod machine;
mod metrics;
mod native;
mod ops;
mod output;
mod printed;
mod spec;
#[cfg(test)]
mod tests;

pub use machine::KindOf;
pub use spec::{AggregationSpec, GROUPS_MAX, GroupSpec, Grouping, Kind, Op, RuleSpec};

pub(crate) use printed::Printed;

use failpoints::Flaw;
use firn_model::batch::{Batch, Source};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{HashKeys, HashKind, Seed};
use firn_model::log::{Journal, JournalMark};
use firn_model::metrics::{Collect, Sink};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, Ticket};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_wire::remote_write::KEY_FORMAT;
use hashing::Hashing;
use machine::{Machine, Taken};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What is aggregated on the way into a store, of one tenant.
pub(crate) struct Aggregation {
    tenant: TenantId,
    /// Whether there is anything to aggregate: asked for each batch, without the lock.
    is_on: AtomicBool,
    machine: Mutex<Option<Machine>>,
}

/// What became of a batch.
pub(crate) struct Passed {
    /// Series that are not to be stored, ascending.
    pub(crate) dropped: Vec<u32>,
    /// Samples of those.
    pub(crate) dropped_samples: usize,
    /// Resolves when what the batch changed is durable.
    pub(crate) ticket: Option<Ticket>,
}

/// How records come to the store, with results.
pub(crate) type Hand<'a> = &'a mut dyn FnMut(&Batch) -> Ticket;

impl Aggregation {
    /// Nothing is aggregated until [`Aggregation::configure`] says so.
    pub(crate) fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            is_on: AtomicBool::new(false),
            machine: Mutex::new(None),
        }
    }

    /// Whether batches of `tenant` must pass.
    pub(crate) fn takes(&self, tenant: &TenantId) -> bool {
        self.is_on.load(Ordering::Relaxed) && *tenant == self.tenant
    }

    /// Takes over a configuration, for the first time with the `journal` that a start found. Blocks
    /// until that is durable.
    pub(crate) fn configure(
        &self,
        spec: &AggregationSpec,
        start: Start<'_>,
        store: &dyn Append,
        hand: Hand<'_>,
    ) -> Result<(), Error> {
        let mut state = lock(&self.machine);
        if spec.groups.is_empty() && state.is_none() && start.journal.is_empty() {
            // There is no state, and a stop has none to tell.
            return Ok(());
        }
        if !spec.groups.is_empty() {
            // Until the state is there, batches are refused: they must not pass it by.
            self.is_on.store(true, Ordering::Relaxed);
        }
        store.admit(&self.tenant)?;
        let machine = state.get_or_insert_with(|| {
            let hashing = hashing_of(store, start.seed);
            let mut machine = Machine::new(hashing, start.sources_max, start.kind_of);
            let lost = machine.restore(start.journal);
            if lost > 0 {
                tracing::error!(
                    lanes = lost,
                    "aggregation journal is damaged: the state of some sources is lost"
                );
            }
            machine
        });
        let mut ends = machine.configure(spec);
        let mut journal = match machine.is_off() {
            true => vec![Journal {
                mark: JournalMark::Ends,
                bytes: Vec::new(),
            }],
            false => machine.whole(),
        };
        let mut tickets = Vec::with_capacity(journal.len());
        for record in journal.drain(..) {
            ends.set_journal(record);
            tickets.push(hand(&ends));
            ends.clear();
        }
        self.is_on.store(!machine.is_off(), Ordering::Relaxed);
        if machine.is_off() {
            *state = None;
        }
        drop(state);
        tickets
            .into_iter()
            .try_for_each(|ticket| ticket.wait().map(drop))
    }

    /// Aggregates what `source` brings up to `time_max`. An error says that nothing was taken. The
    /// caller must append what is to be stored, then call [`Append::write_held`].
    pub(crate) fn pass(
        &self,
        source: &mut dyn Source,
        time_max: TimestampMs,
        store: &dyn Append,
        hand: Hand<'_>,
    ) -> Result<Passed, Error> {
        let mut state = lock(&self.machine);
        let Some(machine) = &mut *state else {
            let message = "aggregation is starting or stopping: retry the request";
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        // What is changed now cannot be refused later.
        store.admit(&self.tenant)?;
        let Taken {
            dropped,
            dropped_samples,
            mut results,
            journal,
        } = machine.take(source, time_max)?;
        let is_stored = dropped.len() < source.batch().series_count();
        let ticket = (!journal.is_none()).then(|| {
            if !failpoints::has(Flaw::LeavesJournal) {
                results.set_journal(journal);
            }
            // One sync for this record and that of what is stored.
            results.set_followed(is_stored);
            hand(&results)
        });
        drop(state);
        Ok(Passed {
            dropped,
            dropped_samples,
            ticket,
        })
    }

    /// Bytes of memory of the state.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &*lock(&self.machine) {
            Some(machine) => machine
                .sizes()
                .iter()
                .map(|(_, _, sizes)| sizes.bytes)
                .sum(),
            None => 0,
        }
    }

    /// Tells the whole state once more in a unit of the log of its own, so that a log that is
    /// closed next holds nothing else.
    pub(crate) fn finish(&self, store: &dyn Append, hand: Hand<'_>) -> Result<(), Error> {
        let mut state = lock(&self.machine);
        let Some(machine) = &mut *state else {
            return Ok(());
        };
        store.admit(&self.tenant)?;
        // The log that a closed store keeps begins here. Without it that is longer, not wrong.
        if let Err(e) = store.begin_log_unit(&self.tenant) {
            tracing::warn!(
                error = %e,
                "failed to begin a new log segment for the aggregation state"
            );
        }
        let mut batch = Batch::default();
        let records = machine.whole().into_iter();
        let tickets: Vec<Ticket> = records
            .map(|record| {
                batch.set_journal(record);
                hand(&batch)
            })
            .collect();
        drop(state);
        tickets
            .into_iter()
            .try_for_each(|ticket| ticket.wait().map(drop))
    }
}

/// What a state begins with.
pub struct Start<'a> {
    /// Keys the hashes of series, for a state that begins now over a store that does not say how
    /// it hashes them.
    pub seed: Seed,
    /// Sources that there may be.
    pub sources_max: usize,
    /// What metadata says of metrics.
    pub kind_of: KindOf,
    /// What a start found of the state that was.
    pub journal: &'a [Vec<u8>],
}

/// How a state hashes that begins now over `store`.
fn hashing_of(store: &dyn Append, seed: Seed) -> Hashing {
    let shared = store.hashing();
    let shared = shared.filter(|hash| hash.format.name() == KEY_FORMAT.name());
    let keys = shared.map(|hash| hash.keys);
    Hashing::Keys(keys.unwrap_or_else(|| Arc::new(HashKeys::of(HashKind::fastest(), seed))))
}

/// The metrics of all groups.
impl Collect for Aggregation {
    fn collect(&self, sink: &mut dyn Sink) {
        let groups = match &*lock(&self.machine) {
            Some(machine) => machine.sizes(),
            None => return,
        };
        metrics::collect(sink, &groups);
    }
}

impl std::fmt::Debug for Aggregation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aggregation").finish_non_exhaustive()
    }
}
