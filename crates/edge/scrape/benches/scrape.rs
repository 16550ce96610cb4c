//! Measures the benefit of the scrape cache: a scrape with the series of the previous one, and the
//! same scrape with an empty cache.
//!
//! The body has 2,000 series with three labels, whose values change from scrape to scrape. Prints
//! nanoseconds for each sample from the body to the batch, the best of many rounds.

use firn_http_client::DecodedBody;
use firn_model::error::Error;
use firn_scrape::{BenchTarget, ScrapeJobSettings};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

const SERIES: usize = 2_000;
const ROUNDS: usize = 200;
const ADDRESS: &str = "10.42.7.17:9100";
const MEMORY_BYTES: usize = 64 << 20;

fn page(round: usize) -> DecodedBody {
    let mut page = String::new();
    for i in 0..SERIES {
        if i.is_multiple_of(20) {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "# TYPE node_family_{}_total counter", i / 20);
        }
        let (family, device) = (i / 20, i % 20);
        let labels = format!(
            "device=\"/dev/disk{device}\",fstype=\"ext4\",mode=\"m{}\"",
            i % 4
        );
        let value = i * 7919 % 100_003 + round * 13;
        let _ = writeln!(page, "node_family_{family}_total{{{labels}}} {value}");
    }
    DecodedBody {
        bytes: page.into_bytes(),
        content_type: "text/plain; version=0.0.4".into(),
        memory: None,
    }
}

fn fresh() -> Result<BenchTarget, Error> {
    BenchTarget::new(ScrapeJobSettings::new("node"), ADDRESS, MEMORY_BYTES)
}

/// Returns the best time of a scrape over many rounds, in nanoseconds for each sample.
fn best(mut scrape: impl FnMut(DecodedBody, i64) -> Result<usize, Error>) -> std::io::Result<f64> {
    let mut best = u128::MAX;
    for round in 1..=ROUNDS {
        let body = page(round);
        let started = Instant::now();
        let samples = scrape(body, round as i64 * 15_000).map_err(std::io::Error::other)?;
        best = best.min(started.elapsed().as_nanos());
        assert!(samples > SERIES, "the page was read");
    }
    Ok(best as f64 / SERIES as f64)
}

fn main() -> std::io::Result<()> {
    let mut known = fresh().map_err(std::io::Error::other)?;
    let with = best(|body, time| Ok(known.process_body(body, time)?.sample_count()))?;
    let without = best(|body, time| Ok(fresh()?.process_body(body, time)?.sample_count()))?;
    writeln!(
        std::io::stdout(),
        "{SERIES} series; ns a sample: {with:.1} with the cache, {without:.1} without"
    )
}
