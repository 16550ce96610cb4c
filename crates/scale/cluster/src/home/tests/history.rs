//! Random histories of processes that publish, maintain, append, end and fence each other.

use super::world::{FOLDER, Flaws, Process, World};
use firn_model::env::{Disk, OpenMode};
use firn_model::log::{DurableLog, LogPosition};
use firn_storage::home::{BlockHome, HomeDisk};
use std::path::PathBuf;
use std::time::Duration;

const STEPS: u64 = 60;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs a history and returns the number of its COMMITs, or the broken invariant.
pub fn run_history(seed: u64, flaws: Flaws) -> Result<i64, String> {
    let mut world = World::new(seed, flaws);
    world.faults_one_in = [0, 8, 20][world.rng.next_below(3) as usize];
    let mut leader = lead(&mut world)?;
    let mut zombies: Vec<Process> = Vec::new();
    for _ in 0..STEPS {
        if world.rng.one_in(6) {
            let left = world.rng.next_below(40);
            leader.bucket.set_fuse(left, world.rng.one_in(2));
        }
        match world.rng.next_below(20) {
            0 => leader.bucket.burn(),
            1 => {
                let successor = lead(&mut world)?;
                zombies.push(std::mem::replace(&mut leader, successor));
            }
            2 | 3 => act_as_zombie(&mut world, &zombies)?,
            4..9 => publish(&mut world, &leader)?,
            9..12 => {
                let hours = world.rng.next_below(4) as u32;
                world.advance(HOUR * hours);
                leader.store.home.run_maintenance();
            }
            12 => world.advance(HOUR * 30),
            _ => {
                world.append(&leader);
                world.pump(&leader, 3);
            }
        }
        world.check()?;
        if leader.log.ended().is_some() {
            leader.bucket.burn();
            leader = lead(&mut world)?;
        }
    }
    leader.bucket.burn();
    settle(&mut world)?;
    Ok(world.acked.cut.max(0))
}

/// Takes over until a process does not end meanwhile.
fn lead(world: &mut World) -> Result<Process, String> {
    loop {
        let bucket = world.client();
        if world.rng.one_in(3) {
            bucket.set_fuse(world.rng.next_below(30), world.rng.one_in(2));
        }
        let led = world.take_over(bucket)?;
        world.check()?;
        if let Ok((process, _)) = led {
            return Ok(process);
        }
    }
}

fn publish(world: &mut World, leader: &Process) -> Result<(), String> {
    let end = leader.log.positions().last.next();
    let first = leader.log.positions().first;
    let covered = first.0 + world.rng.next_below(end.0 - first.0 + 1);
    let (adds, removes) = (world.rng.next_below(3), world.rng.next_below(3));
    let commit = world.build_commit(adds, removes, LogPosition(covered));
    world.publish(leader, &commit)
}

/// Lets a process act that was fenced: nothing of it may take effect.
fn act_as_zombie(world: &mut World, zombies: &[Process]) -> Result<(), String> {
    if zombies.is_empty() {
        return Ok(());
    }
    let zombie = &zombies[world.rng.next_below(zombies.len() as u64) as usize];
    match world.rng.next_below(5) {
        0 => {
            let mut commit = world.build_commit(1, 0, LogPosition(1));
            commit.cut = 1_000_000;
            if zombie.store.home.publish(&commit).is_ok() {
                return Err("a fenced process published".to_owned());
            }
        }
        1 => {
            world.append(zombie);
            world.pump(zombie, 3);
        }
        // It may not notice for long that it was fenced.
        _ => zombie.store.home.run_maintenance(),
    }
    Ok(())
}

/// Without faults, all garbage goes and everything listed is readable from the bucket.
fn settle(world: &mut World) -> Result<(), String> {
    world.faults_one_in = 0;
    let client = world.client();
    let (leader, _) = world.take_over(client)?.map_err(|e| e.to_string())?;
    for _ in 0..2 {
        let end = leader.log.positions().last.next();
        let commit = world.build_commit(1, 1, end);
        world.publish(&leader, &commit)?;
        world.append(&leader);
        world.pump(&leader, 3);
    }
    for _ in 0..30 {
        world.advance(HOUR);
        leader.store.home.run_maintenance();
        world.check()?;
    }
    let found = world.check()?;
    if (found.untrimmed, found.orphans) != (0, 0) || found.checkpoints > 3 {
        return Err(format!("garbage is left: {found:?}"));
    }
    let blocks = world.acked.blocks.len() as u64;
    if found.blocks != blocks {
        return Err(format!("{} blocks, expected {blocks}", found.blocks));
    }
    read_all(world, &leader)?;
    let client = world.client();
    world.take_over(client)?.map_err(|e| e.to_string())?;
    Ok(())
}

/// Reads all listed files from the bucket.
fn read_all(world: &World, leader: &Process) -> Result<(), String> {
    let empty = std::sync::Arc::new(firn_model::env::sim::SimDisk::new(1));
    let disk = HomeDisk::new(empty, PathBuf::from(FOLDER), leader.store.home.files());
    for id in world.acked.blocks.keys() {
        let folder = PathBuf::from(FOLDER).join(id.to_string());
        for name in disk.list(&folder).map_err(|e| e.to_string())? {
            let path = folder.join(name);
            let file = disk.open(&path, OpenMode::Read);
            let file = file.map_err(|e| format!("{}: {e}", path.display()))?;
            let mut read = vec![0; file.len().unwrap_or(0) as usize];
            let done = file.read_at(0, &mut read).map_err(|e| e.to_string())?;
            if done != read.len() || world.files.get(&path) != Some(&read) {
                return Err(format!("{} has other bytes", path.display()));
            }
        }
    }
    Ok(())
}
