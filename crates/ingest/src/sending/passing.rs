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

use super::outgoing::{Kept, Outgoing, Round, Sent, Share};
use firn_wire::WireLimits;
use firn_wire::remote_write::{Contents, Decoder, Extra, Joined, Reader, Seams, Version};
use firn_wire::snappy;
use hashbrown::HashTable;
use hyper::body::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// Kept requests that are being concatenated to one request, with their total contents.
#[derive(Default)]
pub(super) struct Joining {
    bodies: Vec<(Bytes, Contents)>,
    /// Summary of the contents of all bodies.
    contents: Contents,
}

impl Joining {
    pub(super) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// Returns whether a body with `contents` fits into the request, which may have at most `max`
    /// samples.
    pub(super) fn has_room(&self, contents: &Contents, max: usize) -> bool {
        let all = self.contents.and(*contents);
        self.is_empty() || all.all_samples().max(all.exemplars) <= max as u64
    }

    pub(super) fn push(&mut self, body: Bytes, contents: Contents) {
        self.contents = match self.is_empty() {
            true => contents,
            false => self.contents.and(contents),
        };
        self.bodies.push((body, contents));
    }

    /// Takes all collected bodies and returns them as a round. It is full if its size is worth a
    /// request. Bodies whose concatenation exceeds the maximum message size become one round each.
    pub(super) fn rounds(&mut self, outgoing: &Outgoing, limits: &WireLimits) -> Vec<Round> {
        let Self { bodies, contents } = std::mem::take(self);
        let round = |kept, sent: Sent| Round {
            kept,
            is_full: sent.contents.all_samples() >= outgoing.half_full() as u64,
            shares: vec![vec![sent]],
            dropped: Contents::default(),
        };
        if bodies.len() > 1
            && let Some((body, seams)) = joined(&bodies, limits.message_bytes_max)
        {
            let sent = Sent {
                body,
                contents,
                seams,
            };
            return vec![round(bodies.len(), sent)];
        }
        let bodies = bodies.into_iter();
        bodies
            .map(|(body, contents)| round(1, Sent::whole(body, contents)))
            .collect()
    }
}

/// Concatenates `bodies` and returns the result with the boundaries. Returns `None` if it exceeds
/// the maximum message size.
fn joined(bodies: &[(Bytes, Contents)], message_bytes_max: usize) -> Option<(Bytes, Seams)> {
    let parts = bodies.iter().map(|(body, _)| &body[..]);
    let body = snappy::join(parts, message_bytes_max).ok()?;
    let seam = |(body, contents): &(Bytes, Contents)| {
        let (message_bytes, element_bytes) = snappy::block_bytes(body, message_bytes_max).ok()?;
        Some(Joined {
            message_bytes,
            element_bytes,
            contents: *contents,
        })
    };
    let seams: Option<Vec<Joined>> = bodies.iter().map(seam).collect();
    Some((body.into(), Seams::Bodies(seams?)))
}

/// Result of distributing whole requests over shares that may be sent concurrently.
pub(super) enum Shares {
    /// One round with several shares.
    Made(Round),
    /// Too many requests have series in common for enough shares.
    TooFew,
    /// A request cannot be decoded.
    Unread,
}

/// Combines rounds of one request each to one round with concurrent shares.
pub(super) fn side_by_side(
    rounds: &[Round],
    version: Version,
    shares_max: usize,
    limits: &WireLimits,
) -> Shares {
    let requests = rounds.iter().flat_map(|r| r.shares.iter().flatten());
    let requests: Vec<&Sent> = requests.collect();
    let Some(groups) = groups_of(&requests, version, limits) else {
        return Shares::Unread;
    };
    let mut numbers = groups.clone();
    numbers.sort_unstable();
    numbers.dedup();
    let wanted = requests.len().min(shares_max);
    let count = numbers.len().min(shares_max);
    if count < 2 || count * 2 < wanted {
        return Shares::TooFew;
    }
    let mut shares = vec![Share::new(); count];
    for (request, group) in requests.into_iter().zip(groups) {
        let number = numbers.partition_point(|other| *other < group);
        shares[number % count].push(request.clone());
    }
    Shares::Made(Round {
        kept: rounds.iter().map(|round| round.kept).sum(),
        shares,
        dropped: Contents::default(),
        is_full: rounds.iter().any(|round| round.is_full),
    })
}

