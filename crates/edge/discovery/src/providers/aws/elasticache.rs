//! Discovery of ElastiCache serverless caches and cache cluster nodes.
//!
//! ```text
//! serverless caches, cache clusters -> tags of each -> one target per serverless cache or node
//! ```

mod labels;

use super::service::AwsServiceClient;
use super::session::AwsSession;
use super::settings::AwsSettings;
use super::texts::{Row, set_rows, set_tags};
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
use labels::{CLUSTER, GROUPS, LOGS, NODE, SERVERLESS};
use roxmltree::Node;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

const VERSION: &str = "2015-02-02";

/// Discovery of ElastiCache caches; each refresh reads all pages and the tags of each cache.
pub(in super::super) struct ElastiCacheDiscovery {
    service: AwsServiceClient,
}

/// A paginated list operation: its request parameters, and the XML elements of the entries and the
/// next page token.
struct ElastiCacheListOperation {
    action: &'static str,
    /// Request parameter that restricts the list to one cache, selected by name.
    name: &'static str,
    extra: &'static [(&'static str, &'static str)],
    /// Name of both the request parameter and the response element of the next page token.
    next: &'static str,
    list: &'static str,
    entry: &'static str,
}

const WITHOUT_SERVERS: ElastiCacheListOperation = ElastiCacheListOperation {
    action: "DescribeServerlessCaches",
    name: "ServerlessCacheName",
    extra: &[("MaxResults", "50")],
    next: "NextToken",
    list: "ServerlessCaches",
    entry: "member",
};

/// Cache clusters, including those that belong to no replication group.
const CLUSTERS: ElastiCacheListOperation = ElastiCacheListOperation {
    action: "DescribeCacheClusters",
    name: "CacheClusterId",
    extra: &[("MaxRecords", "100"), ("ShowCacheNodeInfo", "true")],
    next: "Marker",
    list: "CacheClusters",
    entry: "CacheCluster",
};

impl ElastiCacheDiscovery {
    pub(in super::super) fn new(
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let variables = process_environment();
        Self {
            service: AwsServiceClient::new("elasticache", settings, bytes_max, clock, variables),
        }
    }

    async fn fetch_targets(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.service.open_session().await?;
        let names = ElastiCacheNames::from_arns(&self.service.settings.clusters);
        let mut groups = Vec::new();
        for (list, names, what) in [
            (&WITHOUT_SERVERS, names.without_servers, "serverless caches"),
            (&CLUSTERS, names.clusters, "cache clusters"),
        ] {
            let pages = self.fetch_pages(&session, list, names).await;
            let pages = pages
                .map_err(|e| invalid_response_error(format!("failed to describe {what}: {e}")))?;
            for page in &pages {
                let document = parse(page)?;
                let caches = list.find_entries(document.root_element());
                let tags = self.fetch_tags(&session, &caches).await?;
                for cache in caches {
                    let tags = tags.get(child_text(cache, "ARN")).map(String::as_str);
                    let tags = tags.map(parse).transpose()?;
                    let tags = tags.as_ref().map(|tags| tags.root_element());
                    match list.action {
                        "DescribeServerlessCaches" => {
                            groups.push(build_serverless_target(cache, tags))
                        }
                        _ => groups.extend(build_node_targets(cache, tags)),
                    }
                }
            }
        }
        Ok(groups)
    }

    /// Returns the pages of a list: all entries if `names` is empty, else those with the given
    /// names.
    async fn fetch_pages(
        &self,
        session: &AwsSession,
        list: &'static ElastiCacheListOperation,
        names: Vec<String>,
    ) -> Result<Vec<String>, Error> {
        if names.is_empty() {
            // An empty list of names means all caches, as in upstream: a config that names only
            // caches of the other kind does not filter this kind.
            return list.fetch_pages(session.clone(), None).await;
        }
        let asked = names
            .into_iter()
            .map(|name| list.fetch_pages(session.clone(), Some(name)));
        let pages = run_concurrently(self.service.settings.concurrency, asked).await?;
        Ok(pages.into_iter().flatten().collect())
    }

