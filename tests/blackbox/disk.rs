//! Data folders that are taken, not writable, of another format, full, or damaged.

use crate::harness::server::{Server, command, firn, spawn};
use crate::harness::write::{Series, body};
use crate::refusal::Refusal;
use crate::{Kept, now_ms};
use std::path::{Path, PathBuf};
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

#[test]
fn page_that_is_damaged_fails_what_reads_it_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Without a target, so that only these series are sealed.
    let config = folder.path().join("nothing.yml");
    std::fs::write(&config, "global: {}\n").unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(data.path(), &flags);
    let time_ms = now_ms();
    // More series than one page holds, so that some are in another page than the first.
    let series = |value: f64| -> Vec<Series> {
        let one = |i: u64| {
            let labels = [("__name__", "kept"), ("id", &*format!("{i:04}"))];
            Series::new(&labels, &[(time_ms, value + i as f64)])
        };
        (0..1024).map(one).collect()
    };
    let written = server.http().write(&body(&series(0.5)));
    assert_eq!(written.status, 204, "{}", written.body);
    assert!(server.stop().success());

    // The end of the newest page: the beginning belongs to the series that came first.
    let page = newest_file(&data.path().join("pages"));
    let mut bytes = std::fs::read(&page).unwrap();
    let place = bytes.len() - 256;
    bytes[place] ^= 0x10;
    std::fs::write(&page, &bytes).unwrap();

    let server = Server::start(data.path(), &flags);
    let http = server.http();
    let time = format!("{}", time_ms as f64 / 1000.0);
    let ask = |query: &str| http.post("/api/v1/query", &[("query", query), ("time", &time)]);
    let damaged = ask("sum(kept)");
    assert_eq!(damaged.status, 500, "{}", damaged.body);
    let name = page.file_name().unwrap().to_str().unwrap();
    assert!(damaged.body.contains(name), "{}", damaged.body);
    let sound = ask("kept{id=\"0000\"}");
    assert_eq!(sound.status, 200, "{}", sound.body);
    assert!(sound.body.contains("\"0.5\""), "{}", sound.body);
    let later = Series::new(&[("__name__", "later")], &[(time_ms, 1.0)]);
    let written = http.write(&body(&[later]));
    assert_eq!(written.status, 204, "{}", written.body);
}

/// The file of `folder` whose name is the last one.
fn newest_file(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder).unwrap();
    let newest = files.map(|file| file.unwrap().path()).max();
    newest.expect("the folder has a file")
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
