//! The flags `--explain` and `--analyze`: prints the plan of a query as a tree, one operation per
//! line, with its figures in columns.
//!
//! ```text
//!     cpu   memory  series  samples   read    bytes  hits  misses  expression
//!  1.2 ms  8.0 KiB       5        0      0      0 B     0       0  sum by (job) (rate(up[5m]))
//!  4.1 ms  1.1 MiB    1200        0      0      0 B     0       0    rate(up[5m])
//! 20.3 ms  2.4 MiB    1200    24000  24000  310 KiB    12       3      up[5m]
//!                                                                        __name__="up": 1200
//! ```

use crate::commands::arguments::switch;
use clap::{Arg, ArgMatches};
use serde_json::Value;
use std::fmt::Write;

/// Titles of the columns before the expression.
const TITLES: [&str; 8] = [
    "cpu", "memory", "series", "samples", "read", "bytes", "hits", "misses",
];

/// Maximum number of characters of an expression that are printed.
const EXPRESSION_CHARS_MAX: usize = 200;

/// The report that the command line selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanParameter {
    /// The plan without an evaluation.
    Explain,
    /// The plan with the figures of an evaluation.
    Analyze,
}

impl PlanParameter {
    /// Returns the report of the flags, if there is one.
    pub fn from_matches(matches: &ArgMatches) -> Option<Self> {
        let is_set = |id| matches.try_get_one::<bool>(id).ok().flatten() == Some(&true);
        match (is_set("explain"), is_set("analyze")) {
            (true, _) => Some(PlanParameter::Explain),
            (false, true) => Some(PlanParameter::Analyze),
            (false, false) => None,
        }
    }

    /// Returns the name of the flag and of the parameter of the API.
    pub fn name(self) -> &'static str {
        match self {
            PlanParameter::Explain => "explain",
            PlanParameter::Analyze => "analyze",
        }
    }

    /// Returns the name of the plan in the response.
    fn member(self) -> &'static str {
        match self {
            PlanParameter::Explain => "plan",
            PlanParameter::Analyze => "analysis",
        }
    }
}

/// Returns the flags.
pub fn arguments() -> [Arg; 2] {
    let explain = switch(
        "explain",
        "Print the plan of the expression without evaluating it (only Firn servers)",
    );
    let analyze = switch(
        "analyze",
        "Evaluate the expression and print its plan with the cost of each operation, instead of \
         the result (only Firn servers)",
    );
    [
        explain.global(true).conflicts_with("analyze"),
        analyze.global(true),
    ]
}

/// Formats the plan in the data of a response. Fails if the response has none, because the server
/// does not support the parameter.
pub fn text(data: &Value, report: PlanParameter, is_json: bool) -> Result<String, String> {
    let root = &data[report.member()];
    if !root.is_object() {
        let name = report.name();
        return Err(format!(
            "the server does not support the parameter {name:?}"
        ));
    }
    if is_json {
        return Ok(format!("{root}\n"));
    }
    let mut lines = Vec::new();
    add_node(&mut lines, root, 0);
    Ok(align(&lines, report))
}

/// A line of the output: the figures, empty for details of a node, and the text after them.
struct PlanLine {
    figures: Vec<String>,
    text: String,
}

fn add_node(lines: &mut Vec<PlanLine>, node: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    lines.push(PlanLine {
        figures: figures(node),
        text: format!("{indent}{}", shortened(string(&node["text"]))),
    });
    let mut detail = |text: String| {
        lines.push(PlanLine {
            figures: Vec::new(),
            text: format!("{indent}    {text}"),
        });
    };
    for matcher in items(&node["matchers"]) {
        let series = match matcher["series"].as_u64() {
            Some(series) => format!("{series} series"),
            None => "unknown number of series".to_owned(),
        };
        let deferred = match matcher["deferred"].as_bool() {
            Some(true) => ", checked on the series of other matchers",
            _ => "",
        };
        detail(format!(
            "{}: {series}{deferred}",
            string(&matcher["matcher"])
        ));
    }
    for hint in items(&node["hints"]) {
        detail(format!(
            "hint {}: {}",
            string(&hint["kind"]),
            string(&hint["text"])
        ));
    }
    for child in items(&node["children"]) {
        add_node(lines, child, depth + 1);
    }
}