    /// Requests the tags of each cache. Returns the XML responses by cache ARN.
    async fn fetch_tags(
        &self,
        session: &AwsSession,
        caches: &[Node<'_, '_>],
    ) -> Result<BTreeMap<String, String>, Error> {
        let named = caches
            .iter()
            .map(|cache| child_text(*cache, "ARN").to_owned());
        let named: Vec<String> = named.filter(|name| !name.is_empty()).collect();
        let asked = named
            .into_iter()
            .map(|name| list_tags(session.clone(), name));
        let answers = run_concurrently(self.service.settings.concurrency, asked).await?;
        Ok(answers.into_iter().collect())
    }
}

async fn list_tags(session: AwsSession, name: String) -> Result<(String, String), Error> {
    let pairs = [
        ("Action", "ListTagsForResource"),
        ("Version", VERSION),
        ("ResourceName", &name),
    ];
    let answer = session.call_query_api(&pairs).await;
    let answer = answer.map_err(|e| {
        invalid_response_error(format!(
            "failed to list tags for resources: failed to list tags for resource {name}: {e}"
        ))
    })?;
    Ok((name, answer))
}

impl ElastiCacheListOperation {
    async fn fetch_pages(
        &'static self,
        session: AwsSession,
        name: Option<String>,
    ) -> Result<Vec<String>, Error> {
        let mut answers = Vec::new();
        let mut pages = ApiPageCursor::from("");
        while let Some(place) = pages.next_position()? {
            let mut pairs = vec![("Action", self.action), ("Version", VERSION)];
            pairs.extend(self.extra);
            if let Some(name) = &name {
                pairs.push((self.name, name));
            }
            if !place.is_empty() {
                pairs.push((self.next, &place));
            }
            let answer = session.call_query_api(&pairs).await?;
            let next = {
                let document = parse(&answer)?;
                let result = self.find_result(document.root_element());
                result
                    .map_or("", |result| child_text(result, self.next))
                    .to_owned()
            };
            pages.set_next(Some(next));
            answers.push(answer);
        }
        Ok(answers)
    }

    fn find_result<'a, 'i>(&self, root: Node<'a, 'i>) -> Option<Node<'a, 'i>> {
        find_child(root, &format!("{}Result", self.action))
    }

    fn find_entries<'a, 'i>(&self, root: Node<'a, 'i>) -> Vec<Node<'a, 'i>> {
        let list = self
            .find_result(root)
            .and_then(|result| find_child(result, self.list));
        list.map_or(Vec::new(), |list| find_children(list, self.entry).collect())
    }
}

/// Names of the caches in the config, by kind. Empty lists mean all caches of that kind.
#[derive(Default)]
struct ElastiCacheNames {
    without_servers: Vec<String>,
    clusters: Vec<String>,
}

impl ElastiCacheNames {
    /// Sorts ARNs of the form `arn:aws:elasticache:REGION:ACCOUNT:KIND:NAME` by kind. ARNs of other
    /// kinds are ignored, malformed ones logged.
    fn from_arns(arns: &[String]) -> Self {
        let mut names = Self::default();
        for arn in arns.iter().filter(|arn| !arn.is_empty()) {
            let parts: Vec<&str> = arn.split(':').collect();
            match parts.get(5..7) {
                Some(["serverlesscache", name]) => names.without_servers.push((*name).to_owned()),
                Some(["replicationgroup", name]) => names.clusters.push((*name).to_owned()),
                Some(_) => {}
                None => warn!(arn, "not the ARN of a cache"),
            }
        }
        names
    }
}

/// Returns the texts of the elements called `entry` in the child `list` of `node`.
fn collect_texts<'a>(node: Node<'a, '_>, list: &str, entry: &'static str) -> Vec<&'a str> {
    let list = find_child(node, list);
    let entries = list.into_iter().flat_map(|list| find_children(list, entry));
    entries
        .map(|entry| entry.text().unwrap_or_default())
        .collect()
}

