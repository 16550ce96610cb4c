//! Tests of the crate: the client over a scripted store, S3 against a small server in the test, a
//! folder with racing threads, the simulated store, and the check over all of them.

mod check;
mod client;
mod credentials;
mod folder;
mod s3;
mod s3_server;
mod sim;

use crate::*;
use bytes::Bytes;
use std::sync::Arc;
use tokio::runtime::{Handle, Runtime};

pub(crate) fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).unwrap()
}

pub(crate) fn keys(page: &ListPage) -> Vec<&str> {
    page.objects
        .iter()
        .map(|object| object.key.as_str())
        .collect()
}

pub(crate) fn list(prefix: &str) -> ListRequest {
    ListRequest::all(KeyPrefix::new(prefix).unwrap())
}

/// Opens a bucket with metrics of its own.
pub(crate) fn open(url: &str, options: &BucketOptions, runtime: &Handle) -> ObjectStoreBucket {
    let environment = AwsEnvironment::default();
    let metrics = Arc::new(BucketMetrics::default());
    ObjectStoreBucket::open(url, options, &environment, runtime, metrics).unwrap()
}

/// Threads and timers for a test whose own thread waits.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// The kind of a creation with the failure of its error.
pub(crate) fn kind(creation: &Creation) -> (&'static str, Option<BucketFailure>) {
    let name = match creation {
        Creation::Stored => "stored",
        Creation::Exists => "exists",
        Creation::Ambiguous(_) => "ambiguous",
        Creation::Refused(_) => "refused",
    };
    (name, creation.error().map(|error| error.failure))
}

/// Operations of every bucket that work without faults.
pub(crate) fn check_operations(bucket: &dyn Bucket) {
    let bucket = BlockingBucket(bucket);
    let object = Bytes::from_static(b"0123456789");
    let name = key("log/3/00000000000000000001");
    assert_eq!(bucket.head(&name), Ok(None));
    assert_eq!(bucket.get(&name), Ok(None));
    assert_eq!(bucket.get_range(&name, ByteRange::new(0, 4)), Ok(None));
    assert_eq!(bucket.put_new(&name, object.clone()), Creation::Stored);
    assert_eq!(
        bucket.put_new(&name, Bytes::from_static(b"other")),
        Creation::Exists
    );
    assert_eq!(bucket.get(&name), Ok(Some(object.clone())));
    assert_eq!(bucket.head(&name).unwrap().unwrap().bytes, 10);
    let ranges = [(0, 4), (8, 100), (10, 1), (500, 3), (3, 1)];
    let ranges = ranges.map(|(start, bytes)| ByteRange::new(start, bytes));
    let expected = ["0123", "89", "", "", "3"].map(Bytes::from);
    assert_eq!(
        bucket.get_ranges(&name, &ranges),
        Ok(Some(expected.to_vec()))
    );
    let empty = key("state/!-_.*'()");
    assert_eq!(bucket.put_new(&empty, Bytes::new()), Creation::Stored);
    assert_eq!(bucket.get(&empty), Ok(Some(Bytes::new())));
    check_lists(bucket);
    for name in [&name, &name, &empty] {
        assert_eq!(bucket.delete(name), Ok(()));
        assert_eq!(bucket.get(name), Ok(None));
    }
    assert_eq!(
        bucket.put_new(&name, object),
        Creation::Stored,
        "created after the deletion"
    );
}

fn check_lists(bucket: BlockingBucket<'_>) {
    // In the order of bytes: a dash, a dot, a slash, a digit.
    let names = ["o/a-b", "o/a.b", "o/a/a", "o/a/b/c", "o/a/d", "o/a0", "o/b"];
    for name in names.iter().rev() {
        assert_eq!(
            bucket.put_new(&key(name), Bytes::from_static(b"x")),
            Creation::Stored
        );
    }
    for (prefix, expected) in [
        ("o/", &names[..]),
        ("o", &names),
        ("o/a", &names[..6]),
        ("o/a/", &names[2..5]),
        ("o/a/b/c", &names[3..4]),
        ("o/a/x", &[]),
        ("p", &[]),
    ] {
        let found = bucket
            .list_all(&KeyPrefix::new(prefix).unwrap(), 100)
            .unwrap();
        let found: Vec<&str> = found.iter().map(|object| object.key.as_str()).collect();
        assert_eq!(found, expected, "prefix {prefix}");
    }
    for (index, start) in names.iter().enumerate() {
        let request = ListRequest {
            limit: 2,
            ..list("o/").after(Some(key(start)))
        };
        let page = bucket.list(&request).unwrap();
        let rest = &names[index + 1..];
        assert_eq!(keys(&page), &rest[..rest.len().min(2)], "after {start}");
        assert_eq!(page.is_truncated, rest.len() > 2, "after {start}");
    }
    let page = bucket.list(&list("o/").after(Some(key("o/a/c")))).unwrap();
    assert_eq!(keys(&page), &names[4..], "after a key that does not exist");
    let too_many = bucket
        .list_all(&KeyPrefix::new("o/").unwrap(), 6)
        .unwrap_err();
    assert_eq!(too_many.failure, BucketFailure::Limited);
    let bad = ListRequest {
        limit: 0,
        ..list("o/")
    };
    assert_eq!(
        bucket.list(&bad).unwrap_err().failure,
        BucketFailure::Invalid
    );
}
