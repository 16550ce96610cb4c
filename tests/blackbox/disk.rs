//! Data folders that are in use, not writable, of another format, full, or damaged.

use crate::harness::http::Http;
use crate::harness::server::{Server, command, firn, spawn, wait_for};
use crate::harness::write::{Series, body};
use crate::refusal::Refusal;
use crate::{Kept, now_ms};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the error of a server on `data` that does not start.
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

/// Starts a server that scrapes itself, on its own file system of a given size: in a mount
/// namespace of the process, which needs no privileges.
fn start_on_small_disk(folder: &Path, megabytes: u32, flags: &[&str]) -> Server {
    let script = "mount -t tmpfs -o size=\"$1\" firn \"$2\" && shift 2 && exec \"$@\"";
    let mut mounted = Command::new("unshare");
    mounted.args(["-rm", "sh", "-c", script, "sh"]);
    mounted.arg(format!("{megabytes}m")).arg(folder);
    mounted.arg(firn().get_program());
    mounted.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
    mounted.arg(folder.join("data")).args(flags);
    Server::from_child(spawn(mounted))
}

/// Returns the path of a file on the file system that only the server sees.
fn filler_of(server: &Server, folder: &Path) -> PathBuf {
    let root = format!("/proc/{}/root", server.pid().as_raw_nonzero());
    let inside = folder.strip_prefix("/").unwrap();
    Path::new(&root).join(inside).join("filler")
}

/// Writes zeros to `path` until the file system is full.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    let zeros = vec![0; 1 << 20];
    while file.write_all(&zeros).is_ok() {}
}

#[test]
fn disk_that_was_full_refuses_writes_meanwhile_and_goes_on_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_small_disk(folder.path(), 300, &[]);
    server.wait_ready();
    let http = server.http();
    let kept = Kept::store(&http);
    let health = || http.get("/api/v1/targets").json()["data"]["activeTargets"][0].clone();
    wait_for("the target to be up", || health()["health"] == "up");

    let filler = filler_of(&server, folder.path());
    fill(&filler);
    let push = |n: u64| http.write(&body(&incompressible(kept.time_ms, n)));
    wait_for("a write to be refused", || push(0).status != 204);
    let refused = push(1);
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body.contains("full"), "{}", refused.body);
    wait_for("the target to be down", || health()["health"] == "down");
    let error = health()["lastError"].as_str().unwrap().to_owned();
    assert!(
        error.contains("failed to store the scrape") && error.contains("full"),
        "{error}"
    );
    assert_eq!(http.get("/-/ready").status, 200, "it is a state that ends");
    let metrics = http.get("/metrics").body;
    assert!(metrics.contains("\nfirn_storage_wal_disk_full 1\n"));
    kept.check(&http, "a full disk");

    std::fs::remove_file(&filler).unwrap();
    wait_for("a write to be taken", || push(2).status == 204);
    wait_for("the target to be up again", || health()["health"] == "up");
    kept.check(&http, "a disk that was full");
    let again = http.query("count(filler)", kept.time_ms);
    assert!(
        again[0]["value"][1]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            >= 20,
        "{again}"
    );
}

/// Number of series of [`minute_of`].
const HOURLY: i64 = 20;

/// Returns a request with one sample per series, with different values in each minute.
fn minute_of(time_ms: i64) -> Vec<u8> {
    let one = |i: i64| {
        let value = (time_ms / 60_000 * HOURLY + i) as f64;
        Series::new(
            &[("__name__", "hourly"), ("id", &i.to_string())],
            &[(time_ms, value)],
        )
    };
    body(&(0..HOURLY).map(one).collect::<Vec<_>>())
}

/// Returns the minutes of `acked` with missing samples or wrong values.
fn missing(http: &Http, acked: &[i64]) -> Vec<i64> {
    let (first, last) = (acked[0], acked[acked.len() - 1]);
    let found = http.query(&format!("hourly[{}ms]", last - first + 1), last);
    let mut counts = std::collections::BTreeMap::new();
    for series in found.as_array().unwrap() {
        let id: i64 = series["metric"]["id"].as_str().unwrap().parse().unwrap();
        for pair in series["values"].as_array().unwrap() {
            let time = (pair[0].as_f64().unwrap() * 1e3).round() as i64;
            let value: f64 = pair[1].as_str().unwrap().parse().unwrap();
            assert_eq!(
                value,
                (time / 60_000 * HOURLY + id) as f64,
                "{id} at {time}"
            );
            *counts.entry(time).or_insert(0) += 1;
        }
    }
    let is_missing = |time: &&i64| counts.get(*time) != Some(&HOURLY);
    acked.iter().filter(is_missing).copied().collect()
}

