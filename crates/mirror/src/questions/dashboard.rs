//! Dashboards of Grafana: the expressions of their panels, and their variables.
//!
//! Expressions are found wherever panels keep them: in panels, in those inside a row, in the rows
//! of old dashboards, in annotations, in the elements of the second schema. So every object with a
//! text `expr` counts, unless the data source it inherits is no Prometheus.

use serde_json::Value;

/// A dashboard.
#[derive(Clone, Debug, PartialEq)]
pub struct Dashboard {
    /// File and title.
    pub origin: String,
    /// What panels ask.
    pub targets: Vec<Target>,
    /// What stands for what.
    pub variables: Vec<Variable>,
}

/// An expression of a panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// PromQL with variables.
    pub text: String,
    /// Why it is not asked.
    pub refusal: Option<String>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where its values come from.
    pub kind: Kind,
    /// Whether several values may be chosen at once.
    pub is_multi: bool,
    /// Whether all values may be chosen at once.
    pub includes_all: bool,
    /// What stands for all values, if not an alternative of them.
    pub all_value: Option<String>,
    /// What is chosen.
    pub current: Vec<String>,
    /// What of a value is kept.
    pub regex: String,
    /// How values are sorted, by Grafana's number.
    pub sort: u64,
}

/// Kinds of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `label_values(...)` and others.
    Query(String),
    /// Values between commas.
    Custom(String),
    /// Durations between commas.
    Interval(String),
    /// One value.
    Constant(String),
    /// None that can stand in an expression, or one that is not known.
    Other(String),
}

/// The choice of all values, as files have it.
pub const ALL: &str = "$__all";

/// Reads a dashboard, or what an export or an API has around it.
pub fn read(document: &Value, file: &str) -> Result<Dashboard, String> {
    let inner = ["dashboard", "spec"].into_iter().map(|key| &document[key]);
    let board = inner
        .into_iter()
        .find(|inner| has_panels(inner))
        .unwrap_or(document);
    if !has_panels(board) {
        return Err("JSON, but neither a dashboard (no panels) nor a query log".to_owned());
    }
    let mut targets = Vec::new();
    collect(board, None, &mut targets);
    let variables = board["templating"]["list"].as_array();
    Ok(Dashboard {
        origin: match board["title"].as_str() {
            Some(title) => format!("{file}: {title:?}"),
            None => file.to_owned(),
        },
        targets,
        variables: variables
            .into_iter()
            .flatten()
            .map(Variable::read)
            .collect(),
    })
}

fn has_panels(board: &Value) -> bool {
    ["panels", "rows", "elements"]
        .into_iter()
        .any(|key| !board[key].is_null())
}

/// The type of a data source, where it says one.
fn source_type(object: &Value) -> Option<&str> {
    object["datasource"]["type"]
        .as_str()
        .or(object["group"].as_str())
}

fn collect<'v>(value: &'v Value, source: Option<&'v str>, into: &mut Vec<Target>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, source, into)),
        Value::Object(members) => {
            let source = source_type(value).or(source);
            if let Some(text) = value["expr"]
                .as_str()
                .filter(|text| !text.trim().is_empty())
            {
                let is_foreign = |source: &&str| {
                    !matches!(*source, "prometheus" | "mixed" | "datasource" | "grafana")
                        && !source.starts_with(['$', '-'])
                };
                into.push(Target {
                    text: text.to_owned(),
                    refusal: source
                        .filter(is_foreign)
                        .map(|source| format!("its data source is {source}, no Prometheus")),
                });
            }
            members
                .values()
                .for_each(|member| collect(member, source, into));
        }
        _ => {}
    }
}

impl Variable {
    fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let query = match &value["query"] {
            Value::Object(query) => query.get("query").and_then(Value::as_str),
            query => query.as_str(),
        };
        let query = query.unwrap_or_default().to_owned();
        let kind = match value["type"].as_str().unwrap_or_default() {
            "query" => Kind::Query(query),
            "custom" => Kind::Custom(query),
            "interval" => Kind::Interval(query),
            "constant" | "textbox" => Kind::Constant(query),
            other => Kind::Other(other.to_owned()),
        };
        let current = match &value["current"]["value"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(several) => {
                let texts = several.iter().filter_map(Value::as_str);
                texts.map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        Self {
            name: text("name"),
            kind,
            is_multi: value["multi"].as_bool().unwrap_or_default(),
            includes_all: value["includeAll"].as_bool().unwrap_or_default(),
            all_value: value["allValue"]
                .as_str()
                .filter(|v| !v.is_empty())
                .map(str::to_owned),
            current,
            regex: text("regex"),
            sort: value["sort"].as_u64().unwrap_or_default(),
        }
    }
}
