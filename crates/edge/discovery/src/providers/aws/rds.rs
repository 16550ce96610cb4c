//! Discovery of RDS database instances, by the clusters they belong to.
//!
//! ```text
//! clusters: all, or those in the config -> instances of each -> targets
//! ```

mod labels;

use super::service::AwsServiceClient;
use super::session::AwsSession;
use super::settings::AwsSettings;
use super::texts::{set_rows, set_tags};
use crate::api::invalid_response_error;
use crate::discover::Refresh;
use crate::environment::process_environment;
use crate::group::TargetGroup;
use crate::meta::{MetaLabels, join_host_port};
use crate::pages::ApiPageCursor;
use crate::side_by_side::run_concurrently;
use crate::xml::{child_text, find_child, find_children, parse};
use firn_model::env::Clock;
use firn_model::error::Error;
use labels::{CLUSTER, INSTANCE};
use roxmltree::Node;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const VERSION: &str = "2014-10-31";

/// Discovery of RDS instances; each refresh lists clusters and their instances.
pub(in super::super) struct RdsDiscovery {
    service: AwsServiceClient,
}

impl RdsDiscovery {
    pub(in super::super) fn new(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let variables = process_environment();
        Self {
            service: AwsServiceClient::new("rds", settings, bytes_max, clock, variables),
        }
    }

    async fn fetch_targets(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.service.open_session().await?;
        let s = &self.service.settings;
        let clusters = if s.clusters.is_empty() {
            let pages = list_pages(&session, "DescribeDBClusters", &[]).await;
            let what = "error describing all DB clusters";
            vec![pages.map_err(|e| invalid_response_error(format!("{what}: {e}")))?]
        } else {
            let named = s.clusters.iter().cloned();
            let asked = named.map(|cluster| describe_cluster(session.clone(), cluster));
            run_concurrently(s.concurrency, asked).await?
        };
        let mut groups = Vec::new();
        for page in clusters.iter().flatten() {
            let document = parse(page)?;
            for cluster in find_entries(document.root_element(), "DBClusters", "DBCluster") {
                groups.extend(self.fetch_cluster_targets(&session, cluster).await?);
            }
        }
        Ok(groups)
    }

    async fn fetch_cluster_targets(
        &self,
        session: &AwsSession,
        cluster: Node<'_, '_>,
    ) -> Result<Vec<TargetGroup>, Error> {
        let arn = child_text(cluster, "DBClusterArn");
        let mut filters = vec![
            (
                "Filters.Filter.1.Name".to_owned(),
                "db-cluster-id".to_owned(),
            ),
            ("Filters.Filter.1.Values.Value.1".to_owned(), arn.to_owned()),
        ];
        for (i, filter) in (2..).zip(&self.service.settings.filters) {
            let name = format!("Filters.Filter.{i}");
            filters.push((format!("{name}.Name"), filter.name.clone()));
            for (j, value) in (1..).zip(&filter.values) {
                filters.push((format!("{name}.Values.Value.{j}"), value.clone()));
            }
        }
        let pages = list_pages(session, "DescribeDBInstances", &filters).await;
        let pages = pages.map_err(|e| {
            invalid_response_error(format!(
                "error describing DB instances: failed to describe DB instances for cluster ARN \
                 {arn}: {e}"
            ))
        })?;
        let mut groups = Vec::new();
        for page in &pages {
            let document = parse(page)?;
            let instances = find_entries(document.root_element(), "DBInstances", "DBInstance");
            for instance in instances {
                groups.push(build_target(cluster, instance, self.service.settings.port));
            }
        }
        Ok(groups)
    }
}

/// Returns the XML of all pages of a list operation, filtered by the parameters `narrowed`.
async fn list_pages(
    session: &AwsSession,
    action: &str,
    narrowed: &[(String, String)],
) -> Result<Vec<String>, Error> {
    let mut answers = Vec::new();
    let mut pages = ApiPageCursor::from("");
    while let Some(marker) = pages.next_position()? {
        let mut pairs = vec![
            ("Action", action),
            ("Version", VERSION),
            ("MaxRecords", "100"),
        ];
        if !marker.is_empty() {
            pairs.push(("Marker", &marker));
        }
        pairs.extend(narrowed.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        let answer = session.call_query_api(&pairs).await?;
        let next = {
            let document = parse(&answer)?;
            let result = find_child(document.root_element(), &format!("{action}Result"));
            result
                .map_or("", |result| child_text(result, "Marker"))
                .to_owned()
        };
        pages.set_next(Some(next));
        answers.push(answer);
    }
    Ok(answers)
}

async fn describe_cluster(session: AwsSession, cluster: String) -> Result<Vec<String>, Error> {
    let narrowed = [("DBClusterIdentifier".to_owned(), cluster.clone())];
    let pages = list_pages(&session, "DescribeDBClusters", &narrowed).await;
    pages.map_err(|e| {
        invalid_response_error(format!(
            "error describing DB clusters: failed to describe DB cluster {cluster}: {e}"
        ))
    })
}

/// Returns the elements called `entry` in the list called `list` of a `Describe…` response.
fn find_entries<'a, 'i>(root: Node<'a, 'i>, list: &str, entry: &'static str) -> Vec<Node<'a, 'i>> {
    let result = find_child(root, &format!("Describe{list}Result"));
    let list = result.and_then(|result| find_child(result, list));
    list.map_or(Vec::new(), |list| find_children(list, entry).collect())
}

fn build_target(cluster: Node<'_, '_>, instance: Node<'_, '_>, port: i64) -> TargetGroup {
    let mut meta = MetaLabels::new("rds");
    set_rows(&mut meta, "cluster_", cluster, CLUSTER);
    set_tags(&mut meta, "cluster_tag_", cluster);
    set_rows(&mut meta, "instance_", instance, INSTANCE);
    set_tags(&mut meta, "instance_tag_", instance);
    let members = find_child(cluster, "DBClusterMembers");
    let members = members
        .into_iter()
        .flat_map(|list| find_children(list, "DBClusterMember"))
        .map(|one| {
            (
                child_text(one, "DBInstanceIdentifier"),
                child_text(one, "IsClusterWriter"),
            )
        });
    let writers: BTreeMap<&str, &str> = members.collect();
    if let Some(is_writer) = writers.get(child_text(instance, "DBInstanceIdentifier")) {
        meta.set("instance_is_cluster_writer", *is_writer);
    }
    let endpoint = find_child(instance, "Endpoint").filter(|e| !child_text(*e, "Port").is_empty());
    match endpoint.map(|endpoint| child_text(endpoint, "Address")) {
        // The target is kept without an address, so that it appears among the dropped targets with
        // its labels.
        None | Some("") => meta.into_target(""),
        Some(address) => meta.into_target(join_host_port(address, port)),
    }
}

impl Refresh for RdsDiscovery {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("rds {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let targets = self.fetch_targets().await;
        self.service.check_refresh(targets)
    }
}
