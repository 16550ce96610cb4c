//! A simulated store for tests: deterministic by seed, with faults.
//!
//! ```text
//! SimBucket (a node's client) -- put_new --> events of SimStore, ordered by simulated time
//!    apply (the store changes)  ... answer (done is called) ...  run_until(time) by the test
//! ```
//!
//! Operations complete when the test runs the events: [`SimStore::run_until`] in the order of time,
//! [`SimStore::run_nth`] in any order, or immediately after [`SimStore::complete_inline`]. A call
//! back may start further operations.
//!
//! Invariant: the same seed and the same calls give the same events and results. Without faults the
//! store is linearizable: an operation takes effect at one event between its start and its answer.

mod fault;
mod state;

pub use fault::{SimFault, SimFaults, SimOutage};

use crate::bucket::{
    Bucket, ByteRange, Creation, ListPage, ListRequest, ObjectHead, OnBucketResult, ReadResult,
};
use crate::error::{BucketError, BucketFailure};
use crate::key::ObjectKey;
use bytes::Bytes;
use fault::{SimOp, TIMEOUT};
use firn_model::sync::lock;
use state::SimState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A simulated store. Clones are the same store.
#[derive(Clone)]
pub struct SimStore(Arc<Mutex<SimState>>);

impl SimStore {
    /// Creates an empty store at time zero, whose delays and faults are reproducible by `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SimState::new(seed))))
    }

    /// Creates the client of a node, whose operations have the given faults.
    pub fn client(&self, faults: SimFaults) -> SimBucket {
        SimBucket {
            store: self.clone(),
            faults,
            is_alive: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Returns the simulated time.
    pub fn now(&self) -> Duration {
        lock(&self.0).now
    }

    /// Returns the time of the next event, if there is one.
    pub fn next_event(&self) -> Option<Duration> {
        lock(&self.0).next_event()
    }

    /// Returns the number of events that have not run.
    pub fn event_count(&self) -> usize {
        lock(&self.0).event_count()
    }

    /// Runs all events up to `time` in their order, then sets the time. Returns their number.
    pub fn run_until(&self, time: Duration) -> usize {
        let mut ran = 0;
        while self.next_event().is_some_and(|next| next <= time) && self.run_nth(0) {
            ran += 1;
        }
        let mut state = lock(&self.0);
        state.now = state.now.max(time);
        ran
    }

    /// Runs events in their order until there are none.
    pub fn run_all(&self) {
        while self.run_nth(0) {}
    }

    /// Runs the event at `index` in the order of time, whatever its time is. Returns whether there
    /// is such an event.
    pub fn run_nth(&self, index: usize) -> bool {
        let answer = lock(&self.0).run_nth(index);
        // The lock is free: the call back may start operations.
        match answer {
            Some(Some(answer)) => answer(),
            Some(None) => {}
            None => return false,
        }
        true
    }

    /// Makes operations complete before the call that starts them returns.
    pub fn complete_inline(&self) {
        lock(&self.0).completes_inline = true;
    }

    /// Starts or ends an outage. It affects operations that start during it.
    pub fn set_outage(&self, outage: Option<SimOutage>) {
        lock(&self.0).outage = outage;
    }

    /// Makes the next operation that can have this fault have it. Calls add up.
    pub fn fail_next(&self, fault: SimFault) {
        lock(&self.0).scripted.push_back(fault);
    }

    /// Returns the content of an object.
    pub fn object(&self, key: &ObjectKey) -> Option<Bytes> {
        lock(&self.0).object(key).map(|object| object.bytes.clone())
    }

    /// Returns the keys of all objects in ascending order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        lock(&self.0).keys()
    }

    /// Runs events if operations complete inline and no other call does it.
    fn settle(&self) {
        loop {
            let mut state = lock(&self.0);
            if !state.completes_inline || state.is_settling {
                return;
            }
            state.is_settling = state.event_count() > 0;
            if !state.is_settling {
                return;
            }
            let answer = state.run_nth(0).flatten();
            drop(state);
            if let Some(answer) = answer {
                answer();
            }
            lock(&self.0).is_settling = false;
        }
    }
}

/// The client of one simulated node.
pub struct SimBucket {
    store: SimStore,
    faults: SimFaults,
    is_alive: Arc<AtomicBool>,
}

impl SimBucket {
    /// Simulates a crash of the node: its operations may still take effect, but are not answered.
    pub fn crash(&self) {
        self.is_alive.store(false, Ordering::Release);
    }

