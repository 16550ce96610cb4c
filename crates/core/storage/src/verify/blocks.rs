//! Verifies the manifest of blocks, and every byte and every sample of the blocks that it lists.

use super::finding::{VerifyFinding, VerifyPart};
use super::{default_if_missing, read_parallel};
use crate::block::{Block, BlockCache, BlockId, BlockMeta, META};
use crate::blocks::{BlockEntry, BlockList};
use crate::damage::{self, Damage, DamageKind};
use crate::data_dir::DataDir;
use crate::error::StorageError;
use firn_model::env::{Env, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Size of the cache in bytes. Units are read without it; it only holds those that opening a block
/// needs.
const CACHE_BYTES: usize = 1 << 20;

/// Verifies the folder of blocks and adds the results to `all`.
pub(crate) fn read(env: &Env, dir: &DataDir, all: &mut VerifyPart) -> Result<(), StorageError> {
    let folder = dir.blocks();
    let listed = env.disk.list(&folder);
    let names = default_if_missing(listed.map_err(StorageError::io("list", &folder)))?;
    let there = |name: &Path| name.to_str()?.parse::<BlockId>().ok();
    let there: Vec<BlockId> = names.iter().filter_map(|name| there(name)).collect();
    let found = match BlockList::read(&*env.disk, &folder) {
        Ok(found) => found,
        Err(StorageError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(());
        }
        Err(e) => {
            all.add_finding(finding_from_error(&folder, &e));
            return Ok(());
        }
    };
    for name in names
        .iter()
        .filter(|name| BlockList::is_manifest_name(name))
    {
        count(env, &folder.join(name), all);
    }
    let is_damaged = !found.damages.is_empty();
    for damage in found.damages {
        all.add_finding(VerifyFinding {
            damage,
            ..VerifyFinding::new(DamageKind::Manifest, &folder, None, String::new())
        });
    }
    if let Some(damage) = found.lost_tombstones {
        all.add_finding(VerifyFinding {
            damage,
            ..VerifyFinding::new(DamageKind::Manifest, &folder, None, String::new())
        });
    }
    for older in &found.others {
        all.add_remark(older, "a newer manifest of blocks counts");
    }
    let is_missing = found.list.version == 0 && !is_damaged;
    if is_missing && there.iter().any(|id| is_whole(env, &folder, *id)) {
        let what = "the manifest of blocks is missing; without it, a start loads no blocks";
        let what = what.to_owned();
        all.add_finding(VerifyFinding::new(
            DamageKind::Manifest,
            &folder,
            None,
            what,
        ));
    }
    let entries = &found.list.blocks;
    for id in &there {
        if !entries.iter().any(|entry| entry.id == *id) {
            let what = "the block is not in the manifest: it was replaced or never completed";
            all.add_remark(&folder.join(id.to_string()), what);
        }
    }
    let read = |i: usize| Ok(read_block(env, &folder, &entries[i]));
    read_parallel(env, entries.len(), &read, &mut |part| all.add(part))
}

/// Returns whether a block can be opened.
fn is_whole(env: &Env, folder: &Path, id: BlockId) -> bool {
    let cache = Arc::new(BlockCache::new(CACHE_BYTES));
    Block::open(env, &folder.join(id.to_string()), &cache).is_ok()
}

fn read_block(env: &Env, folder: &Path, entry: &BlockEntry) -> VerifyPart {
    let mut part = VerifyPart::default();
    let dir = folder.join(entry.id.to_string());
    let (mut is_whole, mut is_intact) = (true, true);
    let mut damaged = |finding: VerifyFinding, cost: BlockDamageLoss, part: &mut VerifyPart| {
        is_whole &= cost == BlockDamageLoss::Nothing;
        is_intact = false;
        part.add_finding(cost.apply_to(finding, entry));
    };
    let cache = Arc::new(BlockCache::new(CACHE_BYTES));
    let block = match Block::open(env, &dir, &cache) {
        Ok(block) => block,
        Err(e) => {
            damaged(
                finding_from_error(&dir, &e),
                BlockDamageLoss::All,
                &mut part,
            );
            return part;
        }
    };
    if block.meta().id != entry.id {
        let what = format!("it contains block {}", block.meta().id);
        let finding = VerifyFinding::new(DamageKind::Blocks, &dir.join(META), None, what);
        damaged(finding, BlockDamageLoss::All, &mut part);
    }
    block.verify(&mut |fault| {
        let cost = if fault.is_recovered {
            BlockDamageLoss::Nothing
        } else {
            BlockDamageLoss::Unknown
        };
        damaged(finding_from_error(&dir, &fault.error), cost, &mut part);
    });
    if is_intact && entry.is_bad {
        let what = "it was quarantined and is intact again: the next start loads it";
        part.add_remark(&dir, what);
    }
    count_files(env, &dir, block.meta(), &mut part);
    part.report.blocks += 1;
    if is_whole {
        part.report.block_samples += entry.samples;
    }
    part
}

/// The loss that damage to a block causes, which determines the numbers of its finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockDamageLoss {
    /// Nothing is lost, because a second copy is intact.
    Nothing,
    /// Some samples are lost, but their number cannot be determined.
    Unknown,
    All,
}

