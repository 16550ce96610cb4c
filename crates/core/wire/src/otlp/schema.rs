//! Tables of the OTLP messages: names and types of their fields, for the JSON transcoder.

use super::field as f;

/// A message type, described by its fields. The tables are constants that refer to each other. The
/// transcoder follows them while it reads the text.
#[derive(Debug)]
pub(super) struct OtlpMessageSchema(pub &'static [OtlpFieldSchema]);

/// A field of a message, with its names in JSON and its number in protobuf. Fields that are not
/// listed are skipped.
#[derive(Debug)]
pub(super) struct OtlpFieldSchema {
    /// Name of the field in JSON (lower camel case).
    pub name: &'static str,
    /// Name of the field in the `.proto` file, which JSON may use too.
    pub plain_name: &'static str,
    /// Field number in the protobuf message.
    pub number: u32,
    /// Type of the field, or of its elements.
    pub kind: OtlpFieldKind,
    /// True if the field is repeated.
    pub is_list: bool,
}

/// The type of a field, which decides how its JSON value is parsed and encoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum OtlpFieldKind {
    /// A nested message, encoded as a JSON object.
    Message(&'static OtlpMessageSchema),
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

const fn one(
    name: &'static str,
    plain_name: &'static str,
    number: u32,
    kind: OtlpFieldKind,
) -> OtlpFieldSchema {
    OtlpFieldSchema {
        name,
        plain_name,
        number,
        kind,
        is_list: false,
    }
}

const fn many(
    name: &'static str,
    plain_name: &'static str,
    number: u32,
    kind: OtlpFieldKind,
) -> OtlpFieldSchema {
    OtlpFieldSchema {
        name,
        plain_name,
        number,
        kind,
        is_list: true,
    }
}

pub(super) static REQUEST: OtlpMessageSchema = OtlpMessageSchema(&[many(
    "resourceMetrics",
    "resource_metrics",
    f::request::RESOURCE_METRICS,
    OtlpFieldKind::Message(&RESOURCE_METRICS),
)]);

static RESOURCE_METRICS: OtlpMessageSchema = OtlpMessageSchema(&[
    one(
        "resource",
        "resource",
        f::resource_metrics::RESOURCE,
        OtlpFieldKind::Message(&RESOURCE),
    ),
    many(
        "scopeMetrics",
        "scope_metrics",
        f::resource_metrics::SCOPE_METRICS,
        OtlpFieldKind::Message(&SCOPE_METRICS),
    ),
]);

static RESOURCE: OtlpMessageSchema = OtlpMessageSchema(&[attributes(f::resource::ATTRIBUTES)]);

const fn attributes(number: u32) -> OtlpFieldSchema {
    many(
        "attributes",
        "attributes",
        number,
        OtlpFieldKind::Message(&KEY_VALUE),
    )
}

static SCOPE_METRICS: OtlpMessageSchema = OtlpMessageSchema(&[
    one(
        "scope",
        "scope",
        f::scope_metrics::SCOPE,
        OtlpFieldKind::Message(&SCOPE),
    ),
    many(
        "metrics",
        "metrics",
        f::scope_metrics::METRICS,
        OtlpFieldKind::Message(&METRIC),
    ),
    one(
        "schemaUrl",
        "schema_url",
        f::scope_metrics::SCHEMA_URL,
        OtlpFieldKind::Text,
    ),
]);

static SCOPE: OtlpMessageSchema = OtlpMessageSchema(&[
    one("name", "name", f::scope::NAME, OtlpFieldKind::Text),
    one("version", "version", f::scope::VERSION, OtlpFieldKind::Text),
    attributes(f::scope::ATTRIBUTES),
]);

static METRIC: OtlpMessageSchema = OtlpMessageSchema(&[
    one("name", "name", f::metric::NAME, OtlpFieldKind::Text),
    one(
        "description",
        "description",
        f::metric::DESCRIPTION,
        OtlpFieldKind::Text,
    ),
    one("unit", "unit", f::metric::UNIT, OtlpFieldKind::Text),
    one(
        "gauge",
        "gauge",
        f::metric::GAUGE,
        OtlpFieldKind::Message(&NUMBERS),
    ),
    one(
        "sum",
        "sum",
        f::metric::SUM,
        OtlpFieldKind::Message(&NUMBERS),
    ),
    one(
        "histogram",
        "histogram",
        f::metric::HISTOGRAM,
        OtlpFieldKind::Message(&EXPLICITS),
    ),
    one(
        "exponentialHistogram",
        "exponential_histogram",
        f::metric::EXPONENTIAL_HISTOGRAM,
        OtlpFieldKind::Message(&EXPONENTIALS),
    ),
    one(
        "summary",
        "summary",
        f::metric::SUMMARY,
        OtlpFieldKind::Message(&SUMMARIES),
    ),
]);

const fn points(message: &'static OtlpMessageSchema) -> OtlpFieldSchema {
    many(
        "dataPoints",
        "data_points",
        f::data::POINTS,
        OtlpFieldKind::Message(message),
    )
}

const TEMPORALITY: OtlpFieldSchema = one(
    "aggregationTemporality",
    "aggregation_temporality",
    f::data::TEMPORALITY,
    OtlpFieldKind::Temporality,
);

static NUMBERS: OtlpMessageSchema = OtlpMessageSchema(&[
    points(&NUMBER),
    TEMPORALITY,
    one(
        "isMonotonic",
        "is_monotonic",
        f::data::IS_MONOTONIC,
        OtlpFieldKind::Bool,
    ),
]);

static EXPLICITS: OtlpMessageSchema = OtlpMessageSchema(&[points(&EXPLICIT), TEMPORALITY]);

static EXPONENTIALS: OtlpMessageSchema = OtlpMessageSchema(&[points(&EXPONENTIAL), TEMPORALITY]);

static SUMMARIES: OtlpMessageSchema = OtlpMessageSchema(&[points(&SUMMARY)]);

const START_TIME: OtlpFieldSchema = one(
    "startTimeUnixNano",
    "start_time_unix_nano",
    f::point::START_TIME,
    OtlpFieldKind::Fixed,
);

const fn time(number: u32) -> OtlpFieldSchema {
    one(
        "timeUnixNano",
        "time_unix_nano",
        number,
        OtlpFieldKind::Fixed,
    )
}

const TIME: OtlpFieldSchema = time(f::point::TIME);

const fn exemplars(number: u32) -> OtlpFieldSchema {
    many(
        "exemplars",
        "exemplars",
        number,
        OtlpFieldKind::Message(&EXEMPLAR),
    )
}

const fn as_double(number: u32) -> OtlpFieldSchema {
    one("asDouble", "as_double", number, OtlpFieldKind::Double)
}

const fn as_int(number: u32) -> OtlpFieldSchema {
    one("asInt", "as_int", number, OtlpFieldKind::SignedFixed)
}

static NUMBER: OtlpMessageSchema = OtlpMessageSchema(&[
    attributes(f::number::ATTRIBUTES),
    START_TIME,
    TIME,
    as_double(f::number::AS_DOUBLE),
    as_int(f::number::AS_INT),
    exemplars(f::number::EXEMPLARS),
    one("flags", "flags", f::number::FLAGS, OtlpFieldKind::Unsigned),
]);

static EXPLICIT: OtlpMessageSchema = OtlpMessageSchema(&[
    attributes(f::explicit::ATTRIBUTES),
    START_TIME,
    TIME,
    one("count", "count", f::explicit::COUNT, OtlpFieldKind::Fixed),
    one("sum", "sum", f::explicit::SUM, OtlpFieldKind::Double),
    many(
        "bucketCounts",
        "bucket_counts",
        f::explicit::BUCKET_COUNTS,
        OtlpFieldKind::Fixed,
    ),
    many(
        "explicitBounds",
        "explicit_bounds",
        f::explicit::BOUNDS,
        OtlpFieldKind::Double,
    ),
    exemplars(f::explicit::EXEMPLARS),
    one(
        "flags",
        "flags",
        f::explicit::FLAGS,
        OtlpFieldKind::Unsigned,
    ),
]);

static EXPONENTIAL: OtlpMessageSchema = OtlpMessageSchema(&[
    attributes(f::exponential::ATTRIBUTES),
    START_TIME,
    TIME,
    one(
        "count",
        "count",
        f::exponential::COUNT,
        OtlpFieldKind::Fixed,
    ),
    one("sum", "sum", f::exponential::SUM, OtlpFieldKind::Double),
    one(
        "scale",
        "scale",
        f::exponential::SCALE,
        OtlpFieldKind::Zigzag,
    ),
    one(
        "zeroCount",
        "zero_count",
        f::exponential::ZERO_COUNT,
        OtlpFieldKind::Fixed,
    ),
    one(
        "positive",
        "positive",
        f::exponential::POSITIVE,
        OtlpFieldKind::Message(&BUCKETS),
    ),
    one(
        "negative",
        "negative",
        f::exponential::NEGATIVE,
        OtlpFieldKind::Message(&BUCKETS),
    ),
    one(
        "flags",
        "flags",
        f::exponential::FLAGS,
        OtlpFieldKind::Unsigned,
    ),
    exemplars(f::exponential::EXEMPLARS),
    one(
        "zeroThreshold",
        "zero_threshold",
        f::exponential::ZERO_THRESHOLD,
        OtlpFieldKind::Double,
    ),
]);

static BUCKETS: OtlpMessageSchema = OtlpMessageSchema(&[
    one(
        "offset",
        "offset",
        f::buckets::OFFSET,
        OtlpFieldKind::Zigzag,
    ),
    many(
        "bucketCounts",
        "bucket_counts",
        f::buckets::COUNTS,
        OtlpFieldKind::Unsigned,
    ),
]);

static SUMMARY: OtlpMessageSchema = OtlpMessageSchema(&[
    attributes(f::summary::ATTRIBUTES),
    START_TIME,
    TIME,
    one("count", "count", f::summary::COUNT, OtlpFieldKind::Fixed),
    one("sum", "sum", f::summary::SUM, OtlpFieldKind::Double),
    many(
        "quantileValues",
        "quantile_values",
        f::summary::QUANTILES,
        OtlpFieldKind::Message(&QUANTILE),
    ),
    one("flags", "flags", f::summary::FLAGS, OtlpFieldKind::Unsigned),
]);

static QUANTILE: OtlpMessageSchema = OtlpMessageSchema(&[
    one(
        "quantile",
        "quantile",
        f::quantile::QUANTILE,
        OtlpFieldKind::Double,
    ),
    one("value", "value", f::quantile::VALUE, OtlpFieldKind::Double),
]);

static EXEMPLAR: OtlpMessageSchema = OtlpMessageSchema(&[
    many(
        "filteredAttributes",
        "filtered_attributes",
        f::exemplar::ATTRIBUTES,
        OtlpFieldKind::Message(&KEY_VALUE),
    ),
    time(f::exemplar::TIME),
    as_double(f::exemplar::AS_DOUBLE),
    as_int(f::exemplar::AS_INT),
    one(
        "traceId",
        "trace_id",
        f::exemplar::TRACE_ID,
        OtlpFieldKind::Hex,
    ),
    one(
        "spanId",
        "span_id",
        f::exemplar::SPAN_ID,
        OtlpFieldKind::Hex,
    ),
]);

static KEY_VALUE: OtlpMessageSchema = OtlpMessageSchema(&[
    one("key", "key", f::key_value::KEY, OtlpFieldKind::Text),
    one(
        "value",
        "value",
        f::key_value::VALUE,
        OtlpFieldKind::Message(&VALUE),
    ),
]);

pub(super) static VALUE: OtlpMessageSchema = OtlpMessageSchema(&[
    one(
        "stringValue",
        "string_value",
        f::value::STRING,
        OtlpFieldKind::Text,
    ),
    one(
        "boolValue",
        "bool_value",
        f::value::BOOL,
        OtlpFieldKind::Bool,
    ),
    one(
        "intValue",
        "int_value",
        f::value::INT,
        OtlpFieldKind::Signed,
    ),
    one(
        "doubleValue",
        "double_value",
        f::value::DOUBLE,
        OtlpFieldKind::Double,
    ),
    one(
        "arrayValue",
        "array_value",
        f::value::ARRAY,
        OtlpFieldKind::Message(&VALUES),
    ),
    one(
        "kvlistValue",
        "kvlist_value",
        f::value::PAIRS,
        OtlpFieldKind::Message(&PAIRS),
    ),
    one(
        "bytesValue",
        "bytes_value",
        f::value::BYTES,
        OtlpFieldKind::Bytes,
    ),
]);

static VALUES: OtlpMessageSchema = OtlpMessageSchema(&[many(
    "values",
    "values",
    f::list::VALUES,
    OtlpFieldKind::Message(&VALUE),
)]);

static PAIRS: OtlpMessageSchema = OtlpMessageSchema(&[many(
    "values",
    "values",
    f::list::VALUES,
    OtlpFieldKind::Message(&KEY_VALUE),
)]);