/// Returns the `host:port` address of a cache's or node's endpoint; empty if either part is
/// missing.
fn endpoint_address(node: Node<'_, '_>) -> String {
    let endpoint = find_child(node, "Endpoint");
    let of = |name| endpoint.map_or("", |endpoint| child_text(endpoint, name));
    match (of("Address"), of("Port")) {
        ("", _) | (_, "") => String::new(),
        (host, port) => join_host_port(host, port),
    }
}

fn set_list_tags(meta: &mut MetaLabels, prefix: &str, tags: Option<Node<'_, '_>>) {
    let result = tags.and_then(|tags| find_child(tags, "ListTagsForResourceResult"));
    if let Some(result) = result {
        set_tags(meta, prefix, result);
    }
}

fn build_serverless_target(cache: Node<'_, '_>, tags: Option<Node<'_, '_>>) -> TargetGroup {
    let mut meta = MetaLabels::new("elasticache");
    meta.set("deployment_option", "serverless");
    set_rows(&mut meta, "serverless_cache_", cache, SERVERLESS);
    for (label, list, entry) in [
        ("security_group_id", "SecurityGroupIds", "SecurityGroupId"),
        ("subnet_id", "SubnetIds", "SubnetId"),
    ] {
        for (i, id) in collect_texts(cache, list, entry).iter().enumerate() {
            meta.set(&format!("serverless_cache_{label}_{i}"), *id);
        }
    }
    set_list_tags(&mut meta, "serverless_cache_tag_", tags);
    meta.into_target(endpoint_address(cache))
}

/// Sets the labels in `rows` for each entry of a list. The index of the entry is appended to the
/// label names.
fn set_numbered_labels(
    meta: &mut MetaLabels,
    prefix: &str,
    rows: &[Row],
    node: Node<'_, '_>,
    list: (&str, &'static str),
) {
    let entries = find_child(node, list.0);
    let entries = entries
        .into_iter()
        .flat_map(|node| find_children(node, list.1));
    for (i, entry) in entries.enumerate() {
        for (label, path, shown) in rows {
            let name = format!("{prefix}{label}_{i}");
            set_rows(meta, &name, entry, &[("", *path, *shown)]);
        }
    }
}

fn build_node_targets(cluster: Node<'_, '_>, tags: Option<Node<'_, '_>>) -> Vec<TargetGroup> {
    let mut common = MetaLabels::new("elasticache");
    common.set("deployment_option", "node");
    let prefix = "cache_cluster_";
    set_rows(&mut common, prefix, cluster, CLUSTER);
    let logs = ("LogDeliveryConfigurations", "LogDeliveryConfiguration");
    let of_logs = "cache_cluster_log_delivery_configuration_";
    set_numbered_labels(&mut common, of_logs, LOGS, cluster, logs);
    let of_groups = "cache_cluster_security_group_membership_";
    let groups = ("SecurityGroups", "member");
    set_numbered_labels(&mut common, of_groups, GROUPS, cluster, groups);
    if let Some(pending) = find_child(cluster, "PendingModifiedValues") {
        let ids = collect_texts(pending, "CacheNodeIdsToRemove", "CacheNodeId").join(",");
        common.set(
            "cache_cluster_pending_modified_values_cache_node_ids_to_remove",
            ids,
        );
    }
    set_list_tags(&mut common, "cache_cluster_tag_", tags);
    let nodes = find_child(cluster, "CacheNodes");
    let nodes = nodes
        .into_iter()
        .flat_map(|list| find_children(list, "CacheNode"));
    nodes
        .map(|node| {
            let mut meta = common.clone();
            set_rows(&mut meta, "cache_cluster_node_", node, NODE);
            meta.into_target(endpoint_address(node))
        })
        .collect()
}

impl Refresh for ElastiCacheDiscovery {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("elasticache {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let targets = self.fetch_targets().await;
        self.service.check_refresh(targets)
    }
}
