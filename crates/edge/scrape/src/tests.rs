//! Tests targets that appear, change, fail and vanish: consecutive bodies without a clock, and jobs
//! with a clock that only the test advances.

mod jobs;

use super::settings::{ScrapeJobSettings, StartTimeSettings};
use super::state::ScrapeState;
use firn_http_client::DecodedBody;
use firn_http_client::MemoryShare;
use firn_ingest::relabel::{RelabelAction, RelabelRule, RelabelRuleSettings};
use firn_ingest::targets::ScrapeTarget;
use firn_ingest::targets::TargetStatus;
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::Labels;
use firn_model::names::NameScheme;
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale};
use firn_model::tenant::TenantId;
use firn_wire::WireLimits;
use std::sync::Arc;
use std::time::Duration;

/// Formats a batch as one line for each sample, without the target's labels.
fn lines(batch: &Batch) -> Vec<String> {
    let mut lines = Vec::new();
    for series in batch.iter() {
        let labels = series.labels.to_string();
        let labels = labels
            .replace(", instance=\"here\", job=\"test\"", "")
            .replace("__name__=", "");
        for (time, value) in series.times.iter().zip(series.values) {
            let value = if is_stale(*value) {
                "stale".to_owned()
            } else {
                value.to_string()
            };
            lines.push(format!("{labels} {value}@{time}"));
        }
        for sample in series.histograms {
            let schema = sample.histogram.schema;
            lines.push(format!("{labels} schema {schema}@{}", sample.time));
        }
    }
    lines
}

/// Returns a body in the text format.
fn body(text: &str) -> DecodedBody {
    DecodedBody {
        bytes: text.as_bytes().to_vec(),
        content_type: "text/plain".into(),
        memory: None,
    }
}

fn target(job: &ScrapeJobSettings) -> ScrapeTarget {
    ScrapeTarget {
        tenant: TenantId::anonymous(),
        labels: Labels::from_pairs([("job", "test"), ("instance", "here")]),
        discovered: Labels::empty(),
        url: "http://here/metrics".into(),
        interval: job.interval,
        interval_text: String::new(),
        timeout: job.timeout,
        timeout_text: String::new(),
        native_histograms: job.native_histograms,
        always_classic: job.always_classic,
        convert_classic: job.convert_classic,
    }
}

struct Steps {
    state: ScrapeState,
    status: Arc<TargetStatus>,
    time: TimestampMs,
}

impl Steps {
    fn new(job: ScrapeJobSettings) -> Self {
        let status = Arc::new(TargetStatus::default());
        let memory = MemoryShare::new(&Budget::new("caches", 1 << 20), "cache").unwrap();
        let (job, limits) = (Arc::new(job), WireLimits::default());
        let target = target(&job);
        Self {
            state: ScrapeState::new(job, &target, status.clone(), limits, memory),
            status,
            time: 0,
        }
    }

    fn reconfigure(&mut self, job: ScrapeJobSettings) {
        let target = target(&job);
        self.state.reconfigure(Arc::new(job), &target);
    }

    /// Processes `text` as the body of a scrape, or a failed fetch if it is `None`; returns the
    /// samples, the counts of the report, and the error.
    fn take(&mut self, text: Option<&str>) -> (Vec<String>, [String; 4], Result<(), String>) {
        self.time += 10;
        let failure = || Error::new(ErrorKind::Unavailable, "connection refused");
        let fetched = text.map(body).ok_or_else(failure);
        let elapsed = || Duration::from_millis(500);
        let outcome = self
            .state
            .process_response(fetched, self.time, elapsed)
            .outcome;
        let mut all = lines(self.state.batch());
        let report = all.split_off(all.len() - 5);
        let at = format!("@{}", self.time);
        let value = |i: usize| {
            let value = report[i].rsplit_once(' ').unwrap().1;
            value.strip_suffix(&at).unwrap().to_owned()
        };
        assert_eq!(value(1), "0.5");
        let counts = [value(0), value(2), value(3), value(4)];
        (all, counts, outcome.map_err(|e| e.message))
    }

    /// Processes a scrape and compares the samples, which all have the time of the scrape, and the
    /// counts: up, samples scraped, samples kept, series added.
    fn check(&mut self, text: Option<&str>, wanted: &[&str], counts: [u32; 4]) {
        let (samples, got, outcome) = self.take(text);
        let wanted: Vec<String> = wanted
            .iter()
            .map(|w| format!("{w}@{}", self.time))
            .collect();
        assert_eq!(samples, wanted, "{text:?}");
        assert_eq!(got, counts.map(|c| c.to_string()), "{text:?}");
        assert_eq!(outcome.is_ok(), counts[0] == 1, "{text:?}");
    }

