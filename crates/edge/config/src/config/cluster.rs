//! The section `firn.cluster`: the bucket that holds the log of this node, the other nodes, and
//! settings.
//!
//! Invariants: a config with this section contains nothing that a cluster does not support yet, so
//! that no setting is silently without effect; a node never listens for peers beyond its own
//! machine without a secret or TLS.

use crate::listen_address;
use ConfigValueShape::{Bool, Duration, Path, Section, Text, Url, WholeCount};
use firn_bucket::{BucketOptions, BucketUrl};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, TEXTS, key};
use firn_config_schema::section::ConfigSection;
use firn_http_client::Secret;
use firn_yaml::{YamlError, YamlNode, YamlValue};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time;

const PARTITIONS_MAX: u64 = 1024;

const MILLISECOND: time::Duration = time::Duration::from_millis(1);

const FLUSH_INTERVALS: RangeInclusive<time::Duration> = MILLISECOND..=time::Duration::from_secs(10);

const READ_LEASES: RangeInclusive<time::Duration> =
    time::Duration::ZERO..=time::Duration::from_secs(60);

const STRONG_WAITS: RangeInclusive<time::Duration> = MILLISECOND..=time::Duration::from_secs(3600);

/// The keys of `firn.cluster`.
pub const KEYS: &[ConfigKey] = &[
    key("bucket", Text).explained(
        "",
        "Bucket that holds the log and the identity of the cluster: `s3://bucket/prefix`, or \
         `file:///path` for tests. With this key the data folder is scratch, and every \
         acknowledged sample survives its loss. See [cluster.md](cluster.md). Changes require a \
         restart, like all keys of `firn.cluster`.",
    ),
    key("bucket_options", Section(&[BUCKET_OPTIONS])),
    key("node", Text).explained(
        "",
        "Name of this node, unique in the cluster, and the label `instance` of its own metrics. \
         Without the key it is the host name. The flag `--cluster.node` replaces it.",
    ),
    key("listen", Text).explained(
        "",
        "Address on which this node listens for the other nodes, such as `10.0.0.1:9190`. Without \
         the key the node is alone and leads all partitions. Beyond loopback it requires \
         `secret_file` or `tls`. The flag `--cluster.listen-address` replaces it.",
    ),
    key("advertise", Text).explained(
        "",
        "Address at which the other nodes reach this node. Without the key it is `listen`, and for \
         `0.0.0.0` the address of the interface that leads to the peers. The flag \
         `--cluster.advertise-address` replaces it.",
    ),
    key("peers", TEXTS).explained(
        "",
        "Addresses of the nodes, `host:port`. A DNS name with several addresses stands for all of \
         them, such as a headless service of Kubernetes. This node itself may be in the list, so \
         that all nodes can have the same config.",
    ),
    key("secret_file", Path).explained(
        "",
        "File with a secret of at least 16 bytes that all nodes share. Requests between nodes \
         are authenticated with it, but not encrypted.",
    ),
    key("tls", Section(&[TLS])),
    key("partitions", WholeCount).explained(
        "12",
        "Number of partitions among which series are divided, at most 1024. Only the first node \
         of a new bucket chooses it: it cannot change, and a node with another number does not \
         start.",
    ),
    key("flush_interval", Duration).explained(
        "250ms",
        "Time for which a write waits for others before they are stored in the bucket together, \
         at most 10s. A write is acknowledged when it is stored. Shorter intervals cost more \
         requests.",
    ),
    key("read_lease", Duration).explained(
        "2s",
        "Time for which queries are answered without a request to the bucket after a write or a \
         request has confirmed that no other node took over, at most 60s. A node that takes over \
         waits as long. With `0s` each query sends one request per partition.",
    ),
    key("strong_wait", Duration).explained(
        "10s",
        "Maximum time for which a query waits for that confirmation before it fails with 503.",
    ),
];

