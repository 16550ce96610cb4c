//! Batches of several tenants, added to their usage.

use super::*;

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).unwrap()
}

fn by(label: &str, values_max: usize) -> CostAttribution {
    CostAttribution {
        label: label.to_owned(),
        values_max,
    }
}

/// Adds one batch of the tenant `a` with these samples by value.
fn add(usage: &UsageStatistics, settings: &CostAttribution, values: &[(&str, u64)]) {
    let values = values.iter().map(|(value, samples)| {
        let usage = SampleUsage {
            samples: *samples,
            bytes: 10 * samples,
        };
        (value.as_bytes(), usage)
    });
    let values: HashMap<&[u8], SampleUsage> = values.collect();
    let stored: u64 = values.values().map(|usage| usage.samples).sum();
    let batch = BatchUsage {
        is_of_rules: false,
        bytes: 10 * stored,
        attributed: usage.attribute(&tenant("a"), settings, &values),
    };
    usage.add(&tenant("a"), &batch, stored, Duration::ZERO);
}

/// Compares value, series, samples and bytes of each row.
fn check(report: AttributionReport, expected: &[(&str, u64, u64, u64)]) {
    let rows = report.into_rows();
    let row = |(value, row): &(String, AttributionRow)| {
        let AttributionRow { series, usage } = *row;
        (value.clone(), series, usage.samples, usage.bytes)
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let expected = expected.iter();
    let expected: Vec<_> = expected
        .map(|(value, series, samples, bytes)| ((*value).to_owned(), *series, *samples, *bytes))
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn values_over_the_limit_and_missing_ones_have_a_name_of_their_own() {
    let (usage, team) = (UsageStatistics::default(), by("team", 2));
    add(&usage, &team, &[("x", 3), ("", 1)]);
    add(&usage, &team, &[("y", 2)]);
    add(&usage, &team, &[("z", 4)]);
    add(&usage, &team, &[("x", 1), ("w", 5)]);
    let mut report = usage.report_attribution(&tenant("a"), &team);
    for (value, series) in [("x", 7), ("z", 8), ("", 9), ("v", 1)] {
        report.add_series(value.as_bytes(), series);
    }
    let expected = [
        ("x", 7, 4, 40),
        ("y", 0, 2, 20),
        ("__missing__", 9, 1, 10),
        ("__overflow__", 9, 9, 90),
    ];
    check(report, &expected);
    let total = SampleUsage {
        samples: 16,
        bytes: 160,
    };
    assert_eq!(usage.report(&tenant("a"), Duration::ZERO).stored, total);
    let other = usage.report(&tenant("b"), Duration::ZERO);
    assert_eq!(other, TenantUsageReport::default());
}

#[test]
fn long_value_is_not_counted_separately() {
    let (usage, team) = (UsageStatistics::default(), by("team", 9));
    let long = "x".repeat(VALUE_BYTES_MAX + 1);
    add(&usage, &team, &[(&long, 1)]);
    let mut report = usage.report_attribution(&tenant("a"), &team);
    report.add_series(long.as_bytes(), 2);
    check(report, &[("__overflow__", 2, 1, 10)]);
}

#[test]
fn another_label_starts_from_zero() {
    let usage = UsageStatistics::default();
    add(&usage, &by("team", 2), &[("x", 1)]);
    check(usage.report_attribution(&tenant("a"), &by("app", 2)), &[]);
    add(&usage, &by("app", 2), &[("y", 1)]);
    check(
        usage.report_attribution(&tenant("a"), &by("app", 2)),
        &[("y", 0, 1, 10)],
    );
}

#[test]
fn values_without_samples_since_the_start_take_the_places_that_are_left() {
    let (usage, team) = (UsageStatistics::default(), by("team", 2));
    let mut report = usage.report_attribution(&tenant("a"), &team);
    for (value, series) in [("x", 3), ("y", 2), ("z", 1)] {
        report.add_series(value.as_bytes(), series);
    }
    let expected = [("x", 3, 0, 0), ("y", 2, 0, 0), ("__overflow__", 1, 0, 0)];
    check(report, &expected);
}

#[test]
fn batch_without_a_stored_sample_creates_no_tenant() {
    let usage = UsageStatistics::default();
    let batch = BatchUsage {
        bytes: 10,
        ..BatchUsage::default()
    };
    usage.add(&tenant("a"), &batch, 0, Duration::ZERO);
    assert_eq!(usage.tenants(), []);
    usage.add(&tenant("a"), &batch, 1, Duration::ZERO);
    assert_eq!(usage.tenants(), [tenant("a")]);
}

#[test]
fn samples_of_rules_have_a_rate_of_their_own() {
    let usage = UsageStatistics::default();
    for is_of_rules in [true, false, true] {
        let batch = BatchUsage {
            is_of_rules,
            ..BatchUsage::default()
        };
        usage.add(&tenant("a"), &batch, 15, Duration::ZERO);
    }
    let report = usage.report(&tenant("a"), Duration::from_secs(15));
    assert_eq!((report.api_rate, report.rule_rate), (1.0, 2.0));
}