    /// Processes a scrape, and checks that it fails with this error text and stores nothing.
    fn check_refused(&mut self, text: &str, message: &str, counts: [u32; 3]) {
        let (samples, got, outcome) = self.take(Some(text));
        assert_eq!(outcome.unwrap_err(), message, "{text}");
        assert!(samples.iter().all(|s| s.contains("stale")), "{samples:?}");
        let [scraped, kept, added] = counts;
        let wanted = [0, scraped, kept, added].map(|c| c.to_string());
        assert_eq!(got, wanted, "{text}");
    }
}

fn rule(settings: RelabelRuleSettings) -> RelabelRule {
    settings.compile(NameScheme::Utf8).unwrap()
}

fn drop_rule(metric: &str) -> RelabelRule {
    rule(RelabelRuleSettings {
        source_labels: Some(vec!["__name__".into()]),
        regex: Some(metric.to_owned()),
        action: RelabelAction::Drop,
        ..RelabelRuleSettings::default()
    })
}

#[test]
fn scrape_series_that_vanish_are_marked_stale_once() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    steps.check(
        Some("a 1\nb 2\n"),
        &["{\"a\"} 1", "{\"b\"} 2"],
        [1, 2, 2, 2],
    );
    steps.check(Some("a 1\n"), &["{\"a\"} 1", "{\"b\"} stale"], [1, 1, 1, 0]);
    steps.check(Some("a 1\n"), &["{\"a\"} 1"], [1, 1, 1, 0]);
    steps.check(Some("b 3\n"), &["{\"b\"} 3", "{\"a\"} stale"], [1, 1, 1, 1]);
    steps.check(None, &["{\"b\"} stale"], [0, 0, 0, 0]);
    steps.check(None, &[], [0, 0, 0, 0]);
    steps.check(Some("b 4\n"), &["{\"b\"} 4"], [1, 1, 1, 0]);
    steps.check(Some("b 5\nc\n"), &["{\"b\"} stale"], [0, 1, 1, 0]);
    steps.check(Some("c 1\n"), &["{\"c\"} 1"], [1, 1, 1, 1]);
    steps.check(Some(""), &["{\"c\"} stale"], [1, 0, 0, 0]);
}

#[test]
fn scrape_in_any_order_finds_the_same_series() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    let mut check = |text: &str, added: u32| {
        let (samples, counts, _) = steps.take(Some(text));
        assert_eq!(samples.len(), text.lines().count(), "{samples:?}");
        assert_eq!(counts[3], added.to_string(), "{text}");
    };
    check("a 1\nb 2\nc 3\n", 3);
    check("c 1\nb 2\na 3\n", 0);
    check("b 1\na 2\nd 3\nc 4\n", 1);
    check("a 1\nb 2\nc 3\nd 4\n", 0);
    check("a 1\nb 2\nc 3\nd 4\n", 0);
}

#[test]
fn scrape_series_written_in_another_way_is_the_same() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    let wanted = ["{\"a\", x=\"1\", y=\"2\"} 1".to_owned()];
    let wanted: Vec<String> = wanted
        .iter()
        .map(|w| w.replace("\"a\", ", "\"a\", instance=\"here\", job=\"test\", "))
        .collect();
    let samples = |steps: &mut Steps, text: &str| steps.take(Some(text)).0;
    for text in ["a{x=\"1\",y=\"2\"} 1\n", "a{y=\"2\",x=\"1\"} 1\n"] {
        let got = samples(&mut steps, text);
        let short: Vec<String> = wanted
            .iter()
            .map(|w| {
                let w = w.replace(", instance=\"here\", job=\"test\"", "");
                format!("{w}@{}", steps.time)
            })
            .collect();
        assert_eq!(got, short);
    }
}

#[test]
fn scrape_series_with_own_time_go_stale_only_if_tracked() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    let (samples, ..) = steps.take(Some("a 1 5\nb 1\n"));
    assert_eq!(samples, ["{\"a\"} 1@5", "{\"b\"} 1@10"]);
    steps.check(Some("\n"), &["{\"b\"} stale"], [1, 0, 0, 0]);

    let mut job = ScrapeJobSettings::new("test");
    job.track_timestamps_staleness = true;
    let mut steps = Steps::new(job);
    let _ = steps.take(Some("a 1 5\n"));
    steps.check(Some("\n"), &["{\"a\"} stale"], [1, 0, 0, 0]);

    let mut job = ScrapeJobSettings::new("test");
    job.honor_timestamps = false;
    let mut steps = Steps::new(job);
    steps.check(Some("a 1 5\n"), &["{\"a\"} 1"], [1, 1, 1, 1]);
}

