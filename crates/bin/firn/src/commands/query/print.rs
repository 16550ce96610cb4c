//! Formats API responses like promtool: in Prometheus's text formats, or as JSON.
//!
//! Follows the `String` methods of `prometheus/common/model`.

use serde_json::Value;
use std::fmt::Write;

/// Formats the data of an instant or a range query.
pub fn value(data: &Value, is_json: bool) -> String {
    let result = &data["result"];
    if is_json {
        return match data["resultType"].as_str() {
            Some("string") => json(result),
            _ => json(&plain_numbers(result)),
        };
    }
    let mut out = String::new();
    match data["resultType"].as_str() {
        Some("scalar") => writeln!(out, "scalar: {}", point(result)),
        Some("string") => writeln!(out, "{}", result[1].as_str().unwrap_or_default()),
        Some("vector") => items(result).try_for_each(|element| {
            let metric = metric(&element["metric"]);
            match element.get("histogram") {
                Some(pair) => writeln!(out, "{metric} => {}", histogram_point(pair)),
                None => writeln!(out, "{metric} => {}", point(&element["value"])),
            }
        }),
        _ => items(result).try_for_each(|series| {
            writeln!(out, "{} =>", metric(&series["metric"]))?;
            items(&series["values"]).try_for_each(|pair| writeln!(out, "{}", point(pair)))?;
            let mut histograms = items(&series["histograms"]);
            histograms.try_for_each(|pair| writeln!(out, "{}", histogram_point(pair)))
        }),
    }
    .expect("to a string");
    if out.is_empty() { "\n".into() } else { out }
}

/// Formats the data of a series request: label sets, one per line.
pub fn series(data: &Value, is_json: bool) -> String {
    if is_json {
        return json(data);
    }
    items(data)
        .map(|labels| label_set(labels, &[]) + "\n")
        .collect()
}

/// Formats the values of a label, one per line or as JSON.
pub fn label_values(data: &Value, is_json: bool) -> String {
    if is_json {
        return json(data);
    }
    items(data)
        .map(|v| format!("{}\n", v.as_str().unwrap_or_default()))
        .collect()
}

fn json(data: &Value) -> String {
    format!("{data}\n")
}

fn items(data: &Value) -> impl Iterator<Item = &Value> {
    data.as_array().into_iter().flatten()
}

/// Formats a metric as `name{label="value"}`. A name that older parsers reject is written into the
/// braces.
pub fn metric(labels: &Value) -> String {
    let name = labels["__name__"].as_str().unwrap_or_default();
    let has_others = labels
        .as_object()
        .is_some_and(|map| map.keys().any(|k| k != "__name__"));
    if name.is_empty() || !is_bare_name(name) {
        let quoted = (!name.is_empty()).then(|| quote(name));
        label_set(labels, quoted.as_slice())
    } else if has_others {
        format!("{name}{}", label_set(labels, &[String::new()]))
    } else {
        name.to_owned()
    }
}

/// Formats labels as `{first, label="value"}`. If `first` is not empty, the metric name is not
/// repeated as a label.
pub fn label_set(labels: &Value, first: &[String]) -> String {
    let mut parts: Vec<String> = first.iter().filter(|f| !f.is_empty()).cloned().collect();
    for (name, value) in labels.as_object().into_iter().flatten() {
        if name == "__name__" && !first.is_empty() {
            continue;
        }
        let value = quote(value.as_str().unwrap_or_default());
        if is_bare_name(name) {
            parts.push(format!("{name}={value}"));
        } else {
            parts.push(format!("{}={value}", quote(name)));
        }
    }
    format!("{{{}}}", parts.join(", "))
}

fn is_bare_name(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

/// Formats a sample, a pair `[time, "value"]`, as `value @[time]`.
fn point(pair: &Value) -> String {
    let value = pair[1].as_str().unwrap_or_default();
    format!("{} @[{}]", plain_number(value), pair[0])
}

/// Returns the result of a query with all numbers written without exponents.
fn plain_numbers(result: &Value) -> Value {
    match result {
        Value::String(text) => plain_number(text).into(),
        Value::Array(items) => items.iter().map(plain_numbers).collect(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| match key.as_str() {
                "metric" => (key.clone(), value.clone()),
                _ => (key.clone(), plain_numbers(value)),
            };
            Value::Object(fields.iter().map(field).collect())
        }
        other => other.clone(),
    }
}

/// Returns the number without an exponent, like Go's format `f`.
fn plain_number(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => value.to_string(),
        _ => text.to_owned(),
    }
}

