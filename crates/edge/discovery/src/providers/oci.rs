//! Discovery of Oracle Cloud (OCI) compute instances, at the addresses of their primary network
//! cards.
//!
//! ```text
//! compartments: configured, or all in the tenancy -> instances -> attachments -> primary card
//! ```
//!
//! The behaviour follows upstream's `discovery/oci` and Oracle's API, whose requests carry HTTP
//! signatures (draft-cavage-http-signatures-08).

mod machine;
mod realms;
mod signer;
#[cfg(test)]
mod tests;

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::pages::ApiPageCursor;
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{is_interval_valid, refresh_interval, require, secret};
use firn_config_schema::read::{self, is_set};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::{HttpSettings, Secret, form_encode};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_yaml::{YamlError, YamlNode};
use hyper::header::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use signer::OciSigner;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

/// Version of the API, which is part of all paths.
const VERSION: &str = "20160918";

/// Average time between two requests. Like upstream, ten requests per second, which the service
/// permits.
const PAUSE: Duration = Duration::from_millis(100);

/// Number of requests that may be sent without a pause.
const BURST: u32 = 50;

/// Response header with the token of the next page.
const NEXT_PAGE: &str = "opc-next-page";

/// The provider of `oci_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "oci_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("auth", Shape::Text),
    key("tenancy", Shape::Text),
    key("user", Shape::Text),
    key("fingerprint", Shape::Text),
    key("key_file", Shape::Text),
    key("key_passphrase", Shape::Secret),
    key("key_passphrase_file", Shape::Text),
    key("region", Shape::Text),
    key("compartments", TEXTS),
    key("port", Shape::Integer),
    key("refresh_interval", Shape::Duration),
];

/// An entry of `oci_sd_configs`: the tenancy whose compute instances are discovered, and
/// credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct OciSettings {
    /// Whether requests are authenticated as this machine (`auth: instance_principal`).
    pub is_machine: bool,
    /// The `tenancy` key: id of the tenancy to which the user belongs.
    pub tenancy: String,
    /// The `user` key: id of the user whose key signs requests.
    pub user: String,
    /// The `fingerprint` key: fingerprint of the user's key, which identifies it to the API.
    pub fingerprint: String,
    /// The `key_file` key: file with the user's private RSA key in PEM.
    pub key_file: PathBuf,
    /// The `key_passphrase` or `key_passphrase_file` key: passphrase of the private key.
    pub key_passphrase: Option<Secret>,
    /// The `region` key: full or short name of the region whose instances are discovered.
    pub region: String,
    /// The `compartments` key: ids of the compartments to discover; empty for all in the
    /// tenancy.
    pub compartments: Vec<String>,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for OciSettings {
    fn mechanism(&self) -> &'static str {
        "oci"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(OciDiscovery::new(
            self,
            starter.bytes_max,
            starter.clock.clone(),
        ))
    }
}

