//! Files of tests of rules, in promtool's format.

use firn_model::go_time::parse_rfc3339;
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use firn_model::units::parse_duration;
use firn_yaml::scalar::{YamlScalar, interpret_scalar};
use firn_yaml::{YamlEntry, YamlError, YamlNode, YamlValue};
use std::time::Duration;

/// The evaluation interval of a file that has none.
const INTERVAL: Duration = Duration::from_secs(60);

/// A file of tests.
#[derive(Debug, Default)]
pub(super) struct RuleTestSuite {
    /// Patterns of rule files.
    pub(super) rule_files: Vec<String>,
    /// From evaluation to evaluation of all groups.
    pub(super) evaluation_interval: Duration,
    /// Names of groups that are evaluated in this order.
    pub(super) group_order: Vec<String>,
    pub(super) tests: Vec<RuleTest>,
    /// Whether neighbouring floats are equal.
    pub(super) is_fuzzy: bool,
}

/// One test: series, and what rules and expressions make of them.
#[derive(Debug, Default)]
pub(super) struct RuleTest {
    pub(super) name: String,
    /// From sample to sample of the series.
    pub(super) interval: Duration,
    pub(super) start: TimestampMs,
    /// Lines of series and values.
    pub(super) input: Vec<String>,
    pub(super) alerts: Vec<AlertTest>,
    pub(super) exprs: Vec<ExprTest>,
    pub(super) external_labels: Labels,
    pub(super) external_url: String,
}

/// Which alerts of a name fire at a time.
#[derive(Debug, Default)]
pub(super) struct AlertTest {
    pub(super) eval_time: Duration,
    pub(super) name: String,
    pub(super) expected: Vec<ExpectedAlert>,
}

#[derive(Debug, Default)]
pub(super) struct ExpectedAlert {
    pub(super) labels: Vec<(String, String)>,
    pub(super) annotations: Vec<(String, String)>,
}

/// A test of an expression: its expected samples at one time.
#[derive(Debug, Default)]
pub(super) struct ExprTest {
    pub(super) expr: String,
    pub(super) eval_time: Duration,
    pub(super) expected: Vec<ExpectedSample>,
}

#[derive(Debug, Default)]
pub(super) struct ExpectedSample {
    pub(super) labels: String,
    pub(super) value: f64,
    /// Not empty: the value is this histogram.
    pub(super) histogram: String,
}

/// Reads a file of tests.
pub(super) fn read(text: &str) -> Result<RuleTestSuite, YamlError> {
    let mut suite = RuleTestSuite {
        evaluation_interval: INTERVAL,
        ..RuleTestSuite::default()
    };
    let Some(root) = firn_yaml::parse(text)? else {
        return Ok(suite);
    };
    for entry in entries(&root)? {
        let value = &entry.node;
        match entry.key.as_str() {
            "rule_files" => suite.rule_files = each(value, read_text)?,
            "evaluation_interval" => {
                let interval = duration_of(value)?;
                if !interval.is_zero() {
                    suite.evaluation_interval = interval;
                }
            }
            "group_eval_order" => suite.group_order = each(value, read_text)?,
            "tests" => suite.tests = each(value, test)?,
            "fuzzy_compare" => suite.is_fuzzy = flag_of(value)?,
            _ => return unknown(entry, "unitTestFile"),
        }
    }
    for test in &mut suite.tests {
        if test.interval.is_zero() {
            test.interval = suite.evaluation_interval;
        }
    }
    Ok(suite)
}

fn test(node: &YamlNode) -> Result<RuleTest, YamlError> {
    let mut test = RuleTest::default();
    for entry in entries(node)? {
        let value = &entry.node;
        match entry.key.as_str() {
            "interval" => test.interval = duration_of(value)?,
            "name" => test.name = read_text(value)?,
            "start_timestamp" => test.start = time_of(value)?,
            "input_series" => test.input = each(value, series)?,
            "alert_rule_test" => test.alerts = each(value, alert_test)?,
            "promql_expr_test" => test.exprs = each(value, expr_test)?,
            "external_labels" => test.external_labels = Labels::from_pairs(pairs_of(value)?),
            "external_url" => test.external_url = read_text(value)?,
            _ => return unknown(entry, "testGroup"),
        }
    }
    Ok(test)
}

fn series(node: &YamlNode) -> Result<String, YamlError> {
    let (mut series, mut values) = (String::new(), String::new());
    for entry in entries(node)? {
        match entry.key.as_str() {
            "series" => series = read_text(&entry.node)?,
            "values" => values = read_text(&entry.node)?,
            _ => return unknown(entry, "series"),
        }
    }
    Ok(format!("{series} {values}"))
}

