//! The table of routes: path, methods, scope, visible data, parameters and documentation. The
//! router, the OpenAPI document and `docs/api.md` are generated from it.

mod cardinality;
mod cells;
mod operations;
pub(super) mod pages;
mod profiles;
mod queries;
mod rules;
mod running;
mod usage;

use super::documents;
use super::route::{
    ApiRoute, ParamKind, additional_api, admin_route, api, mount, open, param, plain, required,
    state,
};
use crate::access::ResponseVisibility;
use crate::api::{
    access, admin, alertmanagers, blocks, cluster, deletion, discards, features, import, metadata,
    notifications, otlp, relabeling, self_metrics, status, targets, write,
};
use crate::metrics::ServerEndpoint;
use ParamKind::{Count, Flag, Text, Texts};
use cells::{END, GET, LIMIT, OTLP, POST, POST_PUT, REQUIRED_MATCH, START, TEXT, YAML};
use firn_model::access::AccessScope;
use queries::QUERIES;
use rules::{RULE_EDITOR, RULES};

/// A section of the table: routes with a common title and path prefix. Sections structure the
/// documentation.
pub(crate) struct RouteSection {
    pub(crate) title: &'static str,
    /// Prefix of all paths in the section.
    pub(crate) prefix: &'static str,
    pub(crate) routes: &'static [ApiRoute],
}

/// All sections, in the order of the documentation.
pub(crate) const SECTIONS: [RouteSection; 14] = [
    section("Queries", "/api/v1", QUERIES),
    section("Cardinality", "/api/v1", cardinality::CARDINALITY),
    section("Usage", "/api/v1", usage::USAGE),
    section("Running queries", "/api/v1", running::RUNNING),
    section("Writes", "/api/v1", WRITES),
    section("Writes at other systems' paths", "", WRITES_OF_OTHERS),
    section("Targets and metadata", "/api/v1", TARGETS),
    section("Rules and alerts", "/api/v1", RULES),
    section("Status and administration", "/api/v1", STATUS),
    section("Editing rules over HTTP", "/config/v1/rules", RULE_EDITOR),
    section("Operations", "", operations::OPERATIONS),
    section("Profiles", "", profiles::PROFILES),
    section("Web interface", "", pages::OWN),
    section("Pages and files of the operator", "", pages::OF_OPERATOR),
];

const fn section(
    title: &'static str,
    prefix: &'static str,
    routes: &'static [ApiRoute],
) -> RouteSection {
    RouteSection {
        title,
        prefix,
        routes,
    }
}

/// Returns a remote-write route at `path`. Senders that migrate from other systems use several
/// paths.
const fn remote_write_at(path: &'static str, doc: &'static str) -> ApiRoute {
    let mount = mount(
        POST,
        ServerEndpoint::Write,
        AccessScope::Write,
        ResponseVisibility::Nothing,
    );
    ApiRoute::new(path, mount, |m| plain(m, write::remote_write), doc).answers(TEXT)
}

/// Returns an OTLP route at `path`, with the same handler for all paths.
const fn otlp_at(path: &'static str, doc: &'static str) -> ApiRoute {
    let mount = mount(
        POST,
        ServerEndpoint::Otlp,
        AccessScope::Write,
        ResponseVisibility::Nothing,
    );
    ApiRoute::new(path, mount, |m| plain(m, otlp::metrics), doc).answers(OTLP)
}

const WRITES: &[ApiRoute] = &[
    remote_write_at("/write", "Accepts samples by remote write 1.0 and 2.0."),
    otlp_at(
        "/otlp/v1/metrics",
        "Accepts OpenTelemetry metrics (OTLP) as protocol buffers or JSON, optionally gzipped.",
    ),
    ApiRoute::new(
        "/import/prometheus",
        mount(
            POST_PUT,
            ServerEndpoint::Import,
            AccessScope::Write,
            ResponseVisibility::Nothing,
        ),
        |m| plain(m, import::prometheus),
        "Accepts samples of any age in the text format.",
    )
    .with_params(&[
        param(
            "timestamp",
            Count,
            "Timestamp of samples without one, in milliseconds since the epoch.",
        ),
        param(
            "extra_label",
            Texts,
            "`name=value`: label to add to every sample.",
        ),
    ])
    .answers(TEXT),
];

