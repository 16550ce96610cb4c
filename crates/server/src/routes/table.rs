//! The table of routes: path, methods, scope, visible data, parameters and documentation. The
//! router, the OpenAPI document and `docs/api.md` are generated from it.

mod pages;
mod profiles;

use super::documents;
use super::route::{Kind, Mount, Param, Route, Verb, api, changing, for_admins, plain};
use crate::access::{Reach, Scope};
use crate::api::{
    admin, alertmanagers, blocks, discards, exemplars, features, federate, import, metadata,
    notifications, operations, otlp, query, read, rule_editor, rules, search, self_metrics, series,
    status, targets, write,
};
use crate::metrics::Endpoint;
use Kind::{Count, Duration, Flag, Text, Texts, Time};
use Verb::{Delete, Get, Post, Put};

const GET: &[Verb] = &[Get];
const GET_POST: &[Verb] = &[Get, Post];
const POST: &[Verb] = &[Post];
const POST_PUT: &[Verb] = &[Post, Put];
const DELETE: &[Verb] = &[Delete];

const TEXT: &str = "text/plain";
const LINES: &str = "application/x-ndjson";
/// OTLP responses have the encoding of the request; this is the default.
const OTLP: &str = "application/x-protobuf";
const YAML: &str = "application/yaml";
const HTML: &str = "text/html";
const OCTETS: &str = "application/octet-stream";

/// A section of the table: routes with a common title and path prefix. Sections structure the
/// documentation.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// Prefix of all paths in the section.
    pub(crate) prefix: &'static str,
    pub(crate) routes: &'static [Route],
}

/// All sections, in the order of the documentation.
pub(crate) const SECTIONS: [Section; 11] = [
    section("Queries", "/api/v1", QUERIES),
    section("Writes", "/api/v1", WRITES),
    section("Writes at other systems' paths", "", WRITES_OF_OTHERS),
    section("Targets and metadata", "/api/v1", TARGETS),
    section("Rules and alerts", "/api/v1", RULES),
    section("Status and administration", "/api/v1", STATUS),
    section("Editing rules over HTTP", "/config/v1/rules", RULE_EDITOR),
    section("Operations", "", OPERATIONS),
    section("Profiles", "", profiles::PROFILES),
    section("Web interface", "", pages::OWN),
    section("Pages and files of the operator", "", pages::OF_OPERATOR),
];

const fn section(title: &'static str, prefix: &'static str, routes: &'static [Route]) -> Section {
    Section {
        title,
        prefix,
        routes,
    }
}

const fn mount(verbs: &'static [Verb], endpoint: Endpoint, scope: Scope, reach: Reach) -> Mount {
    Mount {
        verbs,
        endpoint,
        scope,
        reach,
        needs_store: false,
    }
}

/// Returns a mount for reading stored data, restricted to the series that the credentials allow.
const fn look(verbs: &'static [Verb], endpoint: Endpoint) -> Mount {
    Mount {
        needs_store: true,
        ..mount(verbs, endpoint, Scope::Read, Reach::Part)
    }
}

/// Returns a mount for reading the state of the server, which restricted clients may not see.
const fn state(endpoint: Endpoint) -> Mount {
    mount(GET, endpoint, Scope::Read, Reach::Whole)
}

/// Returns a mount that reveals nothing about the data and requires no particular scope.
const fn open(verbs: &'static [Verb], endpoint: Endpoint) -> Mount {
    mount(verbs, endpoint, Scope::Any, Reach::Nothing)
}

const fn param(name: &'static str, kind: Kind, doc: &'static str) -> Param {
    Param {
        name,
        kind,
        is_required: false,
        doc,
    }
}

const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Param {
    Param {
        is_required: true,
        ..param(name, kind, doc)
    }
}

