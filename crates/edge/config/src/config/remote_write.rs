//! The section `remote_write`: receivers of forwarded samples.

use super::remote::{check_names, check_write, client};
use super::rules::{RULES, rules};
use super::signing::{AZURE_AD, GOOGLE_IAM, SIGV4, azuread, google_iam};
use ConfigValueShape::{Bool, Integer, Map, Section, Text, Url};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyGroups, KeyPrinting, key};
use firn_config_schema::section::ConfigSection;
use firn_discovery::{AzureAdSettings, GoogleIamSettings, SigV4Settings, read_sigv4};
use firn_http_client::HttpSettings;
use firn_http_client::RequestSigner;
use firn_http_client::http_config::WRITE_CLIENT;
use firn_ingest::relabel::RelabelRule;
use firn_model::env::Clock;
use firn_model::names::NameScheme;
use firn_remote_write::forward::{host_and_port, split_user_info};
use firn_wire::remote_write::RemoteWriteVersion;
use firn_yaml::YamlError;
use std::sync::Arc;
use std::time::Duration;

/// Keys of an entry of the section.
pub const KEYS: KeyGroups = &[RECEIVER, WRITE_CLIENT, SENDING];

const RECEIVER: &[ConfigKey] = &[
    key("url", Url).always(""),
    key("remote_timeout", ConfigValueShape::Duration).or("30s"),
    key("headers", Map(&Text)),
    key("write_relabel_configs", RULES),
    key("name", Text),
    key("send_exemplars", Bool),
    key("send_native_histograms", Bool),
    key("round_robin_dns", Bool).ignored(),
    key("protobuf_message", Text).or("prometheus.WriteRequest"),
    key("failed_request_logging", Bool).ignored(),
];

const SENDING: &[ConfigKey] = &[
    key("queue_config", Section(&[QUEUE])).printed(KeyPrinting::UnlessZero),
    key("metadata_config", Section(&[METADATA])).printed(KeyPrinting::UnlessZero),
    key("sigv4", Section(&[SIGV4])),
    key("azuread", Section(&[AZURE_AD])),
    key("google_iam", Section(&[GOOGLE_IAM])),
];

const QUEUE: &[ConfigKey] = &[
    key("capacity", Integer).or("10000").ignored(),
    key("max_shards", Integer).or("50"),
    key("min_shards", Integer).or("1"),
    key("max_samples_per_send", Integer).or("2000"),
    key("batch_send_deadline", ConfigValueShape::Duration).or("5s"),
    key("min_backoff", ConfigValueShape::Duration).or("30ms"),
    key("max_backoff", ConfigValueShape::Duration).or("5s"),
    key("retry_on_http_429", Bool),
    key("sample_age_limit", ConfigValueShape::Duration),
];

const METADATA: &[ConfigKey] = &[
    key("send", Bool).always("true"),
    key("send_interval", ConfigValueShape::Duration).always("1m"),
    key("max_samples_per_send", Integer).or("2000"),
];

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

/// Reads the section of the config `root`.
pub fn remote_write(
    root: ConfigSection<'_>,
    names: NameScheme,
) -> Result<Vec<RemoteWriteSettings>, YamlError> {
    let list: Vec<_> = root.sections("remote_write").collect();
    let mut receivers: Vec<RemoteWriteSettings> = Vec::with_capacity(list.len());
    for section in &list {
        check_write(*section)?;
        receivers.push(receiver(*section, names)?);
    }
    check_names(&list, "remote write")?;
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
    section: ConfigSection<'_>,
    names: NameScheme,
) -> Result<RemoteWriteSettings, YamlError> {
    let (url, user) = split_user_info(section.text("url"));
    let address = host_and_port(&url).unwrap_or_else(|_| url.clone());
    let name = section.text_if_set("name");
    let queue = section.section("queue_config");
    let backoff_min = queue.duration("min_backoff");
    let shards_max = count(queue, "max_shards");
    let is_v2 = section.text("protobuf_message") == MESSAGE_V2;
    Ok(RemoteWriteSettings {
        key: name.unwrap_or(&url).to_owned(),
        label: name.map_or(address, str::to_owned),
        timeout: section.duration("remote_timeout"),
        relabel: rules(section, "write_relabel_configs", names)?.into(),
        version: if is_v2 {
            RemoteWriteVersion::V2
        } else {
            RemoteWriteVersion::V1
        },
        sends_histograms: is_v2 || section.flag("send_native_histograms"),
        sends_exemplars: section.flag("send_exemplars"),
        request_samples: count(queue, "max_samples_per_send"),
        shards: (count(queue, "min_shards").min(shards_max), shards_max),
        fill: queue.duration("batch_send_deadline"),
        metadata: metadata(section.section("metadata_config")),
        backoff: (backoff_min, queue.duration("max_backoff").max(backoff_min)),
        age_max: queue.duration_if_set("sample_age_limit"),
        http: client(section, user)?,
        sigv4: read_sigv4(section.node(), section.dir())?,
        azuread: azuread(section.node()),
        google_iam: google_iam(section.node()),
        url,
    })
}

fn count(section: ConfigSection<'_>, key: &str) -> usize {
    usize::try_from(section.count(key)).unwrap_or(usize::MAX)
}

fn metadata(section: ConfigSection<'_>) -> Option<MetadataSettings> {
    let settings = MetadataSettings {
        interval: section.duration("send_interval"),
        request_metrics: count(section, "max_samples_per_send"),
    };
    section.flag("send").then_some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::KEYS as CONFIG;
    use firn_http_client::{AuthMethod, Secret};
    use firn_yaml::YamlNode;
    use std::path::Path;

    fn read(root: &YamlNode) -> Result<Vec<RemoteWriteSettings>, YamlError> {
        let root = ConfigSection::new(Some(root), CONFIG, Path::new("/etc/firn"));
        remote_write(root, NameScheme::Utf8)
    }

    fn check(text: &str, expected: Result<&[(&str, &str)], &str>) {
        let root = firn_yaml::parse(text).unwrap().unwrap();
        match (read(&root), expected) {
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
            let receivers = read(&root).unwrap();
            let told = check_receivers(&receivers).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
        }
    }

    #[test]
    fn user_of_a_url_is_its_basic_authentication() {
        let root = firn_yaml::parse("remote_write: [{url: 'http://u:p%40@a/w'}]");
        let root = root.unwrap().unwrap();
        let auth = read(&root).unwrap().remove(0).http.auth;
        let expected = AuthMethod::Basic {
            username: Some(Secret::Inline("u".into())),
            password: Some(Secret::Inline("p@".into())),
        };
        assert_eq!(auth, expected);
    }
}
