//! Actions of an operator in a history: imports, snapshots, size limits.
//!
//! An import is there in full or not at all, also if it has several blocks. A complete snapshot is
//! a data folder that survives everything, with all samples promised when it was requested. A size
//! limit deletes only data in blocks and closed pages.

use super::{History, Others, SCRAPE_MS, SERIES, Samples, labels, read_all};
use crate::block::compare_block_order;
use crate::chunk::SampleColumns;
use crate::import::{ImportSeriesWriter, ImportTarget};
use crate::store::{RetentionLimits, Store, StoreOptions};
use firn_model::error::Error;
use std::collections::BTreeMap;
use std::path::Path;

/// A complete snapshot with its contents.
pub(super) struct Snapshot {
    name: String,
    held: Samples,
}

impl History {
    /// Imports old samples as several blocks at once.
    pub(super) fn import(&mut self) -> Result<(), String> {
        let windows: Vec<Samples> = (0..1 + self.rng.next_below(3))
            .map(|_| self.old())
            .collect();
        let all: Samples = windows.iter().flatten().map(|(k, v)| (*k, *v)).collect();
        self.sent.extend(&all);
        self.imports.push(all.clone());
        if self.rng.one_in(4) {
            self.sim.disk.power_off_after(self.rng.next_below(80));
        }
        let target = self.store().import_target().unwrap();
        let mut written = Ok(());
        self.ask_beside_others(|| written = write(&target, &windows))?;
        if let Err(e) = written {
            return self.expect_disk_trouble(&e, "import");
        }
        self.promised.extend(all);
        Ok(())
    }

    /// Runs an action of the operator while others send and read.
    fn ask_beside_others(&mut self, ask: impl FnOnce()) -> Result<(), String> {
        // On a single thread, others would wait for a lock that a snapshot holds.
        if self.deferred.is_none() {
            ask();
            return Ok(());
        }
        self.take_answers()?;
        let meanwhile = self.beside_others(Others::Wait, |_| ask());
        self.judge(None, meanwhile)
    }

    /// Returns samples of some series at an old time that no batch has.
    fn old(&mut self) -> Samples {
        self.old_times += 1;
        let age_ms = SCRAPE_MS * (1 + self.rng.next_below(100) as i64);
        let time = self.now - age_ms + self.old_times;
        let first = self.rng.next_below(SERIES);
        let count = 1 + self.rng.next_below(SERIES);
        (first..first + count)
            .map(|series| ((series, time), (series as f64).to_bits()))
            .collect()
    }

    /// Takes a snapshot while others send and read, and opens it.
    pub(super) fn snapshot(&mut self) -> Result<(), String> {
        self.take_answers()?;
        let mut promised = self.promised.clone();
        promised.extend(&self.acked);
        let name = format!("20060102T150405Z-{:016x}", self.rng.next_below(u64::MAX));
        let skips_head = self.rng.one_in(3);
        let store = self.store().clone();
        let mut made = Ok(());
        self.ask_beside_others(|| made = store.snapshot(&name, skips_head))?;
        if let Err(e) = made {
            return self.expect_disk_trouble(&e, "snapshot");
        }
        if skips_head {
            promised.clear();
        }
        let mut snapshot = Snapshot {
            name,
            held: promised,
        };
        // Opening a snapshot syncs its files, so some snapshots are first opened after the next
        // start.
        if self.rng.one_in(2) {
            let Some(held) = self.open_snapshot(&snapshot)? else {
                return Ok(());
            };
            if !skips_head {
                self.check_whole(&held, "in a snapshot")?;
            }
            snapshot.held = held;
        }
        self.snapshots.push(snapshot);
        Ok(())
    }