    /// Starts an operation: draws its fault and its delays, and schedules its events.
    fn start<T: Send + 'static>(&self, operation: SimOperation<T>) {
        let SimOperation {
            op,
            failed,
            apply,
            done,
        } = operation;
        let is_alive = self.is_alive.clone();
        let done: OnBucketResult<T> = Box::new(move |result| {
            if is_alive.load(Ordering::Acquire) {
                done(result);
            }
        });
        let mut state = lock(&self.store.0);
        let fault = state.draw_fault(op, &self.faults);
        let (to_store, back) = (state.draw_delay(), state.draw_delay());
        let error = fault.and_then(|fault| fault.error(op));
        let late = TIMEOUT + to_store;
        match fault {
            Some(SimFault::Lost | SimFault::Silent) => {
                state.answer_in(TIMEOUT, done, failed_or_panic(failed, error));
            }
            Some(SimFault::AppliedTimeout) => {
                state.apply_in(to_store, Box::new(move |state| drop(apply(state, fault))));
                state.answer_in(TIMEOUT, done, failed_or_panic(failed, error));
            }
            Some(SimFault::AppliedLate) => {
                state.apply_in(late, Box::new(move |state| drop(apply(state, fault))));
                state.answer_in(TIMEOUT, done, failed_or_panic(failed, error));
            }
            Some(fault) if fault.is_without_effect() => {
                state.answer_in(to_store + back, done, failed_or_panic(failed, error));
            }
            Some(SimFault::ErrorAfter) => {
                let result = failed_or_panic(failed, error);
                state.apply_in(to_store, Box::new(move |state| drop(apply(state, fault))));
                state.answer_in(to_store + back, done, result);
            }
            _ => {
                let run = move |state: &mut SimState| {
                    let result = apply(state, fault);
                    state.answer_in(back, done, result);
                };
                state.apply_in(to_store, Box::new(run));
            }
        }
        drop(state);
        self.store.settle();
    }
}

/// The effect of an operation, which may depend on its fault.
type SimEffect<T> = Box<dyn FnOnce(&mut SimState, Option<SimFault>) -> T + Send>;

/// An operation with its effect on the store.
struct SimOperation<T> {
    op: SimOp,
    /// Builds the result of an operation that ends with an error.
    failed: fn(BucketError) -> T,
    apply: SimEffect<T>,
    done: OnBucketResult<T>,
}

fn failed_or_panic<T>(failed: fn(BucketError) -> T, error: Option<BucketError>) -> T {
    failed(error.expect("a fault that hides the effect has an error"))
}

/// Builds the result of a failed creation: refused if nothing was sent.
fn failed_creation(error: BucketError) -> Creation {
    if error.failure == BucketFailure::Connection {
        Creation::Refused(error)
    } else {
        Creation::Ambiguous(error)
    }
}

impl Bucket for SimBucket {
    fn put_new(&self, key: &ObjectKey, bytes: Bytes, done: OnBucketResult<Creation>) {
        let key = key.clone();
        self.start(SimOperation {
            op: SimOp::PutNew,
            failed: failed_creation,
            apply: Box::new(move |state, fault| state.create(key, bytes, fault)),
            done,
        });
    }

    fn get(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<Bytes>>) {
        let key = key.clone();
        self.start(SimOperation {
            op: SimOp::Get,
            failed: Err,
            apply: Box::new(move |state, _| Ok(state.object(&key).map(|o| o.bytes.clone()))),
            done,
        });
    }

    fn get_ranges(
        &self,
        key: &ObjectKey,
        ranges: &[ByteRange],
        done: OnBucketResult<ReadResult<Vec<Bytes>>>,
    ) {
        let (key, ranges) = (key.clone(), ranges.to_vec());
        let apply = move |state: &mut SimState, _| {
            let object = state.object(&key);
            Ok(object.map(|o| ranges.iter().map(|range| range.of(&o.bytes)).collect()))
        };
        self.start(SimOperation {
            op: SimOp::Get,
            failed: Err,
            apply: Box::new(apply),
            done,
        });
    }

    fn head(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<ObjectHead>>) {
        let key = key.clone();
        self.start(SimOperation {
            op: SimOp::Head,
            failed: Err,
            apply: Box::new(move |state, _| Ok(state.object(&key).map(|o| o.head()))),
            done,
        });
    }

    fn list(&self, request: &ListRequest, done: OnBucketResult<Result<ListPage, BucketError>>) {
        let request = request.clone();
        self.start(SimOperation {
            op: SimOp::List,
            failed: Err,
            apply: Box::new(move |state, fault| {
                request.check()?;
                state.list(&request, fault).check(&request)
            }),
            done,
        });
    }

    fn delete(&self, key: &ObjectKey, done: OnBucketResult<Result<(), BucketError>>) {
        let key = key.clone();
        self.start(SimOperation {
            op: SimOp::Delete,
            failed: Err,
            apply: Box::new(move |state, _| {
                state.delete(&key);
                Ok(())
            }),
            done,
        });
    }
}
