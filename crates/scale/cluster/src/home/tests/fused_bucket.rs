//! A client of a simulated bucket whose process ends at a chosen request.

use crate::engine::BucketLog;
use bytes::Bytes;
use firn_bucket::sim::SimBucket;
use firn_bucket::{
    Bucket, BucketError, ByteRange, Creation, ListPage, ListRequest, ObjectHead, ObjectKey,
    OnBucketResult, ReadResult,
};
use firn_model::log::DurableLog;
use firn_model::sync::lock;
use std::sync::Mutex;

/// A client that ends its process when its fuse burns down: the request at that moment takes effect
/// or not, and nothing is answered or sent any more.
pub struct FusedBucket {
    inner: SimBucket,
    fuse: Mutex<Fuse>,
    /// The log of the process, which ends too.
    log: Mutex<Option<BucketLog>>,
}

#[derive(Debug, Default)]
struct Fuse {
    /// Number of requests before the last one.
    left: Option<u64>,
    takes_effect: bool,
    is_burnt: bool,
}

impl FusedBucket {
    pub fn new(inner: SimBucket) -> Self {
        Self {
            inner,
            fuse: Mutex::default(),
            log: Mutex::default(),
        }
    }

    pub fn set_log(&self, log: &BucketLog) {
        *lock(&self.log) = Some(log.clone());
    }

    /// Ends the process after `left` further requests.
    pub fn set_fuse(&self, left: u64, takes_effect: bool) {
        let mut fuse = lock(&self.fuse);
        (fuse.left, fuse.takes_effect) = (Some(left), takes_effect);
    }

    pub fn is_burnt(&self) -> bool {
        lock(&self.fuse).is_burnt
    }

    /// Ends the process now.
    pub fn burn(&self) {
        lock(&self.fuse).is_burnt = true;
        self.inner.crash();
        let log = lock(&self.log).take();
        if let Some(log) = log {
            log.abandon();
        }
    }

    /// Returns whether a request is sent.
    fn sends(&self) -> bool {
        let mut fuse = lock(&self.fuse);
        if fuse.is_burnt {
            return false;
        }
        let Some(left) = fuse.left else {
            return true;
        };
        if left > 0 {
            fuse.left = Some(left - 1);
            return true;
        }
        let takes_effect = fuse.takes_effect;
        drop(fuse);
        self.burn();
        takes_effect
    }
}

impl Bucket for FusedBucket {
    fn put_new(&self, key: &ObjectKey, bytes: Bytes, done: OnBucketResult<Creation>) {
        if self.sends() {
            self.inner.put_new(key, bytes, done);
        }
    }

    fn get(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<Bytes>>) {
        if self.sends() {
            self.inner.get(key, done);
        }
    }

    fn get_ranges(
        &self,
        key: &ObjectKey,
        ranges: &[ByteRange],
        done: OnBucketResult<ReadResult<Vec<Bytes>>>,
    ) {
        if self.sends() {
            self.inner.get_ranges(key, ranges, done);
        }
    }

    fn head(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<ObjectHead>>) {
        if self.sends() {
            self.inner.head(key, done);
        }
    }

    fn list(&self, request: &ListRequest, done: OnBucketResult<Result<ListPage, BucketError>>) {
        if self.sends() {
            self.inner.list(request, done);
        }
    }

    fn delete(&self, key: &ObjectKey, done: OnBucketResult<Result<(), BucketError>>) {
        if self.sends() {
            self.inner.delete(key, done);
        }
    }
}
