//! Plays a page with `sh` in its own folder. Wrapper commands, which precede the system's in the
//! path, start and stop the page's own server.
//!
//! `firn serve` and `make run` start it at a free port that replaces 9090, print its log up to the
//! line that reports readiness, and leave it running. `pkill` and `kill` stop only this server. For
//! all other commands `firn` is the built binary.

use super::mask::{is_same, renewed};
use super::page::{Part, Step, read};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time of a command, for example of a load on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Pause between two checks whether a command has ended.
const POLL: Duration = Duration::from_millis(5);

/// Port in the documents.
const PORT: &str = "9090";

/// Name of a page's folder in output.
const FOLDER: &str = "/srv/firn";

/// Wrapper of `firn`, which manages the page's server.
const FIRN: &str = r#"#!/bin/sh
state=STATE port=PORT binary=BINARY
case "$1 $2" in
serve\ --help|serve\ --version) exec "$binary" "$@" ;;
serve*) shift ;;
load*|check\ healthy*|check\ ready*)
    case " $* " in
    *" --url"*) exec "$binary" "$@" ;;
    *) exec "$binary" "$@" --url "http://127.0.0.1:$port" ;;
    esac ;;
*) exec "$binary" "$@" ;;
esac
case " $* " in
*listen*) ;;
*) set -- --listen "127.0.0.1:$port" "$@" ;;
esac
: >"$state/log" # The background job would empty it later, and an earlier server was ready too.
"$binary" serve "$@" >>"$state/log" 2>&1 &
pid=$!
echo "$pid" >"$state/pid"
while ! grep -q ' msg=ready' "$state/log"; do
    if ! kill -0 "$pid" 2>/dev/null; then
        wait "$pid"
        code=$?
        rm "$state/pid"
        cat "$state/log"
        exit "$code"
    fi
    sleep 0.02
done
sed '/ msg=ready/q' "$state/log"
"#;

/// Wrapper of `make`, which supports only `make run`.
const MAKE: &str = r#"#!/bin/sh
if [ "$*" = run ]; then exec firn serve; fi
echo "only make run is played, not make $*"
exit 2
"#;

/// Stops the page's server, for any process name, and waits until it has ended.
const KILL: &str = r#"#!/bin/sh
state=STATE signal=-TERM
case "$1" in -*) signal=$1 ;; esac
pid=$(cat "$state/pid") || exit 1
kill "$signal" "$pid" || exit 1
while [ -e "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do
    sleep 0.02
done
rm "$state/pid"
"#;

/// Result of playing a page.
pub struct Played {
    /// One text per command with different output, with its line in the page.
    pub failures: Vec<String>,
    /// The page with the current output.
    pub recorded: String,
}

/// Plays a page and returns the differences.
pub fn play(text: &str) -> Played {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let parts = read(text);
    if !parts.iter().any(|part| matches!(part, Part::Step(_))) {
        return Played {
            failures: Vec::new(),
            recorded: text.to_owned(),
        };
    }
    let mut failures = Vec::new();
    // Later output is replaced first, so that line numbers of earlier output stay valid.
    let mut outputs = Vec::new();
    let stage = Stage::new();
    for part in &parts {
        match part {
            Part::File { name, text } => stage.write(name, text),
            Part::Step(step) => {
                let current = stage.run(step);
                if !is_same(&step.output, &current) {
                    failures.push(failure(step, &current));
                }
                outputs.push((step, renewed(&step.output, &current)));
            }
        }
    }
    for (step, output) in outputs.into_iter().rev() {
        lines.splice(step.begin..step.begin + step.output.len(), output);
    }
    Played {
        failures,
        recorded: lines.join("\n") + "\n",
    }
}

fn failure(step: &Step, current: &[String]) -> String {
    let indented = |lines: &[String]| -> String {
        let lines = lines.iter().map(|line| format!("    {line}\n"));
        lines.collect()
    };
    format!(
        "{}: $ {}\n  shown:\n{}  current:\n{}",
        step.line(),
        step.command,
        indented(&step.output),
        indented(current)
    )
}

/// Folders in which a page is played. Its server stops on drop.
struct Stage {
    /// Folder with the wrapper commands and the state of the server.
    state: tempfile::TempDir,
    /// Folder in which the commands run.
    folder: tempfile::TempDir,
    port: String,
}

impl Stage {
    fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let stage = Self {
            state: tempfile::tempdir().unwrap(),
            folder: tempfile::tempdir().unwrap(),
            port: free.local_addr().unwrap().port().to_string(),
        };
        let bin = stage.bin();
        fs::create_dir(&bin).unwrap();
        for (name, text) in [("firn", FIRN), ("make", MAKE), ("pkill", KILL)] {
            let path = bin.join(name);
            let text = text
                .replace("STATE", &stage.state.path().display().to_string())
                .replace("PORT", &stage.port)
                .replace("BINARY", env!("CARGO_BIN_EXE_firn"));
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Path at which `make` creates the program.
        let built = stage.folder.path().join("target/release");
        fs::create_dir_all(&built).unwrap();
        symlink(bin.join("firn"), built.join("firn")).unwrap();
        stage
    }

    fn bin(&self) -> PathBuf {
        self.state.path().join("bin")
    }

    /// Writes a file of the page.
    fn write(&self, name: &str, text: &str) {
        let text = text.replace(PORT, &self.port);
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Runs a command and returns its output.
    fn run(&self, step: &Step) -> Vec<String> {
        let command = step.command.replace(PORT, &self.port);
        // The shell's builtin `kill` would take precedence otherwise.
        let script = format!("kill() {{ pkill \"$@\"; }}\n{command}\n");
        let output = self.state.path().join("output");
        let file = fs::File::create(&output).unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.bin().display()))
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .expect("sh runs");
        let end = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!(
                    "line {}: no end within {PATIENCE:?}: {command}",
                    step.line()
                );
            }
            std::thread::sleep(POLL);
        }
        self.lines(&output)
    }

    /// Returns the lines of an output as a document shows them.
    fn lines(&self, output: &Path) -> Vec<String> {
        let text = String::from_utf8_lossy(&fs::read(output).unwrap()).into_owned();
        let text = text
            .replace(&self.folder.path().display().to_string(), FOLDER)
            .replace(&self.port, PORT);
        text.trim_end()
            .lines()
            .map(|line| without_time(line).trim_end().to_owned())
            .collect()
    }
}

/// Returns a log line without its time.
fn without_time(line: &str) -> &str {
    match line
        .strip_prefix("time=")
        .and_then(|rest| rest.split_once(' '))
    {
        Some((_, rest)) if rest.starts_with("level=") => rest,
        _ => line,
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.state.path().join("pid").exists() {
            // The server may have ended by itself.
            let _ = Command::new(self.bin().join("pkill")).arg("-KILL").status();
        }
    }
}
