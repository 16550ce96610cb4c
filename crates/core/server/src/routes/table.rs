//! The table of routes: path, methods, scope, visible data, parameters and documentation. The
//! router, the OpenAPI document and `docs/api.md` are generated from it.

mod cells;
mod operations;
mod pages;
mod profiles;

use super::documents;
use super::route::{
    ApiRoute, ParamKind, RouteParam, admin_route, api, mount, mount_data, mutating_route, open,
    param, plain, required, state,
};
use crate::access::ResponseVisibility;
use crate::api::{
    admin, alertmanagers, blocks, cluster, discards, exemplars, features, import, metadata,
    notifications, otlp, query, read, rule_editor, rules, search, self_metrics, series, status,
    targets, write,
};
use crate::metrics::ServerEndpoint;
use ParamKind::{Count, Duration, Flag, Text, Texts, Time};
use cells::{DELETE, GET, GET_POST, LINES, MATCH, OTLP, POST, POST_PUT, TEXT, YAML};
use firn_model::access::AccessScope;

/// A section of the table: routes with a common title and path prefix. Sections structure the
/// documentation.
pub(crate) struct RouteSection {
    pub(crate) title: &'static str,
    /// Prefix of all paths in the section.
    pub(crate) prefix: &'static str,
    pub(crate) routes: &'static [ApiRoute],
}

