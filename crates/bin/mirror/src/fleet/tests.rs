//! Tests of the fleet: its shape, its reproducibility and the invariants of its values.

use super::*;
use firn_model::labels::METRIC_NAME;
use firn_model::sample::is_stale;
use std::collections::HashMap;
use std::convert::Infallible;

const OPTIONS: FleetOptions = FleetOptions {
    series: 2_000,
    seed: 7,
    start_ms: 1_700_000_000_000,
    interval_ms: 15_000,
    churn: None,
};

type Sample = (u64, Labels, TimestampMs, u64);

fn rounds(options: FleetOptions, rounds: usize) -> Vec<Sample> {
    let mut fleet = Fleet::new(options);
    let mut out = Vec::new();
    for _ in 0..rounds {
        let result: Result<(), Infallible> = fleet.scrape_round(&mut |o| {
            out.push((o.series, o.labels.to_owned(), o.time_ms, o.value.to_bits()));
            Ok(())
        });
        let Ok(()) = result;
    }
    out
}

/// Returns the length of the labels in a remote write 1.0 message, with one byte per tag and
/// length.
fn encoded_label_bytes(labels: &Labels) -> usize {
    labels.iter().map(|(n, v)| 6 + n.len() + v.len()).sum()
}

#[test]
fn fleet_of_one_pod_has_the_promised_shape() {
    let samples = rounds(
        FleetOptions {
            series: 1,
            ..OPTIONS
        },
        1,
    );
    assert_eq!(samples.len(), SERIES_PER_POD);
    let mut bytes = 0;
    for (_, labels, _, _) in &samples {
        assert_eq!(labels.iter().count(), 11, "{labels}");
        bytes += encoded_label_bytes(labels);
    }
    let mean = bytes / samples.len();
    assert!(
        (271..=291).contains(&mean),
        "{mean} bytes of labels a series"
    );
    let distinct: std::collections::HashSet<_> = samples.iter().map(|s| &s.1).collect();
    assert_eq!(distinct.len(), SERIES_PER_POD, "label sets are unique");
}

#[test]
fn fleet_of_equal_seed_repeats_bit_for_bit() {
    let churn = Some(PodChurn {
        fraction: 0.5,
        period_ms: 30_000,
    });
    let options = FleetOptions { churn, ..OPTIONS };
    let first = rounds(options, 5);
    assert_eq!(first, rounds(options, 5));
    assert_ne!(first, rounds(FleetOptions { seed: 8, ..options }, 5));
}

#[test]
fn fleet_times_of_a_series_strictly_increase() {
    for interval_ms in [10, 1_000, 15_000] {
        let options = FleetOptions {
            interval_ms,
            ..OPTIONS
        };
        let mut newest: HashMap<u64, TimestampMs> = HashMap::new();
        for (series, labels, time_ms, _) in rounds(options, 20) {
            if let Some(before) = newest.insert(series, time_ms) {
                assert!(before < time_ms, "{labels} at interval {interval_ms}");
            }
        }
    }
}

#[test]
fn fleet_churn_ends_series_with_markers_and_bears_new_ones() {
    let churn = Some(PodChurn {
        fraction: 0.6,
        period_ms: 60_000,
    });
    let samples = rounds(
        FleetOptions {
            series: 100 * SERIES_PER_POD,
            churn,
            ..OPTIONS
        },
        9,
    );
    let mut last: HashMap<u64, u64> = HashMap::new();
    for (series, labels, _, bits) in &samples {
        let ended = last
            .insert(*series, *bits)
            .is_some_and(|b| is_stale(f64::from_bits(b)));
        assert!(!ended, "{labels} goes on after its marker");
    }
    let ended = last
        .values()
        .filter(|b| is_stale(f64::from_bits(**b)))
        .count();
    let pods = ended / SERIES_PER_POD;
    assert_eq!(ended % SERIES_PER_POD, 0);
    assert!(
        (90..=150).contains(&pods),
        "{pods} of 100 pods ended in two periods"
    );
}

#[test]
fn fleet_buckets_grow_with_bound_and_agree_with_counters() {
    let mut buckets: HashMap<(Vec<u8>, Vec<u8>, i64), Vec<f64>> = HashMap::new();
    let mut counts = HashMap::new();
    let mut requests: HashMap<_, f64> = HashMap::new();
    for (_, labels, time_ms, bits) in rounds(OPTIONS, 4) {
        let key = (
            labels.get("pod").to_vec(),
            labels.get("handler").to_vec(),
            time_ms,
        );
        let value = f64::from_bits(bits);
        match labels.get(METRIC_NAME) {
            b"http_request_duration_seconds_bucket" => buckets.entry(key).or_default().push(value),
            b"http_request_duration_seconds_count" => {
                counts.insert(key, value);
            }
            b"http_requests_total" => *requests.entry(key).or_default() += value,
            _ => {}
        }
    }
    assert_eq!(buckets.len(), 6 * HANDLERS.len() * 4);
    for (key, buckets) in buckets {
        assert!(buckets.is_sorted(), "{key:?}: {buckets:?}");
        assert_eq!(buckets.last(), counts.get(&key), "{key:?}");
        assert_eq!(counts[&key], requests[&key], "{key:?}");
    }
}

#[test]
fn fleet_with_a_ramp_grows_to_its_number_and_stays_there() {
    let pods = |ramp_ms: i64| {
        let mut fleet = Fleet::new(OPTIONS).with_ramp(ramp_ms);
        let mut counts = Vec::new();
        for _ in 0..4 {
            let mut samples = 0;
            let Ok(()): Result<(), Infallible> = fleet.scrape_round(&mut |_| {
                samples += 1;
                Ok(())
            });
            counts.push(samples / SERIES_PER_POD);
        }
        counts
    };
    assert_eq!(pods(0), [6, 6, 6, 6]);
    assert_eq!(pods(30_000), [3, 6, 6, 6]);
    assert_eq!(pods(45_000), [2, 4, 6, 6]);
}

#[test]
fn fleet_with_more_keeps_its_series_and_adds_workers_and_native_histograms() {
    let options = FleetOptions {
        series: 1_200,
        churn: Some(PodChurn {
            fraction: 1.0,
            period_ms: 45_000,
        }),
        ..OPTIONS
    };
    let more = ExtraPodSeries {
        worker_series: 212,
        native_histograms: true,
    };
    let mut fleet = Fleet::with_extra_series(options, more);
    assert_eq!((fleet.series_per_pod(), fleet.series_count()), (600, 1_200));
    let mut natives: HashMap<u64, f64> = HashMap::new();
    let (mut workers, mut ends) = (0, 0);
    let mut label_sets = std::collections::HashSet::new();
    for _ in 0..5 {
        let Ok(()) = fleet.scrape_round(&mut |o: FleetSample<'_>| {
            assert_eq!(o.labels.iter().count(), 11, "{}", o.labels);
            label_sets.insert(o.labels.to_owned());
            let name = o.labels.get(METRIC_NAME).to_vec();
            workers += usize::from(name.starts_with(b"worker_"));
            if name == b"http_request_duration_seconds" {
                ends += usize::from(is_stale(o.value));
                assert_eq!(o.histogram.is_none(), is_stale(o.value));
            }
            if o.histogram.is_some() {
                let before = natives.insert(o.series, o.value).unwrap_or_default();
                assert!(o.value >= before);
            }
            Ok::<(), Infallible>(())
        });
    }
    assert_eq!(workers, 5 * 2 * 212);
    assert_eq!(ends, 2 * 12);
    assert_eq!(natives.len(), 2 * 2 * 12);
    assert_eq!(label_sets.len(), 2 * 1_200);
}