#[test]
fn scrape_counts_series_as_added_at_their_first_accepted_sample() {
    type Case = (&'static [&'static str], &'static [u32]);
    let cases: [Case; 5] = [
        // The store accepts timestamps from 5 to 100: one sample is too old, one too far ahead.
        (&["m 1\nold 1 4\nahead 1 101\n"; 2], &[1, 0]),
        (
            &["old 1 4\n", "old 1 4\n", "old 1 6\n", "old 1 7\n"],
            &[0, 0, 1, 0],
        ),
        // An empty body is a failure of the target, but a body without samples is not.
        (&["m 1\n", "m 1\n", "", "m 1\n"], &[1, 0, 0, 0]),
        (&["m 1\n", "\n", "m 1\n"], &[1, 0, 1]),
        (&["m 1\nm 2\n", "m 1\nn\n", "m 1\nn 1\n"], &[1, 0, 1]),
    ];
    for (bodies, wanted) in cases {
        let mut steps = Steps::new(ScrapeJobSettings::new("test"));
        steps.state.set_accepted_times(5..=100);
        let added = bodies
            .iter()
            .map(|body| steps.take(Some(body)).1[3].clone());
        let wanted: Vec<String> = wanted.iter().map(u32::to_string).collect();
        assert_eq!(added.collect::<Vec<_>>(), wanted, "{bodies:?}");
    }
}

#[test]
fn scrape_end_marks_everything_after_the_last_sample() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    steps.state.mark_all_stale(5);
    assert!(steps.state.batch().is_empty());
    steps.check(Some("a 1\n"), &["{\"a\"} 1"], [1, 1, 1, 1]);
    steps.state.mark_all_stale(10);
    let marked = lines(steps.state.batch());
    assert_eq!(marked[..2], ["{\"a\"} stale@11", "{\"up\"} stale@11"]);
    assert_eq!(marked.len(), 6);
}

#[test]
fn scrape_labels_of_target_win_unless_honored() {
    let text = "a{job=\"x\",exported_job=\"y\"} 1\n";
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    let wanted = "{\"a\", exported_exported_job=\"x\", exported_job=\"y\", instance=\"here\", \
                  job=\"test\"} 1";
    let (samples, ..) = steps.take(Some(text));
    let full = |s: &str| s.replace(", instance=\"here\", job=\"test\"", "");
    assert_eq!(samples, [format!("{}@10", full(wanted))]);

    let mut job = ScrapeJobSettings::new("test");
    job.honor_labels = true;
    let mut steps = Steps::new(job);
    let (samples, ..) = steps.take(Some(text));
    let wanted = "{\"a\", exported_job=\"y\", instance=\"here\", job=\"x\"} 1@10";
    assert_eq!(samples, [wanted]);
    let (samples, ..) = steps.take(Some("a{instance=\"\"} 1\n"));
    assert_eq!(samples[0], "{\"a\", job=\"test\"} 1@20");
}

#[test]
fn scrape_relabelled_series_are_dropped_and_counted() {
    let mut job = ScrapeJobSettings::new("test");
    job.metric_relabel = vec![drop_rule("b.*")];
    let mut steps = Steps::new(job);
    for added in [2, 0] {
        let wanted = ["{\"a\"} 1", "{\"c\"} 3"];
        steps.check(Some("a 1\nb 2\nbb 2\nc 3\n"), &wanted, [1, 4, 2, added]);
    }
    // Other rules give other series for the same body; those that vanish become stale.
    let mut job = ScrapeJobSettings::new("test");
    job.metric_relabel = vec![drop_rule("c")];
    steps.reconfigure(job);
    let wanted = ["{\"a\"} 1", "{\"b\"} 2", "{\"c\"} stale"];
    steps.check(Some("a 1\nb 2\nc 3\n"), &wanted, [1, 3, 2, 2]);
}