/// All sections, in the order of the documentation.
pub(crate) const SECTIONS: [RouteSection; 11] = [
    section("Queries", "/api/v1", QUERIES),
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

const EXPRESSION: RouteParam = required("query", Text, "PromQL expression.");
const TIMEOUT: RouteParam = param("timeout", Duration, "Maximum execution time of the query.");
const LOOKBACK: RouteParam = param(
    "lookback_delta",
    Duration,
    "Maximum age of a sample that a selector returns. Default: `--query.lookback-delta`.",
);
const STATS: RouteParam = param(
    "stats",
    Text,
    "`true` or `all`: include statistics of the query in the response.",
);
const LIMIT: RouteParam = param(
    "limit",
    Count,
    "Maximum number of results. 0 means no limit.",
);
const START: RouteParam = param(
    "start",
    Time,
    "Start of the time range. Default: the oldest sample.",
);
const END: RouteParam = param(
    "end",
    Time,
    "End of the time range, inclusive. Default: the newest sample.",
);

const TERMS: RouteParam = param(
    "search[]",
    Texts,
    "Search term. An entry matches if any of the terms matches.",
);
const FUZZINESS: RouteParam = param(
    "fuzz_threshold",
    Count,
    "Minimum score of a match, from 0 to 100.",
);
const ALGORITHM: RouteParam = param(
    "fuzz_alg",
    Text,
    "Matching algorithm: `subsequence` or `jarowinkler`.",
);
const CASE: RouteParam = param(
    "case_sensitive",
    Flag,
    "Match case-sensitively (default: true).",
);
const SORT: RouteParam = param("sort_by", Text, "Sort order: `alpha` or `score`.");
const DIRECTION: RouteParam = param(
    "sort_dir",
    Text,
    "Sort direction with `sort_by=alpha`: `asc` or `dsc`.",
);
const SCORES: RouteParam = param("include_score", Flag, "Include the score of each match.");
const RECENT: RouteParam = param(
    "start",
    Time,
    "Start of the time range. Default: one hour ago.",
);
const FOUND: RouteParam = param("limit", Count, "Maximum number of matches (default: 100).");
const BATCH: RouteParam = param(
    "batch_size",
    Count,
    "Number of matches per line of the response (default: 100).",
);

const QUERIES: &[ApiRoute] = &[
    ApiRoute::new(
        "/query",
        mount_data(GET_POST, ServerEndpoint::Query),
        |m| api(m, query::instant),
        "Evaluates an expression at one point in time.",
    )
    .with_params(&[
        EXPRESSION,
        param("time", Time, "Evaluation time. Default: the current time."),
        TIMEOUT,
        LIMIT,
        LOOKBACK,
        STATS,
    ]),
    ApiRoute::new(
        "/query_range",
        mount_data(GET_POST, ServerEndpoint::QueryRange),
        |m| api(m, query::range),
        "Evaluates an expression over a time range.",
    )
    .with_params(&[
        EXPRESSION,
        required("start", Time, "Time of the first step."),
        required("end", Time, "End of the time range, inclusive."),
        required("step", Duration, "Query resolution step."),
        TIMEOUT,
        LIMIT,
        LOOKBACK,
        STATS,
    ]),
    ApiRoute::new(
        "/query_exemplars",
        mount_data(GET_POST, ServerEndpoint::Exemplars),
        |m| api(m, exemplars::query),
        "Returns the exemplars of the series that an expression selects.",
    )
    .with_params(&[EXPRESSION, START, END]),
    ApiRoute::new(
        "/format_query",
        mount(
            GET_POST,
            ServerEndpoint::FormatQuery,
            AccessScope::Read,
            ResponseVisibility::Nothing,
        ),
        |m| api(m, query::format),
        "Formats an expression.",
    )
    .require_store()
    .with_params(&[EXPRESSION]),
    ApiRoute::new(
        "/parse_query",
        mount(
            GET_POST,
            ServerEndpoint::ParseQuery,
            AccessScope::Read,
            ResponseVisibility::Nothing,
        ),
        |m| api(m, query::parse),
        "Returns an expression as a syntax tree.",
    )
    .require_store()
    .with_params(&[EXPRESSION]),
    ApiRoute::new(
        "/series",
        mount_data(GET_POST, ServerEndpoint::Series),
        |m| api(m, series::series),
        "Returns the label sets of matching series.",
    )
    .with_params(&[
        required(
            "match[]",
            Texts,
            "Series selector. A series matches if any of the selectors matches.",
        ),
        START,
        END,
        LIMIT,
    ]),
    ApiRoute::new(
        "/labels",
        mount_data(GET_POST, ServerEndpoint::Labels),
        |m| api(m, series::label_names),
        "Returns label names.",
    )
    .with_params(&[MATCH, START, END, LIMIT]),
    ApiRoute::new(
        "/label/{name}/values",
        mount_data(GET, ServerEndpoint::LabelValues),
        |m| api(m, series::label_values),
        "Returns the values of a label.",
    )
    .with_params(&[MATCH, START, END, LIMIT]),
    ApiRoute::new(
        "/search/metric_names",
        mount_data(GET_POST, ServerEndpoint::LabelValues),
        |m| api(m, search::metric_names),
        "Searches metric names, as lines of JSON. Requires `--enable-feature=search-api`.",
    )
    .with_params(&[
        TERMS,
        FUZZINESS,
        ALGORITHM,
        CASE,
        SORT,
        DIRECTION,
        SCORES,
        MATCH,
        RECENT,
        END,
        FOUND,
        BATCH,
        param(
            "include_metadata",
            Flag,
            "Include type, help text and unit of each metric.",
        ),
    ])
    .answers(LINES),
    ApiRoute::new(
        "/search/label_names",
        mount_data(GET_POST, ServerEndpoint::Labels),
        |m| api(m, search::label_names),
        "Searches label names, as lines of JSON. Requires the same feature.",
    )
    .with_params(&[
        TERMS, FUZZINESS, ALGORITHM, CASE, SORT, DIRECTION, SCORES, MATCH, RECENT, END, FOUND,
        BATCH,
    ])
    .answers(LINES),
    ApiRoute::new(
        "/search/label_values",
        mount_data(GET_POST, ServerEndpoint::LabelValues),
        |m| api(m, search::label_values),
        "Searches the values of a label, as lines of JSON. Requires the same feature.",
    )
    .with_params(&[
        required("label", Text, "Name of the label."),
        TERMS,
        FUZZINESS,
        ALGORITHM,
        CASE,
        SORT,
        DIRECTION,
        SCORES,
        MATCH,
        RECENT,
        END,
        FOUND,
        BATCH,
    ])
    .answers(LINES),
    ApiRoute::new(
        "/read",
        mount_data(POST, ServerEndpoint::Read),
        |m| plain(m, read::remote_read),
        "Serves remote read requests, with samples or streamed chunks.",
    )
    .answers("application/x-protobuf"),
];

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
        "/metadata",
        state(ServerEndpoint::Targets),
        |m| api(m, metadata::by_metric),
        "Returns type, unit and help text of metrics.",
    )
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

