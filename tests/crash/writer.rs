//! Writers that push until the server dies.

use crate::harness::choices::Choices;
use crate::harness::http::Http;
use crate::harness::server::Server;
use crate::harness::write::{Series, body};
use crate::journal::Journal;
use std::time::Duration;

/// Number of concurrent writers: enough for group commits on two cores.
pub const WRITERS: usize = 4;

/// Series that a writer sends in every round.
const OLD_SERIES: u64 = 12;

/// Series that are created in each round.
const NEW_SERIES: u64 = 3;

/// Settings of the pushed samples.
#[derive(Clone, Copy)]
pub struct Load {
    /// Number of the round, which determines the new series.
    pub round: u64,
    /// Age of a late sample in each request, if any.
    pub late_ms: Option<i64>,
}

/// Runs all writers, kills the server after `life`, and returns the journals.
pub fn write_until_dead(
    server: Server,
    journals: Vec<Journal>,
    life: Duration,
    load: Load,
) -> Vec<Journal> {
    let start = |journal: Journal| {
        let http = server.http();
        std::thread::spawn(move || write(journal, &http, load))
    };
    let writers: Vec<_> = journals.into_iter().map(start).collect();
    std::thread::sleep(life);
    server.kill();
    writers
        .into_iter()
        .map(|writer| writer.join().expect("a writer ends"))
        .collect()
}

/// Returns the samples of a request at `time`.
fn samples(choices: &mut Choices, time: i64, load: Load) -> Vec<((i64, u64), f64)> {
    let first_new = OLD_SERIES + load.round * NEW_SERIES;
    let series = (0..OLD_SERIES).chain(first_new..first_new + NEW_SERIES);
    let mut samples: Vec<_> = series
        .map(|series| ((time, series), choices.value()))
        .collect();
    if let Some(late_ms) = load.late_ms {
        // A time that is used by no request.
        let series = choices.below(OLD_SERIES);
        samples.push(((time - late_ms - 1, series), choices.value()));
    }
    samples
}

fn write(mut journal: Journal, http: &Http, load: Load) -> Journal {
    let label = journal.writer.to_string();
    loop {
        let time = journal.tick();
        let mut choices = Choices::new(time as u64 ^ (journal.writer as u64) << 32);
        let samples = samples(&mut choices, time, load);
        let request: Vec<Series> = samples
            .iter()
            .map(|((time, series), value)| {
                let number = series.to_string();
                let labels = [
                    ("__name__", "crash"),
                    ("series", &number),
                    ("writer", &label),
                ];
                Series::new(&labels, &[(*time, *value)])
            })
            .collect();
        let answer = http.write(&body(&request));
        journal.note(&samples, answer.status == 204);
        match answer.status {
            204 => {}
            0 => return journal,
            status => panic!("writer {label}: status {status}: {}", answer.body),
        }
    }
}
