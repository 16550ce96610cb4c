//! The set of difference folders in a report, and their total size.
//!
//! Invariant: number and total size of the folders stay within their limits; the oldest folder is
//! deleted first. A failed write loses one folder but does not stop the run. The folder of a
//! persisting difference is rewritten at most once an hour, so that a run of weeks does not write
//! answers in each round.

use super::artefact::{DIFFERENCE, DifferenceArtefact};
use super::tally::ComparisonPass;
use crate::error::MirrorError;
use crate::judge::DifferenceClass;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Maximum number of folders per report. People browse them, and each folder consists of several
/// files.
const FOLDERS_MAX: usize = 10_000;

/// Age from which a folder is overwritten by a new difference of the same classes.
const WRITTEN_ANEW: Duration = Duration::from_secs(3_600);

/// Retention of difference folders by age and total size, from the flags `--keep` and
/// `--keep-bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderRetention {
    /// Age beyond which a folder is deleted at the end of a round.
    pub age_max: Duration,
    /// Maximum total size of all folders in bytes; the oldest are deleted first.
    pub bytes_max: u64,
}

/// A difference folder that exists in the report directory, written by this run or an earlier one.
#[derive(Clone, Debug)]
struct KeptDifferenceFolder {
    name: String,
    bytes: u64,
    written: SystemTime,
    /// Classes of the difference; `None` for folders that an earlier run left.
    classes: Option<Vec<DifferenceClass>>,
}

#[derive(Debug, Default)]
struct DifferenceFoldersState {
    /// Folders by sequence number, which follows the order of writing.
    by_age: BTreeMap<u64, KeptDifferenceFolder>,
    /// Sequence number of each folder by its name, which is its key in `by_age`.
    places: HashMap<String, u64>,
    next: u64,
    bytes: u64,
    removed: u64,
    failed: u64,
    failure: Option<String>,
}

/// Statistics about the folders of a report at one time, which the report shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderStatistics {
    /// Number of folders that exist at this time.
    pub count: usize,
    /// Total size of these folders in bytes.
    pub bytes: u64,
    /// Number of folders that were deleted during the run because of age or the size limit.
    pub removed: u64,
    /// Number of failures to write or delete a folder or to write a report.
    pub failed: u64,
    /// Error message of the last of these failures; `None` if there were none.
    pub failure: Option<String>,
}

/// The difference folders of a report. Threads may share it; an internal mutex guards its state.
#[derive(Debug)]
pub struct DifferenceFolders {
    report: PathBuf,
    keeping: FolderRetention,
    state: Mutex<DifferenceFoldersState>,
}

