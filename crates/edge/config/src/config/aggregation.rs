//! The section `firn.aggregation`: converts expressions into streaming rules. Expressions that
//! cannot be streamed are rejected with the reason and an equivalent recording rule.

use ConfigValueShape::{Bool, Choice, List, Map, Section, Text};
use firn_aggregation::{
    AggregatedMetricKind, AggregationGroupSpec, AggregationGrouping, AggregationOp,
    AggregationRuleSpec, AggregationSpec, GROUPS_MAX,
};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, key};
use firn_config_schema::section::ConfigSection;
use firn_model::labels::METRIC_NAME;
use firn_model::quote::quote;
use firn_promql::Features;
use firn_promql::ast::{
    AggregateExpr, AggregateGrouping as Labels, AggregateOp, Expr, ExprKind,
    QueryDuration as Offset, UnaryOp, VectorSelector, WindowEdges,
};
use firn_promql::parser;
use firn_yaml::{YamlEntry, YamlError};
use std::time::Duration;

/// Keys of the section.
pub const KEYS: &[ConfigKey] = &[key("groups", List(&Section(&[GROUP])))];

const GROUP: &[ConfigKey] = &[
    key("name", Text).required(),
    key("stream", Bool).required(),
    key("interval", ConfigValueShape::Duration),
    key("delay", ConfigValueShape::Duration),
    key("rules", List(&Section(&[RULE]))),
];

const RULE: &[ConfigKey] = &[
    key("record", Text).required(),
    key("expr", Text).required(),
    key("labels", Map(&Text)),
    key("drop", Bool),
    key("type", Choice(&["counter", "gauge"])),
];

/// Lookback in milliseconds that a server uses unless a flag sets another.
const LOOKBACK_MS: i64 = 5 * 60 * 1000;

/// Minimum interval of a group, because the end of each interval iterates over all its sources.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Operator that PromQL does not have: the newest value of all sources.
const LAST: &str = "last";

/// Interval and delay of groups that set none, taken from the global section of the config.
#[derive(Clone, Copy, Debug)]
pub struct AggregationDefaults {
    /// `global.evaluation_interval`: default interval between two results of a rule.
    pub interval: Duration,
    /// `global.scrape_interval`: default delay of results after the end of an interval.
    pub delay: Duration,
}

/// Reason why a rule cannot be streamed, and a recording rule to use instead, if there is one.
struct UnstreamableRule {
    reason: String,
    instead: Option<String>,
}

/// Reads the section. Names of groups must be unique.
pub fn aggregation(
    section: ConfigSection<'_>,
    defaults: AggregationDefaults,
) -> Result<AggregationSpec, YamlError> {
    let mut spec = AggregationSpec::default();
    for section in section.sections("groups") {
        let group = group(section, defaults)?;
        if spec.groups.iter().any(|known| known.name == group.name) {
            return Err(section.error(format!(
                "firn.aggregation: duplicate group {}",
                quote(group.name.as_bytes())
            )));
        }
        if spec.groups.len() == GROUPS_MAX {
            return Err(section.error(format!("firn.aggregation: more than {GROUPS_MAX} groups")));
        }
        spec.groups.push(group);
    }
    Ok(spec)
}

fn group(
    section: ConfigSection<'_>,
    defaults: AggregationDefaults,
) -> Result<AggregationGroupSpec, YamlError> {
    let name = section.text("name").to_owned();
    let shown = quote(name.as_bytes());
    if !section.flag("stream") {
        return Err(section.error(format!(
            "firn.aggregation: group {shown} does not set `stream: true`: rules over stored \
             samples belong in files of `rule_files`"
        )));
    }
    let millis = |duration: Duration| duration.as_millis() as i64;
    let mut rules: Vec<AggregationRuleSpec> = Vec::new();
    for section in section.sections("rules") {
        let rule = rule(section, &shown)?;
        if rules
            .iter()
            .any(|known| known.identity_hash() == rule.identity_hash())
        {
            return Err(section.error(format!(
                "firn.aggregation: group {shown}: duplicate rule {}",
                quote(rule.record.as_bytes())
            )));
        }
        rules.push(rule);
    }
    // A delay of zero is a valid value: results are written at once.
    let delay = section.text_if_set("delay");
    let delay = delay.map(|_| section.exact_duration("delay"));
    let interval = section.duration_if_set("interval");
    let interval = interval.unwrap_or(defaults.interval);
    if interval < INTERVAL_MIN {
        return Err(section.error(format!(
            "firn.aggregation: group {shown}: interval below a second: {interval:?}"
        )));
    }
    Ok(AggregationGroupSpec {
        name,
        interval_ms: millis(interval),
        delay_ms: millis(delay.unwrap_or(defaults.delay)),
        lookback_ms: LOOKBACK_MS,
        rules: rules.into(),
    })
}

