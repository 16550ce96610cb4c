//! `firn mirror` between a sender and receivers that fail in every possible way.

pub mod receiver;

use crate::harness::http::{Answer, Http};
use crate::harness::server::{Server, firn, spawn, wait_for};
use crate::harness::write::{Series, body, compress, message};
use crate::raw::Ask;
use crate::refusal::Refusal;
use crate::tls::{self, Authority};
use receiver::{Mood, Receiver};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn command(data: &Path, flags: &[&str]) -> Command {
    let mut command = firn();
    command.args(["mirror", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(data).args(flags);
    command
}

fn start(data: &Path, flags: &[&str]) -> Server {
    let server = Server::from_child(spawn(command(data, flags)));
    server.wait_ready();
    server
}

/// Starts a mirror with these receivers as targets.
fn start_for(data: &Path, receivers: &[&Receiver]) -> Server {
    let urls: Vec<String> = receivers.iter().map(|r| r.url()).collect();
    let flags: Vec<&str> = urls.iter().flat_map(|url| ["--target", url]).collect();
    start(data, &flags)
}

/// Starts a mirror with the config `text`.
fn start_with(dir: &Path, text: &str) -> Server {
    let file = dir.join("mirror.yml");
    std::fs::write(&file, text).unwrap();
    start(&dir.join("data"), &["--config", file.to_str().unwrap()])
}

/// Pushes `body` unchanged, because the mirror does not parse bodies.
fn push(http: &Http, body: &str) -> Answer {
    http.write(body.as_bytes())
}

fn push_all(http: &Http, bodies: &[String]) {
    for body in bodies {
        let answer = push(http, body);
        assert_eq!(answer.status, 204, "{body}: {}", answer.body);
    }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("body-{n:04}")).collect()
}

/// Returns the value of the metric line that begins with `name`.
fn metric(http: &Http, name: &str) -> f64 {
    let text = http.get("/metrics").body;
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Headers and body of a request.
type Request<'a> = (&'a [(&'a str, &'a str)], &'a [u8]);

#[test]
fn mirrored_bodies_have_the_bytes_and_headers_that_came() {
    let data = tempfile::tempdir().unwrap();
    let (one, two) = (Receiver::start(), Receiver::start());
    let mirror = start_for(data.path(), &[&one, &two]);
    let http = mirror.http();
    let series = Series::new(&[("__name__", "m")], &[(1, 0.5)]);
    let sound = body(&[series]);
    let v2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    let any: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let cases: [Request<'_>; 4] = [
        (
            &[
                ("Content-Type", "application/x-protobuf"),
                ("Content-Encoding", "snappy"),
                ("X-Prometheus-Remote-Write-Version", "0.1.0"),
            ],
            &sound,
        ),
        (
            &[
                ("Content-Type", v2),
                ("Content-Encoding", "snappy"),
                ("X-Prometheus-Remote-Write-Version", "2.0.0"),
            ],
            &any,
        ),
        (
            &[("Content-Encoding", "zstd"), ("X-Scope-OrgID", "a")],
            &any,
        ),
        (&[], b""),
    ];
    for (headers, bytes) in &cases {
        let answer = http.send("/api/v1/write", headers, bytes);
        assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    }
    let passed = [
        "content-type",
        "content-encoding",
        "x-prometheus-remote-write-version",
        "x-scope-orgid",
    ];
    for receiver in [&one, &two] {
        receiver.wait(cases.len());
        for (taken, (headers, bytes)) in receiver.taken().iter().zip(&cases) {
            assert!(taken.body == *bytes, "the bytes differ");
            for (name, value) in *headers {
                let line = format!("{}: {value}", name.to_lowercase());
                assert!(taken.headers.contains(&line), "{line}: {taken:?}");
            }
            let is_passed = |line: &&String| passed.iter().any(|name| line.starts_with(name));
            let count = taken.headers.iter().filter(is_passed).count();
            assert_eq!(count, headers.len(), "{:?}", taken.headers);
        }
        let name = format!(
            "firn_mirror_sent_bodies_total{{target=\"{}\"}}",
            receiver.address
        );
        wait_for("the count", || metric(&http, &name) == 4.0);
    }
    assert!(mirror.stop().success());
}

#[test]
fn mirror_tells_a_sender_of_2_0_what_its_body_holds() {
    let data = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let mirror = start_for(data.path(), &[&receiver]);
    // Two samples, a histogram and an exemplar.
    let message = b"\x22\x00\x2a\x0c\x12\x02\x10\x01\x12\x02\x10\x02\x1a\x00\x22\x00";
    let ask = Ask {
        method: "POST".into(),
        path: "/api/v1/write".into(),
        headers: vec![
            "Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request".into(),
            "Content-Encoding: snappy".into(),
        ],
        body: compress(message),
    };
    let reply = ask.send(&mirror.address);
    assert_eq!(reply.status, 204, "{}", reply.head);
    for line in [
        "samples-written: 2",
        "histograms-written: 1",
        "exemplars-written: 1",
    ] {
        let line = format!("x-prometheus-remote-write-{line}");
        assert!(reply.head.to_lowercase().contains(&line), "{}", reply.head);
    }
}

#[test]
fn mirror_with_a_web_config_takes_writes_over_tls_and_from_its_users_alone() {
    // Hash for the user `alice` with the password `correct horse`, with bcrypt's lowest cost.
    let hash = "$2b$04$UWvd1gRyIa0XmxZcUUcNXeuNsipcyb1Zjflic0OVHWqVNndXOmDd2";
    let known = "Authorization: Basic YWxpY2U6Y29ycmVjdCBob3JzZQ==";
    let dir = tempfile::tempdir().unwrap();
    let (authority, receiver) = (Authority::new(), Receiver::start());
    authority.server().write(dir.path(), "server");
    let web = format!(
        "tls_server_config: {{cert_file: server.crt, key_file: server.key}}\n\
         basic_auth_users: {{alice: '{hash}'}}\n"
    );
    let file = dir.path().join("web.yml");
    std::fs::write(&file, web).unwrap();
    let url = receiver.url();
    let flags = [
        "--target",
        &url,
        "--web.config.file",
        file.to_str().unwrap(),
    ];
    let mirror = Server::from_child(spawn(command(&dir.path().join("data"), &flags)));
    mirror.wait_log(" msg=ready");
    let client = authority.client(None, &[]);
    let ask = |method: &str, path: &str, headers: &[&str]| {
        let ask = Ask {
            method: method.into(),
            headers: headers.iter().map(|h| (*h).to_owned()).collect(),
            body: b"one".to_vec(),
            ..Ask::get(path)
        };
        tls::send(&client, &mirror.address, &ask).unwrap()
    };
    let wrong = "Authorization: Basic YWxpY2U6Y29ycmVjdCBtdWxl";
    for (method, path) in [
        ("POST", "/api/v1/write"),
        ("POST", "/-/reload"),
        ("GET", "/metrics"),
    ] {
        for headers in [&[][..], &[wrong]] {
            let reply = ask(method, path, headers);
            assert_eq!(reply.status, 401, "{path} {headers:?}: {}", reply.head);
        }
    }
    assert_eq!(ask("POST", "/api/v1/write", &[known]).status, 204);
    receiver.wait(1);
    assert_eq!(receiver.texts(), ["one"]);
    let metrics = ask("GET", "/metrics", &[known]);
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(
        metrics.contains("firn_server_requests_unauthenticated_total 6\n"),
        "{metrics}"
    );
    // A client without TLS gets no answer.
    let plain = Ask::get("/-/healthy");
    let mut stream = std::net::TcpStream::connect(&mirror.address).unwrap();
    let plain = plain.send_over(&mut stream);
    assert!(plain.is_err() || plain.is_ok_and(|reply| reply.status != 200));

    let broken = dir.path().join("broken.yml");
    std::fs::write(&broken, "basic_auth_users: {alice: secret}\n").unwrap();
    let flags = [
        "--target",
        &url,
        "--web.config.file",
        broken.to_str().unwrap(),
    ];
    let output = command(&dir.path().join("other"), &flags).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("load web config: "), "{text}");
}

#[test]
fn requests_that_are_no_writes_are_refused_and_operators_are_answered() {
    let data = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let mirror = start_for(data.path(), &[&receiver]);
    let http = mirror.http();
    assert_eq!(http.get("/-/healthy").status, 200);
    assert_eq!(http.get("/-/ready").status, 200);
    assert_eq!(http.get("/api/v1/write").status, 405);
    assert_eq!(http.get("/api/v1/query?query=up").status, 404);
    let foreign = http.send("/api/v1/write", &[("Origin", "http://evil.example")], b"x");
    assert_eq!(foreign.status, 403, "{}", foreign.body);
    let long = Ask {
        method: "POST".into(),
        path: "/api/v1/write".into(),
        body: vec![0; (64 << 20) + 1],
        ..Ask::default()
    };
    let reply = long.send(&mirror.address);
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!(reply.status, 413, "{said}");
    assert!(said.contains("limit"), "{said}");
    assert_eq!(push(&http, "after").status, 204);
    receiver.wait(1);
    assert_eq!(receiver.texts(), ["after"]);
}

#[test]
fn target_that_fails_in_every_way_gets_all_bodies_once_in_order_and_no_other_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (good, mut bad) = (Receiver::start(), Receiver::start());
    let config = format!(
        "targets:
- {{url: 'http://{}/api/v1/write'}}
- {{url: 'http://{}/api/v1/write', remote_timeout: 300ms, queue: {{max_backoff: 200ms}}}}
",
        good.address, bad.address
    );
    let mirror = start_with(dir.path(), &config);
    let http = mirror.http();
    let all = numbers(0..80);
    let itself = format!("Location: {}\r\n", bad.url());
    let moods = [
        ("server", Mood::status(500)),
        ("timeout", Mood::Hangs),
        ("connection", Mood::Cuts),
        ("throttled", Mood::Says(429, "Retry-After: 1\r\n".into())),
        ("redirect", Mood::Says(307, itself.clone())),
        ("redirect", Mood::Says(302, itself)),
    ];
    let mut pushed = 0;
    for (reason, mood) in moods {
        let name = format!(
            "firn_mirror_repeated_attempts_total{{reason=\"{reason}\",target=\"{}\"}}",
            bad.address
        );
        let before = metric(&http, &name);
        bad.set(mood);
        push_all(&http, &all[pushed..pushed + 10]);
        pushed += 10;
        // The other receiver gets all bodies, independent of this one.
        good.wait(pushed);
        wait_for(&name, || metric(&http, &name) > before);
        bad.set(Mood::status(200));
        bad.wait(pushed);
    }
    bad.die();
    push_all(&http, &all[pushed..pushed + 10]);
    pushed += 10;
    good.wait(pushed);
    bad.revive();
    bad.wait(pushed);
    push_all(&http, &all[pushed..]);
    for receiver in [&good, &bad] {
        receiver.wait(all.len());
        assert_eq!(receiver.texts(), all);
    }
    let failing = format!("firn_mirror_target_failing{{target=\"{}\"}}", bad.address);
    wait_for("the end of trouble", || metric(&http, &failing) == 0.0);
    assert!(mirror.stop().success());
}

