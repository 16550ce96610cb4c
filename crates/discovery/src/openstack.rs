//! Targets from OpenStack: hypervisors, instances, or load balancers.
//!
//! ```text
//! credentials -> token, catalog -> endpoints of the services -> lists -> targets
//! ```
//!
//! Facts are from upstream's `discovery/openstack` and from OpenStack's APIs of identity (version
//! 3), compute, network and load balancers.

mod answers;
mod identity;
#[cfg(test)]
mod tests;

use super::api::{Api, wrong};
use super::discover::Refresh;
use super::group::Group;
use crate::environment::{Variables, of_process};
use answers::{FloatingIp, Hypervisor, Listener, LoadBalancer, Page, Port, Server, ServerMaps};
use firn_http_client::{HttpSettings, Secret};
use firn_model::error::Error;
use hyper::HeaderMap;
use identity::Session;
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::warn;

/// The protocol of the listeners that are scraped.
const SCRAPED: &str = "PROMETHEUS";

/// What targets are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenStackRole {
    /// The machines that instances run on.
    Hypervisor,
    /// Virtual machines: a target for each address.
    Instance,
    /// Load balancers that have a listener for metrics.
    LoadBalancer,
}

/// Who asks; what is empty is not known.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenStackCredentials {
    /// `identity_endpoint`; if it is empty, all are those of the environment.
    pub endpoint: String,
    /// `username`
    pub username: String,
    /// `userid`
    pub user_id: String,
    /// `password`
    pub password: Option<Secret>,
    /// `project_name`
    pub project_name: String,
    /// `project_id`
    pub project_id: String,
    /// `domain_name`
    pub domain_name: String,
    /// `domain_id`
    pub domain_id: String,
    /// `application_credential_name`
    pub application_name: String,
    /// `application_credential_id`
    pub application_id: String,
    /// `application_credential_secret`
    pub application_secret: Option<Secret>,
}

/// One of `openstack_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct OpenStackSettings {
    /// `role`
    pub role: OpenStackRole,
    /// Who asks.
    pub credentials: OpenStackCredentials,
    /// `region`
    pub region: String,
    /// `availability`: the interface of services, such as `public`.
    pub availability: String,
    /// `all_tenants`
    pub all_tenants: bool,
    /// `port`
    pub port: i64,
    /// `refresh_interval`
    pub refresh: Duration,
    /// How the services are reached.
    pub client: HttpSettings,
}

/// Asks an OpenStack.
pub(super) struct Resources {
    settings: OpenStackSettings,
    api: Api,
    variables: Variables,
}

impl Resources {
    pub(super) fn new(settings: &OpenStackSettings, bytes_max: u64) -> Self {
        Self::with(settings, bytes_max, of_process())
    }

    /// Like [`Self::new`], with another environment.
    fn with(settings: &OpenStackSettings, bytes_max: u64, variables: Variables) -> Self {
        Self {
            api: Api::new(&settings.client, bytes_max),
            settings: settings.clone(),
            variables,
        }
    }

    async fn session(&self) -> Result<Session, Error> {
        let session = Session::open(&self.api, &self.settings, &self.variables).await;
        session.map_err(|e| wrong(format!("could not authenticate to OpenStack: {e}")))
    }

    /// All entries of a list of a service.
    async fn list<P: Page>(&self, session: &Session, url: &str) -> Result<Vec<P::Entry>, Error> {
        let headers = HeaderMap::from_iter([(identity::TOKEN, session.token.clone())]);
        let next = |page: &P, _| page.next();
        let pages: Vec<P> = self.api.pages(url, &headers, next).await?;
        Ok(pages.into_iter().flat_map(P::entries).collect())
    }

    async fn hypervisors(&self) -> Result<Vec<Group>, Error> {
        let session = self.session().await?;
        let url = format!("{}os-hypervisors/detail", session.service("compute")?);
        let hypervisors = self.list::<answers::Hypervisors>(&session, &url).await?;
        let port = self.settings.port;
        let hypervisors = hypervisors.iter();
        Ok(hypervisors
            .map(|one: &Hypervisor| one.target(port))
            .collect())
    }

    async fn floating_ips(&self, session: &Session) -> Result<Vec<FloatingIp>, Error> {
        let url = format!("{}v2.0/floatingips", session.service("network")?);
        let ips = self.list::<answers::FloatingIps>(session, &url).await;
        ips.map_err(|e| wrong(format!("failed to list floating IPs: {e}")))
    }

    async fn instances(&self) -> Result<Vec<Group>, Error> {
        let session = self.session().await?;
        let compute = session.service("compute")?;
        let url = format!("{}v2.0/ports", session.service("network")?);
        let ports = self.list::<answers::Ports>(&session, &url).await;
        let ports = ports.map_err(|e| wrong(format!("failed to list all ports: {e}")))?;
        let devices: BTreeMap<&str, &str> = ports
            .iter()
            .map(|port: &Port| (port.id.as_str(), port.device_id.as_str()))
            .collect();
        let mut maps = ServerMaps::default();
        for ip in self.floating_ips(&session).await? {
            if ip.port_id.is_empty() || ip.fixed_ip_address.is_empty() {
                continue;
            }
            match devices.get(ip.port_id.as_str()) {
                Some(device) => maps.add((*device).to_owned(), ip),
                None => warn!(
                    port = ip.port_id,
                    "port of a floating address does not exist"
                ),
            }
        }
        let all = if self.settings.all_tenants {
            "?all_tenants=true"
        } else {
            ""
        };
        let url = format!("{compute}servers/detail{all}");
        let servers = self.list::<answers::Servers>(&session, &url).await?;
        let port = self.settings.port;
        let servers = servers.iter();
        Ok(servers
            .flat_map(|server: &Server| server.targets(&maps, port))
            .collect())
    }

    async fn load_balancers(&self) -> Result<Vec<Group>, Error> {
        let session = self.session().await?;
        let base = session.service("load-balancer")?.replace("v2.0/", "");
        let url = |what| format!("{base}v2.0/lbaas/{what}");
        let balancers = self
            .list::<answers::LoadBalancers>(&session, &url("loadbalancers"))
            .await
            .map_err(|e| wrong(format!("failed to list load balancers: {e}")))?;
        let listeners = self
            .list::<answers::Listeners>(&session, &url("listeners"))
            .await
            .map_err(|e| wrong(format!("failed to list all listeners: {e}")))?;
        // The first listener for metrics of each.
        let mut ports: BTreeMap<&str, i64> = BTreeMap::new();
        for listener in listeners
            .iter()
            .filter(|one: &&Listener| one.protocol == SCRAPED)
        {
            for balancer in &listener.loadbalancers {
                ports.entry(&balancer.id).or_insert(listener.protocol_port);
            }
        }
        let floating = self.floating_ips(&session).await?;
        let floating: BTreeMap<&str, &str> = floating
            .iter()
            .filter(|ip| !ip.port_id.is_empty())
            .map(|ip| (ip.port_id.as_str(), ip.floating_ip_address.as_str()))
            .collect();
        let balancers = balancers.iter();
        Ok(balancers
            .filter_map(|one: &LoadBalancer| {
                let port = ports.get(one.id.as_str())?;
                Some(one.target(floating.get(one.vip_port_id.as_str()).copied(), *port))
            })
            .collect())
    }
}

impl Refresh for Resources {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        format!("openstack {}", self.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        match self.settings.role {
            OpenStackRole::Hypervisor => self.hypervisors().await,
            OpenStackRole::Instance => self.instances().await,
            OpenStackRole::LoadBalancer => self.load_balancers().await,
        }
    }
}
