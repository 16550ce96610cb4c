//! A part of a batch, which a node forwards to the leader of a partition.
//!
//! ```text
//! partition | tenant | bounds | hash check | series count | key lengths | keys | fingerprints
//! | float counts | times | values | start times? | histograms | exemplars
//! ```
//!
//! Keys have the format of remote write: received ones if they are canonical, otherwise those that
//! the format creates from the labels. The receiver finds its series by fingerprints and decodes
//! labels of new series only. Times are differences from the previous sample of the frame, one byte
//! each if series have equal times.
//!
//! Invariants: a decoded batch is complete and each of its keys is canonical. Fingerprints are not
//! computed again, except in debug builds: only peers with the secret of the cluster can connect.
//! The hash check, a fingerprint of a constant, shows that both nodes have the same hash keys.

use crate::bytes::{
    MalformedFrame, PeerFrameReader, push_count, push_f64, push_option, push_prefixed, push_varint,
    push_zigzag,
};
use crate::frames::histogram::{push_histogram, read_histogram};
use bytes::Bytes;
use firn_model::batch::{Batch, BatchSource, HistogramSample};
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::TimedExemplar;
use firn_model::fingerprint::{Fingerprint, HashKeys, SeriesHash};
use firn_model::labels::{LabelsRef, is_canonical};
use firn_model::store::{AppendBounds, AppendOutcome, LateSamplePolicy};
use firn_model::tenant::TenantId;
use firn_wire::WireLimits;
use firn_wire::remote_write::{KEY_FORMAT, is_plain_key};
use std::sync::Arc;

/// A part of a batch in the form in which it is sent. It is kept for repetitions; cloning is cheap.
#[derive(Clone, Debug)]
pub struct EncodedAppend {
    bytes: Bytes,
    partition: u32,
    /// The indexes of the series in the part of the sender, if series were left out.
    numbers: Option<Arc<[u32]>>,
}

impl EncodedAppend {
    /// Returns the partition of all series.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Returns the size of the frame in bytes.
    pub fn frame_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the frame, as [`decode_append`] decodes it.
    pub fn frame(&self) -> &Bytes {
        &self.bytes
    }

    /// Replaces the indexes of series of the frame by those in the part of the sender.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] if the frame has no series with such an index.
    pub(crate) fn restore_numbers(&self, outcome: &mut AppendOutcome) -> Result<(), Error> {
        let Some(numbers) = &self.numbers else {
            return Ok(());
        };
        let samples = outcome.rejected.iter_mut().map(|r| &mut r.first_series);
        let exemplars = outcome.refused_exemplars.iter_mut();
        for series in samples.chain(exemplars.map(|r| &mut r.first_series)) {
            let number = numbers.get(*series).ok_or_else(|| {
                let text = format!("outcome of the unknown series {series}");
                Error::new(ErrorKind::Internal, text)
            })?;
            *series = *number as usize;
        }
        Ok(())
    }
}

/// Encodes a part of a batch, whose series all belong to `partition`. Decodes the labels of series
/// that may be invalid, so that the source records the rejected ones. These are left out. `hash` is
/// the hash of all stores of the cluster. Costs a hash of each key, unless the source has the
/// fingerprints, and a copy of all keys and samples.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the batch has a journal or is followed by another one, which only the
/// store of the own process can log, or if `hash` has another key format; and the errors of
/// [`BatchSource::read_labels`].
pub fn encode_append(
    partition: u32,
    tenant: &TenantId,
    source: &mut dyn BatchSource,
    hash: &SeriesHash,
    bounds: AppendBounds,
) -> Result<EncodedAppend, Error> {
    check_source(source.batch(), hash)?;
    let unread = find_doubtful_keys(source.batch());
    if !unread.is_empty() {
        source.read_labels(&unread)?;
    }
    let batch = source.batch();
    let is_sent = |series: &usize| !batch.is_refused(*series);
    let series: Vec<usize> = (0..batch.series_count()).filter(is_sent).collect();
    let mut bytes = Vec::with_capacity(64 + 40 * series.len() + batch.message_bytes());
    push_varint(u64::from(partition), &mut bytes);
    push_prefixed(tenant.as_str().as_bytes(), &mut bytes);
    push_bounds(bounds, &mut bytes);
    push_print(hash.keys.fingerprint(HASH_CHECK), &mut bytes);
    push_keys(source, &series, hash, &mut bytes);
    push_floats(batch, &series, &mut bytes);
    push_histograms(batch, &series, &mut bytes);
    push_exemplars(batch, &series, &mut bytes);
    let left_out = series.len() < batch.series_count();
    let numbers = left_out.then(|| series.iter().map(|number| *number as u32).collect());
    Ok(EncodedAppend {
        bytes: bytes.into(),
        partition,
        numbers,
    })
}

