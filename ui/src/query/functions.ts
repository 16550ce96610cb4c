// Functions, aggregations and keywords of PromQL: signature and one line of help. The list follows
// the functions of the server; a function that the server has and this table lacks is offered
// without help.

export interface FunctionHelp {
  signature: string;
  help: string;
}

const TABLE = `
abs|(v instant-vector)|Absolute value of each sample.
absent|(v instant-vector)|One series of value 1 if the vector is empty; nothing otherwise.
absent_over_time|(v range-vector)|One series of value 1 if the range holds no sample; nothing otherwise.
acos|(v instant-vector)|Arc cosine, in radians.
acosh|(v instant-vector)|Inverse hyperbolic cosine.
asin|(v instant-vector)|Arc sine, in radians.
asinh|(v instant-vector)|Inverse hyperbolic sine.
atan|(v instant-vector)|Arc tangent, in radians.
atanh|(v instant-vector)|Inverse hyperbolic tangent.
avg_over_time|(v range-vector)|Mean of the samples in the range.
ceil|(v instant-vector)|Rounds up to the next integer.
changes|(v range-vector)|How many times the value changed in the range.
clamp|(v instant-vector, min scalar, max scalar)|Limits values to a lowest and a highest value.
clamp_max|(v instant-vector, max scalar)|Limits values to a highest value.
clamp_min|(v instant-vector, min scalar)|Limits values to a lowest value.
cos|(v instant-vector)|Cosine of an angle in radians.
cosh|(v instant-vector)|Hyperbolic cosine.
count_over_time|(v range-vector)|Number of samples in the range.
day_of_month|(v instant-vector = vector(time()))|Day of the month in UTC, 1 to 31.
day_of_week|(v instant-vector = vector(time()))|Day of the week in UTC, 0 is Sunday.
day_of_year|(v instant-vector = vector(time()))|Day of the year in UTC, 1 to 366.
days_in_month|(v instant-vector = vector(time()))|Number of days of the month in UTC.
deg|(v instant-vector)|Converts radians to degrees.
delta|(v range-vector)|Difference between the last and the first value of a gauge, extrapolated to the range.
deriv|(v range-vector)|Slope of a gauge per second, by linear regression.
double_exponential_smoothing|(v range-vector, smoothing scalar, trend scalar)|Smoothed value of a gauge with its trend.
end|()|End of the range of the query, in seconds.
exp|(v instant-vector)|Exponential function.
first_over_time|(v range-vector)|Oldest sample in the range.
floor|(v instant-vector)|Rounds down to the next integer.
histogram_avg|(v instant-vector)|Mean of the observations of native histograms.
histogram_count|(v instant-vector)|Number of observations of native histograms.
histogram_fraction|(lower scalar, upper scalar, b instant-vector)|Share of observations between two values.
histogram_quantile|(φ scalar, b instant-vector)|Value below which the share φ of the observations lies.
histogram_quantiles|(v instant-vector, label string, φ scalar...)|Several quantiles at once, one series each.
histogram_stddev|(v instant-vector)|Standard deviation of the observations of native histograms.
histogram_stdvar|(v instant-vector)|Variance of the observations of native histograms.
histogram_sum|(v instant-vector)|Sum of the observations of native histograms.
hour|(v instant-vector = vector(time()))|Hour of the day in UTC, 0 to 23.
idelta|(v range-vector)|Difference between the last two samples of a gauge.
increase|(v range-vector)|Growth of a counter over the range, with resets taken into account.
info|(v instant-vector, data-label-selector)|Adds the labels of matching info metrics.
irate|(v range-vector)|Growth of a counter per second between its last two samples.
label_join|(v instant-vector, dst string, separator string, src string...)|Joins the values of labels into a new label.
label_replace|(v instant-vector, dst string, replacement string, src string, regex string)|Sets a label from the parts of another one that a regular expression matches.
last_over_time|(v range-vector)|Newest sample in the range.
ln|(v instant-vector)|Natural logarithm.
log10|(v instant-vector)|Decimal logarithm.
log2|(v instant-vector)|Binary logarithm.
mad_over_time|(v range-vector)|Median absolute deviation of the samples in the range.
max_of|(a scalar, b scalar)|The larger of two numbers.
max_over_time|(v range-vector)|Largest sample in the range.
min_of|(a scalar, b scalar)|The smaller of two numbers.
min_over_time|(v range-vector)|Smallest sample in the range.
minute|(v instant-vector = vector(time()))|Minute of the hour in UTC, 0 to 59.
month|(v instant-vector = vector(time()))|Month of the year in UTC, 1 to 12.
pi|()|The number π.
predict_linear|(v range-vector, t scalar)|Value of a gauge in t seconds, by linear regression.
present_over_time|(v range-vector)|1 for each series with a sample in the range.
quantile_over_time|(φ scalar, v range-vector)|Quantile φ of the samples in the range.
rad|(v instant-vector)|Converts degrees to radians.
range|()|Length of the range of the query, in seconds.
rate|(v range-vector)|Growth of a counter per second over the range, with resets taken into account.
resets|(v range-vector)|How many times a counter was reset in the range.
round|(v instant-vector, to_nearest scalar = 1)|Rounds to the nearest multiple.
scalar|(v instant-vector)|The value of a vector with one element as a number; NaN otherwise.
sgn|(v instant-vector)|Sign of each value: 1, 0 or -1.
sin|(v instant-vector)|Sine of an angle in radians.
sinh|(v instant-vector)|Hyperbolic sine.
sort|(v instant-vector)|Sorts by value, smallest first; for instant queries.
sort_by_label|(v instant-vector, label string...)|Sorts by labels, in natural order.
sort_by_label_desc|(v instant-vector, label string...)|Sorts by labels, in reversed natural order.
sort_desc|(v instant-vector)|Sorts by value, largest first; for instant queries.
sqrt|(v instant-vector)|Square root.
start|()|Start of the range of the query, in seconds.
start_timestamp|(v instant-vector)|Start timestamps of the samples, in seconds.
stddev_over_time|(v range-vector)|Standard deviation of the samples in the range.
stdvar_over_time|(v range-vector)|Variance of the samples in the range.
step|()|Distance of the steps of the query, in seconds.
sum_over_time|(v range-vector)|Sum of the samples in the range.
tan|(v instant-vector)|Tangent of an angle in radians.
tanh|(v instant-vector)|Hyperbolic tangent.
time|()|Evaluation time, in seconds.
timestamp|(v instant-vector)|Timestamps of the samples, in seconds.
ts_of_first_over_time|(v range-vector)|Timestamp of the oldest sample in the range.
ts_of_last_over_time|(v range-vector)|Timestamp of the newest sample in the range.
ts_of_max_over_time|(v range-vector)|Timestamp of the largest sample in the range.
ts_of_min_over_time|(v range-vector)|Timestamp of the smallest sample in the range.
vector|(s scalar)|A number as a vector with one series without labels.
year|(v instant-vector = vector(time()))|Year in UTC.
`;

