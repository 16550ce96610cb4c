//! Parses Grafana dashboards: the expressions of their panels, and their variables.
//!
//! Expressions occur in panels, in panels inside rows, in the rows of old dashboards, in
//! annotations and in the elements of the second schema. Therefore each object with a text `expr`
//! counts, unless the data source that it inherits is not Prometheus.

use serde_json::Value;

/// A dashboard with the expressions and variables that a comparison or a load test needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Dashboard {
    /// File name and title of the dashboard, for reports.
    pub origin: String,
    /// Expressions of the panels and annotations, in the order of the file.
    pub targets: Vec<PanelTarget>,
    /// Variables that the expressions may contain, in the order of the file.
    pub variables: Vec<DashboardVariable>,
}

/// An expression of a panel, or the reason why it is not for Prometheus.
#[derive(Clone, Debug, PartialEq)]
pub struct PanelTarget {
    /// PromQL text in which variables have not been replaced.
    pub text: String,
    /// Reason why it is not queried, if there is one.
    pub refusal: Option<String>,
}

/// A variable of a dashboard and how its values are found, in the same form for both schemas.
#[derive(Clone, Debug, PartialEq)]
pub struct DashboardVariable {
    /// Name of the variable, without `$` or brackets.
    pub name: String,
    /// Source of its values, which depends on the kind.
    pub kind: VariableKind,
    /// Whether several values can be selected at once (`multi`).
    pub is_multi: bool,
    /// Whether all values can be selected at once (`includeAll`).
    pub includes_all: bool,
    /// Text that replaces the selection of all values, instead of an alternation of them.
    pub all_value: Option<String>,
    /// Values that are selected in the file; they may no longer exist.
    pub current: Vec<String>,
    /// Regular expression that selects a part of each value; empty for the whole value.
    pub regex: String,
    /// Sort order of the values, as a number of Grafana's first schema.
    pub sort: u64,
}

/// Kinds of variables by the source of their values; other kinds are unsupported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// Query such as `label_values(...)`, whose result is looked up.
    Query(String),
    /// Comma-separated values, optionally with names.
    Custom(String),
    /// Comma-separated durations, of which one is selected.
    Interval(String),
    /// A single fixed value, also that of a text box.
    Constant(String),
    /// A kind that is unsupported or cannot occur in an expression.
    Other(String),
}

/// The value in dashboard files that represents the selection of all values.
pub const ALL: &str = "$__all";

/// Parses a dashboard, possibly wrapped in the object of an export or an API response. `file` is
/// used in the origin of its queries. Fails if the document is not a dashboard.
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
            .map(DashboardVariable::read)
            .collect(),
    })
}

fn has_panels(board: &Value) -> bool {
    ["panels", "rows", "elements"]
        .into_iter()
        .any(|key| !board[key].is_null())
}

/// Returns the type of the data source if the object specifies one, in either schema.
fn source_type(object: &Value) -> Option<&str> {
    object["datasource"]["type"]
        .as_str()
        .or(object["group"].as_str())
}

fn collect<'v>(value: &'v Value, source: Option<&'v str>, into: &mut Vec<PanelTarget>) {
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
                into.push(PanelTarget {
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

impl DashboardVariable {
    /// Parses a variable of either schema. The second schema wraps it in a `spec` beside its kind.
    fn read(value: &Value) -> Self {
        let own = if value["spec"].is_object() {
            &value["spec"]
        } else {
            value
        };
        let text = |key: &str| own[key].as_str().unwrap_or_default().to_owned();
        let kind_name = match value["kind"].as_str() {
            Some(kind) => kind.trim_end_matches("Variable").to_lowercase(),
            None => text("type"),
        };
        let query = query_text(&own["query"]).to_owned();
        let kind = match kind_name.as_str() {
            "query" => VariableKind::Query(query),
            "custom" => VariableKind::Custom(query),
            "interval" => VariableKind::Interval(query),
            "constant" | "textbox" | "text" => VariableKind::Constant(query),
            _ => VariableKind::Other(kind_name),
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

/// Returns the text of a variable's query: a string, an object that contains one, or an object
/// whose `spec` contains one.
fn query_text(query: &Value) -> &str {
    let keys = ["query", "__legacyStringValue"];
    let places = [query, &query["spec"]];
    let inside = places
        .into_iter()
        .flat_map(|place| keys.map(|key| place[key].as_str()));
    let mut texts = inside.chain([query.as_str()]).flatten();
    texts.next().unwrap_or_default()
}

/// Converts a sort order to the number of the first schema; the second schema uses names.
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
