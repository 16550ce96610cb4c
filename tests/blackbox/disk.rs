//! Data folders that are taken, not writable, of another format, or full.

use crate::Kept;
use crate::harness::server::{Server, command, firn, spawn};
use crate::harness::write::{Series, body};
use crate::refusal::Refusal;
use std::path::Path;
use std::process::Command;

/// What a server on `data` says when it does not start.
fn refusal(data: &Path) -> String {
    let refusal = Refusal::of(command(data, &[]));
    assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
    refusal.line().to_owned()
}

#[test]
fn data_folder_in_use_is_refused_and_untouched() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let kept = Kept::store(&server.http());
    let line = refusal(data.path());
    assert!(line.contains(data.path().to_str().unwrap()), "{line}");
    assert!(line.contains("in use") || line.contains("locked"), "{line}");
    kept.check(&server.http(), "a second server on the folder");
}

#[test]
fn data_folder_of_a_newer_format_is_refused_and_untouched() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let kept = Kept::store(&server.http());
    assert!(server.stop().success());
    let format = data.path().join("FORMAT");
    let ours = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, "firn data format 999\n").unwrap();
    let line = refusal(data.path());
    assert!(line.contains("999"), "{line}");
    std::fs::write(&format, ours).unwrap();
    let server = Server::start(data.path(), &[]);
    kept.check(&server.http(), "a newer format");
}

#[test]
fn data_folder_with_something_else_in_it_is_refused() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("thesis.tex"), "x").unwrap();
    let line = refusal(data.path());
    assert!(line.contains("thesis.tex"), "{line}");
}

#[test]
fn data_folder_not_writable_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = if rustix::process::geteuid().is_root() {
        // Nothing below /sys can be created, not even by root.
        Path::new("/sys/firn").to_path_buf()
    } else {
        use std::os::unix::fs::PermissionsExt;
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o555)).unwrap();
        data
    };
    let line = refusal(&data);
    assert!(line.contains(data.to_str().unwrap()), "{line}");
}

#[test]
fn disk_that_is_full_refuses_writes_and_goes_on_answering() {
    let data = tempfile::tempdir().unwrap();
    // No file may grow beyond 256 KiB; without the trap the signal would end the process.
    let script = "trap '' XFSZ; ulimit -f 512; exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(firn().get_program());
    shell
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path());
    let mut server = Server::from_child(spawn(shell));
    server.wait_ready();
    let http = server.http();
    let kept = Kept::store(&http);
    let refused = (0..2000).map(|i| http.write(&body(&incompressible(kept.time_ms, i))));
    let refused = refused.into_iter().find(|answer| answer.status != 204);
    let refused = refused.expect("512 KiB do not fit");
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(server.try_end().is_none());
    kept.check(&http, "a full disk");
    server.kill();
    let server = Server::start(data.path(), &[]);
    kept.check(&server.http(), "a full disk and a restart");
    let answer = server
        .http()
        .write(&body(&incompressible(kept.time_ms, 5000)));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

/// A request of some KiB that no codec makes much smaller.
fn incompressible(time_ms: i64, request: u64) -> Vec<Series> {
    let one = |i: u64| {
        let id = (request * 20 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let text = format!("{id:x}{:x}", id.rotate_left(13).wrapping_mul(id | 1));
        Series::new(
            &[("__name__", "filler"), ("id", &text)],
            &[(time_ms, id as f64)],
        )
    };
    (0..20).map(one).collect()
}