fn check_source(batch: &Batch, hash: &SeriesHash) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::new(ErrorKind::Invalid, text));
    if !batch.journal().is_empty() {
        return invalid("a batch with a journal cannot be forwarded to a peer");
    }
    if batch.is_followed() {
        return invalid("a batch that is followed by another one cannot be forwarded to a peer");
    }
    if hash.format.name() != KEY_FORMAT.name() {
        return invalid("the stores of a cluster must hash keys of remote write");
    }
    Ok(())
}

/// Returns the undecoded series whose keys may differ from those that [`KEY_FORMAT`] creates, or
/// whose labels may be invalid.
fn find_doubtful_keys(batch: &Batch) -> Vec<u32> {
    let has_format = batch.has_key_format(KEY_FORMAT);
    let limits = WireLimits::default();
    let is_doubtful = |series: &u32| {
        let key = batch.key(*series as usize);
        key.is_some_and(|key| !has_format || !is_plain_key(key, &limits))
    };
    let numbers = 0..batch.series_count() as u32;
    numbers.filter(is_doubtful).collect()
}

/// The bytes whose fingerprint shows that two nodes have the same hash keys.
const HASH_CHECK: &[u8] = b"firn peer";

const LATE: [LateSamplePolicy; 4] = [
    LateSamplePolicy::All,
    LateSamplePolicy::AllButStale,
    LateSamplePolicy::Nothing,
    LateSamplePolicy::OfAnyAge,
];

fn push_bounds(bounds: AppendBounds, into: &mut Vec<u8>) {
    push_zigzag(bounds.time_max, into);
    let late = LATE.iter().position(|late| *late == bounds.late);
    into.push(late.expect("all policies are listed") as u8);
    push_zigzag(bounds.in_order_min, into);
    push_option(bounds.newest, into, push_zigzag);
}

fn read_bounds(reader: &mut PeerFrameReader<'_>) -> Result<AppendBounds, MalformedFrame> {
    let time_max = reader.zigzag()?;
    let late = LATE.get(usize::from(reader.u8()?)).copied();
    Ok(AppendBounds {
        time_max,
        late: late.ok_or(MalformedFrame("unknown policy for late samples"))?,
        in_order_min: reader.zigzag()?,
        newest: reader.option(PeerFrameReader::zigzag)?,
    })
}

fn push_print(print: Fingerprint, into: &mut Vec<u8>) {
    into.extend_from_slice(&print.high.to_le_bytes());
    into.extend_from_slice(&print.low.to_le_bytes());
}

/// Appends the keys of `series` and their fingerprints.
fn push_keys(source: &dyn BatchSource, series: &[usize], hash: &SeriesHash, into: &mut Vec<u8>) {
    let batch = source.batch();
    let known = source.fingerprints(&hash.keys);
    let known = known.filter(|known| known.len() == batch.series_count());
    let mut keys = Vec::with_capacity(batch.message_bytes());
    let mut prints = Vec::with_capacity(16 * series.len());
    push_count(series.len(), into);
    for number in series {
        let start = keys.len();
        match batch.key(*number) {
            Some(key) => keys.extend_from_slice(key),
            None => KEY_FORMAT.push_key(&mut keys, batch.series(*number).labels),
        }
        push_count(keys.len() - start, into);
        let known = known.filter(|_| !batch.key_may_differ(*number));
        let print = match known {
            Some(known) => known[*number],
            None => hash.keys.fingerprint(&keys[start..]),
        };
        push_print(print, &mut prints);
    }
    into.extend_from_slice(&keys);
    into.extend_from_slice(&prints);
}

