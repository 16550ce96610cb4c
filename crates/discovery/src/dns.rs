//! Targets from records of the DNS: A, AAAA, SRV, MX and NS.
//!
//! Facts are from upstream's `discovery/dns`: what a record becomes, and that a name that cannot be
//! resolved keeps its targets while one that does not exist loses them.

mod resolver;
#[cfg(test)]
mod tests;

use super::api::wrong;
use super::discover::Refresh;
use super::group::Group;
use super::meta::{Meta, host_port};
use super::published::Published;
use firn_model::error::Error;
use resolver::{Record, Resolver};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tracing::warn;

/// How long all names may take: every search domain and server times out on the way.
const DEADLINE: Duration = Duration::from_secs(10 * 60);

/// The file that says which servers to ask.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The port of these.
const PORT: u16 = 53;

/// A type of records that targets are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// Addresses of IPv4.
    A,
    /// Addresses of IPv6.
    Aaaa,
    /// Hosts that serve mail.
    Mx,
    /// Name servers.
    Ns,
    /// Hosts and ports of a service.
    Srv,
}

/// One of `dns_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct DnsSettings {
    /// `names`
    pub names: Vec<String>,
    /// `type`
    pub record_type: RecordType,
    /// `port`, of all records but SRV.
    pub port: i64,
    /// `refresh_interval`
    pub refresh: Duration,
}

/// Names, and what they resolved to last.
pub(super) struct Names {
    settings: DnsSettings,
    resolver: Arc<Resolver>,
    known: BTreeMap<String, Vec<Group>>,
    to: Arc<Published>,
}

impl Names {
    pub(super) fn new(settings: DnsSettings, to: Arc<Published>) -> Self {
        let resolver = Resolver::new(PathBuf::from(RESOLV_CONF), PORT);
        Self::by(resolver, settings, to)
    }

    fn by(resolver: Resolver, settings: DnsSettings, to: Arc<Published>) -> Self {
        Self {
            settings,
            resolver: Arc::new(resolver),
            known: BTreeMap::new(),
            to,
        }
    }
}

impl Refresh for Names {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn name(&self) -> String {
        self.settings.names.join(",")
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let mut lookups = JoinSet::new();
        for name in &self.settings.names {
            let (resolver, name) = (self.resolver.clone(), name.clone());
            let record_type = self.settings.record_type;
            lookups.spawn(async move { (resolver.look_up(&name, record_type).await, name) });
        }
        let mut failures = 0;
        while let Some(done) = lookups.join_next().await {
            let Ok((answer, name)) = done else {
                continue;
            };
            match answer {
                Ok(records) => {
                    let port = self.settings.port;
                    let targets = records.iter().map(|record| target(&name, record, port));
                    self.known.insert(name.clone(), targets.collect());
                }
                Err(e) => {
                    failures += 1;
                    warn!(name, error = %e, "cannot look up DNS name");
                }
            }
        }
        if failures > 0 && self.known.is_empty() {
            // Targets of an earlier config stay until something is known.
            return Err(wrong("no name could be resolved"));
        }
        self.to.failures.add(failures);
        Ok(self.known.values().flatten().cloned().collect())
    }
}

/// The target that a record of `name` makes.
fn target(name: &str, record: &Record, port: i64) -> Group {
    let mut meta = Meta::new("dns");
    meta.set("name", name);
    let address = match record {
        Record::Address(address) => host_port(&address.to_string(), port),
        Record::Srv(host, port) => {
            meta.set("srv_record_target", host);
            meta.set("srv_record_port", port.to_string());
            host_port(unrooted(host), port)
        }
        Record::Mx(host) => {
            meta.set("mx_record_target", host);
            host_port(unrooted(host), port)
        }
        Record::Ns(host) => {
            meta.set("ns_record_target", host);
            host_port(unrooted(host), port)
        }
    };
    meta.at(address)
}

/// A name without the dot at its end, as it looks more usual.
fn unrooted(name: &str) -> &str {
    name.trim_end_matches('.')
}
