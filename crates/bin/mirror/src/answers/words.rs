//! Building blocks of random expressions: selectors, functions, durations and operators. The
//! metrics are those of the test data.
//!
//! Functions are those of Prometheus only, because the expressions are also evaluated there. An
//! addition changes the expressions of all recorded seeds.

pub(super) const VECTORS: [&str; 16] = [
    "http_requests_total",
    "http_requests_total{code=\"200\"}",
    "http_requests_total{job=~\"api|web\",code!=\"500\"}",
    "cpu_seconds_total",
    "memory_bytes",
    "memory_bytes{job=\"api\"}",
    "temperature_celsius",
    "queue_length",
    "request_seconds_bucket",
    "up",
    "sparse",
    "flapping",
    "some_nan",
    "cores",
    "typed_seconds_total",
    "{__type__=~\"gauge|counter\"}",
];

/// Native histograms, and series that contain both floats and native histograms.
pub(super) const HISTOGRAMS: [&str; 6] = [
    "latency_seconds",
    "latency_seconds{job=\"api\"}",
    "size_bytes",
    "temperatures",
    "mixed_kinds",
    "{\"grün.metric\"}",
];

pub(super) const WINDOWS: [&str; 6] = ["30s", "1m", "95s", "5m", "12m", "40m"];

pub(super) const OFFSETS: [&str; 5] = ["1m", "7m", "-2m", "90s", "33s"];

/// Duration expressions in which `D` is replaced by a plain duration.
pub(super) const DURATIONS: [&str; 7] = [
    "(D * 2)",
    "(D + 30s)",
    "(D / 3 + 1s)",
    "max_of(D, step())",
    "min_of(D, 4m)",
    "(D + step())",
    "(D + range() / 10)",
];

pub(super) const RANGE_FUNCTIONS: [&str; 16] = [
    "rate",
    "increase",
    "irate",
    "delta",
    "idelta",
    "deriv",
    "changes",
    "resets",
    "avg_over_time",
    "sum_over_time",
    "min_over_time",
    "max_over_time",
    "count_over_time",
    "last_over_time",
    "stddev_over_time",
    "present_over_time",
];

pub(super) const MORE_RANGE_FUNCTIONS: [&str; 7] = [
    "first_over_time",
    "stdvar_over_time",
    "mad_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
    "ts_of_max_over_time",
    "ts_of_min_over_time",
];

pub(super) const VECTOR_FUNCTIONS: [&str; 10] = [
    "abs",
    "ceil",
    "floor",
    "sgn",
    "sqrt",
    "round",
    "timestamp",
    "-",
    "absent",
    "sort",
];

pub(super) const MORE_VECTOR_FUNCTIONS: [&str; 12] = [
    "start_timestamp",
    "sort_desc",
    "log2",
    "ln",
    "deg",
    "rad",
    "sin",
    "tanh",
    "day_of_year",
    "minute",
    "histogram_count",
    "+",
];

pub(super) const HISTOGRAM_FUNCTIONS: [&str; 7] = [
    "histogram_quantile",
    "histogram_fraction",
    "histogram_count",
    "histogram_sum",
    "histogram_avg",
    "histogram_stddev",
    "histogram_stdvar",
];

pub(super) const MORE_HISTOGRAM_FUNCTIONS: [&str; 1] = ["histogram_quantiles"];

pub(super) const QUANTILES: [&str; 7] = ["0.5", "0.9", "0", "1", "-1", "1.5", "NaN"];

pub(super) const AGGREGATIONS: [&str; 8] = [
    "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar",
];

pub(super) const GROUPINGS: [&str; 8] = [
    "",
    "by (job) ",
    "by (instance) ",
    "by (job, code) ",
    "by (le) ",
    "without (instance) ",
    "without (code, instance) ",
    "by (nothing) ",
];

pub(super) const ARITHMETIC: [&str; 6] = ["+", "-", "*", "/", "%", "> bool"];

pub(super) const MORE_ARITHMETIC: [&str; 6] = ["^", "atan2", "== bool", "<= bool", "</", ">/"];

pub(super) const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];

pub(super) const SETS: [&str; 3] = ["and", "or", "unless"];

pub(super) const MATCHINGS: [&str; 5] = [
    "",
    "on (instance) ",
    "on (job, instance) ",
    "ignoring (code) ",
    "on (instance) group_left () ",
];

pub(super) const FILLS: [&str; 6] = [
    "fill (0) ",
    "fill_left (-1) ",
    "fill_right (2.5) ",
    "fill_left (1) fill_right (3) ",
    "fill (NaN) ",
    "fill_right (Inf) ",
];

pub(super) const SCALARS: [&str; 7] = ["0", "1", "-2.5", "1e3", "0.5", "time()", "NaN"];

pub(super) const MORE_SCALARS: [&str; 8] = [
    "step()",
    "range()",
    "(end() - start())",
    "max_of(3, 4)",
    "min_of(step(), 7)",
    "scalar(cores{instance=\"a:80\"})",
    "5m",
    "pi()",
];

pub(super) const INFO_SELECTORS: [&str; 6] = [
    "",
    "{version=~\".+\"}",
    "{__name__=\"build_info\"}",
    "{__name__=~\".+_info\",zone=~\".*\"}",
    "{__name__!=\"target_info\"}",
    "{zone=\"east\"}",
];

/// Label functions; `V` is replaced by an instant vector.
pub(super) const RELABELLINGS: [&str; 6] = [
    "label_replace(V, \"port\", \"$1\", \"instance\", \".*:(.*)\")",
    "label_replace(V, \"job\", \"x\", \"job\", \"a.*\")",
    "label_replace(V, \"__name__\", \"renamed_$1\", \"job\", \"(.*)\")",
    "label_join(V, \"both\", \"-\", \"job\", \"instance\")",
    "label_join(V, \"__name__\", \"_\", \"job\", \"__name__\")",
    "sum by (__name__) (V)",
];

pub(super) const MORE_RELABELLINGS: [&str; 2] = [
    "sort_by_label(V, \"instance\", \"code\")",
    "sort_by_label_desc(V, \"job\")",
];

/// Pieces that are inserted into expressions in order to break them.
pub(super) const PIECES: [&str; 60] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "'",
    "`",
    "#",
    "@",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "=",
    "==",
    "!=",
    "=~",
    "!~",
    "<",
    ">=",
    "</",
    "sum",
    "by",
    "without",
    "on",
    "ignoring",
    "bool",
    "group_left",
    "offset",
    "rate",
    "info",
    "limitk",
    "start",
    "end",
    "step",
    "max_of",
    "fill",
    "fill_left",
    "anchored",
    "smoothed",
    "and",
    "unless",
    "atan2",
    "0",
    "5m",
    "-1",
    "1e400",
    "0x",
    "NaN",
    "up",
    "\"a\"",
    "ü",
    "\\",
    " ",
];
