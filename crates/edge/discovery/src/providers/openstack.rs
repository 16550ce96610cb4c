//! Discovery of OpenStack hypervisors, instances and load balancers.
//!
//! ```text
//! credentials -> token, catalog -> endpoints of the services -> lists -> targets
//! ```
//!
//! The behaviour follows upstream's `discovery/openstack` and the OpenStack APIs for identity
//! (version 3), compute, network and load balancing.

mod answers;
mod identity;
#[cfg(test)]
mod tests;

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::environment::{Variables, process_environment};
use crate::group::TargetGroup;
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{refresh_interval, require};
use answers::{
    OpenStackFloatingIp, OpenStackFloatingIpMap, OpenStackHypervisor, OpenStackListener,
    OpenStackLoadBalancer, OpenStackPage, OpenStackPort, OpenStackServer,
};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::http_config::{TLS, tls};
use firn_http_client::{HttpSettings, Secret};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::HeaderMap;
use identity::KeystoneSession;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tracing::warn;

/// Protocol of the load balancer listeners that expose metrics.
const SCRAPED: &str = "PROMETHEUS";

/// The provider of `openstack_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider =
    DiscoveryProvider::new("openstack_sd_configs", &Shape::Section(&[KEYS]), read_entry);

const KEYS: &[ConfigKey] = &[
    key("identity_endpoint", Shape::Text),
    key("username", Shape::Text),
    key("userid", Shape::Text),
    key("password", Shape::Secret),
    key("project_name", Shape::Text),
    key("project_id", Shape::Text),
    key("domain_name", Shape::Text),
    key("domain_id", Shape::Text),
    key("application_credential_name", Shape::Text),
    key("application_credential_id", Shape::Text),
    key("application_credential_secret", Shape::Secret),
    key("role", Shape::Text),
    key("region", Shape::Text),
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
    key("all_tenants", Shape::Bool),
    key("tls_config", TLS),
    key("availability", Shape::Text),
];

/// The kind of OpenStack object that is discovered, one kind per config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenStackRole {
    /// Hypervisors: the machines that run instances, at their host addresses.
    Hypervisor,
    /// Instances (virtual machines), with one target per fixed address.
    Instance,
    /// Load balancers that have a listener with the protocol `PROMETHEUS`.
    LoadBalancer,
}

/// Credentials for the identity service, from the config or the environment. Empty fields are
/// unset.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenStackCredentials {
    /// The `identity_endpoint` key. If it is empty, all credentials are read from the environment.
    pub endpoint: String,
    /// The `username` key: name of the user, which requires a domain.
    pub username: String,
    /// The `userid` key: id of the user, as an alternative to the name.
    pub user_id: String,
    /// The `password` key: password of the user, as an alternative to an application credential.
    pub password: Option<Secret>,
    /// The `project_name` key: project that scopes the token, which requires a domain.
    pub project_name: String,
    /// The `project_id` key: id of the project that scopes the token.
    pub project_id: String,
    /// The `domain_name` key: domain of the user and the project.
    pub domain_name: String,
    /// The `domain_id` key: id of the domain, as an alternative to its name.
    pub domain_id: String,
    /// The `application_credential_name` key: name of an application credential of the user.
    pub application_name: String,
    /// The `application_credential_id` key: id of an application credential, which requires no
    /// user.
    pub application_id: String,
    /// The `application_credential_secret` key: secret of the application credential.
    pub application_secret: Option<Secret>,
}

