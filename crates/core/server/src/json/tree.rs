//! `/api/v1/parse_query`: syntax trees in JSON, like upstream's `translate_ast.go`.
//!
//! Members are sorted by name, and strings are escaped like in Go. A number without JSON
//! representation is an error with the message of Go's encoder.

use crate::json;
use firn_model::matcher::Matcher;
use firn_promql::ast::{
    AggregateExpr, AggregateGrouping, AtModifier, BinaryExpr, DurationExpr, DurationExprKind, Expr,
    ExprKind, FunctionCall, MatchCardinality, MatrixSelector, NumberLiteral, QueryDuration,
    SubqueryExpr, ValueType, VectorMatching, VectorSelector, WindowEdges,
};
use firn_promql::depth::ensure_stack;
use serde_json::{Number, Value, json};

/// Returns a syntax tree as JSON, or the error message of Go's encoder.
pub(crate) fn to_json(expr: &Expr) -> Result<Vec<u8>, String> {
    if let Some((depth, value)) = unsupported(expr, 0) {
        let path = "[]interface {}: ".repeat(depth);
        let value = number_text(value);
        return Err(format!(
            "v1.Response.Data: {path}unsupported value: {value}"
        ));
    }
    let mut out = Vec::new();
    let tree = tree(expr);
    push(&mut out, &tree);
    take_apart(tree);
    Ok(out)
}

