//! Kept requests that are forwarded unchanged: full ones alone, small ones concatenated to one
//! request, and concurrently if the receiver is behind.
//!
//! ```text
//! body, body, body --up to the maximum request size--> request = body body | request = body
//!   receiver is behind: requests without common series -> shares
//! ```
//!
//! External labels are inserted into the bytes of a 1.0 message. This costs decompressing and
//! compressing the message, plus half of what decoding and encoding its samples would cost. Two
//! concatenated 1.0 messages are a valid message, and so are their snappy blocks, so messages are
//! joined without decompression. Messages of 2.0 contain symbol tables and are sent alone. Series
//! are decoded only if shares are necessary.
//!
//! Invariant: no two shares of a round have a series in common, and the requests of a share are in
//! the order in which they were kept.

use super::outgoing::{
    OutgoingRequest, OutgoingRound, OutgoingSettings, QueuedWriteRequest, Share,
};
use firn_wire::WireLimits;
use firn_wire::remote_write::{
    ExtraLabels, MergedBody, MergedRequestBounds, RemoteWriteDecoder, RemoteWriteOptions,
    RemoteWriteVersion, WriteRequestContents,
};
use firn_wire::snappy;
use hashbrown::HashTable;
use hyper::body::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// Kept requests that are being concatenated to one request, with their total contents.
#[derive(Default)]
pub(super) struct RequestConcatenation {
    bodies: Vec<(Bytes, WriteRequestContents)>,
    /// Summary of the contents of all bodies.
    contents: WriteRequestContents,
}

impl RequestConcatenation {
    pub(super) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// Returns whether a body with `contents` fits into the request, which may have at most `max`
    /// samples.
    pub(super) fn has_room(&self, contents: &WriteRequestContents, max: usize) -> bool {
        let all = self.contents.merged_with(*contents);
        self.is_empty() || all.all_samples().max(all.exemplars) <= max as u64
    }

    pub(super) fn push_body(&mut self, body: Bytes, contents: WriteRequestContents) {
        self.contents = if self.is_empty() {
            contents
        } else {
            self.contents.merged_with(contents)
        };
        self.bodies.push((body, contents));
    }

    /// Takes all collected bodies and returns them as a round. It is full if its size is worth a
    /// request. Bodies whose concatenation exceeds the maximum message size become one round each.
    pub(super) fn take_rounds(
        &mut self,
        outgoing: &OutgoingSettings,
        limits: &WireLimits,
    ) -> Vec<OutgoingRound> {
        let Self { bodies, contents } = std::mem::take(self);
        let round = |kept, sent: OutgoingRequest| OutgoingRound {
            kept,
            is_full: sent.contents.all_samples() >= outgoing.worthwhile_samples() as u64,
            shares: vec![vec![sent]],
            dropped: WriteRequestContents::default(),
        };
        if bodies.len() > 1
            && let Some((body, seams)) = concatenate_bodies(&bodies, limits.message_bytes_max)
        {
            let sent = OutgoingRequest {
                body,
                contents,
                seams,
            };
            return vec![round(bodies.len(), sent)];
        }
        let bodies = bodies.into_iter();
        bodies
            .map(|(body, contents)| round(1, OutgoingRequest::from_single_request(body, contents)))
            .collect()
    }
}

/// Concatenates `bodies` and returns the result with the boundaries. Returns `None` if it exceeds
/// the maximum message size.
fn concatenate_bodies(
    bodies: &[(Bytes, WriteRequestContents)],
    message_bytes_max: usize,
) -> Option<(Bytes, MergedRequestBounds)> {
    let parts = bodies.iter().map(|(body, _)| &body[..]);
    let body = snappy::join_blocks(parts, message_bytes_max).ok()?;
    let seam = |(body, contents): &(Bytes, WriteRequestContents)| {
        let (message_bytes, element_bytes) = snappy::block_bytes(body, message_bytes_max).ok()?;
        Some(MergedBody {
            message_bytes,
            element_bytes,
            contents: *contents,
        })
    };
    let seams: Option<Vec<MergedBody>> = bodies.iter().map(seam).collect();
    Some((body.into(), MergedRequestBounds::Bodies(seams?)))
}

/// Result of distributing whole requests over shares that may be sent concurrently.
pub(super) enum ShareSplit {
    /// One round with several shares.
    Made(OutgoingRound),
    /// Too many requests have series in common for enough shares.
    TooFew,
    /// A request cannot be decoded.
    Unread,
}

/// Combines rounds of one request each to one round with concurrent shares.
pub(super) fn combine_as_shares(
    rounds: &[OutgoingRound],
    version: RemoteWriteVersion,
    shares_max: usize,
    limits: &WireLimits,
) -> ShareSplit {
    let requests = rounds.iter().flat_map(|r| r.shares.iter().flatten());
    let requests: Vec<&OutgoingRequest> = requests.collect();
    let Some(groups) = group_by_common_series(&requests, version, limits) else {
        return ShareSplit::Unread;
    };
    let mut numbers = groups.clone();
    numbers.sort_unstable();
    numbers.dedup();
    let wanted = requests.len().min(shares_max);
    let count = numbers.len().min(shares_max);
    if count < 2 || count * 2 < wanted {
        return ShareSplit::TooFew;
    }
    let mut shares = vec![Share::new(); count];
    for (request, group) in requests.into_iter().zip(groups) {
        let number = numbers.partition_point(|other| *other < group);
        shares[number % count].push(request.clone());
    }
    ShareSplit::Made(OutgoingRound {
        kept: rounds.iter().map(|round| round.kept).sum(),
        shares,
        dropped: WriteRequestContents::default(),
        is_full: rounds.iter().any(|round| round.is_full),
    })
}