#[test]
fn body_that_a_target_refuses_is_counted_named_in_the_log_and_not_sent_again() {
    let data = tempfile::tempdir().unwrap();
    let (good, picky) = (Receiver::start(), Receiver::start());
    let mirror = start_for(data.path(), &[&good, &picky]);
    let http = mirror.http();
    picky.set(Mood::status(400));
    push_all(&http, &numbers(0..1));
    mirror.wait_log("target rejected a body");
    mirror.wait_log("no-no");
    let refused = format!(
        "firn_mirror_lost_bodies_total{{reason=\"refused\",target=\"{}\"}}",
        picky.address
    );
    wait_for("the count", || metric(&http, &refused) == 1.0);
    picky.set(Mood::status(204));
    push_all(&http, &numbers(1..3));
    picky.wait(2);
    assert_eq!(picky.texts(), numbers(1..3));
    good.wait(3);
    assert_eq!(good.texts(), numbers(0..3));
    assert_eq!(picky.requests(), 3);
}

#[test]
fn acked_bodies_survive_a_kill_and_a_target_gets_the_last_second_again_at_most() {
    let data = tempfile::tempdir().unwrap();
    let (good, away) = (Receiver::start(), Receiver::start());
    let mut acked = 0;
    for round in 0..4 {
        let mirror = start_for(data.path(), &[&good, &away]);
        let http = mirror.http();
        match round {
            1 => away.set(Mood::status(503)),
            3 => away.set(Mood::status(204)),
            _ => {}
        }
        // Everything up to this time after the start of the pushes was stored.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1_500) {
            push_all(&http, &numbers(acked..acked + 1));
            acked += 1;
        }
        mirror.kill();
    }
    let mirror = start_for(data.path(), &[&good, &away]);
    push_all(&mirror.http(), &["last".to_owned()]);
    let all: Vec<String> = numbers(0..acked)
        .into_iter()
        .chain(["last".into()])
        .collect();
    for receiver in [&good, &away] {
        wait_for("the last one", || receiver.texts().last() == all.last());
        let got = receiver.texts();
        let mut next = 0;
        let mut repeated = 0;
        for text in &got {
            let at = all.binary_search(text).unwrap_or(all.len() - 1);
            // Either the next body, or an earlier one from which all are repeated.
            assert!(at <= next, "{text} came before {}", all[next]);
            repeated += next - at;
            next = at + 1;
        }
        assert_eq!(next, all.len());
        // Four kills; a round pushes for a second and a half.
        let most = acked * 2 / 3;
        assert!(repeated <= most, "{repeated} of {acked} again");
    }
    assert!(mirror.stop().success());
}

