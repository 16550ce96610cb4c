//! Usage of the tenant after pushes and batches of this process.

use super::*;
use crate::usage::SampleUsage;
use firn_model::tenant_limits::{CostAttribution, TenantLimits};
use remote_write::KEY_FORMAT;

/// Returns a pipeline that divides the usage by the label `team`, of which two values are counted.
fn by_team(answer: Result<AppendOutcome, Error>) -> Pipeline {
    let pipeline = pipeline(answer, 64);
    let mut overrides = TenantOverrides::default();
    let limits = TenantLimits {
        attribution: Some(CostAttribution {
            label: "team".to_owned(),
            values_max: 2,
        }),
        ..TenantLimits::default()
    };
    overrides.insert(TenantId::anonymous(), limits);
    pipeline.set_overrides(Arc::new(overrides));
    pipeline
}

/// Returns a batch with a series of two samples for each team; an empty one is no label.
fn batch_of(teams: &[&str]) -> Batch {
    let mut batch = Batch::default();
    for team in teams {
        batch.push_series(labels_of(team).as_ref(), &[(5, 1.0), (6, 1.0)]);
    }
    batch
}

fn labels_of(team: &str) -> Labels {
    match team {
        "" => Labels::from_pairs([("__name__", "m")]),
        team => Labels::from_pairs([("__name__", "m"), ("team", team), ("z", "1")]),
    }
}

/// Returns the size of a series of [`batch_of`] as it is pushed.
fn pushed_bytes(team: &str) -> u64 {
    let mut key = Vec::new();
    KEY_FORMAT.push_key(&mut key, labels_of(team).as_ref());
    key.len() as u64 + 32
}

/// Compares the values with their samples and bytes.
fn check(pipeline: &Pipeline, expected: &[(&str, u64, u64)]) {
    let report = pipeline.attribution(&TenantId::anonymous()).unwrap();
    let rows = report.into_rows();
    let rows: Vec<_> = rows
        .iter()
        .map(|(value, row)| (value.as_str(), row.usage.samples, row.usage.bytes))
        .collect();
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn pushed_samples_are_divided_by_the_label_in_their_keys() {
    let pipeline = by_team(Ok(AppendOutcome::default()));
    for teams in [&["x", "x", ""][..], &["y"], &["z", "x", "w"]] {
        let body = remote_write::encode(&batch_of(teams));
        write(&pipeline, &body).await.unwrap().await.unwrap();
    }
    let x = pushed_bytes("x");
    let missing = pushed_bytes("");
    let expected = [
        ("x", 6, 3 * x),
        ("y", 2, x),
        ("__missing__", 2, missing),
        ("__overflow__", 4, 2 * x),
    ];
    check(&pipeline, &expected);
    let stored = SampleUsage {
        samples: 14,
        bytes: 6 * x + missing,
    };
    assert_eq!(pipeline.usage(&TenantId::anonymous()).stored, stored);
}

#[test]
fn samples_of_this_process_are_divided_by_their_decoded_labels() {
    let pipeline = by_team(Ok(AppendOutcome::default()));
    let sender = SampleSender::Rules("g".into());
    let batch = batch_of(&["x", "", "y"]);
    let tenant = TenantId::anonymous();
    pipeline
        .append_from_sender(&tenant, sender, &batch)
        .wait()
        .unwrap();
    let bytes = |team: &str| labels_of(team).as_bytes().len() as u64 + 32;
    let expected = [
        ("x", 2, bytes("x")),
        ("y", 2, bytes("y")),
        ("__missing__", 2, bytes("")),
    ];
    check(&pipeline, &expected);
}

#[tokio::test]
async fn rejected_samples_are_not_stored_and_failed_writes_do_not_count() {
    let rejected = RejectedSamples {
        rejection: SampleRejection::OutOfOrder,
        count: 1,
        first_labels: labels_of("x"),
        first_time: 5,
        first_series: 0,
        limit: None,
    };
    let some = AppendOutcome {
        rejected: vec![rejected],
        ..AppendOutcome::default()
    };
    let failure = Error::unavailable("the disk failed");
    let tenant = TenantId::anonymous();
    for (answer, stored, attributed) in [(Ok(some), 1, 2), (Err(failure), 0, 0)] {
        let pipeline = by_team(answer);
        let body = remote_write::encode(&batch_of(&["x"]));
        let outcome = write(&pipeline, &body).await.unwrap().await;
        assert_eq!(outcome.is_ok(), stored > 0);
        assert_eq!(pipeline.usage(&tenant).stored.samples, stored);
        let report = pipeline.attribution(&tenant).unwrap();
        let rows = report.into_rows().into_iter();
        assert_eq!(
            rows.map(|(_, row)| row.usage.samples).sum::<u64>(),
            attributed
        );
    }
}
