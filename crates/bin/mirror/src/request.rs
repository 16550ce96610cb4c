//! Distributes scraped samples over requests as Prometheus's queue manager does.
//!
//! Each series belongs to one sender: its number modulo the number of senders. The samples of a
//! sender are cut into requests of 2,000 in the order in which they were scraped. An incomplete
//! request is sent after five seconds of data time, unless another deadline is set. A target with
//! 376 series is thus distributed over all senders, with one or two requests of each.
//!
//! Invariant: the requests of a sender contain the samples of each series in time order; `due_ms`
//! never decreases from one request of a sender to the next.

use crate::body;
use crate::fleet::FleetSample;
use firn_model::batch::{Batch, HistogramSample};
use firn_model::exemplar::TimedExemplar;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_wire::remote_write::encode_interned;

/// Maximum number of samples per request: Prometheus's `max_samples_per_send`.
pub const SAMPLES_PER_REQUEST: usize = 2_000;

/// Default time in milliseconds that a sample waits for its request to fill up: Prometheus's
/// `batch_send_deadline`.
pub const SEND_DEADLINE_MS: i64 = 5_000;

/// A remote-write request and the time at which a sender of Prometheus would send it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Data time in milliseconds at which a queue manager would send it.
    pub due_ms: TimestampMs,
    /// Number of samples in the request, floats and histograms together.
    pub samples: u32,
    /// Version of remote write in which the body is encoded.
    pub protocol: RemoteWriteProtocol,
    /// The body as it is sent, compressed with snappy.
    pub body: Vec<u8>,
}

/// A version of the remote-write protocol, which determines message and headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteWriteProtocol {
    /// Remote write 1.0, with the message `prometheus.WriteRequest`.
    #[default]
    One,
    /// Remote write 2.0, with the message `io.prometheus.write.v2.Request`.
    Two,
}

impl RemoteWriteProtocol {
    /// Returns the `Content-Type` header of requests in this version, which names the message.
    pub fn content_type(self) -> &'static str {
        match self {
            RemoteWriteProtocol::One => "application/x-protobuf",
            RemoteWriteProtocol::Two => {
                "application/x-protobuf;proto=io.prometheus.write.v2.Request"
            }
        }
    }

    /// Returns the `X-Prometheus-Remote-Write-Version` header of requests in this version.
    pub fn version(self) -> &'static str {
        match self {
            RemoteWriteProtocol::One => "0.1.0",
            RemoteWriteProtocol::Two => "2.0.0",
        }
    }

    /// Encodes `batch` as the body of a request, compressed with snappy.
    pub fn encode(self, batch: &Batch) -> Vec<u8> {
        match self {
            RemoteWriteProtocol::One => body::encode(batch),
            RemoteWriteProtocol::Two => encode_interned(batch, &MetadataBatch::default()),
        }
    }
}

/// The queues of all senders, which collect samples until a request is full or its deadline has
/// passed.
#[derive(Debug)]
pub struct SenderQueues {
    queues: Vec<SenderQueue>,
    protocol: RemoteWriteProtocol,
    /// Maximum time in milliseconds that a sample waits for its request to fill up.
    deadline_ms: i64,
}

#[derive(Debug, Default)]
struct SenderQueue {
    batch: Batch,
    oldest_ms: TimestampMs,
    due_ms: TimestampMs,
}

impl SenderQueues {
    /// Creates empty queues for `senders`, at least one. A sample waits at most `deadline_ms` for
    /// its request to fill up.
    pub fn new(senders: usize, deadline_ms: i64, protocol: RemoteWriteProtocol) -> Self {
        let mut queues = Vec::new();
        queues.resize_with(senders.max(1), SenderQueue::default);
        Self {
            queues,
            protocol,
            deadline_ms,
        }
    }

    /// Appends a sample to the queue of its series and passes every request that is complete or
    /// overdue to `emit`, with the number of its sender.
    pub fn push<E>(
        &mut self,
        sample: &FleetSample<'_>,
        emit: &mut impl FnMut(usize, Request) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push_at(sample, None, sample.time_ms, emit)
    }

