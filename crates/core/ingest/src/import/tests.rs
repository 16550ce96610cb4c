//! Imports texts into a store that keeps or rejects samples.

use super::*;
use crate::limits::IngestLimits;
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::env::sim::SimClock;
use firn_model::shares::BudgetShares;
use firn_model::store::{AppendBounds, LateSamplePolicy, RejectedSamples, SampleRejection};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::Mutex;

const NOW: i64 = 1_000_000_000;

/// Keeps samples as `labels value@time`. Rejects negative values as too far in the future, and
/// fails a whole batch as long as `refusals` are left.
#[derive(Default)]
struct Keeping {
    samples: Mutex<Vec<String>>,
    refusals: Mutex<u32>,
    batches: Mutex<Vec<usize>>,
    exemplars: Mutex<usize>,
}

impl Append for Keeping {
    fn append(&self, _: &TenantId, batch: &Batch, bounds: AppendBounds) -> Ticket {
        assert_eq!(bounds.late, LateSamplePolicy::OfAnyAge);
        assert_eq!(bounds.in_order_min, NOW - 3_600_000);
        assert_eq!(bounds.time_max, NOW + 600_000);
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 {
            *refusals -= 1;
            return Ticket::resolved(Err(Error::unavailable("the disk is full")));
        }
        let mut appended = AppendOutcome::default();
        let mut samples = self.samples.lock().unwrap();
        for (number, series) in batch.iter_with_index() {
            for (time, value) in series.times.iter().zip(series.values) {
                if *value >= 0.0 {
                    samples.push(format!("{} {value}@{time}", series.labels.to_owned()));
                    appended.stored += 1;
                    continue;
                }
                match appended.rejected.first_mut() {
                    Some(first) => first.count += 1,
                    None => appended.rejected.push(RejectedSamples {
                        rejection: SampleRejection::TooFarInFuture,
                        count: 1,
                        first_labels: series.labels.to_owned(),
                        first_time: *time,
                        first_series: number as usize,
                        limit: None,
                    }),
                }
            }
        }
        self.batches.lock().unwrap().push(batch.sample_count());
        *self.exemplars.lock().unwrap() += batch.exemplars().iter().count();
        Ticket::resolved(Ok(appended))
    }

    fn can_store_exemplars(&self) -> bool {
        true
    }
}

fn settings(format: ExpositionFormat) -> ImportSettings {
    ImportSettings {
        format,
        is_format_stated: true,
        packing: ContentEncoding::None,
        default_time: 77,
        extra_labels: Vec::new(),
    }
}

fn pipeline(store: &Arc<Keeping>, mib: usize) -> Arc<Pipeline> {
    let clock = Arc::new(SimClock::default());
    clock.set_ms(NOW);
    let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(mib << 20));
    let memory = Budget::new("process", mib << 20);
    Arc::new(Pipeline::new(store.clone(), clock, limits, &memory))
}

/// Imports a body that arrives in parts of `step` bytes.
fn import(
    store: &Arc<Keeping>,
    settings: ImportSettings,
    body: &[u8],
    step: usize,
) -> Result<WriteOutcome, Error> {
    let pipeline = pipeline(store, 1024);
    let mut import = TextImport::begin_import(pipeline, TenantId::anonymous(), None, settings);
    let mut parts = body.chunks(step);
    let end = loop {
        match import.advance_piece() {
            Ok(ImportStep::Done) => break Ok(()),
            Ok(ImportStep::NeedsInput) => match parts.next() {
                Some(part) => import.push_input(part),
                None => import.end_input(),
            },
            Ok(ImportStep::Sent(ticket)) => match ticket.wait() {
                Ok(appended) => import.record_stored_piece(appended),
                Err(e) => break Err(import.append_stored_counts(e)),
            },
            Err(e) => break Err(e),
        }
    };
    import.finish(end)
}

#[track_caller]
fn check(settings: ImportSettings, text: &str, wanted: &[&str]) {
    for step in [1, 13, 1 << 20] {
        let store = Arc::new(Keeping::default());
        let outcome = import(&store, settings.clone(), text.as_bytes(), step);
        let outcome = outcome.expect("the text is sound");
        assert_eq!(*store.samples.lock().unwrap(), wanted, "{step} at a time");
        assert_eq!(outcome.stored_count, wanted.len());
        assert_eq!(outcome.error_text(), None);
    }
}

/// Imports a text and compares its error text and the number of stored samples.
#[track_caller]
fn check_refused(settings: ImportSettings, text: &str, wanted: &str, stored: usize) {
    let store = Arc::new(Keeping::default());
    let said = match import(&store, settings, text.as_bytes(), 4096) {
        Ok(outcome) => outcome.error_text().unwrap_or_default(),
        Err(e) => e.message,
    };
    assert_eq!(said, wanted);
    assert_eq!(store.samples.lock().unwrap().len(), stored, "{wanted}");
}

#[test]
fn text_of_both_formats_is_stored_with_its_own_units_of_time() {
    let text = "# HELP up x\n# TYPE up gauge\nup 1 5\nup 2 10\nup{a=\"b\"} 3\n\nup 4";
    let wanted = [
        "{__name__=\"up\"} 1@5",
        "{__name__=\"up\"} 2@10",
        "{__name__=\"up\", a=\"b\"} 3@77",
        "{__name__=\"up\"} 4@77",
    ];
    check(settings(ExpositionFormat::Text), text, &wanted);
    let text = "# TYPE h histogram\nh_bucket{le=\"1\"} 1 1.5\nh_bucket{le=\"1.0\"} 2 2\nh_count \
         3\n# EOF\n";
    let wanted = [
        "{__name__=\"h_bucket\", le=\"1.0\"} 1@1500",
        "{__name__=\"h_bucket\", le=\"1.0\"} 2@2000",
        "{__name__=\"h_count\"} 3@77",
    ];
    check(settings(ExpositionFormat::OpenMetrics), text, &wanted);
    check(settings(ExpositionFormat::Text), "", &[]);
    check(settings(ExpositionFormat::OpenMetrics), "# EOF\n", &[]);
}

