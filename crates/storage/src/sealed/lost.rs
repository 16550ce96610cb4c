//! What reads of pages could not give: found out once for each page, and said by every read.
//!
//! A page whose header or directory is damaged, or whose bytes cannot be read, costs all of its
//! columns; a damaged stripe those that lie in it. What that is takes a look at every column, so it
//! is remembered as long as the page's segment is there.

use super::directory::PageEntry;
use super::lost_pages::Key;
use super::range_reader::OPEN;
use super::view::Sealed;
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::page::{Lost, Page};
use crate::sync::lock;
use std::io::ErrorKind;
use std::sync::Arc;

/// Errors of a system that is short of something (ENOMEM, ENFILE, EMFILE): they go by, and no byte
/// is damaged.
const SHORTAGES: [i32; 3] = [12, 23, 24];

/// In the place of an offset: all of the segment.
const WHOLE_FILE: u64 = u64::MAX;

impl Sealed {
    /// What the page of `entry` costs, of which no column can be read for `error`; or the error
    /// itself, if it says nothing about the page.
    pub(crate) fn lose_page(
        &self,
        entry: &PageEntry,
        error: StorageError,
    ) -> Result<Arc<Damage>, StorageError> {
        let what = match error {
            StorageError::Io { source, action, .. } => {
                let is_short = source.kind() == ErrorKind::OutOfMemory
                    || source
                        .raw_os_error()
                        .is_some_and(|e| SHORTAGES.contains(&e));
                if is_short {
                    let path = entry.segment.ranges().path().to_path_buf();
                    return Err(StorageError::Io {
                        action,
                        path,
                        source,
                    });
                }
                if action == OPEN {
                    return Ok(self.lose_file(entry, &source));
                }
                format!("{action} it: {source}")
            }
            StorageError::Damaged { what, .. } => what,
            other => return Err(other),
        };
        let all = |_: &PageEntry| Lost {
            columns: entry.series_count(),
            samples: 0,
            range: Some(entry.range),
        };
        Ok(self.lose(entry, &what, all))
    }

    /// What it costs that the file with the page of `entry` cannot be opened: all of its pages.
    fn lose_file(&self, entry: &PageEntry, error: &std::io::Error) -> Arc<Damage> {
        let segment = entry.segment.number;
        self.remember((segment.0, WHOLE_FILE), || {
            let (pages, range) = self.directory.extent_of(segment);
            Damage {
                kind: DamageKind::Pages,
                file: entry.segment.ranges().path().to_path_buf(),
                offset: None,
                what: format!("cannot be opened: {error}; it contained {pages} pages"),
                samples: None,
                range: range.or(Some(entry.range)),
            }
        })
    }

    /// What the page of `entry` costs, of which a column failed.
    pub(crate) fn lose_columns(&self, entry: &PageEntry, page: &Page, what: &str) -> Arc<Damage> {
        self.lose(entry, what, |_| page.survey())
    }

    fn lose(
        &self,
        entry: &PageEntry,
        what: &str,
        survey: impl FnOnce(&PageEntry) -> Lost,
    ) -> Arc<Damage> {
        self.remember((entry.segment.number.0, entry.offset), || {
            let lost = survey(entry);
            Damage {
                kind: DamageKind::Pages,
                file: entry.segment.ranges().path().to_path_buf(),
                offset: Some(entry.offset),
                what: format!("{what}; it contained samples of {} series", lost.columns),
                samples: (lost.samples > 0).then_some(lost.samples),
                range: lost.range.or(Some(entry.range)),
            }
        })
    }

    /// The damage that is known of a place, or `find`, which is reported.
    fn remember(&self, key: Key, find: impl FnOnce() -> Damage) -> Arc<Damage> {
        let known = || lock(&self.directory.lost.known);
        if let Some(damage) = known().get(&key) {
            return damage.clone();
        }
        // Without the lock: another thread that looks meanwhile finds the same damage.
        let damage = Arc::new(self.damages.report_met(find()));
        known().insert(key, damage.clone());
        damage
    }
}
