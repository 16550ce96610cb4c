//! Every flag of `firn serve`, in Prometheus's order. A table: one row a flag.

mod rows;
mod values;

use super::{ENABLE_FEATURE, Flag};
use crate::listen_address;
use rows::{flag, ignored, ignored_switch, switch};
use std::time::Duration;
use values::{
    add_write_versions, count, duration, format, level, not_negative, number, or_default_batch,
    or_default_lookback, positive_duration, set, size,
};

/// The shortest interval between looks for changed files.
const RELOAD_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The table.
pub const FLAGS: &[Flag] = &[
    flag(
        "config.file",
        "FILE",
        "",
        |s, v| {
            s.config_file = Some(v.into());
            Ok(())
        },
        "Configuration file in Prometheus's format. Without a file, Firn scrapes only itself.",
    )
    .or("config"),
    switch(
        "config.auto-reload",
        |s, v| set(&mut s.reloads_by_itself, Ok(v == "true")),
        "Reload the configuration when the configuration file, one of its rule files or one of \
         its scrape config files changes.",
    ),
    flag(
        "config.auto-reload-interval",
        "DURATION",
        "30s",
        |s, v| {
            set(
                &mut s.reload_interval,
                duration(v).map(|d| d.max(RELOAD_INTERVAL_MIN)),
            )
        },
        "Interval between checks for changed files, with --config.auto-reload. At least 1s.",
    ),
    flag(
        "web.listen-address",
        "HOST:PORT",
        "127.0.0.1:9090",
        |s, v| {
            s.listen.push(listen_address::checked(v)?);
            Ok(())
        },
        "Address to listen on. May be repeated.",
    )
    .or("listen"),
    flag(
        "cluster.node",
        "NAME",
        "",
        |s, v| {
            s.cluster_node = Some(v.to_owned());
            Ok(())
        },
        "Name of this node of a cluster. Replaces firn.cluster.node of the configuration file, so \
         that all nodes can have the same file.",
    ),
    flag(
        "cluster.listen-address",
        "HOST:PORT",
        "",
        |s, v| {
            s.cluster_listen = Some(listen_address::checked(v)?);
            Ok(())
        },
        "Address on which this node listens for the other nodes of its cluster. Replaces \
         firn.cluster.listen of the configuration file.",
    ),
    flag(
        "cluster.advertise-address",
        "HOST:PORT",
        "",
        |s, v| {
            s.cluster_advertise = Some(listen_address::checked(v)?);
            Ok(())
        },
        "Address at which the other nodes of its cluster reach this node. Replaces \
         firn.cluster.advertise of the configuration file.",
    ),
    ignored_switch("auto-gomaxprocs", "true"),
    ignored_switch("auto-gomemlimit", "true"),
    ignored("auto-gomemlimit.ratio", "0.9"),
    ignored("auto-gomemlimit.refresh-interval", "0s"),
    flag(
        "web.config.file",
        "FILE",
        "",
        |s, v| {
            s.web_config_file = Some(v.into());
            Ok(())
        },
        "Web configuration file in the format of Prometheus's exporter-toolkit: TLS, users, \
         response headers and a rate limit. Firn reloads the file when it changes. See \
         docs/security.md.",
    ),
    flag(
        "web.read-timeout",
        "DURATION",
        "5m",
        |s, v| set(&mut s.read_timeout, duration(v)),
        "Maximum time to read a request, and maximum idle time of a connection.",
    ),
    flag(
        "web.max-connections",
        "COUNT",
        "512",
        |s, v| set(&mut s.connections_max, count(v)),
        "Maximum number of open connections.",
    ),
    flag(
        "web.max-notifications-subscribers",
        "COUNT",
        "16",
        |s, v| set(&mut s.notice_listeners_max, number(v)),
        "Maximum number of clients connected to `/api/v1/notifications/live`.",
    ),
    flag(
        "web.external-url",
        "URL",
        "",
        |s, v| {
            s.external_url = v.into();
            Ok(())
        },
        "URL at which users reach this server, if it differs from the listen address. Firn uses \
         it in links.",
    ),
    flag(
        "web.route-prefix",
        "PATH",
        "",
        |s, v| {
            s.route_prefix = v.into();
            Ok(())
        },
        "Path prefix of all routes. Defaults to the path of --web.external-url.",
    ),
    flag(
        "web.page-dir",
        "DIR",
        "",
        |s, v| {
            s.page_dir = (!v.is_empty()).then(|| v.into());
            Ok(())
        },
        "Folder with the files of the web interface, for its development. Defaults to the files in \
         the binary.",
    ),
    flag(
        "web.user-assets",
        "DIR",
        "",
        |s, v| {
            s.user_assets = (!v.is_empty()).then(|| v.into());
            Ok(())
        },
        "Folder with static files to serve under `/user`. Not served by default.",
    ),
    switch(
        "web.enable-lifecycle",
        |s, v| set(&mut s.enable_lifecycle, Ok(v == "true")),
        "Allow clients to reload the configuration and to stop the process over HTTP.",
    ),
    switch(
        "web.enable-admin-api",
        |s, v| set(&mut s.enable_admin_api, Ok(v == "true")),
        "Allow clients to create snapshots of the data folder and to delete series over HTTP.",
    ),
    ignored_switch("web.enable-remote-write-receiver", "true"),
    flag(
        "web.remote-write-receiver.accepted-protobuf-messages",
        "MESSAGE",
        "prometheus.WriteRequest,io.prometheus.write.v2.Request",
        add_write_versions,
        "Remote write messages to accept, separated by commas. May be repeated. Firn rejects \
         other messages with status 415, so that senders of version 2.0 fall back to 1.0.",
    ),
    ignored_switch("web.enable-otlp-receiver", "true"),
    flag(
        "web.console.templates",
        "DIR",
        "consoles",
        |s, v| {
            s.console_templates = v.into();
            Ok(())
        },
        "Folder with the templates of the console pages under `/consoles`.",
    ),
    flag(
        "web.console.libraries",
        "DIR",
        "console_libraries",
        |s, v| {
            s.console_libraries = v.into();
            Ok(())
        },
        "Folder with the `*.lib` files that define templates shared by all console pages.",
    ),
    flag(
        "web.page-title",
        "TITLE",
        "Firn",
        |s, v| {
            s.page_title = v.into();
            Ok(())
        },
        "Title of the web interface.",
    ),
    flag(
        "web.cors.origin",
        "REGEX",
        "",
        |s, v| {
            s.cors_origin = v.into();
            Ok(())
        },
        "Anchored regular expression that matches the origins allowed to call the API from a \
         browser (CORS). No origin is allowed by default.",
    ),
    flag(
        "storage.tsdb.path",
        "DIR",
        "./data",
        |s, v| {
            s.data_dir = v.into();
            Ok(())
        },
        "Folder in which Firn stores its data.",
    )
    .or("data"),
    ignored("storage.tsdb.min-block-duration", "2h"),
    ignored("storage.tsdb.max-block-duration", "1d12h"),
    ignored("storage.tsdb.max-block-chunk-segment-size", "0B"),
    ignored("storage.tsdb.wal-segment-size", "0B"),
    flag(
        "storage.tsdb.retention.time",
        "DURATION",
        "",
        |s, v| set(&mut s.retention_time, duration(v).map(Some)),
        "Retention time of samples. The configuration file overrides this flag. Defaults to 15d \
         if neither a retention time nor a retention size is set.",
    ),
    flag(
        "storage.tsdb.retention.size",
        "SIZE",
        "",
        |s, v| set(&mut s.retention_size, size(v).map(Some)),
        "Maximum total size of blocks, log, pages, catalogue and exemplars, for example 512MB. \
         When the limit is reached, Firn deletes the oldest blocks first. The configuration file \
         overrides this flag. No limit by default.",
    ),
    ignored_switch("storage.tsdb.no-lockfile", "false"),
    ignored_switch("storage.tsdb.allow-overlapping-compaction", "true"),
    ignored_switch("storage.tsdb.wal-compression", "true"),
    ignored("storage.tsdb.wal-compression-type", "snappy"),
    ignored("storage.tsdb.head-chunks-write-queue-size", "0"),
    ignored("storage.tsdb.samples-per-chunk", "120"),
    ignored("storage.tsdb.delayed-compaction.max-percent", "10"),
    ignored("storage.tsdb.delay-compact-file.path", ""),
    ignored("storage.tsdb.block-reload-interval", "1m"),
    flag(
        "storage.agent.path",
        "DIR",
        "data-agent/",
        |s, v| {
            s.agent_dir = v.into();
            Ok(())
        },
        "Folder for the remote write queues of an agent. Requires --agent.",
    ),
    ignored("storage.agent.wal-segment-size", "0B"),
    ignored_switch("storage.agent.wal-compression", "true"),
    ignored("storage.agent.wal-compression-type", "snappy"),
    ignored("storage.agent.wal-truncate-frequency", "0s"),
    ignored("storage.agent.retention.min-time", "5m"),
    ignored("storage.agent.retention.max-time", "4h"),
    ignored_switch("storage.agent.checkpoint-from-in-memory-series", "false"),
    ignored("storage.agent.checkpoint-batch-size", "1000"),
    ignored_switch("storage.agent.no-lockfile", "false"),
    ignored("storage.remote.flush-deadline", "1m"),
    flag(
        "storage.remote.read-sample-limit",
        "COUNT",
        "50000000",
        |s, v| set(&mut s.remote_read_samples_max, number(v)),
        "Maximum number of samples that one remote read request returns in a single message. 0 \
         means no limit. Streamed (chunked) responses are not limited.",
    ),
    flag(
        "storage.remote.read-concurrent-limit",
        "COUNT",
        "10",
        |s, v| set(&mut s.remote_reads_max, number(v)),
        "Maximum number of concurrent remote read requests. 0 means no limit.",
    ),
    flag(
        "storage.remote.read-max-bytes-in-frame",
        "BYTES",
        "1048576",
        |s, v| set(&mut s.remote_read_frame_bytes, number(v)),
        "Maximum number of bytes in a frame of a streamed remote read response. Firn does not \
         split chunks, so a frame with a large chunk may exceed the limit.",
    ),
    flag(
        "web.search.max-limit",
        "COUNT",
        "10000",
        |s, v| set(&mut s.search_limit_max, not_negative(v)),
        "Maximum value of the `limit` parameter of the search API (feature `search-api`). 0 means \
         no limit.",
    ),
    flag(
        "rules.alert.for-outage-tolerance",
        "DURATION",
        "1h",
        |s, v| set(&mut s.alert_outage_tolerance, duration(v)),
        "Longest outage after which Firn restores the `for` state of alerts.",
    ),
    flag(
        "rules.alert.for-grace-period",
        "DURATION",
        "10m",
        |s, v| set(&mut s.alert_grace_period, duration(v)),
        "Minimum time between a restart and the firing of an alert whose `for` state was \
         restored. Firn restores only alerts with a `for` duration longer than this.",
    ),
    flag(
        "rules.alert.resend-delay",
        "DURATION",
        "1m",
        |s, v| set(&mut s.alert_resend_delay, duration(v)),
        "Minimum time before Firn sends an alert to Alertmanagers again.",
    ),
    flag(
        "rules.max-concurrent-evals",
        "COUNT",
        "4",
        |s, v| set(&mut s.rule_evaluations_max, number(v)),
        "Maximum number of rules, over all groups, that Firn evaluates concurrently with other \
         rules of their group. 0 means that the rules of a group run one after the other.",
    ),
    ignored_switch("scrape.adjust-timestamps", "true"),
    ignored("scrape.timestamp-tolerance", "2ms"),
    flag(
        "alertmanager.notification-queue-capacity",
        "COUNT",
        "10000",
        |s, v| set(&mut s.notifications_queued_max, count(v)),
        "Maximum number of alerts queued for each Alertmanager. When the queue is full, Firn \
         drops the oldest alerts.",
    ),
    flag(
        "alertmanager.notification-batch-size",
        "COUNT",
        "256",
        |s, v| {
            set(
                &mut s.notifications_batch_max,
                number(v).map(or_default_batch),
            )
        },
        "Maximum number of alerts in one request to an Alertmanager. 0 means the default.",
    ),
    Flag {
        default: "true",
        ..switch(
            "alertmanager.drain-notification-queue-on-shutdown",
            |s, v| set(&mut s.drains_notifications, Ok(v == "true")),
            "Send all queued alerts before the process exits.",
        )
    },
    flag(
        "query.lookback-delta",
        "DURATION",
        "5m",
        |s, v| set(&mut s.lookback, duration(v).map(or_default_lookback)),
        "Maximum age of the sample that an instant vector selector returns. 0 means the default.",
    ),
    flag(
        "query.timeout",
        "DURATION",
        "2m",
        |s, v| set(&mut s.query_timeout, positive_duration(v)),
        "Maximum execution time of a query.",
    ),
    flag(
        "query.max-concurrency",
        "COUNT",
        "20",
        |s, v| set(&mut s.query_concurrency, count(v)),
        "Maximum number of queries executed concurrently. Further queries wait in a queue that \
         serves tenants (or client addresses) in turn.",
    ),
    flag(
        "query.max-samples",
        "COUNT",
        "50000000",
        |s, v| set(&mut s.query_samples_max, count(v)),
        "Maximum number of samples that one query may hold in memory.",
    ),
    ignored("scrape.discovery-reload-interval", "5s"),
    switch(
        "agent",
        |s, v| set(&mut s.is_agent, Ok(v == "true")),
        "Run as an agent: forward scraped and received samples by remote write and store no \
         series locally.",
    ),
    flag(
        ENABLE_FEATURE,
        "NAMES",
        "",
        |s, v| {
            let names = v.split(',').map(str::trim).filter(|name| !name.is_empty());
            s.features.extend(names.map(str::to_owned));
            Ok(())
        },
        "Features to enable, separated by commas. May be repeated. Known features:",
    ),
    flag(
        "log.level",
        "LEVEL",
        "info",
        |s, v| set(&mut s.log_level, level(v).map(Some)),
        "Minimum severity of logged messages: debug, info, warn or error.",
    ),
    flag(
        "log.format",
        "FORMAT",
        "logfmt",
        |s, v| set(&mut s.log_format, format(v)),
        "Format of log lines: logfmt or json.",
    ),
];