fn rule(section: ConfigSection<'_>, group: &str) -> Result<AggregationRuleSpec, YamlError> {
    let record = section.text("record").to_owned();
    let expr = section.text("expr");
    let shown = quote(record.as_bytes());
    let error = |what: String| {
        section.error(format!(
            "firn.aggregation: group {group}, rule {shown}: {what}"
        ))
    };
    if record.is_empty() || record.contains(['{', '}']) {
        return Err(error(format!("invalid recording rule name: {record}")));
    }
    let labels = labels(section.entries("labels")).map_err(error)?;
    let kind = match section.text("type") {
        "counter" => Some(AggregatedMetricKind::Counter),
        "gauge" => Some(AggregatedMetricKind::Gauge),
        _ => None,
    };
    let (written, is_last) = match expr.trim_start().strip_prefix(LAST) {
        Some(rest) if !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') => {
            (format!("group{rest}"), true)
        }
        _ => (expr.to_owned(), false),
    };
    let parsed = parser::parse(&written, Features::default());
    let parsed = parsed.map_err(|e| error(format!("could not parse expression: {e}")))?;
    let streamed = streamed(&parsed, is_last, kind).map_err(|refused| {
        let batch = format!("{{record: {record}, expr: {}}}", quote(expr.as_bytes()));
        let instead = refused.instead.map(|instead| format!("; or {instead}"));
        error(format!(
            "cannot be streamed: {}: write it as a batch rule, in a file of `rule_files`: {batch}\
             {}",
            refused.reason,
            instead.unwrap_or_default()
        ))
    })?;
    let printed = parsed.to_string();
    let printed = match (is_last, printed.strip_prefix("group")) {
        (true, Some(rest)) => format!("{LAST}{rest}"),
        _ => printed,
    };
    Ok(AggregationRuleSpec {
        record,
        expr: printed,
        labels,
        drops: section.flag("drop"),
        kind,
        ..streamed
    })
}

/// Returns the labels that a rule adds, sorted by name. Fails for invalid names.
fn labels(entries: &[YamlEntry]) -> Result<Vec<(String, String)>, String> {
    let mut labels = Vec::new();
    for entry in entries {
        if entry.key.is_empty() || entry.key == METRIC_NAME {
            return Err(format!("invalid label name: {}", entry.key));
        }
        let value = entry.node.text().unwrap_or_default();
        labels.push((entry.key.clone(), value.to_owned()));
    }
    labels.sort();
    Ok(labels)
}

/// Converts an expression into a streaming rule. The caller sets its name, labels and source text.
fn streamed(
    expr: &Expr,
    is_last: bool,
    kind: Option<AggregatedMetricKind>,
) -> Result<AggregationRuleSpec, UnstreamableRule> {
    let aggregate = match &expr.kind {
        ExprKind::Paren(inner) => return streamed(inner, is_last, kind),
        ExprKind::Aggregate(aggregate) => aggregate,
        other => return Err(no_aggregation(other)),
    };
    let op = if is_last {
        AggregationOp::Last
    } else {
        op(aggregate)?
    };
    let selector = selector(&aggregate.expr, aggregate)?;
    let rule = AggregationRuleSpec {
        record: String::new(),
        expr: String::new(),
        op,
        grouping: match &aggregate.grouping {
            Labels::By(names) => AggregationGrouping::By(names.clone()),
            Labels::Without(names) => AggregationGrouping::Without(names.clone()),
        },
        matchers: selector.matchers.clone(),
        labels: Vec::new(),
        drops: false,
        kind: None,
    };
    if op != AggregationOp::Sum && kind.is_some() {
        let reason = "`type` is for a `sum`; the values of others are those of gauges";
        return Err(refused(reason));
    }
    if op == AggregationOp::Sum && kind.is_none() && rule.metric_name().is_none() {
        let reason =
            "the selector does not fix a metric name, so the type of its series is unknown";
        return Err(UnstreamableRule {
            instead: Some("set `type: counter` or `type: gauge`".into()),
            ..refused(reason)
        });
    }
    Ok(rule)
}

