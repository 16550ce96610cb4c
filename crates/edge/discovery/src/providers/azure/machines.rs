//! Discovery of Azure virtual machines, including the machines of scale sets.
//!
//! ```text
//! machines, scale sets, machines of each scale set -> primary interface of each -> targets
//! ```
//!
//! Network interfaces are cached for 10 to 13 refresh intervals, as in upstream.

use super::identity::{AzureCloud, AzureTokenIssuer};
use super::settings::AzureSettings;
use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::side_by_side::run_concurrently;
use crate::tokens::AccessTokenCache;
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::StatusCode;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Versions of the APIs for machines, for network interfaces, and for the interfaces of scale sets.
const COMPUTE: &str = "2024-03-01";
const NETWORK: &str = "2023-05-01";
const SCALE_SET_NETWORK: &str = "2018-10-01";

/// Maximum number of network interfaces that are cached between refreshes.
const KEPT_MAX: usize = 5000;

/// Maximum number of concurrent requests for network interfaces. Upstream sends all requests at
/// once.
const SIDE_BY_SIDE: usize = 16;

/// Discovery of Azure virtual machines; each refresh lists all machines and scale sets.
pub(in super::super) struct AzureDiscovery {
    settings: AzureSettings,
    api: Arc<ApiClient>,
    /// API endpoint and access tokens, or the error in the settings that every refresh returns.
    access: Result<AzureApiAccess, Error>,
    clock: Arc<dyn Clock>,
    /// Cached network interfaces by id, each with its expiry time in milliseconds.
    kept: BTreeMap<String, (AzureInterface, i64)>,
}

struct AzureApiAccess {
    endpoint: String,
    tokens: AccessTokenCache<AzureTokenIssuer>,
}

#[derive(serde::Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct AzurePage<T> {
    value: Vec<T>,
    #[serde(rename = "nextLink")]
    next: Option<String>,
}

answers! {
    struct AzureScaleSet {
        id: String,
        name: String,
    }

    #[serde(rename_all = "camelCase")]
    struct AzureVm {
        id: String,
        name: String,
        location: String,
        tags: BTreeMap<String, String>,
        instance_id: String,
        properties: AzureVmProperties,
        /// Name of the scale set that the machine belongs to; empty if it belongs to none.
        #[serde(skip)]
        scale_set: String,
    }

    #[serde(rename_all = "camelCase")]
    struct AzureVmProperties {
        storage_profile: AzureStorageProfile,
        network_profile: AzureNetworkProfile,
        os_profile: AzureOsProfile,
        hardware_profile: AzureHardwareProfile,
    }

    #[serde(rename_all = "camelCase")]
    struct AzureStorageProfile {
        os_disk: AzureOsDisk,
    }

    #[serde(rename_all = "camelCase")]
    struct AzureOsDisk {
        os_type: String,
    }

    #[serde(rename_all = "camelCase")]
    struct AzureNetworkProfile {
        network_interfaces: Vec<AzureResourceRef>,
    }

    struct AzureResourceRef {
        id: String,
    }

    #[serde(rename_all = "camelCase")]
    struct AzureOsProfile {
        computer_name: String,
    }

    #[serde(rename_all = "camelCase")]
    struct AzureHardwareProfile {
        vm_size: String,
    }

    struct AzureInterface {
        properties: Option<AzureInterfaceProperties>,
    }

    #[serde(rename_all = "camelCase")]
    struct AzureInterfaceProperties {
        /// Whether this is the machine's primary interface. Missing if the machine is switched off.
        primary: Option<bool>,
        ip_configurations: Vec<AzureIpConfiguration>,
    }

    struct AzureIpConfiguration {
        properties: AzureIpProperties,
    }

    struct AzureIpProperties {
        #[serde(rename = "privateIPAddress")]
        private: Option<String>,
        #[serde(rename = "publicIPAddress")]
        public: AzurePublicIp,
    }

    struct AzurePublicIp {
        properties: AzurePublicIpProperties,
    }

    struct AzurePublicIpProperties {
        #[serde(rename = "ipAddress")]
        address: String,
    }
}

