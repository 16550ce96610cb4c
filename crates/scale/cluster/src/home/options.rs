//! The options of a home of blocks.

use firn_model::tenant::TenantId;
use std::time::Duration;

/// The options of a home of blocks. [`HomeOptions::default`] returns the defaults.
#[derive(Clone, Debug)]
pub struct HomeOptions {
    /// The owner of all samples of the store.
    pub tenant: TenantId,
    /// Time from the COMMIT that removes a block to the deletion of its files: two hours. Other
    /// processes may read the block meanwhile.
    pub gc_grace: Duration,
    /// Age from which files are deleted that no list names: 24 hours. By the clock of the store.
    pub orphan_age: Duration,
    /// Time between two searches for such files: one hour.
    pub orphan_interval: Duration,
    /// The rule that this home breaks, for tests.
    #[cfg(any(test, feature = "flaws"))]
    pub flaw: Option<HomeFlaw>,
}

impl Default for HomeOptions {
    fn default() -> Self {
        Self {
            tenant: TenantId::anonymous(),
            gc_grace: Duration::from_secs(2 * 3600),
            orphan_age: Duration::from_secs(24 * 3600),
            orphan_interval: Duration::from_secs(3600),
            #[cfg(any(test, feature = "flaws"))]
            flaw: None,
        }
    }
}

/// A rule of a home that a test breaks; the test must detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeFlaw {
    /// Appends a COMMIT before the files of its blocks are stored.
    CommitsBeforeUpload,
    /// Deletes the files of removed blocks without a grace period.
    DeletesWithoutGrace,
    /// Deletes files in no list without a proof that the list is complete.
    OmitsBarrier,
}

impl HomeOptions {
    /// Returns whether this home breaks a rule.
    #[cfg(any(test, feature = "flaws"))]
    pub(super) fn has(&self, flaw: HomeFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns whether this home breaks a rule, which it does only in tests.
    #[cfg(not(any(test, feature = "flaws")))]
    pub(super) fn has(&self, _: HomeFlaw) -> bool {
        false
    }
}
