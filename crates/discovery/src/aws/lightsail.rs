//! Discovery of Lightsail instances, with the labels of Prometheus's `lightsail_sd_configs`.

use super::request::failed;
use super::service::Service;
use super::settings::AwsSettings;
use crate::discover::Refresh;
use crate::environment::of_process;
use crate::group::{Group, or_default};
use crate::meta::{Meta, host_port, sanitize, surrounded};
use firn_model::env::Clock;
use firn_model::error::Error;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The API operation that lists the instances of a region; the value of the `X-Amz-Target` header.
const OPERATION: &str = "Lightsail_20161128.GetInstances";

/// Discovery of Lightsail instances; each refresh lists all instances of the region.
pub(in super::super) struct Lightsail {
    service: Service,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    #[serde(deserialize_with = "or_default")]
    instances: Vec<Instance>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Instance {
    name: String,
    support_code: String,
    #[serde(deserialize_with = "or_default")]
    location: Location,
    blueprint_id: String,
    bundle_id: String,
    private_ip_address: String,
    public_ip_address: String,
    #[serde(deserialize_with = "or_default")]
    ipv6_addresses: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    state: State,
    #[serde(deserialize_with = "or_default")]
    tags: Vec<Tag>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Location {
    availability_zone: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tag {
    key: String,
    value: String,
}

impl Lightsail {
    pub(in super::super) fn new(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let variables = of_process();
        Self {
            service: Service::new("lightsail", settings, bytes_max, clock, variables),
        }
    }
}

impl Lightsail {
    async fn targets(&mut self) -> Result<Vec<Group>, Error> {
        let session = self.service.session().await?;
        let answer = session.json(OPERATION, &json!({})).await;
        let answer: Answer = answer.map_err(|e| failed("could not get instances", &e))?;
        let port = self.service.settings.port;
        let instances = answer.instances.iter();
        Ok(instances
            .filter(|instance| !instance.private_ip_address.is_empty())
            .map(|instance| instance.target(&session.region, port))
            .collect())
    }
}

impl Refresh for Lightsail {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("lightsail {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let targets = self.targets().await;
        self.service.learn(targets)
    }
}

impl Instance {
    fn target(&self, region: &str, port: i64) -> Group {
        let mut meta = Meta::new("lightsail");
        for (name, value) in [
            ("private_ip", self.private_ip_address.as_str()),
            ("public_ip", &self.public_ip_address),
            ("region", region),
            ("availability_zone", &self.location.availability_zone),
            ("blueprint_id", &self.blueprint_id),
            ("bundle_id", &self.bundle_id),
            ("instance_name", &self.name),
            ("instance_state", &self.state.name),
            ("instance_support_code", &self.support_code),
        ] {
            meta.set(name, value);
        }
        if !self.ipv6_addresses.is_empty() {
            meta.set("ipv6_addresses", surrounded(&self.ipv6_addresses, ","));
        }
        for tag in &self.tags {
            meta.set(&format!("tag_{}", sanitize(&tag.key)), &tag.value);
        }
        meta.at(host_port(&self.private_ip_address, port))
    }
}
