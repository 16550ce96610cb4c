//! Discovery of the Kafka brokers and controllers of MSK clusters.
//!
//! ```text
//! clusters: all, or those in the config -> nodes of each -> one target per endpoint
//! ```

use super::service::AwsServiceClient;
use super::session::AwsSession;
use super::settings::AwsSettings;
use crate::api::invalid_response_error;
use crate::discover::Refresh;
use crate::environment::process_environment;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port};
use crate::pages::ApiPageCursor;
use crate::side_by_side::run_concurrently;
use firn_http_client::form_encode;
use firn_model::env::Clock;
use firn_model::error::Error;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Type of the clusters that have brokers to scrape; serverless clusters have none.
const PROVISIONED: &str = "PROVISIONED";

/// Discovery of MSK brokers and controllers; each refresh lists clusters and their nodes.
pub(in super::super) struct MskDiscovery {
    service: AwsServiceClient,
}

answers! {
    #[serde(rename_all = "camelCase")]
    struct MskClusterPage {
        cluster_info_list: Vec<MskCluster>,
        next_token: String,
    }

    #[serde(rename_all = "camelCase")]
    struct MskClusterResponse {
        cluster_info: MskCluster,
    }

    #[serde(rename_all = "camelCase")]
    struct MskCluster {
        cluster_arn: String,
        cluster_name: String,
        cluster_type: String,
        current_version: String,
        state: String,
        tags: BTreeMap<String, String>,
        provisioned: MskProvisioned,
    }

    #[serde(rename_all = "camelCase")]
    struct MskProvisioned {
        current_broker_software_info: MskBrokerSoftware,
        open_monitoring: MskOpenMonitoring,
    }

    #[serde(rename_all = "camelCase")]
    struct MskBrokerSoftware {
        kafka_version: String,
        configuration_arn: String,
        configuration_revision: Option<i64>,
    }

    struct MskOpenMonitoring {
        prometheus: MskExporters,
    }

    #[serde(rename_all = "camelCase")]
    struct MskExporters {
        jmx_exporter: Option<MskExporter>,
        node_exporter: Option<MskExporter>,
    }

    #[serde(rename_all = "camelCase")]
    struct MskExporter {
        enabled_in_broker: bool,
    }

    #[serde(rename_all = "camelCase")]
    struct MskNodePage {
        node_info_list: Vec<MskNode>,
        next_token: String,
    }

    #[serde(rename_all = "camelCase")]
    struct MskNode {
        #[serde(rename = "nodeARN")]
        node_arn: String,
        added_to_cluster_time: String,
        instance_type: String,
        broker_node_info: Option<MskBroker>,
        controller_node_info: Option<MskController>,
    }

    #[serde(rename_all = "camelCase")]
    struct MskBroker {
        #[serde(rename = "attachedENIId")]
        attached_eni: String,
        broker_id: f64,
        client_subnet: String,
        client_vpc_ip_address: String,
        endpoints: Vec<String>,
    }

    struct MskController {
        endpoints: Vec<String>,
    }
}

/// One page of a paginated list: its entries, and the token of the next page.
trait MskPage: DeserializeOwned + Send + 'static {
    type Entry: Send;

    fn into_entries(self) -> (Vec<Self::Entry>, String);
}

impl MskPage for MskClusterPage {
    type Entry = MskCluster;

    fn into_entries(self) -> (Vec<MskCluster>, String) {
        (self.cluster_info_list, self.next_token)
    }
}

impl MskPage for MskNodePage {
    type Entry = MskNode;

    fn into_entries(self) -> (Vec<MskNode>, String) {
        (self.node_info_list, self.next_token)
    }
}

/// Returns the entries of all pages of a list. `path` must end in a query parameter, to which the
/// page token is appended.
async fn list_entries<P: MskPage>(
    session: &AwsSession,
    path: &str,
) -> Result<Vec<P::Entry>, Error> {
    let mut entries = Vec::new();
    let mut pages = ApiPageCursor::from("");
    while let Some(token) = pages.next_position()? {
        let next = match token.as_str() {
            "" => String::new(),
            token => format!("&nextToken={}", form_encode(token)),
        };
        let page: P = session.get_json(&format!("{path}{next}")).await?;
        let (found, next) = page.into_entries();
        entries.extend(found);
        pages.set_next(Some(next));
    }
    Ok(entries)
}

impl MskDiscovery {
    pub(in super::super) fn new(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let variables = process_environment();
        Self {
            service: AwsServiceClient::new("kafka", settings, bytes_max, clock, variables),
        }
    }