/// Returns the figures of a node in the order of [`TITLES`].
fn figures(node: &Value) -> Vec<String> {
    let count = |name: &str| node[name].as_u64().unwrap_or_default();
    vec![
        duration(node["cpuSeconds"].as_f64().unwrap_or_default()),
        bytes(count("memoryBytes")),
        count("series").to_string(),
        count("totalQueryableSamples").to_string(),
        count("samplesRead").to_string(),
        bytes(count("bytesRead")),
        count("cacheHits").to_string(),
        count("cacheMisses").to_string(),
    ]
}

fn align(lines: &[PlanLine], report: PlanParameter) -> String {
    let mut out = String::new();
    let titles = PlanLine {
        figures: TITLES.map(str::to_owned).to_vec(),
        text: "expression".to_owned(),
    };
    let all = || std::iter::once(&titles).chain(lines);
    let width = |column: usize| {
        let cells = all().filter_map(|line| line.figures.get(column));
        cells.map(|cell| cell.len()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    for line in all() {
        if report == PlanParameter::Explain {
            if !std::ptr::eq(line, &titles) {
                let _ = writeln!(out, "{}", line.text);
            }
            continue;
        }
        for (column, width) in widths.iter().enumerate() {
            let cell = line.figures.get(column).map_or("", String::as_str);
            let _ = write!(out, "{cell:>width$}  ");
        }
        let _ = writeln!(out, "{}", line.text);
    }
    out
}

fn shortened(expression: &str) -> String {
    match expression.char_indices().nth(EXPRESSION_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &expression[..end]),
        None => expression.to_owned(),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.001 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}

fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan() -> Value {
        let matcher = |text: &str, series, deferred| {
            let cost = (series, deferred);
            json!({"matcher": text, "series": cost.0, "deferred": cost.1})
        };
        let selector = json!({
            "type": "matrixSelector", "text": "up[5s]", "resolution": "raw",
            "matchers": [matcher("__name__=\"up\"", json!(12), false),
                matcher("job=~\".*\"", json!(null), true)],
            "hints": [{"kind": "short_range", "text": "too short"}], "children": [],
            "series": 12, "samplesRead": 24, "totalQueryableSamples": 48, "bytesRead": 2048,
            "cacheHits": 3, "cacheMisses": 1, "cpuSeconds": 0.0201, "memoryBytes": 100,
        });
        json!({
            "type": "call", "text": "rate(up[5s])", "hints": [], "children": [selector],
            "series": 12, "samplesRead": 0, "totalQueryableSamples": 0, "bytesRead": 0,
            "cacheHits": 0, "cacheMisses": 0, "cpuSeconds": 0.000004, "memoryBytes": 0,
        })
    }

    #[test]
    fn plan_is_a_tree_with_matchers_and_hints_below_their_selector() {
        let found = text(&json!({"plan": plan()}), PlanParameter::Explain, false).unwrap();
        assert_eq!(
            found,
            concat!(
                "rate(up[5s])\n",
                "  up[5s]\n",
                "      __name__=\"up\": 12 series\n",
                "      job=~\".*\": unknown number of series, checked on the series of other ",
                "matchers\n",
                "      hint short_range: too short\n",
            )
        );
    }

    #[test]
    fn analysis_has_figures_in_columns_before_each_expression() {
        let data = json!({"analysis": plan()});
        let found = text(&data, PlanParameter::Analyze, false).unwrap();
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "    cpu  memory  series  samples  read    bytes  hits  misses  expression",
                "   4 us     0 B      12        0     0      0 B     0       0  rate(up[5s])",
                "20.1 ms   100 B      12       48    24  2.0 KiB     3       1    up[5s]",
            ]
        );
        let json = text(&data, PlanParameter::Analyze, true).unwrap();
        assert_eq!(json, format!("{}\n", data["analysis"]));
    }

    #[test]
    fn response_without_a_plan_is_an_error() {
        let data = json!({"resultType": "vector", "result": []});
        let error = text(&data, PlanParameter::Analyze, false).unwrap_err();
        assert_eq!(
            error,
            "the server does not support the parameter \"analyze\""
        );
    }
}
