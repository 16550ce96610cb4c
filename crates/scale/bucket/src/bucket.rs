//! The interface to object storage: operations that call back, and their results.
//!
//! ```text
//! caller (a state machine, any thread) -- put_new(key, bytes, done) --> Bucket
//!        <-- done(Creation) -- a thread of the bucket, or the scheduler of a simulation
//! ```
//!
//! Invariant: an operation is one attempt. Nothing is repeated after an error, and an object is
//! never replaced. The caller resolves ambiguous results: it reads the object and compares.

use crate::error::{BucketError, BucketFailure};
use crate::key::{KeyPrefix, ObjectKey};
use bytes::Bytes;

/// Maximum number of objects in one page of a list, as in S3.
pub const LIST_OBJECTS_MAX: usize = 1000;

/// The receiver of a result. It is called once, from any thread, and must not block. An operation
/// that is refused at once calls it before the method returns, so that no lock may be held that it
/// needs.
pub type OnBucketResult<T> = Box<dyn FnOnce(T) + Send>;

/// The result of a read: `None` if there is no object.
pub type ReadResult<T> = Result<Option<T>, BucketError>;

/// Objects under keys that are created once and never change. All methods return immediately and
/// pass their result to `done`. Only the client of a crashed simulated node drops `done` uncalled.
///
/// Implementations: [`crate::ObjectStoreBucket`] and, for tests, [`crate::sim::SimBucket`].
pub trait Bucket: Send + Sync {
    /// Creates an object if there is none under the key.
    fn put_new(&self, key: &ObjectKey, bytes: Bytes, done: OnBucketResult<Creation>);

    /// Reads an object completely.
    fn get(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<Bytes>>);

    /// Reads ranges of an object, in the given order. A range has fewer bytes than requested only
    /// if it extends beyond the end of the object.
    fn get_ranges(
        &self,
        key: &ObjectKey,
        ranges: &[ByteRange],
        done: OnBucketResult<ReadResult<Vec<Bytes>>>,
    );

    /// Returns size and time of an object.
    fn head(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<ObjectHead>>);

    /// Lists one page of objects, in ascending order of their keys.
    fn list(&self, request: &ListRequest, done: OnBucketResult<Result<ListPage, BucketError>>);

    /// Deletes an object. Succeeds if there is none.
    fn delete(&self, key: &ObjectKey, done: OnBucketResult<Result<(), BucketError>>);
}

/// The result of a creation. The object has exactly the given bytes, or it was not created by this
/// operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// The object is stored durably, and was created by this operation.
    Stored,
    /// There is an object under the key. An earlier or hedged attempt of the caller may have
    /// created it.
    Exists,
    /// The object may exist, may be created later, or neither. Read it to find out.
    Ambiguous(BucketError),
    /// This operation did not create the object, and will not create it later.
    Refused(BucketError),
}

impl Creation {
    /// Returns the error, if the creation has one.
    pub fn error(&self) -> Option<&BucketError> {
        match self {
            Creation::Stored | Creation::Exists => None,
            Creation::Ambiguous(error) | Creation::Refused(error) => Some(error),
        }
    }
}

/// A range of bytes of an object, which is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// Creates the range of `bytes` bytes at `start`. Panics if it is empty or too large.
    pub fn new(start: u64, bytes: u64) -> Self {
        assert!(bytes > 0, "an empty range of an object");
        let end = start
            .checked_add(bytes)
            .expect("an object has below 2^64 bytes");
        Self { start, end }
    }

    /// Returns the offset of the first byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Returns the offset behind the last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// Returns the bytes of `object` within the range.
    pub fn of(self, object: &Bytes) -> Bytes {
        let place =
            |offset: u64| usize::try_from(offset).map_or(object.len(), |o| o.min(object.len()));
        object.slice(place(self.start)..place(self.end))
    }
}

/// Properties of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the creation in milliseconds since the Unix epoch, by the clock of the store.
    pub modified_ms: i64,
}

/// A page of a list to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The listed objects have keys with this prefix.
    pub prefix: KeyPrefix,
    /// The listed objects have keys after this one.
    pub start_after: Option<ObjectKey>,
    /// Maximum number of objects: 1 to [`LIST_OBJECTS_MAX`].
    pub limit: usize,
}

impl ListRequest {
    /// Creates a request for the first page of all objects with the prefix.
    pub fn all(prefix: KeyPrefix) -> Self {
        Self {
            prefix,
            start_after: None,
            limit: LIST_OBJECTS_MAX,
        }
    }

    /// Sets the key after which the page starts.
    #[must_use]
    pub fn after(mut self, key: Option<ObjectKey>) -> Self {
        self.start_after = key;
        self
    }

    /// Returns an error if the limit is out of bounds.
    pub(crate) fn check(&self) -> Result<(), BucketError> {
        if (1..=LIST_OBJECTS_MAX).contains(&self.limit) {
            return Ok(());
        }
        let text = format!(
            "list {}: {} objects in a page, limit {LIST_OBJECTS_MAX}",
            self.prefix, self.limit
        );
        Err(BucketError::new(BucketFailure::Invalid, text))
    }
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// The key of the object.
    pub key: ObjectKey,
    /// Size and time of the object.
    pub head: ObjectHead,
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects, in strictly ascending order of their keys.
    pub objects: Vec<ListedObject>,
    /// Whether more objects may follow. They are after the last key of this page.
    pub is_truncated: bool,
}

impl ListPage {
    /// Returns the request for the next page, if there may be one.
    pub fn next(&self, request: &ListRequest) -> Option<ListRequest> {
        let last = self.objects.last().filter(|_| self.is_truncated)?;
        Some(request.clone().after(Some(last.key.clone())))
    }

    /// Checks that the page is an answer to `request`, since stores are not trusted: keys ascend,
    /// have the prefix and are after the start.
    pub(crate) fn check(self, request: &ListRequest) -> Result<Self, BucketError> {
        let wrong = |reason: String| {
            let text = format!("list {}: {reason}", request.prefix);
            Err(BucketError::new(BucketFailure::WrongAnswer, text))
        };
        if self.is_truncated && self.objects.is_empty() {
            return wrong("the store returned an empty page that is not the last".into());
        }
        let mut before = request.start_after.as_ref();
        for object in &self.objects {
            if !object.key.as_str().starts_with(request.prefix.as_str()) {
                return wrong(format!(
                    "the store returned {} without the prefix",
                    object.key
                ));
            }
            if let Some(before) = before.filter(|before| **before >= object.key) {
                return wrong(format!("the store returned {} after {before}", object.key));
            }
            before = Some(&object.key);
        }
        Ok(self)
    }
}