/// Drops a document without recursion, because it may be nested more deeply than the stack allows.
fn take_apart(document: Value) {
    let mut parts = vec![document];
    while let Some(part) = parts.pop() {
        match part {
            Value::Array(values) => parts.extend(values),
            Value::Object(members) => parts.extend(members.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// Returns the first fill value without JSON representation in document order, and the number of
/// enclosing argument lists.
fn unsupported(expr: &Expr, depth: usize) -> Option<(usize, f64)> {
    match &expr.kind {
        ExprKind::Call(call) => {
            let mut args = call.args.iter();
            args.find_map(|arg| ensure_stack(|| unsupported(arg, depth + 1)))
        }
        ExprKind::Binary(binary) => {
            let matching = || {
                let matching = binary.matching.as_ref()?;
                let fills = [matching.fill_left, matching.fill_right];
                fills.into_iter().flatten().find(|fill| !fill.is_finite())
            };
            ensure_stack(|| unsupported(&binary.left, depth))
                .or_else(|| matching().map(|fill| (depth, fill)))
                .or_else(|| ensure_stack(|| unsupported(&binary.right, depth)))
        }
        _ => {
            let mut found = None;
            expr.for_each_child(&mut |child| {
                found = found.or_else(|| unsupported(child, depth));
            });
            found
        }
    }
}

fn tree(expr: &Expr) -> Value {
    ensure_stack(|| tree_here(expr))
}

/// Adds members to a document without copying them, as `json!` would do with nested values.
fn add_members(
    mut document: Value,
    members: impl IntoIterator<Item = (&'static str, Value)>,
) -> Value {
    for (name, member) in members {
        document[name] = member;
    }
    document
}

fn tree_here(expr: &Expr) -> Value {
    match &expr.kind {
        ExprKind::Number(literal) => number(literal),
        ExprKind::String(text) => json!({
            "type": "stringLiteral",
            "val": String::from_utf8_lossy(text),
        }),
        ExprKind::Vector(vector) => {
            let mut out = selector(vector);
            out["type"] = "vectorSelector".into();
            out
        }
        ExprKind::Matrix(matrix) => matrix_selector(matrix),
        ExprKind::Subquery(inner) => subquery(inner),
        ExprKind::Call(inner) => call(inner),
        ExprKind::Aggregate(inner) => aggregation(inner),
        ExprKind::Binary(inner) => binary(inner),
        ExprKind::Unary(op, inner) => {
            let head = json!({ "type": "unaryExpr", "op": op.as_str() });
            add_members(head, [("expr", tree(inner))])
        }
        ExprKind::Paren(inner) => {
            let head = json!({ "type": "parenExpr" });
            add_members(head, [("expr", tree(inner))])
        }
    }
}

fn number(literal: &NumberLiteral) -> Value {
    json!({ "type": "numberLiteral", "val": number_text(literal.value) })
}

/// Formats a number without an exponent, like Go's verb `f`.
fn number_text(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

fn selector(vector: &VectorSelector) -> Value {
    json!({
        "name": vector.name.as_deref().unwrap_or_default(),
        "offset": millis(&vector.offset),
        "offsetExpr": duration(Some(&vector.offset)),
        "matchers": vector.matchers.iter().map(matcher).collect::<Vec<_>>(),
        "timestamp": timestamp(vector.at),
        "startOrEnd": start_or_end(vector.at),
        "anchored": vector.edges == WindowEdges::Anchored,
        "smoothed": vector.edges == WindowEdges::Smoothed,
    })
}

fn matcher(matcher: &Matcher) -> Value {
    json!({
        "name": matcher.name(),
        "value": String::from_utf8_lossy(matcher.value()),
        "type": matcher.op().as_str(),
    })
}

fn matrix_selector(matrix: &MatrixSelector) -> Value {
    let mut out = selector(&matrix.vector);
    out["type"] = "matrixSelector".into();
    out["range"] = millis(&matrix.range).into();
    out["rangeExpr"] = duration(Some(&matrix.range));
    out
}

fn subquery(subquery: &SubqueryExpr) -> Value {
    let head = json!({
        "type": "subquery",
        "range": millis(&subquery.range),
        "rangeExpr": duration(Some(&subquery.range)),
        "offset": millis(&subquery.offset),
        "offsetExpr": duration(Some(&subquery.offset)),
        "step": subquery.step.as_ref().map_or(0, millis),
        "stepExpr": duration(subquery.step.as_ref()),
        "timestamp": timestamp(subquery.at),
        "startOrEnd": start_or_end(subquery.at),
    });
    add_members(head, [("expr", tree(&subquery.expr))])
}

fn timestamp(at: Option<AtModifier>) -> Option<i64> {
    match at {
        Some(AtModifier::Time(time)) => Some(time),
        _ => None,
    }
}

fn start_or_end(at: Option<AtModifier>) -> Option<&'static str> {
    match at {
        Some(AtModifier::Start) => Some("start"),
        Some(AtModifier::End) => Some("end"),
        _ => None,
    }
}

/// Returns the milliseconds of a duration; zero if it is an expression that depends on the query.
fn millis(duration: &QueryDuration) -> i64 {
    match duration {
        QueryDuration::Millis(ms) => *ms,
        QueryDuration::Expr(_) => 0,
    }
}

fn duration(duration: Option<&QueryDuration>) -> Value {
    match duration {
        Some(QueryDuration::Expr(expr)) => duration_expr(expr, false),
        _ => Value::Null,
    }
}

fn duration_expr(expr: &DurationExpr, wrapped: bool) -> Value {
    let node = |op: &str, left: Option<&DurationExpr>, right: Option<&DurationExpr>| {
        let side = |side: Option<&DurationExpr>| {
            side.map_or(Value::Null, |expr| {
                ensure_stack(|| duration_expr(expr, false))
            })
        };
        let head = json!({ "type": "durationExpr", "op": op, "wrapped": wrapped });
        add_members(head, [("lhs", side(left)), ("rhs", side(right))])
    };
    match &expr.kind {
        DurationExprKind::Number(literal) => {
            let mut out = number(literal);
            out["duration"] = literal.is_duration.into();
            out
        }
        DurationExprKind::Step => node("step", None, None),
        DurationExprKind::Range => node("range", None, None),
        DurationExprKind::Negative(inner) => node("-", None, Some(inner)),
        DurationExprKind::Binary(op, left, right) => node(op.as_str(), Some(left), Some(right)),
        DurationExprKind::MinOf(left, right) => node("min_of", Some(left), Some(right)),
        DurationExprKind::MaxOf(left, right) => node("max_of", Some(left), Some(right)),
        DurationExprKind::Paren(inner) => duration_expr(inner, true),
    }
}

fn call(call: &FunctionCall) -> Value {
    let function = call.function;
    let head = json!({
        "type": "call",
        "func": {
            "name": function.name,
            "argTypes": function.args.iter().map(|t| type_name(*t)).collect::<Vec<_>>(),
            "variadic": function.variadic,
            "returnType": type_name(function.returns),
        },
    });
    let args = call.args.iter().map(tree).collect();
    add_members(head, [("args", Value::Array(args))])
}

fn type_name(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Scalar => "scalar",
        ValueType::String => "string",
        ValueType::Vector => "vector",
        ValueType::Matrix => "matrix",
    }
}

fn aggregation(aggregate: &AggregateExpr) -> Value {
    let (grouping, without) = match &aggregate.grouping {
        AggregateGrouping::By(labels) => (labels, false),
        AggregateGrouping::Without(labels) => (labels, true),
    };
    let head = json!({
        "type": "aggregation",
        "op": aggregate.op.as_str(),
        "grouping": grouping,
        "without": without,
    });
    let param = aggregate.param.as_ref().map_or(Value::Null, tree);
    add_members(head, [("expr", tree(&aggregate.expr)), ("param", param)])
}

fn binary(binary: &BinaryExpr) -> Value {
    let head = json!({
        "type": "binaryExpr",
        "op": binary.op.as_str(),
        "matching": binary.matching.as_ref().map(matching),
        "bool": binary.returns_bool,
    });
    let sides = [("lhs", tree(&binary.left)), ("rhs", tree(&binary.right))];
    add_members(head, sides)
}

fn matching(matching: &VectorMatching) -> Value {
    let card = match matching.cardinality {
        MatchCardinality::OneToOne => "one-to-one",
        MatchCardinality::ManyToOne => "many-to-one",
        MatchCardinality::OneToMany => "one-to-many",
        MatchCardinality::ManyToMany => "many-to-many",
    };
    json!({
        "card": card,
        "labels": matching.labels,
        "on": matching.on,
        "include": matching.include,
        "fillValues": {
            "lhs": matching.fill_left.and_then(Number::from_f64),
            "rhs": matching.fill_right.and_then(Number::from_f64),
        },
    })
}

/// Writes a document like Go's encoder, extending the stack for deep documents.
fn push(out: &mut Vec<u8>, value: &Value) {
    ensure_stack(|| push_here(out, value));
}

fn push_here(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => json::push_html_string(out, text.as_bytes()),
        Value::Number(number) => push_number(out, number),
        Value::Array(values) => {
            out.push(b'[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                push(out, value);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                json::push_html_string(out, name.as_bytes());
                out.push(b':');
                push(out, value);
            }
            out.push(b'}');
        }
        Value::Null | Value::Bool(_) => out.extend_from_slice(value.to_string().as_bytes()),
    }
}

/// Writes a number: integers unchanged, floats with an exponent only if they are very small or
/// large.
fn push_number(out: &mut Vec<u8>, number: &Number) {
    let text = match number.as_f64().filter(|_| number.is_f64()) {
        None => number.to_string(),
        Some(value) if value == 0.0 || (1e-6..1e21).contains(&value.abs()) => value.to_string(),
        Some(value) if value.abs() < 1.0 => format!("{value:e}"),
        Some(value) => format!("{value:e}").replace('e', "e+"),
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_promql::Features;
    use firn_promql::parser::parse;

    fn check(text: &str, want: Result<&str, &str>) {
        let expr = parse(text, Features::ALL).unwrap();
        let got = to_json(&expr).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(
            got.as_deref(),
            want.map_err(str::to_owned).as_deref(),
            "{text}"
        );
    }

    #[test]
    fn tree_of_a_query_is_that_of_the_reference() {
        check(
            "-x offset 5m @ 1.5",
            Ok(concat!(
                r#"{"expr":{"anchored":false,"matchers":"#,
                r#"[{"name":"__name__","type":"=","value":"x"}],"name":"x","offset":300000,"#,
                r#""offsetExpr":null,"smoothed":false,"startOrEnd":null,"timestamp":1500,"#,
                r#""type":"vectorSelector"},"op":"-","type":"unaryExpr"}"#
            )),
        );
        check(
            "1e21 < bool 1e-7",
            Ok(concat!(
                r#"{"bool":true,"lhs":{"type":"numberLiteral","val":"1000000000000000000000"},"#,
                r#""matching":null,"op":"\u003c","#,
                r#""rhs":{"type":"numberLiteral","val":"0.0000001"},"type":"binaryExpr"}"#
            )),
        );
    }

    #[test]
    fn tree_with_a_number_that_json_cannot_hold_is_refused() {
        let text = "v1.Response.Data: unsupported value: NaN";
        check("a + fill(NaN) b", Err(text));
        let text = "v1.Response.Data: []interface {}: unsupported value: -Inf";
        check("abs(sum(a + fill_left(-Inf) b))", Err(text));
    }
}