/// Paths of other systems: their senders only need a new host name.
const WRITES_OF_OTHERS: &[ApiRoute] = &[
    remote_write_at("/api/v1/push", "Remote write, at Mimir's path."),
    remote_write_at("/api/v1/receive", "Remote write, at Thanos's path."),
    otlp_at("/otlp/v1/metrics", "OTLP, at Mimir's path."),
    otlp_at(
        "/opentelemetry/v1/metrics",
        "OTLP, at VictoriaMetrics's path.",
    ),
];

const TARGETS: &[ApiRoute] = &[
    ApiRoute::new(
        "/scrape_pools",
        state(ServerEndpoint::Targets),
        |m| api(m, targets::scrape_pools),
        "Returns the names of the scrape jobs.",
    ),
    ApiRoute::new(
        "/scrape_pools/config",
        state(ServerEndpoint::Targets),
        |m| api(m, targets::scrape_pool_config),
        "Returns the configuration of a scrape job, without secrets.",
    )
    .with_params(&[required("scrapePool", Text, "Name of the scrape job.")]),
    ApiRoute::new(
        "/targets",
        state(ServerEndpoint::Targets),
        |m| api(m, targets::targets),
        "Returns the scrape targets and their state.",
    )
    .by_tenant()
    .with_params(&[
        param(
            "state",
            Text,
            "Targets to return: `active`, `dropped` or `any`.",
        ),
        param("scrapePool", Text, "Only targets of this scrape job."),
    ]),
    ApiRoute::new(
        "/targets/metadata",
        state(ServerEndpoint::Targets),
        |m| api(m, metadata::by_target),
        "Returns type, unit and help text of metrics, by target.",
    )
    .by_tenant()
    .with_params(&[
        param(
            "match_target",
            Text,
            "Selector that matches labels of targets.",
        ),
        param("metric", Text, "Only this metric."),
        LIMIT,
    ]),
    ApiRoute::new(
        "/targets/relabel_steps",
        state(ServerEndpoint::Targets),
        |m| api(m, targets::relabel_steps),
        "Returns the labels of a target after each relabeling rule.",
    )
    .with_params(&[
        required("scrapePool", Text, "Name of the scrape job."),
        required("labels", Text, "Discovered labels of the target, as JSON."),
    ]),
    ApiRoute::new(
        "/targets/relabel_steps",
        mount(
            POST,
            ServerEndpoint::Targets,
            AccessScope::Read,
            ResponseVisibility::Part,
        ),
        |m| additional_api(m, relabeling::relabel_steps),
        "Returns the labels after each rule of the request.",
    )
    .with_params(&[
        required(
            "configs",
            Text,
            "Relabeling rules in YAML: a list, or `relabel_configs` or `metric_relabel_configs` \
             with a list.",
        ),
        required("labels", Text, "Labels before the rules, as JSON."),
    ]),
    ApiRoute::new(
        "/metadata",
        state(ServerEndpoint::Targets),
        |m| api(m, metadata::by_metric),
        "Returns type, unit and help text of metrics.",
    )
    .by_tenant()
    .with_params(&[
        LIMIT,
        param(
            "limit_per_metric",
            Count,
            "Maximum number of entries per metric.",
        ),
        param("metric", Text, "Only this metric."),
    ]),
    ApiRoute::new(
        "/alertmanagers",
        state(ServerEndpoint::Rules),
        |m| api(m, alertmanagers::alertmanagers),
        "Returns the Alertmanagers that receive alerts.",
    )
    .require_store(),
];

