//! Instances of EC2 as targets.

use super::request::failed;
use super::service::Service;
use super::session::Session;
use super::settings::AwsSettings;
use crate::discover::Refresh;
use crate::environment::{Variables, of_process};
use crate::group::Group;
use crate::meta::{Meta, host_port, sanitize, surrounded};
use crate::pages::Pages;
use crate::xml::{child, items, parse, text};
use firn_model::env::Clock;
use firn_model::error::Error;
use roxmltree::Node;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

const VERSION: &str = "2016-11-15";

/// Interfaces of an instance at most; a place beyond is not one.
const INTERFACES_MAX: usize = 64;

/// Asks EC2 for instances.
pub(in super::super) struct Ec2 {
    service: Service,
    /// The ids of zones by their names, asked for once.
    zones: Option<BTreeMap<String, String>>,
}

/// The addresses of IPv6 that an instance has.
#[derive(Default)]
struct Ipv6 {
    /// By the place of their interface; empty where there is none.
    primary: Vec<String>,
    all: Vec<String>,
}

impl Ec2 {
    pub(in super::super) fn new(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let variables = of_process();
        Self::with(settings, bytes_max, clock, variables)
    }

    /// Like [`Self::new`], with another environment.
    pub(super) fn with(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
        variables: Variables,
    ) -> Self {
        Self {
            service: Service::new("ec2", settings, bytes_max, clock, variables),
            zones: None,
        }
    }

    /// The ids of the zones; none if that may not be asked.
    async fn zones(&mut self, session: &Session) -> BTreeMap<String, String> {
        if let Some(zones) = &self.zones {
            return zones.clone();
        }
        let pairs = [
            ("Action", "DescribeAvailabilityZones"),
            ("Version", VERSION),
        ];
        let answer = session.query(&pairs).await;
        match answer.and_then(|answer| read_zones(&answer)) {
            Ok(zones) => self.zones = Some(zones),
            Err(e) => debug!(error = %e, "cannot describe availability zones"),
        }
        self.zones.clone().unwrap_or_default()
    }
}

impl Ec2 {
    async fn targets(&mut self) -> Result<Vec<Group>, Error> {
        let session = self.service.session().await?;
        let zones = self.zones(&session).await;
        let mut filters: Vec<(String, String)> = Vec::new();
        for (i, filter) in (1..).zip(&self.service.settings.filters) {
            filters.push((format!("Filter.{i}.Name"), filter.name.clone()));
            for (j, value) in (1..).zip(&filter.values) {
                filters.push((format!("Filter.{i}.Value.{j}"), value.clone()));
            }
        }
        let mut groups = Vec::new();
        let mut pages = Pages::from("");
        while let Some(token) = pages.turn()? {
            let mut pairs = vec![("Action", "DescribeInstances"), ("Version", VERSION)];
            pairs.extend(filters.iter().map(|(n, v)| (n.as_str(), v.as_str())));
            if !token.is_empty() {
                pairs.push(("NextToken", &token));
            }
            let answer = session.query(&pairs).await;
            let answer = answer.map_err(|e| failed("could not describe instances", &e))?;
            let port = self.service.settings.port;
            let (found, next) = read_instances(&answer, &session.region, &zones, port)?;
            groups.extend(found);
            pages.follow(Some(next));
        }
        Ok(groups)
    }
}

impl Refresh for Ec2 {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("ec2 {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let targets = self.targets().await;
        self.service.learn(targets)
    }
}

fn read_zones(answer: &str) -> Result<BTreeMap<String, String>, Error> {
    let document = parse(answer)?;
    let zones = items(document.root_element(), "availabilityZoneInfo");
    let pairs = zones
        .iter()
        .map(|zone| (text(*zone, "zoneName"), text(*zone, "zoneId")));
    Ok(pairs
        .filter(|(name, id)| !name.is_empty() && !id.is_empty())
        .map(|(name, id)| (name.to_owned(), id.to_owned()))
        .collect())
}