fn push_floats(batch: &Batch, series: &[usize], into: &mut Vec<u8>) {
    let samples = |number: &usize| batch.series(*number);
    let mut has_starts = false;
    for series in series.iter().map(samples) {
        push_count(series.times.len(), into);
        has_starts |= !series.start_times.is_empty();
    }
    let mut previous = 0i64;
    for time in series.iter().flat_map(|number| batch.series(*number).times) {
        push_zigzag(time.wrapping_sub(previous), into);
        previous = *time;
    }
    for value in series
        .iter()
        .flat_map(|number| batch.series(*number).values)
    {
        push_f64(*value, into);
    }
    into.push(u8::from(has_starts));
    let mut previous = 0i64;
    let starts = series
        .iter()
        .flat_map(|number| batch.series(*number).start_times);
    for start in starts {
        push_zigzag(start.wrapping_sub(previous), into);
        previous = *start;
    }
}

fn push_histograms(batch: &Batch, series: &[usize], into: &mut Vec<u8>) {
    let counts = series
        .iter()
        .map(|number| batch.series(*number).histograms.len());
    push_count(counts.sum(), into);
    for (index, number) in series.iter().enumerate() {
        for sample in batch.series(*number).histograms {
            push_count(index, into);
            push_zigzag(sample.time, into);
            push_zigzag(sample.start_time, into);
            push_histogram(&sample.histogram, into);
        }
    }
}

fn push_exemplars(batch: &Batch, series: &[usize], into: &mut Vec<u8>) {
    let all = batch.exemplars();
    if all.is_empty() {
        return push_count(0, into);
    }
    let counts = series
        .iter()
        .map(|number| all.iter_series(*number as u64).count());
    push_count(counts.sum(), into);
    for (index, number) in series.iter().enumerate() {
        for exemplar in all.iter_series(*number as u64) {
            push_count(index, into);
            into.push(u8::from(exemplar.has_own_time));
            push_zigzag(exemplar.time, into);
            push_f64(exemplar.value, into);
            push_prefixed(exemplar.labels.as_bytes(), into);
        }
    }
}

/// The parts of an append frame that are not in its batch.
#[derive(Clone, Debug)]
pub struct AppendFrame {
    /// The partition to which all series belong.
    pub partition: u32,
    /// The tenant that owns the samples.
    pub tenant: TenantId,
    /// The time limits of the batch.
    pub bounds: AppendBounds,
    /// The fingerprint of the key of each series, under the hash keys of the sender.
    pub prints: Vec<Fingerprint>,
    hash_check: Fingerprint,
}

impl AppendFrame {
    /// Returns whether the fingerprints are those under `keys`.
    pub fn has_hash_keys(&self, keys: &HashKeys) -> bool {
        keys.fingerprint(HASH_CHECK) == self.hash_check
    }
}

