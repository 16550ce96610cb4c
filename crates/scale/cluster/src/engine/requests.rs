//! Requests of the core as operations of a bucket, and their results as replies.

use super::flow::BucketLogShared;
use crate::checkpoint::Checkpoint;
use crate::commit::StateFormatError;
use crate::ids::{SegmentSequence, WriterId};
use crate::log::{
    CheckpointHead, CreateOutcome, HeadOutcome, ListedSegment, LogReply, LogRequest, Lookup,
    StateLookup,
};
use crate::object_name::{ObjectName, log_prefix, state_prefix};
use crate::segment::{HEADER_BYTES, Segment, SegmentHeader};
use bytes::Bytes;
use firn_bucket::{
    BucketError, ByteRange, Creation, KeyPrefix, ListPage, ListRequest, ObjectHead, ObjectKey,
    ReadResult,
};
use firn_model::sync::lock;
use std::sync::Arc;

/// A list that is read page by page.
struct Listing<T> {
    writer: WriterId,
    request: ListRequest,
    found: Vec<T>,
}

impl BucketLogShared {
    /// Sends a request. Its reply arrives on any thread, possibly before this method returns.
    pub(super) fn send(self: &Arc<Self>, writer: WriterId, request: LogRequest) {
        match request {
            LogRequest::Create(segment) => self.create(writer, &segment),
            LogRequest::Head(sequence) => self.head(writer, sequence),
            LogRequest::ReadHeader(sequence) => self.read_header(writer, sequence),
            LogRequest::ReadSegment(sequence) => self.read_segment(writer, sequence),
            LogRequest::ListLog(from) => self.list_log(writer, from),
            LogRequest::ReadState => {
                let request =
                    ListRequest::all(prefix_of(&state_prefix(self.options.core.partition)));
                let found = Vec::new();
                self.list_state(Listing {
                    writer,
                    request,
                    found,
                });
            }
        }
    }

    pub(super) fn key(&self, sequence: SegmentSequence) -> ObjectKey {
        key_of(&ObjectName::Segment(self.options.core.partition, sequence))
    }

    fn create(self: &Arc<Self>, writer: WriterId, segment: &Segment) {
        let sequence = segment.header.sequence;
        let (shared, started) = (self.clone(), self.now());
        let done = move |creation: Creation| {
            let outcome = match &creation {
                Creation::Stored => CreateOutcome::Stored,
                Creation::Exists => CreateOutcome::Exists,
                Creation::Ambiguous(_) => CreateOutcome::Ambiguous,
                Creation::Refused(_) => CreateOutcome::Refused,
            };
            let took = shared.now().saturating_sub(started);
            shared.metrics.record_create(outcome, took);
            if let Some(error) = creation.error() {
                shared.record_error(error);
            }
            shared.reply(writer, LogReply::Created { sequence, outcome });
        };
        let bytes = Bytes::from(segment.encode());
        self.bucket
            .put_new(&self.key(sequence), bytes, Box::new(done));
    }

    fn head(self: &Arc<Self>, writer: WriterId, sequence: SegmentSequence) {
        let shared = self.clone();
        let done = move |found: ReadResult<ObjectHead>| {
            let outcome = match found {
                Ok(None) => HeadOutcome::Absent,
                Ok(Some(_)) => HeadOutcome::Present,
                Err(_) => HeadOutcome::Failed,
            };
            shared.reply(writer, LogReply::Headed { sequence, outcome });
        };
        self.bucket.head(&self.key(sequence), Box::new(done));
    }

    fn read_header(self: &Arc<Self>, writer: WriterId, sequence: SegmentSequence) {
        let shared = self.clone();
        let done = move |found: ReadResult<Vec<Bytes>>| {
            let place = shared.options.core.place(sequence);
            let header = |parts: Vec<Bytes>| {
                let bytes = parts.into_iter().next().unwrap_or_default();
                SegmentHeader::decode(place, &bytes)
            };
            let found = lookup(found, header);
            shared.reply(writer, LogReply::HeaderRead { sequence, found });
        };
        let range = ByteRange::new(0, HEADER_BYTES as u64);
        self.bucket
            .get_ranges(&self.key(sequence), &[range], Box::new(done));
    }

    fn read_segment(self: &Arc<Self>, writer: WriterId, sequence: SegmentSequence) {
        let shared = self.clone();
        let done = move |found: ReadResult<Bytes>| {
            let place = shared.options.core.place(sequence);
            let found = lookup(found, |bytes: Bytes| Segment::decode(place, &bytes));
            shared.reply(writer, LogReply::SegmentRead { sequence, found });
        };
        self.bucket.get(&self.key(sequence), Box::new(done));
    }

    fn list_log(self: &Arc<Self>, writer: WriterId, from: SegmentSequence) {
        let prefix = prefix_of(&log_prefix(self.options.core.partition));
        let before = (from.0 > 0).then(|| self.key(SegmentSequence(from.0 - 1)));
        let request = ListRequest::all(prefix).after(before);
        let found = Vec::new();
        self.list_segments(Listing {
            writer,
            request,
            found,
        });
    }