#[test]
fn target_at_its_bound_loses_its_oldest_bodies_and_no_other_does() {
    let dir = tempfile::tempdir().unwrap();
    let (good, away) = (Receiver::start(), Receiver::start());
    let config = format!(
        "targets:
- {{url: 'http://{}/api/v1/write'}}
- {{url: 'http://{}/api/v1/write', name: small, queue: {{max_bytes: 64KB, max_backoff: 100ms}}}}
",
        good.address, away.address
    );
    let mirror = start_with(dir.path(), &config);
    let http = mirror.http();
    away.set(Mood::status(503));
    let bodies: Vec<String> = (0..100)
        .map(|n| format!("{n:04}{}", "x".repeat(4092)))
        .collect();
    push_all(&http, &bodies);
    good.wait(bodies.len());
    assert_eq!(good.texts(), bodies);
    let waiting = "firn_mirror_queue_bytes{target=\"small\"}";
    wait_for("the bound", || {
        metric(&http, waiting) <= f64::from(64 << 10)
    });
    away.set(Mood::status(200));
    away.wait(15);
    wait_for("the rest", || metric(&http, waiting) == 0.0);
    let got = away.texts();
    assert_eq!(got, bodies[bodies.len() - got.len()..]);
    let lost = "firn_mirror_lost_bodies_total{reason=\"queue_full\",target=\"small\"}";
    assert_eq!(metric(&http, lost) as usize, bodies.len() - got.len());
}