const EXPRESSION: Param = required("query", Text, "PromQL expression.");
const TIMEOUT: Param = param("timeout", Duration, "Maximum execution time of the query.");
const LOOKBACK: Param = param(
    "lookback_delta",
    Duration,
    "Maximum age of a sample that a selector returns. Default: `--query.lookback-delta`.",
);
const STATS: Param = param(
    "stats",
    Text,
    "`true` or `all`: include statistics of the query in the response.",
);
const LIMIT: Param = param(
    "limit",
    Count,
    "Maximum number of results. 0 means no limit.",
);
const START: Param = param(
    "start",
    Time,
    "Start of the time range. Default: the oldest sample.",
);
const END: Param = param(
    "end",
    Time,
    "End of the time range, inclusive. Default: the newest sample.",
);
const MATCH: Param = param(
    "match[]",
    Texts,
    "Series selector. A series matches if any of the selectors matches.",
);

const TERMS: Param = param(
    "search[]",
    Texts,
    "Search term. An entry matches if any of the terms matches.",
);
const FUZZINESS: Param = param(
    "fuzz_threshold",
    Count,
    "Minimum score of a match, from 0 to 100.",
);
const ALGORITHM: Param = param(
    "fuzz_alg",
    Text,
    "Matching algorithm: `subsequence` or `jarowinkler`.",
);
const CASE: Param = param(
    "case_sensitive",
    Flag,
    "Match case-sensitively (default: true).",
);
const SORT: Param = param("sort_by", Text, "Sort order: `alpha` or `score`.");
const DIRECTION: Param = param(
    "sort_dir",
    Text,
    "Sort direction with `sort_by=alpha`: `asc` or `dsc`.",
);
const SCORES: Param = param("include_score", Flag, "Include the score of each match.");
const RECENT: Param = param(
    "start",
    Time,
    "Start of the time range. Default: one hour ago.",
);
const FOUND: Param = param("limit", Count, "Maximum number of matches (default: 100).");
const BATCH: Param = param(
    "batch_size",
    Count,
    "Number of matches per line of the response (default: 100).",
);