    /// Opens an earlier snapshot, if there is one.
    pub(super) fn look_at_snapshot(&mut self) -> Result<(), String> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let at = self.rng.next_below(self.snapshots.len() as u64) as usize;
        let snapshot = self.snapshots.swap_remove(at);
        if self.open_snapshot(&snapshot)?.is_some() {
            self.snapshots.push(snapshot);
        }
        Ok(())
    }

    /// Returns the contents of a snapshot after checking them, or `None` if the disk fails in the
    /// meantime.
    fn open_snapshot(&mut self, snapshot: &Snapshot) -> Result<Option<Samples>, String> {
        let options = StoreOptions {
            dir: Path::new("data/snapshots").join(&snapshot.name),
            ..self.options.clone()
        };
        let store = match Store::open(self.sim.env.clone(), options) {
            Ok(store) => store,
            Err(e) => {
                self.expect_disk_trouble(&e, "open a snapshot")?;
                return Ok(None);
            }
        };
        let held = read_all(&store);
        drop(store);
        let held = match held {
            Ok(held) => held,
            Err(_) if self.sim.disk.is_off() => return Ok(None),
            Err(e) => return Err(format!("in a snapshot {e}")),
        };
        self.check_sent(&held, "in a snapshot")?;
        self.check_kept(&held, &snapshot.held, "in a snapshot")?;
        Ok(Some(held))
    }

    /// Changes the size limit.
    pub(super) fn limit_size(&mut self) {
        if !self.limits_size {
            return;
        }
        self.is_limited = true;
        self.options.retention_bytes = if self.rng.one_in(3) {
            None
        } else {
            Some(self.rng.next_below(60_000))
        };
        let retention = RetentionLimits {
            bytes: self.options.retention_bytes,
            percent: None,
            ..self.options.retention()
        };
        self.store().set_retention(retention);
    }

    /// Returns whether a sample may have been deleted by retention: by time, or by size from a
    /// block or from pages that are not appended to.
    pub(super) fn may_be_gone(&self, time: i64) -> bool {
        let is_in_blocks = self.late.contains(&time) || self.is_imported(time);
        let by_size = is_in_blocks || time < self.now - self.options.open_ms();
        time < self.now.saturating_sub(self.options.retention_ms) || self.is_limited && by_size
    }

    fn is_imported(&self, time: i64) -> bool {
        let mut keys = self.imports.iter().flat_map(Samples::keys);
        keys.any(|key| key.1 == time)
    }

    /// Checks that an import is there in full or not at all.
    pub(super) fn check_imports(&self, held: &Samples, when: &str) -> Result<(), String> {
        for import in &self.imports {
            if import.keys().any(|key| self.in_part.contains(&key.1)) {
                continue;
            }
            let mut kept = import.keys().filter(|key| !self.may_be_gone(key.1));
            let Some(first) = kept.clone().next() else {
                continue;
            };
            let has_first = held.contains_key(first);
            if let Some(other) = kept.find(|key| held.contains_key(key) != has_first) {
                return Err(format!("{when} {other:?} and {first:?} are not both there"));
            }
        }
        Ok(())
    }

    /// Accepts an error if the disk fails.
    pub(super) fn expect_disk_trouble(&self, e: &Error, what: &str) -> Result<(), String> {
        let texts = ["input/output error", "no storage space", "is full"];
        let is_expected = self.sim.disk.is_off() || texts.iter().any(|t| e.message.contains(t));
        if is_expected {
            Ok(())
        } else {
            Err(format!("{what}: {e}"))
        }
    }
}

/// Imports each of `windows` as a block of its own, all of them together.
fn write(target: &ImportTarget, windows: &[Samples]) -> Result<(), Error> {
    let mut import = target.begin();
    for window in windows {
        let mut columns = BTreeMap::<u64, SampleColumns>::new();
        for ((series, time), bits) in window {
            let columns = columns.entry(*series).or_default();
            columns.times.push(*time);
            columns.values.push(f64::from_bits(*bits));
        }
        let mut all: Vec<_> = columns.into_iter().map(|(s, c)| (labels(s), c)).collect();
        all.sort_by(|(a, _), (b, _)| compare_block_order(a.as_ref(), b.as_ref()));
        let fill = |series: &mut ImportSeriesWriter<'_>| {
            let mut pushed = all.iter().map(|(l, c)| series.push(l.as_ref(), c));
            pushed.try_for_each(|pushed| pushed)
        };
        import.write_block(target.new_id(0), None, fill)?;
    }
    import.verify()?;
    import.commit().map(drop)
}