/// Returns the group of each request, identified by the index of its first request. Requests with a
/// common series are in the same group. Series are compared by hash: requests with a hash collision
/// remain in order, which is correct too.
fn group_by_common_series(
    requests: &[&OutgoingRequest],
    version: RemoteWriteVersion,
    limits: &WireLimits,
) -> Option<Vec<usize>> {
    let mut groups: Vec<usize> = (0..requests.len()).collect();
    // Hash of each series, with the first request that contains it.
    let mut series_seen: HashTable<(u64, usize)> = HashTable::new();
    let mut decoder = RemoteWriteDecoder::new(*limits);
    let reader = RemoteWriteOptions {
        version,
        keeps_exemplars: true,
        labels_types: false,
    };
    for (number, request) in requests.iter().enumerate() {
        let decoded = decoder.decode(reader, &request.body).ok()?;
        for series in decoded.batch.iter() {
            let hash = xxh3_64(series.labels.as_bytes());
            let seen = series_seen.entry(hash, |(other, _)| *other == hash, |(other, _)| *other);
            let (_, first) = *seen.or_insert((hash, number)).get();
            join_groups(&mut groups, first, number);
        }
    }
    Some(
        (0..groups.len())
            .map(|number| find_root(&groups, number))
            .collect(),
    )
}

fn find_root(groups: &[usize], mut number: usize) -> usize {
    while groups[number] != number {
        number = groups[number];
    }
    number
}

fn join_groups(groups: &mut [usize], one: usize, other: usize) {
    let (one, other) = (find_root(groups, one), find_root(groups, other));
    groups[one.max(other)] = one.min(other);
}

impl OutgoingSettings {
    /// Returns the contents of `kept` if the receiver can accept it unchanged, apart from external
    /// labels. If no summary was recorded, decodes the samples without their labels.
    pub(super) fn find_passable_contents(
        &self,
        decoder: &mut RemoteWriteDecoder,
        kept: &QueuedWriteRequest,
        tells: bool,
    ) -> Option<WriteRequestContents> {
        let may_pass = self.keeps_labels() || self.can_insert_labels();
        if !may_pass || kept.version != self.version {
            return None;
        }
        let contents = match kept.contents {
            Some(contents) => contents,
            None => read_contents(decoder, kept)?,
        };
        self.can_pass_contents(&contents, tells).then_some(contents)
    }

    /// Returns whether a request with these contents and of the receiver's version can be forwarded
    /// unchanged: its size is in the preferred range, and it contains only data that the receiver
    /// accepts.
    fn can_pass_contents(&self, contents: &WriteRequestContents, tells: bool) -> bool {
        let samples = contents.all_samples() as usize;
        let least = match self.version {
            RemoteWriteVersion::V1 => 1,
            RemoteWriteVersion::V2 => self.worthwhile_samples(),
        };
        (least..=self.request_samples).contains(&samples)
            && (self.sends_histograms || contents.histograms == 0)
            && (self.sends_exemplars || contents.exemplars == 0)
            // Metadata is part of 2.0 requests, but 1.0 sends it in separate requests.
            && (contents.metadata == 0 || self.version == RemoteWriteVersion::V2 && tells)
    }

    /// Returns whether external labels are the only change and can be inserted into the bytes of a
    /// 1.0 message.
    fn can_insert_labels(&self) -> bool {
        self.relabel.is_empty() && self.version == RemoteWriteVersion::V1
    }

    /// Returns the encoder that inserts the external labels into a message, or `None` if there are
    /// none.
    pub(super) fn external_labels_encoder(&self) -> Option<ExtraLabels> {
        let is_wanted = self.can_insert_labels() && !self.external_labels.is_empty();
        is_wanted.then(|| ExtraLabels::new(self.external_labels.as_ref()))
    }

    /// Returns whether [`OutgoingSettings::take_rounds`] of `kept` at most copies bodies, without
    /// decoding them.
    pub fn is_quick(&self, kept: &[QueuedWriteRequest], tells: bool) -> bool {
        let passes = |one: &QueuedWriteRequest| {
            let noted = one.contents.as_ref();
            one.version == self.version
                && noted.is_some_and(|noted| self.can_pass_contents(noted, tells))
        };
        self.keeps_labels() && kept.iter().all(passes)
    }

    /// Returns the number of samples from which a request is worth sending.
    pub(super) fn worthwhile_samples(&self) -> usize {
        self.request_samples.div_ceil(2)
    }
}

/// Returns `body` with additional labels. Returns `None` if the message cannot be decoded or is not
/// simple enough.
pub(super) fn insert_labels(
    body: &[u8],
    extra: &ExtraLabels,
    limits: &WireLimits,
) -> Option<Bytes> {
    let mut message = Vec::new();
    snappy::decompress(body, limits.message_bytes_max, &mut message).ok()?;
    Some(snappy::compress(&extra.extend(&message)?).into())
}

/// Decodes `kept` and returns its contents, or `None` if a part of it is invalid.
fn read_contents(
    decoder: &mut RemoteWriteDecoder,
    kept: &QueuedWriteRequest,
) -> Option<WriteRequestContents> {
    let reader = RemoteWriteOptions {
        version: kept.version,
        keeps_exemplars: true,
        labels_types: false,
    };
    let decoded = decoder.decode_within(reader, &kept.body, None).ok()?;
    let is_sound = decoded.refused.is_empty() && decoded.refused_exemplars.is_empty();
    is_sound.then(|| WriteRequestContents {
        metadata: decoded.metadata.len() as u64,
        ..WriteRequestContents::from_batch(decoded.batch, 0..decoded.batch.series_count())
    })
}
