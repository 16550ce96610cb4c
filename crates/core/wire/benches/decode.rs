//! Measures the cost of reading a remote-write request: decompression, the walk, and the decoding
//! of labels.
//!
//! The request is a full one with Prometheus's defaults for a Kubernetes-like fleet: 2,000 series
//! with 11 labels of 281 bytes and one sample each. Prints nanoseconds for each sample, the best of
//! many rounds, because slower rounds are caused by other load on the machine. Both versions are
//! measured, 2.0 with a type and a help text for each series.
//!
//! ```text
//! cargo bench -p firn-wire --bench decode -- FILE
//! ```
//!
//! measures the requests of a file that `firn load --prepare` wrote. They are too many for the
//! branch predictor to memorize, as it does for a single request that is repeated, so that these
//! figures match those of a server.

use firn_model::batch::Batch;
use firn_model::labels::Labels;
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_wire::WireLimits;
use firn_wire::remote_write::{
    RemoteWriteDecoder, RemoteWriteOptions, RemoteWriteVersion, encode, encode_interned,
};
use std::io::Write;
use std::time::Instant;

const SERIES: usize = 2_000;
const ROUNDS: usize = 300;

/// Returns a request like those of a sender's shard: neighbouring series differ in few labels.
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

/// Returns the bodies in a prepared load, and the number of their samples.
fn prepared(file: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (mut bodies, mut samples) = (Vec::new(), 0);
    let mut rest = file;
    while !rest.is_empty() {
        let (header, behind) = rest.split_first_chunk::<16>()?;
        let [_, _, count, length] = header.as_chunks().0 else {
            return None;
        };
        let (body, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        samples += u32::from_le_bytes(*count) as usize;
        bodies.push(body);
        rest = behind;
    }
    Some((bodies, samples))
}

/// Encodes the same requests in version 2.0, with a type and a help text for each metric.
fn interned_of(bodies: &[&[u8]]) -> std::io::Result<Vec<Vec<u8>>> {
    let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
    let mut interned = Vec::new();
    for body in bodies {
        let decoded = decoder.decode(RemoteWriteOptions::default(), body);
        let decoded = decoded.map_err(std::io::Error::other)?;
        let mut metadata = MetadataBatch::default();
        for series in decoded.batch.iter() {
            let name = String::from_utf8_lossy(series.labels.get("__name__"));
            metadata.push(MetricMetadata {
                name: &name,
                kind: MetricType::Counter,
                help: &format!("The help of {name}, which is a sentence."),
                unit: "",
            });
        }
        interned.push(encode_interned(decoded.batch, &metadata));
    }
    Ok(interned)
}

/// Returns the best time of `work` on all bodies over many rounds, in nanoseconds for each sample.
fn best(
    (bodies, samples): (&[&[u8]], usize),
    mut work: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<f64> {
    let mut best = u128::MAX;
    for _ in 0..ROUNDS.div_ceil(bodies.len()).max(5) {
        let started = Instant::now();
        for body in bodies {
            work(body)?;
        }
        best = best.min(started.elapsed().as_nanos());
    }
    Ok(best as f64 / samples as f64)
}

fn main() -> std::io::Result<()> {
    let path = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let file = match path {
        Some(path) => std::fs::read(path)?,
        None => Vec::new(),
    };
    let made = encode(&request());
    let (bodies, samples) = match prepared(&file) {
        Some(load) if load.1 > 0 => load,
        _ => (vec![&made[..]], SERIES),
    };
    let load = (&bodies[..], samples);
    let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
    let (mut message, mut message_bytes) = (Vec::new(), 0);
    let v1 = RemoteWriteOptions::default();
    let unread = best(load, |body| {
        let decoded = decoder.decode_within(v1, body, None);
        decoded.map(drop).map_err(std::io::Error::other)
    })?;
    let whole = best(load, |body| {
        let decoded = decoder.decode(v1, body);
        decoded.map(drop).map_err(std::io::Error::other)
    })?;
    let interned = interned_of(&bodies)?;
    let interned: Vec<&[u8]> = interned.iter().map(Vec::as_slice).collect();
    let v2 = RemoteWriteOptions {
        version: RemoteWriteVersion::V2,
        ..v1
    };
    let interned_unread = best((&interned, samples), |body| {
        let decoded = decoder.decode_within(v2, body, None);
        decoded.map(drop).map_err(std::io::Error::other)
    })?;
    let interned_unpacked = best((&interned, samples), |body| {
        let unpacked = firn_wire::snappy::decompress(body, usize::MAX, &mut message);
        unpacked.map_err(std::io::Error::other)
    })?;
    let interned_bytes: usize = interned.iter().map(|b| b.len()).sum();
    let unpacked = best(load, |body| {
        let unpacked = firn_wire::snappy::decompress(body, usize::MAX, &mut message);
        message_bytes = message_bytes.max(message.len());
        unpacked.map_err(std::io::Error::other)
    })?;
    let mut theirs = vec![0; message_bytes];
    let snap = best(load, |body| {
        let unpacked = snap::raw::Decoder::new().decompress(body, &mut theirs);
        unpacked.map(drop).map_err(std::io::Error::other)
    })?;
    let body_bytes: usize = bodies.iter().map(|b| b.len()).sum();
    writeln!(
        std::io::stdout(),
        "{samples} samples, {} B of body each\n\
         ns a sample: unpack {unpacked:.1} (the snap crate {snap:.1}), decode {unread:.1}, \
         with all labels read {whole:.1}\n\
         remote write 2.0: {} B of body each, unpack {interned_unpacked:.1}, \
         decode {interned_unread:.1}",
        body_bytes / samples,
        interned_bytes / samples,
    )
}
