//! `firn cluster check` with a folder, with invalid URLs and with a store that cannot be reached.

use crate::harness::server::firn;

/// The exit code, the output and the errors of `firn cluster check URL`.
fn check(url: &str, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = firn()
        .args(["cluster", "check", url])
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
