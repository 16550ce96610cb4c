//! Failpoints for tests: deliberate flaws, injected faults, and turns of another thread between the
//! steps of a job.
//!
//! A test proves only that it would detect a failure. Each [`StoreFlaw`] therefore breaks one rule
//! of the store, and a test must detect it. Outside of tests the functions are empty and their
//! branches are removed.

#[cfg(test)]
pub(crate) use switched::{faults, has, set_faults, turn, with_flaw, with_turns};

/// A rule of the store that a test breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFlaw {
    /// Trims the log one position further than pages cover it.
    TrimsTooFar,
    /// Treats pages as durable without a sync.
    SkipsPageSync,
    /// Drops samples from the head before their page is written.
    DropsBeforeWrite,
    /// Seals samples of batches that are not durable yet.
    SealsUnseen,
    /// Ends the declared range of a page before its newest sample.
    ClaimsShortRange,
    /// Omits the last series of a page from its metadata.
    ForgetsLastSlot,
    /// Applies samples of the log at startup that are in pages.
    ReplaysSealed,
    /// Does not inform the coverage of restored series.
    ForgetsRestored,
    /// Reads the position of a mark after its time.
    MarksTimeFirst,
    /// Uses a mark for batches that were not sealed.
    TrustsUnsealedMark,
    /// Assigns a new slot to an evicted series that is restored.
    LosesEvicted,
    /// Evicts a series while a batch is about to write to it.
    EvictsAppending,
    /// Removes a series with sealed samples as if it had none.
    RemovesSealed,
    /// Deletes pages a window before they are beyond the retention.
    UnlinksEarly,
    /// Sets the cut time one millisecond after the newest sample of the block.
    CutsTooFar,
    /// Adds a block to the manifest before its files are synced.
    SkipsBlockSync,
    /// Publishes a manifest before its file with tombstones is synced.
    SkipsTombstoneSync,
    /// Ends tombstones of pages and head after the newest sample of the series.
    DeletesLaterSamples,
    /// Completes a merge or a cut whose sources got tombstones in the meantime.
    KeepsTombstonedResult,
    /// Restores deleted late samples of the log at startup.
    ReplaysDeletedLate,
    /// Drops late samples from the head before they are in blocks.
    DropsLateFirst,
    /// Takes the view of the blocks before copying the head.
    ViewsBlocksFirst,
    /// Lists pages before copying the head.
    ReadsPagesFirst,
    /// Makes a batch visible before earlier ones.
    ShowsOutOfOrder,
    /// Derives the floor from the newest reader instead of the oldest.
    RaisesFloorEarly,
    /// Sweeps removed series that earlier readers may still access.
    SweepsUnderReaders,
    /// Removes an evicted series that may be restored at the same time.
    RemovesUnlocked,
    /// Continues a new segment with the context of the previous one.
    KeepsContext,
    /// Continues to decode with the old context after the writer reset it.
    MixesContexts,
    /// Continues to decode with the context although an earlier record is lost.
    TrustsContext,
    /// Skips late samples at sealed times during replay.
    SkipsLateSealed,
    /// Trims the log although it has the only copy of late samples.
    TrimsLate,
    /// Shows late samples of batches that are not complete.
    ShowsLateEarly,
    /// Numbers late samples by the positions of their records during replay.
    NumbersLateByPosition,
    /// Trims the log although a journal needs it.
    TrimsJournal,
    /// Uses only the lower half of a slot during replay.
    HalvesSlots,
    /// Ignores the era of a page.
    IgnoresEra,
    /// Completes a snapshot before its copies are synced.
    SkipsCopySync,
    /// Collects the log for a snapshot before the pages.
    CopiesLogFirst,
    /// Commits each block of an import separately.
    CommitsApart,
    /// Deletes blocks beyond a limit before they are removed from the manifest.
    RemovesBeforeCommit,
}

/// Faults that a test injects into a correct store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InjectedFaults {
    /// Number of the series whose chunks cannot be decoded when they are sealed.
    pub(crate) malformed: Option<u32>,
    /// Size in bytes at which a page ends.
    pub(crate) part_bytes: Option<usize>,
    /// A group with the maximum size of its pages in bytes.
    pub(crate) page_bytes: Option<(u64, usize)>,
    /// Number of new series for which a start has slots.
    pub(crate) new_series_max: Option<u32>,
    /// True if each start assigns slots of the next era to new series.
    pub(crate) turns_eras: bool,
}

impl InjectedFaults {
    /// No faults: the code behaves as in production.
    pub(crate) const NONE: Self = Self {
        malformed: None,
        part_bytes: None,
        page_bytes: None,
        new_series_max: None,
        turns_eras: false,
    };
}

/// Returns the injected faults: none outside of tests.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn faults() -> InjectedFaults {
    InjectedFaults::NONE
}

/// Returns whether the flaw is switched on.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn has(_: StoreFlaw) -> bool {
    false
}

/// Gives another thread a turn in tests. The caller must not hold a lock that the other thread
/// needs.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn turn() {}

#[cfg(test)]
mod switched {
    use super::{InjectedFaults, StoreFlaw};
    use std::cell::{Cell, RefCell};

    type Turn = Box<dyn FnMut()>;

    thread_local! {
        static FLAW: Cell<Option<StoreFlaw>> = const { Cell::new(None) };
        static FAULTS: Cell<InjectedFaults> = const { Cell::new(InjectedFaults::NONE) };
        static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
    }

    /// Switches off the flaw and the turns when a test ends, also by a panic.
    struct Reset;

    impl Drop for Reset {
        fn drop(&mut self) {
            FLAW.set(None);
        }
    }

    struct NoTurns;

    impl Drop for NoTurns {
        fn drop(&mut self) {
            TURN.set(None);
        }
    }

    pub(crate) fn faults() -> InjectedFaults {
        FAULTS.get()
    }

    /// Injects faults from here on into this thread, which the test must own.
    pub(crate) fn set_faults(faults: InjectedFaults) {
        FAULTS.set(faults);
    }

    pub(crate) fn has(flaw: StoreFlaw) -> bool {
        FLAW.get() == Some(flaw)
    }

    pub(crate) fn turn() {
        // Taken out while it runs, because a turn contains no turns.
        let Some(mut taken) = TURN.take() else { return };
        taken();
        TURN.set(Some(taken));
    }

    /// Runs `test` on this thread with a flaw.
    pub(crate) fn with_flaw<T>(flaw: StoreFlaw, test: impl FnOnce() -> T) -> T {
        let _reset = Reset;
        FLAW.set(Some(flaw));
        test()
    }

    /// Runs `test` on this thread; `each` is called at every turn.
    pub(crate) fn with_turns<T>(each: impl FnMut() + 'static, test: impl FnOnce() -> T) -> T {
        let _none = NoTurns;
        TURN.set(Some(Box::new(each)));
        test()
    }
}