fn op(aggregate: &AggregateExpr) -> Result<AggregationOp, UnstreamableRule> {
    let parameter = || match aggregate.param.as_ref().map(number) {
        Some(Some(share)) if !share.is_nan() => Ok(share),
        _ => Err(refused("the parameter of `quantile` is not a number")),
    };
    Ok(match aggregate.op {
        AggregateOp::Sum => AggregationOp::Sum,
        AggregateOp::Avg => AggregationOp::Avg,
        AggregateOp::Count => AggregationOp::Count,
        AggregateOp::Min => AggregationOp::Min,
        AggregateOp::Max => AggregationOp::Max,
        AggregateOp::Group => AggregationOp::Group,
        AggregateOp::Stddev => AggregationOp::Stddev,
        AggregateOp::Stdvar => AggregationOp::Stdvar,
        AggregateOp::Quantile => AggregationOp::Quantile(parameter()?),
        AggregateOp::TopK | AggregateOp::BottomK => {
            return Err(refused(
                "it returns a subset of the series, a different one at each evaluation time",
            ));
        }
        AggregateOp::LimitK | AggregateOp::LimitRatio => {
            return Err(refused("it returns a subset of the series"));
        }
        AggregateOp::CountValues => {
            return Err(refused(
                "`count_values` is not supported: each value of a source would create a series",
            ));
        }
    })
}

/// Returns the value of an expression that is a number literal, possibly signed or in parentheses.
fn number(expr: &Expr) -> Option<f64> {
    match &expr.kind {
        ExprKind::Number(literal) => Some(literal.value),
        ExprKind::Paren(inner) => number(inner),
        ExprKind::Unary(UnaryOp::Minus, inner) => Some(-number(inner)?),
        ExprKind::Unary(UnaryOp::Plus, inner) => number(inner),
        _ => None,
    }
}

/// Returns the selector of the aggregated expression. Fails unless the argument is a plain
/// selector, possibly in parentheses.
fn selector<'e>(
    expr: &'e Expr,
    of: &AggregateExpr,
) -> Result<&'e VectorSelector, UnstreamableRule> {
    match &expr.kind {
        ExprKind::Paren(inner) => selector(inner, of),
        ExprKind::Vector(selector) => {
            let is_plain = selector.offset == Offset::default()
                && selector.at.is_none()
                && selector.edges == WindowEdges::Plain;
            if is_plain {
                Ok(selector)
            } else {
                Err(refused(
                    "`offset`, `@` and window edges read samples at other times",
                ))
            }
        }
        ExprKind::Call(call) => {
            let name = call.function.name;
            let argument = call.args.first().map(|arg| &arg.kind);
            let range = match argument {
                Some(ExprKind::Matrix(matrix)) => Some(matrix),
                _ => None,
            };
            let instead = range.filter(|_| matches!(name, "rate" | "increase" | "irate"));
            Err(UnstreamableRule {
                reason: match range {
                    Some(_) => format!("{name}() reads the stored samples of each source"),
                    None => format!("{name}() is applied to each source first"),
                },
                instead: instead.map(|matrix| {
                    let inner = Expr {
                        kind: ExprKind::Vector(matrix.vector.clone()),
                        span: expr.span,
                    };
                    let sum = AggregateExpr {
                        expr: inner,
                        ..of.clone()
                    };
                    let sum = ExprKind::Aggregate(Box::new(sum));
                    let (kind, span) = (sum, expr.span);
                    format!(
                        "stream `{}` and take {name}() of the result",
                        Expr { kind, span }
                    )
                }),
            })
        }
        _ => Err(refused(
            "the argument of the aggregation is not a plain selector",
        )),
    }
}