/// Formats a pair `[time, {...}]` as `Count: c, Sum: s, Buckets: [...] @[time]`.
fn histogram_point(pair: &Value) -> String {
    let histogram = &pair[1];
    let buckets: Vec<String> = items(&histogram["buckets"]).map(bucket).collect();
    format!(
        "Count: {}, Sum: {}, Buckets: [{}] @[{}]",
        plain_number(histogram["count"].as_str().unwrap_or_default()),
        plain_number(histogram["sum"].as_str().unwrap_or_default()),
        buckets.join(" "),
        pair[0]
    )
}

/// Formats a bucket as `(lower,upper]:count`, with brackets by its boundary rule: 0 is open left, 1
/// open right, 2 open on both sides, 3 closed on both sides.
fn bucket(bucket: &Value) -> String {
    let rule = bucket[0].as_u64().unwrap_or(0);
    let text = |i: usize| plain_number(bucket[i].as_str().unwrap_or_default());
    let left = if matches!(rule, 1 | 3) { '[' } else { '(' };
    let right = if matches!(rule, 0 | 3) { ']' } else { ')' };
    format!("{left}{},{}{right}:{}", text(1), text(2), text(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn value_prints_as_promtool() {
        for (data, want) in [
            (
                json!({"resultType": "scalar", "result": [1.5, "1e+06"]}),
                "scalar: 1000000 @[1.5]\n",
            ),
            (
                json!({"resultType": "string", "result": [1, "a\"b"]}),
                "a\"b\n",
            ),
            (json!({"resultType": "vector", "result": []}), "\n"),
            (
                json!({"resultType": "vector", "result": [
                    {"metric": {"__name__": "up", "job": "a", "x.y": "b\"c"}, "value": [1, "1"]},
                    {"metric": {"__name__": "up"}, "value": [1, "NaN"]},
                    {"metric": {"__name__": "a.b", "job": "a"}, "value": [1, "+Inf"]},
                    {"metric": {}, "value": [1, "0.5"]},
                ]}),
                "up{job=\"a\", \"x.y\"=\"b\\\"c\"} => 1 @[1]\n\
                 up => NaN @[1]\n\
                 {\"a.b\", job=\"a\"} => +Inf @[1]\n\
                 {} => 0.5 @[1]\n",
            ),
            (
                json!({"resultType": "matrix", "result": [
                    {"metric": {"a": "b"}, "values": [[1, "1"], [2.5, "2"]]},
                    {"metric": {"__name__": "h"}, "histograms": [[3, {
                        "count": "3", "sum": "4.5",
                        "buckets": [[0, "1", "2", "2"], [3, "-0.1", "0.1", "1"]],
                    }]]},
                ]}),
                "{a=\"b\"} =>\n1 @[1]\n2 @[2.5]\n\
                 h =>\nCount: 3, Sum: 4.5, Buckets: [(1,2]:2 [-0.1,0.1]:1] @[3]\n",
            ),
        ] {
            assert_eq!(value(&data, false), want, "{data}");
            let json = format!("{}\n", data["result"]);
            assert_eq!(value(&data, true), json.replace("1e+06", "1000000"));
        }
    }

    #[test]
    fn json_has_numbers_without_exponents_and_metrics_as_they_are() {
        let series = |value: &str| {
            let metric = json!({"__name__": "1e3"});
            json!([{"metric": metric, "values": [[1e-7, value]]}])
        };
        for (kind, found, want) in [
            ("matrix", series("1e-07"), series("0.0000001")),
            ("string", json!([1, "1e3"]), json!([1, "1e3"])),
        ] {
            let data = json!({"resultType": kind, "result": found});
            assert_eq!(value(&data, true), format!("{want}\n"));
        }
    }

    #[test]
    fn series_and_label_values_print_one_a_line() {
        let data = json!([{"__name__": "up", "job": "a"}, {"job": "b"}]);
        assert_eq!(
            series(&data, false),
            "{__name__=\"up\", job=\"a\"}\n{job=\"b\"}\n"
        );
        assert_eq!(label_values(&json!(["a", "b c"]), false), "a\nb c\n");
        assert_eq!(label_values(&json!(["a"]), true), "[\"a\"]\n");
    }
}
