//! Merges queued requests to rounds: gathers the samples of requests that must be rebuilt, and
//! concatenates those that are forwarded unchanged.

use super::{OutgoingRound, OutgoingSettings, QueuedWriteRequest};
use crate::known::RemoteWriteMetadata;
use crate::passing;
use crate::passing::{RequestConcatenation, ShareSplit};
use firn_model::batch::Batch;
use firn_wire::WireLimits;
use firn_wire::remote_write::{RemoteWriteDecoder, RemoteWriteVersion, WriteRequestContents};
use hyper::body::Bytes;

/// Decoded samples of kept requests, collected until they fill a round.
#[derive(Default)]
pub(super) struct PendingRound {
    pub(super) kept: usize,
    pub(super) batch: Batch,
    /// End (exclusive series index) of each kept request that contributed series.
    pub(super) ends: Vec<u32>,
    pub(super) dropped: WriteRequestContents,
}

/// State while rounds are built. At any time, either the unchanged requests (`joining`, `passed`)
/// or the decoded samples (`gathered`) are empty.
pub(super) struct RequestBatcher<'o> {
    pub(super) outgoing: &'o OutgoingSettings,
    pub(super) known: &'o RemoteWriteMetadata,
    /// Maximum number of shares per round.
    pub(super) shares_max: usize,
    pub(super) limits: &'o WireLimits,
    pub(super) rounds: Vec<Result<OutgoingRound, String>>,
    /// Unchanged requests that are being combined to the next request.
    pub(super) joining: RequestConcatenation,
    /// Earlier unchanged requests, collected for concurrent shares if the receiver is behind.
    pub(super) passed: Vec<OutgoingRound>,
    pub(super) gathered: PendingRound,
}

impl OutgoingSettings {
    /// Converts `kept` to rounds; `Err` contains the reason why a request cannot be decoded.
    /// Requests of version 2.0 contain the metadata in `known`. If the receiver `is_behind`, rounds
    /// have several shares.
    pub fn build_rounds(
        &self,
        kept: &[QueuedWriteRequest],
        known: &RemoteWriteMetadata,
        is_behind: bool,
        limits: &WireLimits,
    ) -> Vec<Result<OutgoingRound, String>> {
        let mut making = RequestBatcher {
            outgoing: self,
            known,
            shares_max: if is_behind {
                self.shares.1
            } else {
                self.shares.0
            },
            limits,
            rounds: Vec::new(),
            joining: RequestConcatenation::default(),
            passed: Vec::new(),
            gathered: PendingRound::default(),
        };
        let mut decoder = RemoteWriteDecoder::new(*limits);
        let extra = self.external_labels_encoder();
        for one in kept {
            let contents = self.find_passable_contents(&mut decoder, one, !known.is_empty());
            let passed = contents.and_then(|contents| {
                let body = match &extra {
                    None => one.body.clone(),
                    Some(extra) => passing::insert_labels(&one.body, extra, limits)?,
                };
                Some((body, contents))
            });
            match passed {
                Some((body, contents)) => making.pass_unchanged(body, contents),
                None => making.gather_samples(&mut decoder, one),
            }
        }
        making.finish_rounds()
    }
}

