//! `/api/v1/features`: the features of this server under Prometheus's names, for clients that check
//! before they use one.
//!
//! Operators, PromQL syntax and features of the API are listed here. Functions come from the
//! function table of PromQL, and features of flags from [`AppParts`].

use super::call::ApiCall;
use super::status::ok_response;
use crate::http::failure::ApiFailure;
use crate::parts::AppParts;
use axum::response::Response;
use firn_promql::functions::FUNCTIONS;
use std::collections::BTreeMap;

/// Operators and aggregations, with a flag that is true if they require experimental functions.
const OPERATORS: [(&str, bool); 35] = [
    ("!=", false),
    ("!~", false),
    ("%", false),
    ("*", false),
    ("+", false),
    ("-", false),
    ("/", false),
    ("<", false),
    ("</", false),
    ("<=", false),
    ("==", false),
    ("=~", false),
    (">", false),
    (">/", false),
    (">=", false),
    ("@", false),
    ("^", false),
    ("and", false),
    ("atan2", false),
    ("avg", false),
    ("bottomk", false),
    ("count", false),
    ("count_values", false),
    ("group", false),
    ("limit_ratio", true),
    ("limitk", true),
    ("max", false),
    ("min", false),
    ("or", false),
    ("quantile", false),
    ("stddev", false),
    ("stdvar", false),
    ("sum", false),
    ("topk", false),
    ("unless", false),
];

/// Features that every server has, as pairs of category and name.
const ALWAYS: [(&str, &str); 21] = [
    ("api", "exclude_alerts"),
    ("api", "label_values_match"),
    ("api", "openapi_3.1"),
    ("api", "otlp_write_receiver"),
    ("api", "query_stats"),
    ("api", "query_warnings"),
    ("api", "remote_write_receiver"),
    ("api", "time_range_labels"),
    ("api", "time_range_series"),
    ("promql", "at_modifier"),
    ("promql", "bool"),
    ("promql", "by"),
    ("promql", "group_left"),
    ("promql", "group_right"),
    ("promql", "ignoring"),
    ("promql", "negative_offset"),
    ("promql", "offset"),
    ("promql", "on"),
    ("promql", "per_query_lookback_delta"),
    ("promql", "subqueries"),
    ("promql", "without"),
];

/// Features by category and name, with their availability.
type Document = BTreeMap<&'static str, BTreeMap<&'static str, bool>>;

/// Returns the features of the server, grouped by category, with their availability.
pub(crate) async fn features(call: ApiCall) -> Result<Response, ApiFailure> {
    ok_response(&call, &document(&call.app.parts))
}

fn document(parts: &AppParts) -> Document {
    let mut document = Document::new();
    let mut put = |category, name, is_there| {
        let names = document.entry(category).or_default();
        names.insert(name, is_there);
    };
    for (category, name) in ALWAYS {
        put(category, name, true);
    }
    put("api", "lifecycle", parts.lifecycle.is_some());
    put("api", "admin", parts.is_admin_enabled);
    put("api", "search", parts.search.is_some());
    put("api", "search_fuzz_alg_jarowinkler", true);
    put("api", "search_fuzz_alg_subsequence", true);
    let language = &parts.query.features;
    for (name, is_on) in [
        ("anchored", language.extended_range_selectors),
        ("smoothed", language.extended_range_selectors),
        ("fill", language.binop_fill_modifiers),
        ("fill_left", language.binop_fill_modifiers),
        ("fill_right", language.binop_fill_modifiers),
        ("duration_expr", language.duration_expressions),
        ("delayed_name_removal", language.delayed_name_removal),
        ("type_and_unit_labels", language.type_and_unit_labels),
    ] {
        put("promql", name, is_on);
    }
    put("promql", "per_step_stats", parts.query.per_step_stats);
    for function in FUNCTIONS {
        let is_there = !function.experimental || language.experimental_functions;
        put("promql_functions", function.name, is_there);
    }
    for (name, is_experimental) in OPERATORS {
        let is_there = !is_experimental || language.experimental_functions;
        put("promql_operators", name, is_there);
    }
    for feature in &parts.features {
        put(feature.category, feature.name, feature.is_on);
    }
    document
}