const TLS: &[ConfigKey] = &[
    key("cert_file", Path).explained(
        "",
        "File with the certificate of this node, in PEM. Its names are those under which the \
         peers reach the node.",
    ),
    key("key_file", Path).explained("", "File with the private key of the certificate, in PEM."),
    key("ca_file", Path).explained(
        "",
        "File with the authorities that sign the certificates of all nodes, in PEM. Nodes without \
         such a certificate are rejected.",
    ),
];

const BUCKET_OPTIONS: &[ConfigKey] = &[
    key("endpoint", Url).explained(
        "",
        "URL of the store, such as `http://127.0.0.1:7070`. Without the key it is taken from \
         `AWS_ENDPOINT_URL`, else it is that of AWS.",
    ),
    key("region", Text).explained(
        "",
        "Region for signatures and for the host name of AWS. Without the key it is taken from \
         `AWS_REGION`, else it is `us-east-1`.",
    ),
    key("access_key_file", Path).explained(
        "",
        "File with the access key id. Without keys, credentials are taken from the environment, \
         then from a web identity, the container, and the instance. Changes of the files apply \
         within 30 s.",
    ),
    key("secret_key_file", Path).explained("", "File with the secret access key."),
    key("session_token_file", Path)
        .explained("", "File with the session token of temporary credentials."),
    key("ca_file", Path).explained(
        "",
        "File with the trusted certificate authorities of the store, in PEM. Without the key it is \
         taken from `AWS_CA_BUNDLE`, else those of the system are trusted.",
    ),
    key("virtual_hosted", Bool).explained(
        "false",
        "Send the name of the bucket as a part of the host name of `endpoint` instead of the path.",
    ),
];

/// The settings of a node whose log is in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `bucket`: a valid URL of a bucket.
    pub bucket: String,
    /// `bucket_options`: endpoint, region and credentials.
    pub bucket_options: BucketOptions,
    /// `node`: the name of the node, or `None` for the host name.
    pub node: Option<String>,
    /// `listen`: the address of the listener for other nodes, or `None` for a node that is alone.
    pub listen: Option<String>,
    /// `advertise`: the address at which other nodes reach this node, if it is not `listen`.
    pub advertise: Option<String>,
    /// `peers`: the addresses of the nodes.
    pub peers: Vec<String>,
    /// `secret_file`: the file with the secret of all nodes.
    pub secret_file: Option<PathBuf>,
    /// `tls`: the files of the certificates, or `None` for connections without encryption.
    pub tls: Option<PeerTlsFiles>,
    /// `partitions`: the number of partitions of the cluster.
    pub partitions: NonZeroU32,
    /// `flush_interval`: time for which a record waits for others.
    pub flush_interval: time::Duration,
    /// `read_lease`: time for which reads need no request; may be zero.
    pub read_lease: time::Duration,
    /// `strong_wait`: maximum time for which a read waits for its confirmation.
    pub strong_wait: time::Duration,
}

/// The files of the certificates of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTlsFiles {
    /// `cert_file`: the certificate of this node.
    pub cert_file: PathBuf,
    /// `key_file`: its private key.
    pub key_file: PathBuf,
    /// `ca_file`: the authorities of the certificates of all nodes.
    pub ca_file: PathBuf,
}

impl ClusterSettings {
    /// Replaces settings by those of the flags of one node, where they are set.
    pub fn replace_addresses(
        &mut self,
        node: Option<String>,
        listen: Option<String>,
        advertise: Option<String>,
    ) {
        self.node = node.or(self.node.take());
        self.listen = listen.or(self.listen.take());
        self.advertise = advertise.or(self.advertise.take());
    }

