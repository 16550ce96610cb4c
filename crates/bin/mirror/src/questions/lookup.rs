//! Looks up label names, label values and query results in a system, limited to a stretch of time.

use super::VariableLookup;
use super::reach::CommonTimeRange;
use crate::api::{label_values, seconds};
use crate::judge::answer::{AnswerData, AnswerPoint, AnswerPointValue, ApiAnswer, series_text};

/// Requests an endpoint below `/api/v1` and returns the response body, or a description of the
/// failure.
pub type Fetch<'a> = dyn Fn(&str, &[(&'static str, String)]) -> Result<Vec<u8>, String> + 'a;

/// A [`VariableLookup`] that requests names and values from a system, limited to a stretch of time.
#[derive(Clone, Copy)]
pub struct SystemLookup<'a> {
    /// Sends a request to the system and returns the body of its response.
    pub fetch: &'a Fetch<'a>,
    /// The time range to which lookups of names are limited.
    pub stretch: CommonTimeRange,
}

impl SystemLookup<'_> {
    fn names(&self, endpoint: &str, selector: Option<&str>) -> Result<Vec<String>, String> {
        let mut params = vec![
            ("start", seconds(self.stretch.start_ms)),
            ("end", seconds(self.stretch.end_ms)),
        ];
        params.extend(selector.map(|selector| ("match[]", selector.to_owned())));
        let body = (self.fetch)(endpoint, &params)?;
        match ApiAnswer::parse(&body)?.success()?.data {
            AnswerData::Other(names) => {
                let names = names.as_array().into_iter().flatten();
                Ok(names
                    .filter_map(|name| name.as_str().map(str::to_owned))
                    .collect())
            }
            _ => Err("not a list of names".to_owned()),
        }
    }
}

impl VariableLookup for SystemLookup<'_> {
    fn label_names(&self, selector: Option<&str>) -> Result<Vec<String>, String> {
        self.names("labels", selector)
    }

    fn label_values(&self, label: &str, selector: Option<&str>) -> Result<Vec<String>, String> {
        self.names(&label_values(label), selector)
    }

    fn query_result(&self, expression: &str) -> Result<Vec<String>, String> {
        let time = seconds(self.stretch.end_ms);
        let params = [("query", expression.to_owned()), ("time", time)];
        let body = (self.fetch)("query", &params)?;
        let line = |labels: &str, point: &AnswerPoint<'_>| match point.value {
            AnswerPointValue::Float(value) => format!("{labels} {value} {}", point.time_ms),
            AnswerPointValue::Histogram(_) => labels.to_owned(),
        };
        Ok(match ApiAnswer::parse(&body)?.success()?.data {
            AnswerData::Series(series) => {
                let lines = series.iter().filter_map(|series| {
                    Some(line(&series_text(&series.labels), series.points.first()?))
                });
                lines.collect()
            }
            AnswerData::Scalar(point) => vec![line("", &point).trim_start().to_owned()],
            AnswerData::Other(_) => Vec::new(),
        })
    }
}
