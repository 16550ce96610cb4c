//! Opens the bucket that a URL and options describe.
//!
//! Invariant: options and environment cannot switch off the condition of creations, enable
//! repetitions, or allow version 1 of the metadata service.

use crate::backend::StoreBackend;
use crate::backend::folder::FolderBackend;
use crate::backend::s3::S3Backend;
use crate::client::ObjectStoreBucket;
use crate::credentials::{ConfigKeys, KeyProvider};
use crate::error::{BucketError, BucketFailure};
use crate::location::BucketUrl;
use crate::metrics::BucketMetrics;
use crate::options::{AwsEnvironment, BucketOptions};
use crate::transport::{HyperConnector, tls_config};
use firn_http_client::Secret;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::client::HttpConnector;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Variables of the environment that are used without keys in the options.
const VARIABLES: [(&str, AmazonS3ConfigKey); 10] = [
    ("AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::AccessKeyId),
    ("AWS_SECRET_ACCESS_KEY", AmazonS3ConfigKey::SecretAccessKey),
    ("AWS_SESSION_TOKEN", AmazonS3ConfigKey::Token),
    (
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        AmazonS3ConfigKey::WebIdentityTokenFile,
    ),
    ("AWS_ROLE_ARN", AmazonS3ConfigKey::RoleArn),
    ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
    ("AWS_ENDPOINT_URL_STS", AmazonS3ConfigKey::StsEndpoint),
    (
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
    ),
    (
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ),
    (
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        AmazonS3ConfigKey::ContainerAuthorizationTokenFile,
    ),
];

/// The instance metadata service at another address, for tests and for unusual networks.
const METADATA_ENDPOINT: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";

impl ObjectStoreBucket {
    /// Opens the bucket at `url`. Reads files, but sends no request. Operations run on `runtime`,
    /// which must have timers and IO. Fails with [`BucketFailure::Invalid`] and a text for the
    /// user.
    pub fn open(
        url: &str,
        options: &BucketOptions,
        environment: &AwsEnvironment,
        runtime: &Handle,
        metrics: Arc<BucketMetrics>,
    ) -> Result<Self, BucketError> {
        options.limits.check()?;
        let backend: Box<dyn StoreBackend> = match BucketUrl::parse(url)? {
            BucketUrl::Folder(path) => Box::new(FolderBackend::open(&path)?),
            BucketUrl::S3 { bucket, prefix } => {
                let bundle = environment.get("AWS_CA_BUNDLE").map(Path::new);
                let tls = tls_config(options.ca_file.as_deref().or(bundle))?;
                let connector = HyperConnector::new(tls);
                let store = s3_store(&bucket, options, environment, connector)?;
                let bytes_max = options.limits.object_bytes_max;
                Box::new(S3Backend::new(store, &prefix, bytes_max))
            }
        };
        Ok(Self::new(backend, options.limits.clone(), runtime, metrics))
    }
}

/// Builds the store with the first of: keys of the options, environment, web identity, container,
/// instance.
pub(crate) fn s3_store(
    bucket: &str,
    options: &BucketOptions,
    environment: &AwsEnvironment,
    connector: impl HttpConnector,
) -> Result<AmazonS3, BucketError> {
    let endpoint = options.endpoint.clone();
    let endpoint =
        endpoint.or_else(|| variable(environment, &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
    let region = options.region.clone();
    let region = region.or_else(|| variable(environment, &["AWS_REGION", "AWS_DEFAULT_REGION"]));
    let mut allows_http = false;
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(region.unwrap_or_else(|| "us-east-1".into()))
        .with_http_connector(connector)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_disable_bulk_delete(true)
        .with_retry(no_repetition())
        .with_virtual_hosted_style_request(options.is_virtual_hosted);
    if let Some(endpoint) = endpoint {
        let (is_plain, host) = endpoint_parts(&endpoint)?;
        allows_http = is_plain;
        builder = builder.with_endpoint(if options.is_virtual_hosted {
            let scheme = if is_plain { "http" } else { "https" };
            format!("{scheme}://{bucket}.{host}")
        } else {
            endpoint
        });
    }
    builder = builder.with_client_options(ClientOptions::new().with_allow_http(allows_http));
    builder = match keys(options)? {
        Some(keys) => builder.with_credentials(Arc::new(KeyProvider::new(keys))),
        None => with_environment(builder, environment),
    };
    builder
        .build()
        .map_err(|e| invalid(format!("bucket options: {e}")))
}

/// One attempt for each request.
fn no_repetition() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: Duration::ZERO,
    }
}

fn variable(environment: &AwsEnvironment, names: &[&str]) -> Option<String> {
    names
        .iter()
        .find_map(|name| environment.get(name))
        .map(str::to_owned)
}

fn with_environment(mut builder: AmazonS3Builder, environment: &AwsEnvironment) -> AmazonS3Builder {
    for (name, key) in VARIABLES {
        if let Some(value) = environment.get(name) {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = environment.get(METADATA_ENDPOINT) {
        builder = builder.with_metadata_endpoint(endpoint.trim_end_matches('/'));
    }
    builder
}

fn keys(options: &BucketOptions) -> Result<Option<ConfigKeys>, BucketError> {
    let pair: (Option<Secret>, Option<Secret>) =
        (options.access_key.clone(), options.secret_key.clone());
    match pair {
        (Some(access_key), Some(secret_key)) => Ok(Some(ConfigKeys {
            access_key,
            secret_key,
            session_token: options.session_token.clone(),
        })),
        (None, None) if options.session_token.is_none() => Ok(None),
        _ => Err(invalid(
            "bucket options: an access key and a secret key are necessary, or none of the keys"
                .into(),
        )),
    }
}

/// Returns whether an endpoint is without TLS, and its host with the port.
fn endpoint_parts(endpoint: &str) -> Result<(bool, &str), BucketError> {
    let (is_plain, host) = match endpoint.split_once("://") {
        Some(("http", host)) => (true, host),
        Some(("https", host)) => (false, host),
        _ => {
            return Err(invalid(format!(
                "endpoint {endpoint:?}: expected http:// or https://"
            )));
        }
    };
    let host = host.trim_end_matches('/');
    if host.is_empty() || host.contains(['@', '?', '#', ' ']) {
        // The text may contain a password.
        return Err(invalid(
            "endpoint: expected a host and a port without a user".into(),
        ));
    }
    Ok((is_plain, host))
}

fn invalid(text: String) -> BucketError {
    BucketError::new(BucketFailure::Invalid, text)
}
