//! Threads that send requests to one system. Each has its own connection and lives as long as the
//! run; their number limits the number of concurrent requests.
//!
//! ```text
//! request -> queue of the baseline's askers  -> answer \
//!         `> queue of the candidate's askers -> answer -> thread that compares both
//! ```
//!
//! A system that is idle between two requests has cold caches and sleeping threads. An asker
//! therefore neither compares answers nor waits for the other system: it takes the next request as
//! soon as it has received an answer. Invariant: a system never has more concurrent requests than
//! it has askers, whichever threads submit them.

use super::latency::LatencyHistogram;
use crate::api::{SystemClient, SystemReply};
use crate::error::MirrorError;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Parameters of a request as pairs of name and value, not yet escaped.
pub type Params = Vec<(&'static str, String)>;

/// A queued request and the channel to which the asker sends its response.
struct SystemRequestJob {
    endpoint: String,
    params: Params,
    /// Whether the latency of the response is recorded, as for all compared queries.
    is_question: bool,
    reply: SyncSender<Result<SystemReply, MirrorError>>,
}

/// The asker threads of one system, which share a queue of requests. They end when this value is
/// dropped.
#[derive(Debug)]
pub struct RequestThreads {
    jobs: SyncSender<SystemRequestJob>,
    latencies: Arc<Mutex<LatencyHistogram>>,
}

/// A request that has been queued and whose response is pending. Dropping it discards the response.
#[derive(Debug)]
pub struct PendingReply(Receiver<Result<SystemReply, MirrorError>>);

impl PendingReply {
    /// Waits for the response of the system, or for the failure of the request.
    pub fn wait(self) -> Result<SystemReply, MirrorError> {
        self.0.recv().expect("an asker answers each request")
    }
}

impl RequestThreads {
    /// Starts `count` askers, each with its own client. Each pauses after a request so that it
    /// spends at most `busy` percent of the time on requests.
    pub fn start(count: usize, busy: f64, client: impl Fn() -> SystemClient) -> Self {
        let (jobs, waiting) = sync_channel(count);
        let waiting = Arc::new(Mutex::new(waiting));
        let latencies = Arc::new(Mutex::new(LatencyHistogram::default()));
        for _ in 0..count {
            let (client, waiting) = (client(), Arc::clone(&waiting));
            let latencies = Arc::clone(&latencies);
            thread::spawn(move || work(&waiting, &client, &latencies, busy));
        }
        Self { jobs, latencies }
    }

    /// Queues a request to an endpoint below `/api/v1`. Blocks while the queue is full.
    pub fn begin(&self, endpoint: &str, params: &Params, is_question: bool) -> PendingReply {
        let (reply, answer) = sync_channel(1);
        let job = SystemRequestJob {
            endpoint: endpoint.to_owned(),
            params: params.clone(),
            is_question,
            reply,
        };
        self.jobs.send(job).expect("askers live as long as this");
        PendingReply(answer)
    }

    /// Returns a copy of the latencies of all compared queries so far.
    pub fn latencies(&self) -> LatencyHistogram {
        let latencies = self.latencies.lock();
        latencies.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sends queued requests one after the other until the queue is closed.
fn work(
    waiting: &Mutex<Receiver<SystemRequestJob>>,
    client: &SystemClient,
    latencies: &Mutex<LatencyHistogram>,
    busy: f64,
) {
    let next = || {
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.recv()
    };
    while let Ok(job) = next() {
        let begun = Instant::now();
        let replied = client.fetch(&job.endpoint, &job.params);
        let elapsed = begun.elapsed();
        if job.is_question {
            let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
            latencies.record(elapsed);
        }
        // Sending fails if the caller has dropped the receiver, which is harmless.
        let _ = job.reply.send(replied);
        thread::sleep(pause_after(elapsed, busy));
    }
}

/// Returns how long to pause after a request that took `busy`, so that requests take up `percent`
/// of the total time.
fn pause_after(busy: Duration, percent: f64) -> Duration {
    busy.mul_f64((100.0 - percent) / percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{ExpositionServer, respond};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn pause_makes_a_question_the_share_of_the_time_that_it_may_be() {
        for (busy_ms, percent, pause_ms) in [(10, 100.0, 0), (10, 50.0, 10), (10, 5.0, 190)] {
            let pause = pause_after(Duration::from_millis(busy_ms), percent);
            assert_eq!(
                pause,
                Duration::from_millis(pause_ms),
                "{busy_ms} {percent}"
            );
        }
    }

    #[test]
    fn requests_under_way_are_as_many_as_there_are_askers() {
        for count in [1, 3] {
            let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
            let seen = Arc::clone(&most);
            let system = ExpositionServer::start("127.0.0.1:0", move |_, stream| {
                let under_way = now.fetch_add(1, Ordering::SeqCst) + 1;
                seen.fetch_max(under_way, Ordering::SeqCst);
                thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                respond(stream, "200 OK", "application/json", "{}");
            })
            .unwrap();
            let url = format!("http://{}", system.address);
            let askers = RequestThreads::start(count, 100.0, || SystemClient::new(&url));
            thread::scope(|scope| {
                for thread in 0..8 {
                    let askers = &askers;
                    scope.spawn(move || {
                        for _ in 0..10 {
                            let begun = askers.begin("query", &Vec::new(), thread < 4);
                            assert_eq!(begun.wait().unwrap().body, b"{}");
                        }
                    });
                }
            });
            let most = most.load(Ordering::SeqCst);
            assert!((1..=count).contains(&most), "{most} of {count}");
            assert_eq!(askers.latencies().count(), 40);
        }
    }
}