#[test]
fn extra_labels_take_the_place_of_those_of_the_text() {
    let extra = |pairs: &[(&str, &str)]| ImportSettings {
        extra_labels: pairs
            .iter()
            .map(|(n, v)| (n.to_string(), v.to_string()))
            .collect(),
        ..settings(ExpositionFormat::Text)
    };
    let text = "up{job=\"x\",z=\"1\"} 1 1\nup 2 2\n";
    check(
        extra(&[("job", "y"), ("a", "b")]),
        text,
        &[
            "{__name__=\"up\", a=\"b\", job=\"y\", z=\"1\"} 1@1",
            "{__name__=\"up\", a=\"b\", job=\"y\"} 2@2",
        ],
    );
    check(
        extra(&[("job", "")]),
        text,
        &["{__name__=\"up\", z=\"1\"} 1@1", "{__name__=\"up\"} 2@2"],
    );
}

#[test]
fn text_with_an_error_says_its_line_and_what_is_stored() {
    let text = settings(ExpositionFormat::Text);
    let cases = [
        (
            "up 1 1\nup x\n",
            "line 2: strconv.ParseFloat: parsing \"x\": invalid syntax while parsing: \"up x\"; \
             nothing was stored",
            0,
        ),
        (
            "up -1 1\nup 2 2\nup -1 3\n",
            "line 1: out of bounds: timestamp is too far in the future for series \
             {__name__=\"up\"} at timestamp 1; 2 of 3 samples dropped: 2 too_far_in_future",
            1,
        ),
        (
            "up 1 1\nup{a=\"1\",a=\"2\"} 1 1\nup{a=\"1\",a=\"2\"} 2 2\nup{b=\"1\",b=\"2\"} 2 2\n",
            "line 2: invalid labels for series, labels {__name__=\"up\", a=\"1\", a=\"2\"}, \
             duplicated label a; 3 of 4 samples dropped: 3 label_duplicate",
            1,
        ),
    ];
    for (body, wanted, stored) in cases {
        let wanted = wanted.replace(
            "label_duplicate",
            DropReason::Refused(firn_wire::remote_write::WriteRejectionReason::DuplicateLabel)
                .as_str(),
        );
        check_refused(text.clone(), body, &wanted, stored);
    }
    let unstated = ImportSettings {
        is_format_stated: false,
        ..text
    };
    let said = format!("{OTHER_FORMAT}; nothing was stored");
    check_refused(unstated, "up 1 1\n# EOF\n", &said, 0);
    let ended = "line 2: data does not end with # EOF; nothing was stored";
    check_refused(
        settings(ExpositionFormat::OpenMetrics),
        "up 1 1\n",
        ended,
        0,
    );
}

#[test]
fn long_text_is_stored_piece_by_piece_up_to_its_error() {
    let line = |i: u32| format!("m{{number=\"{i:06}\"}} {i} {i}\n");
    let lines: u32 = 200_000;
    let mut text: String = (0..lines).map(line).collect();
    text.push_str("m{ 1\n");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    let bodies = [
        (ContentEncoding::None, text.into_bytes()),
        (ContentEncoding::Gzip, packed),
    ];
    for (packing, body) in bodies {
        let store = Arc::new(Keeping::default());
        let settings = ImportSettings {
            packing,
            ..settings(ExpositionFormat::Text)
        };
        let e = import(&store, settings, &body, 16 << 10).unwrap_err();
        assert!(e.message.starts_with("line 200001: expected "), "{e}");
        let stored = store.samples.lock().unwrap().len();
        let said = format!("{stored} samples are stored, all up to line {stored}");
        assert!(e.message.ends_with(&said), "{e}, not {said}");
        let largest = store.batches.lock().unwrap().iter().copied().max();
        assert!(stored > 100_000 && largest < Some(50_000), "{largest:?}");
    }
}

#[test]
fn piece_that_could_not_be_stored_is_sent_again_as_it_was() {
    let store = Arc::new(Keeping {
        refusals: Mutex::new(2),
        ..Keeping::default()
    });
    let pipeline = pipeline(&store, 1024);
    let settings = settings(ExpositionFormat::Text);
    let mut import = TextImport::begin_import(pipeline, TenantId::anonymous(), None, settings);
    import.push_input(b"a 1 1\nb 2 2 \n");
    import.end_input();
    let Ok(ImportStep::Sent(ticket)) = import.advance_piece() else {
        panic!("a piece is sent");
    };
    ticket.wait().unwrap_err();
    import.send_piece().wait().unwrap_err();
    let appended = import.send_piece().wait().unwrap();
    import.record_stored_piece(appended);
    assert!(matches!(import.advance_piece(), Ok(ImportStep::Done)));
    assert_eq!(import.finish(Ok(())).unwrap().stored_count, 2);
    assert_eq!(store.samples.lock().unwrap().len(), 2);
}

#[test]
fn exemplars_come_with_their_samples() {
    let store = Arc::new(Keeping::default());
    let text = "# TYPE c counter\nc_total 1 1 # {id=\"a\"} 1 0.5\nc_total 2 2\n# EOF\n";
    import(
        &store,
        settings(ExpositionFormat::OpenMetrics),
        text.as_bytes(),
        100,
    )
    .unwrap();
    assert_eq!(*store.exemplars.lock().unwrap(), 1);
}