const QUERIES: &[Route] = &[
    Route::new(
        "/query",
        look(GET_POST, Endpoint::Query),
        |m| api(m, query::instant),
        "Evaluates an expression at one point in time.",
    )
    .with(&[
        EXPRESSION,
        param("time", Time, "Evaluation time. Default: the current time."),
        TIMEOUT,
        LIMIT,
        LOOKBACK,
        STATS,
    ]),
    Route::new(
        "/query_range",
        look(GET_POST, Endpoint::QueryRange),
        |m| api(m, query::range),
        "Evaluates an expression over a time range.",
    )
    .with(&[
        EXPRESSION,
        required("start", Time, "Time of the first step."),
        required("end", Time, "End of the time range, inclusive."),
        required("step", Duration, "Query resolution step."),
        TIMEOUT,
        LIMIT,
        LOOKBACK,
        STATS,
    ]),
    Route::new(
        "/query_exemplars",
        look(GET_POST, Endpoint::Exemplars),
        |m| api(m, exemplars::query),
        "Returns the exemplars of the series that an expression selects.",
    )
    .with(&[EXPRESSION, START, END]),
    Route::new(
        "/format_query",
        mount(GET_POST, Endpoint::FormatQuery, Scope::Read, Reach::Nothing),
        |m| api(m, query::format),
        "Formats an expression.",
    )
    .of_store()
    .with(&[EXPRESSION]),
    Route::new(
        "/parse_query",
        mount(GET_POST, Endpoint::ParseQuery, Scope::Read, Reach::Nothing),
        |m| api(m, query::parse),
        "Returns an expression as a syntax tree.",
    )
    .of_store()
    .with(&[EXPRESSION]),
    Route::new(
        "/series",
        look(GET_POST, Endpoint::Series),
        |m| api(m, series::series),
        "Returns the label sets of matching series.",
    )
    .with(&[
        required(
            "match[]",
            Texts,
            "Series selector. A series matches if any of the selectors matches.",
        ),
        START,
        END,
        LIMIT,
    ]),
    Route::new(
        "/labels",
        look(GET_POST, Endpoint::Labels),
        |m| api(m, series::label_names),
        "Returns label names.",
    )
    .with(&[MATCH, START, END, LIMIT]),
    Route::new(
        "/label/{name}/values",
        look(GET, Endpoint::LabelValues),
        |m| api(m, series::label_values),
        "Returns the values of a label.",
    )
    .with(&[MATCH, START, END, LIMIT]),
    Route::new(
        "/search/metric_names",
        look(GET_POST, Endpoint::LabelValues),
        |m| api(m, search::metric_names),
        "Searches metric names, as lines of JSON. Requires `--enable-feature=search-api`.",
    )
    .with(&[
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
    Route::new(
        "/search/label_names",
        look(GET_POST, Endpoint::Labels),
        |m| api(m, search::label_names),
        "Searches label names, as lines of JSON. Requires the same feature.",
    )
    .with(&[
        TERMS, FUZZINESS, ALGORITHM, CASE, SORT, DIRECTION, SCORES, MATCH, RECENT, END, FOUND,
        BATCH,
    ])
    .answers(LINES),
    Route::new(
        "/search/label_values",
        look(GET_POST, Endpoint::LabelValues),
        |m| api(m, search::label_values),
        "Searches the values of a label, as lines of JSON. Requires the same feature.",
    )
    .with(&[
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
    Route::new(
        "/read",
        look(POST, Endpoint::Read),
        |m| plain(m, read::remote_read),
        "Serves remote read requests, with samples or streamed chunks.",
    )
    .answers("application/x-protobuf"),
];

/// Returns a remote-write route at `path`. Senders that migrate from other systems use several
/// paths.
const fn remote_write_at(path: &'static str, doc: &'static str) -> Route {
    let mount = mount(POST, Endpoint::Write, Scope::Write, Reach::Nothing);
    Route::new(path, mount, |m| plain(m, write::remote_write), doc).answers(TEXT)
}

/// Returns an OTLP route at `path`, with the same handler for all paths.
const fn otlp_at(path: &'static str, doc: &'static str) -> Route {
    let mount = mount(POST, Endpoint::Otlp, Scope::Write, Reach::Nothing);
    Route::new(path, mount, |m| plain(m, otlp::metrics), doc).answers(OTLP)
}

const WRITES: &[Route] = &[
    remote_write_at("/write", "Accepts samples by remote write 1.0 and 2.0."),
    otlp_at(
        "/otlp/v1/metrics",
        "Accepts OpenTelemetry metrics (OTLP) as protocol buffers or JSON, optionally gzipped.",
    ),
    Route::new(
        "/import/prometheus",
        mount(POST_PUT, Endpoint::Import, Scope::Write, Reach::Nothing),
        |m| plain(m, import::prometheus),
        "Accepts samples of any age in the text format.",
    )
    .with(&[
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
const WRITES_OF_OTHERS: &[Route] = &[
    remote_write_at("/api/v1/push", "Remote write, at Mimir's path."),
    remote_write_at("/api/v1/receive", "Remote write, at Thanos's path."),
    otlp_at("/otlp/v1/metrics", "OTLP, at Mimir's path."),
    otlp_at(
        "/opentelemetry/v1/metrics",
        "OTLP, at VictoriaMetrics's path.",
    ),
];

const TARGETS: &[Route] = &[
    Route::new(
        "/scrape_pools",
        state(Endpoint::Targets),
        |m| api(m, targets::scrape_pools),
        "Returns the names of the scrape jobs.",
    ),
    Route::new(
        "/scrape_pools/config",
        state(Endpoint::Targets),
        |m| api(m, targets::scrape_pool_config),
        "Returns the configuration of a scrape job, without secrets.",
    )
    .with(&[required("scrapePool", Text, "Name of the scrape job.")]),
    Route::new(
        "/targets",
        state(Endpoint::Targets),
        |m| api(m, targets::targets),
        "Returns the scrape targets and their state.",
    )
    .with(&[
        param(
            "state",
            Text,
            "Targets to return: `active`, `dropped` or `any`.",
        ),
        param("scrapePool", Text, "Only targets of this scrape job."),
    ]),
    Route::new(
        "/targets/metadata",
        state(Endpoint::Targets),
        |m| api(m, metadata::by_target),
        "Returns type, unit and help text of metrics, by target.",
    )
    .with(&[
        param(
            "match_target",
            Text,
            "Selector that matches labels of targets.",
        ),
        param("metric", Text, "Only this metric."),
        LIMIT,
    ]),
    Route::new(
        "/targets/relabel_steps",
        state(Endpoint::Targets),
        |m| api(m, targets::relabel_steps),
        "Returns the labels of a target after each relabeling rule.",
    )
    .with(&[
        required("scrapePool", Text, "Name of the scrape job."),
        required("labels", Text, "Discovered labels of the target, as JSON."),
    ]),
    Route::new(
        "/metadata",
        state(Endpoint::Targets),
        |m| api(m, metadata::by_metric),
        "Returns type, unit and help text of metrics.",
    )
    .with(&[
        LIMIT,
        param(
            "limit_per_metric",
            Count,
            "Maximum number of entries per metric.",
        ),
        param("metric", Text, "Only this metric."),
    ]),
    Route::new(
        "/alertmanagers",
        state(Endpoint::Rules),
        |m| api(m, alertmanagers::alertmanagers),
        "Returns the Alertmanagers that receive alerts.",
    )
    .of_store(),
];

const RULES: &[Route] = &[
    Route::new(
        "/rules",
        state(Endpoint::Rules),
        |m| api(m, rules::rules),
        "Returns rule groups with their rules and alerts.",
    )
    .of_store()
    .with(&[
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
    Route::new(
        "/alerts",
        state(Endpoint::Rules),
        |m| api(m, rules::alerts),
        "Returns pending and firing alerts.",
    )
    .of_store(),
    Route::new(
        "/rules/backfill",
        state(Endpoint::Rules),
        |m| api(m, rules::backfills),
        "Returns requested backfills of rules and their progress.",
    )
    .of_store(),
    Route::new(
        "/rules/backfill",
        mount(POST, Endpoint::Rules, Scope::Rules, Reach::Whole),
        |m| changing(m, rules::backfill),
        "Starts to evaluate the rules of a group over a past time range.",
    )
    .of_store()
    .with(&[
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

const STATUS: &[Route] = &[
    Route::new(
        "/status/buildinfo",
        open(GET, Endpoint::Status),
        |m| api(m, status::build_info),
        "Returns version and build information.",
    ),
    Route::new(
        "/status/runtimeinfo",
        state(Endpoint::Status),
        |m| api(m, status::runtime_info),
        "Returns runtime information about the process.",
    ),
    Route::new(
        "/status/flags",
        state(Endpoint::Status),
        |m| api(m, status::flags),
        "Returns the flags and their values.",
    ),
    Route::new(
        "/status/config",
        state(Endpoint::Status),
        |m| api(m, status::config),
        "Returns the active configuration, without secrets.",
    ),
    Route::new(
        "/status/tsdb",
        state(Endpoint::Status),
        |m| api(m, status::tsdb),
        "Returns statistics of the head.",
    )
    .of_store()
    .with(&[LIMIT]),
    Route::new(
        "/status/tsdb/blocks",
        state(Endpoint::Status),
        |m| api(m, blocks::blocks),
        "Returns the blocks of the store and the running work on them.",
    )
    .of_store(),
    Route::new(
        "/status/walreplay",
        state(Endpoint::Status),
        |m| plain(m, status::replay),
        "Returns the progress of the WAL replay: the records `min` to `max` and the `current` one.",
    ),
    Route::new(
        "/status/discards",
        state(Endpoint::Status),
        |m| api(m, discards::discards),
        "Returns the most recently rejected samples, by reason, sender and job.",
    ),
    Route::new(
        "/status/self_metrics",
        state(Endpoint::Status),
        |m| api(m, self_metrics::self_metrics),
        "Returns Firn's own metrics as JSON.",
    )
    .with(&[param(
        "metric_name_pattern",
        Text,
        "Regular expression that matches metric names.",
    )]),
    Route::new(
        "/features",
        open(GET, Endpoint::Status),
        |m| api(m, features::features),
        "Returns the features of this server.",
    ),
    Route::new(
        "/notifications",
        mount(GET, Endpoint::Status, Scope::Read, Reach::Nothing),
        |m| plain(m, notifications::list),
        "Returns the active notifications for operators.",
    ),
    Route::new(
        "/notifications/live",
        mount(GET, Endpoint::Status, Scope::Read, Reach::Nothing),
        |m| plain(m, notifications::live),
        "Streams notifications as server-sent events.",
    )
    .answers("text/event-stream"),
    Route::new(
        "/admin/tsdb/snapshot",
        mount(POST_PUT, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| for_admins(m, admin::snapshot),
        "Creates a snapshot of the data folder. Requires `--web.enable-admin-api`.",
    )
    .of_store()
    .with(&[param(
        "skip_head",
        Flag,
        "Omit samples that are not yet in a block.",
    )]),
    Route::new(
        "/openapi.yaml",
        open(GET, Endpoint::Status),
        |m| plain(m, documents::openapi),
        "Returns this API as an OpenAPI document.",
    )
    .answers(YAML),
];

const RULE_EDITOR: &[Route] = &[
    Route::new(
        "/",
        state(Endpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "Returns the rule groups of all namespaces.",
    )
    .answers(YAML),
    Route::new(
        "/{namespace}",
        state(Endpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "Returns the rule groups of a namespace.",
    )
    .answers(YAML),
    Route::new(
        "/{namespace}",
        mount(POST, Endpoint::Rules, Scope::Rules, Reach::Whole),
        |m| plain(m, rule_editor::rules),
        "Creates or replaces a rule group.",
    ),
    Route::new(
        "/{namespace}",
        mount(DELETE, Endpoint::Rules, Scope::Rules, Reach::Whole),
        |m| plain(m, rule_editor::rules),
        "Deletes a namespace.",
    ),
    Route::new(
        "/{namespace}/{group}",
        state(Endpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "Returns a rule group.",
    )
    .answers(YAML),
    Route::new(
        "/{namespace}/{group}",
        mount(DELETE, Endpoint::Rules, Scope::Rules, Reach::Whole),
        |m| plain(m, rule_editor::rules),
        "Deletes a rule group.",
    ),
];

const OPERATIONS: &[Route] = &[
    Route::new(
        "/federate",
        look(GET, Endpoint::Federate),
        |m| plain(m, federate::federate),
        "Returns the newest sample of each matching series, for another server.",
    )
    .with(&[MATCH])
    .answers(TEXT),
    Route::new(
        "/-/healthy",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::healthy),
        "Liveness check: 200 while the process runs.",
    )
    .answers(TEXT),
    Route::new(
        "/-/ready",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::ready),
        "Readiness check: 200 once the server accepts writes and queries see all acknowledged \
         samples.",
    )
    .answers(TEXT),
    Route::new(
        "/-/reload",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::only_post),
        "Returns an error: use POST or PUT.",
    )
    .answers(TEXT),
    Route::new(
        "/-/reload",
        mount(POST_PUT, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::reload),
        "Reloads the configuration. Requires `--web.enable-lifecycle`.",
    )
    .answers(TEXT),
    Route::new(
        "/-/quit",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::only_post),
        "Returns an error: use POST or PUT.",
    )
    .answers(TEXT),
    Route::new(
        "/-/quit",
        mount(POST_PUT, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::quit),
        "Stops the process. Requires `--web.enable-lifecycle`.",
    )
    .answers(TEXT),
    Route::new(
        "/metrics",
        state(Endpoint::Metrics),
        |m| plain(m, operations::metrics),
        "Firn's own metrics.",
    )
    .answers(TEXT),
    Route::new(
        "/version",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::version),
        "Returns version and build information.",
    ),
    Route::new(
        "/openapi.yaml",
        open(GET, Endpoint::Status),
        |m| plain(m, documents::openapi),
        "Returns this API as an OpenAPI document.",
    )
    .answers(YAML),
];
