//! Fuzzes a Prometheus chunk: reading ends with an error or after the last sample, and samples that
//! are encoded again can be decoded unchanged.

#![cfg_attr(fuzzing, no_main)]

use firn_prometheus_tsdb::{
    BuiltChunk, ChunkBuilder, ChunkStartTimes, TsdbChunkEncoding, TsdbChunkSamples, TsdbSample,
    TsdbSampleValue,
};

/// Formats a sample with the bits of its value. Histograms are reduced to their times, because
/// encoding changes empty buckets and reset hints.
fn told(sample: &TsdbSample) -> String {
    match &sample.value {
        TsdbSampleValue::Float(value) => format!(
            "{} {} {:x}",
            sample.time,
            sample.start_time,
            value.to_bits()
        ),
        TsdbSampleValue::Histogram(_) => format!("{} {}", sample.time, sample.start_time),
    }
}

fn read(chunk: BuiltChunk) -> Vec<TsdbSample> {
    let samples = TsdbChunkSamples::new(chunk.encoding, chunk.data).expect("it was written here");
    let samples: Result<Vec<_>, _> = samples.collect();
    samples.expect("it was written here")
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((number, data)) = bytes.split_first() else {
        return;
    };
    let Some(encoding) = TsdbChunkEncoding::from_number(number % 8) else {
        return;
    };
    let Ok(samples) = TsdbChunkSamples::new(encoding, data) else {
        return;
    };
    let (mut builder, mut pushed, mut found) = (
        ChunkBuilder::new(ChunkStartTimes::Keep),
        Vec::new(),
        Vec::new(),
    );
    for sample in samples.take(500) {
        let Ok(sample) = sample else {
            break;
        };
        let (time, start) = (sample.time, sample.start_time);
        let closed = match &sample.value {
            TsdbSampleValue::Float(value) => builder.push_float(time, start, *value),
            TsdbSampleValue::Histogram(histogram) => builder.push_histogram(time, start, histogram),
        };
        if let Ok(closed) = closed {
            found.extend(closed.into_iter().flat_map(read));
            pushed.push(told(&sample));
        }
    }
    found.extend(builder.finish().into_iter().flat_map(read));
    assert_eq!(found.iter().map(told).collect::<Vec<_>>(), pushed);
});
