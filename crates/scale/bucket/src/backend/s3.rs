//! A store that implements the protocol of S3, through the crate `object_store`.
//!
//! | response to a creation | result |
//! |---|---|
//! | 2xx | stored |
//! | 412, 304 | exists |
//! | 409, 408, 429, 5xx, lost connection | ambiguous |
//! | other 3xx and 4xx, no connection, no credentials | refused |
//!
//! Results are taken from the status of the response, not from the error of `object_store`, which
//! is the same for 409 and 412.

use super::StoreBackend;
use crate::bucket::{
    ByteRange, Creation, ListPage, ListRequest, ListedObject, ObjectHead, ReadResult,
};
use crate::byte_budget::ByteReservation;
use crate::error::{BucketError, BucketFailure};
use crate::key::ObjectKey;
use crate::transport::Exchange;
use crate::transport::exchange::ExchangeAnswer;
use async_trait::async_trait;
use bytes::Bytes;
use hyper::http::Extensions;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload,
};

/// Maximum size of a response without an object: a page of a list with the longest keys, each of
/// which is written with escapes.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// Error code with which 404 does not mean a missing object. HEAD has no code, so that it reports a
/// missing bucket as a missing object.
const NO_BUCKET: &str = "NoSuchBucket";

/// A store of S3 objects below a prefix.
#[derive(Debug)]
pub(crate) struct S3Backend {
    store: AmazonS3,
    /// Prefix of all keys: empty, or with a final slash.
    prefix: String,
    object_bytes_max: usize,
}

impl S3Backend {
    /// Creates the backend for keys below `prefix`, which has no slashes at its ends.
    pub(crate) fn new(store: AmazonS3, prefix: &str, object_bytes_max: u64) -> Self {
        assert!(!prefix.starts_with('/') && !prefix.ends_with('/'));
        let prefix = match prefix {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Self {
            store,
            prefix,
            object_bytes_max: usize::try_from(object_bytes_max).unwrap_or(usize::MAX),
        }
    }

    fn path(&self, key: &ObjectKey) -> Result<Path, BucketError> {
        let path = Path::parse(format!("{}{key}", self.prefix));
        path.map_err(|e| BucketError::new(BucketFailure::Invalid, format!("key {key}: {e}")))
    }

    /// Requests an object or a part of it. `None` if there is none.
    async fn read(
        &self,
        subject: &Subject<'_>,
        key: &ObjectKey,
        exchange: &Exchange,
        mut options: GetOptions,
    ) -> ReadResult<GetResult> {
        options.extensions = extensions(exchange);
        let result = self.store.get_opts(&self.path(key)?, options).await;
        let error = match result {
            Ok(found) => return Ok(Some(found)),
            Err(error) => error,
        };
        match exchange.answer() {
            Some(ExchangeAnswer::Status {
                status: 404, code, ..
            }) if code != NO_BUCKET => Ok(None),
            answer => Err(subject.failed(answer, &error)),
        }
    }
}

#[async_trait]
impl StoreBackend for S3Backend {
    async fn put_new(&self, key: &ObjectKey, bytes: Bytes) -> Creation {
        let subject = Subject("create", key.as_str());
        let path = match self.path(key) {
            Ok(path) => path,
            Err(error) => return Creation::Refused(error),
        };
        let exchange = Exchange::new(DOCUMENT_BYTES_MAX);
        let options = PutOptions {
            mode: PutMode::Create,
            extensions: extensions(&exchange),
            ..PutOptions::default()
        };
        let payload = PutPayload::from_bytes(bytes);
        match self.store.put_opts(&path, payload, options).await {
            Ok(_) => Creation::Stored,
            Err(error) => creation(&subject, exchange.answer(), &error),
        }
    }

    async fn get(&self, key: &ObjectKey, room: &mut ByteReservation) -> ReadResult<Bytes> {
        let subject = Subject("read", key.as_str());
        let exchange = Exchange::new(self.object_bytes_max);
        let options = GetOptions::default();
        let found = self.read(&subject, key, &exchange, options).await?;
        let Some(found) = found else { return Ok(None) };
        let bytes = found.meta.size;
        room.reserve(bytes).await.map_err(|e| subject.wrapped(e))?;
        body(&subject, found, bytes).await.map(Some)
    }

