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
    let first_schema = &board["templating"]["list"];
    let variables = first_schema.as_array().or(board["variables"].as_array());
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
    /// Reads a variable of either schema: the second one keeps it in a `spec`, and names its kind.
    fn read(value: &Value) -> Self {
        let own = match value["spec"].is_object() {
            true => &value["spec"],
            false => value,
        };
        let text = |key: &str| own[key].as_str().unwrap_or_default().to_owned();
        let kind_name = match value["kind"].as_str() {
            Some(kind) => kind.trim_end_matches("Variable").to_lowercase(),
            None => text("type"),
        };
        let query = query_text(&own["query"]).to_owned();
        let kind = match kind_name.as_str() {
            "query" => Kind::Query(query),
            "custom" => Kind::Custom(query),
            "interval" => Kind::Interval(query),
            "constant" | "textbox" | "text" => Kind::Constant(query),
            _ => Kind::Other(kind_name),
        };
        let current = match &own["current"]["value"] {
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
            is_multi: own["multi"].as_bool().unwrap_or_default(),
            includes_all: own["includeAll"].as_bool().unwrap_or_default(),
            all_value: own["allValue"]
                .as_str()
                .filter(|v| !v.is_empty())
                .map(str::to_owned),
            current,
            regex: text("regex"),
            sort: sort_number(&own["sort"]),
        }
    }
}

/// The text of a variable's query: a text, an object around one, or an object whose `spec` has it.
fn query_text(query: &Value) -> &str {
    let keys = ["query", "__legacyStringValue"];
    let places = [query, &query["spec"]];
    let inside = places
        .into_iter()
        .flat_map(|place| keys.map(|key| place[key].as_str()));
    let mut texts = inside.chain([query.as_str()]).flatten();
    texts.next().unwrap_or_default()
}

/// How values are sorted: the number of the first schema, or the word of the second.
fn sort_number(sort: &Value) -> u64 {
    match sort.as_str() {
        None => sort.as_u64().unwrap_or_default(),
        Some("alphabeticalAsc" | "naturalAsc") => 1,
        Some("alphabeticalDesc" | "naturalDesc") => 2,
        Some("numericalAsc") => 3,
        Some("numericalDesc") => 4,
        Some("alphabeticalCaseInsensitiveAsc") => 5,
        Some("alphabeticalCaseInsensitiveDesc") => 6,
        Some(_) => 0,
    }
}