const STATUS: &[ApiRoute] = &[
    ApiRoute::new(
        "/status/access",
        open(GET, ServerEndpoint::Status),
        |m| plain(m, access::access),
        "Returns the permissions of the credential: `name`, `scopes`, `match` and `tenants`. Works \
         during the start.",
    ),
    ApiRoute::new(
        "/status/buildinfo",
        open(GET, ServerEndpoint::Status),
        |m| api(m, status::build_info),
        "Returns version and build information.",
    ),
    ApiRoute::new(
        "/status/runtimeinfo",
        state(ServerEndpoint::Status),
        |m| api(m, status::runtime_info),
        "Returns runtime information about the process.",
    ),
    ApiRoute::new(
        "/status/flags",
        state(ServerEndpoint::Status),
        |m| api(m, status::flags),
        "Returns the flags and their values.",
    ),
    ApiRoute::new(
        "/status/settings",
        state(ServerEndpoint::Status),
        |m| api(m, status::settings),
        "Returns the flags with values, defaults and descriptions.",
    ),
    ApiRoute::new(
        "/status/config",
        state(ServerEndpoint::Status),
        |m| api(m, status::config),
        "Returns the active configuration, without secrets.",
    ),
    ApiRoute::new(
        "/status/tsdb",
        state(ServerEndpoint::Status),
        |m| api(m, status::tsdb),
        "Returns statistics of the head.",
    )
    .by_tenant()
    .require_store()
    .with_params(&[LIMIT]),
    ApiRoute::new(
        "/status/tsdb/blocks",
        state(ServerEndpoint::Status),
        |m| api(m, blocks::blocks),
        "Returns the blocks of the store and the running work on them.",
    )
    .by_tenant()
    .require_store(),
    ApiRoute::new(
        "/status/walreplay",
        state(ServerEndpoint::Status),
        |m| plain(m, status::replay),
        "Returns the progress of the WAL replay: the records `min` to `max` and the `current` one.",
    ),
    ApiRoute::new(
        "/status/cluster",
        state(ServerEndpoint::Status),
        |m| plain(m, cluster::cluster),
        "Returns the nodes and partitions of the cluster as this node sees them, and its `fault`, \
         if any. Works during the start.",
    ),
    ApiRoute::new(
        "/status/discards",
        state(ServerEndpoint::Status),
        |m| api(m, discards::discards),
        "Returns the most recently rejected samples, by reason, sender and job.",
    )
    .by_tenant(),
    ApiRoute::new(
        "/status/self_metrics",
        state(ServerEndpoint::Status),
        |m| api(m, self_metrics::self_metrics),
        "Returns Firn's own metrics as JSON.",
    )
    .with_params(&[param(
        "metric_name_pattern",
        Text,
        "Regular expression that matches metric names.",
    )]),
    ApiRoute::new(
        "/features",
        open(GET, ServerEndpoint::Status),
        |m| api(m, features::features),
        "Returns the features of this server.",
    ),
    ApiRoute::new(
        "/notifications",
        mount(
            GET,
            ServerEndpoint::Status,
            AccessScope::Read,
            ResponseVisibility::Nothing,
        ),
        |m| plain(m, notifications::list),
        "Returns the active notifications for operators.",
    ),
    ApiRoute::new(
        "/notifications/live",
        mount(
            GET,
            ServerEndpoint::Status,
            AccessScope::Read,
            ResponseVisibility::Nothing,
        ),
        |m| plain(m, notifications::live),
        "Streams notifications as server-sent events.",
    )
    .answers("text/event-stream"),
    ApiRoute::new(
        "/admin/tsdb/snapshot",
        mount(
            POST_PUT,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| admin_route(m, admin::snapshot),
        "Creates a snapshot of the data folder. Requires `--web.enable-admin-api`.",
    )
    .require_store()
    .with_params(&[param(
        "skip_head",
        Flag,
        "Omit samples that are not yet in a block.",
    )]),
    ApiRoute::new(
        "/admin/tsdb/delete_series",
        mount(
            POST_PUT,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| admin_route(m, deletion::delete_series),
        "Deletes the stored samples of the selected series and answers with 204. Requires \
         `--web.enable-admin-api`.",
    )
    .by_tenant()
    .require_store()
    .with_params(&[
        REQUIRED_MATCH,
        START,
        END,
        param(
            "dry_run",
            Flag,
            "Delete nothing; return the numbers of `series` and `samples`.",
        ),
    ]),
    ApiRoute::new(
        "/admin/tsdb/clean_tombstones",
        mount(
            POST_PUT,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| admin_route(m, deletion::clean_tombstones),
        "Removes deleted samples from the disk and answers with 204. Requires \
         `--web.enable-admin-api`.",
    )
    .by_tenant()
    .require_store(),
    ApiRoute::new(
        "/openapi.yaml",
        open(GET, ServerEndpoint::Status),
        |m| plain(m, documents::openapi),
        "Returns this API as an OpenAPI document.",
    )
    .answers(YAML),
];
