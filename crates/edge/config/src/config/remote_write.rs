//! The section `remote_write`: receivers of forwarded samples.

use super::read;
use super::remote::{check_names, check_write, client};
use super::rules::rules;
use super::signing::{azuread, google_iam};
use firn_discovery::{AzureAdSettings, GoogleIamSettings, SigV4Settings, read_sigv4};
use firn_http_client::HttpSettings;
use firn_http_client::RequestSigner;
use firn_ingest::relabel::RelabelRule;
use firn_model::env::Clock;
use firn_model::names::NameScheme;
use firn_remote_write::forward::{host_and_port, split_user_info};
use firn_wire::remote_write::RemoteWriteVersion;
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Prometheus's default for `remote_timeout` of a receiver.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Prometheus's defaults for `min_backoff` and `max_backoff` of `queue_config`.
const BACKOFF_MIN: Duration = Duration::from_millis(30);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Prometheus's defaults for the other keys of `queue_config` that Firn uses.
const MAX_SHARDS: u64 = 50;
const MIN_SHARDS: u64 = 1;
const MAX_SAMPLES_PER_SEND: u64 = 2000;
const BATCH_SEND_DEADLINE: Duration = Duration::from_secs(5);

/// Prometheus's default for `send_interval` of `metadata_config`, for receivers of version 1.0.
const METADATA_INTERVAL: Duration = Duration::from_secs(60);

/// Value of `protobuf_message` that selects remote write 2.0.
const MESSAGE_V2: &str = "io.prometheus.write.v2.Request";

/// Settings of one receiver, with all defaults applied. Compared at a reload to detect changes.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteWriteSettings {
    /// `url`: address that requests are posted to, without a user.
    pub url: String,
    /// Key of the receiver's cursor in the queue: its name, else its URL.
    pub key: String,
    /// Name of the receiver in metrics and logs: its name, or host and port.
    pub label: String,
    /// `remote_timeout`: maximum duration of one request until its response.
    pub timeout: Duration,
    /// `write_relabel_configs`: relabeling of series before they are sent.
    pub relabel: Arc<[RelabelRule]>,
    /// `protobuf_message`: version of the remote-write protocol that the receiver gets.
    pub version: RemoteWriteVersion,
    /// `send_native_histograms`: whether native histograms are sent. Always true for version 2.0.
    pub sends_histograms: bool,
    /// `send_exemplars`: whether exemplars are sent, or dropped.
    pub sends_exemplars: bool,
    /// `max_samples_per_send` of `queue_config`: maximum number of samples in a request.
    pub request_samples: usize,
    /// `min_shards` and `max_shards` of `queue_config`: minimum and maximum number of concurrent
    /// requests.
    pub shards: (usize, usize),
    /// `batch_send_deadline` of `queue_config`: maximum time that a sample waits for a full
    /// request.
    pub fill: Duration,
    /// `metadata_config`: settings of sent metadata, or `None` if it is not sent.
    pub metadata: Option<MetadataSettings>,
    /// `min_backoff` and `max_backoff` of `queue_config`: bounds of the pause between attempts.
    pub backoff: (Duration, Duration),
    /// `sample_age_limit` of `queue_config`: maximum age of samples that are sent.
    pub age_max: Option<Duration>,
    /// Settings of the HTTP client: authentication, TLS and proxy.
    pub http: HttpSettings,
    /// `sigv4`: settings for signing requests with AWS Signature Version 4.
    pub sigv4: Option<SigV4Settings>,
    /// `azuread`: settings for authentication with Azure AD.
    pub azuread: Option<AzureAdSettings>,
    /// `google_iam`: settings for authentication with Google IAM.
    pub google_iam: Option<GoogleIamSettings>,
}

impl RemoteWriteSettings {
    /// Returns the signer of requests, if the receiver uses one of the cloud authentications.
    pub fn signer(&self, clock: Arc<dyn Clock>) -> Option<Arc<dyn RequestSigner>> {
        if let Some(sigv4) = &self.sigv4 {
            return Some(sigv4.build_signer(clock));
        }
        if let Some(azuread) = &self.azuread {
            return Some(azuread.build_signer(clock));
        }
        self.google_iam.as_ref().map(|iam| iam.build_signer(clock))
    }
}

/// Settings of the metadata sent to a receiver: interval and size of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataSettings {
    /// `send_interval`: time between two transfers of all metadata.
    pub interval: Duration,
    /// `max_samples_per_send`: maximum number of metrics in a metadata request.
    pub request_metrics: usize,
}

/// Reads the section of a config in the folder `dir`.
pub fn remote_write(
    root: &YamlNode,
    names: NameScheme,
    dir: &Path,
) -> Result<Vec<RemoteWriteSettings>, YamlError> {
    let list = root.get("remote_write").map_or(&[][..], YamlNode::items);
    let mut receivers: Vec<RemoteWriteSettings> = Vec::with_capacity(list.len());
    for node in list {
        check_write(node)?;
        receivers.push(receiver(node, names, dir)?);
    }
    check_names(list, "remote write")?;
    Ok(receivers)
}

/// Validates the URLs and keys of all receivers. As upstream, a config with an invalid one passes
/// the config check, but a server does not start with it.
pub fn check_receivers(receivers: &[RemoteWriteSettings]) -> Result<(), String> {
    for (i, receiver) in receivers.iter().enumerate() {
        host_and_port(&receiver.url).map_err(|why| format!("remote_write: url: {why}"))?;
        if receivers[..i].iter().any(|other| other.key == receiver.key) {
            return Err(format!(
                "duplicate remote write configs are not allowed, found duplicate for URL: {}",
                receiver.url
            ));
        }
    }
    Ok(())
}