const AGGREGATION_TABLE = `
avg|(v instant-vector)|Mean of each group.
bottomk|(k scalar, v instant-vector)|The k smallest elements of each group.
count|(v instant-vector)|Number of elements of each group.
count_values|(label string, v instant-vector)|Number of elements with each value.
group|(v instant-vector)|1 for each group.
limit_ratio|(r scalar, v instant-vector)|About the share r of the elements, always the same ones.
limitk|(k scalar, v instant-vector)|Any k elements of each group.
max|(v instant-vector)|Largest element of each group.
min|(v instant-vector)|Smallest element of each group.
quantile|(φ scalar, v instant-vector)|Quantile φ of each group.
stddev|(v instant-vector)|Standard deviation of each group.
stdvar|(v instant-vector)|Variance of each group.
sum|(v instant-vector)|Sum of each group.
topk|(k scalar, v instant-vector)|The k largest elements of each group.
`;

function parse(table: string): Map<string, FunctionHelp> {
  const rows = table.trim().split("\n").map((line) => line.split("|"));
  return new Map(rows.map(([name = "", args = "", help = ""]) => [name, { signature: name + args, help }]));
}

export const FUNCTIONS = parse(TABLE);
export const AGGREGATIONS = parse(AGGREGATION_TABLE);

// Help of a function or aggregation; undefined for other words.
export const functionHelp = (name: string) => FUNCTIONS.get(name) ?? AGGREGATIONS.get(name);

// The most frequent durations of ranges, offered inside brackets.
export const DURATIONS: readonly (readonly [string, string])[] = [
  ["1m", "one minute"],
  ["5m", "five minutes"],
  ["15m", "a quarter of an hour"],
  ["30m", "half an hour"],
  ["1h", "one hour"],
  ["6h", "six hours"],
  ["1d", "one day"],
  ["7d", "one week"],
];