    /// Appends a sample like [`SenderQueues::push`], with an optional exemplar. `now_ms` may be
    /// later than the time of the scrape.
    pub fn push_at<E>(
        &mut self,
        sample: &FleetSample<'_>,
        exemplar: Option<TimedExemplar<'_>>,
        now_ms: TimestampMs,
        emit: &mut impl FnMut(usize, Request) -> Result<(), E>,
    ) -> Result<(), E> {
        let sender = (sample.series % self.queues.len() as u64) as usize;
        let protocol = self.protocol;
        let queue = &mut self.queues[sender];
        if queue.is_overdue(now_ms, self.deadline_ms) {
            emit(
                sender,
                queue.cut(queue.oldest_ms + self.deadline_ms, protocol),
            )?;
        }
        if queue.batch.is_empty() {
            queue.oldest_ms = now_ms;
        }
        queue.add(sample, exemplar);
        if queue.batch.sample_count() == SAMPLES_PER_REQUEST {
            emit(sender, queue.cut(now_ms, protocol))?;
        }
        Ok(())
    }

    /// Passes all requests whose deadline has passed at `now_ms` to `emit`.
    pub fn expire<E>(
        &mut self,
        now_ms: TimestampMs,
        emit: &mut impl FnMut(usize, Request) -> Result<(), E>,
    ) -> Result<(), E> {
        for (sender, queue) in self.queues.iter_mut().enumerate() {
            if queue.is_overdue(now_ms, self.deadline_ms) {
                emit(
                    sender,
                    queue.cut(queue.oldest_ms + self.deadline_ms, self.protocol),
                )?;
            }
        }
        Ok(())
    }
}

impl SenderQueue {
    fn is_overdue(&self, now_ms: TimestampMs, deadline_ms: i64) -> bool {
        !self.batch.is_empty() && now_ms.saturating_sub(self.oldest_ms) >= deadline_ms
    }

    fn add(&mut self, sample: &FleetSample<'_>, exemplar: Option<TimedExemplar<'_>>) {
        let batch = &mut self.batch;
        batch
            .label_bytes()
            .extend_from_slice(sample.labels.as_bytes());
        match sample.histogram {
            None => batch.push_float(sample.time_ms, sample.value),
            Some(histogram) => batch.push_histogram(HistogramSample {
                time: sample.time_ms,
                start_time: START_UNKNOWN,
                histogram: histogram.clone(),
            }),
        }
        if let Some(exemplar) = exemplar {
            batch.push_exemplar(exemplar);
        }
        batch.end_series();
    }

    fn cut(&mut self, due_ms: TimestampMs, protocol: RemoteWriteProtocol) -> Request {
        // Because single scrapes can be late, a full request could be due slightly before the
        // previous one.
        self.due_ms = self.due_ms.max(due_ms);
        let request = Request {
            due_ms: self.due_ms,
            samples: self.batch.sample_count() as u32,
            protocol,
            body: protocol.encode(&self.batch),
        };
        self.batch.clear();
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::labels::Labels;
    use std::convert::Infallible;

    /// Pushes `(series, time)` pairs and compares the requests with `(sender, due, samples)`.
    fn check(senders: usize, samples: &[(u64, i64)], expected: &[(usize, i64, u32)]) {
        let mut queues = SenderQueues::new(senders, SEND_DEADLINE_MS, RemoteWriteProtocol::One);
        let mut requests = Vec::new();
        let mut emit = |sender, r: Request| -> Result<(), Infallible> {
            requests.push((sender, r.due_ms, r.samples));
            Ok(())
        };
        let labels = Labels::from_pairs([("__name__", "m")]);
        for (series, time_ms) in samples {
            let observation = FleetSample {
                series: *series,
                labels: labels.as_ref(),
                time_ms: *time_ms,
                value: 1.0,
                histogram: None,
            };
            let Ok(()) = queues.push(&observation, &mut emit);
        }
        let Ok(()) = queues.expire(i64::MAX, &mut emit);
        assert_eq!(requests, expected);
    }

    #[test]
    fn queue_of_full_requests_cuts_at_2000_samples() {
        let samples: Vec<_> = (0..8_002).map(|i| (i, i as i64 / 1_000)).collect();
        let expected = [
            (0, 3, 2_000),
            (1, 3, 2_000),
            (0, 7, 2_000),
            (1, 7, 2_000),
            (0, 5_008, 1),
            (1, 5_008, 1),
        ];
        check(2, &samples, &expected);
    }

    #[test]
    fn queue_that_does_not_fill_up_sends_after_the_deadline() {
        let samples = [(0, 0), (2, 4_999), (1, 10), (0, 5_000)];
        let expected = [(0, 5_000, 2), (0, 10_000, 1), (1, 5_010, 1)];
        check(2, &samples, &expected);
    }
}