fn receiver(
    node: &YamlNode,
    names: NameScheme,
    dir: &Path,
) -> Result<RemoteWriteSettings, YamlError> {
    let (url, user) = split_user_info(&read::string(node, "url"));
    let address = host_and_port(&url).unwrap_or_else(|_| url.clone());
    let name = read::text(node, "name").filter(|name| !name.is_empty());
    let queue = node.get("queue_config");
    let queued = |key: &str| queue.and_then(|queue| read::duration(queue, key));
    let backoff_min = queued("min_backoff").unwrap_or(BACKOFF_MIN);
    let counted = |key: &str, default| count(queue, key, default);
    let max_shards = counted("max_shards", MAX_SHARDS);
    let flag = |key: &str| read::flag(node, key).unwrap_or(false);
    let is_v2 = read::text(node, "protobuf_message") == Some(MESSAGE_V2);
    Ok(RemoteWriteSettings {
        key: name.unwrap_or(&url).to_owned(),
        label: name.map_or(address, str::to_owned),
        timeout: read::duration(node, "remote_timeout").unwrap_or(TIMEOUT),
        relabel: rules(node, "write_relabel_configs", names)?.into(),
        version: if is_v2 {
            RemoteWriteVersion::V2
        } else {
            RemoteWriteVersion::V1
        },
        sends_histograms: is_v2 || flag("send_native_histograms"),
        sends_exemplars: flag("send_exemplars"),
        request_samples: counted("max_samples_per_send", MAX_SAMPLES_PER_SEND),
        shards: (
            counted("min_shards", MIN_SHARDS).min(max_shards),
            max_shards,
        ),
        fill: queued("batch_send_deadline").unwrap_or(BATCH_SEND_DEADLINE),
        metadata: metadata(node.get("metadata_config")),
        backoff: (
            backoff_min,
            queued("max_backoff")
                .unwrap_or(BACKOFF_MAX)
                .max(backoff_min),
        ),
        age_max: queued("sample_age_limit").filter(|limit| !limit.is_zero()),
        http: client(node, user, dir)?,
        sigv4: read_sigv4(node, dir)?,
        azuread: azuread(node),
        google_iam: google_iam(node),
        url,
    })
}

/// Returns the count of `key`, or the default if it is unset or zero.
fn count(node: Option<&YamlNode>, key: &str, default: u64) -> usize {
    let value = node.and_then(|node| read::count(node, key));
    usize::try_from(value.unwrap_or(default)).unwrap_or(usize::MAX)
}

fn metadata(node: Option<&YamlNode>) -> Option<MetadataSettings> {
    let sends = node.and_then(|node| read::flag(node, "send"));
    let interval = node.and_then(|node| read::duration(node, "send_interval"));
    let settings = MetadataSettings {
        interval: interval.unwrap_or(METADATA_INTERVAL),
        request_metrics: count(node, "max_samples_per_send", MAX_SAMPLES_PER_SEND),
    };
    sends.unwrap_or(true).then_some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_http_client::{AuthMethod, Secret};

    fn check(text: &str, expected: Result<&[(&str, &str)], &str>) {
        let root = firn_yaml::parse(text).unwrap().unwrap();
        let read = remote_write(&root, NameScheme::Utf8, Path::new("/etc/firn"));
        match (read, expected) {
            (Ok(receivers), Ok(expected)) => {
                let found: Vec<(&str, &str)> = (receivers.iter())
                    .map(|receiver| (receiver.url.as_str(), receiver.label.as_str()))
                    .collect();
                assert_eq!(found, expected, "{text}");
            }
            (Err(e), Err(expected)) => assert!(e.to_string().contains(expected), "{text}: {e}"),
            (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn receivers_are_read_or_it_is_said_what_is_wrong_and_where() {
        check("{}", Ok(&[]));
        check(
            "remote_write: [{url: 'http://a:1/w'}, {url: 'https://u:p%40@b/w', name: b}]",
            Ok(&[("http://a:1/w", "a:1"), ("https://b/w", "b")]),
        );
        for (text, expected) in [
            (
                "remote_write: [{url: 'http://a/w', name: x}, {url: 'http://b/w', name: x}]",
                "found multiple remote write configs",
            ),
            (
                "remote_write: [{url: 'http://a/w', headers: {Authorization: x}}]",
                "authorization header must be changed via",
            ),
            (
                "remote_write: [{url: 'http://a/w', headers: {Content-Type: x}}]",
                "Content-Type is a reserved header",
            ),
        ] {
            check(text, Err(expected));
        }
    }

    #[test]
    fn receiver_that_cannot_be_sent_to_is_named_before_a_start() {
        for (text, expected) in [
            (
                "remote_write: [{url: 'http://a/w'}, {url: 'http://a/w'}]",
                "found duplicate for URL: http://a/w",
            ),
            ("remote_write: [{url: 'ftp://a/w'}]", "url: "),
            ("remote_write: [{url: ''}]", "url: "),
        ] {
            let root = firn_yaml::parse(text).unwrap().unwrap();
            let receivers = remote_write(&root, NameScheme::Utf8, Path::new("")).unwrap();
            let told = check_receivers(&receivers).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
        }
    }

    #[test]
    fn user_of_a_url_is_its_basic_authentication() {
        let root = firn_yaml::parse("remote_write: [{url: 'http://u:p%40@a/w'}]");
        let root = root.unwrap().unwrap();
        let receivers = remote_write(&root, NameScheme::Utf8, Path::new(""));
        let auth = receivers.unwrap().remove(0).http.auth;
        let expected = AuthMethod::Basic {
            username: Some(Secret::Inline("u".into())),
            password: Some(Secret::Inline("p@".into())),
        };
        assert_eq!(auth, expected);
    }
}