/// Decodes a part of a batch. The series in `batch`, which is cleared before, have undecoded labels
/// with keys of the format of remote write. After an error, `batch` must be cleared.
///
/// # Errors
///
/// [`MalformedFrame`] if `bytes` are not exactly one frame with canonical keys.
pub fn decode_append(bytes: &[u8], batch: &mut Batch) -> Result<AppendFrame, MalformedFrame> {
    batch.clear();
    if u32::try_from(bytes.len()).is_err() {
        return Err(MalformedFrame("4 GiB or more"));
    }
    let mut reader = PeerFrameReader::new(bytes);
    let partition = reader.u32()?;
    let tenant = TenantId::new(reader.text()?);
    let tenant = tenant.map_err(|_| MalformedFrame("invalid tenant id"))?;
    let bounds = read_bounds(&mut reader)?;
    let hash_check = read_print(&reader.array()?);
    let count = reader.count(KEY_BYTES_MIN)?;
    let ends = read_key_ends(&mut reader, count)?;
    let keys = reader.bytes(ends.last().copied().unwrap_or(0))?;
    let prints = read_prints(&mut reader, count)?;
    let columns = AppendColumns::read(&mut reader, count)?;
    reader.finish()?;
    let mut message = batch.take_message();
    message.clear();
    message.extend_from_slice(keys);
    let filled = columns.fill(batch, &ends, keys);
    batch.put_message(message, KEY_FORMAT);
    filled?;
    Ok(AppendFrame {
        partition,
        tenant,
        bounds,
        prints,
        hash_check,
    })
}

/// Bytes of the length of a key, its fingerprint and the number of its floats.
const KEY_BYTES_MIN: usize = 1 + 16 + 1;

fn read_key_ends(
    reader: &mut PeerFrameReader<'_>,
    count: usize,
) -> Result<Vec<usize>, MalformedFrame> {
    let mut ends = Vec::with_capacity(count);
    let mut end = 0usize;
    for _ in 0..count {
        let length = reader.usize()?;
        end = end
            .checked_add(length)
            .ok_or(MalformedFrame("keys out of range"))?;
        ends.push(end);
    }
    Ok(ends)
}

fn read_prints(
    reader: &mut PeerFrameReader<'_>,
    count: usize,
) -> Result<Vec<Fingerprint>, MalformedFrame> {
    let prints = reader.bytes(16 * count)?.as_chunks().0;
    Ok(prints.iter().map(read_print).collect())
}

fn read_print(bytes: &[u8; 16]) -> Fingerprint {
    let both = u128::from_le_bytes(*bytes);
    Fingerprint {
        high: both as u64,
        low: (both >> 64) as u64,
    }
}

/// The columns of a frame, of which values, exemplars and keys are still in its bytes.
struct AppendColumns<'a> {
    float_counts: Vec<u32>,
    times: Vec<i64>,
    values: &'a [[u8; 8]],
    start_times: Vec<i64>,
    /// Histograms with the indexes of their series, which ascend.
    histograms: Vec<(u32, HistogramSample)>,
    /// Exemplars with the indexes of their series, which ascend.
    exemplars: Vec<(u32, TimedExemplar<'a>)>,
}

impl<'a> AppendColumns<'a> {
    fn read(reader: &mut PeerFrameReader<'a>, count: usize) -> Result<Self, MalformedFrame> {
        let mut float_counts = Vec::with_capacity(count);
        let mut floats = 0usize;
        for _ in 0..count {
            let of_series = reader.u32()?;
            float_counts.push(of_series);
            floats = floats.saturating_add(of_series as usize);
        }
        let times = read_differences(reader, floats)?;
        let value_bytes = floats.checked_mul(8);
        let value_bytes = value_bytes.ok_or(MalformedFrame("samples out of range"))?;
        let values = reader.bytes(value_bytes)?.as_chunks().0;
        let start_times = if reader.bool()? {
            read_differences(reader, floats)?
        } else {
            Vec::new()
        };
        Ok(Self {
            float_counts,
            times,
            values,
            start_times,
            histograms: read_histograms(reader, count)?,
            exemplars: read_exemplars(reader, count)?,
        })
    }

