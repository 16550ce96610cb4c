//! Discovery of EC2 instances, with the labels of Prometheus's `ec2_sd_configs`.

use super::request::wrap_failure;
use super::service::AwsServiceClient;
use super::session::AwsSession;
use super::settings::AwsSettings;
use crate::discover::Refresh;
use crate::environment::{Variables, process_environment};
use crate::group::TargetGroup;
use crate::meta::{MetaLabels, join_host_port, join_surrounded, sanitize};
use crate::pages::ApiPageCursor;
use crate::xml::{child_text, find_child, list_items, parse};
use firn_model::env::Clock;
use firn_model::error::Error;
use roxmltree::Node;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

const VERSION: &str = "2016-11-15";

/// Maximum number of network interfaces per instance; primary IPv6 addresses with a larger device
/// index are ignored.
const INTERFACES_MAX: usize = 64;

/// Discovery of EC2 instances; each refresh reads all pages of `DescribeInstances`.
pub(in super::super) struct Ec2Discovery {
    service: AwsServiceClient,
    /// Availability zone ids by zone name. Requested once, then cached.
    zones: Option<BTreeMap<String, String>>,
}

/// The IPv6 addresses of an instance, collected from its network interfaces.
#[derive(Default)]
struct Ec2Ipv6Addresses {
    /// Primary addresses, indexed by the device index of their interface; empty strings fill the
    /// gaps.
    primary: Vec<String>,
    all: Vec<String>,
}

impl Ec2Discovery {
    pub(in super::super) fn new(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let variables = process_environment();
        Self::with_variables(settings, bytes_max, clock, variables)
    }

    /// Creates a discovery like [`Self::new`] that reads environment variables from `variables`.
    pub(super) fn with_variables(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
        variables: Variables,
    ) -> Self {
        Self {
            service: AwsServiceClient::new("ec2", settings, bytes_max, clock, variables),
            zones: None,
        }
    }

    /// Returns the availability zone ids by zone name; empty if the request fails, for example
    /// because the credentials lack the permission.
    async fn fetch_zones(&mut self, session: &AwsSession) -> BTreeMap<String, String> {
        if let Some(zones) = &self.zones {
            return zones.clone();
        }
        let pairs = [
            ("Action", "DescribeAvailabilityZones"),
            ("Version", VERSION),
        ];
        let answer = session.call_query_api(&pairs).await;
        match answer.and_then(|answer| read_zones(&answer)) {
            Ok(zones) => self.zones = Some(zones),
            Err(e) => debug!(error = %e, "cannot describe availability zones"),
        }
        self.zones.clone().unwrap_or_default()
    }
}

impl Ec2Discovery {
    async fn fetch_targets(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.service.open_session().await?;
        let zones = self.fetch_zones(&session).await;
        let mut filters: Vec<(String, String)> = Vec::new();
        for (i, filter) in (1..).zip(&self.service.settings.filters) {
            filters.push((format!("Filter.{i}.Name"), filter.name.clone()));
            for (j, value) in (1..).zip(&filter.values) {
                filters.push((format!("Filter.{i}.Value.{j}"), value.clone()));
            }
        }
        let mut groups = Vec::new();
        let mut pages = ApiPageCursor::from("");
        while let Some(token) = pages.next_position()? {
            let mut pairs = vec![("Action", "DescribeInstances"), ("Version", VERSION)];
            pairs.extend(filters.iter().map(|(n, v)| (n.as_str(), v.as_str())));
            if !token.is_empty() {
                pairs.push(("NextToken", &token));
            }
            let answer = session.call_query_api(&pairs).await;
            let answer = answer.map_err(|e| wrap_failure("could not describe instances", &e))?;
            let port = self.service.settings.port;
            let (found, next) = read_instances(&answer, &session.region, &zones, port)?;
            groups.extend(found);
            pages.set_next(Some(next));
        }
        Ok(groups)
    }
}

impl Refresh for Ec2Discovery {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("ec2 {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let targets = self.fetch_targets().await;
        self.service.check_refresh(targets)
    }
}

fn read_zones(answer: &str) -> Result<BTreeMap<String, String>, Error> {
    let document = parse(answer)?;
    let zones = list_items(document.root_element(), "availabilityZoneInfo");
    let pairs = zones
        .iter()
        .map(|zone| (child_text(*zone, "zoneName"), child_text(*zone, "zoneId")));
    Ok(pairs
        .filter(|(name, id)| !name.is_empty() && !id.is_empty())
        .map(|(name, id)| (name.to_owned(), id.to_owned()))
        .collect())
}

