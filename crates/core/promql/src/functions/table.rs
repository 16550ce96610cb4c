//! The rows of the function table, sorted by name.

use super::{Function, FunctionEvaluation as E, FunctionId as F, RangeFunction as R, row};
use crate::ast::ValueType;
use crate::math::dates::UtcDate;
use crate::math::{float, trig};
use firn_model::histogram::Histogram;
use firn_model::histogram::float::{FloatHistogram, totals};
use firn_model::log_exp;
use std::f64::consts::PI;

const S: ValueType = ValueType::Scalar;
const T: ValueType = ValueType::String;
const V: ValueType = ValueType::Vector;
const M: ValueType = ValueType::Matrix;

const RATE: R = R::from_extrapolation(true, true);
const INCREASE: R = R::from_extrapolation(true, false);
const DELTA: R = R::from_extrapolation(false, false);
const IRATE: R = R::LastChange { counter: true };
const IDELTA: R = R::LastChange { counter: false };

fn date(seconds: f64) -> UtcDate {
    UtcDate::from_float(seconds)
}

fn sign(value: f64) -> f64 {
    match value {
        v if v < 0.0 => -1.0,
        v if v > 0.0 => 1.0,
        v => v,
    }
}

fn average(histogram: &Histogram) -> f64 {
    let (count, sum) = totals(histogram);
    sum / count
}

fn variance(histogram: &Histogram) -> f64 {
    FloatHistogram::from(histogram).variance()
}

fn deviation(histogram: &Histogram) -> f64 {
    variance(histogram).sqrt()
}

