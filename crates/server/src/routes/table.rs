//! The table of routes: path, methods, scope, what it shows, parameters, doc. Routing, the OpenAPI
//! document and `docs/api.md` come from it.

mod pages;

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
/// The form of the request.
const OTLP: &str = "application/x-protobuf";
const YAML: &str = "application/yaml";
const HTML: &str = "text/html";
const OCTETS: &str = "application/octet-stream";

/// A part of the table.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// Before each path.
    pub(crate) prefix: &'static str,
    pub(crate) routes: &'static [Route],
}

/// The whole table.
pub(crate) const SECTIONS: [Section; 10] = [
    section("Queries", "/api/v1", QUERIES),
    section("Writes", "/api/v1", WRITES),
    section("Writes where others take them", "", WRITES_OF_OTHERS),
    section("Targets and metadata", "/api/v1", TARGETS),
    section("Rules and alerts", "/api/v1", RULES),
    section("Status and administration", "/api/v1", STATUS),
    section("Rules edited over HTTP", "/config/v1/rules", RULE_EDITOR),
    section("Operations", "", OPERATIONS),
    section("The page", "", pages::OWN),
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

/// A look at the data, of which everyone sees their part.
const fn look(verbs: &'static [Verb], endpoint: Endpoint) -> Mount {
    Mount {
        needs_store: true,
        ..mount(verbs, endpoint, Scope::Read, Reach::Part)
    }
}

/// A look at the server.
const fn state(endpoint: Endpoint) -> Mount {
    mount(GET, endpoint, Scope::Read, Reach::Whole)
}

/// What says nothing of the data.
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

const EXPRESSION: Param = required("query", Text, "A PromQL expression.");
const TIMEOUT: Param = param("timeout", Duration, "How long the query may take.");
const LOOKBACK: Param = param("lookback_delta", Duration, "How far back a selector looks.");
const STATS: Param = param("stats", Text, "`true` or `all`: what the query took.");
const LIMIT: Param = param("limit", Count, "Answers at most; 0 is no limit.");
const START: Param = param(
    "start",
    Time,
    "From when on; the beginning if it is not given.",
);
const END: Param = param("end", Time, "Up to when; the end if it is not given.");
const MATCH: Param = param(
    "match[]",
    Texts,
    "Series selectors: what any of them finds.",
);

const TERMS: Param = param(
    "search[]",
    Texts,
    "What is looked for: any of it is enough.",
);
const FUZZINESS: Param = param("fuzz_threshold", Count, "The least score, from 0 to 100.");
const ALGORITHM: Param = param("fuzz_alg", Text, "`subsequence` or `jarowinkler`.");
const CASE: Param = param(
    "case_sensitive",
    Flag,
    "Whether case counts; it does if not said.",
);
const SORT: Param = param("sort_by", Text, "`alpha` or `score`.");
const DIRECTION: Param = param("sort_dir", Text, "`asc` or `dsc`, with `sort_by=alpha`.");
const SCORES: Param = param("include_score", Flag, "With scores.");
const RECENT: Param = param(
    "start",
    Time,
    "From when on; an hour ago if it is not given.",
);
const FOUND: Param = param("limit", Count, "Findings at most; 100 if not said.");
const BATCH: Param = param("batch_size", Count, "Findings a line; 100 if not said.");

const QUERIES: &[Route] = &[
    Route::new(
        "/query",
        look(GET_POST, Endpoint::Query),
        |m| api(m, query::instant),
        "Evaluates an expression at one time.",
    )
    .with(&[
        EXPRESSION,
        param("time", Time, "When; now if it is not given."),
        TIMEOUT,
        LIMIT,
        LOOKBACK,
        STATS,
    ]),
    Route::new(
        "/query_range",
        look(GET_POST, Endpoint::QueryRange),
        |m| api(m, query::range),
        "Evaluates an expression at each step of a range.",
    )
    .with(&[
        EXPRESSION,
        required("start", Time, "The first step."),
        required("end", Time, "No step is later."),
        required("step", Duration, "From step to step."),
        TIMEOUT,
        LIMIT,
        LOOKBACK,
        STATS,
    ]),
    Route::new(
        "/query_exemplars",
        look(GET_POST, Endpoint::Exemplars),
        |m| api(m, exemplars::query),
        "The exemplars of the series that an expression selects.",
    )
    .with(&[EXPRESSION, START, END]),
    Route::new(
        "/format_query",
        mount(GET_POST, Endpoint::FormatQuery, Scope::Read, Reach::Nothing),
        |m| api(m, query::format),
        "The expression in the language's uniform layout.",
    )
    .of_store()
    .with(&[EXPRESSION]),
    Route::new(
        "/parse_query",
        mount(GET_POST, Endpoint::ParseQuery, Scope::Read, Reach::Nothing),
        |m| api(m, query::parse),
        "The expression as a syntax tree.",
    )
    .of_store()
    .with(&[EXPRESSION]),
    Route::new(
        "/series",
        look(GET_POST, Endpoint::Series),
        |m| api(m, series::series),
        "The label sets of series.",
    )
    .with(&[
        required(
            "match[]",
            Texts,
            "Series selectors: what any of them finds.",
        ),
        START,
        END,
        LIMIT,
    ]),
    Route::new(
        "/labels",
        look(GET_POST, Endpoint::Labels),
        |m| api(m, series::label_names),
        "The names of labels.",
    )
    .with(&[MATCH, START, END, LIMIT]),
    Route::new(
        "/label/{name}/values",
        look(GET, Endpoint::LabelValues),
        |m| api(m, series::label_values),
        "The values of a label.",
    )
    .with(&[MATCH, START, END, LIMIT]),
    Route::new(
        "/search/metric_names",
        look(GET_POST, Endpoint::LabelValues),
        |m| api(m, search::metric_names),
        "Names of metrics as people type, as lines of JSON; needs `--enable-feature=search-api`.",
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
        param("include_metadata", Flag, "With type, help and unit."),
    ])
    .answers(LINES),
    Route::new(
        "/search/label_names",
        look(GET_POST, Endpoint::Labels),
        |m| api(m, search::label_names),
        "Names of labels in the same way.",
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
        "Values of a label in the same way.",
    )
    .with(&[
        required("label", Text, "The label."),
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
        "Remote read by another server: samples or chunks, as it asks.",
    )
    .answers("application/x-protobuf"),
];

/// Remote write at `path`.
const fn remote_write_at(path: &'static str, doc: &'static str) -> Route {
    let mount = mount(POST, Endpoint::Write, Scope::Write, Reach::Nothing);
    Route::new(path, mount, |m| plain(m, write::remote_write), doc).answers(TEXT)
}

/// OTLP at `path`.
const fn otlp_at(path: &'static str, doc: &'static str) -> Route {
    let mount = mount(POST, Endpoint::Otlp, Scope::Write, Reach::Nothing);
    Route::new(path, mount, |m| plain(m, otlp::metrics), doc).answers(OTLP)
}

const WRITES: &[Route] = &[
    remote_write_at(
        "/write",
        "Takes samples in the form of remote write 1.0 and 2.0.",
    ),
    otlp_at(
        "/otlp/v1/metrics",
        "Takes metrics of OpenTelemetry (OTLP) as protocol buffers or JSON, plain or with gzip.",
    ),
    Route::new(
        "/import/prometheus",
        mount(POST_PUT, Endpoint::Import, Scope::Write, Reach::Nothing),
        |m| plain(m, import::prometheus),
        "Takes samples of any age as text.",
    )
    .with(&[
        param(
            "timestamp",
            Count,
            "The time of samples without one, in milliseconds.",
        ),
        param(
            "extra_label",
            Texts,
            "`name=value`: a label of every sample.",
        ),
    ])
    .answers(TEXT),
];

/// A sender that comes from another system needs a new host, and no new path.
const WRITES_OF_OTHERS: &[Route] = &[
    remote_write_at("/api/v1/push", "`/api/v1/write`, where Mimir has it."),
    remote_write_at("/api/v1/receive", "`/api/v1/write`, where Thanos has it."),
    otlp_at("/otlp/v1/metrics", "OTLP, where Mimir has it."),
    otlp_at(
        "/opentelemetry/v1/metrics",
        "OTLP, where VictoriaMetrics has it.",
    ),
];

const TARGETS: &[Route] = &[
    Route::new(
        "/scrape_pools",
        state(Endpoint::Targets),
        |m| api(m, targets::scrape_pools),
        "The names of the scrape jobs.",
    ),
    Route::new(
        "/scrape_pools/config",
        state(Endpoint::Targets),
        |m| api(m, targets::scrape_pool_config),
        "The section of a job in the configuration, without its secrets.",
    )
    .with(&[required("scrapePool", Text, "The job.")]),
    Route::new(
        "/targets",
        state(Endpoint::Targets),
        |m| api(m, targets::targets),
        "What is scraped, and how it is.",
    )
    .with(&[
        param("state", Text, "`active`, `dropped` or `any`."),
        param("scrapePool", Text, "Of this job alone."),
    ]),
    Route::new(
        "/targets/metadata",
        state(Endpoint::Targets),
        |m| api(m, metadata::by_target),
        "Type, unit and help of metrics, by target.",
    )
    .with(&[
        param("match_target", Text, "A selector of the labels of targets."),
        param("metric", Text, "Of this metric alone."),
        LIMIT,
    ]),
    Route::new(
        "/targets/relabel_steps",
        state(Endpoint::Targets),
        |m| api(m, targets::relabel_steps),
        "How the labels of a target come about, rule by rule.",
    )
    .with(&[
        required("scrapePool", Text, "The job."),
        required("labels", Text, "The labels that were discovered, as JSON."),
    ]),
    Route::new(
        "/metadata",
        state(Endpoint::Targets),
        |m| api(m, metadata::by_metric),
        "Type, unit and help of metrics.",
    )
    .with(&[
        LIMIT,
        param("limit_per_metric", Count, "Entries of one metric at most."),
        param("metric", Text, "Of this metric alone."),
    ]),
    Route::new(
        "/alertmanagers",
        state(Endpoint::Rules),
        |m| api(m, alertmanagers::alertmanagers),
        "Where alerts are sent.",
    )
    .of_store(),
];

const RULES: &[Route] = &[
    Route::new(
        "/rules",
        state(Endpoint::Rules),
        |m| api(m, rules::rules),
        "The groups of rules, their rules and their alerts.",
    )
    .of_store()
    .with(&[
        param("type", Text, "`alert` or `record`."),
        param("rule_name[]", Texts, "Rules of these names."),
        param("rule_group[]", Texts, "Groups of these names."),
        param("file[]", Texts, "Groups of these files."),
        param("match[]", Texts, "Selectors of the labels of rules."),
        param("exclude_alerts", Flag, "Without alerts."),
        param("group_limit", Count, "Groups a page."),
        param("group_next_token", Text, "The page after this one."),
    ]),
    Route::new(
        "/alerts",
        state(Endpoint::Rules),
        |m| api(m, rules::alerts),
        "The alerts that are pending or fire.",
    )
    .of_store(),
    Route::new(
        "/rules/backfill",
        state(Endpoint::Rules),
        |m| api(m, rules::backfills),
        "Evaluations of the past that were asked for, and how far they are.",
    )
    .of_store(),
    Route::new(
        "/rules/backfill",
        mount(POST, Endpoint::Rules, Scope::Rules, Reach::Whole),
        |m| changing(m, rules::backfill),
        "Evaluates the rules of a group in the past.",
    )
    .of_store()
    .with(&[
        required("group", Text, "The group."),
        param(
            "file",
            Text,
            "Its file, if several have a group of that name.",
        ),
        required("start", Time, "From when on."),
        required("end", Time, "Up to when."),
    ]),
];

const STATUS: &[Route] = &[
    Route::new(
        "/status/buildinfo",
        open(GET, Endpoint::Status),
        |m| api(m, status::build_info),
        "What was built.",
    ),
    Route::new(
        "/status/runtimeinfo",
        state(Endpoint::Status),
        |m| api(m, status::runtime_info),
        "How the process runs.",
    ),
    Route::new(
        "/status/flags",
        state(Endpoint::Status),
        |m| api(m, status::flags),
        "The flags and their values.",
    ),
    Route::new(
        "/status/config",
        state(Endpoint::Status),
        |m| api(m, status::config),
        "The configuration in force, without its secrets.",
    ),
    Route::new(
        "/status/tsdb",
        state(Endpoint::Status),
        |m| api(m, status::tsdb),
        "The figures of the head.",
    )
    .of_store()
    .with(&[LIMIT]),
    Route::new(
        "/status/tsdb/blocks",
        state(Endpoint::Status),
        |m| api(m, blocks::blocks),
        "The blocks of the store, and the work on them.",
    )
    .of_store(),
    Route::new(
        "/status/walreplay",
        state(Endpoint::Status),
        |m| plain(m, status::replay),
        "How far the log is replayed: its records from `min` to `max`, and the `current` one.",
    ),
    Route::new(
        "/status/discards",
        state(Endpoint::Status),
        |m| api(m, discards::discards),
        "The last refused samples, by reason, sender and job.",
    ),
    Route::new(
        "/status/self_metrics",
        state(Endpoint::Status),
        |m| api(m, self_metrics::self_metrics),
        "Firn's own metrics as JSON.",
    )
    .with(&[param(
        "metric_name_pattern",
        Text,
        "A pattern of their names.",
    )]),
    Route::new(
        "/features",
        open(GET, Endpoint::Status),
        |m| api(m, features::features),
        "What this server can.",
    ),
    Route::new(
        "/notifications",
        mount(GET, Endpoint::Status, Scope::Read, Reach::Nothing),
        |m| plain(m, notifications::list),
        "What an operator should know now.",
    ),
    Route::new(
        "/notifications/live",
        mount(GET, Endpoint::Status, Scope::Read, Reach::Nothing),
        |m| plain(m, notifications::live),
        "The same as it changes, as events.",
    )
    .answers("text/event-stream"),
    Route::new(
        "/admin/tsdb/snapshot",
        mount(POST_PUT, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| for_admins(m, admin::snapshot),
        "Makes a snapshot of the data folder; needs `--web.enable-admin-api`.",
    )
    .of_store()
    .with(&[param(
        "skip_head",
        Flag,
        "Without what is not in blocks yet.",
    )]),
    Route::new(
        "/openapi.yaml",
        open(GET, Endpoint::Status),
        |m| plain(m, documents::openapi),
        "This table as an OpenAPI document.",
    )
    .answers(YAML),
];

const RULE_EDITOR: &[Route] = &[
    Route::new(
        "/",
        state(Endpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "The groups of all namespaces.",
    )
    .answers(YAML),
    Route::new(
        "/{namespace}",
        state(Endpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "The groups of a namespace.",
    )
    .answers(YAML),
    Route::new(
        "/{namespace}",
        mount(POST, Endpoint::Rules, Scope::Rules, Reach::Whole),
        |m| plain(m, rule_editor::rules),
        "Stores a group.",
    ),
    Route::new(
        "/{namespace}",
        mount(DELETE, Endpoint::Rules, Scope::Rules, Reach::Whole),
        |m| plain(m, rule_editor::rules),
        "Removes a namespace.",
    ),
    Route::new(
        "/{namespace}/{group}",
        state(Endpoint::Rules),
        |m| plain(m, rule_editor::rules),
        "A group.",
    )
    .answers(YAML),
    Route::new(
        "/{namespace}/{group}",
        mount(DELETE, Endpoint::Rules, Scope::Rules, Reach::Whole),
        |m| plain(m, rule_editor::rules),
        "Removes a group.",
    ),
];

const OPERATIONS: &[Route] = &[
    Route::new(
        "/federate",
        look(GET, Endpoint::Federate),
        |m| plain(m, federate::federate),
        "The newest sample of the series that another server selects.",
    )
    .with(&[MATCH])
    .answers(TEXT),
    Route::new(
        "/-/healthy",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::healthy),
        "The process runs.",
    )
    .answers(TEXT),
    Route::new(
        "/-/ready",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::ready),
        "A query sees every acked sample, and writes are taken.",
    )
    .answers(TEXT),
    Route::new(
        "/-/reload",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::only_post),
        "Says that it takes another method.",
    )
    .answers(TEXT),
    Route::new(
        "/-/reload",
        mount(POST_PUT, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::reload),
        "Reads the configuration again; needs `--web.enable-lifecycle`.",
    )
    .answers(TEXT),
    Route::new(
        "/-/quit",
        open(GET, Endpoint::Operations),
        |m| plain(m, operations::only_post),
        "Says that it takes another method.",
    )
    .answers(TEXT),
    Route::new(
        "/-/quit",
        mount(POST_PUT, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::quit),
        "Ends the process; needs `--web.enable-lifecycle`.",
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
        "What was built.",
    ),
    Route::new(
        "/openapi.yaml",
        open(GET, Endpoint::Status),
        |m| plain(m, documents::openapi),
        "This table as an OpenAPI document.",
    )
    .answers(YAML),
    Route::new(
        "/debug/pprof",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::profiles_folder),
        "Leads to the list of profiles.",
    )
    .answers(TEXT),
    Route::new(
        "/debug/pprof/",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::profiles),
        "The profiles that there are.",
    )
    .answers(HTML),
    Route::new(
        "/debug/pprof/heap",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::heap_profile),
        "What is allocated now, in pprof's format.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/allocs",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::allocs_profile),
        "What is allocated now, as `heap`: what was freed is not known.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/block",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::block_profile),
        "A profile without samples: waiting is not measured.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/cmdline",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::command_line),
        "The command line, its words with zeros between them.",
    )
    .answers(TEXT),
    Route::new(
        "/debug/pprof/goroutine",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::goroutine_profile),
        "The threads by their names, in pprof's format.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/profile",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::cpu_profile),
        "Where CPU time goes from now on, in pprof's format.",
    )
    .with(&[param("seconds", Duration, "For how long.")])
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/mutex",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::mutex_profile),
        "A profile without samples: waiting is not measured.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/symbol",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::symbols),
        "Says that profiles have their symbols in them.",
    )
    .answers(TEXT),
    Route::new(
        "/debug/pprof/threadcreate",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::threadcreate_profile),
        "The threads by their names, in pprof's format.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/trace",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::no_trace),
        "Says that there is no runtime of Go to trace.",
    )
    .answers(TEXT),
];