#[test]
fn filters_send_whole_series_and_leave_other_targets_the_bytes_that_came() {
    let dir = tempfile::tempdir().unwrap();
    let (all, jobs, half) = (Receiver::start(), Receiver::start(), Receiver::start());
    let config = format!(
        "targets:
- {{url: 'http://{}/w'}}
- {{url: 'http://{}/w', match: ['{{job=\"a\"}}', '{{job=~\"b.*\",i=\"1\"}}']}}
- {{url: 'http://{}/w', sampling: 0.5, headers: {{X-Scope-OrgID: half}}}}
",
        all.address, jobs.address, half.address
    );
    let mirror = start_with(dir.path(), &config);
    let series = |job: &str, i: usize| {
        let i = i.to_string();
        let labels = [("__name__", "m"), ("i", &*i), ("job", job)];
        Series::new(&labels, &[(1, 0.5)])
    };
    let every: Vec<Series> = ["a", "bb", "c"]
        .iter()
        .flat_map(|job| (0..100).map(move |i| series(job, i)))
        .collect();
    let sent = body(&every);
    assert_eq!(mirror.http().write(&sent).status, 204);
    for receiver in [&all, &jobs, &half] {
        receiver.wait(1);
    }
    let unpacked = |receiver: &Receiver| {
        let packed = &receiver.taken()[0].body;
        snap::raw::Decoder::new().decompress_vec(packed).unwrap()
    };
    assert!(all.taken()[0].body == sent);
    let wanted: Vec<Series> = (0..100)
        .map(|i| series("a", i))
        .chain([series("bb", 1)])
        .collect();
    assert!(unpacked(&jobs) == message(&wanted));
    let ratio = unpacked(&half).len() as f64 / message(&every).len() as f64;
    assert!((0.4..0.6).contains(&ratio), "{ratio}");
    let tenant = "x-scope-orgid: half".to_owned();
    assert!(half.taken()[0].headers.contains(&tenant));
}

