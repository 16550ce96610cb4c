//! One attempt of each operation at a store. The client adds time, budget, hedging and metrics.

pub(crate) mod folder;
pub(crate) mod s3;

use crate::bucket::{ByteRange, Creation, ListPage, ListRequest, ObjectHead, ReadResult};
use crate::byte_budget::ByteReservation;
use crate::error::BucketError;
use crate::key::ObjectKey;
use async_trait::async_trait;
use bytes::Bytes;

/// A store. Each method is one attempt and never repeats a request. A dropped future cancels the
/// attempt, whose effect is then unknown.
#[async_trait]
pub(crate) trait StoreBackend: Send + Sync {
    /// Creates an object if there is none under the key.
    async fn put_new(&self, key: &ObjectKey, bytes: Bytes) -> Creation;

    /// Reads an object. Reserves its bytes as soon as its size is known.
    async fn get(&self, key: &ObjectKey, room: &mut ByteReservation) -> ReadResult<Bytes>;

    /// Reads a range of an object, whose bytes the caller has reserved.
    async fn get_range(&self, key: &ObjectKey, range: ByteRange) -> ReadResult<Bytes>;

    /// Returns size and time of an object.
    async fn head(&self, key: &ObjectKey) -> ReadResult<ObjectHead>;

    /// Lists a page. The caller checks the order.
    async fn list(&self, request: &ListRequest) -> Result<ListPage, BucketError>;

    /// Deletes an object, if there is one.
    async fn delete(&self, key: &ObjectKey) -> Result<(), BucketError>;
}
