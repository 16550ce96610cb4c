//! Every flag of `firn serve`, in Prometheus's order. A table: one row a flag.

use super::{Apply, Effect, Flag};
use crate::settings::{LogFormat, Settings, listen_address};
use firn_model::units::{parse_duration, parse_size};
use firn_wire::remote_write::Version;
use std::str::FromStr;

/// A flag that Firn acts on.
const fn flag(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    apply: Apply,
    help: &'static str,
) -> Flag {
    Flag {
        name,
        alias: None,
        value: Some(value),
        default,
        effect: Effect::Sets(apply),
        help,
    }
}

/// A switch that Firn acts on.
const fn switch(name: &'static str, apply: Apply, help: &'static str) -> Flag {
    Flag {
        name,
        alias: None,
        value: None,
        default: "false",
        effect: Effect::Sets(apply),
        help,
    }
}

/// A flag of Prometheus with a value that means nothing here.
const fn ignored(name: &'static str, default: &'static str) -> Flag {
    Flag {
        name,
        alias: None,
        value: Some("VALUE"),
        default,
        effect: Effect::Ignored,
        help: "",
    }
}

/// A switch of Prometheus that means nothing here.
const fn ignored_switch(name: &'static str, default: &'static str) -> Flag {
    Flag {
        name,
        alias: None,
        value: None,
        default,
        effect: Effect::Ignored,
        help: "",
    }
}