/// Reads an entry of `oci_sd_configs`. The required keys depend on the authentication method.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let compartments = check_entry(node)?;
    Ok(DiscoverySettings::provided(OciSettings {
        is_machine: read::string(node, "auth") == "instance_principal",
        tenancy: read::string(node, "tenancy"),
        user: read::string(node, "user"),
        fingerprint: read::string(node, "fingerprint"),
        key_file: read::path(node, "key_file", dir).unwrap_or_default(),
        key_passphrase: secret(node, "key_passphrase", dir),
        region: read::string(node, "region"),
        compartments,
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Validates the keys of the section and returns the configured compartments.
fn check_entry(node: &YamlNode) -> Result<Vec<String>, YamlError> {
    require(node, &[("region", "oci_sd: region is required")])?;
    let auth = read::string_or(node, "auth", "api_key");
    match auth.as_str() {
        "api_key" => {
            for key in ["tenancy", "user", "fingerprint", "key_file"] {
                if !is_set(node, key) {
                    return Err(node.error(format!("oci_sd: api_key auth requires {key}")));
                }
            }
            if is_set(node, "key_passphrase") && is_set(node, "key_passphrase_file") {
                return Err(node.error(
                    "oci_sd: at most one of key_passphrase and key_passphrase_file must be \
                     configured",
                ));
            }
        }
        "instance_principal" => {
            let keys = [
                "tenancy",
                "user",
                "fingerprint",
                "key_file",
                "key_passphrase",
            ];
            let has_any = keys.iter().any(|key| is_set(node, key));
            if has_any || is_set(node, "key_passphrase_file") {
                return Err(node.error(
                    "oci_sd: instance_principal auth must not have tenancy, user, fingerprint, \
                     key_file, key_passphrase, or key_passphrase_file set",
                ));
            }
        }
        _ => {
            return Err(node.error(format!(
                "oci_sd: unknown auth method {auth:?}, expected \"api_key\" or \
                 \"instance_principal\""
            )));
        }
    }
    let compartments = read::texts(node, "compartments").unwrap_or_default();
    if let Some(i) = compartments.iter().position(String::is_empty) {
        return Err(node.error(format!("oci_sd: compartments[{i}] must not be empty")));
    }
    if !is_interval_valid(node) {
        return Err(node.error("oci_sd: refresh_interval must be positive, got 0s"));
    }
    Ok(compartments)
}

answers! {
    #[serde(rename_all = "camelCase")]
    struct OciCompartment {
        id: String,
        lifecycle_state: String,
    }

    #[serde(rename_all = "camelCase")]
    struct OciInstance {
        id: String,
        compartment_id: String,
        display_name: String,
        lifecycle_state: String,
        shape: String,
        availability_domain: String,
        fault_domain: String,
        region: String,
        image_id: String,
        freeform_tags: BTreeMap<String, String>,
        defined_tags: BTreeMap<String, BTreeMap<String, Value>>,
    }

    #[serde(rename_all = "camelCase")]
    struct OciVnicAttachment {
        vnic_id: String,
        lifecycle_state: String,
    }

    #[serde(rename_all = "camelCase")]
    struct OciVnic {
        id: String,
        is_primary: bool,
        private_ip: String,
        public_ip: String,
        ipv6_addresses: Vec<String>,
        hostname_label: String,
    }
}

/// Base URLs of the OCI services for identity and compute.
#[derive(Clone, Debug)]
struct OciEndpoints {
    identity: String,
    compute: String,
}

/// Rate limiter for requests (token bucket), which permits a burst of [`BURST`] requests.
struct OciRateLimiter {
    /// Time at which the bucket is full again, so that a complete burst may be sent.
    full: Instant,
}

/// Discovery of OCI compute instances; each refresh reads all compartments and network cards.
pub(super) struct OciDiscovery {
    settings: OciSettings,
    endpoints: OciEndpoints,
    signer: Arc<OciSigner>,
    /// Id of the tenancy; empty until the first refresh.
    tenancy: String,
    api: ApiClient,
    pace: OciRateLimiter,
}

impl OciRateLimiter {
    /// Waits until the rate limit permits the next request, and counts it.
    async fn wait_for_permit(&mut self) {
        let now = Instant::now();
        self.full = self.full.max(now) + PAUSE;
        // On a clock that has not run for the length of a burst, requests are not delayed.
        let due = self.full.checked_sub(PAUSE * BURST);
        if let Some(due) = due.filter(|due| *due > now) {
            sleep_until(due).await;
        }
    }
}

impl OciDiscovery {
    pub(super) fn new(settings: &OciSettings, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        let (region, domain) = realms::resolve_region(&settings.region);
        let endpoints = OciEndpoints {
            identity: format!("https://identity.{region}.oci.{domain}"),
            compute: format!("https://iaas.{region}.{domain}"),
        };
        let signer = OciSigner::new(settings, clock);
        Self::with_endpoints(endpoints, settings, bytes_max, signer)
    }

    fn with_endpoints(
        endpoints: OciEndpoints,
        settings: &OciSettings,
        bytes_max: u64,
        signer: OciSigner,
    ) -> Self {
        let signer = Arc::new(signer);
        Self {
            api: ApiClient::with_signer(&settings.client, bytes_max, signer.clone()),
            signer,
            tenancy: String::new(),
            settings: settings.clone(),
            endpoints,
            pace: OciRateLimiter {
                full: Instant::now(),
            },
        }
    }

    /// Returns all pages of the list at `url`, within the rate limit.
    async fn fetch_list<T>(&mut self, url: &str) -> Result<Vec<T>, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let mut all = Vec::new();
        let mut pages = ApiPageCursor::from(url);
        while let Some(at) = pages.next_position()? {
            self.pace.wait_for_permit().await;
            let answer = self
                .api
                .get(&at, &HeaderMap::new())
                .await?
                .require_success()?;
            let next = answer.header(NEXT_PAGE);
            let next = (!next.is_empty()).then(|| format!("{url}&page={}", form_encode(next)));
            let items: Vec<T> = answer.decode_json().await?;
            all.extend(items);
            pages.set_next(next);
        }
        Ok(all)
    }

    /// Returns the configured compartments, or the tenancy with all active compartments below it. A
    /// compartment whose children cannot be listed is treated as having none.
    async fn list_compartments(&mut self) -> Vec<String> {
        if !self.settings.compartments.is_empty() {
            return self.settings.compartments.clone();
        }
        let (mut all, mut known) = (Vec::new(), BTreeSet::new());
        let mut queue = VecDeque::from([self.tenancy.clone()]);
        while let Some(id) = queue.pop_front() {
            if !known.insert(id.clone()) {
                continue;
            }
            let url = format!(
                "{}/{VERSION}/compartments?accessLevel=ACCESSIBLE&compartmentId={}\
                 &compartmentIdInSubtree=false&limit=100",
                self.endpoints.identity,
                form_encode(&id)
            );
            match self.fetch_list::<OciCompartment>(&url).await {
                Ok(children) => {
                    let active = |child: &OciCompartment| child.lifecycle_state == "ACTIVE";
                    let children = children.into_iter().filter(active);
                    queue.extend(children.map(|child| child.id).filter(|id| !id.is_empty()));
                }
                Err(e) => warn!(compartment = id, error = %e, "cannot list compartments"),
            }
            all.push(id);
        }
        all
    }

    /// Returns the primary network card of `instance`, or an empty card if it has none.
    async fn find_primary_vnic(&mut self, instance: &OciInstance) -> Result<OciVnic, Error> {
        let compute = self.endpoints.compute.clone();
        let url = format!(
            "{compute}/{VERSION}/vnicAttachments?compartmentId={}&instanceId={}&limit=100",
            form_encode(&instance.compartment_id),
            form_encode(&instance.id)
        );
        for attachment in self.fetch_list::<OciVnicAttachment>(&url).await? {
            if attachment.vnic_id.is_empty() || attachment.lifecycle_state != "ATTACHED" {
                continue;
            }
            let id = form_encode(&attachment.vnic_id);
            self.pace.wait_for_permit().await;
            let url = format!("{compute}/{VERSION}/vnics/{id}");
            let answer = self
                .api
                .get(&url, &HeaderMap::new())
                .await?
                .require_success()?;
            let mut card: OciVnic = answer.decode_json().await?;
            if card.is_primary {
                card.ipv6_addresses.sort();
                return Ok(card);
            }
        }
        Ok(OciVnic::default())
    }

    fn build_target(&self, instance: &OciInstance, card: &OciVnic) -> Option<TargetGroup> {
        let addresses = [&card.private_ip, &card.public_ip].into_iter();
        let mut addresses = addresses.chain(&card.ipv6_addresses);
        let address = addresses.find(|address| !address.is_empty())?;
        let mut meta = MetaLabels::new("oci");
        meta.set_all([
            ("instance_id", instance.id.as_str()),
            ("instance_name", &instance.display_name),
            ("instance_state", &instance.lifecycle_state),
            ("instance_shape", &instance.shape),
            ("availability_domain", &instance.availability_domain),
            ("fault_domain", &instance.fault_domain),
            ("region", &instance.region),
            ("tenancy_id", &self.tenancy),
            ("compartment_id", &instance.compartment_id),
            ("image_id", &instance.image_id),
            ("vnic_id", &card.id),
            ("private_ip", &card.private_ip),
            ("public_ip", &card.public_ip),
            ("hostname_label", &card.hostname_label),
        ]);
        meta.set_list("ipv6_addresses", &card.ipv6_addresses, ",");
        meta.set_each("tag_", &instance.freeform_tags);
        for (space, tags) in &instance.defined_tags {
            for (key, value) in tags {
                if let Some(text) = tag_value_text(value) {
                    let name = format!("defined_tag_{}_{}", sanitize(space), sanitize(key));
                    meta.set(&name, text);
                }
            }
        }
        Some(meta.into_target(join_host_port(address, self.settings.port)))
    }
}

/// Converts a tag value to a label value. Returns `None` for lists, maps and null.
fn tag_value_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(is_so) => Some(is_so.to_string()),
        // Upstream reads numbers as floats, so they are formatted as floats.
        Value::Number(number) => Some(number.as_f64()?.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Refresh for OciDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.endpoints.compute.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        self.tenancy = self.signer.find_tenancy().await?;
        let mut groups = Vec::new();
        for id in self.list_compartments().await {
            let url = format!(
                "{}/{VERSION}/instances?compartmentId={}&limit=100",
                self.endpoints.compute,
                form_encode(&id)
            );
            let instances = self.fetch_list::<OciInstance>(&url).await;
            let instances = instances.map_err(|e| {
                invalid_response_error(format!("listing OCI instances in compartment {id}: {e}"))
            })?;
            for instance in instances {
                if instance.id.is_empty() || instance.compartment_id.is_empty() {
                    warn!(compartment = id, "skipping instance without an id");
                    continue;
                }
                match self.find_primary_vnic(&instance).await {
                    Ok(card) => match self.build_target(&instance, &card) {
                        Some(group) => groups.push(group),
                        None => debug!(instance = instance.id, "instance has no address"),
                    },
                    Err(e) => {
                        warn!(instance = instance.id, error = %e, "skipping instance");
                    }
                }
            }
        }
        Ok(groups)
    }
}
