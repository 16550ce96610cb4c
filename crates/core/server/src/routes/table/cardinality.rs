//! Routes that count series and label values, as in Mimir.

use super::cells::GET_POST;
use crate::api::cardinality;
use crate::metrics::ServerEndpoint;
use crate::routes::route::ParamKind::{Count, Text, Texts, Time};
use crate::routes::route::{ApiRoute, RouteParam, mount_data, param, plain, required};

const SELECTOR: RouteParam = param("selector", Text, "Only series that this selector matches.");

const METHOD: RouteParam = param(
    "count_method",
    Text,
    "`inmemory`: series with a sample in the last two hours (default). `active`: in the last 20 \
     minutes.",
);

const ENTRIES: RouteParam = param(
    "limit",
    Count,
    "Maximum number of entries per list, up to 500 (default: 20).",
);

const START: RouteParam = param(
    "start",
    Time,
    "Counts the series with a sample in a time range, instead of the latest ones. Default: the \
     oldest sample, if there is an `end`.",
);

const END: RouteParam = param(
    "end",
    Time,
    "End of the time range, inclusive. Default: the newest sample, if there is a `start`.",
);

pub(super) const CARDINALITY: &[ApiRoute] = &[
    ApiRoute::new(
        "/cardinality/label_names",
        mount_data(GET_POST, ServerEndpoint::Labels),
        |m| plain(m, cardinality::label_names),
        "Returns the label names with the most values.",
    )
    .with_params(&[SELECTOR, METHOD, START, END, ENTRIES]),
    ApiRoute::new(
        "/cardinality/label_values",
        mount_data(GET_POST, ServerEndpoint::LabelValues),
        |m| plain(m, cardinality::label_values),
        "Returns the values of labels with the most series.",
    )
    .with_params(&[
        required("label_names[]", Texts, "Names of the labels."),
        SELECTOR,
        METHOD,
        START,
        END,
        param(
            "baseline_start",
            Time,
            "Adds `baseline_series_count`, the number of series with a sample in another time \
             range, and sorts the values by the difference.",
        ),
        param(
            "baseline_end",
            Time,
            "End of the other time range, inclusive.",
        ),
        ENTRIES,
    ]),
    ApiRoute::new(
        "/cardinality/active_series",
        mount_data(GET_POST, ServerEndpoint::Series),
        |m| plain(m, cardinality::active_series),
        "Returns the label sets of series with a sample in a range (default: the last 20 minutes).",
    )
    .with_params(&[required("selector", Text, "Series selector."), START, END]),
];