impl Flag {
    const fn or(self, alias: &'static str) -> Flag {
        Flag {
            alias: Some(alias),
            ..self
        }
    }
}

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
        "Config in Prometheus's format. Without one Firn scrapes itself.",
    )
    .or("config"),
    switch(
        "config.auto-reload",
        |s, v| set(&mut s.reloads_by_itself, Ok(v == "true")),
        "Read the config, its rule files and its scrape config files again when one of them \
         changes.",
    ),
    flag(
        "config.auto-reload-interval",
        "DURATION",
        "30s",
        |s, v| set(&mut s.reload_interval, positive_duration(v)),
        "How often --config.auto-reload looks; 1s at least.",
    ),
    flag(
        "web.listen-address",
        "HOST:PORT",
        "127.0.0.1:9090",
        |s, v| {
            s.listen.push(listen_address::checked(v)?);
            Ok(())
        },
        "Address to listen on; may be repeated.",
    )
    .or("listen"),
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
        "TLS, users, headers and a rate limit, in the web configuration of Prometheus's \
         exporter-toolkit; read again when it changes. See security.md.",
    ),
    flag(
        "web.read-timeout",
        "DURATION",
        "5m",
        |s, v| set(&mut s.read_timeout, duration(v)),
        "Longest time to read a request, and longest idle time of a connection.",
    ),
    flag(
        "web.max-connections",
        "COUNT",
        "512",
        |s, v| set(&mut s.connections_max, count(v)),
        "Most connections open at one time.",
    ),
    flag(
        "web.max-notifications-subscribers",
        "COUNT",
        "16",
        |s, v| set(&mut s.notice_listeners_max, number(v)),
        "Clients that may follow `/api/v1/notifications/live`.",
    ),
    flag(
        "web.external-url",
        "URL",
        "",
        |s, v| {
            s.external_url = v.into();
            Ok(())
        },
        "Where users reach this server, if not at the address it listens on.",
    ),
    flag(
        "web.route-prefix",
        "PATH",
        "",
        |s, v| {
            s.route_prefix = v.into();
            Ok(())
        },
        "Path before every route. By default the path of --web.external-url.",
    ),
    flag(
        "web.user-assets",
        "DIR",
        "",
        |s, v| {
            s.user_assets = (!v.is_empty()).then(|| v.into());
            Ok(())
        },
        "Folder whose files are below `/user`. By default none.",
    ),
    switch(
        "web.enable-lifecycle",
        |s, v| set(&mut s.enable_lifecycle, Ok(v == "true")),
        "Lets HTTP reload the config and stop the process.",
    ),
    switch(
        "web.enable-admin-api",
        |s, v| set(&mut s.enable_admin_api, Ok(v == "true")),
        "Lets HTTP make snapshots of the data folder. Nothing is there yet by which HTTP deletes \
         data or ends queries.",
    ),
    ignored_switch("web.enable-remote-write-receiver", "true"),
    flag(
        "web.remote-write-receiver.accepted-protobuf-messages",
        "MESSAGE",
        "prometheus.WriteRequest,io.prometheus.write.v2.Request",
        add_write_versions,
        "Messages of remote write that are taken, separated by commas; may be repeated. Others are \
         refused with 415, so that senders of 2.0 go back to 1.0.",
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
        "Folder of the templates that make the pages below `/consoles`.",
    ),
    flag(
        "web.console.libraries",
        "DIR",
        "console_libraries",
        |s, v| {
            s.console_libraries = v.into();
            Ok(())
        },
        "Folder whose `*.lib` files define what console templates share.",
    ),
    flag(
        "web.page-title",
        "TITLE",
        "Firn",
        |s, v| {
            s.page_title = v.into();
            Ok(())
        },
        "Title of the page.",
    ),
    flag(
        "web.cors.origin",
        "REGEX",
        "",
        |s, v| {
            s.cors_origin = v.into();
            Ok(())
        },
        "Origins that browsers may call the API from, as an anchored regex. By default none.",
    ),
    flag(
        "storage.tsdb.path",
        "DIR",
        "./data",
        |s, v| {
            s.data_dir = v.into();
            Ok(())
        },
        "Data folder.",
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
        "How long samples are kept; the config goes before it. 15d if neither of them, nor \
         --storage.tsdb.retention.size, says anything.",
    ),
    flag(
        "storage.tsdb.retention.size",
        "SIZE",
        "",
        |s, v| set(&mut s.retention_size, size(v).map(Some)),
        "Bytes that blocks, log, pages, catalogue and exemplars may take together, like 512MB; the \
         oldest blocks go first. The config goes before it. By default no limit.",
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
        "Folder of the queues of an agent. With --agent only.",
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
        "Samples of a remote read in one message; 0 is no limit. Reads in chunks have none.",
    ),
    flag(
        "storage.remote.read-concurrent-limit",
        "COUNT",
        "10",
        |s, v| set(&mut s.remote_reads_max, number(v)),
        "Remote reads at one time; 0 is no limit.",
    ),
    flag(
        "storage.remote.read-max-bytes-in-frame",
        "BYTES",
        "1048576",
        |s, v| set(&mut s.remote_read_frame_bytes, number(v)),
        "Bytes of a frame of a remote read in chunks; a chunk is not split.",
    ),
    flag(
        "web.search.max-limit",
        "COUNT",
        "10000",
        |s, v| set(&mut s.search_limit_max, number(v)),
        "Findings that a search may ask for (feature `search-api`); 0 is no limit.",
    ),
    flag(
        "rules.alert.for-outage-tolerance",
        "DURATION",
        "1h",
        |s, v| set(&mut s.alert_outage_tolerance, duration(v)),
        "Longest outage after which the `for` state of alerts is taken up.",
    ),
    flag(
        "rules.alert.for-grace-period",
        "DURATION",
        "10m",
        |s, v| set(&mut s.alert_grace_period, duration(v)),
        "Shortest time from a start to an alert whose `for` is restored. Only alerts with a longer \
         `for` are restored.",
    ),
    flag(
        "rules.alert.resend-delay",
        "DURATION",
        "1m",
        |s, v| set(&mut s.alert_resend_delay, duration(v)),
        "Shortest time before an alert is sent to Alertmanagers again.",
    ),
    flag(
        "rules.max-concurrent-evals",
        "COUNT",
        "4",
        |s, v| set(&mut s.rule_evaluations_max, count(v)),
        "Rules that may be evaluated beside another one of their group, of all groups together.",
    ),
    ignored_switch("scrape.adjust-timestamps", "true"),
    ignored("scrape.timestamp-tolerance", "2ms"),
    flag(
        "alertmanager.notification-queue-capacity",
        "COUNT",
        "10000",
        |s, v| set(&mut s.notifications_queued_max, count(v)),
        "Alerts that may wait for each Alertmanager; the oldest are dropped beyond.",
    ),
    flag(
        "alertmanager.notification-batch-size",
        "COUNT",
        "256",
        |s, v| set(&mut s.notifications_batch_max, count(v)),
        "Alerts of one request to an Alertmanager.",
    ),
    Flag {
        default: "true",
        ..switch(
            "alertmanager.drain-notification-queue-on-shutdown",
            |s, v| set(&mut s.drains_notifications, Ok(v == "true")),
            "Whether alerts that wait are sent before the process ends.",
        )
    },
    flag(
        "query.lookback-delta",
        "DURATION",
        "5m",
        |s, v| set(&mut s.lookback, positive_duration(v)),
        "How far back an instant selector looks for a sample.",
    ),
    flag(
        "query.timeout",
        "DURATION",
        "2m",
        |s, v| set(&mut s.query_timeout, positive_duration(v)),
        "Longest time of a query.",
    ),
    flag(
        "query.max-concurrency",
        "COUNT",
        "20",
        |s, v| set(&mut s.query_concurrency, count(v)),
        "Queries that run at one time; others wait, tenants (or addresses) in turn.",
    ),
    flag(
        "query.max-samples",
        "COUNT",
        "50000000",
        |s, v| set(&mut s.query_samples_max, count(v)),
        "Samples that one query may hold at one time.",
    ),
    ignored("scrape.discovery-reload-interval", "5s"),
    switch(
        "agent",
        |s, v| set(&mut s.is_agent, Ok(v == "true")),
        "Send on what is scraped and pushed, and store nothing.",
    ),
    flag(
        "enable-feature",
        "NAMES",
        "",
        |s, v| {
            let names = v.split(',').map(str::trim).filter(|name| !name.is_empty());
            s.features.extend(names.map(str::to_owned));
            Ok(())
        },
        "Features to switch on, separated by commas; may be repeated. Known: \
         promql-experimental-functions, promql-extended-range-selectors, \
         promql-binop-fill-modifiers, promql-delayed-name-removal, use-start-timestamps, \
         type-and-unit-labels, promql-per-step-stats, search-api, exemplar-storage, \
         extra-scrape-metrics, st-storage, st-synthesis, created-timestamp-zero-ingestion, \
         otlp-deltatocumulative, otlp-native-delta-ingestion.",
    ),
    flag(
        "log.level",
        "LEVEL",
        "info",
        |s, v| set(&mut s.log_level, level(v).map(Some)),
        "Least severe level that is logged: debug, info, warn or error.",
    ),
    flag(
        "log.format",
        "FORMAT",
        "logfmt",
        |s, v| set(&mut s.log_format, format(v)),
        "Format of log lines: logfmt or json.",
    ),
];

