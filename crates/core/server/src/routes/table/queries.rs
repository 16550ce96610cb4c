//! Routes of queries, and the parameters that they share.

use super::cells::{END, GET, GET_POST, LIMIT, LINES, MATCH, POST, REQUIRED_MATCH, START};
use crate::access::ResponseVisibility;
use crate::api::{exemplars, query, read, search, series};
use crate::metrics::ServerEndpoint;
use crate::routes::route::ParamKind::{Count, Duration, Flag, Text, Texts, Time};
use crate::routes::route::{ApiRoute, RouteParam, api, mount, mount_data, param, plain, required};
use firn_model::access::AccessScope;

const EXPRESSION: RouteParam = required("query", Text, "PromQL expression.");

const TIMEOUT: RouteParam = param("timeout", Duration, "Maximum execution time of the query.");

const QUERY_ID: RouteParam = param(
    "query_id",
    Text,
    "Name under which `/api/v1/status/active_queries` lists the query: up to 128 letters, digits \
     and `-_.:`.",
);

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

const EXPLAIN: RouteParam = param(
    "explain",
    Flag,
    "Return the plan of the query as `plan`, without evaluating it.",
);

const ANALYZE: RouteParam = param(
    "analyze",
    Flag,
    "Evaluate the query and also return its plan with the cost of each operation and with hints, \
     as `analysis`.",
);

const NO_CACHE: RouteParam = param(
    "nocache",
    Flag,
    "`1`: evaluate all steps, without the results cache.",
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

pub(super) const QUERIES: &[ApiRoute] = &[
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
        EXPLAIN,
        ANALYZE,
        QUERY_ID,
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
        EXPLAIN,
        ANALYZE,
        NO_CACHE,
        QUERY_ID,
    ]),
    ApiRoute::new(
        "/query_exemplars",
        mount_data(GET_POST, ServerEndpoint::Exemplars),
        |m| api(m, exemplars::query),
        "Returns the exemplars of the series that an expression selects.",
    )
    .with_params(&[EXPRESSION, START, END, QUERY_ID]),
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
    .with_params(&[REQUIRED_MATCH, START, END, LIMIT, QUERY_ID]),
    ApiRoute::new(
        "/labels",
        mount_data(GET_POST, ServerEndpoint::Labels),
        |m| api(m, series::label_names),
        "Returns label names.",
    )
    .with_params(&[MATCH, START, END, LIMIT, QUERY_ID]),
    ApiRoute::new(
        "/label/{name}/values",
        mount_data(GET, ServerEndpoint::LabelValues),
        |m| api(m, series::label_values),
        "Returns the values of a label.",
    )
    .with_params(&[MATCH, START, END, LIMIT, QUERY_ID]),
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
    .with_params(&[QUERY_ID])
    .answers("application/x-protobuf"),
];
