//! S3 against a server in the test: each response has its result, and is requested once.

use super::s3_server::{S3Server, ServerFault};
use super::*;
use firn_http_client::Secret;

struct Fixture {
    server: S3Server,
    bucket: ObjectStoreBucket,
    // Dropped last, since operations run on it.
    _runtime: Runtime,
}

fn fixture() -> Fixture {
    let server = S3Server::start();
    let runtime = runtime();
    let options = options(&server);
    let bucket = open("s3://bucket/prod", &options, runtime.handle());
    Fixture {
        server,
        bucket,
        _runtime: runtime,
    }
}

pub(super) fn options(server: &S3Server) -> BucketOptions {
    BucketOptions {
        endpoint: Some(format!("http://{}", server.address)),
        access_key: Some(Secret::Inline("AKTEST".into())),
        secret_key: Some(Secret::Inline("hidden-secret".into())),
        session_token: Some(Secret::Inline("hidden-token".into())),
        ..BucketOptions::default()
    }
}

impl Fixture {
    fn blocking(&self) -> BlockingBucket<'_> {
        BlockingBucket(&self.bucket)
    }

    /// Checks that exactly one request was sent since the last call, and returns it.
    fn sole_request(&self) -> s3_server::ServerRequest {
        let requests = self.server.take_requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests[0].clone()
    }
}

#[test]
fn operations_without_faults_have_their_effect() {
    let fixture = fixture();
    check_operations(&fixture.bucket);
    assert!(
        fixture
            .server
            .object("bucket/prod/log/3/00000000000000000001")
            .is_some()
    );
}