#[test]
fn scrape_reconfigured_without_other_labels_keeps_its_series() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    steps.check(Some("a 1\n"), &["{\"a\"} 1"], [1, 1, 1, 1]);
    let mut job = ScrapeJobSettings::new("test");
    job.limits.samples = 1;
    steps.reconfigure(job);
    steps.check(Some("a 1\n"), &["{\"a\"} 1"], [1, 1, 1, 0]);
    steps.check_refused("a 1\nb 1\n", "sample limit exceeded", [2, 2, 0]);
}

#[test]
fn scrape_beyond_a_limit_is_refused_as_a_whole() {
    let long = "a{label=\"1\",lable=\"2\"} 1\n";
    type Case = (
        fn(&mut ScrapeJobSettings),
        &'static str,
        &'static str,
        [u32; 3],
    );
    let cases: [Case; 5] = [
        (
            |job| job.limits.samples = 2,
            "a 1\nb 1\nc 1\nd 1\n",
            "sample limit exceeded",
            [4, 4, 2],
        ),
        (
            |job| job.limits.labels = 4,
            long,
            "label_limit exceeded (metric: a, number of labels: 5, limit: 4)",
            [1, 0, 0],
        ),
        (
            |job| job.limits.label_name_bytes = 4,
            "a 1\n",
            "label_name_length_limit exceeded (metric: a, label name: __name__, length: 8, limit: 4)",
            [1, 0, 0],
        ),
        (
            |job| job.limits.label_value_bytes = 6,
            "a 1\nb{x=\"1234567\"} 1\n",
            "label_value_length_limit exceeded (metric: b, label name: x, value: \"1234567\", \
             length: 7, limit: 6)",
            [2, 1, 1],
        ),
        (
            |job| job.names = NameScheme::Legacy,
            "{\"a.b\"} 1\n",
            "invalid metric name or label names: {__name__=\"a.b\", instance=\"here\", \
             job=\"test\"}",
            [1, 0, 0],
        ),
    ];
    for (limit, text, message, counts) in cases {
        let mut job = ScrapeJobSettings::new("test");
        limit(&mut job);
        Steps::new(job).check_refused(text, message, counts);
    }
}

#[test]
fn scrape_of_a_label_bomb_is_refused_by_memory() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    steps.check(Some("a 1\n"), &["{\"a\"} 1"], [1, 1, 1, 1]);
    let bomb: String = (0..4000)
        .map(|i| format!("a{{x=\"{i:0100}\"}} 1\n"))
        .collect();
    let (_, _, outcome) = steps.take(Some(&bomb));
    let message = outcome.unwrap_err();
    assert!(message.starts_with("cache too large: "), "{message}");
    steps.check(Some("a 1\n"), &["{\"a\"} 1"], [1, 1, 1, 0]);
}

#[test]
fn scrape_that_cannot_be_read_says_why() {
    for (text, message) in [
        (
            "a{x=\"1\",x=\"2\"} 1\n",
            "label name \"x\" is not unique: invalid sample",
        ),
        (
            "{x=\"1\"} 1\n",
            "metric name not set while parsing: \"{x=\\\"1\\\"} 1\"",
        ),
    ] {
        let mut steps = Steps::new(ScrapeJobSettings::new("test"));
        let (_, _, outcome) = steps.take(Some(text));
        assert_eq!(outcome.unwrap_err(), message, "{text}");
    }
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    let mut html = body("<html>");
    html.content_type = "text/html".into();
    let scraped = steps.state.process_response(Ok(html), 1, || Duration::ZERO);
    assert_eq!(
        scraped.outcome.unwrap_err().message,
        "received unsupported Content-Type \"text/html\" and no fallback_scrape_protocol \
         specified for target"
    );
}

#[test]
fn scrape_samples_that_come_twice_are_counted_and_dropped() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    let fetched = Ok(body("a 1\na 2\nb 1\na 3\n"));
    let scraped = steps.state.process_response(fetched, 10, || Duration::ZERO);
    let dropped = scraped.dropped.unwrap();
    assert_eq!(
        (dropped.reason.as_str(), dropped.sample_count),
        ("duplicate_timestamp", 2)
    );
    assert_eq!(
        dropped.first,
        "duplicate sample for timestamp for series {__name__=\"a\", instance=\"here\", \
         job=\"test\"} at timestamp 10"
    );
    let samples = lines(steps.state.batch());
    assert_eq!(samples[..2], ["{\"a\"} 1@10", "{\"b\"} 1@10"]);
    assert_eq!(
        samples[5],
        "{\"scrape_samples_post_metric_relabeling\"} 4@10"
    );
}

