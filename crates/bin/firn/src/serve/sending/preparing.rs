//! Converts stored requests into the requests of one receiver, for the queue.

use super::request::{kept, write};
use super::said::SentMetadataTable;
use firn_remote_write::queue::{
    ReceivedWrite, Request, RequestParcel, RequestPreparer, WantedBodies,
};
use firn_remote_write::{OutgoingRequest, OutgoingRound, OutgoingSettings, QueuedWriteRequest};
use firn_wire::WireLimits;
use firn_wire::remote_write::WriteRequestContents;
use std::sync::Arc;

/// Builds the requests of one receiver from stored requests: decodes them, relabels the series and
/// encodes them for the receiver.
pub struct ReceiverRequestBuilder {
    /// Settings of the receiver's requests: external labels, relabeling, version, contents and
    /// batch size.
    pub outgoing: OutgoingSettings,
    /// Metric metadata, if the receiver is configured to get it.
    pub said: Option<Arc<SentMetadataTable>>,
    /// Limits of the sizes of stored requests, which are enforced during decoding.
    pub limits: WireLimits,
}

impl ReceiverRequestBuilder {
    /// Returns whether series in requests of version 2.0 contain metadata: the receiver gets it and
    /// some is available.
    fn includes_metadata(&self) -> bool {
        self.said
            .as_ref()
            .is_some_and(|said| !said.current_table().is_empty())
    }

    fn parcel(&self, round: Result<OutgoingRound, String>) -> RequestParcel {
        let round = match round {
            Ok(round) => round,
            Err(why) => {
                return RequestParcel {
                    bodies: 1,
                    wanted: WantedBodies::Unreadable(why),
                    dropped: WriteRequestContents::default(),
                    is_full: true,
                };
            }
        };
        let lane = |share: Vec<OutgoingRequest>| {
            share.into_iter().map(|sent| self.request(sent)).collect()
        };
        RequestParcel {
            bodies: round.kept,
            wanted: if round.shares.is_empty() {
                WantedBodies::Nothing
            } else {
                WantedBodies::Lanes(round.shares.into_iter().map(lane).collect())
            },
            dropped: round.dropped,
            is_full: round.is_full,
        }
    }

    fn request(&self, sent: OutgoingRequest) -> Request {
        Request {
            contents: sent.contents,
            seams: sent.seams,
            write: write(self.outgoing.version, sent.body),
        }
    }
}

impl RequestPreparer for ReceiverRequestBuilder {
    fn is_quick(&self, writes: &[&ReceivedWrite], is_behind: bool) -> bool {
        let kept: Vec<QueuedWriteRequest> = writes.iter().map(|write| kept(write)).collect();
        let is_wide = is_behind || self.outgoing.shares.0 > 1;
        !is_wide && self.outgoing.is_quick(&kept, self.includes_metadata())
    }

    fn prepare(
        &self,
        writes: &[&ReceivedWrite],
        _bytes_max: usize,
        is_behind: bool,
    ) -> Vec<RequestParcel> {
        let kept: Vec<QueuedWriteRequest> = writes.iter().map(|write| kept(write)).collect();
        let known = self.said.as_ref().map(|said| said.current_table());
        let known = known.unwrap_or_default();
        let rounds = self
            .outgoing
            .build_rounds(&kept, &known, is_behind, &self.limits);
        rounds.into_iter().map(|round| self.parcel(round)).collect()
    }
}
