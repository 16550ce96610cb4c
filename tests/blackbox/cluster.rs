//! `firn cluster check` with a folder, with invalid URLs and with a store that cannot be reached;
//! `status` and `drain` with servers that are no nodes.

use crate::harness::server::{Server, firn};

/// The exit code, the output and the errors of `firn cluster check URL`.
fn check(url: &str, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    run(&["check", url], variables)
}

/// The exit code, the output and the errors of `firn cluster` with these arguments.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = firn()
        .arg("cluster")
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn cluster_check_of_a_folder_accepts_it_and_leaves_no_object() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = folder.path().join("bucket");
    let (code, out, err) = check(&format!("file://{}", bucket.display()), &[]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("accepted"), "{out}");
    let mut left = Vec::new();
    let mut folders = vec![bucket];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                left.push(path);
            }
        }
    }
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn cluster_check_names_the_fault_of_a_url() {
    for (url, fault) in [
        ("bucket", "it has no scheme"),
        ("ftp://bucket", "the scheme is not supported"),
        ("gs://bucket", "will be supported by version"),
        ("s3://", "the name of the bucket"),
        ("file://relative", "the path must be absolute"),
    ] {
        let (code, out, err) = check(url, &[]);
        assert_eq!(code, Some(2), "{url}: {out}{err}");
        assert!(
            err.starts_with("firn cluster check: ") && err.contains(fault),
            "{url}: {err}"
        );
        assert!(out.is_empty(), "{url}: {out}");
    }
}

#[test]
fn cluster_check_of_an_unreachable_store_fails_without_showing_the_secret() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", port.local_addr().unwrap());
    drop(port);
    let variables = [
        ("AWS_ENDPOINT_URL", address.as_str()),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "hidden-secret"),
    ];
    let (code, out, err) = check("s3://bucket/prefix", &variables);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(
        out.contains("refused") || out.contains("not finished"),
        "{out}{err}"
    );
    assert!(
        !format!("{out}{err}").contains("hidden-secret"),
        "{out}{err}"
    );
}

#[test]
fn cluster_check_takes_the_bucket_from_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("firn.yml");
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = firn();
        command.args(["cluster", "check", "--config"]).arg(&file);
        let output = command.output().expect("the binary runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), errors)
    };
    let bucket = folder.path().join("bucket");
    let text = format!(
        "firn: {{cluster: {{bucket: \"file://{}\"}}}}\n",
        bucket.display()
    );
    assert_eq!(run(&text).0, Some(0));
    let (code, errors) = run("global: {}\n");
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("there is no section firn.cluster"),
        "{errors}"
    );
}

#[test]
fn cluster_status_and_drain_of_other_servers_give_the_reason() {
    let data = tempfile::tempdir().unwrap();
    let closed = Server::start(&data.path().join("closed"), &[]);
    let open = Server::start(&data.path().join("open"), &["--web.enable-lifecycle"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = port.local_addr().unwrap().to_string();
    drop(port);
    let no_node = "this server is not a node of a cluster: firn.cluster is not set";
    for (arguments, code, fault) in [
        (&["status", &closed.address][..], 1, no_node),
        (&["status", "--json", &closed.address], 1, no_node),
        (
            &["drain", &closed.address],
            1,
            "/-/drain: status 403: Lifecycle API is not enabled.",
        ),
        (&["drain", &open.address], 1, no_node),
        (&["drain", "--undo", &open.address], 1, no_node),
        (&["status", &nobody], 1, "refused"),
        (&["drain", "http://a b"], 2, "parse \"http://a b/-/drain\""),
        (&["status", "--http.config.file", "/none", "a"], 2, "/none"),
    ] {
        let (found, out, err) = run(arguments, &[]);
        assert_eq!(found, Some(code), "{arguments:?}: {out}{err}");
        let start = format!("firn cluster {}: ", arguments[0]);
        assert!(
            err.starts_with(&start) && err.contains(fault) && err.lines().count() == 1,
            "{arguments:?}: {err}"
        );
        assert!(out.is_empty(), "{arguments:?}: {out}");
    }
}
