//! A damaged range of bytes that a store found in its files or in memory, and the samples that are
//! lost because of it.

use crate::log::LogDamage;
use crate::sample::TimeRange;
use std::path::{Path, PathBuf};

/// The kind of file or memory that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DamageKind {
    /// A segment of the log, which contains recent records.
    Log,
    /// A segment of pages, which contain sealed samples.
    Pages,
    /// The catalogue of series, which contains their labels and slots.
    Catalogue,
    /// The file that contains exemplars of all series.
    Exemplars,
    /// The manifest, which lists the files of a folder.
    Manifest,
    /// Samples of the head that are held in memory.
    Head,
    /// A block of a range of data time, with its own index.
    Blocks,
}

impl DamageKind {
    /// All kinds in order of declaration, for metrics with one series per kind.
    pub const ALL: [DamageKind; 7] = [
        Self::Log,
        Self::Pages,
        Self::Catalogue,
        Self::Exemplars,
        Self::Manifest,
        Self::Head,
        Self::Blocks,
    ];

    /// Returns the value of the label `kind` in metrics.
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

/// One damaged range of bytes in a file or in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The kind of the damaged file or memory, which is a label of metrics.
    pub kind: DamageKind,
    /// The path of the damaged file; empty for memory.
    pub file: PathBuf,
    /// The byte offset of the damage in the file, or `None` if the whole file is damaged.
    pub offset: Option<u64>,
    /// A description of the error for the log and for users.
    pub what: String,
    /// Number of samples that cannot be read because of the damage, if it has been determined.
    pub samples: Option<u64>,
    /// The time range of those samples. `None` means that no sample is lost, or that the range has
    /// not been determined.
    pub range: Option<TimeRange>,
}

impl Damage {
    /// Creates a record of damage to a whole file. The number of lost samples is undetermined.
    pub fn for_file(kind: DamageKind, file: &Path, what: String) -> Self {
        Self {
            kind,
            file: file.to_path_buf(),
            offset: None,
            what,
            samples: None,
            range: None,
        }
    }

    /// Creates a record of damage that a reader of the log found.
    pub fn for_log(damage: LogDamage) -> Self {
        Self {
            offset: damage.offset,
            ..Self::for_file(DamageKind::Log, &damage.file, damage.what)
        }
    }

    /// Returns the warning for the result of a query.
    pub fn warning(&self) -> String {
        format!("damage: {self}")
    }

    /// Returns this damage with the time range of the lost samples.
    pub fn with_time_range(self, range: Option<TimeRange>) -> Self {
        Self { range, ..self }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.file.as_os_str().is_empty() {
            f.write_str("memory is damaged")?
        } else {
            write!(f, "{} is damaged", self.file.display())?
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