#[test]
fn reload_takes_new_targets_over_and_a_bad_config_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Receiver::start(), Receiver::start());
    let target = |receiver: &Receiver| format!("- {{url: '{}'}}\n", receiver.url());
    let mirror = start_with(dir.path(), &format!("targets:\n{}", target(&one)));
    let http = mirror.http();
    push_all(&http, &numbers(0..2));
    one.wait(2);
    let write = |text: &str| std::fs::write(dir.path().join("mirror.yml"), text).unwrap();
    let good = "firn_config_last_reload_successful";
    write("targets:\n- {url: nowhere}\n");
    let answer = http.post("/-/reload", &[]);
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert!(
        answer.body.contains("mirror.yml:2:9: url: "),
        "{}",
        answer.body
    );
    assert_eq!(metric(&http, good), 0.0);
    write(&format!("targets:\n{}{}", target(&one), target(&two)));
    mirror.signal(rustix::process::Signal::HUP);
    wait_for("the reload", || metric(&http, good) == 1.0);
    push_all(&http, &numbers(2..4));
    one.wait(4);
    two.wait(2);
    assert_eq!(one.texts(), numbers(0..4));
    assert_eq!(two.texts(), numbers(2..4));
    write(&format!("targets:\n{}", target(&two)));
    let answer = http.post("/-/reload", &[]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    push_all(&http, &numbers(4..5));
    two.wait(3);
    assert_eq!(one.texts(), numbers(0..4));
    let metrics = http.get("/metrics").body;
    assert!(!metrics.contains(&one.address), "{metrics}");
}

#[test]
fn mirror_stops_with_success_beside_a_target_that_hangs() {
    let data = tempfile::tempdir().unwrap();
    let hung = Receiver::start();
    hung.set(Mood::Hangs);
    let mirror = start_for(data.path(), &[&hung]);
    push_all(&mirror.http(), &numbers(0..2));
    wait_for("an attempt", || hung.requests() > 0);
    assert!(mirror.stop().success());
    hung.set(Mood::status(204));
    let _mirror = start_for(data.path(), &[&hung]);
    hung.wait(2);
    assert_eq!(hung.texts(), numbers(0..2));
}

