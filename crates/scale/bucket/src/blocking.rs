//! Bucket operations for threads that may wait.
//!
//! Never call these from an asynchronous task or from a [`crate::OnBucketResult`]: the result may
//! need the thread that waits for it. A simulated bucket must complete operations inline.

use crate::bucket::{
    Bucket, ByteRange, Creation, ListPage, ListRequest, ListedObject, ObjectHead, OnBucketResult,
    ReadResult,
};
use crate::error::{BucketError, BucketFailure};
use crate::key::{KeyPrefix, ObjectKey};
use bytes::Bytes;
use std::sync::mpsc;

/// A view of a bucket whose methods wait for the result.
#[derive(Clone, Copy)]
pub struct BlockingBucket<'b>(pub &'b dyn Bucket);

impl BlockingBucket<'_> {
    /// Creates an object like [`Bucket::put_new`] and waits for the result.
    pub fn put_new(self, key: &ObjectKey, bytes: Bytes) -> Creation {
        let result = wait(|done| self.0.put_new(key, bytes, done));
        result.unwrap_or_else(Creation::Ambiguous)
    }

    /// Reads an object like [`Bucket::get`] and waits for the result.
    pub fn get(self, key: &ObjectKey) -> ReadResult<Bytes> {
        wait(|done| self.0.get(key, done))?
    }

    /// Reads ranges like [`Bucket::get_ranges`] and waits for the result.
    pub fn get_ranges(self, key: &ObjectKey, ranges: &[ByteRange]) -> ReadResult<Vec<Bytes>> {
        wait(|done| self.0.get_ranges(key, ranges, done))?
    }

    /// Reads one range like [`Bucket::get_ranges`] and waits for the result.
    pub fn get_range(self, key: &ObjectKey, range: ByteRange) -> ReadResult<Bytes> {
        let found = self.get_ranges(key, &[range])?;
        Ok(found.and_then(|ranges| ranges.into_iter().next()))
    }

    /// Returns size and time of an object like [`Bucket::head`] and waits for the result.
    pub fn head(self, key: &ObjectKey) -> ReadResult<ObjectHead> {
        wait(|done| self.0.head(key, done))?
    }

    /// Lists a page like [`Bucket::list`] and waits for the result.
    pub fn list(self, request: &ListRequest) -> Result<ListPage, BucketError> {
        wait(|done| self.0.list(request, done))?
    }

    /// Lists all objects with a prefix, page by page. Fails with [`BucketFailure::Limited`] if
    /// there are more than `objects_max`.
    pub fn list_all(
        self,
        prefix: &KeyPrefix,
        objects_max: usize,
    ) -> Result<Vec<ListedObject>, BucketError> {
        let mut found = Vec::new();
        let mut next = Some(ListRequest::all(prefix.clone()));
        while let Some(request) = next {
            let page = self.list(&request)?;
            next = page.next(&request);
            found.extend(page.objects);
            if found.len() > objects_max {
                let text = format!("list {prefix}: more than {objects_max} objects");
                return Err(BucketError::new(BucketFailure::Limited, text));
            }
        }
        Ok(found)
    }

    /// Deletes an object like [`Bucket::delete`] and waits for the result.
    pub fn delete(self, key: &ObjectKey) -> Result<(), BucketError> {
        wait(|done| self.0.delete(key, done))?
    }
}

/// Starts an operation and waits until its result arrives, or is given up.
fn wait<T: Send + 'static>(start: impl FnOnce(OnBucketResult<T>)) -> Result<T, BucketError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    // The receiver exists until the result has arrived.
    start(Box::new(move |result| drop(sender.send(result))));
    receiver.recv().map_err(|_| {
        let text = "the bucket was stopped before the operation finished";
        BucketError::new(BucketFailure::Stopped, text)
    })
}