/// Hours of data time pass, so that blocks are cut, and the disk is repeatedly full.
#[test]
fn disk_that_is_full_across_cuts_costs_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "global: {}\n").unwrap();
    let flags = ["--config", config.path().to_str().unwrap()];
    let server = start_on_small_disk(folder.path(), 300, &flags);
    server.wait_ready();
    let http = server.http();
    let filler = filler_of(&server, folder.path());
    let blocks = || {
        let text = http.get("/metrics").body;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("firn_storage_blocks "));
        line.unwrap().parse::<f64>().unwrap()
    };
    let mut time = now_ms() / 60_000 * 60_000 - 20 * 3_600_000;
    let mut acked = Vec::new();
    let mut refusals = 0;
    for cycle in 0..4 {
        // The disk is full at a different point between two cuts in each cycle.
        for _ in 0..150 + 20 * cycle {
            time += 60_000;
            wait_for("a write to be taken", || {
                http.write(&minute_of(time)).status == 204
            });
            acked.push(time);
        }
        fill(&filler);
        wait_for("a write to be refused", || {
            time += 60_000;
            let answer = http.write(&minute_of(time));
            if answer.status == 204 {
                acked.push(time);
                return false;
            }
            assert_eq!(answer.status, 503, "{}", answer.body);
            assert!(answer.body.contains("full"), "{}", answer.body);
            true
        });
        // Some ticks pass during which due work fails.
        let end = std::time::Instant::now() + std::time::Duration::from_millis(1_500);
        while std::time::Instant::now() < end {
            refusals += u32::from(http.write(&minute_of(time)).status == 503);
            assert_eq!(missing(&http, &acked), Vec::<i64>::new(), "on a full disk");
            assert_eq!(http.get("/-/ready").status, 200, "it is a state that ends");
        }
        std::fs::remove_file(&filler).unwrap();
    }
    assert!(refusals > 0, "no write was refused");
    wait_for("a write to be taken", || {
        http.write(&minute_of(time)).status == 204
    });
    // A failed cut is retried after a minute.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(100);
    while blocks() < 2.0 {
        assert!(std::time::Instant::now() < end, "no blocks are cut");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(
        missing(&http, &acked),
        Vec::<i64>::new(),
        "on a disk that was full"
    );
}

#[test]
fn page_that_is_damaged_costs_what_lies_in_it_and_the_answer_says_so() {
    let data = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Without a target, so that only these series are sealed.
    let config = folder.path().join("nothing.yml");
    std::fs::write(&config, "global: {}\n").unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(data.path(), &flags);
    let time_ms = now_ms();
    // More series than one page contains, so that some are in a second page.
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

    // The damage is at the end of the newest page; its start contains the first series.
    let page = newest_file(&data.path().join("pages"));
    let mut bytes = std::fs::read(&page).unwrap();
    let place = bytes.len() - 256;
    bytes[place] ^= 0x10;
    std::fs::write(&page, &bytes).unwrap();

    let server = Server::start(data.path(), &flags);
    let http = server.http();
    let time = format!("{}", time_ms as f64 / 1000.0);
    let ask = |query: &str| http.post("/api/v1/query", &[("query", query), ("time", &time)]);
    // Every intact series is counted, and the answer contains a warning about the damage.
    let damaged = ask("count(kept)");
    assert_eq!(damaged.status, 200, "{}", damaged.body);
    let warning = damaged.json()["warnings"][0]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let name = page.file_name().unwrap().to_str().unwrap();
    assert!(
        warning.starts_with("damage: ") && warning.contains(name),
        "{}",
        damaged.body
    );
    let count = damaged.json()["data"]["result"][0]["value"][1].clone();
    let count: u64 = count.as_str().unwrap_or("0").parse().unwrap();
    assert!((512..1024).contains(&count), "{count}");
    let listed = http.get("/api/v1/status/tsdb").json()["data"]["damages"].clone();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    let sound = ask("kept{id=\"0000\"}");
    assert_eq!(sound.status, 200, "{}", sound.body);
    assert!(sound.body.contains("\"0.5\""), "{}", sound.body);
    let later = Series::new(&[("__name__", "later")], &[(time_ms, 1.0)]);
    let written = http.write(&body(&[later]));
    assert_eq!(written.status, 204, "{}", written.body);
}

/// Returns the file of `folder` with the greatest name.
fn newest_file(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder).unwrap();
    let newest = files.map(|file| file.unwrap().path()).max();
    newest.expect("the folder has a file")
}

/// Returns series of a few KiB that hardly compress.
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
