//! What it costs to read a remote-write request: unpacking it, walking it, and reading its labels.
//!
//! The request is a full one of Prometheus's defaults over a Kubernetes-like fleet: 2,000 series
//! with 11 labels of 281 bytes and one sample each. Prints nanoseconds a sample, the best of many
//! rounds, because anything slower than the best is the machine's doing.

use firn_model::batch::Batch;
use firn_model::labels::Labels;
use firn_wire::WireLimits;
use firn_wire::remote_write::{Decoder, encode};
use std::io::Write;
use std::time::Instant;

const SERIES: usize = 2_000;
const ROUNDS: usize = 300;

/// A request as a sender's shard makes it: neighbours differ in a few labels.
fn request() -> Batch {
    let mut batch = Batch::default();
    for i in 0..SERIES {
        let (pod, series) = (i / 376, i % 376);
        let labels = Labels::from_pairs([
            (
                "__name__",
                format!(
                    "http_server_request_duration_seconds_bucket_{}",
                    series / 40
                ),
            ),
            ("cluster", "eu-central-1-production".into()),
            ("code", format!("{}", 200 + series % 5)),
            ("container", "checkout-service".into()),
            ("instance", format!("10.42.{pod}.17:8080")),
            ("job", "kubernetes-pods".into()),
            ("le", format!("{}", 0.005 * (1 << (series % 12)) as f64)),
            ("method", ["GET", "POST", "PUT"][series % 3].into()),
            ("namespace", "shop-production".into()),
            (
                "node",
                format!("ip-10-0-{pod}-118.eu-central-1.compute.internal"),
            ),
            ("pod", format!("checkout-service-6d5f7c9b8-{pod:05}")),
        ]);
        let value = (i * 7919 % 100_003) as f64;
        batch.push_series(labels.as_ref(), &[(1_700_000_000_000 + pod as i64, value)]);
    }
    batch
}

/// The best time of `work` over many rounds, for each sample.
fn best(mut work: impl FnMut() -> std::io::Result<()>) -> std::io::Result<f64> {
    let mut best = u128::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        work()?;
        best = best.min(started.elapsed().as_nanos());
    }
    Ok(best as f64 / SERIES as f64)
}

fn main() -> std::io::Result<()> {
    let batch = request();
    let body = encode(&batch);
    let label_bytes: usize = batch.iter().map(|s| s.labels.as_bytes().len()).sum();
    let mut decoder = Decoder::new(WireLimits::default());
    let unread = best(|| {
        let decoded = decoder.decode_within(&body, None);
        let decoded = decoded.map_err(std::io::Error::other)?;
        assert_eq!(decoded.batch.sample_count(), SERIES);
        Ok(())
    })?;
    let whole = best(|| {
        let decoded = decoder.decode(&body).map_err(std::io::Error::other)?;
        assert_eq!(decoded.batch.sample_count(), SERIES);
        Ok(())
    })?;
    let mut message = Vec::new();
    let unpacked = best(|| {
        firn_wire::snappy::decompress(&body, usize::MAX, &mut message)
            .map_err(std::io::Error::other)
    })?;
    let snap = best(|| {
        let unpacked = snap::raw::Decoder::new().decompress(&body, &mut message);
        unpacked.map(drop).map_err(std::io::Error::other)
    })?;
    writeln!(
        std::io::stdout(),
        "{} B body, {} B message, {} B of labels a sample\n\
         ns a sample: unpack {unpacked:.1} (the snap crate {snap:.1}), decode {unread:.1}, \
         with all labels read {whole:.1}",
        body.len() / SERIES,
        message.len() / SERIES,
        label_bytes / SERIES,
    )
}
