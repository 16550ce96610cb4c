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

mod decode;

use crate::bytes::{push_count, push_f64, push_option, push_prefixed, push_varint, push_zigzag};
use crate::frames::histogram::push_histogram;
use bytes::Bytes;
pub(crate) use decode::read_labels;
pub use decode::{AppendFrame, decode_append};
use decode::{HASH_CHECK, LATE};
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{Fingerprint, SeriesHash};
use firn_model::store::{AppendBounds, AppendOutcome};
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

fn push_bounds(bounds: AppendBounds, into: &mut Vec<u8>) {
    push_zigzag(bounds.time_max, into);
    let late = LATE.iter().position(|late| *late == bounds.late);
    into.push(late.expect("all policies are listed") as u8);
    push_zigzag(bounds.in_order_min, into);
    push_option(bounds.newest, into, push_zigzag);
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