    fn list_segments(self: &Arc<Self>, mut listing: Listing<ListedSegment>) {
        let (shared, request) = (self.clone(), listing.request.clone());
        let done = move |page: Result<ListPage, BucketError>| {
            let writer = listing.writer;
            let Ok(page) = page else {
                return shared.reply(writer, LogReply::LogListed { segments: None });
            };
            for object in &page.objects {
                match object.key.as_str().parse::<ObjectName>() {
                    Ok(ObjectName::Segment(_, sequence)) => listing.found.push(ListedSegment {
                        sequence,
                        bytes: object.head.bytes,
                    }),
                    _ => shared.report_foreign(&object.key),
                }
            }
            match page.next(&listing.request) {
                Some(next) => {
                    listing.request = next;
                    shared.list_segments(listing);
                }
                None => {
                    let segments = Some(listing.found);
                    shared.reply(writer, LogReply::LogListed { segments });
                }
            }
        };
        self.bucket.list(&request, Box::new(done));
    }

    /// Lists the checkpoints, and reads the newest one.
    fn list_state(self: &Arc<Self>, mut listing: Listing<ObjectKey>) {
        let (shared, request) = (self.clone(), listing.request.clone());
        let done = move |page: Result<ListPage, BucketError>| {
            let Ok(page) = page else {
                return shared.reply_state(listing.writer, StateLookup::Failed);
            };
            for object in &page.objects {
                match object.key.as_str().parse::<ObjectName>() {
                    // Keys ascend, so the last one is the newest.
                    Ok(ObjectName::State(..)) => listing.found = vec![object.key.clone()],
                    _ => shared.report_foreign(&object.key),
                }
            }
            if let Some(next) = page.next(&listing.request) {
                listing.request = next;
                return shared.list_state(listing);
            }
            match listing.found.pop() {
                Some(newest) => shared.read_checkpoint(listing.writer, &newest),
                None => {
                    lock(&shared.state).ledger.set_found(None);
                    let none = CheckpointHead::default();
                    shared.reply_state(listing.writer, StateLookup::Newest(none));
                }
            }
        };
        self.bucket.list(&request, Box::new(done));
    }

    fn read_checkpoint(self: &Arc<Self>, writer: WriterId, key: &ObjectKey) {
        let (shared, at) = (self.clone(), key.clone());
        let done = move |found: ReadResult<Bytes>| {
            let decoded = |bytes: Bytes| Checkpoint::decode(&bytes);
            let found = match found.map(|found| found.map(decoded)) {
                Ok(Some(Ok(checkpoint))) => shared.keep_checkpoint(&at, checkpoint),
                Ok(Some(Err(error))) => StateLookup::Unreadable(error),
                // Deleted since the list, by a newer leader.
                Ok(None) | Err(_) => StateLookup::Failed,
            };
            shared.reply_state(writer, found);
        };
        self.bucket.get(key, Box::new(done));
    }

    /// Keeps the content of the newest checkpoint for the replay that may begin with it.
    fn keep_checkpoint(&self, key: &ObjectKey, checkpoint: Checkpoint) -> StateLookup {
        let core = &self.options.core;
        let is_own = checkpoint.cluster == core.cluster
            && *key == key_of(&ObjectName::State(core.partition, checkpoint.position))
            && checkpoint.partition == core.partition;
        if !is_own {
            let what = "checkpoint of another cluster or key";
            return StateLookup::Unreadable(StateFormatError::Damaged { what });
        }
        let head = CheckpointHead {
            position: checkpoint.position,
            version: checkpoint.state.version,
            replay_from: checkpoint.state.replay_from,
        };
        lock(&self.state).ledger.set_found(Some(checkpoint));
        StateLookup::Newest(head)
    }

    fn reply_state(self: &Arc<Self>, writer: WriterId, found: StateLookup) {
        self.reply(writer, LogReply::StateRead { found });
    }

    fn record_error(&self, error: &BucketError) {
        lock(&self.state)
            .trouble
            .record_error(error.message.clone());
    }

    fn report_foreign(&self, key: &ObjectKey) {
        self.metrics.foreign_objects.inc();
        tracing::error!(%key, "an object beside the log is none of Firn's; it is left alone");
    }
}

/// Returns the lookup of an object whose bytes `decode` decodes.
fn lookup<B, T>(
    found: ReadResult<B>,
    decode: impl FnOnce(B) -> Result<T, crate::segment::SegmentError>,
) -> Lookup<T> {
    match found {
        Ok(None) => Lookup::Absent,
        Ok(Some(bytes)) => match decode(bytes) {
            Ok(decoded) => Lookup::Present(decoded),
            Err(error) => Lookup::Unreadable(error),
        },
        Err(_) => Lookup::Failed,
    }
}

fn key_of(name: &ObjectName) -> ObjectKey {
    ObjectKey::new(&name.to_string()).expect("names of objects are keys")
}

fn prefix_of(text: &str) -> KeyPrefix {
    KeyPrefix::new(text).expect("prefixes of names are prefixes of keys")
}