impl BlockDamageLoss {
    fn apply_to(self, finding: VerifyFinding, entry: &BlockEntry) -> VerifyFinding {
        match self {
            Self::Nothing => finding.with_loss(Some(0), None),
            Self::Unknown => finding.with_loss(None, Some(entry.range)),
            Self::All => VerifyFinding {
                series: Some(entry.series),
                ..finding.with_loss(Some(entry.samples), Some(entry.range))
            },
        }
    }
}

/// Counts the files of a block, and adds a remark for each other file in its folder.
fn count_files(env: &Env, dir: &Path, meta: &BlockMeta, part: &mut VerifyPart) {
    for name in env.disk.list(dir).unwrap_or_default() {
        let is_file = |file: &crate::block::FileMeta| name.as_os_str() == file.name.as_str();
        if name.as_os_str() == META || meta.files.iter().any(is_file) {
            count(env, &dir.join(name), part)
        } else {
            part.add_remark(&dir.join(name), "unknown file; not checked")
        }
    }
}

fn count(env: &Env, path: &Path, part: &mut VerifyPart) {
    let size = env.disk.open(path, OpenMode::Read).and_then(|f| f.len());
    part.count_file(size.unwrap_or(0));
}

/// Converts an error of a file in `folder` to a finding.
fn finding_from_error(folder: &Path, error: &StorageError) -> VerifyFinding {
    let mut damage = damage::damage_from_error(DamageKind::Blocks, error);
    match error {
        StorageError::Format { path, .. } => damage.file = path.clone(),
        _ if damage.file.as_os_str().is_empty() => damage.file = folder.to_path_buf(),
        _ => {}
    }
    let Damage {
        file, offset, what, ..
    } = damage;
    let finding = VerifyFinding::new(DamageKind::Blocks, &file, offset, what);
    if error.is_disk_fault() {
        finding.with_unreadable()
    } else {
        finding
    }
}

#[cfg(test)]
mod tests {
    use crate::import::{ChunkSample, ImportTarget, SampleColumns};
    use crate::repair::{RepairOutcome, repair};
    use crate::seeds::seeds;
    use crate::verify::tests::{check_named, contents, folder};
    use crate::verify::verify;
    use firn_model::env::sim::{SimEnv, SimRng};
    use firn_model::labels::Labels;
    use std::path::{Path, PathBuf};

    const ROOT: &str = "/data";