impl RequestBatcher<'_> {
    /// Adds a body that is forwarded unchanged, and completes the request before it if it is full.
    pub(super) fn pass_unchanged(&mut self, body: Bytes, contents: WriteRequestContents) {
        self.end_pending_round(true);
        let outgoing = self.outgoing;
        let may_join = outgoing.version == RemoteWriteVersion::V1;
        if !may_join || !self.joining.has_room(&contents, outgoing.request_samples) {
            self.end_concatenation(true);
        }
        self.joining.push_body(body, contents);
    }

    /// Decodes a body whose samples change, or that must be combined with others.
    pub(super) fn gather_samples(
        &mut self,
        decoder: &mut RemoteWriteDecoder,
        kept: &QueuedWriteRequest,
    ) {
        self.end_concatenation(true);
        self.end_passed_requests();
        let gathered = self.gathered.batch.sample_count();
        let more = kept
            .contents
            .map_or(0, |contents| contents.all_samples() as usize);
        let max = self.outgoing.request_samples;
        if !self.is_wide()
            && gathered >= self.outgoing.worthwhile_samples()
            && gathered + more > max
        {
            // Sending two half-full requests is cheaper than splitting and mixing them.
            self.end_pending_round(true);
        }
        match self
            .outgoing
            .decode_into_round(decoder, kept, &mut self.gathered)
        {
            Ok(()) => {
                let enough = if self.is_wide() {
                    self.outgoing.round_samples_max()
                } else {
                    max
                };
                if self.gathered.batch.sample_count() >= enough {
                    self.end_pending_round(true);
                }
            }
            Err(why) => {
                self.end_pending_round(true);
                self.rounds.push(Err(why));
            }
        }
    }

    /// Returns whether a round may have several shares, which are sent concurrently.
    fn is_wide(&self) -> bool {
        self.shares_max > 1
    }

    pub(super) fn finish_rounds(mut self) -> Vec<Result<OutgoingRound, String>> {
        self.end_concatenation(false);
        self.end_passed_requests();
        self.end_pending_round(false);
        self.rounds
    }

    /// Completes the round of decoded samples. It counts as full if another request follows.
    fn end_pending_round(&mut self, is_followed: bool) {
        if self.gathered.kept > 0 {
            let gathered = std::mem::take(&mut self.gathered);
            let mut round = self
                .outgoing
                .build_round(gathered, self.shares_max, self.known);
            round.is_full |= is_followed;
            self.rounds.push(Ok(round));
        }
    }

    /// Completes the request of combined bodies. It counts as full if another request follows.
    fn end_concatenation(&mut self, is_followed: bool) {
        for mut round in self.joining.take_rounds(self.outgoing, self.limits) {
            round.is_full |= is_followed;
            if !self.is_wide() {
                self.rounds.push(Ok(round));
                continue;
            }
            self.passed.push(round);
            let passed = self
                .passed
                .iter()
                .flat_map(|round| round.shares.iter().flatten());
            let samples: u64 = passed.map(|sent| sent.contents.all_samples()).sum();
            if samples >= self.outgoing.round_samples_max() as u64 {
                self.end_passed_requests();
            }
        }
    }

    /// Completes the unchanged requests. If the receiver is behind, distributes them over shares:
    /// as whole requests, or by their samples if too many of them have series in common.
    fn end_passed_requests(&mut self) {
        let passed = std::mem::take(&mut self.passed);
        let (version, shares_max) = (self.outgoing.version, self.shares_max);
        if passed.len() < 2 || !self.is_wide() {
            self.rounds.extend(passed.into_iter().map(Ok));
            return;
        }
        match passing::combine_as_shares(&passed, version, shares_max, self.limits) {
            ShareSplit::Made(round) => self.rounds.push(Ok(round)),
            ShareSplit::Unread => self.rounds.extend(passed.into_iter().map(Ok)),
            ShareSplit::TooFew => {
                passed
                    .into_iter()
                    .for_each(|round| self.regather_samples(round));
                self.end_pending_round(true);
            }
        }
    }

    /// Decodes requests that were to be forwarded unchanged. Combined requests are separated first.
    fn regather_samples(&mut self, round: OutgoingRound) {
        let mut decoder = RemoteWriteDecoder::new(*self.limits);
        let version = self.outgoing.version;
        let kept_before = self.gathered.kept;
        for sent in round.shares.iter().flatten() {
            let kept = |body: Bytes| QueuedWriteRequest {
                version,
                contents: None,
                body,
            };
            let apart = sent.seams.split_body(version, &sent.body, self.limits);
            let mut parts: Vec<QueuedWriteRequest> = (apart.unwrap_or_default().into_iter())
                .map(|(body, _)| kept(body.into()))
                .collect();
            if parts.is_empty() {
                parts.push(kept(sent.body.clone()));
            }
            for part in &parts {
                let gathered = &mut self.gathered;
                if self
                    .outgoing
                    .decode_into_round(&mut decoder, part, gathered)
                    .is_err()
                {
                    // The request was decodable before. If it is not now, it is sent again, in
                    // order.
                    self.gathered.kept = kept_before;
                    self.end_pending_round(true);
                    self.rounds.push(Ok(round));
                    return;
                }
            }
        }
        self.gathered.kept = kept_before + round.kept;
    }
}
