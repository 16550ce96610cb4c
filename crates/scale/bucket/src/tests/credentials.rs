//! Where requests go and with which credentials: every source of credentials uses the connector of
//! this crate.

use super::s3_server::S3Server;
use super::*;
use crate::backend::StoreBackend;
use crate::backend::s3::S3Backend;
use crate::open::s3_store;
use async_trait::async_trait;
use firn_http_client::Secret;
use hyper::Response;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use std::sync::Mutex;

/// A transport that records requests and answers them from a table.
#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl HttpConnector for Recorder {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let key = object_store::client::ClientConfigKey::AllowHttp;
        let allows_http = options.get_config_value(&key).unwrap();
        Ok(HttpClient::new(RecordingService {
            recorder: self.clone(),
            allows_http,
        }))
    }
}

#[derive(Debug)]
struct RecordingService {
    recorder: Recorder,
    allows_http: String,
}

const INSTANCE: &str = r#"{"AccessKeyId":"AKROLE","SecretAccessKey":"s","Token":"role-token",
    "Expiration":"2100-01-01T00:00:00Z"}"#;

const IDENTITY: &str = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>\
    <Credentials><SessionToken>web-token</SessionToken><SecretAccessKey>s</SecretAccessKey>\
    <AccessKeyId>AKWEB</AccessKeyId><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>\
    </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";

#[async_trait]
impl HttpService for RecordingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri();
        let place = format!(
            "{}://{}{}",
            uri.scheme_str().unwrap(),
            uri.authority().unwrap(),
            uri.path()
        );
        let authorization = request.headers().get("authorization");
        let authorization = authorization.map_or("", |value| value.to_str().unwrap());
        let user = authorization
            .split("Credential=")
            .nth(1)
            .unwrap_or_default();
        let user = user.split('/').next().unwrap_or_default();
        let line = format!("{} {place} {user}", request.method());
        self.recorder
            .0
            .lock()
            .unwrap()
            .push(line.trim_end().to_owned());
        if place.starts_with("http:") {
            assert_eq!(self.allows_http, "true", "{place}");
        }
        let body = if place.ends_with("security-credentials/") {
            "role"
        } else if place.ends_with("/token") {
            "token"
        } else if place.contains("sts") {
            IDENTITY
        } else if place.contains("169.254") || place.contains("imds") {
            INSTANCE
        } else {
            ""
        };
        let response = Response::builder()
            .header("ETag", "\"tag\"")
            .body(body.to_owned().into());
        Ok(response.unwrap())
    }
}

/// Creates an object and returns the requests.
async fn requests(options: &BucketOptions, environment: &[(&str, &str)]) -> Vec<String> {
    let recorder = Recorder::default();
    let environment = AwsEnvironment::of(environment);
    let store = s3_store("metrics", options, &environment, recorder.clone()).unwrap();
    let backend = S3Backend::new(store, "prod", 1 << 20);
    let created = backend.put_new(&key("a"), Bytes::from_static(b"x")).await;
    assert_eq!(created, Creation::Stored);
    let recorded = recorder.0.lock().unwrap();
    recorded.clone()
}

fn keys() -> BucketOptions {
    BucketOptions {
        access_key: Some(Secret::Inline("AKCONFIG".into())),
        secret_key: Some(Secret::Inline("s".into())),
        ..BucketOptions::default()
    }
}

#[tokio::test]
async fn credentials_come_from_the_first_source_through_the_connector() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "jwt").unwrap();
    let token = token.path().to_str().unwrap();
    let default = BucketOptions::default();
    const AWS: &str = "https://s3.us-east-1.amazonaws.com/metrics/prod/a";
    let check = async |options: &BucketOptions, environment: &[(&str, &str)], expected: &[&str]| {
        assert_eq!(
            requests(options, environment).await,
            expected,
            "{environment:?}"
        );
    };
    let user = ("AWS_ACCESS_KEY_ID", "AKENV");
    let pair = [user, ("AWS_SECRET_ACCESS_KEY", "s")];
    check(&keys(), &pair, &[&format!("PUT {AWS} AKCONFIG")]).await;
    check(&default, &pair, &[&format!("PUT {AWS} AKENV")]).await;
    let web = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_REGION", "eu-west-1"),
    ];
    let place = "https://s3.eu-west-1.amazonaws.com/metrics/prod/a";
    let sts = "POST https://sts.eu-west-1.amazonaws.com/";
    check(&default, &web, &[sts, &format!("PUT {place} AKWEB")]).await;
    let container = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/creds")];
    let service = "GET http://169.254.170.2/creds";
    check(
        &default,
        &container,
        &[service, &format!("PUT {AWS} AKROLE")],
    )
    .await;
    let instance = [
        "PUT http://169.254.169.254/latest/api/token",
        "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/",
        "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/role",
        &format!("PUT {AWS} AKROLE"),
    ];
    check(&default, &[], &instance).await;
}

