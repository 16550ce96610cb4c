//! Tables of the OTLP messages: names and types of their fields, for the JSON transcoder.

use super::field as f;

/// A message type, described by its fields. The tables are constants that refer to each other. The
/// transcoder follows them while it reads the text.
#[derive(Debug)]
pub(super) struct Message(pub &'static [Field]);

/// A field of a message, with its names in JSON and its number in protobuf. Fields that are not
/// listed are skipped.
#[derive(Debug)]
pub(super) struct Field {
    /// Name of the field in JSON (lower camel case).
    pub name: &'static str,
    /// Name of the field in the `.proto` file, which JSON may use too.
    pub plain_name: &'static str,
    /// Field number in the protobuf message.
    pub number: u32,
    /// Type of the field, or of its elements.
    pub kind: Kind,
    /// True if the field is repeated.
    pub is_list: bool,
}

/// The type of a field, which decides how its JSON value is parsed and encoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A nested message, encoded as a JSON object.
    Message(&'static Message),
    /// A string, encoded as a JSON string.
    Text,
    /// Bytes, encoded in base64 as usual for protobuf.
    Bytes,
    /// Bytes, encoded in hexadecimal digits as OTLP requires for ids.
    Hex,
    /// A boolean, encoded as a JSON boolean.
    Bool,
    /// An unsigned varint, from a JSON number or string.
    Unsigned,
    /// A signed varint, from a JSON number or string.
    Signed,
    /// A signed 32-bit integer in zigzag encoding.
    Zigzag,
    /// An aggregation temporality, by number or name.
    Temporality,
    /// An unsigned integer of eight bytes, from a JSON number or string.
    Fixed,
    /// A signed integer of eight bytes, from a JSON number or string.
    SignedFixed,
    /// A float of eight bytes, from a JSON number or string.
    Double,
}

/// Names of the aggregation temporalities, indexed by their numbers.
pub(super) const TEMPORALITIES: [&str; 3] = [
    "AGGREGATION_TEMPORALITY_UNSPECIFIED",
    "AGGREGATION_TEMPORALITY_DELTA",
    "AGGREGATION_TEMPORALITY_CUMULATIVE",
];

const fn one(name: &'static str, plain_name: &'static str, number: u32, kind: Kind) -> Field {
    Field {
        name,
        plain_name,
        number,
        kind,
        is_list: false,
    }
}

const fn many(name: &'static str, plain_name: &'static str, number: u32, kind: Kind) -> Field {
    Field {
        name,
        plain_name,
        number,
        kind,
        is_list: true,
    }
}

pub(super) static REQUEST: Message = Message(&[many(
    "resourceMetrics",
    "resource_metrics",
    f::request::RESOURCE_METRICS,
    Kind::Message(&RESOURCE_METRICS),
)]);

static RESOURCE_METRICS: Message = Message(&[
    one(
        "resource",
        "resource",
        f::resource_metrics::RESOURCE,
        Kind::Message(&RESOURCE),
    ),
    many(
        "scopeMetrics",
        "scope_metrics",
        f::resource_metrics::SCOPE_METRICS,
        Kind::Message(&SCOPE_METRICS),
    ),
]);

static RESOURCE: Message = Message(&[attributes(f::resource::ATTRIBUTES)]);

const fn attributes(number: u32) -> Field {
    many(
        "attributes",
        "attributes",
        number,
        Kind::Message(&KEY_VALUE),
    )
}

static SCOPE_METRICS: Message = Message(&[
    one(
        "scope",
        "scope",
        f::scope_metrics::SCOPE,
        Kind::Message(&SCOPE),
    ),
    many(
        "metrics",
        "metrics",
        f::scope_metrics::METRICS,
        Kind::Message(&METRIC),
    ),
    one(
        "schemaUrl",
        "schema_url",
        f::scope_metrics::SCHEMA_URL,
        Kind::Text,
    ),
]);

static SCOPE: Message = Message(&[
    one("name", "name", f::scope::NAME, Kind::Text),
    one("version", "version", f::scope::VERSION, Kind::Text),
    attributes(f::scope::ATTRIBUTES),
]);

static METRIC: Message = Message(&[
    one("name", "name", f::metric::NAME, Kind::Text),
    one(
        "description",
        "description",
        f::metric::DESCRIPTION,
        Kind::Text,
    ),
    one("unit", "unit", f::metric::UNIT, Kind::Text),
    one("gauge", "gauge", f::metric::GAUGE, Kind::Message(&NUMBERS)),
    one("sum", "sum", f::metric::SUM, Kind::Message(&NUMBERS)),
    one(
        "histogram",
        "histogram",
        f::metric::HISTOGRAM,
        Kind::Message(&EXPLICITS),
    ),
    one(
        "exponentialHistogram",
        "exponential_histogram",
        f::metric::EXPONENTIAL_HISTOGRAM,
        Kind::Message(&EXPONENTIALS),
    ),
    one(
        "summary",
        "summary",
        f::metric::SUMMARY,
        Kind::Message(&SUMMARIES),
    ),
]);

const fn points(message: &'static Message) -> Field {
    many(
        "dataPoints",
        "data_points",
        f::data::POINTS,
        Kind::Message(message),
    )
}

const TEMPORALITY: Field = one(
    "aggregationTemporality",
    "aggregation_temporality",
    f::data::TEMPORALITY,
    Kind::Temporality,
);

static NUMBERS: Message = Message(&[
    points(&NUMBER),
    TEMPORALITY,
    one(
        "isMonotonic",
        "is_monotonic",
        f::data::IS_MONOTONIC,
        Kind::Bool,
    ),
]);

static EXPLICITS: Message = Message(&[points(&EXPLICIT), TEMPORALITY]);

static EXPONENTIALS: Message = Message(&[points(&EXPONENTIAL), TEMPORALITY]);

static SUMMARIES: Message = Message(&[points(&SUMMARY)]);

const START_TIME: Field = one(
    "startTimeUnixNano",
    "start_time_unix_nano",
    f::point::START_TIME,
    Kind::Fixed,
);

const fn time(number: u32) -> Field {
    one("timeUnixNano", "time_unix_nano", number, Kind::Fixed)
}

const TIME: Field = time(f::point::TIME);

const fn exemplars(number: u32) -> Field {
    many("exemplars", "exemplars", number, Kind::Message(&EXEMPLAR))
}

const fn as_double(number: u32) -> Field {
    one("asDouble", "as_double", number, Kind::Double)
}

const fn as_int(number: u32) -> Field {
    one("asInt", "as_int", number, Kind::SignedFixed)
}

static NUMBER: Message = Message(&[
    attributes(f::number::ATTRIBUTES),
    START_TIME,
    TIME,
    as_double(f::number::AS_DOUBLE),
    as_int(f::number::AS_INT),
    exemplars(f::number::EXEMPLARS),
    one("flags", "flags", f::number::FLAGS, Kind::Unsigned),
]);

static EXPLICIT: Message = Message(&[
    attributes(f::explicit::ATTRIBUTES),
    START_TIME,
    TIME,
    one("count", "count", f::explicit::COUNT, Kind::Fixed),
    one("sum", "sum", f::explicit::SUM, Kind::Double),
    many(
        "bucketCounts",
        "bucket_counts",
        f::explicit::BUCKET_COUNTS,
        Kind::Fixed,
    ),
    many(
        "explicitBounds",
        "explicit_bounds",
        f::explicit::BOUNDS,
        Kind::Double,
    ),
    exemplars(f::explicit::EXEMPLARS),
    one("flags", "flags", f::explicit::FLAGS, Kind::Unsigned),
]);

static EXPONENTIAL: Message = Message(&[
    attributes(f::exponential::ATTRIBUTES),
    START_TIME,
    TIME,
    one("count", "count", f::exponential::COUNT, Kind::Fixed),
    one("sum", "sum", f::exponential::SUM, Kind::Double),
    one("scale", "scale", f::exponential::SCALE, Kind::Zigzag),
    one(
        "zeroCount",
        "zero_count",
        f::exponential::ZERO_COUNT,
        Kind::Fixed,
    ),
    one(
        "positive",
        "positive",
        f::exponential::POSITIVE,
        Kind::Message(&BUCKETS),
    ),
    one(
        "negative",
        "negative",
        f::exponential::NEGATIVE,
        Kind::Message(&BUCKETS),
    ),
    one("flags", "flags", f::exponential::FLAGS, Kind::Unsigned),
    exemplars(f::exponential::EXEMPLARS),
    one(
        "zeroThreshold",
        "zero_threshold",
        f::exponential::ZERO_THRESHOLD,
        Kind::Double,
    ),
]);

static BUCKETS: Message = Message(&[
    one("offset", "offset", f::buckets::OFFSET, Kind::Zigzag),
    many(
        "bucketCounts",
        "bucket_counts",
        f::buckets::COUNTS,
        Kind::Unsigned,
    ),
]);

static SUMMARY: Message = Message(&[
    attributes(f::summary::ATTRIBUTES),
    START_TIME,
    TIME,
    one("count", "count", f::summary::COUNT, Kind::Fixed),
    one("sum", "sum", f::summary::SUM, Kind::Double),
    many(
        "quantileValues",
        "quantile_values",
        f::summary::QUANTILES,
        Kind::Message(&QUANTILE),
    ),
    one("flags", "flags", f::summary::FLAGS, Kind::Unsigned),
]);

static QUANTILE: Message = Message(&[
    one("quantile", "quantile", f::quantile::QUANTILE, Kind::Double),
    one("value", "value", f::quantile::VALUE, Kind::Double),
]);

static EXEMPLAR: Message = Message(&[
    many(
        "filteredAttributes",
        "filtered_attributes",
        f::exemplar::ATTRIBUTES,
        Kind::Message(&KEY_VALUE),
    ),
    time(f::exemplar::TIME),
    as_double(f::exemplar::AS_DOUBLE),
    as_int(f::exemplar::AS_INT),
    one("traceId", "trace_id", f::exemplar::TRACE_ID, Kind::Hex),
    one("spanId", "span_id", f::exemplar::SPAN_ID, Kind::Hex),
]);

static KEY_VALUE: Message = Message(&[
    one("key", "key", f::key_value::KEY, Kind::Text),
    one("value", "value", f::key_value::VALUE, Kind::Message(&VALUE)),
]);

pub(super) static VALUE: Message = Message(&[
    one("stringValue", "string_value", f::value::STRING, Kind::Text),
    one("boolValue", "bool_value", f::value::BOOL, Kind::Bool),
    one("intValue", "int_value", f::value::INT, Kind::Signed),
    one(
        "doubleValue",
        "double_value",
        f::value::DOUBLE,
        Kind::Double,
    ),
    one(
        "arrayValue",
        "array_value",
        f::value::ARRAY,
        Kind::Message(&VALUES),
    ),
    one(
        "kvlistValue",
        "kvlist_value",
        f::value::PAIRS,
        Kind::Message(&PAIRS),
    ),
    one("bytesValue", "bytes_value", f::value::BYTES, Kind::Bytes),
]);

static VALUES: Message = Message(&[many(
    "values",
    "values",
    f::list::VALUES,
    Kind::Message(&VALUE),
)]);

static PAIRS: Message = Message(&[many(
    "values",
    "values",
    f::list::VALUES,
    Kind::Message(&KEY_VALUE),
)]);