    /// Returns the folder of the other tests with two added blocks.
    fn with_blocks() -> SimEnv {
        let sim = folder();
        let target = ImportTarget::open_folder(&sim.env, Path::new(ROOT)).unwrap();
        for number in 0..2 {
            let mut import = target.begin();
            let fill = |into: &mut crate::import::ImportSeriesWriter<'_>| {
                for series in 0..30 {
                    let labels = Labels::from_pairs([("__name__", format!("b{series:02}"))]);
                    let mut columns = SampleColumns::default();
                    for time in 0..40 {
                        let value = (time * 7 % 11 + series) as f64 * 0.3;
                        let time = number * 1_000_000 + time * 1_000;
                        columns.push(time, 0, &ChunkSample::Float(value));
                    }
                    into.push(labels.as_ref(), &columns)?;
                }
                Ok(())
            };
            import
                .write_block(target.new_id(number), None, fill)
                .unwrap();
            import.commit().unwrap();
        }
        drop(target);
        sim
    }

    fn block_files(sim: &SimEnv) -> Vec<(PathBuf, Vec<u8>)> {
        let files = contents(sim).into_iter();
        let files: Vec<_> = files
            .filter(|(path, _)| path.starts_with("/data/blocks"))
            .collect();
        // Two blocks of four files, and a manifest.
        assert_eq!(files.len(), 9);
        files
    }

    #[test]
    fn verify_counts_the_samples_of_blocks() {
        let report = verify(&with_blocks().env, Path::new(ROOT)).unwrap();
        assert!(report.is_whole(), "{:?}", report.findings);
        assert_eq!((report.blocks, report.block_samples), (2, 2_400));
        assert_eq!(report.remarks, vec![]);
    }

    #[test]
    fn verify_names_the_file_of_every_changed_byte_of_a_block() {
        let sim = with_blocks();
        for (path, bytes) in block_files(&sim) {
            let step = (bytes.len() / 200).max(1);
            for at in (0..bytes.len()).step_by(step) {
                let mut changed = bytes.clone();
                changed[at] ^= 0x10;
                sim.disk.overwrite(&path, &changed);
                let how = format!("{} at {at}", path.display());
                let report = check_named(&sim, &path, &how).unwrap();
                assert!(!report.is_whole(), "{how}");
            }
            sim.disk.overwrite(&path, &bytes);
        }
    }

    #[test]
    fn verify_names_the_file_of_a_block_that_is_cut_or_removed_or_not_delivered() {
        let sim = with_blocks();
        for (path, bytes) in block_files(&sim) {
            let how = path.display().to_string();
            let middle = bytes.len() as u64 / 2;
            sim.disk.set_unreadable(&path, Some(middle..middle + 1));
            let report = check_named(&sim, &path, &how).unwrap();
            assert!(report.findings.iter().any(|f| f.is_unreadable), "{how}");
            sim.disk.set_unreadable(&path, None);
            for left in [0, 1, bytes.len() / 2, bytes.len() - 1] {
                sim.disk.overwrite(&path, &bytes[..left]);
                let report = check_named(&sim, &path, &how).unwrap();
                assert!(!report.is_whole(), "{how} cut to {left}");
            }
            sim.disk.remove_durably(&path);
            let report = check_named(&sim, &path, &how).unwrap();
            assert!(!report.is_whole(), "{how} removed");
            sim.disk.overwrite(&path, &bytes);
        }
    }

    #[test]
    fn repair_writes_anew_what_is_in_two_places_and_sets_a_block_without_pages_aside() {
        let whole = block_files(&with_blocks());
        for (path, sound) in whole {
            let sim = with_blocks();
            let mut bytes = sound.clone();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            sim.disk.overwrite(&path, &bytes);
            let outcome = repair(&sim.env, Path::new(ROOT), "now", &mut |_| true).unwrap();
            let RepairOutcome::Repaired { set_aside, report } = outcome else {
                panic!("{}: {outcome:?}", path.display());
            };
            assert!(report.is_whole(), "{:?}", report.findings);
            let is_page = path.ends_with("data-000");
            let left = if is_page { 1 } else { 2 };
            assert_eq!(report.block_samples, left * 1_200, "{}", path.display());
            let copy = set_aside.join(path.strip_prefix(ROOT).unwrap());
            assert_eq!(sim.disk.contents(&copy), Some(bytes));
            let beside = copy.parent().unwrap();
            let copied = sim.env.disk.list(beside).unwrap().len();
            assert_eq!(copied, if is_page { 4 } else { 1 });
            let is_block = path.parent() != Some(Path::new("/data/blocks"));
            let is_as_before = sim.disk.contents(&path).as_ref() == Some(&sound);
            assert_eq!(is_as_before, is_block && !is_page, "{}", path.display());
        }
    }

    /// Flips a random byte in a block of many pages. The repaired block contains all series of the
    /// other pages.
    #[test]
    fn repair_puts_what_can_be_read_in_the_place_of_a_block_with_a_damaged_page() {
        const SERIES: u64 = 40;
        const SAMPLES: u64 = 3_000;
        for seed in seeds(6) {
            let (sim, rng) = (folder(), SimRng::new(seed));
            let target = ImportTarget::open_folder(&sim.env, Path::new(ROOT)).unwrap();
            let mut import = target.begin();
            let fill = |into: &mut crate::import::ImportSeriesWriter<'_>| {
                for series in 0..SERIES {
                    let labels = Labels::from_pairs([("__name__", format!("b{series:02}"))]);
                    let mut columns = SampleColumns::default();
                    for time in 0..SAMPLES as i64 {
                        let value = f64::from_bits(rng.next_below(1 << 62));
                        columns.push(time * 1_000, 0, &ChunkSample::Float(value));
                    }
                    into.push(labels.as_ref(), &columns)?;
                }
                Ok(())
            };
            import.write_block(target.new_id(0), None, fill).unwrap();
            import.commit().unwrap();
            drop(target);
            let files = contents(&sim).into_iter();
            let (path, mut bytes) = files
                .into_iter()
                .find(|(path, _)| path.ends_with("data-000"))
                .unwrap();
            let at = rng.next_below(bytes.len() as u64) as usize;
            bytes[at] ^= 1;
            sim.disk.overwrite(&path, &bytes);
            let before = verify(&sim.env, Path::new(ROOT)).unwrap();
            let outcome = repair(&sim.env, Path::new(ROOT), "now", &mut |_| true).unwrap();
            let RepairOutcome::Repaired { set_aside, report } = outcome else {
                panic!("seed {seed}: {outcome:?}");
            };
            assert!(!before.is_whole(), "seed {seed}");
            assert!(report.is_whole(), "seed {seed}: {:?}", report.findings);
            // A page has 64 KiB and a series 24 KB, so a page contains at most parts of four
            // series.
            let left = report.block_samples;
            let all = SERIES * SAMPLES;
            assert!(
                (all - 4 * SAMPLES..all).contains(&left),
                "seed {seed}: {left}"
            );
            let copy = set_aside.join(path.strip_prefix(ROOT).unwrap());
            assert_eq!(sim.disk.contents(&copy), Some(bytes), "seed {seed}");
            assert!(sim.disk.contents(&path).is_none(), "seed {seed}");
        }
    }

    #[test]
    fn repair_without_a_manifest_of_blocks_takes_the_blocks_that_are_there() {
        let sim = with_blocks();
        let files = block_files(&sim).into_iter();
        let is_manifest = |path: &PathBuf| path.parent() == Some(Path::new("/data/blocks"));
        let (path, _) = files.into_iter().find(|(p, _)| is_manifest(p)).unwrap();
        sim.disk.remove_durably(&path);
        let outcome = repair(&sim.env, Path::new(ROOT), "now", &mut |_| true).unwrap();
        let RepairOutcome::Repaired { report, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(report.is_whole(), "{:?}", report.findings);
        assert_eq!((report.blocks, report.block_samples), (2, 2_400));
    }
}
