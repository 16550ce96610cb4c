//! Tests of the report: its content, its escaping and its size limit.

use super::*;
use crate::compare::artefact::SeriesSketch;
use crate::compare::folders::FolderRetention;
use crate::compare::tally::ComparedQuery;
use crate::judge::DifferenceClass;
use std::time::{Duration, Instant};

const EVIL: &str = "<script>alert(1)</script>|`x`&\"\u{0}";

fn judged(number: usize, outcome: ComparisonOutcome) -> ComparedQuery {
    let points = |offset: f64| (0..300).map(|i| (i * 15_000, i as f64 + offset)).collect();
    ComparedQuery {
        pass: if number.is_multiple_of(2) {
            ComparisonPass::Range
        } else {
            ComparisonPass::Instant
        },
        question: format!(
            "sum by (namespace, pod) (rate(http_requests_total{{job=\"{number}\"}}[5m])) {EVIL}"
        ),
        origin: format!("dashboards/{EVIL}.json"),
        weight: 1.5,
        outcome,
        vacuous: None,
        classes: vec![DifferenceClass::Value, DifferenceClass::Warnings],
        reason: format!("value of x{{a=\"b\"}} at 1700000000.000: expected 1, got 2 {EVIL}"),
        folder: Some(format!("range-{number:016x}")),
        sketch: Some(SeriesSketch {
            series: EVIL.to_owned(),
            baseline: points(0.0),
            candidate: points(0.5),
        }),
    }
}

fn folders(dir: &Path) -> DifferenceFolders {
    let keeping = FolderRetention {
        age_max: Duration::from_secs(1_000),
        bytes_max: 1 << 20,
    };
    DifferenceFolders::open(dir, keeping)
}

fn report<'a>(
    tally: &'a ComparisonTally,
    folders: &'a DifferenceFolders,
    gathering: &'a CollectionStatistics,
) -> ComparisonReport<'a> {
    let side = || ReportedSystem {
        url: EVIL.to_owned(),
        version: Some(EVIL.to_owned()),
        latencies: LatencyHistogram::default(),
    };
    ComparisonReport {
        baseline: side(),
        candidate: side(),
        began_ms: 0,
        made_ms: 1_000,
        stretch: CommonTimeRange {
            start_ms: 0,
            end_ms: 3_600_000,
        },
        step_ms: 15_000,
        questions: 3,
        gathering,
        fail_below: 100.0,
        tally,
        folders,
    }
}

#[test]
fn report_escapes_what_others_wrote_and_reads_back() {
    let mut tally = ComparisonTally::default();
    tally.begin(3_600_000);
    for (number, outcome) in ComparisonOutcome::ALL.into_iter().enumerate() {
        tally.count(judged(number, outcome));
    }
    tally.count(ComparedQuery {
        vacuous: Some(VacuousMatchReason::Empty),
        ..judged(6, ComparisonOutcome::Match)
    });
    let dir = tempfile::tempdir().unwrap();
    // The folder of the mismatch exists; that of the error has been deleted.
    let kept = "range-0000000000000001";
    fs::create_dir(dir.path().join(kept)).unwrap();
    let folders = folders(dir.path());
    folders.note_failure(&MirrorError::Late(format!("no room {EVIL}")));
    let gathering = CollectionStatistics {
        times: 2,
        failure: Some(EVIL.to_owned()),
    };
    let report = report(&tally, &folders, &gathering);
    report.write(dir.path()).unwrap();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(json["match_rate"].as_f64(), Some(50.0));
    assert_eq!(
        json["vacuous"]["range"],
        json!({"empty": 1, "same_error": 0})
    );
    assert_eq!(
        json["folders"],
        json!({"count": 1, "bytes": 0, "removed": 0, "not_written": 1})
    );
    assert_eq!(json["gathered"], 2);
    let links: Vec<&Value> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| &f["folder"])
        .collect();
    assert_eq!(links, [&json!(kept), &Value::Null, &Value::Null]);
    assert_eq!(json["findings"][0]["weight"], 1.5);
    assert_eq!(json["passes"]["range"]["error"], 1);
    assert_eq!(json["passes"]["metadata"]["skip"], 0);
    assert_eq!(json["findings"].as_array().unwrap().len(), 3);
    assert_eq!(json["findings"][0]["outcome"], "mismatch");
    assert_eq!(json["findings"][0]["classes"], json!(["value", "warnings"]));
    let html = read("report.html");
    assert!(!html.contains("<script"), "{html}");
    assert!(html.contains("&lt;script&gt;"), "{html}");
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    let markdown = read("report.md");
    assert!(!markdown.contains("<script"), "{markdown}");
    assert!(markdown.contains("50.000 %"), "{markdown}");
    for (text, evil) in [(&html, "&lt;script&gt;"), (&markdown, "&lt;script>")] {
        assert!(
            text.contains("a file could not be written, last: no room"),
            "{text}"
        );
        assert!(text.contains("could not be reloaded"), "{text}");
        assert!(text.contains(evil), "{text}");
    }
    assert!(
        markdown.contains("1 match is of answers that are empty"),
        "{markdown}"
    );
    assert!(html.contains(&format!("href=\"{kept}/\"")), "{html}");
    assert!(!html.contains("range-0000000000000002/"), "{html}");
}

#[test]
fn report_of_ten_thousand_questions_is_small_and_quick() {
    let mut tally = ComparisonTally::default();
    for round in 0..1_500 {
        tally.begin(round * 60_000);
    }
    for number in 0..20_000 {
        tally.count(judged(number, ComparisonOutcome::Mismatch));
    }
    let dir = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let (folders, gathering) = (folders(dir.path()), CollectionStatistics::default());
    report(&tally, &folders, &gathering)
        .write(dir.path())
        .unwrap();
    let elapsed = start.elapsed();
    let bytes: u64 = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 10_000_000, "{bytes}");
    for name in ["report.json", "report.html", "report.md"] {
        let bytes = fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(bytes < 5_000_000, "{name}: {bytes}");
    }
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
}

#[test]
fn rate_is_never_rounded_up_to_100() {
    assert_eq!(percent(Some(99.999_99)), "99.999 %");
    assert_eq!(percent(Some(100.0)), "100 %");
    assert_eq!(percent(None), "–");
}