#[tokio::test]
async fn endpoint_and_region_come_from_options_before_the_environment() {
    let at = |endpoint: &str, is_virtual_hosted| BucketOptions {
        endpoint: Some(endpoint.into()),
        is_virtual_hosted,
        ..keys()
    };
    let environment = [
        ("AWS_ENDPOINT_URL", "http://env:1"),
        ("AWS_REGION", "eu-north-1"),
    ];
    for (options, expected) in [
        (keys(), "PUT http://env:1/metrics/prod/a AKCONFIG"),
        (
            at("http://own:2/", false),
            "PUT http://own:2/metrics/prod/a AKCONFIG",
        ),
        (
            at("https://own", false),
            "PUT https://own/metrics/prod/a AKCONFIG",
        ),
        (
            at("https://own:3", true),
            "PUT https://metrics.own:3/prod/a AKCONFIG",
        ),
    ] {
        assert_eq!(requests(&options, &environment).await, [expected]);
    }
}

#[test]
fn options_that_exclude_each_other_are_rejected() {
    let half = BucketOptions {
        secret_key: None,
        ..keys()
    };
    let token = BucketOptions {
        session_token: Some(Secret::Inline("t".into())),
        ..BucketOptions::default()
    };
    let at = |endpoint: &str| BucketOptions {
        endpoint: Some(endpoint.into()),
        ..keys()
    };
    for (options, part) in [
        (half, "an access key and a secret key are necessary"),
        (token, "an access key and a secret key are necessary"),
        (at("127.0.0.1:7070"), "expected http:// or https://"),
        (at("ftp://host"), "expected http:// or https://"),
        (at("http://user:hidden@host"), "without a user"),
        (at("http://"), "expected a host"),
    ] {
        let store = s3_store(
            "b",
            &options,
            &AwsEnvironment::default(),
            Recorder::default(),
        );
        let text = store.unwrap_err().message;
        assert!(text.contains(part) && !text.contains("hidden"), "{text}");
    }
}

#[test]
fn credentials_of_an_instance_arrive_over_own_connections() {
    let server = S3Server::start();
    let runtime = runtime();
    let endpoint = format!("http://{}", server.address);
    let options = BucketOptions {
        endpoint: Some(endpoint.clone()),
        ..BucketOptions::default()
    };
    let environment = AwsEnvironment::of(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint)]);
    let metrics = Arc::new(BucketMetrics::default());
    let url = "s3://bucket";
    let bucket =
        ObjectStoreBucket::open(url, &options, &environment, runtime.handle(), metrics).unwrap();
    let bucket = BlockingBucket(&bucket);
    for name in ["a", "b"] {
        assert_eq!(bucket.put_new(&key(name), Bytes::new()), Creation::Stored);
    }
    let requests = server.take_requests();
    let paths: Vec<&str> = requests
        .iter()
        .map(|request| request.path.as_str())
        .collect();
    let roles = "/latest/meta-data/iam/security-credentials/";
    let role = format!("{roles}role");
    assert_eq!(
        paths,
        ["/latest/api/token", roles, &role, "/bucket/a", "/bucket/b"]
    );
    let signed = &requests[3].headers;
    assert!(signed["authorization"].contains("Credential=AKINSTANCE/"));
    assert_eq!(signed["x-amz-security-token"], "instance-token");
    assert!(signed["user-agent"].starts_with("Firn/"));
}

#[test]
fn missing_credentials_refuse_creations_and_name_the_cause() {
    let server = S3Server::start();
    let runtime = runtime();
    let keys = super::s3::options(&server);
    let options = BucketOptions {
        access_key: Some(Secret::File("/missing/key".into())),
        ..keys
    };
    let bucket = open("s3://bucket", &options, runtime.handle());
    let created = BlockingBucket(&bucket).put_new(&key("a"), Bytes::new());
    assert_eq!(kind(&created), ("refused", Some(BucketFailure::Denied)));
    let text = &created.error().unwrap().message;
    assert!(text.contains("/missing/key"), "{text}");
    assert!(server.take_requests().is_empty());
}

#[test]
fn plain_connection_for_a_web_identity_is_refused() {
    let server = S3Server::start();
    let runtime = runtime();
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "hidden-jwt").unwrap();
    let endpoint = format!("http://{}", server.address);
    let environment = AwsEnvironment::of(&[
        (
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            token.path().to_str().unwrap(),
        ),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_ENDPOINT_URL_STS", &endpoint),
        ("AWS_ENDPOINT_URL", &endpoint),
    ]);
    let metrics = Arc::new(BucketMetrics::default());
    let options = BucketOptions::default();
    let bucket =
        ObjectStoreBucket::open("s3://b", &options, &environment, runtime.handle(), metrics)
            .unwrap();
    let created = BlockingBucket(&bucket).put_new(&key("a"), Bytes::new());
    assert_eq!(kind(&created), ("refused", Some(BucketFailure::Denied)));
    let text = &created.error().unwrap().message;
    assert!(!text.contains("hidden"), "{text}");
    assert!(server.take_requests().is_empty());
}
