//! The labels of an ElastiCache target that are copied from elements of the XML response. Five
//! tables: one row a label.

use crate::providers::aws::texts::Row;
use crate::providers::aws::texts::XmlTextFormat::{Plain, Time};

/// Labels of a serverless cache, by the XML elements that contain their values.
pub(super) const SERVERLESS: &[Row] = &[
    ("arn", "ARN", Plain),
    (
        "cache_usage_limit_data_storagemaximum",
        "CacheUsageLimits.DataStorage.Maximum",
        Plain,
    ),
    (
        "cache_usage_limit_data_storageminimum",
        "CacheUsageLimits.DataStorage.Minimum",
        Plain,
    ),
    (
        "cache_usage_limit_data_storageunit",
        "CacheUsageLimits.DataStorage.Unit",
        Plain,
    ),
    (
        "cache_usage_limit_ecpu_per_secondmaximum",
        "CacheUsageLimits.ECPUPerSecond.Maximum",
        Plain,
    ),
    (
        "cache_usage_limit_ecpu_per_secondminimum",
        "CacheUsageLimits.ECPUPerSecond.Minimum",
        Plain,
    ),
    ("create_time", "CreateTime", Time),
    ("daily_snapshot_time", "DailySnapshotTime", Plain),
    ("description", "Description", Plain),
    ("endpoint_address", "Endpoint.Address", Plain),
    ("endpoint_port", "Endpoint.Port", Plain),
    ("endpoint_reader_address", "ReaderEndpoint.Address", Plain),
    ("endpoint_reader_port", "ReaderEndpoint.Port", Plain),
    ("engine", "Engine", Plain),
    ("full_engine_version", "FullEngineVersion", Plain),
    ("kms_key_id", "KmsKeyId", Plain),
    ("major_engine_version", "MajorEngineVersion", Plain),
    ("name", "ServerlessCacheName", Plain),
    ("snapshot_retention_limit", "SnapshotRetentionLimit", Plain),
    ("status", "Status", Plain),
    ("user_group_id", "UserGroupId", Plain),
];

/// Labels of a cache cluster, by the XML elements that contain their values.
pub(super) const CLUSTER: &[Row] = &[
    ("arn", "ARN", Plain),
    (
        "at_rest_encryption_enabled",
        "AtRestEncryptionEnabled",
        Plain,
    ),
    ("auth_token_enabled", "AuthTokenEnabled", Plain),
    (
        "auth_token_last_modified",
        "AuthTokenLastModifiedDate",
        Time,
    ),
    (
        "auto_minor_version_upgrade",
        "AutoMinorVersionUpgrade",
        Plain,
    ),
    ("cache_cluster_create_time", "CacheClusterCreateTime", Time),
    ("cache_cluster_id", "CacheClusterId", Plain),
    ("cache_cluster_status", "CacheClusterStatus", Plain),
    ("cache_node_type", "CacheNodeType", Plain),
    (
        "cache_parameter_group",
        "CacheParameterGroup.CacheParameterGroupName",
        Plain,
    ),
    ("cache_subnet_group_name", "CacheSubnetGroupName", Plain),
    (
        "client_download_landing_page",
        "ClientDownloadLandingPage",
        Plain,
    ),
    (
        "configuration_endpoint_address",
        "ConfigurationEndpoint.Address",
        Plain,
    ),
    (
        "configuration_endpoint_port",
        "ConfigurationEndpoint.Port",
        Plain,
    ),
    ("engine", "Engine", Plain),
    ("engine_version", "EngineVersion", Plain),
    ("ip_discovery", "IpDiscovery", Plain),
    ("network_type", "NetworkType", Plain),
    (
        "notification_topic_arn",
        "NotificationConfiguration.TopicArn",
        Plain,
    ),
    (
        "notification_topic_status",
        "NotificationConfiguration.TopicStatus",
        Plain,
    ),
    ("num_cache_nodes", "NumCacheNodes", Plain),
    (
        "pending_modified_values_auth_token_status",
        "PendingModifiedValues.AuthTokenStatus",
        Plain,
    ),
    (
        "pending_modified_values_cache_node_type",
        "PendingModifiedValues.CacheNodeType",
        Plain,
    ),
    (
        "pending_modified_values_engine_version",
        "PendingModifiedValues.EngineVersion",
        Plain,
    ),
    (
        "pending_modified_values_num_cache_nodes",
        "PendingModifiedValues.NumCacheNodes",
        Plain,
    ),
    (
        "pending_modified_values_transit_encryption_enabled",
        "PendingModifiedValues.TransitEncryptionEnabled",
        Plain,
    ),
    (
        "pending_modified_values_transit_encryption_mode",
        "PendingModifiedValues.TransitEncryptionMode",
        Plain,
    ),
    (
        "preferred_availability_zone",
        "PreferredAvailabilityZone",
        Plain,
    ),
    (
        "preferred_maintenance_window",
        "PreferredMaintenanceWindow",
        Plain,
    ),
    ("preferred_outpost_arn", "PreferredOutpostArn", Plain),
    ("replication_group_id", "ReplicationGroupId", Plain),
    (
        "replication_group_log_delivery_enabled",
        "ReplicationGroupLogDeliveryEnabled",
        Plain,
    ),
    ("snapshot_retention_limit", "SnapshotRetentionLimit", Plain),
    ("snapshot_window", "SnapshotWindow", Plain),
    (
        "transit_encryption_enabled",
        "TransitEncryptionEnabled",
        Plain,
    ),
    ("transit_encryption_mode", "TransitEncryptionMode", Plain),
];

/// Labels of a cache node, by the XML elements that contain their values.
pub(super) const NODE: &[Row] = &[
    ("availability_zone", "CustomerAvailabilityZone", Plain),
    ("create_time", "CacheNodeCreateTime", Time),
    ("customer_outpost_arn", "CustomerOutpostArn", Plain),
    ("endpoint_address", "Endpoint.Address", Plain),
    ("endpoint_port", "Endpoint.Port", Plain),
    ("id", "CacheNodeId", Plain),
    ("parameter_group_status", "ParameterGroupStatus", Plain),
    ("source_cache_node_id", "SourceCacheNodeId", Plain),
    ("status", "CacheNodeStatus", Plain),
];

/// Labels of a log delivery configuration; its index is appended to each label name.
pub(super) const LOGS: &[Row] = &[
    (
        "delivery_stream",
        "DestinationDetails.KinesisFirehoseDetails.DeliveryStream",
        Plain,
    ),
    ("destination_type", "DestinationType", Plain),
    ("log_format", "LogFormat", Plain),
    (
        "log_group",
        "DestinationDetails.CloudWatchLogsDetails.LogGroup",
        Plain,
    ),
    ("log_type", "LogType", Plain),
    ("message", "Message", Plain),
    ("status", "Status", Plain),
];

/// Labels of a security group; its index is appended to each label name.
pub(super) const GROUPS: &[Row] = &[
    ("id", "SecurityGroupId", Plain),
    ("status", "Status", Plain),
];
