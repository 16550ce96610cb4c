//! The queries of a load test: those of files, as a comparison reads them, or a default set for the
//! simulated fleet.
//!
//! A list specifies the weight of each expression and the range up to the present over which it is
//! queried. Without a range it is an instant query. Expressions of dashboards become range queries.

use crate::error::MirrorError;
use crate::questions::reach::CommonTimeRange;
use crate::questions::{
    self, QueryCollection, QueryFileContent, SkippedQuery, VariableLookup, VariableTimes,
};
use std::path::PathBuf;

/// Default range and step of a dashboard panel in milliseconds: Grafana's initial range with 240
/// points.
pub const PANEL_MS: (i64, i64) = (3_600_000, 15_000);

/// A query of a load test with its weight and range, as it is sent to the system.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadQuery {
    /// The PromQL expression, as sent to the system.
    pub expression: String,
    /// Relative frequency of the query, compared with the weights of all queries.
    pub weight: f64,
    /// Range up to the present and step in milliseconds; `None` for an instant query.
    pub range_ms: Option<(i64, i64)>,
}

/// The default queries for the simulated fleet, typical of its dashboards and rules.
const OF_FLEET: &str = "\
weight=4 range=1h sum by (namespace) (rate(http_requests_total[5m]))
weight=4 range=1h histogram_quantile(0.99, sum by (le, deployment) (rate(http_request_duration_seconds_bucket[5m])))
weight=2 range=6h sum by (code) (rate(http_requests_total[5m]))
weight=2 range=1h topk(10, sum by (deployment) (rate(container_cpu_usage_seconds_total[5m])))
weight=2 range=1h sum by (deployment) (rate(http_requests_total{code=~\"5..\"}[5m])) / sum by (deployment) (rate(http_requests_total[5m]))
weight=3 sum(rate(http_requests_total[1m]))
weight=3 count by (namespace) (up)
weight=1 max by (deployment) (max_over_time(container_memory_working_set_bytes[10m]))
";

/// A [`VariableLookup`] for texts without variables, which returns nothing because it is never
/// needed.
struct EmptyLookup;

impl VariableLookup for EmptyLookup {
    fn label_names(&self, _: Option<&str>) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn label_values(&self, _: &str, _: Option<&str>) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn query_result(&self, _: &str) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}

/// Reads query files. Returns their queries, and separately the dashboards, whose variables must be
/// resolved in a system. Fails with the first text that is not a valid query.
pub fn read(paths: &[PathBuf]) -> Result<(Vec<LoadQuery>, Vec<QueryFileContent>), MirrorError> {
    let is_dashboard = |source: &QueryFileContent| matches!(source, QueryFileContent::Dashboard(_));
    let (dashboards, texts): (Vec<_>, Vec<_>) =
        questions::read(paths)?.into_iter().partition(is_dashboard);
    let asked = collect_queries(&texts)?;
    Ok((asked, dashboards))
}

/// Returns the default queries for the simulated fleet, which presets use without `--queries`.
pub fn default_fleet_queries() -> Vec<LoadQuery> {
    let texts = questions::list::read(OF_FLEET, "fleet").expect("a test reads it");
    collect_queries(&[QueryFileContent::Texts(texts)]).expect("a test reads it")
}

fn collect_queries(texts: &[QueryFileContent]) -> Result<Vec<LoadQuery>, MirrorError> {
    let times = VariableTimes {
        start_ms: 0,
        end_ms: 0,
        step_ms: 0,
    };
    let found = QueryCollection::gather(texts, Vec::new(), &EmptyLookup, &times);
    match found.unasked.first() {
        Some(unasked) => Err(MirrorError::Usage(format!(
            "{}: {}: {}",
            unasked.origin, unasked.text, unasked.reason
        ))),
        None => Ok(asked(found.questions, None)),
    }
}

/// Returns the queries of `dashboards` with the variable values that `lookup` finds, and the
/// expressions that cannot be queried.
pub fn load_dashboards(
    dashboards: &[QueryFileContent],
    lookup: &dyn VariableLookup,
    stretch: CommonTimeRange,
) -> (Vec<LoadQuery>, Vec<SkippedQuery>) {
    let times = VariableTimes {
        start_ms: stretch.start_ms,
        end_ms: stretch.end_ms,
        step_ms: PANEL_MS.1,
    };
    let found = QueryCollection::gather(dashboards, Vec::new(), lookup, &times);
    (asked(found.questions, Some(PANEL_MS)), found.unasked)
}

fn asked(
    questions: Vec<questions::CollectedQuery>,
    range_ms: Option<(i64, i64)>,
) -> Vec<LoadQuery> {
    let question = |question: questions::CollectedQuery| LoadQuery {
        expression: question.text,
        weight: question.weight,
        range_ms: question.range_ms.or(range_ms),
    };
    questions.into_iter().map(question).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_a_fleet_are_read() {
        assert_eq!(default_fleet_queries().len(), OF_FLEET.lines().count());
    }

    #[test]
    fn files_of_every_kind_are_questions_of_a_load() {
        let dir = tempfile::tempdir().unwrap();
        let read_one = |text: &str| {
            let path = dir.path().join("file");
            std::fs::write(&path, text).unwrap();
            read(&[path]).map_err(|e| e.to_string())
        };
        let question = |expression: &str, weight, range_ms| LoadQuery {
            expression: expression.to_owned(),
            weight,
            range_ms,
        };
        for (text, expected) in [
            (
                "weight=2 range=1h up\n",
                question("up", 2.0, Some((3_600_000, 15_000))),
            ),
            (
                "groups: [{rules: [{record: r, expr: sum(x)}]}]",
                question("sum(x)", 1.0, None),
            ),
            (
                "{\"params\":{\"query\":\"up\"}}\n{\"params\":{\"query\":\"up\"}}\n",
                question("up", 2.0, None),
            ),
            (
                "{\"params\":{\"query\":\"up\",\"start\":\"2024-01-02T03:04:05.5Z\",\
                 \"end\":\"2024-01-02T04:04:05.5Z\",\"step\":60}}\n\
                 {\"params\":{\"query\":\"up\",\"start\":\"2024-01-03T03:04:05Z\",\
                 \"end\":\"2024-01-03T04:04:05Z\",\"step\":60}}\n",
                question("up", 2.0, Some((3_600_000, 60_000))),
            ),
            (
                "{\"params\":{\"query\":\"up\",\"start\":\"2024-01-02T03:04:05Z\",\
                 \"end\":\"2024-01-02T03:04:05Z\",\"step\":0}}\n{\"params\":{}}\n",
                question("up", 1.0, None),
            ),
        ] {
            assert_eq!(
                read_one(text).unwrap(),
                (vec![expected], Vec::new()),
                "{text}"
            );
        }
        let board = "{\"panels\": [{\"targets\": [{\"expr\": \"rate(x[$__interval])\"},\
                     {\"expr\": \"$none\"}]}]}";
        let (questions, dashboards) = read_one(board).unwrap();
        assert_eq!(questions, []);
        let stretch = CommonTimeRange {
            start_ms: 0,
            end_ms: PANEL_MS.0,
        };
        let (asked, unasked) = load_dashboards(&dashboards, &EmptyLookup, stretch);
        assert_eq!(asked, [question("rate(x[15s])", 1.0, Some(PANEL_MS))]);
        assert_eq!(unasked.len(), 1);
        let e = read_one("up\nsum(\n").unwrap_err();
        assert!(e.contains("file:2: sum(: not PromQL: "), "{e}");
    }
}
