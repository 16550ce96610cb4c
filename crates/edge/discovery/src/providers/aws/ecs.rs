//! Discovery of ECS tasks, the containers that a cluster runs.
//!
//! ```text
//! clusters -> services and tasks -> their EC2 instances and network interfaces -> targets
//! ```

mod targets;

use super::service::AwsServiceClient;
use super::session::{AwsSession, AwsTag};
use super::settings::AwsSettings;
use crate::api::invalid_response_error;
use crate::discover::Refresh;
use crate::environment::{Variables, process_environment};
use crate::group::TargetGroup;
use crate::json::answers;
use crate::pages::ApiPageCursor;
use crate::side_by_side::run_concurrently;
use crate::xml::{child_text, find_child, list_items, parse};
use firn_model::env::Clock;
use firn_model::error::Error;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use targets::{EcsClusterDetails, EcsHost};

/// Prefix of operation names in the `X-Amz-Target` header.
const TARGET: &str = "AmazonEC2ContainerServiceV20141113";

/// Version of the EC2 API, which is queried for instances and network interfaces.
const EC2_VERSION: &str = "2016-11-15";

/// Type of the attachment that contains the address of a task in `awsvpc` network mode.
const INTERFACE: &str = "ElasticNetworkInterface";

/// Maximum number of names per `Describe…` request, for clusters, services and tasks.
const CLUSTERS_MAX: usize = 100;
const SERVICES_MAX: usize = 10;
const TASKS_MAX: usize = 100;

/// Discovery of ECS tasks; each refresh reads all configured clusters.
pub(in super::super) struct EcsDiscovery {
    service: AwsServiceClient,
    variables: Variables,
}

answers! {
    #[serde(rename_all = "camelCase")]
    struct EcsArnPage {
        #[serde(alias = "clusterArns", alias = "serviceArns", alias = "taskArns")]
        names: Vec<String>,
        next_token: String,
    }

    struct EcsClusterList {
        clusters: Vec<EcsCluster>,
    }

    #[serde(rename_all = "camelCase")]
    struct EcsCluster {
        cluster_arn: String,
        cluster_name: String,
        tags: Vec<AwsTag>,
    }

    struct EcsServiceList {
        services: Vec<EcsService>,
    }

    #[serde(rename_all = "camelCase")]
    struct EcsService {
        service_arn: String,
        service_name: String,
        status: String,
        tags: Vec<AwsTag>,
    }

    struct EcsTaskList {
        tasks: Vec<EcsTask>,
    }

    #[serde(rename_all = "camelCase")]
    struct EcsTask {
        task_arn: String,
        task_definition_arn: String,
        group: String,
        launch_type: String,
        health_status: String,
        availability_zone: String,
        desired_status: String,
        last_status: String,
        platform_family: String,
        platform_version: String,
        container_instance_arn: String,
        attachments: Vec<EcsAttachment>,
        tags: Vec<AwsTag>,
    }

    struct EcsAttachment {
        #[serde(rename = "type")]
        kind: String,
        details: Vec<EcsAttachmentDetail>,
    }

    struct EcsAttachmentDetail {
        name: String,
        value: String,
    }

    #[serde(rename_all = "camelCase")]
    struct EcsContainerInstanceList {
        container_instances: Vec<EcsContainerInstance>,
    }

    #[serde(rename_all = "camelCase")]
    struct EcsContainerInstance {
        container_instance_arn: String,
        ec2_instance_id: String,
    }
}

