//! What is found: damage with what it costs, remarks, and the figures of everything that was read.

use super::slots::Slots;
use crate::damage::{Damage, DamageKind};
use crate::ids::Slot;
use firn_model::sample::TimeRange;
use std::path::{Path, PathBuf};

/// One stretch of damage, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where and what.
    pub damage: Damage,
    /// Series of which samples cannot be read for it, if that is known.
    pub series: Option<u64>,
    /// Samples of those series and times that the log still has, so that they are not lost.
    pub in_log: u64,
    /// The disk does not deliver the bytes.
    pub is_unreadable: bool,
}

impl Finding {
    /// Damage that costs nothing that is known.
    pub(crate) fn new(kind: DamageKind, file: &Path, offset: Option<u64>, what: String) -> Self {
        Self {
            damage: Damage {
                offset,
                ..Damage::of_file(kind, file, what)
            },
            series: None,
            in_log: 0,
            is_unreadable: false,
        }
    }

    /// The disk does not deliver the bytes.
    pub(crate) fn unreadable(self) -> Self {
        Self {
            is_unreadable: true,
            ..self
        }
    }

    /// The finding, with the number of samples that it costs and their times.
    pub(crate) fn costs(mut self, samples: Option<u64>, range: Option<TimeRange>) -> Self {
        self.damage.samples = samples;
        self.damage.range = range;
        self
    }
}

/// Something that is no damage, but of use to an operator who looks for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The file.
    pub file: PathBuf,
    /// What there is to say.
    pub what: String,
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pages that were read, whole or in part.
    pub pages: u64,
    /// Series of which samples were read.
    pub series: u64,
    /// Samples that were read in pages.
    pub page_samples: u64,
    /// Blocks that were read, whole or in part.
    pub blocks: u64,
    /// Samples of those that are whole.
    pub block_samples: u64,
    /// Samples that were read in the log, those that are in pages too included.
    pub log_samples: u64,
    /// Exemplars that were read.
    pub exemplars: u64,
    /// The damage.
    pub findings: Vec<Finding>,
    /// The rest.
    pub remarks: Vec<Remark>,
}

impl Report {
    /// Whether nothing is damaged.
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }
}

/// What one file or one kind of files says.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Its figures; series are counted by [`Part::read`].
    pub(crate) report: Report,
    /// Series of which samples were read.
    pub(crate) read: Slots,
    /// Series whose labels were read.
    pub(crate) named: Slots,
    /// What cannot be read, by finding.
    pub(crate) lost: Vec<Lost>,
}

/// Samples that cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// The number of the finding in its part.
    pub(crate) finding: usize,
    /// The series.
    pub(crate) slot: Slot,
    /// Their times.
    pub(crate) range: TimeRange,
}

impl Part {
    /// Counts a file.
    pub(crate) fn count_file(&mut self, bytes: u64) {
        self.report.files += 1;
        self.report.bytes += bytes;
    }

    /// Adds damage.
    pub(crate) fn find(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    /// Adds a remark.
    pub(crate) fn remark(&mut self, file: &Path, what: impl Into<String>) {
        self.report.remarks.push(Remark {
            file: file.to_path_buf(),
            what: what.into(),
        });
    }

    /// Adds what another part says.
    pub(crate) fn add(&mut self, mut other: Part) {
        let first = self.report.findings.len();
        self.lost.extend(other.lost.into_iter().map(|lost| Lost {
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
