//! Output and errors of a start: the URL of the page, the version, and nearly correct command
//! lines.

use crate::harness::server::{Server, command, firn, spawn, wait_for};
use crate::refusal::Refusal;
use crate::tls::Authority;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts a server on a folder with these flags, which contain an address.
fn server(data: &Path, flags: &[&str]) -> Server {
    let mut command = firn();
    command.args(["serve", "--data"]).arg(data).args(flags);
    let server = Server::from_child(spawn(command));
    server.wait_log(" msg=ready");
    server
}

/// Returns the URL in the log line `ready`.
fn url_of(server: &Server) -> String {
    let log = server.log();
    let line = log.iter().find(|line| line.contains(" msg=ready"));
    let (_, url) = line.and_then(|line| line.split_once(" url=")).unwrap();
    url.to_owned()
}

#[test]
fn url_of_a_ready_server_is_the_one_that_users_open() {
    let any = ["--listen", "127.0.0.1:0"];
    for (flags, want) in [
        (&any[..], "http://127.0.0.1:PORT"),
        (&["--listen", "0.0.0.0:0"], "http://localhost:PORT"),
        (&["--listen", ":0"], "http://localhost:PORT"),
        (
            &["--listen", "127.0.0.1:0", "--web.route-prefix=/x/"],
            "http://127.0.0.1:PORT/x",
        ),
        (
            &["--listen", "127.0.0.1:0", "--web.external-url=/y"],
            "http://127.0.0.1:PORT/y",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--web.external-url=https://metrics.example/z/",
                "--web.route-prefix=/",
            ],
            "https://metrics.example/z",
        ),
    ] {
        let data = tempfile::tempdir().unwrap();
        let server = server(data.path(), flags);
        let port = server.address.rsplit(':').next().unwrap();
        let url = url_of(&server);
        assert_eq!(url, want.replace("PORT", port), "{flags:?}");
        if !want.contains("example") {
            let path = url.split_once(&format!(":{port}")).unwrap().1;
            let page = server.http().get(&format!("{path}/"));
            assert_eq!(page.status, 200, "{flags:?}: {}", page.body);
        }
    }
}

#[test]
fn url_of_a_server_with_tls_is_https() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let pair = Authority::new().server();
    file("cert.pem", &pair.cert);
    file("key.pem", &pair.key);
    file(
        "web.yml",
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n",
    );
    let web = format!(
        "--web.config.file={}",
        folder.path().join("web.yml").display()
    );
    let server = server(&folder.path().join("data"), &["--listen=127.0.0.1:0", &web]);
    assert_eq!(url_of(&server), format!("https://{}", server.address));
}

#[test]
fn terminal_shows_what_to_open() {
    let data = tempfile::tempdir().unwrap();
    let written = data.path().join("typescript");
    let line = format!(
        "exec {} serve --listen 127.0.0.1:0 --data {}",
        env!("CARGO_BIN_EXE_firn"),
        data.path().join("data").display()
    );
    // Runs the server in a terminal and stops with it.
    let mut terminal = Command::new("script")
        .args(["--quiet", "--flush", "--command", &line])
        .arg(&written)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script of util-linux runs");
    let text = || std::fs::read_to_string(&written).unwrap_or_default();
    wait_for("a line for people", || {
        let text = text();
        let line = text
            .lines()
            .find(|line| line.starts_with("Firn is ready: "));
        line.is_some_and(|line| line.starts_with("Firn is ready: open http://127.0.0.1:"))
    });
    let owner = std::fs::read_to_string(data.path().join("data/LOCK")).unwrap();
    let owner = Pid::from_raw(owner.trim().parse().unwrap()).unwrap();
    kill_process(owner, Signal::TERM).unwrap();
    terminal.wait().unwrap();
}

#[test]
fn version_is_printed_as_prometheus_does() {
    let outputs = [&["--version"][..], &["serve", "--version"], &["version"]].map(|args| {
        let output = firn().args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}");
        assert_eq!(output.stderr, b"", "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    });
    let first = format!("firn, version {} (branch: ", env!("CARGO_PKG_VERSION"));
    assert!(outputs[0].starts_with(&first), "{}", outputs[0]);
    for part in [
        "revision: ",
        "\n  compatible with:  Prometheus 3.14.0\n",
        "\n  platform:         linux/",
    ] {
        assert!(outputs[0].contains(part), "{}", outputs[0]);
    }
    assert_eq!(outputs[0], outputs[1]);
    assert_eq!(outputs[0], outputs[2]);
}

#[test]
fn command_lines_that_are_nearly_right_get_the_right_one() {
    for (args, parts) in [
        (
            &["--config.file=x"][..],
            &[
                "firn: unexpected argument '--config.file",
                "firn serve --config.file=x\n",
            ][..],
        ),
        (
            &["--config", "x", "--no-agent"],
            &["firn serve --config x --no-agent\n"],
        ),
        (
            &["serve", "x.yml"],
            &[
                "firn: unexpected argument \"x.yml\"\n",
                "firn serve --config x.yml\n",
            ],
        ),
        (&["serve", "x"], &["see firn serve --help\n"]),
        (
            &["serv", "--config", "x"],
            &[
                "firn: unknown command \"serv\"\n",
                ": firn serve --config x\n",
            ],
        ),
        (
            &["help", "serv"],
            &["firn: unknown command \"serv\"\n", ": firn help serve\n"],
        ),
        (
            &["help", "tsdb", "verfy"],
            &[
                "firn: unknown command \"verfy\"\n",
                ": firn help tsdb verify\n",
            ],
        ),
    ] {
        let output = firn().args(args).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert_eq!(output.stdout, b"", "{args:?}");
        for part in parts {
            assert!(text.contains(part), "{args:?}: {part:?}: {text}");
        }
    }
}

#[test]
fn address_that_is_none_is_refused_before_anything_happens() {
    for (address, why) in [
        ("nonsense", "no port in address: \"nonsense\""),
        ("127.0.0.1:", "no port in address: \"127.0.0.1:\""),
        (
            "127.0.0.1:70000",
            "port out of range 0 to 65535 in address: \"127.0.0.1:70000\"",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = firn();
        command
            .current_dir(folder.path())
            .args(["serve", "--listen", address]);
        let refusal = Refusal::of(command);
        assert_eq!(refusal.code, Some(2), "{}", refusal.stderr);
        assert_eq!(refusal.stderr.lines().count(), 1, "{}", refusal.stderr);
        assert!(refusal.line().contains(why), "{}", refusal.stderr);
        assert!(refusal.line().contains("HOST:PORT"), "{}", refusal.stderr);
        assert!(!folder.path().join("data").exists());
    }
}

#[test]
fn address_in_use_is_named_with_a_remedy() {
    let data = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = firn();
    command
        .args(["serve", "--listen", &address, "--data"])
        .arg(data.path());
    let refusal = Refusal::of(command);
    assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
    for part in [
        &format!("listen on {address}: "),
        "in use",
        "--listen HOST:PORT",
    ] {
        assert!(refusal.line().contains(part), "{}", refusal.stderr);
    }
}

#[test]
fn folder_in_use_is_refused_before_the_port_is_opened() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let refusal = Refusal::of(command(data.path(), &[]));
    assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
    assert!(!refusal.stderr.contains("listening"), "{}", refusal.stderr);
    let line = refusal.line();
    let owner = format!("in use by another process ({})", server.pid().as_raw_pid());
    for part in [data.path().to_str().unwrap(), &owner, "--data"] {
        assert!(line.contains(part), "{line}");
    }
}