/// All functions of Prometheus 3.14, sorted by name. [`super::lookup`] finds a row by binary
/// search. A function that Prometheus does not have also needs an entry in `docs/differences.md`.
#[rustfmt::skip]
pub static FUNCTIONS: &[Function] = &[
    row("abs", F::Abs, &[V], V, E::Float(f64::abs))
        .doc("The absolute value of each float.",
            "abs(temperature)"),
    row("absent", F::Absent, &[V], V, E::Operator)
        .scanned().sets_labels()
        .doc("One where the vector has no element, with the labels that the selector fixes.",
            "absent(nothing{job=\"a\"})"),
    row("absent_over_time", F::AbsentOverTime, &[M], V, E::Operator)
        .sets_labels().uses_histograms()
        .doc("One where no series has a sample in the window.",
            "absent_over_time(nothing[5m])"),
    row("acos", F::Acos, &[V], V, E::Float(trig::acos))
        .doc("The arc cosine of each float.",
            "acos(ratio)"),
    row("acosh", F::Acosh, &[V], V, E::Float(float::acosh))
        .doc("The inverse hyperbolic cosine of each float.",
            "acosh(requests_total)"),
    row("asin", F::Asin, &[V], V, E::Float(trig::asin))
        .doc("The arc sine of each float.",
            "asin(ratio)"),
    row("asinh", F::Asinh, &[V], V, E::Float(float::asinh))
        .doc("The inverse hyperbolic sine of each float.",
            "asinh(ratio)"),
    row("atan", F::Atan, &[V], V, E::Float(trig::atan))
        .doc("The arc tangent of each float.",
            "atan(ratio)"),
    row("atanh", F::Atanh, &[V], V, E::Float(f64::atanh))
        .doc("The inverse hyperbolic tangent of each float.",
            "atanh(ratio)"),
    row("avg_over_time", F::AvgOverTime, &[M], V, E::Range(R::Mean))
        .uses_histograms()
        .doc("The mean of the samples in the window.",
            "avg_over_time(temperature[5m])"),
    row("ceil", F::Ceil, &[V], V, E::Float(f64::ceil))
        .doc("Each float rounded up to an integer.",
            "ceil(temperature)"),
    row("changes", F::Changes, &[M], V, E::Range(R::Changes))
        .uses_histograms().anchored()
        .doc("How often the value changed in the window.",
            "changes(temperature[5m])"),
    row("clamp", F::Clamp, &[V, S, S], V, E::RowOp)
        .doc("Each float, limited to the range from a least to a greatest value.",
            "clamp(temperature, 0, 10)"),
    row("clamp_max", F::ClampMax, &[V, S], V, E::RowOp)
        .doc("Each float, limited to a greatest value.",
            "clamp_max(temperature, 10)"),
    row("clamp_min", F::ClampMin, &[V, S], V, E::RowOp)
        .doc("Each float, limited to a least value.",
            "clamp_min(temperature, 0)"),
    row("cos", F::Cos, &[V], V, E::Float(f64::cos))
        .doc("The cosine of each float, in radians.",
            "cos(ratio)"),
    row("cosh", F::Cosh, &[V], V, E::Float(float::cosh))
        .doc("The hyperbolic cosine of each float.",
            "cosh(ratio)"),
    row("count_over_time", F::CountOverTime, &[M], V, E::Range(R::Count))
        .uses_histograms()
        .doc("How many samples the window holds.",
            "count_over_time(temperature[5m])"),
    row("day_of_month", F::DayOfMonth, &[V], V, E::Float(|d| f64::from(date(d).day)))
        .variadic(1).changes_with_time()
        .doc("The day of the month in UTC, from 1; without an argument, of the evaluation time.",
            "day_of_month()"),
    row("day_of_week", F::DayOfWeek, &[V], V, E::Float(|d| f64::from(date(d).weekday)))
        .variadic(1).changes_with_time()
        .doc("The day of the week in UTC, 0 on Sundays.",
            "day_of_week()"),
    row("day_of_year", F::DayOfYear, &[V], V, E::Float(|d| f64::from(date(d).day_of_year)))
        .variadic(1).changes_with_time()
        .doc("The day of the year in UTC, from 1.",
            "day_of_year()"),
    row("days_in_month", F::DaysInMonth, &[V], V, E::Float(|d| f64::from(date(d).days_in_month())))
        .variadic(1).changes_with_time()
        .doc("How many days the month has in UTC.",
            "days_in_month()"),
    row("deg", F::Deg, &[V], V, E::Float(|v| v * 180.0 / PI))
        .doc("Radians as degrees.",
            "deg(ratio)"),
    row("delta", F::Delta, &[M], V, E::Range(DELTA))
        .uses_histograms().needs_two_samples().extrapolates().anchored().smoothed()
        .doc("The change of a gauge over the window, extrapolated to its edges.",
            "delta(temperature[5m])"),
    row("deriv", F::Deriv, &[M], V, E::Range(R::Slope))
        .needs_two_samples()
        .doc("The slope per second of the line of least squares through the window.",
            "deriv(temperature[5m])"),
    row("double_exponential_smoothing", F::DoubleExponentialSmoothing, &[M, S, S], V,
        E::Range(R::Smoothing))
        .needs_two_samples().experimental()
        .doc("Holt's double exponential smoothing, with a smoothing and a trend factor.",
            "double_exponential_smoothing(temperature[5m], 0.5, 0.5)"),
    row("end", F::End, &[], S, E::QueryTime)
        .experimental()
        .doc("The end of the query's range, in seconds.",
            "end()"),
    row("exp", F::Exp, &[V], V, E::Float(float::exp))
        .doc("The exponential of each float.",
            "exp(ratio)"),
    row("first_over_time", F::FirstOverTime, &[M], V, E::Range(R::First))
        .uses_histograms().keeps_name()
        .doc("The oldest sample in the window.",
            "first_over_time(temperature[5m])"),
    row("floor", F::Floor, &[V], V, E::Float(f64::floor))
        .doc("Each float rounded down to an integer.",
            "floor(temperature)"),
    row("histogram_avg", F::HistogramAvg, &[V], V, E::OfHistogram(average))
        .reads_count_and_sum()
        .doc("The mean of the observations of each native histogram.",
            "histogram_avg(latency)"),
    row("histogram_count", F::HistogramCount, &[V], V, E::OfHistogram(|h| totals(h).0))
        .reads_count_and_sum()
        .doc("How many observations each native histogram has.",
            "histogram_count(latency)"),
    row("histogram_fraction", F::HistogramFraction, &[S, S, V], V, E::Operator)
        .reads_buckets()
        .doc("The share of observations between two values, of classic or native histograms.",
            "histogram_fraction(0, 1, latency)"),
    row("histogram_quantile", F::HistogramQuantile, &[S, V], V, E::Operator)
        .reads_buckets()
        .doc("A quantile of the observations of classic or native histograms.",
            "histogram_quantile(0.9, latency)"),
    row("histogram_quantiles", F::HistogramQuantiles, &[V, T, S, S], V, E::Operator)
        .variadic(9).reads_buckets().experimental()
        .doc("Several quantiles of histograms, each written into a label.",
            "histogram_quantiles(latency, \"quantile\", 0.5, 0.9)"),
    row("histogram_stddev", F::HistogramStddev, &[V], V, E::OfHistogram(deviation))
        .uses_histograms()
        .doc("The estimated standard deviation of the observations of each native histogram.",
            "histogram_stddev(latency)"),
    row("histogram_stdvar", F::HistogramStdvar, &[V], V, E::OfHistogram(variance))
        .uses_histograms()
        .doc("The estimated variance of the observations of each native histogram.",
            "histogram_stdvar(latency)"),
    row("histogram_sum", F::HistogramSum, &[V], V, E::OfHistogram(|h| totals(h).1))
        .reads_count_and_sum()
        .doc("The sum of the observations of each native histogram.",
            "histogram_sum(latency)"),
    row("hour", F::Hour, &[V], V, E::Float(|d| f64::from(date(d).hour)))
        .variadic(1).changes_with_time()
        .doc("The hour in UTC, from 0 to 23.",
            "hour()"),
    row("idelta", F::Idelta, &[M], V, E::Range(IDELTA))
        .uses_histograms().needs_two_samples()
        .doc("The difference of the last two samples in the window.",
            "idelta(temperature[5m])"),
    row("increase", F::Increase, &[M], V, E::Range(INCREASE))
        .uses_histograms().needs_two_samples().extrapolates().reads_start_times()
        .anchored().smoothed()
        .doc("The growth of a counter over the window, extrapolated to its edges.",
            "increase(requests_total[5m])"),
    row("info", F::Info, &[V, V], V, E::Operator)
        .variadic(1).experimental().sets_labels().uses_histograms()
        .doc("Each series with the labels of the info series of its instance and job.",
            "info(requests_total, {version=~\".+\"})"),
    row("irate", F::Irate, &[M], V, E::Range(IRATE))
        .uses_histograms().needs_two_samples().reads_start_times()
        .doc("The growth per second of a counter between the last two samples of the window.",
            "irate(requests_total[5m])"),
    row("label_join", F::LabelJoin, &[V, T, T, T], V, E::Operator)
        .variadic(-1).sets_labels().uses_histograms()
        .doc("Joins the values of labels with a separator and writes them into a label.",
            "label_join(temperature, \"place\", \"/\", \"job\", \"instance\")"),
    row("label_replace", F::LabelReplace, &[V, T, T, T, T], V, E::Operator)
        .sets_labels().uses_histograms()
        .doc("Writes a label where the value of another one matches a regular expression.",
            "label_replace(temperature, \"host\", \"$1\", \"instance\", \"(.+)\")"),
    row("last_over_time", F::LastOverTime, &[M], V, E::Range(R::Last))
        .uses_histograms().keeps_name()
        .doc("The newest sample in the window.",
            "last_over_time(temperature[5m])"),
    row("ln", F::Ln, &[V], V, E::Float(log_exp::ln))
        .doc("The natural logarithm of each float.",
            "ln(temperature)"),
    row("log10", F::Log10, &[V], V, E::Float(log_exp::log10))
        .doc("The logarithm to the base of ten of each float.",
            "log10(temperature)"),
    row("log2", F::Log2, &[V], V, E::Float(log_exp::log2))
        .doc("The logarithm to the base of two of each float.",
            "log2(temperature)"),
    row("mad_over_time", F::MadOverTime, &[M], V, E::Range(R::MedianDeviation))
        .experimental()
        .doc("The median of the distances from the median of the window.",
            "mad_over_time(temperature[5m])"),
    row("max_of", F::MaxOf, &[S, S], S, E::OfScalars(float::max))
        .experimental()
        .doc("The greater of two scalars.",
            "max_of(1, 2)"),
    row("max_over_time", F::MaxOverTime, &[M], V, E::Range(R::Max))
        .doc("The greatest float in the window.",
            "max_over_time(temperature[5m])"),
    row("min_of", F::MinOf, &[S, S], S, E::OfScalars(float::min))
        .experimental()
        .doc("The lesser of two scalars.",
            "min_of(1, 2)"),
    row("min_over_time", F::MinOverTime, &[M], V, E::Range(R::Min))
        .doc("The least float in the window.",
            "min_over_time(temperature[5m])"),
    row("minute", F::Minute, &[V], V, E::Float(|d| f64::from(date(d).minute)))
        .variadic(1).changes_with_time()
        .doc("The minute of the hour in UTC, from 0 to 59.",
            "minute()"),
    row("month", F::Month, &[V], V, E::Float(|d| f64::from(date(d).month)))
        .variadic(1).changes_with_time()
        .doc("The month in UTC, from 1 to 12.",
            "month()"),
    row("pi", F::Pi, &[], S, E::Operator)
        .doc("The number pi.",
            "pi()"),
    row("predict_linear", F::PredictLinear, &[M, S], V, E::Range(R::Prediction))
        .needs_two_samples().changes_with_time()
        .doc("Where the line of least squares through the window is in so many seconds.",
            "predict_linear(temperature[5m], 3600)"),
    row("present_over_time", F::PresentOverTime, &[M], V, E::Range(R::Present))
        .uses_histograms()
        .doc("One for each series with a sample in the window.",
            "present_over_time(temperature[5m])"),
    row("quantile_over_time", F::QuantileOverTime, &[S, M], V, E::Range(R::Quantile))
        .doc("A quantile of the floats in the window.",
            "quantile_over_time(0.9, temperature[5m])"),
    row("rad", F::Rad, &[V], V, E::Float(|v| v * PI / 180.0))
        .doc("Degrees as radians.",
            "rad(temperature)"),
    row("range", F::Range, &[], S, E::QueryTime)
        .experimental()
        .doc("The length of the query's range, in seconds.",
            "range()"),
    row("rate", F::Rate, &[M], V, E::Range(RATE))
        .uses_histograms().needs_two_samples().extrapolates().reads_start_times()
        .anchored().smoothed()
        .doc("The growth per second of a counter over the window, extrapolated to its edges.",
            "rate(requests_total[5m])"),
    row("resets", F::Resets, &[M], V, E::Range(R::Resets))
        .uses_histograms().reads_start_times().anchored()
        .doc("How often a counter was reset in the window.",
            "resets(requests_total[5m])"),
    row("round", F::Round, &[V, S], V, E::RowOp)
        .variadic(1)
        .doc("Each float rounded to the nearest multiple of a number, which is 1 without one.",
            "round(temperature, 5)"),
    row("scalar", F::Scalar, &[V], S, E::Operator)
        .scanned()
        .doc("The value of the only element of a vector, else NaN.",
            "scalar(temperature)"),
    row("sgn", F::Sgn, &[V], V, E::Float(sign))
        .doc("The sign of each float: 1, -1 or 0.",
            "sgn(temperature)"),
    row("sin", F::Sin, &[V], V, E::Float(f64::sin))
        .doc("The sine of each float, in radians.",
            "sin(ratio)"),
    row("sinh", F::Sinh, &[V], V, E::Float(float::sinh))
        .doc("The hyperbolic sine of each float.",
            "sinh(ratio)"),
    row("sort", F::Sort, &[V], V, E::Operator)
        .keeps_name()
        .doc("The elements of an instant vector with floats, by rising value.",
            "sort(temperature)"),
    row("sort_by_label", F::SortByLabel, &[V, T], V, E::Operator)
        .variadic(-1).experimental().keeps_name().uses_histograms()
        .doc("The elements of an instant vector by the values of labels, in natural order.",
            "sort_by_label(temperature, \"instance\")"),
    row("sort_by_label_desc", F::SortByLabelDesc, &[V, T], V, E::Operator)
        .variadic(-1).experimental().keeps_name().uses_histograms()
        .doc("Like `sort_by_label`, in falling order.",
            "sort_by_label_desc(temperature, \"instance\")"),
    row("sort_desc", F::SortDesc, &[V], V, E::Operator)
        .keeps_name()
        .doc("The elements of an instant vector with floats, by falling value.",
            "sort_desc(temperature)"),
    row("sqrt", F::Sqrt, &[V], V, E::Float(f64::sqrt))
        .doc("The square root of each float.",
            "sqrt(temperature)"),
    row("start", F::Start, &[], S, E::QueryTime)
        .experimental()
        .doc("The start of the query's range, in seconds.",
            "start()"),
    row("start_timestamp", F::StartTimestamp, &[V], V, E::Operator)
        .experimental().uses_histograms()
        .doc("The start timestamp of each sample, in seconds.",
            "start_timestamp(requests_total)"),
    row("stddev_over_time", F::StddevOverTime, &[M], V, E::Range(R::Deviation))
        .doc("The standard deviation of the floats in the window.",
            "stddev_over_time(temperature[5m])"),
    row("stdvar_over_time", F::StdvarOverTime, &[M], V, E::Range(R::Variance))
        .doc("The variance of the floats in the window.",
            "stdvar_over_time(temperature[5m])"),
    row("step", F::Step, &[], S, E::QueryTime)
        .experimental()
        .doc("The step of the query, in seconds; 0 in an instant query.",
            "step()"),
    row("sum_over_time", F::SumOverTime, &[M], V, E::Range(R::Sum))
        .uses_histograms()
        .doc("The sum of the samples in the window.",
            "sum_over_time(temperature[5m])"),
    row("tan", F::Tan, &[V], V, E::Float(f64::tan))
        .doc("The tangent of each float, in radians.",
            "tan(ratio)"),
    row("tanh", F::Tanh, &[V], V, E::Float(f64::tanh))
        .doc("The hyperbolic tangent of each float.",
            "tanh(ratio)"),
    row("time", F::Time, &[], S, E::Operator)
        .changes_with_time()
        .doc("The evaluation time, in seconds.",
            "time()"),
    row("timestamp", F::Timestamp, &[V], V, E::RowOp)
        .changes_with_time().uses_histograms()
        .doc("The time of each sample, in seconds.",
            "timestamp(temperature)"),
    row("ts_of_first_over_time", F::TsOfFirstOverTime, &[M], V, E::Range(R::FirstTime))
        .experimental().uses_histograms()
        .doc("The time of the oldest sample in the window, in seconds.",
            "ts_of_first_over_time(temperature[5m])"),
    row("ts_of_last_over_time", F::TsOfLastOverTime, &[M], V, E::Range(R::LastTime))
        .experimental().uses_histograms()
        .doc("The time of the newest sample in the window, in seconds.",
            "ts_of_last_over_time(temperature[5m])"),
    row("ts_of_max_over_time", F::TsOfMaxOverTime, &[M], V, E::Range(R::MaxTime))
        .experimental()
        .doc("The time of the greatest float in the window, in seconds; of equal ones, the newest.",
            "ts_of_max_over_time(temperature[5m])"),
    row("ts_of_min_over_time", F::TsOfMinOverTime, &[M], V, E::Range(R::MinTime))
        .experimental()
        .doc("The time of the least float in the window, in seconds; of equal ones, the newest.",
            "ts_of_min_over_time(temperature[5m])"),
    row("vector", F::Vector, &[S], V, E::Operator)
        .doc("A scalar as a vector of one element without labels.",
            "vector(1)"),
    row("year", F::Year, &[V], V, E::Float(|d| date(d).year as f64))
        .variadic(1).changes_with_time()
        .doc("The year in UTC.",
            "year()"),
];
