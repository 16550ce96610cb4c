//! Delivery positions of all targets, in a file that is replaced atomically
//! (`docs/format/mirror.md`).
//!
//! ```text
//! firn mirror cursors 1
//! <position> <target>
//! crc32c <eight hexadecimal digits, of all bytes before this line>
//! ```
//!
//! Invariant: the file is always complete, in its old or its new version. If it is old, targets
//! receive the bodies since then again, in order.

use firn_model::env::{Disk, OpenMode};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Position in the log for each target, by the key of the target; all earlier bodies are completed.
pub type Cursors = BTreeMap<String, u64>;

const NAME: &str = "cursors";
const NEW_NAME: &str = "cursors.new";
const FIRST_LINE: &str = "firn mirror cursors 1";
const SUM: &str = "crc32c ";

/// Maximum length of the file in bytes: more than a thousand targets with very long URLs.
const BYTES_MAX: u64 = 4 << 20;

/// Reason why stored cursors cannot be used, so that all stored bodies are sent again or the start
/// fails.
#[derive(Debug, thiserror::Error)]
pub enum StoredCursorsError {
    /// The file could not be read, which fails the start.
    #[error("read {NAME}: {0}")]
    Disk(#[from] io::Error),
    /// The file is malformed, for this reason; all stored bodies are sent again.
    #[error("{NAME} is damaged: {0}")]
    Damaged(&'static str),
}

/// Reads the cursors in `dir`; returns `None` if there is no file. Fails if it is damaged or
/// unreadable.
pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Cursors>, StoredCursorsError> {
    let file = match disk.open(&dir.join(NAME), OpenMode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let bytes = file.len()?;
    if bytes > BYTES_MAX {
        return Err(StoredCursorsError::Damaged("it is too long"));
    }
    let mut text = vec![0; bytes as usize];
    let read = file.read_at(0, &mut text)?;
    text.truncate(read);
    let text =
        String::from_utf8(text).map_err(|_| StoredCursorsError::Damaged("it is not UTF-8"))?;
    parse(&text).map(Some).map_err(StoredCursorsError::Damaged)
}

/// Replaces the file with the cursors in `dir` atomically and syncs it.
pub fn save(disk: &dyn Disk, dir: &Path, cursors: &Cursors) -> io::Result<()> {
    let (new, name) = (dir.join(NEW_NAME), dir.join(NAME));
    let file = match disk.open(&new, OpenMode::CreateNew) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            disk.remove_file(&new)?;
            disk.open(&new, OpenMode::CreateNew)?
        }
        opened => opened?,
    };
    file.write_all_at(0, print(cursors).as_bytes())?;
    file.sync_data()?;
    disk.rename(&new, &name)?;
    disk.sync_dir(dir)
}

fn print(cursors: &Cursors) -> String {
    let mut text = format!("{FIRST_LINE}\n");
    for (key, position) in cursors {
        text += &format!("{position} {key}\n");
    }
    let sum = crc32c::crc32c(text.as_bytes());
    text + &format!("{SUM}{sum:08x}\n")
}

fn parse(text: &str) -> Result<Cursors, &'static str> {
    let (lines, sum) = text.rsplit_once(SUM).ok_or("it has no checksum")?;
    if sum != format!("{:08x}\n", crc32c::crc32c(lines.as_bytes())) {
        return Err("its checksum does not match");
    }
    let mut lines = lines.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err("it has another version");
    }
    let cursor = |line: &str| {
        let (position, key) = line.split_once(' ')?;
        Some((key.to_owned(), position.parse().ok()?))
    };
    let cursors = lines.map(cursor).collect::<Option<Cursors>>();
    cursors.ok_or("a line has no position")
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim;

    fn cursors(position: u64) -> Cursors {
        let one = |(key, position): (&str, u64)| (key.to_owned(), position);
        [("http://a:1/api/v1/write?x=a b", position), ("crc32c b", 7)]
            .map(one)
            .into()
    }

    #[test]
    fn cursors_saved_over_a_crash_at_any_change_are_old_or_new() {
        let dir = Path::new("/mirror");
        for seed in 0..64 {
            for changes in 0..5 {
                let sim = sim::sim_env(seed);
                sim.env.disk.create_dir_all(dir).unwrap();
                assert_eq!(load(&*sim.env.disk, dir).unwrap(), None);
                save(&*sim.env.disk, dir, &cursors(5)).unwrap();
                sim.disk.power_off_after(changes);
                let saved = save(&*sim.env.disk, dir, &cursors(9));
                sim.disk.crash();
                let loaded = load(&*sim.env.disk, dir).unwrap().unwrap();
                let is_new = loaded == cursors(9);
                assert!(is_new || loaded == cursors(5), "seed {seed}, {changes}");
                assert!(is_new || saved.is_err(), "seed {seed}, {changes}");
                save(&*sim.env.disk, dir, &cursors(11)).unwrap();
                let loaded = load(&*sim.env.disk, dir).unwrap().unwrap();
                assert_eq!(loaded, cursors(11), "seed {seed}, {changes}");
            }
        }
    }

    #[test]
    fn cursors_with_any_byte_changed_are_damaged() {
        let text = print(&cursors(5));
        assert_eq!(parse(&text), Ok(cursors(5)));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(parse(&changed).is_err(), "{at}");
            assert!(parse(&text[..at]).is_err(), "{at}");
        }
    }
}
