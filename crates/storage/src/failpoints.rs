//! Points at which tests make the store fail: a deliberate flaw, something broken, or a turn of
//! another thread between two steps of a job.
//!
//! A proof is worth what it would catch. Each [`Flaw`] breaks one rule that the store keeps, and a
//! test must find it. Outside of tests both functions are empty and their branches are gone.

#[cfg(test)]
pub(crate) use switched::{faults, has, set_faults, turn, with_flaw, with_turns};

/// A rule of the store that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The log is trimmed one position further than pages cover it.
    TrimsTooFar,
    /// Pages count as durable without a sync.
    SkipsPageSync,
    /// The head drops samples before their page is written.
    DropsBeforeWrite,
    /// Samples are sealed of batches that are not durable yet.
    SealsUnseen,
    /// The range that a page claims ends before its newest sample.
    ClaimsShortRange,
    /// A page does not name its last series.
    ForgetsLastSlot,
    /// A start takes in again what pages hold of the log.
    ReplaysSealed,
    /// The coverage is not told of evicted series that return.
    ForgetsRestored,
    /// A mark's position is read after its time.
    MarksTimeFirst,
    /// A mark counts for batches that were not sealed.
    TrustsUnsealedMark,
    /// An evicted series that returns gets another slot.
    LosesEvicted,
    /// A series is evicted while a batch is about to write to it.
    EvictsAppending,
    /// A series with sealed samples is removed as if it had none.
    RemovesSealed,
    /// Pages are unlinked a window before they left the retention.
    UnlinksEarly,
    /// The cut time lies one millisecond behind the newest sample of the block.
    CutsTooFar,
    /// The manifest names a block whose files are not synced.
    SkipsBlockSync,
    /// The head drops late samples before blocks have them.
    DropsLateFirst,
    /// A reader takes its view of the blocks before it copies the head.
    ViewsBlocksFirst,
    /// A reader asks for pages before it copies the head.
    ReadsPagesFirst,
    /// A batch becomes visible before those ahead of it.
    ShowsOutOfOrder,
    /// The floor follows the newest reader and not the oldest.
    RaisesFloorEarly,
    /// What a removal left is swept under readers that began before it.
    SweepsUnderReaders,
    /// An evicted series is removed although it may return meanwhile.
    RemovesUnlocked,
    /// A segment goes on with the context of the one before it.
    KeepsContext,
    /// A reader of the log goes on with its context when the writer began another.
    MixesContexts,
    /// A reader of the log trusts its context where a record before was lost.
    TrustsContext,
    /// A start passes over late samples at times that are sealed.
    SkipsLateSealed,
    /// The log is trimmed although late samples are in it alone.
    TrimsLate,
    /// A reader sees late samples of batches that are not complete.
    ShowsLateEarly,
    /// A start numbers late samples by the positions of their records.
    NumbersLateByPosition,
    /// The log is trimmed although a journal is needed.
    TrimsJournal,
    /// A start takes the lower half of a slot for all of it.
    HalvesSlots,
    /// The era that a page says is not looked at.
    IgnoresEra,
    /// A snapshot counts as made while its copies are not synced.
    SkipsCopySync,
    /// A snapshot takes the log before the pages.
    CopiesLogFirst,
    /// Each block of an import is committed by itself.
    CommitsApart,
    /// Blocks beyond a limit go before the manifest forgets them.
    RemovesBeforeCommit,
}

/// What a test breaks inside a sound store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The slot whose chunks cannot be decoded when they are sealed.
    pub(crate) malformed: Option<u32>,
    /// Bytes after which a page ends.
    pub(crate) part_bytes: Option<usize>,
    /// A group, and how large its pages may be.
    pub(crate) page_bytes: Option<(u64, usize)>,
    /// For how many new series a start has numbers.
    pub(crate) new_series_max: Option<u32>,
    /// Each start gives new series slots of the next era.
    pub(crate) turns_eras: bool,
}

impl Faults {
    /// None.
    pub(crate) const NONE: Self = Self {
        malformed: None,
        part_bytes: None,
        page_bytes: None,
        new_series_max: None,
        turns_eras: false,
    };
}

/// What is broken now: nothing.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn faults() -> Faults {
    Faults::NONE
}

/// Whether the flaw is switched on.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn has(_: Flaw) -> bool {
    false
}

/// A place where another thread may do something; no lock that it needs is held.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn turn() {}

#[cfg(test)]
mod switched {
    use super::{Faults, Flaw};
    use std::cell::{Cell, RefCell};

    type Turn = Box<dyn FnMut()>;

    thread_local! {
        static FLAW: Cell<Option<Flaw>> = const { Cell::new(None) };
        static FAULTS: Cell<Faults> = const { Cell::new(Faults::NONE) };
        static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
    }

    /// Switches the flaw off and the turns out when a test ends, were it by a panic.
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

    pub(crate) fn faults() -> Faults {
        FAULTS.get()
    }

    /// Breaks something from here on, on this thread, which the test has for itself.
    pub(crate) fn set_faults(faults: Faults) {
        FAULTS.set(faults);
    }

    pub(crate) fn has(flaw: Flaw) -> bool {
        FLAW.get() == Some(flaw)
    }

    pub(crate) fn turn() {
        // Away while it runs: a turn has no turns in it.
        let Some(mut taken) = TURN.take() else { return };
        taken();
        TURN.set(Some(taken));
    }

    /// Runs `test` on this thread with a flaw.
    pub(crate) fn with_flaw<T>(flaw: Flaw, test: impl FnOnce() -> T) -> T {
        let _reset = Reset;
        FLAW.set(Some(flaw));
        test()
    }

    /// Runs `test` on this thread; `each` is called at every turn of it.
    pub(crate) fn with_turns<T>(each: impl FnMut() + 'static, test: impl FnOnce() -> T) -> T {
        let _none = NoTurns;
        TURN.set(Some(Box::new(each)));
        test()
    }
}
