//! Converts stored requests into the requests of one receiver, for the queue.

use super::request::{kept, write};
use super::said::Said;
use firn_ingest::sending::{Kept, Outgoing, Round, Sent};
use firn_mirror::tee::{Parcel, Prepare, Request, Wanted, Write};
use firn_wire::WireLimits;
use firn_wire::remote_write::Contents;
use std::sync::Arc;

/// Builds the requests of one receiver from stored requests: decodes them, relabels the series and
/// encodes them for the receiver.
pub struct Preparing {
    /// Settings of the receiver's requests: external labels, relabeling, version, contents and
    /// batch size.
    pub outgoing: Outgoing,
    /// Metric metadata, if the receiver is configured to get it.
    pub said: Option<Arc<Said>>,
    /// Limits of the sizes of stored requests, which are enforced during decoding.
    pub limits: WireLimits,
}

impl Preparing {
    /// Returns whether series in requests of version 2.0 contain metadata: the receiver gets it and
    /// some is available.
    fn tells(&self) -> bool {
        self.said
            .as_ref()
            .is_some_and(|said| !said.known().is_empty())
    }

    fn parcel(&self, round: Result<Round, String>) -> Parcel {
        let round = match round {
            Ok(round) => round,
            Err(why) => {
                return Parcel {
                    bodies: 1,
                    wanted: Wanted::Unreadable(why),
                    dropped: Contents::default(),
                    is_full: true,
                };
            }
        };
        let lane = |share: Vec<Sent>| share.into_iter().map(|sent| self.request(sent)).collect();
        Parcel {
            bodies: round.kept,
            wanted: match round.shares.is_empty() {
                true => Wanted::Nothing,
                false => Wanted::Lanes(round.shares.into_iter().map(lane).collect()),
            },
            dropped: round.dropped,
            is_full: round.is_full,
        }
    }

    fn request(&self, sent: Sent) -> Request {
        Request {
            contents: sent.contents,
            seams: sent.seams,
            write: write(self.outgoing.version, sent.body),
        }
    }
}

impl Prepare for Preparing {
    fn is_quick(&self, writes: &[&Write], is_behind: bool) -> bool {
        let kept: Vec<Kept> = writes.iter().map(|write| kept(write)).collect();
        let is_wide = is_behind || self.outgoing.shares.0 > 1;
        !is_wide && self.outgoing.is_quick(&kept, self.tells())
    }

    fn prepare(&self, writes: &[&Write], _bytes_max: usize, is_behind: bool) -> Vec<Parcel> {
        let kept: Vec<Kept> = writes.iter().map(|write| kept(write)).collect();
        let known = self.said.as_ref().map(|said| said.known());
        let known = known.unwrap_or_default();
        let rounds = self
            .outgoing
            .rounds(&kept, (&known, is_behind), &self.limits);
        rounds.into_iter().map(|round| self.parcel(round)).collect()
    }
}
