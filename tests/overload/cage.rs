//! A control group with a memory limit: a process that exceeds it is killed.
//!
//! Needs the right to make one, which a container or a user without privileges lacks; then the test
//! looks at the peak of resident memory alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A group that is removed when it is dropped, after its process ended.
pub struct Cage {
    folder: PathBuf,
}

impl Cage {
    /// A group with a limit of `bytes`, if one can be made.
    pub fn new(bytes: usize) -> Option<Cage> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("firn-overload-{}-{number}", std::process::id());
        let versions = [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ];
        versions.iter().find_map(|(root, limit)| {
            let folder = Path::new(root).join(&name);
            std::fs::create_dir(&folder).ok()?;
            let cage = Cage { folder };
            let limit = cage.folder.join(limit);
            // Where there is no controller there is no such file, and none can be made.
            limit.exists().then_some(())?;
            std::fs::write(&limit, bytes.to_string()).ok()?;
            Some(cage)
        })
    }

    /// `command`, which enters the group before it begins.
    pub fn around(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        shell.args(["-c", enter]).arg(&self.folder);
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // The process has been killed by now; a group that stays is empty and takes nothing.
        let _ = std::fs::remove_dir(&self.folder);
    }
}