const RULES: &[ApiRoute] = &[
    ApiRoute::new(
        "/rules",
        state(ServerEndpoint::Rules),
        |m| api(m, rules::rules),
        "Returns rule groups with their rules and alerts.",
    )
    .require_store()
    .with_params(&[
        param("type", Text, "Type of the rules: `alert` or `record`."),
        param("rule_name[]", Texts, "Only rules with this name."),
        param("rule_group[]", Texts, "Only groups with this name."),
        param("file[]", Texts, "Only groups of this file."),
        param("match[]", Texts, "Selector that matches labels of rules."),
        param("exclude_alerts", Flag, "Omit alerts."),
        param("group_limit", Count, "Maximum number of groups per page."),
        param(
            "group_next_token",
            Text,
            "Token of the next page, from the previous response.",
        ),
    ]),
    ApiRoute::new(
        "/alerts",
        state(ServerEndpoint::Rules),
        |m| api(m, rules::alerts),
        "Returns pending and firing alerts.",
    )
    .require_store(),
    ApiRoute::new(
        "/rules/backfill",
        state(ServerEndpoint::Rules),
        |m| api(m, rules::backfills),
        "Returns requested backfills of rules and their progress.",
    )
    .require_store(),
    ApiRoute::new(
        "/rules/backfill",
        mount(
            POST,
            ServerEndpoint::Rules,
            AccessScope::Rules,
            ResponseVisibility::Whole,
        ),
        |m| mutating_route(m, rules::backfill),
        "Starts to evaluate the rules of a group over a past time range.",
    )
    .require_store()
    .with_params(&[
        required("group", Text, "Name of the group."),
        param(
            "file",
            Text,
            "Rule file of the group. Required if several files have a group with this name.",
        ),
        required("start", Time, "Start of the time range."),
        required("end", Time, "End of the time range."),
    ]),
];

const STATUS: &[ApiRoute] = &[
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
    .require_store()
    .with_params(&[LIMIT]),
    ApiRoute::new(
        "/status/tsdb/blocks",
        state(ServerEndpoint::Status),
        |m| api(m, blocks::blocks),
        "Returns the blocks of the store and the running work on them.",
    )
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
        "Returns the nodes and partitions of the cluster as this node sees them. Works during the \
         start.",
    ),
    ApiRoute::new(
        "/status/discards",
        state(ServerEndpoint::Status),
        |m| api(m, discards::discards),
        "Returns the most recently rejected samples, by reason, sender and job.",
    ),
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
        "/openapi.yaml",
        open(GET, ServerEndpoint::Status),
        |m| plain(m, documents::openapi),
        "Returns this API as an OpenAPI document.",
    )
    .answers(YAML),
];

const RULE_EDITOR: &[ApiRoute] = &[
    ApiRoute::new(
        "/",
        state(ServerEndpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "Returns the rule groups of all namespaces.",
    )
    .answers(YAML),
    ApiRoute::new(
        "/{namespace}",
        state(ServerEndpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "Returns the rule groups of a namespace.",
    )
    .answers(YAML),
    ApiRoute::new(
        "/{namespace}",
        mount(
            POST,
            ServerEndpoint::Rules,
            AccessScope::Rules,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, rule_editor::rules),
        "Creates or replaces a rule group.",
    ),
    ApiRoute::new(
        "/{namespace}",
        mount(
            DELETE,
            ServerEndpoint::Rules,
            AccessScope::Rules,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, rule_editor::rules),
        "Deletes a namespace.",
    ),
    ApiRoute::new(
        "/{namespace}/{group}",
        state(ServerEndpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "Returns a rule group.",
    )
    .answers(YAML),
    ApiRoute::new(
        "/{namespace}/{group}",
        mount(
            DELETE,
            ServerEndpoint::Rules,
            AccessScope::Rules,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, rule_editor::rules),
        "Deletes a rule group.",
    ),
];