/// Starts a mirror on its own file system of a given size, in a mount namespace of the process.
/// Also returns the path of that file system outside the namespace.
fn start_on_small_disk(folder: &Path, megabytes: u32, flags: &[&str]) -> (Server, PathBuf) {
    let script = "mount -t tmpfs -o size=\"$1\" firn \"$2\" && shift 2 && exec \"$@\"";
    let mirror = command(&folder.join("data"), flags);
    let mut mounted = Command::new("unshare");
    mounted.args(["-rm", "sh", "-c", script, "sh"]);
    mounted.arg(format!("{megabytes}m")).arg(folder);
    mounted.arg(mirror.get_program()).args(mirror.get_args());
    let server = Server::from_child(spawn(mounted));
    server.wait_ready();
    let root = format!("/proc/{}/root", server.pid().as_raw_nonzero());
    let inside = folder.strip_prefix("/").unwrap();
    (server, Path::new(&root).join(inside))
}

#[test]
fn disk_that_is_full_answers_503_and_takes_bodies_again_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (good, away) = (Receiver::start(), Receiver::start());
    away.set(Mood::status(503));
    let flags = ["--target", &good.url(), "--target", &away.url()];
    let (mirror, inside) = start_on_small_disk(folder.path(), 8, &flags);
    let http = mirror.http();
    let large = |n: usize| format!("{n:04}{}", "x".repeat(500_000));
    let mut acked = Vec::new();
    // Pushes until the answer has this status, and returns its text.
    let mut push_until = |status: u16| {
        let mut said = String::new();
        wait_for(&format!("an answer {status}"), || {
            let body = large(acked.len());
            let answer = push(&http, &body);
            if answer.status == 204 {
                acked.push(body);
            }
            said = answer.body;
            answer.status == status
        });
        said
    };
    push_until(204);
    let filler = inside.join("filler");
    // A file of another program uses all free space.
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 1 << 16]).is_ok() {}
    drop(file);
    let said = push_until(503);
    assert!(said.contains("No space left"), "{said}");
    assert_eq!(http.get("/-/ready").status, 200, "it is a state that ends");
    assert_eq!(metric(&http, "firn_mirror_disk_failing"), 1.0);
    std::fs::remove_file(&filler).unwrap();
    let freed = Instant::now();
    push_until(204);
    assert!(freed.elapsed() < Duration::from_secs(15));
    // The queue of the unreachable receiver fills the disk. Once it is delivered, there is space.
    push_until(503);
    away.set(Mood::status(204));
    let freed = Instant::now();
    push_until(204);
    assert!(freed.elapsed() < Duration::from_secs(15));
    for receiver in [&good, &away] {
        wait_for("the last one", || receiver.texts().last() == acked.last());
        assert!(receiver.texts() == acked, "acked bodies, once, in order");
    }
    assert!(acked.len() > 10, "{}", acked.len());
    assert_eq!(metric(&http, "firn_mirror_disk_failing"), 0.0);
    assert!(mirror.stop().success());
}

#[test]
fn command_lines_and_folders_that_cannot_be_used_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |flags: &[&str]| Refusal::of(command(dir.path(), flags));
    let url = "http://127.0.0.1:1/w";
    for flags in [
        &[][..],
        &["--target", url, "--config", "x"],
        &["--taget", url],
        &["--target", url, "--listen", "x"],
    ] {
        let refusal = refused(flags);
        assert_eq!(refusal.code, Some(2), "{flags:?}: {}", refusal.stderr);
        assert!(refusal.stderr.starts_with("firn: "), "{}", refusal.stderr);
    }
    for (flags, expected) in [
        (&["--target", "127.0.0.1:1/w"][..], "flag --target: "),
        (&["--target", "ftp://x/w"], "does not begin with http://"),
        (&["--target", "http://u:p@x/w"], "use basic_auth"),
        (&["--target", url, "--target", url], "duplicate target name"),
        (&["--config", "/nowhere.yml"], "/nowhere.yml: No such file"),
    ] {
        let refusal = refused(flags);
        assert_eq!(refusal.code, Some(1), "{flags:?}: {}", refusal.stderr);
        assert!(refusal.line().contains(expected), "{}", refusal.line());
    }
    let receiver = Receiver::start();
    let _mirror = start_for(dir.path(), &[&receiver]);
    let refusal = refused(&["--target", url]);
    assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
    assert!(refusal.line().contains("in use"), "{}", refusal.line());
}