    /// Adds a series for each key to `batch`. Fails at a key that is not canonical.
    fn fill(self, batch: &mut Batch, ends: &[usize], keys: &[u8]) -> Result<(), MalformedFrame> {
        let mut histograms = self.histograms.into_iter().peekable();
        let mut exemplars = self.exemplars.into_iter().peekable();
        let (mut key_start, mut float) = (0, 0);
        for (index, (end, count)) in ends.iter().zip(self.float_counts).enumerate() {
            let key = key_start..*end;
            key_start = *end;
            if !KEY_FORMAT.is_canonical(&keys[key.clone()]) {
                return Err(MalformedFrame("series key is not canonical"));
            }
            for _ in 0..count {
                let value = f64::from_bits(u64::from_le_bytes(self.values[float]));
                match self.start_times.get(float) {
                    Some(start) => batch.push_float_with_start(self.times[float], value, *start),
                    None => batch.push_float(self.times[float], value),
                }
                float += 1;
            }
            let index = index as u32;
            while let Some((_, sample)) = histograms.next_if(|(series, _)| *series == index) {
                batch.push_histogram(sample);
            }
            while let Some((_, exemplar)) = exemplars.next_if(|(series, _)| *series == index) {
                batch.push_exemplar(exemplar);
            }
            batch.end_unread_series(key);
        }
        Ok(())
    }
}

/// Reads integers that are encoded as differences from their predecessors.
fn read_differences(
    reader: &mut PeerFrameReader<'_>,
    count: usize,
) -> Result<Vec<i64>, MalformedFrame> {
    if count > reader.rest().len() {
        return Err(MalformedFrame("count beyond its bytes"));
    }
    let mut numbers = Vec::with_capacity(count);
    let mut previous = 0i64;
    for _ in 0..count {
        previous = previous.wrapping_add(reader.zigzag()?);
        numbers.push(previous);
    }
    Ok(numbers)
}

/// Reads the index of a series that is below `count` and not below `previous`.
fn read_index(
    reader: &mut PeerFrameReader<'_>,
    previous: u32,
    count: usize,
) -> Result<u32, MalformedFrame> {
    let index = reader.u32()?;
    if index < previous || index as usize >= count {
        return Err(MalformedFrame("indexes of series are out of order"));
    }
    Ok(index)
}

/// Bytes of the shortest histogram and its times.
const HISTOGRAM_BYTES_MIN: usize = 29;

fn read_histograms(
    reader: &mut PeerFrameReader<'_>,
    series: usize,
) -> Result<Vec<(u32, HistogramSample)>, MalformedFrame> {
    let count = reader.count(HISTOGRAM_BYTES_MIN)?;
    let mut histograms = Vec::with_capacity(count);
    let mut index = 0;
    for _ in 0..count {
        index = read_index(reader, index, series)?;
        let sample = HistogramSample {
            time: reader.zigzag()?,
            start_time: reader.zigzag()?,
            histogram: read_histogram(reader)?,
        };
        histograms.push((index, sample));
    }
    Ok(histograms)
}

/// Bytes of an exemplar without labels.
const EXEMPLAR_BYTES_MIN: usize = 12;

fn read_exemplars<'a>(
    reader: &mut PeerFrameReader<'a>,
    series: usize,
) -> Result<Vec<(u32, TimedExemplar<'a>)>, MalformedFrame> {
    let count = reader.count(EXEMPLAR_BYTES_MIN)?;
    let mut exemplars = Vec::with_capacity(count);
    let mut index = 0;
    for _ in 0..count {
        index = read_index(reader, index, series)?;
        let has_own_time = reader.bool()?;
        let exemplar = TimedExemplar {
            has_own_time,
            time: reader.zigzag()?,
            value: reader.f64()?,
            labels: read_labels(reader)?,
        };
        exemplars.push((index, exemplar));
    }
    Ok(exemplars)
}

/// Reads a label set in canonical form.
pub(crate) fn read_labels<'a>(
    reader: &mut PeerFrameReader<'a>,
) -> Result<LabelsRef<'a>, MalformedFrame> {
    let bytes = reader.prefixed()?;
    if !is_canonical(bytes) {
        return Err(MalformedFrame("labels are not canonical"));
    }
    Ok(LabelsRef::from_canonical(bytes))
}