/// Returns the group of each request, identified by the index of its first request. Requests with a
/// common series are in the same group. Series are compared by hash: requests with a hash collision
/// remain in order, which is correct too.
fn groups_of(requests: &[&Sent], version: Version, limits: &WireLimits) -> Option<Vec<usize>> {
    let mut groups: Vec<usize> = (0..requests.len()).collect();
    // Hash of each series, with the first request that contains it.
    let mut series_seen: HashTable<(u64, usize)> = HashTable::new();
    let mut decoder = Decoder::new(*limits);
    let reader = Reader {
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
            join(&mut groups, first, number);
        }
    }
    Some(
        (0..groups.len())
            .map(|number| root(&groups, number))
            .collect(),
    )
}

fn root(groups: &[usize], mut number: usize) -> usize {
    while groups[number] != number {
        number = groups[number];
    }
    number
}

fn join(groups: &mut [usize], one: usize, other: usize) {
    let (one, other) = (root(groups, one), root(groups, other));
    groups[one.max(other)] = one.min(other);
}

impl Outgoing {
    /// Returns the contents of `kept` if the receiver can accept it unchanged, apart from external
    /// labels. If no summary was recorded, decodes the samples without their labels.
    pub(super) fn contents_to_pass(
        &self,
        decoder: &mut Decoder,
        kept: &Kept,
        tells: bool,
    ) -> Option<Contents> {
        let may_pass = self.is_plain() || self.may_extend();
        if !may_pass || kept.version != self.version {
            return None;
        }
        let contents = match kept.contents {
            Some(contents) => contents,
            None => read(decoder, kept)?,
        };
        self.takes(&contents, tells).then_some(contents)
    }

    /// Returns whether a request with these contents and of the receiver's version can be forwarded
    /// unchanged: its size is in the preferred range, and it contains only data that the receiver
    /// accepts.
    fn takes(&self, contents: &Contents, tells: bool) -> bool {
        let samples = contents.all_samples() as usize;
        let least = match self.version {
            Version::V1 => 1,
            Version::V2 => self.half_full(),
        };
        (least..=self.request_samples).contains(&samples)
            && (self.sends_histograms || contents.histograms == 0)
            && (self.sends_exemplars || contents.exemplars == 0)
            // Metadata is part of 2.0 requests, but 1.0 sends it in separate requests.
            && (contents.metadata == 0 || self.version == Version::V2 && tells)
    }

    /// Returns whether external labels are the only change and can be inserted into the bytes of a
    /// 1.0 message.
    fn may_extend(&self) -> bool {
        self.relabel.is_empty() && self.version == Version::V1
    }

    /// Returns the encoder that inserts the external labels into a message, or `None` if there are
    /// none.
    pub(super) fn extra(&self) -> Option<Extra> {
        let is_wanted = self.may_extend() && !self.external_labels.is_empty();
        is_wanted.then(|| Extra::new(self.external_labels.as_ref()))
    }

    /// Returns whether [`Outgoing::rounds`] of `kept` at most copies bodies, without decoding them.
    pub fn is_quick(&self, kept: &[Kept], tells: bool) -> bool {
        let passes = |one: &Kept| {
            let noted = one.contents.as_ref();
            one.version == self.version && noted.is_some_and(|noted| self.takes(noted, tells))
        };
        self.is_plain() && kept.iter().all(passes)
    }

    /// Returns the number of samples from which a request is worth sending.
    pub(super) fn half_full(&self) -> usize {
        self.request_samples.div_ceil(2)
    }
}

/// Returns `body` with additional labels. Returns `None` if the message cannot be decoded or is not
/// simple enough.
pub(super) fn extended(body: &[u8], extra: &Extra, limits: &WireLimits) -> Option<Bytes> {
    let mut message = Vec::new();
    snappy::decompress(body, limits.message_bytes_max, &mut message).ok()?;
    Some(snappy::compress(&extra.extend(&message)?).into())
}

/// Decodes `kept` and returns its contents, or `None` if a part of it is invalid.
fn read(decoder: &mut Decoder, kept: &Kept) -> Option<Contents> {
    let reader = Reader {
        version: kept.version,
        keeps_exemplars: true,
        labels_types: false,
    };
    let decoded = decoder.decode_within(reader, &kept.body, None).ok()?;
    let is_sound = decoded.refused.is_empty() && decoded.refused_exemplars.is_empty();
    is_sound.then(|| Contents {
        metadata: decoded.metadata.len() as u64,
        ..Contents::of(decoded.batch, 0..decoded.batch.series_count())
    })
}
