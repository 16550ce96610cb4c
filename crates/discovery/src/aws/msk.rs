//! Discovery of the Kafka brokers and controllers of MSK clusters.
//!
//! ```text
//! clusters: all, or those in the config -> nodes of each -> one target per endpoint
//! ```

use super::service::Service;
use super::session::Session;
use super::settings::AwsSettings;
use crate::api::wrong;
use crate::discover::Refresh;
use crate::environment::of_process;
use crate::group::Group;
use crate::json::answers;
use crate::meta::{Meta, host_port};
use crate::pages::Pages;
use crate::side_by_side::side_by_side;
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
pub(in super::super) struct Msk {
    service: Service,
}

answers! {
    #[serde(rename_all = "camelCase")]
    struct Clusters {
        cluster_info_list: Vec<Cluster>,
        next_token: String,
    }

    #[serde(rename_all = "camelCase")]
    struct OneCluster {
        cluster_info: Cluster,
    }

    #[serde(rename_all = "camelCase")]
    struct Cluster {
        cluster_arn: String,
        cluster_name: String,
        cluster_type: String,
        current_version: String,
        state: String,
        tags: BTreeMap<String, String>,
        provisioned: Provisioned,
    }

    #[serde(rename_all = "camelCase")]
    struct Provisioned {
        current_broker_software_info: Software,
        open_monitoring: Monitoring,
    }

    #[serde(rename_all = "camelCase")]
    struct Software {
        kafka_version: String,
        configuration_arn: String,
        configuration_revision: Option<i64>,
    }

    struct Monitoring {
        prometheus: Exporters,
    }

    #[serde(rename_all = "camelCase")]
    struct Exporters {
        jmx_exporter: Option<Exporter>,
        node_exporter: Option<Exporter>,
    }

    #[serde(rename_all = "camelCase")]
    struct Exporter {
        enabled_in_broker: bool,
    }

    #[serde(rename_all = "camelCase")]
    struct Nodes {
        node_info_list: Vec<Node>,
        next_token: String,
    }

    #[serde(rename_all = "camelCase")]
    struct Node {
        #[serde(rename = "nodeARN")]
        node_arn: String,
        added_to_cluster_time: String,
        instance_type: String,
        broker_node_info: Option<Broker>,
        controller_node_info: Option<Controller>,
    }

    #[serde(rename_all = "camelCase")]
    struct Broker {
        #[serde(rename = "attachedENIId")]
        attached_eni: String,
        broker_id: f64,
        client_subnet: String,
        client_vpc_ip_address: String,
        endpoints: Vec<String>,
    }

    struct Controller {
        endpoints: Vec<String>,
    }
}

/// One page of a paginated list: its entries, and the token of the next page.
trait Page: DeserializeOwned + Send + 'static {
    type Entry: Send;

    fn take(self) -> (Vec<Self::Entry>, String);
}

impl Page for Clusters {
    type Entry = Cluster;

    fn take(self) -> (Vec<Cluster>, String) {
        (self.cluster_info_list, self.next_token)
    }
}

impl Page for Nodes {
    type Entry = Node;

    fn take(self) -> (Vec<Node>, String) {
        (self.node_info_list, self.next_token)
    }
}

/// Returns the entries of all pages of a list. `path` must end in a query parameter, to which the
/// page token is appended.
async fn list<P: Page>(session: &Session, path: &str) -> Result<Vec<P::Entry>, Error> {
    let mut entries = Vec::new();
    let mut pages = Pages::from("");
    while let Some(token) = pages.turn()? {
        let next = match token.as_str() {
            "" => String::new(),
            token => format!("&nextToken={}", form_encode(token)),
        };
        let page: P = session.get(&format!("{path}{next}")).await?;
        let (found, next) = page.take();
        entries.extend(found);
        pages.follow(Some(next));
    }
    Ok(entries)
}

impl Msk {
    pub(in super::super) fn new(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let variables = of_process();
        Self {
            service: Service::new("kafka", settings, bytes_max, clock, variables),
        }
    }

    async fn targets(&mut self) -> Result<Vec<Group>, Error> {
        let session = self.service.session().await?;
        let s = &self.service.settings;
        let clusters = match s.clusters.is_empty() {
            true => {
                let path =
                    format!("/api/v2/clusters?clusterTypeFilter={PROVISIONED}&maxResults=100");
                let clusters = list::<Clusters>(&session, &path).await;
                clusters.map_err(|e| wrong(format!("could not list clusters: {e}")))?
            }
            false => {
                let named = s.clusters.iter().cloned();
                let asked = named.map(|arn| one_cluster(session.clone(), arn));
                let found = side_by_side(s.concurrency, asked).await?;
                found.into_iter().flatten().collect()
            }
        };
        let port = s.port;
        let asked = clusters
            .into_iter()
            .map(|cluster| of_cluster(session.clone(), cluster, port));
        let groups = side_by_side(s.concurrency, asked).await?;
        Ok(groups.into_iter().flatten().collect())
    }
}

/// Describes the cluster `arn`. Returns `None`, with a warning, if the cluster is not provisioned
/// and therefore has no brokers.
async fn one_cluster(session: Session, arn: String) -> Result<Option<Cluster>, Error> {
    let path = format!("/api/v2/clusters/{}", form_encode(&arn));
    let answer: Result<OneCluster, Error> = session.get(&path).await;
    let answer = answer.map_err(|e| wrong(format!("could not describe cluster {arn}: {e}")))?;
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

async fn of_cluster(session: Session, cluster: Cluster, port: i64) -> Result<Vec<Group>, Error> {
    let arn = &cluster.cluster_arn;
    let path = format!("/v1/clusters/{}/nodes?maxResults=100", form_encode(arn));
    let nodes = list::<Nodes>(&session, &path).await;
    let nodes = nodes.map_err(|e| wrong(format!("could not list nodes for cluster {arn}: {e}")))?;
    Ok(nodes
        .iter()
        .flat_map(|node| node.targets(&cluster, port))
        .collect())
}

impl Node {
    fn targets(&self, cluster: &Cluster, port: i64) -> Vec<Group> {
        let mut meta = cluster.meta();
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
                meta.at(host_port(endpoint, port))
            })
            .collect()
    }
}

impl Cluster {
    fn meta(&self) -> Meta {
        let mut meta = Meta::new("msk");
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

impl Refresh for Msk {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("msk {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let targets = self.targets().await;
        self.service.learn(targets)
    }
}