    /// Returns an error unless the listener for peers is on loopback or authenticates them.
    pub fn check_listener(&self) -> Result<(), String> {
        let Some(listen) = &self.listen else {
            let text = "firn.cluster.peers: the key listen is required too";
            return self
                .peers
                .is_empty()
                .then_some(())
                .ok_or_else(|| text.to_owned());
        };
        if is_loopback(listen) || self.secret_file.is_some() || self.tls.is_some() {
            return Ok(());
        }
        Err(format!(
            "firn.cluster.listen: {listen} is reachable from other machines, so secret_file or tls \
             is required"
        ))
    }
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let is_local = |ip: IpAddr| ip.is_loopback();
    let parsed = address.parse::<SocketAddr>().map(|address| address.ip());
    parsed.is_ok_and(is_local) || host == "localhost"
}

/// Reads the section `firn.cluster`. Returns `None` if it is not set.
pub fn cluster(section: ConfigSection<'_>) -> Result<Option<ClusterSettings>, YamlError> {
    let Some(section) = section.if_set() else {
        return Ok(None);
    };
    let Some(bucket) = section.text_if_set("bucket") else {
        return Err(section.error("firn.cluster: the key bucket is required"));
    };
    if let Err(e) = BucketUrl::parse(bucket) {
        let node = section.get("bucket").unwrap_or(section.node());
        return Err(node.error(format!("firn.cluster.bucket: {e}")));
    }
    Ok(Some(ClusterSettings {
        bucket: bucket.to_owned(),
        bucket_options: bucket_options(section.section("bucket_options"))?,
        node: section.text_if_set("node").map(str::to_owned),
        listen: address(section, "listen")?,
        advertise: address(section, "advertise")?,
        peers: peers(section)?,
        secret_file: section.path("secret_file"),
        tls: peer_tls(section.section("tls"))?,
        partitions: partitions(section)?,
        flush_interval: bounded(section, "flush_interval", &FLUSH_INTERVALS)?,
        read_lease: bounded(section, "read_lease", &READ_LEASES)?,
        strong_wait: bounded(section, "strong_wait", &STRONG_WAITS)?,
    }))
}

fn address(section: ConfigSection<'_>, key: &str) -> Result<Option<String>, YamlError> {
    let Some(text) = section.text_if_set(key) else {
        return Ok(None);
    };
    let node = section.get(key).unwrap_or(section.node());
    let checked = listen_address::checked(text);
    let checked = checked.map_err(|e| node.error(format!("firn.cluster.{key}: {e}")));
    checked.map(Some)
}

fn peers(section: ConfigSection<'_>) -> Result<Vec<String>, YamlError> {
    let checked = section.items("peers").iter().map(|item| {
        let text = item.text().unwrap_or_default();
        let has_host = !text.starts_with(':');
        let checked = listen_address::checked(text).and_then(|address| {
            let wrong = || format!("no host in address: {text:?}");
            has_host.then_some(address).ok_or_else(wrong)
        });
        checked.map_err(|e| item.error(format!("firn.cluster.peers: {e}")))
    });
    checked.collect()
}

fn peer_tls(section: ConfigSection<'_>) -> Result<Option<PeerTlsFiles>, YamlError> {
    let Some(section) = section.if_set() else {
        return Ok(None);
    };
    let files = ["cert_file", "key_file", "ca_file"].map(|key| section.path(key));
    match files {
        [Some(cert_file), Some(key_file), Some(ca_file)] => Ok(Some(PeerTlsFiles {
            cert_file,
            key_file,
            ca_file,
        })),
        _ => {
            let text = "firn.cluster.tls: cert_file, key_file and ca_file are necessary together";
            Err(section.error(text))
        }
    }
}

fn bucket_options(section: ConfigSection<'_>) -> Result<BucketOptions, YamlError> {
    let text = |key| section.text_if_set(key).map(str::to_owned);
    let secret = |key| section.path(key).map(Secret::File);
    let (access_key, secret_key) = (secret("access_key_file"), secret("secret_key_file"));
    if access_key.is_some() != secret_key.is_some() {
        let text = "firn.cluster.bucket_options: access_key_file and secret_key_file are necessary \
                    together";
        return Err(section.error(text));
    }
    Ok(BucketOptions {
        endpoint: text("endpoint"),
        region: text("region"),
        access_key,
        secret_key,
        session_token: secret("session_token_file"),
        ca_file: section.path("ca_file"),
        is_virtual_hosted: section.flag("virtual_hosted"),
        ..BucketOptions::default()
    })
}