/// Reads a page of instances and returns its targets with the token of the next page.
fn read_instances(
    answer: &str,
    region: &str,
    zones: &BTreeMap<String, String>,
    port: i64,
) -> Result<(Vec<TargetGroup>, String), Error> {
    let document = parse(answer)?;
    let root = document.root_element();
    let mut groups = Vec::new();
    for reservation in list_items(root, "reservationSet") {
        for instance in list_items(reservation, "instancesSet") {
            let mut meta = MetaLabels::new("ec2");
            meta.set("region", region);
            meta.set("owner_id", child_text(reservation, "ownerId"));
            groups.extend(build_target(instance, meta, zones, port));
        }
    }
    Ok((groups, child_text(root, "nextToken").to_owned()))
}

/// Label names, without prefix, and the XML elements whose text is their value.
const TEXTS: [(&str, &str); 10] = [
    ("instance_id", "instanceId"),
    ("private_ip", "privateIpAddress"),
    ("private_dns_name", "privateDnsName"),
    ("platform", "platform"),
    ("ami", "imageId"),
    ("instance_type", "instanceType"),
    ("instance_lifecycle", "instanceLifecycle"),
    ("architecture", "architecture"),
    ("vpc_id", "vpcId"),
    ("public_ip", "ipAddress"),
];

/// Builds the target of an instance. Returns `None` if the instance has neither a private IPv4
/// address nor an IPv6 address.
fn build_target(
    instance: Node<'_, '_>,
    mut meta: MetaLabels,
    zones: &BTreeMap<String, String>,
    port: i64,
) -> Option<TargetGroup> {
    for (label, element) in TEXTS {
        meta.set(label, child_text(instance, element));
    }
    if !child_text(instance, "ipAddress").is_empty() {
        meta.set("public_dns_name", child_text(instance, "dnsName"));
    }
    let of = |outer, inner| find_child(instance, outer).map_or("", |node| child_text(node, inner));
    let zone = of("placement", "availabilityZone");
    meta.set("availability_zone", zone);
    meta.set(
        "availability_zone_id",
        zones.get(zone).cloned().unwrap_or_default(),
    );
    meta.set("instance_state", of("instanceState", "name"));
    let mut ipv6 = Ec2Ipv6Addresses::default();
    if !child_text(instance, "vpcId").is_empty() {
        ipv6 = Ec2Ipv6Addresses::collect_from_instance(instance);
        meta.set("primary_subnet_id", child_text(instance, "subnetId"));
        meta.set("subnet_id", join_surrounded(&subnet_ids(instance), ","));
    }
    for (label, list) in [
        ("primary_ipv6_addresses", &ipv6.primary),
        ("ipv6_addresses", &ipv6.all),
    ] {
        if !list.is_empty() {
            meta.set(label, join_surrounded(list, ","));
        }
    }
    let mut addresses = ipv6.primary.iter().chain(&ipv6.all);
    let default = addresses.find(|address| !address.is_empty());
    meta.set("default_ipv6_address", default.cloned().unwrap_or_default());
    for tag in list_items(instance, "tagSet") {
        let key = sanitize(child_text(tag, "key"));
        meta.set(&format!("tag_{key}"), child_text(tag, "value"));
    }
    match (child_text(instance, "privateIpAddress"), default) {
        ("", None) => None,
        ("", Some(ipv6)) => Some(meta.into_target(join_host_port(ipv6, port))),
        (private, _) => Some(meta.into_target(join_host_port(private, port))),
    }
}

/// Returns the distinct subnet ids of the instance's interfaces, in order of first occurrence.
fn subnet_ids(instance: Node<'_, '_>) -> Vec<String> {
    let mut subnets: Vec<String> = Vec::new();
    for interface in list_items(instance, "networkInterfaceSet") {
        let subnet = child_text(interface, "subnetId");
        if !subnet.is_empty() && !subnets.iter().any(|known| known == subnet) {
            subnets.push(subnet.to_owned());
        }
    }
    subnets
}

impl Ec2Ipv6Addresses {
    fn collect_from_instance(instance: Node<'_, '_>) -> Self {
        let mut found = Self::default();
        for interface in list_items(instance, "networkInterfaceSet") {
            if child_text(interface, "subnetId").is_empty() {
                continue;
            }
            let attachment = find_child(interface, "attachment");
            let place = attachment.map_or("", |node| child_text(node, "deviceIndex"));
            let place: usize = place.parse().unwrap_or(0);
            for address in list_items(interface, "ipv6AddressesSet") {
                let ip = child_text(address, "ipv6Address").to_owned();
                if child_text(address, "isPrimaryIpv6") == "true" && place < INTERFACES_MAX {
                    // Interfaces without a primary address keep an empty entry, so that the index
                    // in the list is the device index.
                    let count = found.primary.len().max(place + 1);
                    found.primary.resize(count, String::new());
                    found.primary[place] = ip.clone();
                }
                found.all.push(ip);
            }
        }
        found
    }
}