impl DifferenceFolders {
    /// Opens the directory `report` and registers the difference folders that earlier runs left
    /// there.
    pub fn open(report: &Path, keeping: FolderRetention) -> Self {
        let listed = fs::read_dir(report).into_iter().flatten().flatten();
        let paths = listed.map(|entry| entry.path());
        let mut found: Vec<KeptDifferenceFolder> = paths.filter_map(|path| read(&path)).collect();
        found.sort_by_key(|kept| kept.written);
        let mut state = DifferenceFoldersState::default();
        found.into_iter().for_each(|kept| state.push(kept));
        Self {
            report: report.to_owned(),
            keeping,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, DifferenceFoldersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the folder of a difference unless a recent one of the same classes exists. Returns
    /// the name of the folder, or `None` if it could not be written.
    pub fn write_folder(
        &self,
        artefact: &DifferenceArtefact<'_>,
        classes: &[DifferenceClass],
    ) -> Option<String> {
        let name = artefact.name();
        if self.lock().is_fresh(&name, classes) {
            return Some(name);
        }
        match artefact.write(&self.report) {
            Ok(bytes) => {
                self.register_folder(KeptDifferenceFolder {
                    name: name.clone(),
                    bytes,
                    written: SystemTime::now(),
                    classes: Some(classes.to_vec()),
                });
                Some(name)
            }
            Err(e) => {
                self.note_failure(&e);
                None
            }
        }
    }

    /// Registers a folder that has been written, and deletes the oldest ones until the limits hold.
    fn register_folder(&self, kept: KeptDifferenceFolder) {
        let gone = {
            let mut state = self.lock();
            state.push(kept);
            state.drop_over_limits(self.keeping.bytes_max)
        };
        self.remove(&gone);
    }

    /// Deletes the folders that are older than [`FolderRetention::age_max`]; called at the end of
    /// each round.
    pub fn remove_old(&self) {
        let gone = {
            let mut state = self.lock();
            state.older_than(self.keeping.age_max)
        };
        self.remove(&gone);
    }

    fn remove(&self, names: &[String]) {
        for name in names {
            let path = self.report.join(name);
            let removed = fs::remove_dir_all(&path).map_err(MirrorError::file("remove", &path));
            if let Err(e) = removed {
                self.note_failure(&e);
            }
        }
    }

    /// Counts a failed write or deletion and keeps its error message for the report.
    pub fn note_failure(&self, e: &MirrorError) {
        let mut state = self.lock();
        state.failed += 1;
        state.failure = Some(e.to_string());
    }

    /// Returns whether the folder `name` still exists, so that a report may link to it.
    pub fn has(&self, name: &str) -> bool {
        self.lock().places.contains_key(name)
    }

    /// Returns the current statistics for a report. Takes the lock only for a moment.
    pub fn figures(&self) -> FolderStatistics {
        let state = self.lock();
        FolderStatistics {
            count: state.by_age.len(),
            bytes: state.bytes,
            removed: state.removed,
            failed: state.failed,
            failure: state.failure.clone(),
        }
    }
}

impl DifferenceFoldersState {
    /// Registers a folder as the newest one, replacing any earlier entry of the same name.
    fn push(&mut self, kept: KeptDifferenceFolder) {
        if let Some(place) = self.places.insert(kept.name.clone(), self.next)
            && let Some(before) = self.by_age.remove(&place)
        {
            self.bytes -= before.bytes;
        }
        self.bytes += kept.bytes;
        self.by_age.insert(self.next, kept);
        self.next += 1;
    }

    fn is_fresh(&self, name: &str, classes: &[DifferenceClass]) -> bool {
        let place = self.places.get(name);
        let kept = place.and_then(|place| self.by_age.get(place));
        kept.is_some_and(|kept| {
            kept.classes.as_deref() == Some(classes) && !is_older(kept, WRITTEN_ANEW)
        })
    }

    /// Drops the oldest entries until number and size are within the limits, and returns their
    /// names.
    fn drop_over_limits(&mut self, bytes_max: u64) -> Vec<String> {
        let mut gone = Vec::new();
        while self.bytes > bytes_max || self.by_age.len() > FOLDERS_MAX {
            gone.extend(self.forget_oldest());
        }
        gone
    }

    fn older_than(&mut self, age: Duration) -> Vec<String> {
        let mut gone = Vec::new();
        while let Some((_, kept)) = self.by_age.first_key_value()
            && is_older(kept, age)
        {
            gone.extend(self.forget_oldest());
        }
        gone
    }

    fn forget_oldest(&mut self) -> Option<String> {
        let (_, kept) = self.by_age.pop_first()?;
        self.places.remove(&kept.name);
        self.bytes -= kept.bytes;
        self.removed += 1;
        Some(kept.name)
    }
}

/// Returns whether a folder is older than `age`. If the clock was set back, no folder counts as
/// old.
fn is_older(kept: &KeptDifferenceFolder, age: Duration) -> bool {
    kept.written.elapsed().is_ok_and(|elapsed| elapsed > age)
}

/// Reads size and age of the folder at `path`; returns `None` if it is not a difference folder.
fn read(path: &Path) -> Option<KeptDifferenceFolder> {
    let name = path.file_name()?.to_str()?.to_owned();
    let is_number = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = |pass: &ComparisonPass| name.strip_prefix(pass.as_str())?.strip_prefix('-');
    if !ComparisonPass::ALL.iter().filter_map(number).any(is_number) {
        return None;
    }
    let files = fs::read_dir(path).ok()?.flatten();
    let bytes = files
        .filter_map(|file| file.metadata().ok())
        .map(|m| m.len());
    let written = fs::metadata(path.join(DIFFERENCE)).and_then(|m| m.modified());
    Some(KeptDifferenceFolder {
        bytes: bytes.sum(),
        // A folder that was not written completely has no `difference.json` and counts as oldest.
        written: written.unwrap_or(SystemTime::UNIX_EPOCH),
        classes: None,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPING: FolderRetention = FolderRetention {
        age_max: Duration::from_secs(50),
        bytes_max: 100,
    };

    fn kept(name: &str, bytes: u64, age_s: u64) -> KeptDifferenceFolder {
        KeptDifferenceFolder {
            name: name.to_owned(),
            bytes,
            written: SystemTime::now() - Duration::from_secs(age_s),
            classes: Some(vec![DifferenceClass::Value]),
        }
    }

    fn names(folders: &DifferenceFolders) -> Vec<String> {
        let state = folders.lock();
        state
            .by_age
            .values()
            .map(|kept| kept.name.clone())
            .collect()
    }

    #[test]
    fn old_folders_of_differences_go_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let ours = "label_values-0123456789abcdef";
        let all = [ours, "range-0123456789abcdef", "other", "range-no"];
        for name in all {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join(DIFFERENCE), "{}").unwrap();
        }
        let file = fs::File::open(dir.path().join(ours).join(DIFFERENCE)).unwrap();
        let then = SystemTime::now() - Duration::from_secs(100);
        file.set_modified(then).unwrap();
        let folders = DifferenceFolders::open(dir.path(), KEEPING);
        assert_eq!(folders.figures().bytes, 4);
        folders.remove_old();
        let left: Vec<bool> = all
            .iter()
            .map(|name| dir.path().join(name).exists())
            .collect();
        assert_eq!(left, [false, true, true, true]);
        let figures = folders.figures();
        assert_eq!((figures.count, figures.bytes, figures.removed), (1, 2, 1));
    }

    #[test]
    fn oldest_folders_go_until_the_others_fit() {
        let check = |taken: &[(&str, u64)], left: &[&str], removed: u64| {
            let dir = tempfile::tempdir().unwrap();
            let folders = DifferenceFolders::open(dir.path(), KEEPING);
            for (name, bytes) in taken {
                fs::create_dir_all(dir.path().join(name)).unwrap();
                folders.register_folder(kept(name, *bytes, 0));
            }
            assert_eq!(names(&folders), left, "{taken:?}");
            let figures = folders.figures();
            assert!(figures.bytes <= KEEPING.bytes_max, "{figures:?}");
            assert_eq!((figures.removed, figures.failed), (removed, 0), "{taken:?}");
            for (name, _) in taken {
                let is_there = dir.path().join(name).exists();
                assert_eq!(is_there, folders.has(name), "{name} of {taken:?}");
            }
        };
        check(&[("a", 40), ("b", 60)], &["a", "b"], 0);
        check(&[("a", 40), ("b", 60), ("c", 1)], &["b", "c"], 1);
        // A rewritten folder counts as new, and only once.
        check(
            &[("a", 40), ("b", 40), ("a", 50), ("c", 20)],
            &["a", "c"],
            1,
        );
        check(&[("a", 40), ("b", 101)], &[], 2);
        let many: Vec<String> = (0..FOLDERS_MAX + 2).map(|n| n.to_string()).collect();
        let mut state = DifferenceFoldersState::default();
        many.iter().for_each(|name| state.push(kept(name, 0, 0)));
        assert_eq!(state.drop_over_limits(1), ["0", "1"]);
    }

    #[test]
    fn folder_is_written_anew_for_other_classes_and_after_an_hour() {
        let mut state = DifferenceFoldersState::default();
        state.push(kept("new", 1, 0));
        state.push(kept("old", 1, 3_700));
        for (name, classes, expected) in [
            ("new", [DifferenceClass::Value], true),
            ("new", [DifferenceClass::Labels], false),
            ("old", [DifferenceClass::Value], false),
            ("none", [DifferenceClass::Value], false),
        ] {
            assert_eq!(
                state.is_fresh(name, &classes),
                expected,
                "{name} {classes:?}"
            );
        }
    }
}
