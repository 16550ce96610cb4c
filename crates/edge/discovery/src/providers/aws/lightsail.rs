//! Discovery of Lightsail instances, with the labels of Prometheus's `lightsail_sd_configs`.

use super::request::wrap_failure;
use super::service::AwsServiceClient;
use super::settings::AwsSettings;
use crate::discover::Refresh;
use crate::environment::process_environment;
use crate::group::{TargetGroup, or_default};
use crate::meta::{MetaLabels, join_host_port, join_surrounded, sanitize};
use firn_model::env::Clock;
use firn_model::error::Error;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The API operation that lists the instances of a region; the value of the `X-Amz-Target` header.
const OPERATION: &str = "Lightsail_20161128.GetInstances";

/// Discovery of Lightsail instances; each refresh lists all instances of the region.
pub(in super::super) struct LightsailDiscovery {
    service: AwsServiceClient,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LightsailInstanceList {
    #[serde(deserialize_with = "or_default")]
    instances: Vec<LightsailInstance>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LightsailInstance {
    name: String,
    support_code: String,
    #[serde(deserialize_with = "or_default")]
    location: LightsailLocation,
    blueprint_id: String,
    bundle_id: String,
    private_ip_address: String,
    public_ip_address: String,
    #[serde(deserialize_with = "or_default")]
    ipv6_addresses: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    state: LightsailState,
    #[serde(deserialize_with = "or_default")]
    tags: Vec<LightsailTag>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LightsailLocation {
    availability_zone: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LightsailState {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LightsailTag {
    key: String,
    value: String,
}

impl LightsailDiscovery {
    pub(in super::super) fn new(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let variables = process_environment();
        Self {
            service: AwsServiceClient::new("lightsail", settings, bytes_max, clock, variables),
        }
    }
}

impl LightsailDiscovery {
    async fn fetch_targets(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.service.open_session().await?;
        let answer = session.call_json_api(OPERATION, &json!({})).await;
        let answer: LightsailInstanceList =
            answer.map_err(|e| wrap_failure("could not get instances", &e))?;
        let port = self.service.settings.port;
        let instances = answer.instances.iter();
        Ok(instances
            .filter(|instance| !instance.private_ip_address.is_empty())
            .map(|instance| instance.build_target(&session.region, port))
            .collect())
    }
}

impl Refresh for LightsailDiscovery {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("lightsail {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let targets = self.fetch_targets().await;
        self.service.check_refresh(targets)
    }
}

impl LightsailInstance {
    fn build_target(&self, region: &str, port: i64) -> TargetGroup {
        let mut meta = MetaLabels::new("lightsail");
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
            meta.set("ipv6_addresses", join_surrounded(&self.ipv6_addresses, ","));
        }
        for tag in &self.tags {
            meta.set(&format!("tag_{}", sanitize(&tag.key)), &tag.value);
        }
        meta.into_target(join_host_port(&self.private_ip_address, port))
    }
}
