//! Deliberate faults that tests switch on, in order to prove that the tests would detect them.
//! Outside of tests the function returns a constant and the branches are compiled away.

#[cfg(test)]
pub(super) use switched::{has, with_flaw};

/// A rule of aggregation to violate; each flaw must be detected by some test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AggregationFlaw {
    /// A repeated sample counts again.
    CountsRepeated,
    /// Increments of a written interval are lost.
    LosesLate,
    /// An ended source continues when it returns.
    GoesOnAfterEnd,
    /// A silent source is never forgotten.
    RemembersSilent,
    /// Results include samples after the end of their interval.
    SettlesEarly,
    /// The journal omits that an interval was written.
    ForgetsFlush,
    /// The journal omits pending increments.
    ForgetsPending,
    /// The journal omits waiting samples.
    ForgetsWaiting,
    /// A snapshot is marked complete before all lanes are in it.
    CompletesEarly,
    /// The guess of the next source is used without a check.
    TrustsGuess,
    /// Any entry of a source is treated as its first.
    BeginsBehind,
}

#[cfg(test)]
impl AggregationFlaw {
    /// The flaws of the state machine.
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

/// Returns whether the flaw is switched on.
#[cfg(not(test))]
#[inline(always)]
pub(super) const fn has(_: AggregationFlaw) -> bool {
    false
}

#[cfg(test)]
mod switched {
    use super::AggregationFlaw;
    use std::cell::Cell;

    thread_local! {
        static FLAW: Cell<Option<AggregationFlaw>> = const { Cell::new(None) };
    }

    /// Switches the flaw off at the end of a test, even after a panic.
    struct Reset;

    impl Drop for Reset {
        fn drop(&mut self) {
            FLAW.set(None);
        }
    }

    pub(crate) fn has(flaw: AggregationFlaw) -> bool {
        FLAW.get() == Some(flaw)
    }

    /// Runs `test` on this thread with the flaw switched on.
    pub(crate) fn with_flaw<T>(flaw: AggregationFlaw, test: impl FnOnce() -> T) -> T {
        let _reset = Reset;
        FLAW.set(Some(flaw));
        test()
    }
}
