//! Routes of rules and alerts, and of editing rules over HTTP.

use super::cells::{DELETE, POST, YAML};
use crate::access::ResponseVisibility;
use crate::api::{rule_editor, rule_preview, rules};
use crate::metrics::ServerEndpoint;
use crate::routes::route::ParamKind::{Count, Duration, Flag, Text, Texts, Time};
use crate::routes::route::{
    ApiRoute, api, mount, mount_data, mutating_route, param, plain, required, state,
};
use firn_model::access::AccessScope;

pub(super) const RULES: &[ApiRoute] = &[
    ApiRoute::new(
        "/rules",
        state(ServerEndpoint::Rules),
        |m| api(m, rules::rules),
        "Returns rule groups with their rules and alerts.",
    )
    .by_tenant()
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
    .by_tenant()
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
    ApiRoute::new(
        "/rules/preview",
        mount_data(POST, ServerEndpoint::Rules),
        |m| api(m, rule_preview::preview),
        "Evaluates a rule over a past time range without storing anything, and returns its alerts \
         or the series that it would have recorded.",
    )
    .with_params(&[
        required("rule", Text, "A rule in YAML, as in a rule file."),
        required("start", Time, "First evaluation."),
        required("end", Time, "Limit of the last evaluation, inclusive."),
        param(
            "interval",
            Duration,
            "Time between evaluations; by default `global.evaluation_interval`.",
        ),
        param(
            "query_offset",
            Duration,
            "Query offset of the group; by default `global.rule_query_offset`.",
        ),
        param("timeout", Duration, "Maximum duration of the evaluation."),
    ]),
];

pub(super) const RULE_EDITOR: &[ApiRoute] = &[
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