fn partitions(section: ConfigSection<'_>) -> Result<NonZeroU32, YamlError> {
    let node = section.get("partitions").filter(|node| !node.is_null());
    // A count of zero is unset.
    let count = match node {
        None => section.count("partitions"),
        Some(_) => section.count_if_set("partitions").unwrap_or(0),
    };
    let valid = u32::try_from(count)
        .ok()
        .filter(|_| count <= PARTITIONS_MAX);
    valid.and_then(NonZeroU32::new).ok_or_else(|| {
        let node = node.unwrap_or(section.node());
        let text = node.text().unwrap_or_default();
        node.error(format!(
            "firn.cluster.partitions: expected 1 to {PARTITIONS_MAX}, got {text}"
        ))
    })
}

/// Returns the duration of `key`, or an error if it is outside of the limits.
fn bounded(
    section: ConfigSection<'_>,
    key: &str,
    limits: &RangeInclusive<time::Duration>,
) -> Result<time::Duration, YamlError> {
    let duration = section.exact_duration(key);
    if limits.contains(&duration) {
        return Ok(duration);
    }
    let node = section.get(key).unwrap_or(section.node());
    Err(node.error(format!(
        "firn.cluster.{key}: expected {:?} to {:?}, got {}",
        limits.start(),
        limits.end(),
        node.text().unwrap_or_default()
    )))
}

