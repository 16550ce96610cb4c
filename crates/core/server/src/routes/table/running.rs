//! Routes of the list of queries that run or have ended.

use super::cells::DELETE;
use crate::access::ResponseVisibility;
use crate::api::queries;
use crate::metrics::ServerEndpoint;
use crate::routes::route::ParamKind::{Count, Text};
use crate::routes::route::{ApiRoute, api, mount, mutating_route, param, state};
use firn_model::access::AccessScope;

pub(super) const RUNNING: &[ApiRoute] = &[
    ApiRoute::new(
        "/status/active_queries",
        state(ServerEndpoint::Status),
        |m| api(m, queries::active),
        "Returns the queries that wait, run or are being answered, the oldest first.",
    )
    .by_tenant(),
    ApiRoute::new(
        "/status/active_queries/{id}",
        mount(
            DELETE,
            ServerEndpoint::Status,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| mutating_route(m, queries::end),
        "Ends a query; its client gets an error.",
    )
    .by_tenant(),
    ApiRoute::new(
        "/status/top_queries",
        state(ServerEndpoint::Status),
        |m| api(m, queries::top),
        "Returns the most frequent and the slowest expressions of the last 30 to 60 minutes.",
    )
    .by_tenant()
    .with_params(&[param(
        "topN",
        Count,
        "Number of expressions per list (default: 20).",
    )]),
    ApiRoute::new(
        "/status/query_history",
        state(ServerEndpoint::Status),
        |m| api(m, queries::history),
        "Returns the newest of the last 2,000 queries that have ended.",
    )
    .by_tenant()
    .with_params(&[
        param("search", Text, "Only queries that contain this text."),
        param("limit", Count, "Maximum number of queries (default: 100)."),
    ]),
    ApiRoute::new(
        "/status/metric_names_stats",
        state(ServerEndpoint::Status),
        |m| api(m, queries::metric_names),
        "Returns how often queries selected each metric name since the start, with examples.",
    )
    .by_tenant()
    .with_params(&[param(
        "limit",
        Count,
        "Maximum number of names, up to 2,000 (default: 1,000).",
    )]),
];
