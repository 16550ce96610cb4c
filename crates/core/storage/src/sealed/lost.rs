//! Damage that reads of pages find: determined once for each page, and included in the warnings of
//! every read.
//!
//! If the header or directory of a page is damaged, or its bytes cannot be read, all of its columns
//! are lost; a damaged stripe loses the columns in it. Determining the loss visits every column, so
//! the result is kept for as long as the segment of the page exists.

use super::directory::SealedPageEntry;
use super::lost_pages::LostPageKey;
use super::range_reader::OPEN;
use super::view::SealedPages;
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::page::{LostColumns, PageReader};
use crate::sync::lock;
use std::io::ErrorKind;
use std::sync::Arc;

/// Error numbers of temporary shortages (ENOMEM, ENFILE, EMFILE), which are not evidence of damage.
const SHORTAGES: [i32; 3] = [12, 23, 24];

/// The offset in the key of damage to a whole segment file.
const WHOLE_FILE: u64 = u64::MAX;

impl SealedPages {
    /// Returns the damage to a page that cannot be read because of `error`, or the error itself if
    /// it is not evidence of damage.
    pub(crate) fn report_lost_page(
        &self,
        entry: &SealedPageEntry,
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
                    return Ok(self.report_lost_file(entry, &source));
                }
                format!("{action} it: {source}")
            }
            StorageError::Damaged { what, .. } => what,
            other => return Err(other),
        };
        let all = |_: &SealedPageEntry| LostColumns {
            columns: entry.series_count(),
            samples: 0,
            range: Some(entry.range),
        };
        Ok(self.report_lost(entry, &what, all))
    }

    /// Returns the damage of losing all pages of a segment file that cannot be opened.
    fn report_lost_file(&self, entry: &SealedPageEntry, error: &std::io::Error) -> Arc<Damage> {
        let segment = entry.segment.number;
        self.find_or_report((segment.0, WHOLE_FILE), || {
            let (pages, range) = self.directory.segment_extent(segment);
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

    /// Returns the damage to a page in which the read of a column failed.
    pub(crate) fn report_lost_columns(
        &self,
        entry: &SealedPageEntry,
        page: &PageReader,
        what: &str,
    ) -> Arc<Damage> {
        self.report_lost(entry, what, |_| page.survey())
    }

    fn report_lost(
        &self,
        entry: &SealedPageEntry,
        what: &str,
        survey: impl FnOnce(&SealedPageEntry) -> LostColumns,
    ) -> Arc<Damage> {
        self.find_or_report((entry.segment.number.0, entry.offset), || {
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

    /// Returns the recorded damage at a location, or reports and records the result of `find`.
    fn find_or_report(&self, key: LostPageKey, find: impl FnOnce() -> Damage) -> Arc<Damage> {
        let known = || lock(&self.directory.lost.known);
        if let Some(damage) = known().get(&key) {
            return damage.clone();
        }
        // Not under the lock: another thread that does the same in the meantime finds the same
        // damage.
        let damage = Arc::new(self.damages.report_read_damage(find()));
        known().insert(key, damage.clone());
        damage
    }
}
