//! Builds remote-write 1.0 bodies without validation, so that tests can send invalid ones.

/// A series with its labels and samples in the given order.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub labels: Vec<(Vec<u8>, Vec<u8>)>,
    pub samples: Vec<(i64, f64)>,
}

impl Series {
    /// Creates a series with these labels and samples.
    pub fn new(labels: &[(&str, &str)], samples: &[(i64, f64)]) -> Self {
        let bytes = |(n, v): &(&str, &str)| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
        Self {
            labels: labels.iter().map(bytes).collect(),
            samples: samples.to_vec(),
        }
    }
}

/// Returns the compressed body of a request with these series.
pub fn body(series: &[Series]) -> Vec<u8> {
    compress(&message(series))
}

/// Returns the protobuf message of a request with these series.
pub fn message(series: &[Series]) -> Vec<u8> {
    let mut out = Vec::new();
    for one in series {
        let mut bytes = Vec::new();
        for (name, value) in &one.labels {
            let mut label = Vec::new();
            push_field(&mut label, 0x0a, name);
            push_field(&mut label, 0x12, value);
            push_field(&mut bytes, 0x0a, &label);
        }
        for (time, value) in &one.samples {
            let mut sample = vec![0x09];
            sample.extend_from_slice(&value.to_le_bytes());
            sample.push(0x10);
            push_uvarint(&mut sample, *time as u64);
            push_field(&mut bytes, 0x12, &sample);
        }
        push_field(&mut out, 0x0a, &bytes);
    }
    out
}

/// Compresses `message` as a snappy block.
pub fn compress(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(message)
        .expect("a message below 4 GiB")
}

/// Appends a protobuf varint.
pub fn push_uvarint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length-delimited protobuf field; `tag` is its key.
pub fn push_field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    push_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