#[test]
fn scrape_extra_metrics_report_limits_and_size() {
    let mut job = ScrapeJobSettings::new("test");
    job.extra_metrics = true;
    job.limits.samples = 7;
    let mut steps = Steps::new(job);
    let _ = steps
        .state
        .process_response(Ok(body("a 1\n")), 10, || Duration::ZERO);
    assert_eq!(
        lines(steps.state.batch())[6..],
        [
            "{\"scrape_timeout_seconds\"} 10@10",
            "{\"scrape_sample_limit\"} 7@10",
            "{\"scrape_body_size_bytes\"} 4@10"
        ]
    );
}

#[test]
fn scrape_keeps_metadata_while_the_metric_is_there_and_ten_scrapes_more() {
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    let text = "# HELP a Some help.\n# TYPE a counter\na 1\n";
    let _ = steps.take(Some(text));
    let known = steps.status.find_metadata("a").unwrap();
    assert_eq!((known.kind, &known.help[..]), ("counter", "Some help."));
    for _ in 0..10 {
        let _ = steps.take(Some("b 1\n"));
        assert!(steps.status.find_metadata("a").is_some());
    }
    let _ = steps.take(Some("b 1\n"));
    assert_eq!(steps.status.find_metadata("a"), None);
}

#[test]
fn scrape_reads_classic_histograms_as_the_job_says() {
    let text = Some("# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_count 1\n");
    let classic = ["{\"h_bucket\", le=\"+Inf\"} 1", "{\"h_count\"} 1"];
    let converted = "{\"h\"} schema -53";
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    steps.check(text, &classic, [1, 2, 2, 2]);
    let converting = || ScrapeJobSettings {
        convert_classic: true,
        ..ScrapeJobSettings::new("test")
    };
    steps.reconfigure(converting());
    let stale = ["{\"h_bucket\", le=\"+Inf\"} stale", "{\"h_count\"} stale"];
    steps.check(text, &[&[converted], &stale[..]].concat(), [1, 1, 1, 1]);
    steps.reconfigure(ScrapeJobSettings {
        always_classic: true,
        ..converting()
    });
    let both = [classic[0], classic[1], converted];
    steps.check(text, &both, [1, 3, 3, 3]);
}

#[test]
fn scrape_takes_exemplars_with_their_samples() {
    let text = "# TYPE h histogram\n\
        h_bucket{le=\"1\"} 1 # {id=\"a\"} 0.5\n\
        h_bucket{le=\"+Inf\"} 2 # {id=\"b\"} 4 0.007\n\
        h_count 2\nh_sum 3\n# EOF\n";
    let openmetrics = || DecodedBody {
        content_type: "application/openmetrics-text; version=1.0.0".into(),
        ..body(text)
    };
    let exemplars = |steps: &Steps| -> Vec<String> {
        let batch = steps.state.batch();
        let line = |(series, e): (u64, TimedExemplar<'_>)| {
            let name = batch.series(series as usize).labels;
            let name = String::from_utf8_lossy(name.get("le")).into_owned();
            let own = if e.has_own_time { "" } else { "?" };
            format!("{name} {} {}@{}{own}", e.labels, e.value, e.time)
        };
        batch.exemplars().iter().map(line).collect()
    };
    let mut steps = Steps::new(ScrapeJobSettings::new("test"));
    for (keeps, wanted) in [
        (false, &[][..]),
        (true, &["1.0 {id=\"a\"} 0.5@10?", "+Inf {id=\"b\"} 4@7"]),
        (false, &[]),
    ] {
        steps.state.keep_exemplars(keeps);
        let scraped = steps
            .state
            .process_response(Ok(openmetrics()), 10, || Duration::ZERO);
        scraped.outcome.unwrap();
        assert_eq!(exemplars(&steps), wanted);
    }
    // Converted to a native histogram: exemplars without a timestamp are left out.
    let mut steps = Steps::new(ScrapeJobSettings {
        convert_classic: true,
        ..ScrapeJobSettings::new("test")
    });
    steps.state.keep_exemplars(true);
    let scraped = steps
        .state
        .process_response(Ok(openmetrics()), 10, || Duration::ZERO);
    scraped.outcome.unwrap();
    assert_eq!(exemplars(&steps), [" {id=\"b\"} 4@7"]);
}

