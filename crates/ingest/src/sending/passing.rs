//! Kept requests that a receiver gets as they were kept: alone where they are full, behind each
//! other in one request where they are small, side by side where the receiver is behind.
//!
//! ```text
//! body, body, body --as many as a request may have--> request = body body | request = body
//!   a receiver that is behind: requests without a series in common -> shares
//! ```
//!
//! External labels are written into the bytes of a message of 1.0, which costs unpacking and
//! packing it, and half of what reading it into samples and writing those costs besides.
//! A message of 1.0 behind another is a message that holds both, and so is what snappy made of
//! them: nothing is unpacked to join them. Messages of 2.0 have tables and go alone. Series are
//! looked for only where shares are wanted.
//!
//! Invariant: of the shares of a round no two have a series in common, and the requests of a share
//! are in the order in which they were kept.

use super::outgoing::{Kept, Outgoing, Round, Sent, Share};
use firn_wire::WireLimits;
use firn_wire::remote_write::{Contents, Decoder, Extra, Joined, Reader, Seams, Version};
use firn_wire::snappy;
use hashbrown::HashTable;
use hyper::body::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// Kept requests that become one.
#[derive(Default)]
pub(super) struct Joining {
    bodies: Vec<(Bytes, Contents)>,
    /// What all of them hold.
    contents: Contents,
}

impl Joining {
    pub(super) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// Whether a body with `contents` fits in, where a request has `max` samples at most.
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

    /// The round of what is there, which is nothing then; full if it is worth sending. Bodies that
    /// together are longer than a message may be get a round each.
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

/// One body of all of `bodies`, and where they meet; none if it is longer than a message may be.
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

/// What becomes of requests that are to go side by side.
pub(super) enum Shares {
    /// A round of several shares.
    Made(Round),
    /// Too many have a series in common with others.
    TooFew,
    /// One cannot be read.
    Unread,
}

/// Makes one round of `rounds` of one request each.
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

/// The group of each request, which is the number of its first one: requests that have a series in
/// common are in one. The hash of a series stands for it: two that share one are kept in order.
fn groups_of(requests: &[&Sent], version: Version, limits: &WireLimits) -> Option<Vec<usize>> {
    let mut groups: Vec<usize> = (0..requests.len()).collect();
    // The hash of each series, and the first request that has it.
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
    /// What `kept` holds, if the receiver may get it as it was kept, but for external labels. It is
    /// read if there is no note of what it holds, without its labels.
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

    /// Whether a request of the receiver's version that holds this may be as it is: no more samples
    /// than a request should have, and nothing that the receiver does not want.
    fn takes(&self, contents: &Contents, tells: bool) -> bool {
        let samples = contents.all_samples() as usize;
        let least = match self.version {
            Version::V1 => 1,
            Version::V2 => self.half_full(),
        };
        (least..=self.request_samples).contains(&samples)
            && (self.sends_histograms || contents.histograms == 0)
            && (self.sends_exemplars || contents.exemplars == 0)
            // Where metadata is wanted it travels in 2.0, and in requests of its own in 1.0.
            && (contents.metadata == 0 || self.version == Version::V2 && tells)
    }

    /// Whether nothing changes but for external labels, which are written into the bytes of 1.0.
    fn may_extend(&self) -> bool {
        self.relabel.is_empty() && self.version == Version::V1
    }

    /// What writes the external labels into a message, if there are any.
    pub(super) fn extra(&self) -> Option<Extra> {
        let is_wanted = self.may_extend() && !self.external_labels.is_empty();
        is_wanted.then(|| Extra::new(self.external_labels.as_ref()))
    }

    /// Whether [`Outgoing::rounds`] of `kept` copies bodies at most.
    pub fn is_quick(&self, kept: &[Kept], tells: bool) -> bool {
        let passes = |one: &Kept| {
            let noted = one.contents.as_ref();
            one.version == self.version && noted.is_some_and(|noted| self.takes(noted, tells))
        };
        self.is_plain() && kept.iter().all(passes)
    }

    /// Samples that make a request worth sending.
    pub(super) fn half_full(&self) -> usize {
        self.request_samples.div_ceil(2)
    }
}

/// `body` with labels more; none if it cannot be read, or only with care.
pub(super) fn extended(body: &[u8], extra: &Extra, limits: &WireLimits) -> Option<Bytes> {
    let mut message = Vec::new();
    snappy::decompress(body, limits.message_bytes_max, &mut message).ok()?;
    Some(snappy::compress(&extra.extend(&message)?).into())
}

/// What `kept` holds, if all of it can stand.
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
