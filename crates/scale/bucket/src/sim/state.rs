//! The objects of a simulated store, and its events in the order of time.

use super::fault::{SimFault, SimFaults, SimOp, SimOutage};
use crate::bucket::{Creation, ListPage, ListRequest, ListedObject, ObjectHead, OnBucketResult};
use crate::key::ObjectKey;
use bytes::Bytes;
use firn_model::env::sim::SimRng;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

/// How far back a stale list is.
const LIST_LAG: Duration = Duration::from_secs(60);

/// A call back, which runs without the lock of the store.
pub(super) type SimAnswer = Box<dyn FnOnce() + Send>;

/// An event of the simulation: a change of the store, or a callback.
enum SimEvent {
    Apply(Box<dyn FnOnce(&mut SimState) + Send>),
    Answer(SimAnswer),
}

/// An object, or one that was deleted.
pub(super) struct SimObject {
    pub(super) bytes: Bytes,
    created: Duration,
    deleted: Option<Duration>,
}

impl SimObject {
    pub(super) fn head(&self) -> ObjectHead {
        ObjectHead {
            bytes: self.bytes.len() as u64,
            modified_ms: self.created.as_millis() as i64,
        }
    }

    fn is_at(&self, time: Duration) -> bool {
        self.created <= time && self.deleted.is_none_or(|deleted| deleted > time)
    }
}

pub(super) struct SimState {
    pub(super) now: Duration,
    pub(super) outage: Option<SimOutage>,
    pub(super) scripted: VecDeque<SimFault>,
    pub(super) completes_inline: bool,
    /// Whether a thread runs events because operations complete inline.
    pub(super) is_settling: bool,
    rng: SimRng,
    /// By time, then by order of creation.
    events: BTreeMap<(Duration, u64), SimEvent>,
    event_next: u64,
    /// All objects that were created under a key, in the order of time.
    objects: BTreeMap<ObjectKey, Vec<SimObject>>,
}

impl SimState {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            outage: None,
            scripted: VecDeque::new(),
            completes_inline: false,
            is_settling: false,
            rng: SimRng::new(seed),
            events: BTreeMap::new(),
            event_next: 0,
            objects: BTreeMap::new(),
        }
    }

    pub(super) fn next_event(&self) -> Option<Duration> {
        self.events.keys().next().map(|(time, _)| *time)
    }

    pub(super) fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Runs an event. Returns its call back, which the caller calls without the lock.
    pub(super) fn run_nth(&mut self, index: usize) -> Option<Option<SimAnswer>> {
        let key = *self.events.keys().nth(index)?;
        let event = self.events.remove(&key)?;
        self.now = self.now.max(key.0);
        match event {
            SimEvent::Apply(apply) => {
                apply(self);
                Some(None)
            }
            SimEvent::Answer(answer) => Some(Some(answer)),
        }
    }

    pub(super) fn apply_in(
        &mut self,
        delay: Duration,
        apply: Box<dyn FnOnce(&mut SimState) + Send>,
    ) {
        self.schedule(delay, SimEvent::Apply(apply));
    }

    pub(super) fn answer_in<T: Send + 'static>(
        &mut self,
        delay: Duration,
        done: OnBucketResult<T>,
        result: T,
    ) {
        self.schedule(delay, SimEvent::Answer(Box::new(move || done(result))));
    }

    fn schedule(&mut self, delay: Duration, event: SimEvent) {
        let key = (self.now + delay, self.event_next);
        self.event_next += 1;
        let before = self.events.insert(key, event);
        assert!(before.is_none(), "two events with one number");
    }

    /// Returns a delay of some milliseconds; one in 50 is twenty times as long.
    pub(super) fn draw_delay(&mut self) -> Duration {
        let micros = 500 + self.rng.next_below(20_000);
        let tail = if self.rng.one_in(50) { 20 } else { 1 };
        Duration::from_micros(micros * tail)
    }

    /// Returns the fault of an operation: that of an outage, a scripted one, or a drawn one.
    pub(super) fn draw_fault(&mut self, op: SimOp, faults: &SimFaults) -> Option<SimFault> {
        match self.outage {
            Some(SimOutage::Refusing) => return Some(SimFault::Unreachable),
            Some(SimOutage::Silent) => return Some(SimFault::Silent),
            None => {}
        }
        let scripted = self.scripted.iter().position(|fault| fault.applies_to(op));
        if let Some(index) = scripted {
            return self.scripted.remove(index);
        }
        if faults.one_in == 0 || faults.faults.is_empty() || !self.rng.one_in(faults.one_in) {
            return None;
        }
        let index = self.rng.next_below(faults.faults.len() as u64) as usize;
        Some(faults.faults[index]).filter(|fault| fault.applies_to(op))
    }

    pub(super) fn object(&self, key: &ObjectKey) -> Option<&SimObject> {
        let newest = self.objects.get(key)?.last()?;
        Some(newest).filter(|object| object.deleted.is_none())
    }

    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        let keys = self.objects.keys();
        keys.filter(|key| self.object(key).is_some())
            .cloned()
            .collect()
    }

    pub(super) fn create(
        &mut self,
        key: ObjectKey,
        bytes: Bytes,
        fault: Option<SimFault>,
    ) -> Creation {
        let exists = self.object(&key).is_some();
        if exists && fault != Some(SimFault::ConditionStripped) {
            return Creation::Exists;
        }
        self.delete(&key);
        self.objects.entry(key).or_default().push(SimObject {
            bytes,
            created: self.now,
            deleted: None,
        });
        if fault == Some(SimFault::AppliedExists) {
            return Creation::Exists;
        }
        Creation::Stored
    }

    pub(super) fn delete(&mut self, key: &ObjectKey) {
        let newest = self.objects.get_mut(key).and_then(|all| all.last_mut());
        if let Some(newest) = newest {
            newest.deleted.get_or_insert(self.now);
        }
    }

    pub(super) fn list(&self, request: &ListRequest, fault: Option<SimFault>) -> ListPage {
        let time = if fault == Some(SimFault::StaleList) {
            self.now.saturating_sub(LIST_LAG)
        } else {
            self.now
        };
        let start = match &request.start_after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Unbounded,
        };
        let mut page = ListPage::default();
        for (key, all) in self.objects.range((start, Bound::Unbounded)) {
            let object = all.iter().find(|object| object.is_at(time));
            let has_prefix = key.as_str().starts_with(request.prefix.as_str());
            let Some(object) = object.filter(|_| has_prefix) else {
                continue;
            };
            if page.objects.len() == request.limit {
                page.is_truncated = true;
                break;
            }
            page.objects.push(ListedObject {
                key: key.clone(),
                head: object.head(),
            });
        }
        page
    }
}