/// Rejects sections that a cluster does not support yet, in the config `root` of one.
pub fn refuse_in_clusters(root: ConfigSection<'_>) -> Result<(), YamlError> {
    let firn = root.section("firn");
    let is_set = |node: &&YamlNode| match &node.value {
        YamlValue::List(items) => !items.is_empty(),
        _ => !node.is_null(),
    };
    let of_root = [
        "scrape_configs",
        "scrape_config_files",
        "rule_files",
        "remote_write",
        "remote_read",
    ];
    let of_root = of_root.map(|key| (key, root.get(key)));
    let of_firn = [
        ("firn.rules", firn.get("rules")),
        ("firn.aggregation", firn.get("aggregation")),
        (
            "firn.multitenancy",
            firn.get("multitenancy")
                .filter(|_| firn.flag("multitenancy")),
        ),
    ];
    let mut keys = of_root.into_iter().chain(of_firn);
    match keys.find_map(|(key, node)| Some((key, node.filter(is_set)?))) {
        None => Ok(()),
        Some((key, node)) => Err(node.error(format!(
            "{key} is not supported together with firn.cluster yet"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, JobFeatures, parse};
    use super::*;
    use std::path::Path;
    use std::time::Duration;

    fn read(text: &str) -> Result<Config, String> {
        let features = JobFeatures::from_names(&[]);
        let parsed = parse(text, Path::new("/etc/firn"), features);
        parsed.map(|p| p.config).map_err(|e| e.to_string())
    }

    #[test]
    fn settings_of_a_cluster_are_read_with_their_defaults() {
        let config = read("firn: {cluster: {bucket: \"s3://b/p\"}}").unwrap();
        let cluster = config.cluster.unwrap();
        assert_eq!((cluster.partitions.get(), cluster.node), (12, None));
        assert_eq!(cluster.flush_interval, Duration::from_millis(250));
        assert_eq!(cluster.read_lease, Duration::from_secs(2));
        assert_eq!(cluster.bucket_options, BucketOptions::default());
        let text = "firn: {cluster: {bucket: \"file:///b\", node: a, partitions: 3, \
                    flush_interval: 100ms, read_lease: 0s, bucket_options: {endpoint: \
                    \"http://h:1\", region: r, access_key_file: a, secret_key_file: /s}}}";
        let cluster = read(text).unwrap().cluster.unwrap();
        assert_eq!(
            (cluster.partitions.get(), cluster.node.as_deref()),
            (3, Some("a"))
        );
        assert_eq!(cluster.read_lease, Duration::ZERO);
        let options = cluster.bucket_options;
        assert_eq!(options.access_key, Some(Secret::File("/etc/firn/a".into())));
        assert_eq!(options.secret_key, Some(Secret::File("/s".into())));
        assert_eq!(read("firn: {cluster: null}").unwrap().cluster, None);
    }

    #[test]
    fn listener_beyond_loopback_requires_a_secret_or_tls() {
        let check = |keys: &str, flag: Option<&str>, expected: Result<(), &str>| {
            let text = format!("firn: {{cluster: {{bucket: \"file:///b\"{keys}}}}}");
            let mut cluster = read(&text).unwrap().cluster.unwrap();
            cluster.replace_addresses(None, flag.map(str::to_owned), None);
            let checked = cluster.check_listener();
            match expected {
                Ok(()) => assert_eq!(checked, Ok(()), "{keys}"),
                Err(text) => assert!(checked.unwrap_err().contains(text), "{keys}"),
            }
        };
        check("", None, Ok(()));
        for local in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
            check(&format!(", listen: \"{local}\""), None, Ok(()));
        }
        let open = Err("is reachable from other machines, so secret_file or tls is required");
        for address in ["0.0.0.0:1", ":1", "10.0.0.1:1", "[::]:1", "node:1"] {
            check(&format!(", listen: \"{address}\""), None, open);
            check(
                &format!(", listen: \"{address}\", secret_file: s"),
                None,
                Ok(()),
            );
        }
        let tls = ", tls: {cert_file: a, key_file: b, ca_file: c}";
        check(&format!(", listen: \"[::]:1\"{tls}"), None, Ok(()));
        check(", listen: \"127.0.0.1:1\"", Some("0.0.0.0:1"), open);
        check(
            ", peers: [\"a:1\"]",
            None,
            Err("the key listen is required too"),
        );
        check(", peers: [\"a:1\"]", Some("127.0.0.1:1"), Ok(()));
    }

    #[test]
    fn wrong_settings_of_a_cluster_are_rejected_with_the_value_and_the_limit() {
        let check = |cluster: &str, rest: &str, expected: &str| {
            let error = read(&format!("firn: {{cluster: {{{cluster}}}}}\n{rest}")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check("node: a", "", "firn.cluster: the key bucket is required");
        check("bucket: \"gs://b\"", "", "version 0.3");
        check("bucket: x", "", "firn.cluster.bucket: bucket URL \"x\"");
        let check = |keys: &str, rest: &str, expected: &str| {
            check(&format!("bucket: \"file:///b\"{keys}"), rest, expected);
        };
        check(", partitions: 0", "", "expected 1 to 1024, got 0");
        check(", partitions: 1025", "", "expected 1 to 1024, got 1025");
        check(", flush_interval: 0s", "", "expected 1ms to 10s, got 0s");
        check(", flush_interval: 11s", "", "expected 1ms to 10s, got 11s");
        check(", read_lease: 2m", "", "expected 0ns to 60s, got 2m");
        check(
            ", peers: [a]",
            "",
            "firn.cluster.peers: no port in address: \"a\"",
        );
        check(", peers: [\":1\"]", "", "no host in address: \":1\"");
        check(", listen: x", "", "firn.cluster.listen: no port in address");
        check(", tls: {cert_file: a}", "", "are necessary together");
        check(
            ", bucket_options: {access_key_file: a}",
            "",
            "necessary together",
        );
        check(
            "",
            "scrape_configs: [{job_name: a}]",
            "scrape_configs is not supported",
        );
        check("", "rule_files: [a]", "rule_files is not supported");
        check(
            "",
            "remote_write: [{url: \"http://h\"}]",
            "remote_write is not supported",
        );
    }
}
