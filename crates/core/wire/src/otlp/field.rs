//! Field numbers of the OTLP messages (`opentelemetry/proto/metrics/v1/metrics.proto` and the files
//! that it imports).

pub(super) mod request {
    pub const RESOURCE_METRICS: u32 = 1;
}

pub(super) mod resource_metrics {
    pub const RESOURCE: u32 = 1;
    pub const SCOPE_METRICS: u32 = 2;
}

pub(super) mod resource {
    pub const ATTRIBUTES: u32 = 1;
}

pub(super) mod scope_metrics {
    pub const SCOPE: u32 = 1;
    pub const METRICS: u32 = 2;
    pub const SCHEMA_URL: u32 = 3;
}

pub(super) mod scope {
    pub const NAME: u32 = 1;
    pub const VERSION: u32 = 2;
    pub const ATTRIBUTES: u32 = 3;
}

pub(super) mod metric {
    pub const NAME: u32 = 1;
    pub const DESCRIPTION: u32 = 2;
    pub const UNIT: u32 = 3;
    pub const GAUGE: u32 = 5;
    pub const SUM: u32 = 7;
    pub const HISTOGRAM: u32 = 9;
    pub const EXPONENTIAL_HISTOGRAM: u32 = 10;
    pub const SUMMARY: u32 = 11;
}

/// Fields of the data of all kinds of metrics.
pub(super) mod data {
    pub const POINTS: u32 = 1;
    pub const TEMPORALITY: u32 = 2;
    pub const IS_MONOTONIC: u32 = 3;
}

/// Fields that all kinds of points share.
pub(super) mod point {
    pub const START_TIME: u32 = 2;
    pub const TIME: u32 = 3;
}

pub(super) mod number {
    pub const AS_DOUBLE: u32 = 4;
    pub const EXEMPLARS: u32 = 5;
    pub const AS_INT: u32 = 6;
    pub const ATTRIBUTES: u32 = 7;
    pub const FLAGS: u32 = 8;
}

pub(super) mod explicit {
    pub const COUNT: u32 = 4;
    pub const SUM: u32 = 5;
    pub const BUCKET_COUNTS: u32 = 6;
    pub const BOUNDS: u32 = 7;
    pub const EXEMPLARS: u32 = 8;
    pub const ATTRIBUTES: u32 = 9;
    pub const FLAGS: u32 = 10;
}

pub(super) mod exponential {
    pub const ATTRIBUTES: u32 = 1;
    pub const COUNT: u32 = 4;
    pub const SUM: u32 = 5;
    pub const SCALE: u32 = 6;
    pub const ZERO_COUNT: u32 = 7;
    pub const POSITIVE: u32 = 8;
    pub const NEGATIVE: u32 = 9;
    pub const FLAGS: u32 = 10;
    pub const EXEMPLARS: u32 = 11;
    pub const ZERO_THRESHOLD: u32 = 14;
}

pub(super) mod buckets {
    pub const OFFSET: u32 = 1;
    pub const COUNTS: u32 = 2;
}

pub(super) mod summary {
    pub const COUNT: u32 = 4;
    pub const SUM: u32 = 5;
    pub const QUANTILES: u32 = 6;
    pub const ATTRIBUTES: u32 = 7;
    pub const FLAGS: u32 = 8;
}

pub(super) mod quantile {
    pub const QUANTILE: u32 = 1;
    pub const VALUE: u32 = 2;
}

pub(super) mod exemplar {
    pub const TIME: u32 = 2;
    pub const AS_DOUBLE: u32 = 3;
    pub const SPAN_ID: u32 = 4;
    pub const TRACE_ID: u32 = 5;
    pub const AS_INT: u32 = 6;
    pub const ATTRIBUTES: u32 = 7;
}

pub(super) mod key_value {
    pub const KEY: u32 = 1;
    pub const VALUE: u32 = 2;
}

pub(super) mod value {
    pub const STRING: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const INT: u32 = 3;
    pub const DOUBLE: u32 = 4;
    pub const ARRAY: u32 = 5;
    pub const PAIRS: u32 = 6;
    pub const BYTES: u32 = 7;
}

/// Fields of `ArrayValue` and `KeyValueList`.
pub(super) mod list {
    pub const VALUES: u32 = 1;
}

pub(super) mod response {
    pub const PARTIAL_SUCCESS: u32 = 1;
    pub const REJECTED: u32 = 1;
    pub const MESSAGE: u32 = 2;
}

/// Fields of `google.rpc.Status`.
pub(super) mod status {
    pub const CODE: u32 = 1;
    pub const MESSAGE: u32 = 2;
}
