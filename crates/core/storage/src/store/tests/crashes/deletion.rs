//! Deletes in a history.
//!
//! A sample that a reader could see when a delete began, and that it matched, must not be seen
//! again, unless it is sent again. After a delete that failed, and for batches that were in flight,
//! either is possible.

use super::{History, Key, SCRAPE_MS, SERIES, Samples};
use crate::store::StoreSyncMode;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim::SimRng;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_model::store::DeleteRequest;
use firn_model::tenant::TenantId;
use std::collections::BTreeSet;

/// The deletes of a history, and the samples that they concern.
pub(super) struct Deletes {
    /// Not the generator of the history, which would change the histories of all seeds.
    rng: SimRng,
    is_on: bool,
    /// Samples that must not be seen.
    gone: BTreeSet<Key>,
    /// Samples that may be seen or not.
    unsure: BTreeSet<Key>,
}

impl Deletes {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: SimRng::new(!seed),
            is_on: seed % 3 == 1,
            gone: BTreeSet::new(),
            unsure: BTreeSet::new(),
        }
    }

    /// Records that samples are sent, maybe again.
    pub(super) fn record_sent(&mut self, samples: &Samples) {
        for key in samples.keys() {
            if self.gone.remove(key) {
                self.unsure.insert(*key);
            }
        }
    }

    /// Removes the samples that need not be seen.
    pub(super) fn retain_sure(&self, samples: &mut Samples) {
        samples.retain(|key, _| !self.unsure.contains(key));
    }

    /// Checks that no deleted sample is there.
    pub(super) fn check(&self, held: &Samples, when: &str) -> Result<(), String> {
        match held.keys().find(|key| self.gone.contains(key)) {
            Some(key) => Err(format!("{when} {key:?} was deleted and is there")),
            None => Ok(()),
        }
    }
}

impl History {
    /// Deletes samples from time to time.
    pub(super) fn delete_sometimes(&mut self) -> Result<(), String> {
        // In the other modes a delete waits for the log, which nothing would continue.
        let may_sync = self.deferred.is_none() || self.options.sync == StoreSyncMode::Always;
        if !self.deletes.is_on || !may_sync || !self.deletes.rng.one_in(8) {
            return Ok(());
        }
        if self.deletes.rng.one_in(4) {
            return self.clean();
        }
        self.take_answers()?;
        let rng = &self.deletes.rng;
        let first = rng.next_below(SERIES + SERIES);
        let end = first + 1 + rng.next_below(SERIES);
        let names: Vec<String> = (first..end).map(|series| series.to_string()).collect();
        let from = self.now - rng.next_below(100) as i64 * SCRAPE_MS;
        let range = match rng.next_below(3) {
            0 => TimeRange::ALL,
            1 => TimeRange::new(from, i64::MAX),
            _ => TimeRange::new(from, from + rng.next_below(30) as i64 * SCRAPE_MS),
        };
        let matcher = Matcher::new("series", MatchOp::Regex, names.join("|").as_bytes());
        let deleted = self.store().delete_series(DeleteRequest {
            tenant: &TenantId::anonymous(),
            sets: &[vec![matcher.map_err(|e| e.to_string())?]],
            range,
            cancel: &CancelToken::new(),
            budget: &Budget::new("delete", usize::MAX),
        });
        let is_hit = |key: &Key| (first..end).contains(&key.0) && range.contains(key.1);
        let seen: BTreeSet<Key> = self
            .acked
            .keys()
            .chain(self.promised.keys())
            .copied()
            .collect();
        for key in self.sent.keys().filter(|key| is_hit(key)) {
            self.in_part.insert(key.1);
            if deleted.is_ok() && seen.contains(key) && !self.deletes.unsure.contains(key) {
                self.deletes.gone.insert(*key);
            } else {
                self.deletes.unsure.insert(*key);
            }
        }
        self.acked.retain(|key, _| !is_hit(key));
        self.promised.retain(|key, _| !is_hit(key));
        match deleted {
            Ok(()) => Ok(()),
            Err(e) if e.message.contains("cannot be read") => Ok(()),
            Err(e) => self.expect_disk_trouble(&e, "delete"),
        }
    }

    fn clean(&mut self) -> Result<(), String> {
        match self.store().clean_tombstones() {
            Ok(()) => Ok(()),
            Err(e) => self.expect_disk_trouble(&e, "clean tombstones"),
        }
    }
}