/// Adds the versions of remote write whose messages `text` names.
fn add_write_versions(settings: &mut Settings, text: &str) -> Result<(), String> {
    for name in text.split(',') {
        let version = Version::of_message(name).ok_or_else(|| {
            let supported = Version::messages(&Version::ALL);
            format!("unknown type for remote write protobuf message {name}, supported: {supported}")
        })?;
        let known = &mut settings.write_versions;
        if known.contains(&version) {
            let got = Version::messages(known);
            return Err(format!("duplicated {name} flag value, got {got} already"));
        }
        known.push(version);
    }
    Ok(())
}

fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|e| e.to_string())
}

fn positive_duration(text: &str) -> Result<std::time::Duration, String> {
    match duration(text)? {
        d if d.is_zero() => Err(format!("must be greater than 0: {text:?}")),
        d => Ok(d),
    }
}

/// A whole number from one on. Zero would refuse every query or connection.
fn count<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    match text.parse::<T>() {
        Ok(n) if n >= T::from(1) => Ok(n),
        _ => Err(format!("not a whole number greater than 0: {text:?}")),
    }
}

/// A whole number, which may be written as Go's flags take it: `5e7`.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = text.parse::<f64>().ok();
    let whole = number.filter(|n| n.fract() == 0.0 && (0.0..=1e15).contains(n));
    let number = whole.and_then(|n| T::try_from(n as u64).ok());
    number.ok_or_else(|| format!("not a whole number: {text:?}"))
}

fn level(text: &str) -> Result<tracing::Level, String> {
    match text {
        "debug" => Ok(tracing::Level::DEBUG),
        "info" => Ok(tracing::Level::INFO),
        "warn" => Ok(tracing::Level::WARN),
        "error" => Ok(tracing::Level::ERROR),
        _ => Err(format!("not one of debug, info, warn, error: {text:?}")),
    }
}

fn format(text: &str) -> Result<LogFormat, String> {
    match text {
        "logfmt" => Ok(LogFormat::Logfmt),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("not one of logfmt, json: {text:?}")),
    }
}
