//! Discovery of Linode virtual machines.
//!
//! ```text
//! events since the last request -> none: keep the list; any, or every tenth time: read all lists
//! ```
//!
//! The behaviour follows upstream's `discovery/linode` and Linode's API.

use crate::api::{ApiClient, invalid_response_error, parse_header_value};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::refresh_interval;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::StatusCode;
use hyper::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

/// Base URL of the Linode API.
const ENDPOINT: &str = "https://api.linode.com/v4";

/// Header with a JSON filter for a list.
const FILTER: HeaderName = HeaderName::from_static("x-filter");

/// Number of requests for events after which the lists are read even if there are no events.
const QUIET_MAX: u32 = 10;

/// The provider of `linode_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "linode_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
    key("tag_separator", Shape::Text),
    key("region", Shape::Text),
];

/// An entry of `linode_sd_configs`: the region whose virtual machines are discovered, and
/// credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct LinodeSettings {
    /// The `region` key: region whose machines are discovered; empty for all regions.
    pub region: String,
    /// The `tag_separator` key: separator of the values in labels that contain lists.
    pub tag_separator: String,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for LinodeSettings {
    fn mechanism(&self) -> &'static str {
        "linode"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(LinodeDiscovery::new(
            self,
            starter.bytes_max,
            starter.clock.clone(),
        ))
    }
}

/// Reads an entry of `linode_sd_configs`, all of whose keys are optional.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    Ok(DiscoverySettings::provided(LinodeSettings {
        region: read::string(node, "region"),
        tag_separator: read::string_or(node, "tag_separator", ","),
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery of Linode instances; keeps the last list for refreshes without new events.
pub(super) struct LinodeDiscovery {
    settings: LinodeSettings,
    api: ApiClient,
    endpoint: String,
    clock: Arc<dyn Clock>,
    /// Time of the last successful refresh, in milliseconds; at first, the creation time of this
    /// value.
    asked_ms: i64,
    /// Targets of the last complete read, published again while there are no events.
    last: Option<Vec<TargetGroup>>,
    quiet: u32,
    asks_events: bool,
}

#[derive(serde::Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct LinodePage<T> {
    data: Vec<T>,
    #[serde(default)]
    pages: usize,
}

answers! {
    struct LinodeEvent {
        id: i64,
    }

    struct LinodeInstance {
        id: i64,
        label: String,
        group: String,
        status: String,
        #[serde(rename = "type")]
        kind: String,
        region: String,
        image: String,
        hypervisor: String,
        ipv4: Vec<String>,
        ipv6: String,
        specs: LinodeSpecs,
        backups: LinodeBackups,
        tags: Vec<String>,
    }

    struct LinodeSpecs {
        disk: i64,
        memory: i64,
        vcpus: i64,
        gpus: i64,
        transfer: i64,
    }

    struct LinodeBackups {
        enabled: bool,
    }

    struct LinodeAddress {
        address: String,
        public: bool,
        rdns: String,
    }

    struct LinodeIpRange {
        range: String,
        prefix: i64,
        route_target: String,
    }
}

/// IP addresses and ranges of one instance, by kind.
#[derive(Default)]
struct LinodeInstanceIps {
    public: Option<LinodeAddress>,
    private: Option<LinodeAddress>,
    public_ipv6: Option<LinodeAddress>,
    extra: Vec<String>,
    ranges: Vec<String>,
}

