//! Concurrent creations of one key, each with a content of its own, and who may have won.

use crate::bucket::{Bucket, Creation};
use crate::error::{BucketError, BucketFailure};
use crate::key::ObjectKey;
use bytes::Bytes;
use firn_model::env::Clock;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Size of the smallest content. Several packets, so that a store has time to mix up writers.
const CONTENT_BYTES: usize = 8 << 10;

/// Returns the content that a creator writes under a key. Sizes and all bytes differ.
pub(super) fn content(nonce: u64, key_index: usize, creator: usize) -> Bytes {
    let seed = nonce ^ ((key_index as u64) << 32) ^ creator as u64;
    let line = format!("firn store check {seed:016x} key {key_index} creator {creator}\n");
    let bytes = CONTENT_BYTES + creator;
    line.bytes().cycle().take(bytes).collect()
}

/// The result of one creator and its latency.
pub(super) struct RaceEntry {
    pub(super) creation: Creation,
    pub(super) latency: Duration,
}

/// Starts one creation of `key` for each content, and waits for all.
pub(super) fn race(
    bucket: &dyn Bucket,
    clock: &Arc<dyn Clock>,
    key: &ObjectKey,
    contents: &[Bytes],
) -> Result<Vec<RaceEntry>, BucketError> {
    let (sender, receiver) = mpsc::sync_channel(contents.len());
    for (creator, content) in contents.iter().enumerate() {
        let (sender, clock, start) = (sender.clone(), clock.clone(), clock.monotonic());
        let done = move |creation| {
            let latency = clock.monotonic().saturating_sub(start);
            // The receiver exists until all results have arrived.
            drop(sender.send((creator, RaceEntry { creation, latency })));
        };
        bucket.put_new(key, content.clone(), Box::new(done));
    }
    drop(sender);
    let mut found: Vec<(usize, RaceEntry)> = receiver.iter().collect();
    if found.len() < contents.len() {
        let text = format!("create {key}: the bucket was stopped");
        return Err(BucketError::new(BucketFailure::Stopped, text));
    }
    found.sort_by_key(|(creator, _)| *creator);
    Ok(found.into_iter().map(|(_, entry)| entry).collect())
}

/// The outcome of a race, derived from the content of the object.
pub(super) enum RaceEnd {
    /// The object has the content of this creator.
    Won(usize),
    /// No creation took effect yet.
    Open(BucketError),
    /// The store broke its promise.
    Broken(String),
}

/// Judges a race by its results and by the content that was read afterwards.
pub(super) fn judge(
    key: &ObjectKey,
    entries: &[RaceEntry],
    contents: &[Bytes],
    found: Option<&Bytes>,
) -> RaceEnd {
    let results = || entries.iter().map(|entry| &entry.creation).enumerate();
    let stored: Vec<usize> = results()
        .filter(|(_, c)| **c == Creation::Stored)
        .map(|(i, _)| i)
        .collect();
    if stored.len() > 1 {
        return RaceEnd::Broken(format!(
            "the store ignores the condition If-None-Match: {} of {} concurrent creations of {key} \
             succeeded, expected 1",
            stored.len(),
            entries.len()
        ));
    }
    let owner = found.and_then(|found| contents.iter().position(|content| content == found));
    match (stored.first(), found, owner) {
        (Some(winner), _, Some(owner)) if *winner == owner => RaceEnd::Won(owner),
        (Some(_), None, _) => {
            RaceEnd::Broken(format!("{key} was created, and then read as missing"))
        }
        (Some(_), Some(_), _) => RaceEnd::Broken(format!(
            "{key} was created once, and has the content of another creation"
        )),
        (None, Some(_), None) => {
            RaceEnd::Broken(format!("{key} has a content that no creation wrote"))
        }
        (None, Some(_), Some(owner)) => match &entries[owner].creation {
            Creation::Refused(error) => RaceEnd::Broken(format!(
                "{key} has the content of a creation that was refused: {error}"
            )),
            // Its own attempt was ambiguous, or a second attempt found the first one.
            _ => RaceEnd::Won(owner),
        },
        (None, None, _) => match results().find_map(|(_, creation)| creation.error()) {
            Some(error) => RaceEnd::Open(error.clone()),
            None => RaceEnd::Broken(format!("{key} is said to exist, and then read as missing")),
        },
    }
}