#[test]
fn creation_has_the_result_of_its_response_after_one_request() {
    use BucketFailure::*;
    let fixture = fixture();
    for (index, (fault, expected, failure, is_stored)) in [
        (None, "stored", None, true),
        (Some(ServerFault::NoTag), "stored", None, true),
        (
            Some(ServerFault::Before(412, "PreconditionFailed")),
            "exists",
            None,
            false,
        ),
        (
            Some(ServerFault::Before(304, "NotModified")),
            "exists",
            None,
            false,
        ),
        (
            Some(ServerFault::After(412, "PreconditionFailed")),
            "exists",
            None,
            true,
        ),
        (
            Some(ServerFault::Before(409, "ConditionalRequestConflict")),
            "ambiguous",
            Some(Conflict),
            false,
        ),
        (
            Some(ServerFault::Before(408, "RequestTimeout")),
            "ambiguous",
            Some(Timeout),
            false,
        ),
        (
            Some(ServerFault::Before(429, "TooMany")),
            "ambiguous",
            Some(Throttled),
            false,
        ),
        (
            Some(ServerFault::Before(500, "InternalError")),
            "ambiguous",
            Some(Server),
            false,
        ),
        (
            Some(ServerFault::After(500, "InternalError")),
            "ambiguous",
            Some(Server),
            true,
        ),
        (
            Some(ServerFault::Before(503, "SlowDown")),
            "ambiguous",
            Some(Throttled),
            false,
        ),
        (
            Some(ServerFault::After(504, "Timeout")),
            "ambiguous",
            Some(Server),
            true,
        ),
        (
            Some(ServerFault::DropBefore),
            "ambiguous",
            Some(Connection),
            false,
        ),
        (
            Some(ServerFault::DropAfter),
            "ambiguous",
            Some(Connection),
            true,
        ),
        (
            Some(ServerFault::Before(403, "AccessDenied")),
            "refused",
            Some(Denied),
            false,
        ),
        (
            Some(ServerFault::Before(404, "NoSuchBucket")),
            "refused",
            Some(NoBucket),
            false,
        ),
        (
            Some(ServerFault::Before(400, "EntityTooLarge")),
            "refused",
            Some(Invalid),
            false,
        ),
        (
            Some(ServerFault::Before(301, "PermanentRedirect")),
            "refused",
            Some(Invalid),
            false,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let shown = format!("{fault:?}");
        if let Some(fault) = fault {
            fixture.server.fail_next("PUT", fault);
        }
        let name = format!("n/{index}");
        let created = fixture
            .blocking()
            .put_new(&key(&name), Bytes::from_static(b"content"));
        assert_eq!(kind(&created), (expected, failure), "{shown}");
        let stored = fixture.server.object(&format!("bucket/prod/{name}"));
        assert_eq!(stored.is_some(), is_stored, "{shown}");
        let request = fixture.sole_request();
        assert_eq!(request.headers["if-none-match"], "*");
        if let Some(error) = created.error() {
            assert!(
                error.message.starts_with(&format!("create {name}: ")),
                "{error}"
            );
        }
    }
}

#[test]
fn creation_at_a_closed_port_is_refused() {
    let runtime = runtime();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let options = BucketOptions {
        endpoint: Some(format!("http://{closed}")),
        ..options(&S3Server::start())
    };
    let bucket = open("s3://bucket", &options, runtime.handle());
    let created = BlockingBucket(&bucket).put_new(&key("a"), Bytes::from_static(b"x"));
    assert_eq!(kind(&created), ("refused", Some(BucketFailure::Connection)));
}

#[test]
fn read_with_a_fault_is_an_error_after_one_request() {
    use BucketFailure::*;
    let fixture = fixture();
    let bucket = fixture.blocking();
    let name = key("object");
    assert_eq!(
        bucket.put_new(&name, Bytes::from_static(b"0123456789")),
        Creation::Stored
    );
    fixture.server.take_requests();
    for (fault, expected) in [
        (ServerFault::CutBody, Damaged),
        (ServerFault::DropBefore, Connection),
        (ServerFault::Before(500, "InternalError"), Server),
        (ServerFault::Before(503, "SlowDown"), Throttled),
        (ServerFault::Before(403, "AccessDenied"), Denied),
        (ServerFault::Before(404, "NoSuchBucket"), NoBucket),
    ] {
        fixture.server.fail_next("GET", fault.clone());
        let error = bucket.get(&name).unwrap_err();
        assert_eq!(error.failure, expected, "get {fault:?}: {error}");
        fixture.sole_request();
        fixture.server.fail_next("GET", fault.clone());
        let error = bucket.get_range(&name, ByteRange::new(2, 4)).unwrap_err();
        assert_eq!(error.failure, expected, "get_range {fault:?}: {error}");
        fixture.sole_request();
        fixture.server.fail_next("GET", fault.clone());
        let error = bucket.list(&list("")).unwrap_err();
        assert_eq!(error.failure, expected, "list {fault:?}: {error}");
        fixture.sole_request();
    }
    fixture.server.fail_next("GET", ServerFault::NoRange);
    let error = bucket.get_range(&name, ByteRange::new(2, 4)).unwrap_err();
    assert_eq!(error.failure, Damaged, "{error}");
    fixture.server.take_requests();
    fixture
        .server
        .fail_next("HEAD", ServerFault::Before(500, ""));
    assert_eq!(bucket.head(&name).unwrap_err().failure, Server);
    fixture.sole_request();
    for (fault, expected) in [
        (ServerFault::Before(403, "AccessDenied"), Denied),
        (ServerFault::Before(503, "SlowDown"), Throttled),
        (ServerFault::Before(404, "NoSuchBucket"), NoBucket),
        (ServerFault::DropBefore, Connection),
    ] {
        fixture.server.fail_next("DELETE", fault.clone());
        let error = bucket.delete(&name).unwrap_err();
        assert_eq!(error.failure, expected, "delete {fault:?}: {error}");
        fixture.sole_request();
    }
    let fault = ServerFault::Before(500, "InternalError");
    fixture.server.fail_next("DELETE", fault);
    let text = bucket.delete(&name).unwrap_err().message;
    let expected = "delete object: status 500 InternalError: message of InternalError";
    assert_eq!(text, expected);
    let request = fixture.sole_request();
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("DELETE", "/bucket/prod/object")
    );
    fixture
        .server
        .fail_next("DELETE", ServerFault::Before(404, "NoSuchKey"));
    assert_eq!(bucket.delete(&name), Ok(()));
    assert_eq!(bucket.get(&name).unwrap().unwrap(), "0123456789");
}