/// An entry of `openstack_sd_configs`: the kind of object to discover, region and credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenStackSettings {
    /// The `role` key: kind of object to discover.
    pub role: OpenStackRole,
    /// Credentials from the config entry, used if they contain an endpoint.
    pub credentials: OpenStackCredentials,
    /// The `region` key: region of the services; empty for any region.
    pub region: String,
    /// The `availability` key: interface of the services in the catalog, such as `public`.
    pub availability: String,
    /// The `all_tenants` key: discover the instances of all projects, which requires admin rights.
    pub all_tenants: bool,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the services: credentials, TLS, proxies, redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for OpenStackSettings {
    fn mechanism(&self) -> &'static str {
        "openstack"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(OpenStackDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `openstack_sd_configs`, whose role and availability must be valid.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let tls = tls(node.get("tls_config"), dir)?;
    let role = match read::string(node, "role").as_str() {
        "instance" | "" => OpenStackRole::Instance,
        "hypervisor" => OpenStackRole::Hypervisor,
        "loadbalancer" => OpenStackRole::LoadBalancer,
        role => return Err(node.error(format!("unknown OpenStack SD role {role:?}"))),
    };
    let availability = read::string_or(node, "availability", "public");
    if !matches!(availability.as_str(), "public" | "internal" | "admin") {
        return Err(node.error(format!(
            "unknown availability {availability}, must be one of admin, internal or public"
        )));
    }
    require(
        node,
        &[
            (
                "role",
                "role missing (one of: instance, hypervisor, loadbalancer)",
            ),
            ("region", "openstack SD configuration requires a region"),
        ],
    )?;
    Ok(DiscoverySettings::provided(OpenStackSettings {
        role,
        credentials: read_credentials(node),
        region: read::string(node, "region"),
        availability,
        all_tenants: read::flag_or(node, "all_tenants", false),
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: HttpSettings {
            tls,
            ..HttpSettings::default()
        },
    }))
}

fn read_credentials(node: &YamlNode) -> OpenStackCredentials {
    let of = |key: &str| read::string(node, key);
    let secret = |key: &str| {
        let text = read::text(node, key).filter(|text| !text.is_empty());
        text.map(|text| Secret::Inline(text.to_owned()))
    };
    OpenStackCredentials {
        endpoint: of("identity_endpoint"),
        username: of("username"),
        user_id: of("userid"),
        password: secret("password"),
        project_name: of("project_name"),
        project_id: of("project_id"),
        domain_name: of("domain_name"),
        domain_id: of("domain_id"),
        application_name: of("application_credential_name"),
        application_id: of("application_credential_id"),
        application_secret: secret("application_credential_secret"),
    }
}

/// Discovery of OpenStack objects; each refresh authenticates and reads the lists of one role.
pub(super) struct OpenStackDiscovery {
    settings: OpenStackSettings,
    api: ApiClient,
    variables: Variables,
}

impl OpenStackDiscovery {
    pub(super) fn new(settings: &OpenStackSettings, bytes_max: u64) -> Self {
        Self::with_variables(settings, bytes_max, process_environment())
    }

    /// Creates a discovery like [`Self::new`] that reads environment variables from `variables`.
    fn with_variables(settings: &OpenStackSettings, bytes_max: u64, variables: Variables) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
            variables,
        }
    }

    async fn open_session(&self) -> Result<KeystoneSession, Error> {
        let session =
            KeystoneSession::authenticate(&self.api, &self.settings, &self.variables).await;
        session.map_err(|e| {
            invalid_response_error(format!("could not authenticate to OpenStack: {e}"))
        })
    }

    /// Returns the entries of all pages of a service's list.
    async fn fetch_list<P: OpenStackPage>(
        &self,
        session: &KeystoneSession,
        url: &str,
    ) -> Result<Vec<P::Entry>, Error> {
        let headers = HeaderMap::from_iter([(identity::TOKEN, session.token.clone())]);
        let next = |page: &P, _| page.next();
        let pages: Vec<P> = self.api.get_pages(url, &headers, next).await?;
        Ok(pages.into_iter().flat_map(P::entries).collect())
    }

    async fn fetch_hypervisors(&self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.open_session().await?;
        let url = format!(
            "{}os-hypervisors/detail",
            session.find_service_url("compute")?
        );
        let hypervisors = self
            .fetch_list::<answers::OpenStackHypervisorPage>(&session, &url)
            .await?;
        let port = self.settings.port;
        let hypervisors = hypervisors.iter();
        Ok(hypervisors
            .map(|one: &OpenStackHypervisor| one.build_target(port))
            .collect())
    }

    async fn fetch_floating_ips(
        &self,
        session: &KeystoneSession,
    ) -> Result<Vec<OpenStackFloatingIp>, Error> {
        let url = format!("{}v2.0/floatingips", session.find_service_url("network")?);
        let ips = self
            .fetch_list::<answers::OpenStackFloatingIpPage>(session, &url)
            .await;
        ips.map_err(|e| invalid_response_error(format!("failed to list floating IPs: {e}")))
    }

    async fn fetch_instances(&self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.open_session().await?;
        let compute = session.find_service_url("compute")?;
        let url = format!("{}v2.0/ports", session.find_service_url("network")?);
        let ports = self
            .fetch_list::<answers::OpenStackPortPage>(&session, &url)
            .await;
        let ports =
            ports.map_err(|e| invalid_response_error(format!("failed to list all ports: {e}")))?;
        let devices: BTreeMap<&str, &str> = ports
            .iter()
            .map(|port: &OpenStackPort| (port.id.as_str(), port.device_id.as_str()))
            .collect();
        let mut maps = OpenStackFloatingIpMap::default();
        for ip in self.fetch_floating_ips(&session).await? {
            if ip.port_id.is_empty() || ip.fixed_ip_address.is_empty() {
                continue;
            }
            match devices.get(ip.port_id.as_str()) {
                Some(device) => maps.add_floating_ip((*device).to_owned(), ip),
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
        let servers = self
            .fetch_list::<answers::OpenStackServerPage>(&session, &url)
            .await?;
        let port = self.settings.port;
        let servers = servers.iter();
        Ok(servers
            .flat_map(|server: &OpenStackServer| server.build_targets(&maps, port))
            .collect())
    }

    async fn fetch_load_balancers(&self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.open_session().await?;
        let base = session
            .find_service_url("load-balancer")?
            .replace("v2.0/", "");
        let url = |what| format!("{base}v2.0/lbaas/{what}");
        let balancers = self
            .fetch_list::<answers::OpenStackLoadBalancerPage>(&session, &url("loadbalancers"))
            .await
            .map_err(|e| invalid_response_error(format!("failed to list load balancers: {e}")))?;
        let listeners = self
            .fetch_list::<answers::OpenStackListenerPage>(&session, &url("listeners"))
            .await
            .map_err(|e| invalid_response_error(format!("failed to list all listeners: {e}")))?;
        // Port of the first metrics listener of each load balancer.
        let mut ports: BTreeMap<&str, i64> = BTreeMap::new();
        for listener in listeners
            .iter()
            .filter(|one: &&OpenStackListener| one.protocol == SCRAPED)
        {
            for balancer in &listener.loadbalancers {
                ports.entry(&balancer.id).or_insert(listener.protocol_port);
            }
        }
        let floating = self.fetch_floating_ips(&session).await?;
        let floating: BTreeMap<&str, &str> = floating
            .iter()
            .filter(|ip| !ip.port_id.is_empty())
            .map(|ip| (ip.port_id.as_str(), ip.floating_ip_address.as_str()))
            .collect();
        let balancers = balancers.iter();
        Ok(balancers
            .filter_map(|one: &OpenStackLoadBalancer| {
                let port = ports.get(one.id.as_str())?;
                Some(one.build_target(floating.get(one.vip_port_id.as_str()).copied(), *port))
            })
            .collect())
    }
}

impl Refresh for OpenStackDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        format!("openstack {}", self.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        match self.settings.role {
            OpenStackRole::Hypervisor => self.fetch_hypervisors().await,
            OpenStackRole::Instance => self.fetch_instances().await,
            OpenStackRole::LoadBalancer => self.fetch_load_balancers().await,
        }
    }
}
