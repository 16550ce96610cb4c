//! Discovery of RDS database instances, by the clusters they belong to.
//!
//! ```text
//! clusters: all, or those in the config -> instances of each -> targets
//! ```

use super::service::AwsServiceClient;
use super::session::AwsSession;
use super::settings::AwsSettings;
use super::texts::{Row, XmlTextFormat::Plain, XmlTextFormat::Time, set_rows, set_tags};
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
use roxmltree::Node;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const VERSION: &str = "2014-10-31";

/// Labels of a database cluster, by the XML elements that contain their values.
const CLUSTER: &[Row] = &[
    (
        "activity_stream_kinesis_stream_name",
        "ActivityStreamKinesisStreamName",
        Plain,
    ),
    (
        "activity_stream_kms_key_id",
        "ActivityStreamKmsKeyId",
        Plain,
    ),
    ("activity_stream_mode", "ActivityStreamMode", Plain),
    ("activity_stream_status", "ActivityStreamStatus", Plain),
    ("allocated_storage", "AllocatedStorage", Plain),
    ("arn", "DBClusterArn", Plain),
    (
        "auto_minor_version_upgrade",
        "AutoMinorVersionUpgrade",
        Plain,
    ),
    ("automatic_restart_time", "AutomaticRestartTime", Time),
    (
        "aws_backup_recovery_point_arn",
        "AwsBackupRecoveryPointArn",
        Plain,
    ),
    (
        "backtrack_consumed_change_records",
        "BacktrackConsumedChangeRecords",
        Plain,
    ),
    ("backtrack_window", "BacktrackWindow", Plain),
    ("backup_retention_period", "BackupRetentionPeriod", Plain),
    ("capacity", "Capacity", Plain),
    ("character_set_name", "CharacterSetName", Plain),
    ("clone_group_id", "CloneGroupId", Plain),
    ("cluster_create_time", "ClusterCreateTime", Time),
    ("cluster_scalability_type", "ClusterScalabilityType", Plain),
    ("copy_tags_to_snapshot", "CopyTagsToSnapshot", Plain),
    ("cross_account_clone", "CrossAccountClone", Plain),
    ("database_insights_mode", "DatabaseInsightsMode", Plain),
    ("database_name", "DatabaseName", Plain),
    ("db_system_id", "DBSystemId", Plain),
    ("deletion_protection", "DeletionProtection", Plain),
    ("earliest_backtrack_time", "EarliestBacktrackTime", Time),
    ("earliest_restorable_time", "EarliestRestorableTime", Time),
    ("endpoint", "Endpoint", Plain),
    ("engine", "Engine", Plain),
    ("engine_lifecycle_support", "EngineLifecycleSupport", Plain),
    ("engine_mode", "EngineMode", Plain),
    ("engine_version", "EngineVersion", Plain),
    (
        "global_cluster_identifier",
        "GlobalClusterIdentifier",
        Plain,
    ),
    (
        "global_write_forwarding_requested",
        "GlobalWriteForwardingRequested",
        Plain,
    ),
    (
        "global_write_forwarding_status",
        "GlobalWriteForwardingStatus",
        Plain,
    ),
    ("hosted_zone_id", "HostedZoneId", Plain),
    ("http_endpoint_enabled", "HttpEndpointEnabled", Plain),
    (
        "iam_database_authentication_enabled",
        "IAMDatabaseAuthenticationEnabled",
        Plain,
    ),
    ("identifier", "DBClusterIdentifier", Plain),
    ("instance_class", "DBClusterInstanceClass", Plain),
    (
        "io_optimized_next_allowed_modification_time",
        "IOOptimizedNextAllowedModificationTime",
        Time,
    ),
    ("iops", "Iops", Plain),
    ("kms_key_id", "KmsKeyId", Plain),
    ("latest_restorable_time", "LatestRestorableTime", Time),
    (
        "local_write_forwarding_status",
        "LocalWriteForwardingStatus",
        Plain,
    ),
    ("master_username", "MasterUsername", Plain),
    ("monitoring_interval", "MonitoringInterval", Plain),
    ("monitoring_role_arn", "MonitoringRoleArn", Plain),
    ("multi_az", "MultiAZ", Plain),
    ("network_type", "NetworkType", Plain),
    ("parameter_group", "DBClusterParameterGroup", Plain),
    ("percent_progress", "PercentProgress", Plain),
    (
        "performance_insights_enabled",
        "PerformanceInsightsEnabled",
        Plain,
    ),
    (
        "performance_insights_kms_key_id",
        "PerformanceInsightsKMSKeyId",
        Plain,
    ),
    (
        "performance_insights_retention_period",
        "PerformanceInsightsRetentionPeriod",
        Plain,
    ),
    ("port", "Port", Plain),
    ("preferred_backup_window", "PreferredBackupWindow", Plain),
    (
        "preferred_maintenance_window",
        "PreferredMaintenanceWindow",
        Plain,
    ),
    ("publicly_accessible", "PubliclyAccessible", Plain),
    ("reader_endpoint", "ReaderEndpoint", Plain),
    (
        "replication_source_identifier",
        "ReplicationSourceIdentifier",
        Plain,
    ),
    ("resource_id", "DbClusterResourceId", Plain),
    (
        "serverless_v2_platform_version",
        "ServerlessV2PlatformVersion",
        Plain,
    ),
    ("status", "Status", Plain),
    ("storage_encrypted", "StorageEncrypted", Plain),
    ("storage_encryption_type", "StorageEncryptionType", Plain),
    ("storage_throughput", "StorageThroughput", Plain),
    ("storage_type", "StorageType", Plain),
    ("subnet_group", "DBSubnetGroup", Plain),
    ("upgrade_rollout_order", "UpgradeRolloutOrder", Plain),
];