/// The targets in an answer, and the token of the next.
fn read_instances(
    answer: &str,
    region: &str,
    zones: &BTreeMap<String, String>,
    port: i64,
) -> Result<(Vec<Group>, String), Error> {
    let document = parse(answer)?;
    let root = document.root_element();
    let mut groups = Vec::new();
    for reservation in items(root, "reservationSet") {
        for instance in items(reservation, "instancesSet") {
            let mut meta = Meta::new("ec2");
            meta.set("region", region);
            meta.set("owner_id", text(reservation, "ownerId"));
            groups.extend(target(instance, meta, zones, port));
        }
    }
    Ok((groups, text(root, "nextToken").to_owned()))
}

/// Labels that are the text of an element.
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

/// The target of an instance, unless it has no address.
fn target(
    instance: Node<'_, '_>,
    mut meta: Meta,
    zones: &BTreeMap<String, String>,
    port: i64,
) -> Option<Group> {
    for (label, element) in TEXTS {
        meta.set(label, text(instance, element));
    }
    if !text(instance, "ipAddress").is_empty() {
        meta.set("public_dns_name", text(instance, "dnsName"));
    }
    let of = |outer, inner| child(instance, outer).map_or("", |node| text(node, inner));
    let zone = of("placement", "availabilityZone");
    meta.set("availability_zone", zone);
    meta.set(
        "availability_zone_id",
        zones.get(zone).cloned().unwrap_or_default(),
    );
    meta.set("instance_state", of("instanceState", "name"));
    let mut ipv6 = Ipv6::default();
    if !text(instance, "vpcId").is_empty() {
        ipv6 = Ipv6::of(instance);
        meta.set("primary_subnet_id", text(instance, "subnetId"));
        meta.set("subnet_id", surrounded(&subnets(instance), ","));
    }
    for (label, list) in [
        ("primary_ipv6_addresses", &ipv6.primary),
        ("ipv6_addresses", &ipv6.all),
    ] {
        if !list.is_empty() {
            meta.set(label, surrounded(list, ","));
        }
    }
    let mut addresses = ipv6.primary.iter().chain(&ipv6.all);
    let default = addresses.find(|address| !address.is_empty());
    meta.set("default_ipv6_address", default.cloned().unwrap_or_default());
    for tag in items(instance, "tagSet") {
        let key = sanitize(text(tag, "key"));
        meta.set(&format!("tag_{key}"), text(tag, "value"));
    }
    match (text(instance, "privateIpAddress"), default) {
        ("", None) => None,
        ("", Some(ipv6)) => Some(meta.at(host_port(ipv6, port))),
        (private, _) => Some(meta.at(host_port(private, port))),
    }
}

/// The subnets of the interfaces, each once.
fn subnets(instance: Node<'_, '_>) -> Vec<String> {
    let mut subnets: Vec<String> = Vec::new();
    for interface in items(instance, "networkInterfaceSet") {
        let subnet = text(interface, "subnetId");
        if !subnet.is_empty() && !subnets.iter().any(|known| known == subnet) {
            subnets.push(subnet.to_owned());
        }
    }
    subnets
}

impl Ipv6 {
    fn of(instance: Node<'_, '_>) -> Self {
        let mut found = Self::default();
        for interface in items(instance, "networkInterfaceSet") {
            if text(interface, "subnetId").is_empty() {
                continue;
            }
            let attachment = child(interface, "attachment");
            let place = attachment.map_or("", |node| text(node, "deviceIndex"));
            let place: usize = place.parse().unwrap_or(0);
            for address in items(interface, "ipv6AddressesSet") {
                let ip = text(address, "ipv6Address").to_owned();
                if text(address, "isPrimaryIpv6") == "true" && place < INTERFACES_MAX {
                    // Places without one stay empty, so that the place says the interface.
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
