//! A real S3 server, versitygw, whose objects are files in a temporary folder.
//!
//! Tests that need it are skipped without it; `tests/install/programs.sh` builds it where Go is
//! installed.

use super::cluster::wait_within;
use super::server::DEADLINE;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The name of the bucket. Its objects are in a folder of this name.
pub const BUCKET: &str = "metrics";

/// The credentials of the server.
const ACCESS_KEY: &str = "cluster";
pub const SECRET_KEY: &str = "cluster-secret";

/// A running S3 server, which is killed on drop.
pub struct VersityServer {
    child: Child,
    folder: TempDir,
    /// Address as `127.0.0.1:port`.
    pub address: String,
}

impl VersityServer {
    /// Starts a server with an empty bucket. Returns `None`, and prints the reason, if it is not
    /// installed.
    pub fn start() -> Option<Self> {
        let program = find_program()?;
        let folder = tempfile::tempdir().unwrap();
        for name in ["buckets/metrics", "metadata"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("access.key"), ACCESS_KEY).unwrap();
        std::fs::write(folder.path().join("secret.key"), SECRET_KEY).unwrap();
        let address = free_address();
        let mut command = Command::new(program);
        command.args(["--access", ACCESS_KEY, "--secret", SECRET_KEY]);
        command.args(["--port", &address, "--quiet", "posix", "--sidecar"]);
        command.arg(folder.path().join("metadata"));
        command.arg(folder.path().join("buckets"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().expect("versitygw");
        let server = Self {
            child,
            folder,
            address,
        };
        wait_within("versitygw to listen", DEADLINE, || {
            TcpStream::connect(&server.address).is_ok()
        });
        Some(server)
    }

    /// Returns the folder of the buckets, which contains the objects as files.
    pub fn buckets(&self) -> PathBuf {
        self.folder.path().join("buckets")
    }

    /// Returns keys of `firn.cluster` for the objects below `prefix`, at the server itself or at a
    /// proxy before it.
    pub fn cluster_keys(&self, prefix: &str, address: &str) -> [(&'static str, String); 2] {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let (access, secret) = (file("access.key"), file("secret.key"));
        let options = format!(
            "{{endpoint: \"http://{address}\", region: us-east-1, \
             access_key_file: \"{access}\", secret_key_file: \"{secret}\"}}"
        );
        [
            ("bucket", format!("s3://{BUCKET}/{prefix}")),
            ("bucket_options", options),
        ]
    }

    /// Gives a command the credentials and the address of the server.
    pub fn apply(&self, command: &mut Command) {
        command.env("AWS_ENDPOINT_URL", format!("http://{}", self.address));
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY);
        command.env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        command.env("AWS_REGION", "us-east-1");
    }
}

impl Drop for VersityServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address on which nothing listens now.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn find_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("versitygw"));
    let found = in_path.chain([built_program()]).find(|file| file.exists());
    if found.is_none() {
        println!(
            "skipped: no versitygw in PATH, and none built by tests/install/programs.sh with \
             FIRN_BUILD_VERSITYGW=1"
        );
    }
    found
}

/// Returns the program that `tests/install/programs.sh` builds.
fn built_program() -> PathBuf {
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    cache.join("firn/versitygw")
}
