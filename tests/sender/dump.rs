//! Samples by series and time, parsed from `promtool tsdb dump` and from answers of the query API.

use firn_promql::parser::parse_selector;
use serde_json::Value;
use std::collections::BTreeMap;

/// A value as its bits. All NaNs are equal, because a dump does not distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits(u64);

impl Bits {
    fn parse(text: &str) -> Bits {
        let value: f64 = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        Bits(if value.is_nan() { f64::NAN } else { value }.to_bits())
    }

    fn is_nan(self) -> bool {
        f64::from_bits(self.0).is_nan()
    }
}

impl std::fmt::Display for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f64::from_bits(self.0).fmt(f)
    }
}

/// Label pairs sorted by name.
pub type Labels = BTreeMap<String, String>;

/// The samples of one series by time in milliseconds.
pub type Samples = BTreeMap<i64, Bits>;

/// Samples by series.
pub type Series = BTreeMap<Labels, Samples>;

/// Parses lines like `{__name__="up", job="node"} 1 1700000000000`.
pub fn from_dump(text: &str) -> Series {
    let mut series = Series::new();
    for line in text.lines() {
        let mut parts = line.rsplitn(3, ' ');
        let (Some(time), Some(value), Some(labels)) = (parts.next(), parts.next(), parts.next())
        else {
            panic!("not a line of a dump: {line}");
        };
        // A label set in Go's quoting is a valid selector too.
        let matchers = parse_selector(labels).unwrap_or_else(|e| panic!("{labels}: {e}"));
        let pair = |m: &firn_model::matcher::Matcher| {
            let value = String::from_utf8(m.value().to_vec()).expect("labels are text");
            (m.name().to_owned(), value)
        };
        let samples: &mut Samples = series
            .entry(matchers.iter().map(pair).collect())
            .or_default();
        samples.insert(time.parse().unwrap(), Bits::parse(value));
    }
    series
}

/// Parses the result of an instant query of a range selector.
pub fn from_answer(answer: &Value) -> Series {
    let result = answer["data"]["result"].as_array();
    let result = result.unwrap_or_else(|| panic!("not a matrix: {answer}"));
    let text = |v: &Value| {
        v.as_str()
            .expect("labels and values are strings")
            .to_owned()
    };
    let sample = |sample: &Value| {
        let seconds = sample[0].as_f64().expect("times are numbers");
        (
            (seconds * 1000.0).round() as i64,
            Bits::parse(&text(&sample[1])),
        )
    };
    result
        .iter()
        .map(|series| {
            let labels = series["metric"].as_object().expect("labels");
            let values = series["values"].as_array().expect("samples");
            (
                labels.iter().map(|(n, v)| (n.clone(), text(v))).collect(),
                values.iter().map(sample).collect(),
            )
        })
        .collect()
}

/// Returns whether the sample at `time_ms` may be a staleness marker, which no query returns: it is
/// a NaN, and the sample before it is not.
pub fn may_be_marker(samples: &Samples, time_ms: i64) -> bool {
    let before = samples.range(..time_ms).next_back();
    samples.get(&time_ms).is_some_and(|v| v.is_nan()) && before.is_some_and(|(_, v)| !v.is_nan())
}
