//! A stretch of damage that a store found in its files or memory: which bytes, and what they cost.

use crate::log::LogDamage;
use crate::sample::TimeRange;
use std::path::{Path, PathBuf};

/// What kind of file or memory is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DamageKind {
    /// A segment of the log.
    Log,
    /// A segment of pages.
    Pages,
    /// The series catalogue.
    Catalogue,
    /// The file of exemplars.
    Exemplars,
    /// The manifest of files.
    Manifest,
    /// Samples in memory.
    Head,
    /// A block.
    Blocks,
}

impl DamageKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [DamageKind; 7] = [
        Self::Log,
        Self::Pages,
        Self::Catalogue,
        Self::Exemplars,
        Self::Manifest,
        Self::Head,
        Self::Blocks,
    ];

    /// The value of the label `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Pages => "pages",
            Self::Catalogue => "catalogue",
            Self::Exemplars => "exemplars",
            Self::Manifest => "manifest",
            Self::Head => "head",
            Self::Blocks => "blocks",
        }
    }
}

/// One stretch of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is damaged.
    pub kind: DamageKind,
    /// The file; empty for memory.
    pub file: PathBuf,
    /// Where in the file it begins; none if all of it is meant.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// Samples that cannot be read for it, if that is known.
    pub samples: Option<u64>,
    /// The times of those samples. None says that no sample is lost, or that their times are not
    /// known.
    pub range: Option<TimeRange>,
}

impl Damage {
    /// Damage to a file as a whole that costs nothing that is known.
    pub fn of_file(kind: DamageKind, file: &Path, what: String) -> Self {
        Self {
            kind,
            file: file.to_path_buf(),
            offset: None,
            what,
            samples: None,
            range: None,
        }
    }

    /// Damage as a reader of the log met it.
    pub fn of_log(damage: LogDamage) -> Self {
        Self {
            offset: damage.offset,
            ..Self::of_file(DamageKind::Log, &damage.file, damage.what)
        }
    }

    /// What the answer of a query says of it.
    pub fn warning(&self) -> String {
        format!("damage: {self}")
    }

    /// This damage, which costs samples within `range`.
    pub fn within(self, range: Option<TimeRange>) -> Self {
        Self { range, ..self }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.file.as_os_str().is_empty() {
            true => f.write_str("memory is damaged")?,
            false => write!(f, "{} is damaged", self.file.display())?,
        }
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        write!(f, ": {}", self.what)?;
        let of_segment = self.kind == DamageKind::Pages && self.offset.is_none();
        match self.samples.filter(|samples| *samples > 0) {
            Some(samples) if of_segment => write!(
                f,
                "; it contained {samples} samples, some of which were recovered from the log"
            )?,
            Some(samples) => write!(f, "; {samples} samples are lost")?,
            None => {}
        }
        if let Some(range) = self.range {
            write!(f, ", from {} to {} ms", range.min, range.max)?;
        }
        Ok(())
    }
}