impl AzureDiscovery {
    pub(in super::super) fn new(
        settings: &AzureSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let access = find_cloud(&settings.environment).map(|(cloud, endpoint, audience)| {
            let scope = format!("{audience}/.default");
            let account =
                AzureTokenIssuer::new(cloud, &settings.identity, &scope, &settings.client);
            (endpoint.to_owned(), account)
        });
        Self::with_access(access, settings, bytes_max, clock)
    }

    /// Creates a discovery like [`Self::new`] that uses the given API endpoint and account.
    pub(super) fn with_access(
        access: Result<(String, AzureTokenIssuer), Error>,
        settings: &AzureSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            api: Arc::new(ApiClient::new(&settings.client, bytes_max)),
            access: access.map(|(endpoint, account)| AzureApiAccess {
                endpoint,
                tokens: AccessTokenCache::new(account, clock.clone()),
            }),
            clock,
            kept: BTreeMap::new(),
        }
    }

    fn resolve_access(&self) -> Result<&AzureApiAccess, Error> {
        let access = self.access.as_ref();
        access.map_err(|e| invalid_response_error(format!("could not create Azure client: {e}")))
    }

    async fn authorization_headers(&self) -> Result<HeaderMap, Error> {
        let json = HeaderValue::from_static("application/json");
        let token = self.resolve_access()?.tokens.authorization_header().await?;
        Ok(HeaderMap::from_iter([
            (ACCEPT, json),
            (AUTHORIZATION, token),
        ]))
    }

    /// Returns all pages of a list of the compute API. `path` is relative to the subscription.
    async fn fetch_list<T>(&self, path: &str) -> Result<Vec<T>, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let endpoint = &self.resolve_access()?.endpoint;
        let subscription = &self.settings.subscription;
        let url = format!("{endpoint}/subscriptions/{subscription}{path}?api-version={COMPUTE}");
        let next = |page: &AzurePage<T>, _| page.next.clone();
        let headers = self.authorization_headers().await?;
        let pages = self.api.get_pages(&url, &headers, next).await?;
        Ok(pages.into_iter().flat_map(|page| page.value).collect())
    }

    /// Returns all machines: first those outside of scale sets, then those of each scale set.
    async fn fetch_machines(&self) -> Result<Vec<AzureVm>, Error> {
        let group = match self.settings.resource_group.as_str() {
            "" => String::new(),
            group => format!("/resourceGroups/{group}"),
        };
        let path = |what| format!("{group}/providers/Microsoft.Compute/{what}");
        let machines = self.fetch_list::<AzureVm>(&path("virtualMachines")).await;
        let mut machines = machines
            .map_err(|e| invalid_response_error(format!("could not get virtual machines: {e}")))?;
        let sets = self
            .fetch_list::<AzureScaleSet>(&path("virtualMachineScaleSets"))
            .await;
        let sets = sets.map_err(|e| {
            invalid_response_error(format!("could not get virtual machine scale sets: {e}"))
        })?;
        for set in sets {
            let found = self.fetch_scale_set_machines(&set).await;
            machines.extend(found.map_err(|e| {
                invalid_response_error(format!("could not get virtual machine scale set vms: {e}"))
            })?);
        }
        Ok(machines)
    }

    async fn fetch_scale_set_machines(&self, set: &AzureScaleSet) -> Result<Vec<AzureVm>, Error> {
        let path = format!(
            "/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/\
             virtualMachines",
            parse_resource_group(&set.id)?,
            set.name
        );
        let mut machines = self.fetch_list::<AzureVm>(&path).await?;
        for machine in &mut machines {
            machine.scale_set.clone_from(&set.name);
        }
        Ok(machines)
    }

    /// Returns the URL of a network interface of a machine, which depends on its scale set.
    fn build_interface_url(&self, machine: &AzureVm, id: &str) -> Result<String, Error> {
        let endpoint = &self.resolve_access()?.endpoint;
        let subscription = &self.settings.subscription;
        let group = parse_resource_group(id)?;
        let name = id.rsplit('/').next().unwrap_or_default();
        let (provider, version) = match machine.scale_set.as_str() {
            "" => ("Microsoft.Network".to_owned(), NETWORK),
            set => {
                let index = &machine.instance_id;
                let of_set = format!(
                    "microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/{index}"
                );
                (of_set, SCALE_SET_NETWORK)
            }
        };
        Ok(format!(
            "{endpoint}/subscriptions/{subscription}/resourceGroups/{group}/providers/{provider}/\
             networkInterfaces/{name}?%24expand=IPConfigurations%2FPublicIPAddress\
             &api-version={version}"
        ))
    }

    /// Requests the interfaces of `machines` that are not cached. Interfaces that do not
    /// exist are logged and not cached.
    async fn fetch_interfaces(&mut self, machines: &[AzureVm]) -> Result<(), Error> {
        let now_ms = self.clock.now_ms();
        self.kept.retain(|_, (_, end_ms)| now_ms < *end_ms);
        let headers = self.authorization_headers().await?;
        let mut asking = Vec::new();
        for machine in machines {
            for AzureResourceRef { id } in &machine.properties.network_profile.network_interfaces {
                if !self.kept.contains_key(id) {
                    let url = self.build_interface_url(machine, id)?;
                    let (api, headers, id) = (self.api.clone(), headers.clone(), id.clone());
                    asking.push(async move { Ok((id, interface(&api, &url, &headers).await?)) });
                }
            }
        }
        for (id, interface) in run_concurrently(SIDE_BY_SIDE, asking).await? {
            let Some(interface) = interface else {
                warn!(interface = id, "network interface does not exist");
                continue;
            };
            let end_ms = self.cache_expiry_ms(&id);
            self.kept.insert(id, (interface, end_ms));
        }
        Ok(())
    }

    /// Returns the expiry time of an interface cached now: 10 to 13 refresh intervals ahead,
    /// depending on a hash of its id, so that not all interfaces expire at once.
    fn cache_expiry_ms(&self, id: &str) -> i64 {
        let refresh_ms = self.settings.refresh.as_millis() as u64;
        let spread = xxhash_rust::xxh3::xxh3_64(id.as_bytes());
        let life_ms = refresh_ms * 10 + spread.checked_rem(refresh_ms * 3).unwrap_or(0);
        self.clock.now_ms().saturating_add(life_ms as i64)
    }

    async fn build_targets(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let machines = self.fetch_machines().await?;
        let failed = |e: Error| {
            invalid_response_error(format!("unable to complete Azure service discovery: {e}"))
        };
        self.fetch_interfaces(&machines).await.map_err(failed)?;
        let mut groups = Vec::new();
        for machine in &machines {
            groups.extend(self.build_target(machine).map_err(failed)?);
        }
        // The targets of this refresh may need more interfaces than the cache may keep.
        while self.kept.len() > KEPT_MAX {
            self.kept.pop_last();
        }
        Ok(groups)
    }

    /// Builds the target of a machine. Returns `None` if the machine has no primary interface or is
    /// switched off.
    fn build_target(&self, machine: &AzureVm) -> Result<Option<TargetGroup>, Error> {
        let mut meta = self.build_meta_labels(machine)?;
        for AzureResourceRef { id } in &machine.properties.network_profile.network_interfaces {
            let Some((interface, _)) = self.kept.get(id) else {
                return Ok(None);
            };
            let Some(properties) = &interface.properties else {
                continue;
            };
            match properties.primary {
                None => return Ok(None),
                Some(false) => continue,
                Some(true) => {}
            }
            let Some(ip) = properties.ip_configurations.first() else {
                continue;
            };
            let Some(private) = &ip.properties.private else {
                let name = &machine.name;
                return Err(invalid_response_error(format!(
                    "unable to find a private IP for VM {name}"
                )));
            };
            meta.set("public_ip", &ip.properties.public.properties.address);
            meta.set("private_ip", private);
            return Ok(Some(
                self.with_ids(meta)
                    .into_target(join_host_port(private, self.settings.port)),
            ));
        }
        Ok(None)
    }

    fn build_meta_labels(&self, machine: &AzureVm) -> Result<MetaLabels, Error> {
        let mut meta = MetaLabels::new("azure_machine");
        let p = &machine.properties;
        meta.set_all([
            ("id", machine.id.as_str()),
            ("name", &machine.name),
            ("computer_name", &p.os_profile.computer_name),
            ("os_type", &p.storage_profile.os_disk.os_type),
            ("location", &machine.location),
            ("resource_group", parse_resource_group(&machine.id)?),
            ("size", &p.hardware_profile.vm_size),
            ("scale_set", &machine.scale_set),
        ]);
        for (key, value) in &machine.tags {
            meta.set(&format!("tag_{}", sanitize(key)), value);
        }
        Ok(meta)
    }

    fn with_ids(&self, mut meta: MetaLabels) -> MetaLabels {
        let mut ids = MetaLabels::new("azure");
        ids.set("subscription_id", &self.settings.subscription);
        ids.set("tenant_id", &self.settings.tenant);
        meta.merge(&ids);
        meta
    }
}