impl LinodeDiscovery {
    pub(super) fn new(settings: &LinodeSettings, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        Self::with_endpoint(ENDPOINT, settings, bytes_max, clock)
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`.
    pub(super) fn with_endpoint(
        endpoint: &str,
        settings: &LinodeSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
            endpoint: endpoint.to_owned(),
            asked_ms: clock.now_ms(),
            clock,
            last: None,
            quiet: 0,
            asks_events: true,
        }
    }

    /// Returns all pages of a list, filtered by the region of the settings.
    async fn fetch_list<T>(&self, path: &str) -> Result<Vec<T>, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let mut headers = HeaderMap::new();
        if !self.settings.region.is_empty() {
            let filter = format!("{{\"region\": \"{}\"}}", self.settings.region);
            headers.insert(FILTER, parse_header_value(&filter)?);
        }
        let url = |number| format!("{}/{path}?page={number}&page_size=500", self.endpoint);
        let next = |page: &LinodePage<T>, number| (number < page.pages).then(|| url(number + 1));
        let pages = self.api.get_pages(&url(1), &headers, next).await?;
        Ok(pages.into_iter().flat_map(|page| page.data).collect())
    }

    /// Returns whether the list must be read again, because of new events or the number of
    /// refreshes without any.
    async fn needs_full_refresh(&mut self) -> Result<bool, Error> {
        if self.last.is_none() || !self.asks_events {
            return Ok(true);
        }
        let since = format_time(self.asked_ms);
        let filter = format!("{{\"created\": {{\"+gte\": \"{since}\"}}}}");
        let mut headers = HeaderMap::new();
        headers.insert(FILTER, parse_header_value(&filter)?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let url = format!("{}/account/events?page=1&page_size=25", self.endpoint);
        let answer = self.api.get(&url, &headers).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            // The token has no permission for events, so the lists are read every time.
            self.asks_events = false;
            return Ok(true);
        }
        let events: LinodePage<LinodeEvent> = answer.require_success()?.decode_json().await?;
        self.quiet += 1;
        Ok(!events.data.is_empty() || self.quiet >= QUIET_MAX)
    }

    async fn fetch_targets(&self) -> Result<Vec<TargetGroup>, Error> {
        let instances: Vec<LinodeInstance> = self.fetch_list("linode/instances").await?;
        let addresses: Vec<LinodeAddress> = self.fetch_list("networking/ips").await?;
        let ranges: Vec<LinodeIpRange> = self.fetch_list("networking/ipv6/ranges").await?;
        let instances = instances.iter().filter(|one| !one.ipv4.is_empty());
        Ok(instances
            .map(|one| {
                one.build_target(
                    &LinodeInstanceIps::collect_for_instance(one, &addresses, &ranges),
                    &self.settings,
                )
            })
            .collect())
    }
}

impl Refresh for LinodeDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let now_ms = self.clock.now_ms();
        if self.needs_full_refresh().await? {
            self.last = Some(self.fetch_targets().await?);
            self.quiet = 0;
        }
        self.asked_ms = now_ms;
        self.last
            .clone()
            .ok_or_else(|| invalid_response_error("no list yet"))
    }
}

impl LinodeInstanceIps {
    fn collect_for_instance(
        instance: &LinodeInstance,
        addresses: &[LinodeAddress],
        ranges: &[LinodeIpRange],
    ) -> Self {
        let mut found = Self::default();
        for ip in &instance.ipv4 {
            for address in addresses.iter().filter(|one| one.address == *ip) {
                let place = if address.public {
                    &mut found.public
                } else {
                    &mut found.private
                };
                match place {
                    None => *place = Some(address.clone()),
                    Some(_) => found.extra.push(address.address.clone()),
                }
            }
        }
        let own = instance.ipv6.split('/').next().unwrap_or_default();
        if !own.is_empty() {
            let of_own = addresses.iter().rfind(|one| one.address == own);
            found.public_ipv6 = of_own.cloned();
            let of_own = ranges.iter().filter(|range| range.route_target == own);
            found.ranges = of_own
                .map(|r| format!("{}/{}", r.range, r.prefix))
                .collect();
        }
        found
    }
}

impl LinodeAddress {
    fn name(&self) -> &str {
        match self.rdns.as_str() {
            "null" => "",
            name => name,
        }
    }
}

impl LinodeInstance {
    fn build_target(
        &self,
        addresses: &LinodeInstanceIps,
        settings: &LinodeSettings,
    ) -> TargetGroup {
        let mut meta = MetaLabels::new("linode");
        let backups = if self.backups.enabled {
            "enabled"
        } else {
            "disabled"
        };
        meta.set_all([
            ("instance_label", self.label.as_str()),
            ("image", &self.image),
            ("region", &self.region),
            ("type", &self.kind),
            ("status", &self.status),
            ("group", &self.group),
            ("hypervisor", &self.hypervisor),
            ("backups", backups),
        ]);
        for (label, address) in [
            ("private_ipv4", &addresses.private),
            ("public_ipv4", &addresses.public),
            ("public_ipv6", &addresses.public_ipv6),
        ] {
            if let Some(address) = address {
                meta.set(label, &address.address);
                meta.set(&format!("{label}_rdns"), address.name());
            }
        }
        meta.set("instance_id", self.id.to_string());
        meta.set("gpus", self.specs.gpus.to_string());
        meta.set("specs_vcpus", self.specs.vcpus.to_string());
        for (label, mebibytes) in [
            ("specs_disk_bytes", self.specs.disk),
            ("specs_memory_bytes", self.specs.memory),
            ("specs_transfer_bytes", self.specs.transfer),
        ] {
            meta.set(label, (mebibytes << 20).to_string());
        }
        let separator = &settings.tag_separator;
        meta.set_list("tags", &self.tags, separator);
        meta.set_list("extra_ips", &addresses.extra, separator);
        meta.set_list("ipv6_ranges", &addresses.ranges, separator);
        let public = addresses.public.as_ref();
        let public = public.map_or("", |address| address.address.as_str());
        meta.into_target(join_host_port(public, settings.port))
    }
}

/// Formats a time as `2006-01-02T15:04:05`, in UTC.
fn format_time(time_ms: i64) -> String {
    let seconds = time_ms.div_euclid(1000);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}
