//! Points at which tests make aggregation fail: a proof is worth what it would catch. Outside of
//! tests the function is empty and its branches are gone.

#[cfg(test)]
pub(super) use switched::{has, with_flaw};

/// A rule of aggregation that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A sample that is known counts again.
    CountsRepeated,
    /// Increments of a written interval are lost.
    LosesLate,
    /// A source that ended goes on when it returns.
    GoesOnAfterEnd,
    /// A silent source is remembered for ever.
    RemembersSilent,
    /// Results are written of samples that came after their end.
    SettlesEarly,
    /// The journal does not say that an interval was written.
    ForgetsFlush,
    /// The journal leaves out increments that wait.
    ForgetsPending,
    /// The journal leaves out samples that wait.
    ForgetsWaiting,
    /// A snapshot is taken for whole before all lanes are told.
    CompletesEarly,
    /// The source that followed another one the last time is taken for the one that comes now.
    TrustsGuess,
    /// Any entry of a source is taken for its first.
    BeginsBehind,
    /// Results are stored without the journal of the step that made them.
    LeavesJournal,
}

#[cfg(test)]
impl Flaw {
    /// Those of the machine.
    pub(super) const ALL: [Self; 10] = [
        Self::CountsRepeated,
        Self::LosesLate,
        Self::GoesOnAfterEnd,
        Self::RemembersSilent,
        Self::SettlesEarly,
        Self::ForgetsFlush,
        Self::ForgetsPending,
        Self::ForgetsWaiting,
        Self::CompletesEarly,
        Self::TrustsGuess,
    ];
}

/// Whether the flaw is switched on.
#[cfg(not(test))]
#[inline(always)]
pub(super) const fn has(_: Flaw) -> bool {
    false
}

#[cfg(test)]
mod switched {
    use super::Flaw;
    use std::cell::Cell;

    thread_local! {
        static FLAW: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    /// Switches the flaw off when a test ends, were it by a panic.
    struct Reset;

    impl Drop for Reset {
        fn drop(&mut self) {
            FLAW.set(None);
        }
    }

    pub(in crate::aggregation) fn has(flaw: Flaw) -> bool {
        FLAW.get() == Some(flaw)
    }

    /// Runs `test` on this thread with a flaw.
    pub(in crate::aggregation) fn with_flaw<T>(flaw: Flaw, test: impl FnOnce() -> T) -> T {
        let _reset = Reset;
        FLAW.set(Some(flaw));
        test()
    }
}