fn no_aggregation(kind: &ExprKind) -> UnstreamableRule {
    refused(match kind {
        ExprKind::Binary(_) => "it combines two results",
        ExprKind::Call(_) => "a function is applied to the aggregation",
        _ => "the expression is not an aggregation",
    })
}

fn refused(reason: &str) -> UnstreamableRule {
    UnstreamableRule {
        reason: reason.to_owned(),
        instead: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::*;
    use firn_config_schema::schema::{ConfigFindings, walk};
    use std::path::Path;

    const DEFAULTS: AggregationDefaults = AggregationDefaults {
        interval: Duration::from_secs(60),
        delay: Duration::from_secs(15),
    };

    /// Reads a config whose aggregation section contains these groups.
    fn read(groups: &str) -> Result<AggregationSpec, YamlError> {
        let text = format!("firn: {{aggregation: {{groups: [{groups}]}}}}");
        let mut root = firn_yaml::parse(&text).unwrap().unwrap();
        walk(&mut root, &keys::CONFIG, "", &mut ConfigFindings::default())?;
        let root = ConfigSection::new(Some(&root), keys::KEYS, Path::new(""));
        aggregation(root.section("firn").section("aggregation"), DEFAULTS)
    }

    fn group(rule: &str) -> Result<AggregationSpec, YamlError> {
        read(&format!(
            "{{name: g, stream: true, rules: [{{record: 'a:b', {rule}}}]}}"
        ))
    }

    fn rule(lines: &str) -> AggregationRuleSpec {
        group(lines).unwrap().groups[0].rules[0].clone()
    }

    #[test]
    fn expressions_that_can_be_streamed_become_rules() {
        let by = |names: &[&str]| {
            AggregationGrouping::By(names.iter().map(|name| (*name).to_owned()).collect())
        };
        for (expr, printed, op, grouping) in [
            (
                "sum by (a, b) (m_total{x=\"y\"})",
                "",
                AggregationOp::Sum,
                by(&["a", "b"]),
            ),
            ("sum(m)", "", AggregationOp::Sum, by(&[])),
            (
                "(avg((m)) without (a))",
                "(avg without (a) ((m)))",
                AggregationOp::Avg,
                { AggregationGrouping::Without(vec!["a".into()]) },
            ),
            (
                "quantile by (a) (0.9, m)",
                "",
                AggregationOp::Quantile(0.9),
                by(&["a"]),
            ),
            (
                "quantile by (a) (-(1), m)",
                "",
                AggregationOp::Quantile(-1.0),
                by(&["a"]),
            ),
            ("last by (a) (m)", "", AggregationOp::Last, by(&["a"])),
            (
                "last(m) by (a)",
                "last by (a) (m)",
                AggregationOp::Last,
                by(&["a"]),
            ),
            ("group by (a) (m)", "", AggregationOp::Group, by(&["a"])),
            (
                "max by (a) ({__name__=~\"m.*\"})",
                "",
                AggregationOp::Max,
                by(&["a"]),
            ),
            ("stddev by (a) (m)", "", AggregationOp::Stddev, by(&["a"])),
            ("stdvar by (a) (m)", "", AggregationOp::Stdvar, by(&["a"])),
            ("count by (a) (m)", "", AggregationOp::Count, by(&["a"])),
            ("min by (a) (m)", "", AggregationOp::Min, by(&["a"])),
        ] {
            let rule = rule(&format!("expr: '{expr}'"));
            assert_eq!((rule.op, &rule.grouping), (op, &grouping), "{expr}");
            let expected = if printed.is_empty() { expr } else { printed };
            assert_eq!(rule.expr, expected);
            assert!(!rule.matchers.is_empty() && !rule.drops && rule.kind.is_none());
        }
        let rule = rule("expr: 'sum({a=\"b\"})', type: counter, drop: yes, labels: {z: 1, c: d}");
        assert_eq!(
            (rule.kind, rule.drops),
            (Some(AggregatedMetricKind::Counter), true)
        );
        assert_eq!(
            rule.labels,
            [("c".into(), "d".into()), ("z".into(), "1".into())]
        );
    }

    #[test]
    fn groups_take_their_times_from_the_config_where_they_have_none() {
        let times = |lines: &str| {
            let spec = read(&format!("{{name: g, stream: true{lines}}}")).unwrap();
            let group = &spec.groups[0];
            (group.interval_ms, group.delay_ms, group.rules.len())
        };
        assert_eq!(times(""), (60_000, 15_000, 0));
        assert_eq!(times(", interval: 30s, delay: 0s"), (30_000, 0, 0));
        assert_eq!(times(", interval: 0s, delay: 1m"), (60_000, 60_000, 0));
    }

    #[test]
    fn rules_that_cannot_be_streamed_are_refused_with_record_reason_and_batch_rule() {
        for (expr, reason) in [
            ("m", "the expression is not an aggregation"),
            ("rate(m[5m])", "a function is applied to the aggregation"),
            ("sum(m) / 2", "it combines two results"),
            (
                "sum(m offset 5m)",
                "`offset`, `@` and window edges read samples at other times",
            ),
            (
                "sum(m @ 5)",
                "`offset`, `@` and window edges read samples at other times",
            ),
            ("sum(abs(m))", "abs() is applied to each source first"),
            (
                "sum(max_over_time(m[5m]))",
                "max_over_time() reads the stored samples of each source",
            ),
            (
                "sum(sum by (a) (m))",
                "the argument of the aggregation is not a plain selector",
            ),
            (
                "topk(3, m)",
                "it returns a subset of the series, a different one at each evaluation time",
            ),
            (
                "count_values(\"v\", m)",
                "`count_values` is not supported: each value of a source would create a series",
            ),
            (
                "quantile(NaN, m)",
                "the parameter of `quantile` is not a number",
            ),
            (
                "quantile(scalar(m), m)",
                "the parameter of `quantile` is not a number",
            ),
            (
                "sum({a=\"b\"})",
                "the selector does not fix a metric name, so the type of its series is unknown",
            ),
        ] {
            let e = group(&format!("expr: '{expr}'")).unwrap_err();
            let batch = format!("{{record: a:b, expr: {}}}", quote(expr.as_bytes()));
            let expected = format!(
                "firn.aggregation: group \"g\", rule \"a:b\": cannot be streamed: {reason}: write \
                 it as a batch rule, in a file of `rule_files`: {batch}"
            );
            assert!(
                e.message.starts_with(&expected),
                "{}\n{expected}",
                e.message
            );
        }
        let e = group("expr: 'sum by (a) (increase(m[5m]))'").unwrap_err();
        let instead = "; or stream `sum by (a) (m)` and take increase() of the result";
        assert!(e.message.ends_with(instead), "{e}");
    }

    #[test]
    fn sections_that_say_what_cannot_be_are_refused() {
        for (groups, message) in [
            ("{stream: true}", "name is missing or empty"),
            ("{name: g}", "stream is missing or empty"),
            (
                "{name: g, stream: true, interval: 500ms}",
                "interval below a second: 500ms",
            ),
            (
                "{name: g, stream: false}",
                "group \"g\" does not set `stream: true`",
            ),
            (
                "{name: g, stream: true}, {name: g, stream: true}",
                "duplicate group \"g\"",
            ),
            ("{name: g, stream: true, rules: [{expr: sum(m)}]}", "record"),
            (
                "{name: g, stream: true, rules: [{record: a, expr: 'sum('}]}",
                "group \"g\", rule \"a\": could not parse expression: ",
            ),
            (
                "{name: g, stream: true, rules: [{record: 'a{', expr: sum(m)}]}",
                "invalid recording rule name: a{",
            ),
            (
                "{name: g, stream: true, \
                 rules: [{record: a, expr: sum(m), labels: {__name__: b}}]}",
                "invalid label name: __name__",
            ),
            (
                "{name: g, stream: true, rules: [{record: a, expr: max(m), type: counter}]}",
                "`type` is for a `sum`",
            ),
            (
                "{name: g, stream: true, rules: [{record: a, expr: sum(m), type: histogram}]}",
                "type",
            ),
            (
                "{name: g, stream: true, \
                 rules: [{record: a, expr: sum(m)}, {record: a, expr: sum(m), drop: true}]}",
                "duplicate rule \"a\"",
            ),
        ] {
            let e = read(groups).unwrap_err();
            assert!(e.message.contains(message), "{groups}: {e}");
        }
    }
}
