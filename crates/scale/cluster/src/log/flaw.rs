//! Planted flaws: rules of the log core that a test breaks.
//!
//! A test of a protocol shows only the errors that it would detect. Each flaw breaks one rule, and
//! the exhaustive model in `tests` must reach a violation with each of them. Without the feature
//! `flaws` the check is a constant and its branches are removed.

use super::options::LogCoreOptions;

/// A rule of the log core that a test breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(not(any(test, feature = "flaws")), allow(dead_code))]
pub enum LogFlaw {
    /// Acknowledges a stored append before those before it are stored.
    AcksBeforePrefix,
    /// Acknowledges appends when their segment is sent, before it is stored.
    AcksBeforeCreate,
    /// Treats a key that exists as its own segment, without reading it.
    ExistsIsStored,
    /// Treats a key that exists as that of a new leader, without reading it.
    ExistsIsFenced,
    /// Compares the epoch of a header at its key, but not the writer.
    OmitsWriter,
    /// Ends a replay at its FENCE, even if the last FENCE before it has no lower epoch.
    OmitsEpoch,
    /// Deletes FENCEs with DATA.
    DeletesFences,
    /// Does not read the checkpoint again after its FENCE.
    OmitsSecondRead,
    /// Reads the checkpoint again, but replays the segments that exist from the first one on.
    ReplaysFromFirstRead,
    /// Keeps a FENCE that is before the begin of the replay.
    KeepsStaleFence,
    /// Reads behind its FENCE, up to the first absent key.
    ProbesEndAgain,
    /// Replays DATA of void keys behind earlier FENCEs.
    ReplaysVoid,
    /// Writes to the void keys behind its FENCE.
    ReusesVoid,
    /// Deletes DATA as soon as the COMMIT is stored, before its checkpoint is.
    TrimsBeforeCheckpoint,
    /// Writes the checkpoint before the COMMIT is stored.
    ChecksInBeforePrefix,
    /// Begins replays where the request of a COMMIT has it, even if that is before the last begin.
    LowersReplayFrom,
    /// Acknowledges and answers right after its FENCE.
    OmitsWait,
    /// Answers strong reads right after its FENCE.
    ReadsBeforeWait,
    /// Counts a lease from the reply.
    LeasesFromEnd,
    /// Counts a lease from the last attempt of a create.
    LeasesFromRepeat,
    /// Counts a lease from any stored segment, even if earlier ones are not stored.
    LeasesBeforePrefix,
    /// Answers all waiting reads after a HEAD, including those that came after its start.
    HeadCoversLaterReads,
    /// Counts reads that a create has confirmed as waiting for the HEAD before it.
    HeadCountsGrantedReads,
    /// Hands off before the lease of its own predecessor has ended.
    HandsOffBeforeWait,
    /// Answers strong reads after it was requested to hand off.
    ReadsWhileHandingOff,
    /// Skips the wait after a HANDOFF that another FENCE follows.
    TrustsOldHandOff,
}

impl LogCoreOptions {
    /// Returns whether this core breaks a rule.
    #[cfg(any(test, feature = "flaws"))]
    pub(super) fn has(&self, flaw: LogFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns whether this core breaks a rule, which it does only in tests.
    #[cfg(not(any(test, feature = "flaws")))]
    pub(super) fn has(&self, _: LogFlaw) -> bool {
        false
    }
}
