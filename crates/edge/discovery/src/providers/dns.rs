//! Discovery of targets from DNS records: A, AAAA, SRV, MX and NS.
//!
//! The behaviour follows upstream's `discovery/dns`: the address and labels of each record type. A
//! name whose lookup fails keeps its targets; a name that does not exist loses them.

mod resolver;
#[cfg(test)]
mod tests;

use crate::api::invalid_response_error;
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::meta::{MetaLabels, join_host_port};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::published::PublishedTargets;
use crate::section_values::refresh_interval;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use resolver::{DnsRecord, DnsResolver};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tracing::warn;

/// Timeout for the lookup of all names. It is long because each search domain and server can time
/// out in turn.
const DEADLINE: Duration = Duration::from_secs(10 * 60);

/// File with the addresses of the DNS servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Port of the DNS servers.
const PORT: u16 = 53;

/// The provider of `dns_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider =
    DiscoveryProvider::new("dns_sd_configs", &Shape::Section(&[KEYS]), read_entry)
        .printed_with_defaults();

const KEYS: &[ConfigKey] = &[
    key("names", TEXTS).always(""),
    key("refresh_interval", Shape::Duration).or("30s"),
    key("type", Shape::Text).always("SRV"),
    key("port", Shape::Integer).always("0"),
];

/// The type of DNS record that is looked up and converted to targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsRecordType {
    /// IPv4 addresses of a host; each address becomes a target.
    A,
    /// IPv6 addresses of a host; each address becomes a target.
    Aaaa,
    /// Mail servers of a domain; each server becomes a target.
    Mx,
    /// Name servers of a domain; each server becomes a target.
    Ns,
    /// Hosts and ports that provide a service; each pair becomes a target.
    Srv,
}

/// An entry of `dns_sd_configs`: the names to look up and the type of their records.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsSettings {
    /// The `names` key: DNS names to look up, which may be relative to search domains.
    pub names: Vec<String>,
    /// The `type` key: type of the records that are looked up.
    pub record_type: DnsRecordType,
    /// The `port` key: port of the targets, except for SRV records, which contain their port.
    pub port: i64,
    /// The `refresh_interval` key: time between two lookups.
    pub refresh: Duration,
}

impl DiscoveryMechanism for DnsSettings {
    fn mechanism(&self) -> &'static str {
        "dns"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(DnsDiscovery::new(self.clone(), starter.to.clone()))
    }
}

/// Reads an entry of `dns_sd_configs`, which needs names and, except for SRV records, a port.
fn read_entry(node: &YamlNode, _: &Path) -> ReadResult {
    let names = read::texts(node, "names").unwrap_or_default();
    if names.is_empty() {
        return Err(node.error("DNS-SD config must contain at least one SRV record name"));
    }
    let record_type = read::string_or(node, "type", "SRV");
    let port = read::integer_or(node, "port", 0);
    let record_type = match record_type.to_uppercase().as_str() {
        "SRV" => DnsRecordType::Srv,
        "A" => DnsRecordType::A,
        "AAAA" => DnsRecordType::Aaaa,
        "MX" => DnsRecordType::Mx,
        "NS" => DnsRecordType::Ns,
        _ => {
            let message = format!("invalid DNS-SD records type {record_type}");
            return Err(node.error(message));
        }
    };
    if port == 0 && record_type != DnsRecordType::Srv {
        return Err(
            node.error("a port is required in DNS-SD configs for all record types except SRV")
        );
    }
    Ok(DiscoverySettings::provided(DnsSettings {
        names,
        record_type,
        port,
        refresh: refresh_interval(node, 30),
    }))
}

/// Discovery by DNS lookups, with the targets of the last successful lookup of each name.
pub(super) struct DnsDiscovery {
    settings: DnsSettings,
    resolver: Arc<DnsResolver>,
    known: BTreeMap<String, Vec<TargetGroup>>,
    to: Arc<PublishedTargets>,
}

impl DnsDiscovery {
    pub(super) fn new(settings: DnsSettings, to: Arc<PublishedTargets>) -> Self {
        let resolver = DnsResolver::new(PathBuf::from(RESOLV_CONF), PORT);
        Self::with_resolver(resolver, settings, to)
    }

    fn with_resolver(
        resolver: DnsResolver,
        settings: DnsSettings,
        to: Arc<PublishedTargets>,
    ) -> Self {
        Self {
            settings,
            resolver: Arc::new(resolver),
            known: BTreeMap::new(),
            to,
        }
    }
}

impl Refresh for DnsDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn name(&self) -> String {
        self.settings.names.join(",")
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let mut lookups = JoinSet::new();
        for name in &self.settings.names {
            let (resolver, name) = (self.resolver.clone(), name.clone());
            let record_type = self.settings.record_type;
            lookups
                .spawn(async move { (resolver.look_up_records(&name, record_type).await, name) });
        }
        let mut failures = 0;
        while let Some(done) = lookups.join_next().await {
            let Ok((answer, name)) = done else {
                continue;
            };
            match answer {
                Ok(records) => {
                    let port = self.settings.port;
                    let targets = records
                        .iter()
                        .map(|record| build_target(&name, record, port));
                    self.known.insert(name.clone(), targets.collect());
                }
                Err(e) => {
                    failures += 1;
                    warn!(name, error = %e, "cannot look up DNS name");
                }
            }
        }
        if failures > 0 && self.known.is_empty() {
            // An error keeps the targets of the previous config until at least one name has been
            // resolved.
            return Err(invalid_response_error("no name could be resolved"));
        }
        self.to.failures.add(failures);
        Ok(self.known.values().flatten().cloned().collect())
    }
}

/// Builds the target for a record of `name`. `port` applies to records that contain no port.
fn build_target(name: &str, record: &DnsRecord, port: i64) -> TargetGroup {
    let mut meta = MetaLabels::new("dns");
    meta.set("name", name);
    let address = match record {
        DnsRecord::Address(address) => join_host_port(&address.to_string(), port),
        DnsRecord::Srv(host, port) => {
            meta.set("srv_record_target", host);
            meta.set("srv_record_port", port.to_string());
            join_host_port(trim_trailing_dot(host), port)
        }
        DnsRecord::Mx(host) => {
            meta.set("mx_record_target", host);
            join_host_port(trim_trailing_dot(host), port)
        }
        DnsRecord::Ns(host) => {
            meta.set("ns_record_target", host);
            join_host_port(trim_trailing_dot(host), port)
        }
    };
    meta.into_target(address)
}

/// Returns a name without its trailing dot, since addresses are usually written without it.
fn trim_trailing_dot(name: &str) -> &str {
    name.trim_end_matches('.')
}