impl EcsDiscovery {
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
            service: AwsServiceClient::new("ecs", settings, bytes_max, clock, variables.clone()),
            variables,
        }
    }

    async fn fetch_targets(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let ecs = self.service.open_session().await?;
        let ec2 = ecs.for_service("ec2", &self.variables);
        let s = &self.service.settings;
        let clusters = if s.clusters.is_empty() {
            list_arns(&ecs, "ListClusters", &json!({})).await?
        } else {
            s.clusters.clone()
        };
        let limit = s.concurrency;
        let base = json!({"include": ["TAGS"]});
        let operation = "DescribeClusters";
        let clusters: Vec<EcsClusterList> = describe_batched(
            &ecs,
            operation,
            base,
            "clusters",
            CLUSTERS_MAX,
            &clusters,
            limit,
        )
        .await?;
        let clusters = clusters.into_iter().flat_map(|page| page.clusters);
        let port = s.port;
        let mut groups = Vec::new();
        for cluster in clusters.filter(|cluster| !cluster.cluster_arn.is_empty()) {
            let arn = cluster.cluster_arn.clone();
            let tasks = list_arns(&ecs, "ListTasks", &json!({"cluster": arn})).await?;
            if tasks.is_empty() {
                continue;
            }
            // Upstream continues without the tasks of a cluster that fails. Here the refresh fails,
            // so that all previous targets remain.
            let found = fetch_cluster(&ecs, &ec2, cluster, tasks, limit).await;
            let (parts, tasks) =
                found.map_err(|e| invalid_response_error(format!("cluster {arn}: {e}")))?;
            groups.extend(
                tasks
                    .iter()
                    .filter_map(|task| task.build_target(&parts, port)),
            );
        }
        Ok(groups)
    }
}

/// Returns the ARNs from all pages of a `List…` operation.
async fn list_arns(
    session: &AwsSession,
    operation: &str,
    body: &Value,
) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    let mut pages = ApiPageCursor::from("");
    while let Some(token) = pages.next_position()? {
        let mut body = body.clone();
        body["maxResults"] = 100.into();
        if !token.is_empty() {
            body["nextToken"] = token.into();
        }
        let page: EcsArnPage = describe_objects(session.clone(), operation, body).await?;
        all.extend(page.names);
        pages.set_next(Some(page.next_token));
    }
    Ok(all)
}

async fn describe_objects<T>(session: AwsSession, operation: &str, body: Value) -> Result<T, Error>
where
    T: DeserializeOwned + Send + 'static,
{
    let answer = session
        .call_json_api(&format!("{TARGET}.{operation}"), &body)
        .await;
    answer.map_err(|e| invalid_response_error(format!("request {operation} failed: {e}")))
}

/// Describes `names` in batches of at most `names_max`, which are passed under `key` of the
/// request body. Up to `limit` requests run concurrently.
async fn describe_batched<T>(
    session: &AwsSession,
    operation: &'static str,
    base: Value,
    key: &str,
    names_max: usize,
    names: &[String],
    limit: usize,
) -> Result<Vec<T>, Error>
where
    T: DeserializeOwned + Send + 'static,
{
    let mut bodies = Vec::new();
    for batch in names.chunks(names_max) {
        let mut body = base.clone();
        body[key] = batch.into();
        bodies.push(body);
    }
    let asked = bodies
        .into_iter()
        .map(|body| describe_objects(session.clone(), operation, body));
    run_concurrently(limit, asked).await
}

/// Reads the services, tasks and instances of a cluster. Returns its described tasks with the data
/// that their targets are built from.
async fn fetch_cluster(
    ecs: &AwsSession,
    ec2: &AwsSession,
    cluster: EcsCluster,
    tasks: Vec<String>,
    limit: usize,
) -> Result<(EcsClusterDetails, Vec<EcsTask>), Error> {
    let arn = cluster.cluster_arn.clone();
    let services = list_arns(ecs, "ListServices", &json!({"cluster": arn})).await?;
    let tagged = json!({"cluster": arn, "include": ["TAGS"]});
    let operation = "DescribeServices";
    let (base, names_max) = (tagged.clone(), SERVICES_MAX);
    let services: Vec<EcsServiceList> = describe_batched(
        ecs, operation, base, "services", names_max, &services, limit,
    )
    .await?;
    let services = services.into_iter().flat_map(|page| page.services);
    let tasks: Vec<EcsTaskList> = describe_batched(
        ecs,
        "DescribeTasks",
        tagged,
        "tasks",
        TASKS_MAX,
        &tasks,
        limit,
    )
    .await?;
    let tasks: Vec<EcsTask> = tasks.into_iter().flat_map(|page| page.tasks).collect();
    let hosts = tasks.iter().map(|task| task.container_instance_arn.clone());
    let hosts: BTreeSet<String> = hosts.filter(|arn| !arn.is_empty()).collect();
    let hosts: Vec<String> = hosts.into_iter().collect();
    let key = "containerInstances";
    let base = json!({"cluster": arn});
    let operation = "DescribeContainerInstances";
    let instances: Vec<EcsContainerInstanceList> =
        describe_batched(ecs, operation, base, key, TASKS_MAX, &hosts, limit).await?;
    let instances: BTreeMap<String, String> = instances
        .into_iter()
        .flat_map(|page| page.container_instances)
        .map(|one| (one.container_instance_arn, one.ec2_instance_id))
        .collect();
    let parts = EcsClusterDetails {
        region: ecs.region.clone(),
        services: services
            .map(|one| (one.service_name.clone(), one))
            .collect(),
        machines: fetch_hosts(ec2, &instances).await?,
        public_ips: fetch_public_ips(ec2, &tasks).await?,
        instances,
        cluster,
    };
    Ok((parts, tasks))
}