#[test]
fn object_or_list_beyond_its_limit_is_an_error() {
    let server = S3Server::start();
    let runtime = runtime();
    let mut options = options(&server);
    options.limits.object_bytes_max = 1000;
    let bucket = open("s3://bucket", &options, runtime.handle());
    let bucket = BlockingBucket(&bucket);
    let created = bucket.put_new(&key("a"), vec![0; 1001].into());
    assert_eq!(kind(&created), ("refused", Some(BucketFailure::Limited)));
    assert!(server.take_requests().is_empty());
    server
        .state
        .lock()
        .unwrap()
        .objects
        .insert("bucket/a".into(), vec![0; 1001]);
    let error = bucket.get(&key("a")).unwrap_err();
    assert_eq!(error.message, "read a: 1001 bytes, limit 1000");
    let document = "x".repeat(9 << 20);
    server.fail_next("GET", ServerFault::Document(200, document));
    let error = bucket.list(&list("")).unwrap_err();
    assert_eq!(error.failure, BucketFailure::Damaged, "{error}");
}

#[test]
fn list_that_contradicts_the_request_is_an_error() {
    let fixture = fixture();
    let page = |keys: &[&str]| {
        let contents = keys.iter().map(|key| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-28T00:00:00.000Z</LastModified>\
                 <Size>1</Size></Contents>"
            )
        });
        let contents: String = contents.collect();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
    };
    use BucketFailure::*;
    for (keys, expected) in [
        (&["prod/a/1", "prod/a/3"][..], None),
        (&["prod/a/3", "prod/a/1"], Some(WrongAnswer)),
        (&["prod/a/1", "prod/a/1"], Some(WrongAnswer)),
        (&["prod/a/0"], Some(WrongAnswer)),
        (&["prod/b/1"], Some(WrongAnswer)),
        (&["other/a/1"], Some(Invalid)),
        (&["prod/a/with space"], Some(Invalid)),
    ] {
        fixture
            .server
            .fail_next("GET", ServerFault::Document(200, page(keys)));
        let request = list("a/").after(Some(key("a/0")));
        let found = fixture.blocking().list(&request);
        assert_eq!(found.err().map(|error| error.failure), expected, "{keys:?}");
    }
}

#[test]
fn error_texts_contain_no_secret() {
    let fixture = fixture();
    let document = "<Error><Code>SignatureDoesNotMatch</Code><Message>No match.</Message>\
                    <StringToSign>hidden-token</StringToSign></Error>";
    let fail = |method, status| {
        let fault = ServerFault::Document(status, document.into());
        fixture.server.fail_next(method, fault);
    };
    let bucket = fixture.blocking();
    let mut texts = Vec::new();
    fail("PUT", 403);
    let created = bucket.put_new(&key("a"), Bytes::new());
    texts.push(created.error().unwrap().message.clone());
    fail("GET", 403);
    texts.push(bucket.get(&key("a")).unwrap_err().message);
    fail("GET", 400);
    texts.push(bucket.list(&list("")).unwrap_err().message);
    fail("DELETE", 403);
    texts.push(bucket.delete(&key("a")).unwrap_err().message);
    for text in &texts {
        assert!(!text.contains("hidden"), "{text}");
        assert!(text.contains("SignatureDoesNotMatch: No match."), "{text}");
    }
    assert!(!format!("{:?}", fixture.bucket).contains("hidden"));
    let requests = fixture.server.take_requests();
    assert_eq!(requests[0].headers["x-amz-security-token"], "hidden-token");
}