fn alert_test(node: &YamlNode) -> Result<AlertTest, YamlError> {
    let mut test = AlertTest::default();
    for entry in entries(node)? {
        let value = &entry.node;
        match entry.key.as_str() {
            "eval_time" => test.eval_time = duration_of(value)?,
            "alertname" => test.name = read_text(value)?,
            "exp_alerts" => test.expected = each(value, expected_alert)?,
            _ => return unknown(entry, "alertTestCase"),
        }
    }
    Ok(test)
}

fn expected_alert(node: &YamlNode) -> Result<ExpectedAlert, YamlError> {
    let mut alert = ExpectedAlert::default();
    for entry in entries(node)? {
        match entry.key.as_str() {
            "exp_labels" => alert.labels = pairs_of(&entry.node)?,
            "exp_annotations" => alert.annotations = pairs_of(&entry.node)?,
            _ => return unknown(entry, "alert"),
        }
    }
    Ok(alert)
}

fn expr_test(node: &YamlNode) -> Result<ExprTest, YamlError> {
    let mut test = ExprTest::default();
    for entry in entries(node)? {
        let value = &entry.node;
        match entry.key.as_str() {
            "expr" => test.expr = read_text(value)?,
            "eval_time" => test.eval_time = duration_of(value)?,
            "exp_samples" => test.expected = each(value, expected_sample)?,
            _ => return unknown(entry, "promqlTestCase"),
        }
    }
    Ok(test)
}

fn expected_sample(node: &YamlNode) -> Result<ExpectedSample, YamlError> {
    let mut sample = ExpectedSample::default();
    for entry in entries(node)? {
        let value = &entry.node;
        match entry.key.as_str() {
            "labels" => sample.labels = read_text(value)?,
            "value" => sample.value = number_of(value)?,
            "histogram" => sample.histogram = read_text(value)?,
            _ => return unknown(entry, "sample"),
        }
    }
    Ok(sample)
}

fn unknown<T>(entry: &YamlEntry, kind: &str) -> Result<T, YamlError> {
    Err(YamlError {
        place: entry.place,
        message: format!("field {} not found in type main.{kind}", entry.key),
    })
}

fn entries(node: &YamlNode) -> Result<&[YamlEntry], YamlError> {
    match &node.value {
        YamlValue::Map(entries) => Ok(entries),
        _ if node.is_null() => Ok(&[]),
        _ => Err(node.error("expected a mapping")),
    }
}

fn each<T>(
    node: &YamlNode,
    read: impl Fn(&YamlNode) -> Result<T, YamlError>,
) -> Result<Vec<T>, YamlError> {
    match &node.value {
        YamlValue::List(items) => items.iter().map(read).collect(),
        _ if node.is_null() => Ok(Vec::new()),
        _ => Err(node.error("expected a list")),
    }
}

fn pairs_of(node: &YamlNode) -> Result<Vec<(String, String)>, YamlError> {
    let entries = entries(node)?.iter();
    let mut pairs: Vec<_> = entries
        .map(|entry| Ok((entry.key.clone(), read_text(&entry.node)?)))
        .collect::<Result<_, YamlError>>()?;
    pairs.sort();
    Ok(pairs)
}

fn read_text(node: &YamlNode) -> Result<String, YamlError> {
    match &node.value {
        YamlValue::Scalar { .. } => Ok(node.text().unwrap_or_default().to_owned()),
        _ => Err(node.error("expected a single value")),
    }
}

fn duration_of(node: &YamlNode) -> Result<Duration, YamlError> {
    if node.is_null() {
        return Ok(Duration::ZERO);
    }
    parse_duration(&read_text(node)?).map_err(|e| node.error(e.to_string()))
}

fn flag_of(node: &YamlNode) -> Result<bool, YamlError> {
    let text = read_text(node)?;
    match interpret_scalar(node) {
        Some(YamlScalar::Bool(value)) => Ok(value),
        Some(YamlScalar::Null) => Ok(false),
        _ => Err(node.error(format!("not a boolean: {text:?}"))),
    }
}

fn number_of(node: &YamlNode) -> Result<f64, YamlError> {
    let text = read_text(node)?;
    match interpret_scalar(node) {
        Some(YamlScalar::Null) => Ok(0.0),
        scalar => {
            let number = scalar.and_then(YamlScalar::to_float);
            number.ok_or_else(|| node.error(format!("not a number: {text:?}")))
        }
    }
}

fn time_of(node: &YamlNode) -> Result<TimestampMs, YamlError> {
    if node.is_null() {
        return Ok(0);
    }
    let text = read_text(node)?;
    if let Ok(seconds) = text.parse::<f64>()
        && seconds.is_finite()
    {
        return Ok((seconds * 1e3).round() as i64);
    }
    let cannot = || node.error(format!("cannot parse {text:?} to a valid timestamp"));
    let nanos = parse_rfc3339(&text).ok_or_else(cannot)?;
    i64::try_from(nanos.div_euclid(1_000_000)).map_err(|_| cannot())
}