/// Calls an EC2 operation for `ids` and returns the XML of all response pages. Sends no request if
/// `ids` is empty.
async fn describe_ec2(
    ec2: &AwsSession,
    action: &str,
    parameter: &str,
    ids: &BTreeSet<&str>,
) -> Result<Vec<String>, Error> {
    let mut answers = Vec::new();
    if ids.is_empty() {
        return Ok(answers);
    }
    let named: Vec<(String, &str)> = (1..)
        .zip(ids)
        .map(|(i, id)| (format!("{parameter}.{i}"), *id))
        .collect();
    let mut pages = ApiPageCursor::from("");
    while let Some(token) = pages.next_position()? {
        let mut pairs = vec![("Action", action), ("Version", EC2_VERSION)];
        pairs.extend(named.iter().map(|(name, id)| (name.as_str(), *id)));
        if !token.is_empty() {
            pairs.push(("NextToken", &token));
        }
        let answer = ec2.call_query_api(&pairs).await;
        let answer =
            answer.map_err(|e| invalid_response_error(format!("request {action} failed: {e}")))?;
        let next = child_text(parse(&answer)?.root_element(), "nextToken").to_owned();
        pages.set_next(Some(next));
        answers.push(answer);
    }
    Ok(answers)
}

async fn fetch_hosts(
    ec2: &AwsSession,
    instances: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, EcsHost>, Error> {
    let ids = instances.values().map(String::as_str).collect();
    let answers = describe_ec2(ec2, "DescribeInstances", "InstanceId", &ids).await?;
    let mut machines = BTreeMap::new();
    for answer in &answers {
        let document = parse(answer)?;
        for reservation in list_items(document.root_element(), "reservationSet") {
            for instance in list_items(reservation, "instancesSet") {
                let of = |name| child_text(instance, name).to_owned();
                if of("privateIpAddress").is_empty() {
                    continue;
                }
                let tags = list_items(instance, "tagSet");
                let tags = tags
                    .iter()
                    .map(|tag| (child_text(*tag, "key"), child_text(*tag, "value")));
                let machine = EcsHost {
                    private_ip: of("privateIpAddress"),
                    public_ip: of("ipAddress"),
                    subnet: of("subnetId"),
                    kind: of("instanceType"),
                    tags: tags.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
                };
                machines.insert(of("instanceId"), machine);
            }
        }
    }
    Ok(machines)
}

async fn fetch_public_ips(
    ec2: &AwsSession,
    tasks: &[EcsTask],
) -> Result<BTreeMap<String, String>, Error> {
    let interfaces = tasks.iter().filter_map(EcsTask::find_interface);
    let ids = interfaces.map(|one| one.find_detail("networkInterfaceId"));
    let ids: BTreeSet<&str> = ids.filter(|id| !id.is_empty()).collect();
    let parameter = "NetworkInterfaceId";
    let answers = describe_ec2(ec2, "DescribeNetworkInterfaces", parameter, &ids).await?;
    let mut found = BTreeMap::new();
    for answer in &answers {
        let document = parse(answer)?;
        for interface in list_items(document.root_element(), "networkInterfaceSet") {
            let association = find_child(interface, "association");
            let ip = association.map_or("", |association| child_text(association, "publicIp"));
            if !ip.is_empty() {
                let id = child_text(interface, "networkInterfaceId");
                found.insert(id.to_owned(), ip.to_owned());
            }
        }
    }
    Ok(found)
}

impl Refresh for EcsDiscovery {
    fn interval(&self) -> Duration {
        self.service.settings.refresh
    }

    fn name(&self) -> String {
        format!("ecs {}", self.service.settings.region)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let targets = self.fetch_targets().await;
        self.service.check_refresh(targets)
    }
}