    async fn get_range(&self, key: &ObjectKey, range: ByteRange) -> ReadResult<Bytes> {
        let text = format!("{key} at {}", range.start());
        let subject = Subject("read", &text);
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.start()..range.end())),
            ..GetOptions::default()
        };
        let exchange = Exchange::new(self.object_bytes_max);
        let read = self.read(&subject, key, &exchange, options).await;
        if let Some(ExchangeAnswer::Status { status: 416, .. }) = exchange.answer() {
            // The object ends before the range.
            return Ok(Some(Bytes::new()));
        }
        let Some(found) = read? else { return Ok(None) };
        let bytes = found.range.end - found.range.start;
        body(&subject, found, bytes).await.map(Some)
    }

    async fn head(&self, key: &ObjectKey) -> ReadResult<ObjectHead> {
        let subject = Subject("head", key.as_str());
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let exchange = Exchange::new(DOCUMENT_BYTES_MAX);
        let found = self.read(&subject, key, &exchange, options).await?;
        Ok(found.map(|found| head_of(&found.meta)))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, BucketError> {
        let subject = Subject("list", request.prefix.as_str());
        let exchange = Exchange::new(DOCUMENT_BYTES_MAX);
        let after = request.start_after.as_ref();
        let options = PaginatedListOptions {
            offset: after.map(|key| format!("{}{key}", self.prefix)),
            max_keys: Some(request.limit),
            extensions: extensions(&exchange),
            ..PaginatedListOptions::default()
        };
        let prefix = format!("{}{}", self.prefix, request.prefix);
        let prefix = Some(prefix.as_str()).filter(|prefix| !prefix.is_empty());
        let page = self.store.list_paginated(prefix, options).await;
        let page = page.map_err(|e| subject.failed(exchange.answer(), &e))?;
        let objects = page.result.objects.iter();
        let objects: Result<_, _> = objects.map(|meta| self.listed(&subject, meta)).collect();
        Ok(ListPage {
            objects: objects?,
            is_truncated: page.page_token.is_some(),
        })
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), BucketError> {
        let exchange = Exchange::new(DOCUMENT_BYTES_MAX);
        let path = self.path(key)?;
        match exchange.of_deletion(self.store.delete(&path)).await {
            Ok(()) => Ok(()),
            Err(error) => match exchange.answer() {
                Some(ExchangeAnswer::Status {
                    status: 404, code, ..
                }) if code != NO_BUCKET => Ok(()),
                answer => Err(Subject("delete", key.as_str()).failed(answer, &error)),
            },
        }
    }
}

impl S3Backend {
    fn listed(
        &self,
        subject: &Subject<'_>,
        meta: &ObjectMeta,
    ) -> Result<ListedObject, BucketError> {
        let path = meta.location.as_ref();
        let key = path.strip_prefix(self.prefix.as_str()).unwrap_or_default();
        let key = ObjectKey::new(key).map_err(|_| {
            let path: String = path.chars().take(100).collect();
            subject.error(
                BucketFailure::Invalid,
                format!("found a foreign object {path:?}"),
            )
        })?;
        Ok(ListedObject {
            key,
            head: head_of(meta),
        })
    }
}

/// The operation and the key or prefix, with which error texts begin.
struct Subject<'s>(&'static str, &'s str);

impl Subject<'_> {
    fn error(&self, failure: BucketFailure, reason: impl std::fmt::Display) -> BucketError {
        BucketError::new(failure, format!("{} {}: {reason}", self.0, self.1))
    }

    fn wrapped(&self, error: BucketError) -> BucketError {
        self.error(error.failure, error.message)
    }

    /// Builds the error of a request that ended with `answer`.
    fn failed(&self, answer: Option<ExchangeAnswer>, error: &Error) -> BucketError {
        let Some(answer) = answer else {
            // The request was never built, since there are no credentials.
            return self.error(BucketFailure::Denied, error);
        };
        match failure_of(&answer) {
            Some(failure) => self.error(failure, answer),
            // The status is fine, but not the rest of the response.
            None => self.error(BucketFailure::Damaged, error),
        }
    }
}

/// Returns the failure that an answer reports, or `None` for success.
fn failure_of(answer: &ExchangeAnswer) -> Option<BucketFailure> {
    let ExchangeAnswer::Status { status, code, .. } = answer else {
        return Some(BucketFailure::Connection);
    };
    match status {
        200..=299 => None,
        401 | 403 => Some(BucketFailure::Denied),
        404 => Some(BucketFailure::NoBucket),
        408 => Some(BucketFailure::Timeout),
        409 => Some(BucketFailure::Conflict),
        429 => Some(BucketFailure::Throttled),
        503 if code.is_empty() || code == "SlowDown" => Some(BucketFailure::Throttled),
        500.. => Some(BucketFailure::Server),
        _ => Some(BucketFailure::Invalid),
    }
}

/// Returns the result of a creation for which `object_store` returned an error.
fn creation(subject: &Subject<'_>, answer: Option<ExchangeAnswer>, error: &Error) -> Creation {
    let Some(answer) = answer else {
        return Creation::Refused(subject.failed(None, error));
    };
    let unsent = matches!(answer, ExchangeAnswer::Unsent(_));
    let status = match &answer {
        ExchangeAnswer::Status { status, .. } => *status,
        ExchangeAnswer::Unsent(_) | ExchangeAnswer::Lost(_) => 0,
    };
    let Some(failure) = failure_of(&answer) else {
        // The store accepted the object and omitted a header that `object_store` expects.
        return Creation::Stored;
    };
    let error = subject.error(failure, answer);
    match status {
        412 | 304 => Creation::Exists,
        408 | 409 | 429 | 500.. => Creation::Ambiguous(error),
        0 if !unsent => Creation::Ambiguous(error),
        _ => Creation::Refused(error),
    }
}

fn extensions(exchange: &Exchange) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(exchange.clone());
    extensions
}

/// Reads the body of a response, which must have exactly the announced size.
async fn body(
    subject: &Subject<'_>,
    found: GetResult,
    announced: u64,
) -> Result<Bytes, BucketError> {
    let read = found.bytes().await;
    let read = read.map_err(|e| {
        subject.error(
            BucketFailure::Damaged,
            format!("the response was cut off: {e}"),
        )
    })?;
    if read.len() as u64 == announced {
        return Ok(read);
    }
    let text = format!("{} of {announced} bytes arrived", read.len());
    Err(subject.error(BucketFailure::Damaged, text))
}

fn head_of(meta: &ObjectMeta) -> ObjectHead {
    ObjectHead {
        bytes: meta.size,
        modified_ms: meta.last_modified.timestamp_millis(),
    }
}
