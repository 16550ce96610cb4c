//! The results of a verification: damage with the resulting loss, remarks, and statistics of the
//! data that was read.

use super::slots::SeriesSlotSet;
use crate::damage::{Damage, DamageKind};
use crate::ids::SeriesSlot;
use firn_model::sample::TimeRange;
use std::path::{Path, PathBuf};

/// A contiguous range of damage and the resulting loss, as printed by `firn tsdb verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFinding {
    /// Location and kind of the damage, with the number and time range of the lost samples.
    pub damage: Damage,
    /// Number of series that lost samples, if it can be determined.
    pub series: Option<u64>,
    /// Number of samples of these series and times that the WAL still contains, which are therefore
    /// not lost.
    pub in_log: u64,
    /// True if the bytes cannot be read because of a disk fault.
    pub is_unreadable: bool,
}

impl VerifyFinding {
    /// Creates a finding without a loss. The caller adds the loss with `with_loss` if it can be
    /// determined.
    pub(crate) fn new(kind: DamageKind, file: &Path, offset: Option<u64>, what: String) -> Self {
        Self {
            damage: Damage {
                offset,
                ..Damage::for_file(kind, file, what)
            },
            series: None,
            in_log: 0,
            is_unreadable: false,
        }
    }

    /// Marks the finding as caused by a disk fault.
    pub(crate) fn with_unreadable(self) -> Self {
        Self {
            is_unreadable: true,
            ..self
        }
    }

    /// Sets the number of lost samples and their time range; `None` means an undetermined
    /// number or range.
    pub(crate) fn with_loss(mut self, samples: Option<u64>, range: Option<TimeRange>) -> Self {
        self.damage.samples = samples;
        self.damage.range = range;
        self
    }
}

/// An observation that is not damage but can help an operator who investigates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyRemark {
    /// Path of the file or folder.
    pub file: PathBuf,
    /// The observation, as a text that follows the path in a message.
    pub what: String,
}

/// The complete result of a verification: statistics of the intact data, damage and remarks.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Number of files that were read.
    pub files: u64,
    /// Total length of these files in bytes.
    pub bytes: u64,
    /// Number of pages that were readable at least in part.
    pub pages: u64,
    /// Number of series with readable samples in pages or in the WAL.
    pub series: u64,
    /// Number of readable samples in pages.
    pub page_samples: u64,
    /// Number of blocks that were readable at least in part.
    pub blocks: u64,
    /// Number of samples in the blocks that lost nothing.
    pub block_samples: u64,
    /// Number of readable samples in the WAL, including those that are also in pages.
    pub log_samples: u64,
    /// Number of readable exemplars.
    pub exemplars: u64,
    /// All damage, in the order in which it was found.
    pub findings: Vec<VerifyFinding>,
    /// All observations that are not damage.
    pub remarks: Vec<VerifyRemark>,
}

impl VerifyReport {
    /// Returns whether no damage was found. Remarks do not count as damage.
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }
}

/// The result for one file or one kind of file, which is merged into the complete result.
#[derive(Debug, Default)]
pub(crate) struct VerifyPart {
    /// Statistics and findings, without the number of series, which is the length of
    /// [`VerifyPart::read`].
    pub(crate) report: VerifyReport,
    /// Series with readable samples.
    pub(crate) read: SeriesSlotSet,
    /// Series whose labels were read.
    pub(crate) named: SeriesSlotSet,
    /// Lost columns, with the findings that they belong to.
    pub(crate) lost: Vec<LostSeriesSamples>,
}

/// Samples of one series that cannot be read, which are searched for in the WAL afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostSeriesSamples {
    /// Index of the finding in its part.
    pub(crate) finding: usize,
    /// The series that lost the samples.
    pub(crate) slot: SeriesSlot,
    /// Time range of the lost samples, both ends inclusive.
    pub(crate) range: TimeRange,
}

impl VerifyPart {
    /// Counts a file of this length.
    pub(crate) fn count_file(&mut self, bytes: u64) {
        self.report.files += 1;
        self.report.bytes += bytes;
    }

    /// Adds a finding.
    pub(crate) fn add_finding(&mut self, finding: VerifyFinding) {
        self.report.findings.push(finding);
    }

    /// Adds a remark about a file.
    pub(crate) fn add_remark(&mut self, file: &Path, what: impl Into<String>) {
        self.report.remarks.push(VerifyRemark {
            file: file.to_path_buf(),
            what: what.into(),
        });
    }

    /// Merges the result of another part and adjusts the indexes of its findings.
    pub(crate) fn add(&mut self, mut other: VerifyPart) {
        let first = self.report.findings.len();
        self.lost
            .extend(other.lost.into_iter().map(|lost| LostSeriesSamples {
                finding: first + lost.finding,
                ..lost
            }));
        self.read.add_all(other.read);
        self.named.add_all(other.named);
        let (all, one) = (&mut self.report, &mut other.report);
        all.files += one.files;
        all.bytes += one.bytes;
        all.pages += one.pages;
        all.page_samples += one.page_samples;
        all.blocks += one.blocks;
        all.block_samples += one.block_samples;
        all.log_samples += one.log_samples;
        all.exemplars += one.exemplars;
        all.findings.append(&mut one.findings);
        all.remarks.append(&mut one.remarks);
    }
}
