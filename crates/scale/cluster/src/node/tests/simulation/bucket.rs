//! The clients of a simulated node: their requests end with the process, wait while it is paused,
//! and fail while its link to the bucket is down.

use bytes::Bytes;
use firn_bucket::sim::SimBucket;
use firn_bucket::{
    Bucket, BucketError, BucketFailure, ByteRange, Creation, ListPage, ListRequest, ObjectHead,
    ObjectKey, OnBucketResult, ReadResult,
};
use firn_model::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Something that reaches a process, such as a reply.
pub type SimDelivery = Box<dyn FnOnce() + Send>;

/// The state of a process as its surroundings see it.
#[derive(Default)]
pub struct ProcessControl {
    is_dead: AtomicBool,
    is_paused: AtomicBool,
    /// True while the bucket is out of reach.
    is_cut_off: AtomicBool,
    /// True if requests have no drawn faults.
    is_calm: AtomicBool,
    /// The number of requests before the process ends; `u64::MAX` for never.
    fuse: AtomicU64,
    /// Deliveries that wait for the end of a pause.
    inbox: Mutex<VecDeque<SimDelivery>>,
}

impl ProcessControl {
    pub fn new() -> Self {
        let control = Self::default();
        control.set_fuse(u64::MAX);
        control
    }

    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    pub fn set_dead(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
        let undelivered = std::mem::take(&mut *lock(&self.inbox));
        drop(undelivered);
    }

    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    pub fn set_cut_off(&self, is_cut_off: bool) {
        self.is_cut_off.store(is_cut_off, Ordering::Relaxed);
    }

    /// Ends all faults of the requests of this process.
    pub fn set_calm(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
        self.set_cut_off(false);
        self.set_fuse(u64::MAX);
    }

    pub fn set_fuse(&self, requests: u64) {
        self.fuse.store(requests, Ordering::Relaxed);
    }

    /// Delivers now, after the pause, or never if the process has ended.
    pub fn deliver(&self, delivery: SimDelivery) {
        if self.is_dead() {
            drop(delivery);
        } else if self.is_paused() {
            lock(&self.inbox).push_back(delivery);
        } else {
            delivery();
        }
    }

    /// Delivers everything that waited for the end of a pause.
    pub fn empty_inbox(&self) {
        loop {
            let next = lock(&self.inbox).pop_front();
            let Some(delivery) = next else {
                return;
            };
            self.deliver(delivery);
        }
    }

    /// Counts a request. Returns whether it is sent. The last one is sent by an odd fuse, and its
    /// reply never arrives.
    fn sends(&self) -> bool {
        if self.is_dead() {
            return false;
        }
        let left = self.fuse.load(Ordering::Relaxed);
        if left == u64::MAX {
            return true;
        }
        self.fuse.store(left.saturating_sub(2), Ordering::Relaxed);
        if left < 2 {
            // The caller may hold locks, so that the cluster ends the rest of the process later.
            self.is_dead.store(true, Ordering::Relaxed);
        }
        left > 0
    }
}

/// A client of a process. Its requests are answered when the time of the store passes.
#[derive(Clone)]
pub struct ProcessBucket {
    pub faulty: Arc<SimBucket>,
    pub calm: Arc<SimBucket>,
    pub control: Arc<ProcessControl>,
}

impl ProcessBucket {
    fn inner(&self) -> &SimBucket {
        if self.control.is_calm.load(Ordering::Relaxed) {
            &self.calm
        } else {
            &self.faulty
        }
    }

    /// Sends a request with `send`, or refuses it with `refuse`.
    fn request<T: Send + 'static>(
        &self,
        done: OnBucketResult<T>,
        refuse: fn(BucketError) -> T,
        send: impl FnOnce(&SimBucket, OnBucketResult<T>),
    ) {
        if !self.control.sends() {
            return;
        }
        if self.control.is_cut_off.load(Ordering::Relaxed) {
            let failure = BucketFailure::Connection;
            return done(refuse(BucketError::new(failure, "no link to the bucket")));
        }
        let control = self.control.clone();
        let done = Box::new(move |result| control.deliver(Box::new(move || done(result))));
        send(self.inner(), done);
    }
}

impl Bucket for ProcessBucket {
    fn put_new(&self, key: &ObjectKey, bytes: Bytes, done: OnBucketResult<Creation>) {
        self.request(done, Creation::Refused, |b, done| {
            b.put_new(key, bytes, done);
        });
    }

    fn get(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<Bytes>>) {
        self.request(done, Err, |b, done| b.get(key, done));
    }

    fn get_ranges(
        &self,
        key: &ObjectKey,
        ranges: &[ByteRange],
        done: OnBucketResult<ReadResult<Vec<Bytes>>>,
    ) {
        self.request(done, Err, |b, done| b.get_ranges(key, ranges, done));
    }

    fn head(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<ObjectHead>>) {
        self.request(done, Err, |b, done| b.head(key, done));
    }

    fn list(&self, request: &ListRequest, done: OnBucketResult<Result<ListPage, BucketError>>) {
        self.request(done, Err, |b, done| b.list(request, done));
    }

    fn delete(&self, key: &ObjectKey, done: OnBucketResult<Result<(), BucketError>>) {
        self.request(done, Err, |b, done| b.delete(key, done));
    }
}

/// A client whose methods return after the reply: for threads that may wait. Time passes meanwhile.
#[derive(Clone)]
pub struct WaitingBucket<B> {
    pub inner: B,
    /// Lets time pass. Returns false if the process has ended.
    pub pass_time: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl<B: Bucket> WaitingBucket<B> {
    fn wait<T: Send + 'static>(
        &self,
        done: OnBucketResult<T>,
        send: impl FnOnce(&B, OnBucketResult<T>),
    ) {
        let reply: Arc<Mutex<Option<T>>> = Arc::default();
        let of_reply = reply.clone();
        send(
            &self.inner,
            Box::new(move |result| *lock(&of_reply) = Some(result)),
        );
        loop {
            let result = lock(&reply).take();
            if let Some(result) = result {
                return done(result);
            }
            if !(self.pass_time)() {
                return;
            }
        }
    }
}

impl<B: Bucket> Bucket for WaitingBucket<B> {
    fn put_new(&self, key: &ObjectKey, bytes: Bytes, done: OnBucketResult<Creation>) {
        self.wait(done, |b, done| b.put_new(key, bytes, done));
    }

    fn get(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<Bytes>>) {
        self.wait(done, |b, done| b.get(key, done));
    }

    fn get_ranges(
        &self,
        key: &ObjectKey,
        ranges: &[ByteRange],
        done: OnBucketResult<ReadResult<Vec<Bytes>>>,
    ) {
        self.wait(done, |b, done| b.get_ranges(key, ranges, done));
    }

    fn head(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<ObjectHead>>) {
        self.wait(done, |b, done| b.head(key, done));
    }

    fn list(&self, request: &ListRequest, done: OnBucketResult<Result<ListPage, BucketError>>) {
        self.wait(done, |b, done| b.list(request, done));
    }

    fn delete(&self, key: &ObjectKey, done: OnBucketResult<Result<(), BucketError>>) {
        self.wait(done, |b, done| b.delete(key, done));
    }
}