async fn interface(
    api: &ApiClient,
    url: &str,
    headers: &HeaderMap,
) -> Result<Option<AzureInterface>, Error> {
    let answer = api.get(url, headers).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let interface = async { answer.require_success()?.decode_json().await };
    let interface: Result<AzureInterface, Error> = interface.await;
    let failed = |e| {
        invalid_response_error(format!(
            "failed to retrieve Interface {url} with error: {e}"
        ))
    };
    interface.map(Some).map_err(failed)
}

impl Refresh for AzureDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        format!("azure {}", self.settings.subscription)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let targets = self.build_targets().await;
        if targets.is_err()
            && let Ok(access) = &self.access
        {
            // The failure may be caused by an invalid token, so the next refresh requests a new
            // one.
            access.tokens.clear_cache().await;
        }
        targets
    }
}

/// Returns the cloud of an environment name, with the endpoint of its API and the audience of
/// tokens.
fn find_cloud(name: &str) -> Result<(AzureCloud, &'static str, &'static str), Error> {
    Ok(match name.to_ascii_uppercase().as_str() {
        "AZURECHINACLOUD" => (
            AzureCloud::China,
            "https://management.chinacloudapi.cn",
            "https://management.core.chinacloudapi.cn/",
        ),
        "AZURECLOUD" | "AZUREGERMANCLOUD" | "AZUREPUBLICCLOUD" => (
            AzureCloud::Public,
            "https://management.azure.com",
            "https://management.core.windows.net/",
        ),
        "AZUREUSGOVERNMENT" | "AZUREUSGOVERNMENTCLOUD" => (
            AzureCloud::Government,
            "https://management.usgovcloudapi.net",
            "https://management.core.usgovcloudapi.net/",
        ),
        _ => {
            return Err(invalid_response_error(format!(
                "there is no cloud configuration matching the name {name:?}"
            )));
        }
    })
}

/// Extracts the name of the resource group from a resource id. Fails if the id contains none.
fn parse_resource_group(id: &str) -> Result<&str, Error> {
    let mut parts = id.split('/');
    let found = parts.find(|part| part.eq_ignore_ascii_case("resourceGroups"));
    let group = found.and_then(|_| parts.next()).unwrap_or_default();
    match group {
        "" => Err(invalid_response_error(format!("invalid ID '{id}'"))),
        group => Ok(group),
    }
}
