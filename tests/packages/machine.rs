//! A machine of the test's own: processes, network and files in namespaces of their own.
//!
//! ```text
//! test -> unshare -> sh: mounts, then waits for the end of its input
//!      -> nsenter -> chroot -> a command
//! ```
//!
//! Invariant: nothing outside of the namespaces changes, and all processes end with the
//! [`Machine`].

use crate::succeed;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Prints the host's number of the process that holds the namespaces, and reaps processes until its
/// input ends. The files are those of the folder `$3`, or else this machine's, with changes in
/// memory and the folder `$2` at /mnt.
const SETUP: &str = r#"
top=$1; shared=$2; files=$3
read -r pid rest </proc/self/stat
ip link set lo up
mount -t tmpfs firn "$top"
mkdir "$top/upper" "$top/work" "$top/root"
if [ -n "$files" ]; then
    mount --bind "$files" "$top/root"
else
    mount -t overlay firn -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root"
    mount -t tmpfs -o mode=0755 firn "$top/root/run"
    mount -t tmpfs -o mode=1777 firn "$top/root/tmp"
    mount --bind "$shared" "$top/root/mnt"
    mount --rbind /dev "$top/root/dev"
fi
mount -t proc proc "$top/root/proc"
echo "$pid"
exec 3<&0
cat <&3 &
wait $!
"#;

/// The machine.
pub struct Machine {
    holder: Child,
    /// The host's number of a process in the namespaces.
    pid: String,
    /// The root folder, as seen in the mount namespace.
    root: PathBuf,
    _top: tempfile::TempDir,
}

impl Machine {
    /// A machine with the files of this one; `shared` is mounted at `/mnt`. `None`, with a message,
    /// where the process may not make namespaces.
    pub fn like_this_one(shared: &Path) -> Option<Self> {
        Self::start(shared, Path::new(""))
    }

    /// A machine with the files in `files`, among them a folder `proc`.
    pub fn of(files: &Path) -> Option<Self> {
        Self::start(Path::new(""), files)
    }

    fn start(shared: &Path, files: &Path) -> Option<Self> {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
            command
        };
        let tried = unshare().arg("true").output().unwrap();
        if !tried.status.success() {
            let why = String::from_utf8_lossy(&tried.stderr).into_owned();
            println!("skipped: namespaces are not permitted here: {why}");
            return None;
        }
        let top = tempfile::tempdir().unwrap();
        let mut holder = unshare()
            .args(["sh", "-euc", SETUP, "sh"])
            .args([top.path(), shared, files])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pid = String::new();
        let mut lines = BufReader::new(holder.stdout.take().unwrap());
        lines.read_line(&mut pid).unwrap();
        assert!(!pid.is_empty(), "the namespaces could not be set up");
        Some(Self {
            holder,
            pid: pid.trim().to_owned(),
            root: top.path().join("root"),
            _top: top,
        })
    }

    /// A program in the machine, run by `user` (a name or `uid:gid`).
    pub fn command_as(&self, user: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid, "--mount", "--net", "--pid"])
            .args(["chroot", &format!("--userspec={user}")])
            .arg(&self.root)
            .args(words)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        command
    }

    /// A program in the machine.
    pub fn command(&self, words: &[&str]) -> Command {
        self.command_as("0:0", words)
    }

    /// The output of a program; panics unless it succeeds.
    pub fn run(&self, words: &[&str]) -> String {
        succeed(&mut self.command(words))
    }

    /// The output of a shell script; panics unless it succeeds.
    pub fn shell(&self, script: &str) -> String {
        self.run(&["sh", "-euc", script])
    }

    /// Whether a program succeeds.
    pub fn succeeds(&self, words: &[&str]) -> bool {
        crate::output(&mut self.command(words)).status.success()
    }

    /// Whether a path exists.
    pub fn has(&self, path: &str) -> bool {
        self.succeeds(&["test", "-e", path])
    }

    /// Writes a program.
    pub fn write_program(&self, path: &str, text: &str) {
        let script = format!("cat >{path}; chmod 755 {path}");
        self.write(&["sh", "-euc", &script], text);
    }

    /// Runs a program with this input.
    pub fn write(&self, words: &[&str], input: &str) {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success(), "{words:?}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The end of its input ends the first process, and with it all others.
        drop(self.holder.stdin.take());
        // Nothing is to be done about a process that is gone.
        let _ = self.holder.wait();
    }
}