    async fn fetch_targets(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.service.open_session().await?;
        let s = &self.service.settings;
        let clusters = if s.clusters.is_empty() {
            let path = format!("/api/v2/clusters?clusterTypeFilter={PROVISIONED}&maxResults=100");
            let clusters = list_entries::<MskClusterPage>(&session, &path).await;
            clusters.map_err(|e| invalid_response_error(format!("could not list clusters: {e}")))?
        } else {
            let named = s.clusters.iter().cloned();
            let asked = named.map(|arn| describe_cluster(session.clone(), arn));
            let found = run_concurrently(s.concurrency, asked).await?;
            found.into_iter().flatten().collect()
        };
        let port = s.port;
        let asked = clusters
            .into_iter()
            .map(|cluster| fetch_cluster_targets(session.clone(), cluster, port));
        let groups = run_concurrently(s.concurrency, asked).await?;
        Ok(groups.into_iter().flatten().collect())
    }
}

/// Describes the cluster `arn`. Returns `None`, with a warning, if the cluster is not provisioned
/// and therefore has no brokers.
async fn describe_cluster(session: AwsSession, arn: String) -> Result<Option<MskCluster>, Error> {
    let path = format!("/api/v2/clusters/{}", form_encode(&arn));
    let answer: Result<MskClusterResponse, Error> = session.get_json(&path).await;
    let answer = answer
        .map_err(|e| invalid_response_error(format!("could not describe cluster {arn}: {e}")))?;
    let cluster = answer.cluster_info;
    if cluster.cluster_type != PROVISIONED {
        warn!(
            cluster = arn,
            kind = cluster.cluster_type,
            "not a cluster with brokers"
        );
        return Ok(None);
    }
    Ok(Some(cluster))
}

async fn fetch_cluster_targets(
    session: AwsSession,
    cluster: MskCluster,
    port: i64,
) -> Result<Vec<TargetGroup>, Error> {
    let arn = &cluster.cluster_arn;
    let path = format!("/v1/clusters/{}/nodes?maxResults=100", form_encode(arn));
    let nodes = list_entries::<MskNodePage>(&session, &path).await;
    let nodes = nodes.map_err(|e| {
        invalid_response_error(format!("could not list nodes for cluster {arn}: {e}"))
    })?;
    Ok(nodes
        .iter()
        .flat_map(|node| node.build_targets(&cluster, port))
        .collect())
}

impl MskNode {
    fn build_targets(&self, cluster: &MskCluster, port: i64) -> Vec<TargetGroup> {
        let mut meta = cluster.build_meta_labels();
        meta.set("node_arn", &self.node_arn);
        meta.set("node_added_time", &self.added_to_cluster_time);
        meta.set("node_instance_type", &self.instance_type);
        let (endpoints, index) = if let Some(broker) = &self.broker_node_info {
            meta.set("node_type", "BROKER");
            meta.set("node_attached_eni", &broker.attached_eni);
            meta.set("broker_id", format!("{:.0}", broker.broker_id));
            meta.set("broker_client_subnet", &broker.client_subnet);
            meta.set("broker_client_vpc_ip", &broker.client_vpc_ip_address);
            let exporters = &cluster.provisioned.open_monitoring.prometheus;
            if let Some(exporter) = &exporters.node_exporter {
                let is_enabled = exporter.enabled_in_broker.to_string();
                meta.set("broker_node_exporter_enabled", is_enabled);
            }
            (&broker.endpoints, "broker_endpoint_index")
        } else if let Some(controller) = &self.controller_node_info {
            meta.set("node_type", "CONTROLLER");
            (&controller.endpoints, "controller_endpoint_index")
        } else {
            return Vec::new();
        };
        let endpoints = endpoints.iter().enumerate();
        endpoints
            .map(|(i, endpoint)| {
                let mut meta = meta.clone();
                meta.set(index, i.to_string());
                meta.into_target(join_host_port(endpoint, port))
            })
            .collect()
    }
}

impl MskCluster {
    fn build_meta_labels(&self) -> MetaLabels {
        let mut meta = MetaLabels::new("msk");
        let software = &self.provisioned.current_broker_software_info;
        meta.set_all([
            ("cluster_name", self.cluster_name.as_str()),
            ("cluster_arn", &self.cluster_arn),
            ("cluster_state", &self.state),
            ("cluster_type", &self.cluster_type),
            ("cluster_version", &self.current_version),
            ("cluster_kafka_version", &software.kafka_version),
            ("cluster_configuration_arn", &software.configuration_arn),
        ]);
        if let Some(revision) = software.configuration_revision {
            meta.set("cluster_configuration_revision", revision.to_string());
        }
        let exporters = &self.provisioned.open_monitoring.prometheus;
        if let Some(exporter) = &exporters.jmx_exporter {
            let is_enabled = exporter.enabled_in_broker.to_string();
            meta.set("cluster_jmx_exporter_enabled", is_enabled);
        }
        meta.set_each("cluster_tag_", &self.tags);
        meta
    }
}

impl Refresh for MskDiscovery {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("msk {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let targets = self.fetch_targets().await;
        self.service.check_refresh(targets)
    }
}