#[test]
fn scrape_treats_start_times_as_the_features_say() {
    let text = |created: &str| DecodedBody {
        content_type: "application/openmetrics-text; version=1.0.0".into(),
        ..body(&format!(
            "# TYPE a counter\na_total 3\na_created {created}\n# EOF\n"
        ))
    };
    let starts = |batch: &Batch| -> Vec<TimestampMs> {
        let of_first = batch
            .iter()
            .next()
            .map(|series| series.start_times.to_vec());
        of_first.unwrap_or_default()
    };
    let steps = |are_stored, make_zeros| {
        Steps::new(ScrapeJobSettings {
            start_times: StartTimeSettings {
                are_stored,
                make_zeros,
                are_made: false,
            },
            ..ScrapeJobSettings::new("test")
        })
    };
    let take = |steps: &mut Steps, created: &str, time| {
        let scraped = steps
            .state
            .process_response(Ok(text(created)), time, || Duration::ZERO);
        scraped.outcome.unwrap();
        let samples = lines(steps.state.batch());
        let own = samples.len() - 5;
        (samples[..own].to_vec(), lines(steps.state.zeros()))
    };
    let none: Vec<String> = Vec::new();
    let mut plain = steps(false, false);
    let both = ["{\"a_total\"} 3@10", "{\"a_created\"} 0.005@10"];
    assert_eq!(
        take(&mut plain, "0.005", 10),
        (both.map(String::from).to_vec(), none.clone())
    );
    assert_eq!(starts(plain.state.batch()), [0; 0]);
    let mut stored = steps(true, false);
    let one = |time| vec![format!("{{\"a_total\"}} 3@{time}")];
    assert_eq!(take(&mut stored, "0.005", 10), (one(10), none.clone()));
    assert_eq!(starts(stored.state.batch()), [5]);
    let mut zeros = steps(false, true);
    let zero = |time| vec![format!("{{\"a_total\"}} 0@{time}")];
    assert_eq!(take(&mut zeros, "0.005", 10), (one(10), zero(5)));
    assert_eq!(starts(zeros.state.batch()), [0; 0]);
    assert_eq!(take(&mut zeros, "0.005", 20), (one(20), none.clone()));
    assert_eq!(take(&mut zeros, "0.025", 30), (one(30), zero(25)));
    // A start time that is not before the sample is ignored.
    assert_eq!(take(&mut zeros, "0.040", 40), (one(40), none.clone()));
    // A failed scrape stored nothing, so that its zeros are created again.
    let _ = zeros.take(None);
    assert_eq!(take(&mut zeros, "0.025", 60), (one(60), zero(25)));
}

#[test]
fn scrape_that_makes_start_times_counts_from_the_first_sample() {
    let mut steps = Steps::new(ScrapeJobSettings {
        start_times: StartTimeSettings {
            are_stored: true,
            make_zeros: true,
            are_made: true,
        },
        ..ScrapeJobSettings::new("test")
    });
    let text = |count: u32| format!("# TYPE c counter\nc {count}\n# TYPE g gauge\ng 7\n");
    let starts = |steps: &Steps| -> Vec<Vec<TimestampMs>> {
        let of_each = steps.state.batch().iter();
        of_each.take(2).map(|s| s.start_times.to_vec()).collect()
    };
    // The first sample is left out and does not count as stored: nothing becomes stale without it.
    steps.check(Some(&text(5)), &["{\"g\"} 7"], [1, 2, 2, 2]);
    steps.check(Some("g 7\n"), &["{\"g\"} 7"], [1, 1, 1, 0]);
    steps.check(Some(&text(6)), &["{\"g\"} 7"], [1, 2, 2, 1]);
    let counted = |count: u32| [format!("{{\"c\"}} {count}"), "{\"g\"} 7".to_owned()];
    let counted = |steps: &mut Steps, sent: u32, count: u32| {
        let [c, g] = counted(count);
        steps.check(Some(&text(sent)), &[&c, &g], [1, 2, 2, 0]);
    };
    counted(&mut steps, 8, 2);
    assert_eq!(starts(&steps), [[30], [START_UNKNOWN]]);
    assert_eq!(lines(steps.state.zeros()), ["{\"c\"} 0@30"]);
    // A target that was down continues; a counter that was reset starts just before its next
    // sample.
    steps.check(None, &["{\"c\"} stale", "{\"g\"} stale"], [0; 4]);
    counted(&mut steps, 9, 3);
    assert_eq!(starts(&steps), [[30], [START_UNKNOWN]]);
    counted(&mut steps, 2, 2);
    assert_eq!(starts(&steps), [[69], [START_UNKNOWN]]);
    steps.check(Some("g 7\n"), &["{\"g\"} 7", "{\"c\"} stale"], [1, 1, 1, 0]);
}