/// Labels of a database instance, by the XML elements that contain their values.
const INSTANCE: &[Row] = &[
    (
        "activity_stream_engine_native_audit_fields_included",
        "ActivityStreamEngineNativeAuditFieldsIncluded",
        Plain,
    ),
    (
        "activity_stream_kinesis_stream_name",
        "ActivityStreamKinesisStreamName",
        Plain,
    ),
    (
        "activity_stream_kms_key_id",
        "ActivityStreamKmsKeyId",
        Plain,
    ),
    ("activity_stream_mode", "ActivityStreamMode", Plain),
    (
        "activity_stream_policy_status",
        "ActivityStreamPolicyStatus",
        Plain,
    ),
    ("activity_stream_status", "ActivityStreamStatus", Plain),
    ("allocated_storage", "AllocatedStorage", Plain),
    ("arn", "DBInstanceArn", Plain),
    (
        "auto_minor_version_upgrade",
        "AutoMinorVersionUpgrade",
        Plain,
    ),
    ("automatic_restart_time", "AutomaticRestartTime", Time),
    ("automation_mode", "AutomationMode", Plain),
    ("availability_zone", "AvailabilityZone", Plain),
    (
        "aws_backup_recovery_point_arn",
        "AwsBackupRecoveryPointArn",
        Plain,
    ),
    ("backup_retention_period", "BackupRetentionPeriod", Plain),
    ("backup_target", "BackupTarget", Plain),
    (
        "ca_certificate_identifier",
        "CACertificateIdentifier",
        Plain,
    ),
    ("character_set_name", "CharacterSetName", Plain),
    ("class", "DBInstanceClass", Plain),
    ("copy_tags_to_snapshot", "CopyTagsToSnapshot", Plain),
    (
        "custom_iam_instance_profile",
        "CustomIamInstanceProfile",
        Plain,
    ),
    ("customer_owned_ip_enabled", "CustomerOwnedIpEnabled", Plain),
    ("database_insights_mode", "DatabaseInsightsMode", Plain),
    ("db_cluster_identifier", "DBClusterIdentifier", Plain),
    ("db_name", "DBName", Plain),
    ("db_system_id", "DBSystemId", Plain),
    ("dedicated_log_volume", "DedicatedLogVolume", Plain),
    ("deletion_protection", "DeletionProtection", Plain),
    ("endpoint_address", "Endpoint.Address", Plain),
    ("endpoint_hosted_zone_id", "Endpoint.HostedZoneId", Plain),
    ("endpoint_port", "Endpoint.Port", Plain),
    ("engine", "Engine", Plain),
    ("engine_lifecycle_support", "EngineLifecycleSupport", Plain),
    ("engine_version", "EngineVersion", Plain),
    (
        "enhanced_monitoring_resource_arn",
        "EnhancedMonitoringResourceArn",
        Plain,
    ),
    (
        "iam_database_authentication_enabled",
        "IAMDatabaseAuthenticationEnabled",
        Plain,
    ),
    ("identifier", "DBInstanceIdentifier", Plain),
    ("instance_create_time", "InstanceCreateTime", Time),
    ("iops", "Iops", Plain),
    (
        "is_storage_config_upgrade_available",
        "IsStorageConfigUpgradeAvailable",
        Plain,
    ),
    ("kms_key_id", "KmsKeyId", Plain),
    ("latest_restorable_time", "LatestRestorableTime", Time),
    ("license_model", "LicenseModel", Plain),
    (
        "listener_endpoint_address",
        "ListenerEndpoint.Address",
        Plain,
    ),
    (
        "listener_endpoint_hosted_zone_id",
        "ListenerEndpoint.HostedZoneId",
        Plain,
    ),
    ("listener_endpoint_port", "ListenerEndpoint.Port", Plain),
    ("master_username", "MasterUsername", Plain),
    ("max_allocated_storage", "MaxAllocatedStorage", Plain),
    ("monitoring_interval", "MonitoringInterval", Plain),
    ("monitoring_role_arn", "MonitoringRoleArn", Plain),
    ("multi_az", "MultiAZ", Plain),
    ("multi_tenant", "MultiTenant", Plain),
    ("nchar_character_set_name", "NcharCharacterSetName", Plain),
    ("network_type", "NetworkType", Plain),
    ("percent_progress", "PercentProgress", Plain),
    (
        "performance_insights_enabled",
        "PerformanceInsightsEnabled",
        Plain,
    ),
    (
        "performance_insights_kms_key_id",
        "PerformanceInsightsKMSKeyId",
        Plain,
    ),
    (
        "performance_insights_retention_period",
        "PerformanceInsightsRetentionPeriod",
        Plain,
    ),
    ("port", "DbInstancePort", Plain),
    ("preferred_backup_window", "PreferredBackupWindow", Plain),
    (
        "preferred_maintenance_window",
        "PreferredMaintenanceWindow",
        Plain,
    ),
    ("promotion_tier", "PromotionTier", Plain),
    ("publicly_accessible", "PubliclyAccessible", Plain),
    (
        "read_replica_source_db_cluster_identifier",
        "ReadReplicaSourceDBClusterIdentifier",
        Plain,
    ),
    (
        "read_replica_source_db_instance_identifier",
        "ReadReplicaSourceDBInstanceIdentifier",
        Plain,
    ),
    ("replica_mode", "ReplicaMode", Plain),
    ("resource_id", "DbiResourceId", Plain),
    (
        "resume_full_automation_mode_time",
        "ResumeFullAutomationModeTime",
        Time,
    ),
    (
        "secondary_availability_zone",
        "SecondaryAvailabilityZone",
        Plain,
    ),
    ("status", "DBInstanceStatus", Plain),
    ("storage_encrypted", "StorageEncrypted", Plain),
    ("storage_encryption_type", "StorageEncryptionType", Plain),
    ("storage_throughput", "StorageThroughput", Plain),
    ("storage_type", "StorageType", Plain),
    ("storage_volume_status", "StorageVolumeStatus", Plain),
    ("subnet_group", "DBSubnetGroup.DBSubnetGroupName", Plain),
    ("tde_credential_arn", "TdeCredentialArn", Plain),
    ("timezone", "Timezone", Plain),
    ("upgrade_rollout_order", "UpgradeRolloutOrder", Plain),
];

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
