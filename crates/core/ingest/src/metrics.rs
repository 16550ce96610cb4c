//! The metrics of ingestion.

use crate::outcome::DropReason;
use firn_model::budget::Budget;
use firn_model::metrics::{Collect, Counter, DurationHistogram, Gauge, MetricSink, MetricValue};

/// Counters of the write pipeline and of scraping, shared by all writers of a pipeline. They are
/// exported under `firn_ingest_`.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) in_flight: Budget,
    pub(crate) requests_stored: Counter,
    pub(crate) requests_partial: Counter,
    pub(crate) requests_invalid: Counter,
    pub(crate) requests_turned_away: Counter,
    pub(crate) requests_failed: Counter,
    pub(crate) body_bytes: Counter,
    pub(crate) message_bytes: Counter,
    pub(crate) samples_stored: Counter,
    pub(crate) samples_dropped: [Counter; DropReason::ALL.len()],
    pub(crate) exemplars_ignored: Counter,
    pub(crate) metadata_ignored: Counter,
    pub(crate) decode_duration: DurationHistogram,
    pub(crate) write_duration: DurationHistogram,
    /// Scrapes whose samples were stored.
    pub scrapes_succeeded: Counter,
    /// Scrapes that failed.
    pub scrapes_failed: Counter,
    /// Targets that are being scraped.
    pub scrape_targets: Gauge,
}

impl Metrics {
    /// Returns counters at zero; `in_flight` is exported as a gauge.
    pub(crate) fn new(in_flight: Budget) -> Self {
        Self {
            in_flight,
            requests_stored: Counter::default(),
            requests_partial: Counter::default(),
            requests_invalid: Counter::default(),
            requests_turned_away: Counter::default(),
            requests_failed: Counter::default(),
            body_bytes: Counter::default(),
            message_bytes: Counter::default(),
            samples_stored: Counter::default(),
            samples_dropped: Default::default(),
            exemplars_ignored: Counter::default(),
            metadata_ignored: Counter::default(),
            decode_duration: DurationHistogram::default(),
            write_duration: DurationHistogram::default(),
            scrapes_succeeded: Counter::default(),
            scrapes_failed: Counter::default(),
            scrape_targets: Gauge::default(),
        }
    }

    /// Adds `count` to the counter of dropped samples for this reason.
    pub(crate) fn count_dropped(&self, reason: DropReason, count: u64) {
        let all = DropReason::ALL.iter().zip(&self.samples_dropped);
        for (_, counter) in all.filter(|(known, _)| **known == reason) {
            counter.add(count);
        }
    }
}

impl Collect for Metrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.collect_requests(sink);
        self.collect_samples(sink);
        self.collect_scrapes(sink);
    }
}

impl Metrics {
    fn collect_requests(&self, sink: &mut dyn MetricSink) {
        let outcomes = [
            ("failed", &self.requests_failed),
            ("invalid", &self.requests_invalid),
            ("partial", &self.requests_partial),
            ("stored", &self.requests_stored),
            ("turned_away", &self.requests_turned_away),
        ];
        for (outcome, count) in outcomes {
            sink.metric(
                "firn_ingest_requests_total",
                "Write requests and imports by outcome.",
                &[("outcome", outcome)],
                MetricValue::Counter(count.get() as f64),
            );
        }
        let bytes = [
            (
                "firn_ingest_body_bytes_total",
                "Bytes of received bodies of writes and imports, compressed.",
                MetricValue::Counter(self.body_bytes.get() as f64),
            ),
            (
                "firn_ingest_message_bytes_total",
                "Bytes of messages of writes and of text of imports, uncompressed.",
                MetricValue::Counter(self.message_bytes.get() as f64),
            ),
            (
                "firn_ingest_in_flight_bytes",
                "Bytes of bodies and messages being processed.",
                MetricValue::Gauge(self.in_flight.used_bytes() as f64),
            ),
            (
                "firn_ingest_in_flight_limit_bytes",
                "Maximum number of bytes being processed at one time.",
                MetricValue::Gauge(self.in_flight.limit_bytes() as f64),
            ),
            (
                "firn_ingest_decode_duration_seconds",
                "Time to decompress and decode a remote write body.",
                MetricValue::Histogram(&self.decode_duration),
            ),
            (
                "firn_ingest_write_duration_seconds",
                "Time from handing a batch to the store until it is durable.",
                MetricValue::Histogram(&self.write_duration),
            ),
        ];
        for (name, help, value) in bytes {
            sink.metric(name, help, &[], value);
        }
    }

    fn collect_samples(&self, sink: &mut dyn MetricSink) {
        let counts = [
            (
                "firn_ingest_samples_total",
                "Samples stored.",
                &self.samples_stored,
            ),
            (
                "firn_ingest_exemplars_ignored_total",
                "Exemplars received and dropped.",
                &self.exemplars_ignored,
            ),
            (
                "firn_ingest_metadata_ignored_total",
                "Metadata entries received and dropped.",
                &self.metadata_ignored,
            ),
        ];
        for (name, help, count) in counts {
            sink.metric(name, help, &[], MetricValue::Counter(count.get() as f64));
        }
        for (reason, count) in DropReason::ALL.iter().zip(&self.samples_dropped) {
            sink.metric(
                "firn_ingest_samples_dropped_total",
                "Samples received and rejected, by reason.",
                &[("reason", reason.as_str())],
                MetricValue::Counter(count.get() as f64),
            );
        }
    }

    fn collect_scrapes(&self, sink: &mut dyn MetricSink) {
        let outcomes = [
            ("failed", &self.scrapes_failed),
            ("succeeded", &self.scrapes_succeeded),
        ];
        for (outcome, count) in outcomes {
            sink.metric(
                "firn_ingest_scrapes_total",
                "Scrapes by outcome.",
                &[("outcome", outcome)],
                MetricValue::Counter(count.get() as f64),
            );
        }
        sink.metric(
            "firn_ingest_scrape_targets",
            "Scraped targets.",
            &[],
            MetricValue::Gauge(self.scrape_targets.get() as f64),
        );
    }
}
