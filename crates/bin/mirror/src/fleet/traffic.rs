//! HTTP metrics of a pod: request counters by handler and code, and duration histograms by handler.
//!
//! Invariant: in each scrape the buckets of a histogram are cumulative, the last one equals its
//! count, and the count grows by the sum of the increases of the handler's request counters.

use super::random::FleetRandom;

/// Upper bounds of the duration buckets in seconds, as values of the label `le`.
pub const BOUNDS: [&str; 14] = [
    "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60",
    "+Inf",
];

/// Values of the label `code` of the request counters.
pub const CODES: [&str; 6] = ["200", "201", "404", "429", "500", "503"];

/// Number of series per histogram: its buckets, sum and count.
pub const HISTOGRAM_SERIES: usize = BOUNDS.len() + 2;

/// An HTTP route with its request rate, and its distribution of response codes and durations.
#[derive(Debug)]
pub struct RouteTraffic {
    /// The route, as the value of the label `handler`.
    pub route: &'static str,
    /// Requests per second in a pod of average popularity.
    rate: f64,
    /// Share of the requests with each of [`CODES`], in their order.
    shares: [f64; CODES.len()],
    /// Index of the distribution of its durations in [`SPREADS`].
    spread: usize,
}

const fn read(route: &'static str, rate: f64, spread: usize) -> RouteTraffic {
    RouteTraffic {
        route,
        rate,
        shares: [0.985, 0.0, 0.012, 0.0, 0.003, 0.0],
        spread,
    }
}

const fn write(route: &'static str, rate: f64, spread: usize) -> RouteTraffic {
    RouteTraffic {
        route,
        rate,
        shares: [0.10, 0.87, 0.01, 0.005, 0.01, 0.005],
        spread,
    }
}

/// The routes that each service of the fleet serves, in the order of their series.
pub const HANDLERS: [RouteTraffic; 12] = [
    read("/healthz", 0.2, 0),
    read("/api/users", 1.9, 1),
    read("/api/users/:id", 4.2, 1),
    write("/api/orders", 0.7, 2),
    read("/api/orders/:id", 2.4, 1),
    read("/api/items", 3.1, 1),
    read("/api/search", 1.3, 2),
    write("/api/cart", 0.9, 1),
    write("/api/payment", 0.15, 2),
    read("/api/report", 0.02, 3),
    read("/assets/*", 5.5, 0),
    read("/admin", 0.005, 2),
];

/// A distribution of durations: the share of requests in each bucket, and their mean in seconds.
struct DurationDistribution {
    shares: [f64; BOUNDS.len()],
    mean_seconds: f64,
}

const SPREADS: [DurationDistribution; 4] = [
    DurationDistribution {
        shares: [
            0.93, 0.05, 0.012, 0.005, 0.002, 0.001, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        ],
        mean_seconds: 0.0031,
    },
    DurationDistribution {
        shares: [
            0.08, 0.22, 0.36, 0.19, 0.09, 0.04, 0.013, 0.005, 0.002, 0.0, 0.0, 0.0, 0.0, 0.0,
        ],
        mean_seconds: 0.0337,
    },
    DurationDistribution {
        shares: [
            0.0, 0.02, 0.06, 0.17, 0.29, 0.27, 0.12, 0.045, 0.02, 0.004, 0.001, 0.0, 0.0, 0.0,
        ],
        mean_seconds: 0.1921,
    },
    DurationDistribution {
        shares: [
            0.0, 0.0, 0.0, 0.0, 0.01, 0.05, 0.16, 0.28, 0.27, 0.14, 0.06, 0.025, 0.004, 0.001,
        ],
        mean_seconds: 2.413,
    },
];

/// Number of series of all handlers: the counters, then the histograms.
pub const SERIES: usize = HANDLERS.len() * (CODES.len() + HISTOGRAM_SERIES);

/// Returns the histogram of a handler from the values of a pod: buckets, sum and count.
pub fn histogram_of(values: &[f64], handler: usize) -> &[f64] {
    let start = HANDLERS.len() * CODES.len() + handler * HISTOGRAM_SERIES;
    &values[start..start + HISTOGRAM_SERIES]
}

/// Advances the HTTP series of a pod by `seconds`. `values` has [`SERIES`] values: the counters of
/// each handler, then buckets, sum and count of each handler.
pub fn advance(values: &mut [f64], popularity: f64, seconds: f64, random: &mut FleetRandom) {
    let (counters, histograms) = values.split_at_mut(HANDLERS.len() * CODES.len());
    let counters = counters.chunks_exact_mut(CODES.len());
    let histograms = histograms.chunks_exact_mut(HISTOGRAM_SERIES);
    for ((handler, counters), histogram) in HANDLERS.iter().zip(counters).zip(histograms) {
        let expected = handler.rate * popularity * seconds;
        let mut requests = 0;
        for (counter, share) in counters.iter_mut().zip(handler.shares) {
            if share > 0.0 {
                let count = random.count(expected * share);
                *counter += count as f64;
                requests += count;
            }
        }
        if requests > 0 {
            observe(histogram, &SPREADS[handler.spread], requests, random);
        }
    }
}

fn observe(
    histogram: &mut [f64],
    spread: &DurationDistribution,
    requests: u64,
    random: &mut FleetRandom,
) {
    let (buckets, totals) = histogram.split_at_mut(BOUNDS.len());
    let mut left = requests;
    let mut below = 0;
    for (bucket, share) in buckets.iter_mut().zip(spread.shares) {
        if share > 0.0 {
            let count = (requests as f64 * share + random.unit()) as u64;
            below += count.min(left);
            left -= count.min(left);
        }
        *bucket += below as f64;
    }
    // The remainder of the rounding is counted in the slowest bucket that the distribution reaches.
    let slowest = spread.shares.iter().rposition(|s| *s > 0.0).unwrap_or(0);
    for bucket in &mut buckets[slowest..] {
        *bucket += left as f64;
    }
    let seconds = requests as f64 * spread.mean_seconds * (0.9 + 0.2 * random.unit());
    totals[0] += seconds;
    totals[1] += requests as f64;
}
