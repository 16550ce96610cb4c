//! A control group with a memory limit: the kernel kills a process that exceeds it.
//!
//! Creating a group needs privileges that a container or an ordinary user lacks. The test then
//! checks only the peak of resident memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A control group, which is removed on drop, after its process has ended.
pub struct Cage {
    folder: PathBuf,
}

impl Cage {
    /// Creates a group with a limit of `bytes`, if that is possible.
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
            // Without the controller this file does not exist and cannot be created.
            limit.exists().then_some(())?;
            std::fs::write(&limit, bytes.to_string()).ok()?;
            Some(cage)
        })
    }

    /// Returns a command that enters the group and then executes `command`.
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
        // The process was killed before this. A group that cannot be removed is empty and harmless.
        let _ = std::fs::remove_dir(&self.folder);
    }
}
