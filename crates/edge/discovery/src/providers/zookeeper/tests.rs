//! Tests against a ZooKeeper stub that stores nodes, answers requests and reports changes like a
//! real server.

use super::*;
use crate::stub::{damage_bytes, format_targets};
use firn_model::env::sim::{SimClock, SimRng};
use std::collections::BTreeSet;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Timeout for expected events; it elapses only in a failing test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Event types of the protocol.
const DELETED: i32 = 2;
const DATA: i32 = 3;
const CHILDREN: i32 = 4;

#[derive(Default)]
struct Held {
    nodes: BTreeMap<String, Vec<u8>>,
    data_watches: BTreeSet<String>,
    child_watches: BTreeSet<String>,
    /// Sender of frames to the only session.
    session: Option<UnboundedSender<Vec<u8>>>,
    sessions: usize,
}

#[derive(Clone)]
struct Server {
    address: String,
    held: Arc<Mutex<Held>>,
}

fn frame(body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len()).unwrap();
    [&length.to_be_bytes()[..], body].concat()
}

fn event(kind: i32, path: &str) -> Vec<u8> {
    let header = [
        &(-1i32).to_be_bytes()[..],
        &(-1i64).to_be_bytes(),
        &0i32.to_be_bytes(),
    ];
    let body = [&kind.to_be_bytes()[..], &3i32.to_be_bytes()];
    frame(
        &[
            &header.concat()[..],
            &body.concat(),
            &frame(path.as_bytes()),
        ]
        .concat(),
    )
}

fn parent(path: &str) -> String {
    path[..path.rfind('/').unwrap()].to_owned()
}

impl Held {
    fn send(&self, frame: Vec<u8>) {
        if let Some(session) = &self.session {
            let _ = session.send(frame);
        }
    }

    fn reply(&mut self, kind: i32, path: &str) -> (i32, Vec<u8>) {
        let Some(data) = self.nodes.get(path) else {
            return (-101, Vec::new());
        };
        let stat = [0; 68];
        if kind == 4 {
            self.data_watches.insert(path.to_owned());
            return (0, [&frame(data)[..], &stat].concat());
        }
        self.child_watches.insert(path.to_owned());
        let below: Vec<&String> = self.nodes.keys().filter(|p| parent(p) == path).collect();
        let mut body = i32::try_from(below.len()).unwrap().to_be_bytes().to_vec();
        for child in below {
            body.extend(frame(&child.as_bytes()[path.len() + 1..]));
        }
        (0, body)
    }
}

impl Server {
    async fn start(nodes: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap().to_string(),
            held: Arc::default(),
        };
        for (path, data) in nodes {
            server.set(path, data);
        }
        let own = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(own.clone().serve(stream));
            }
        });
        server
    }

    async fn serve(self, stream: TcpStream) {
        let (mut read, write) = stream.into_split();
        let (sender, mut frames) = unbounded_channel::<Vec<u8>>();
        {
            let mut held = self.held.lock().unwrap();
            (held.data_watches, held.child_watches) = Default::default();
            held.session = Some(sender.clone());
            held.sessions += 1;
        }
        tokio::spawn(async move {
            let mut write: OwnedWriteHalf = write;
            while let Some(frame) = frames.recv().await {
                if frame.is_empty() || write.write_all(&frame).await.is_err() {
                    return;
                }
            }
        });
        let mut is_first = true;
        while let Ok(length) = read.read_u32().await {
            let mut body = vec![0; length as usize];
            read.read_exact(&mut body).await.unwrap();
            let int = |at: usize| i32::from_be_bytes(body[at..at + 4].try_into().unwrap());
            if std::mem::take(&mut is_first) {
                // Response: version 0, the requested timeout, a session id, an empty password.
                let answer = [
                    &[0; 4][..],
                    &body[12..16],
                    &[0, 0, 0, 0, 0, 0, 0, 9],
                    &[0; 4],
                ];
                sender.send(frame(&answer.concat())).unwrap();
                continue;
            }
            let (number, kind) = (int(0), int(4));
            let (error, answer) = match kind {
                11 => (0, Vec::new()),
                kind => {
                    let path = String::from_utf8(body[12..12 + int(8) as usize].to_vec()).unwrap();
                    assert_eq!(body.last(), Some(&1), "nothing is read without a watch");
                    self.held.lock().unwrap().reply(kind, &path)
                }
            };
            let header = [
                &number.to_be_bytes()[..],
                &7i64.to_be_bytes(),
                &error.to_be_bytes(),
            ];
            let all = [&header.concat()[..], &answer].concat();
            sender.send(frame(&all)).unwrap();
        }
    }

    /// Creates or changes a node and sends the events of its watches.
    fn set(&self, path: &str, data: &str) {
        let mut held = self.held.lock().unwrap();
        let is_new = held.nodes.insert(path.to_owned(), data.into()).is_none();
        if !is_new && held.data_watches.remove(path) {
            held.send(event(DATA, path));
        }
        if is_new && held.child_watches.remove(&parent(path)) {
            held.send(event(CHILDREN, &parent(path)));
        }
    }

    fn delete(&self, path: &str) {
        let mut held = self.held.lock().unwrap();
        held.nodes.remove(path);
        let has_data = held.data_watches.remove(path);
        if held.child_watches.remove(path) | has_data {
            held.send(event(DELETED, path));
        }
        if held.child_watches.remove(&parent(path)) {
            held.send(event(CHILDREN, &parent(path)));
        }
    }

    /// Ends the session like a crashing server, after sending `frame`.
    fn cut(&self, frame: &[u8]) {
        let mut held = self.held.lock().unwrap();
        held.send(frame.to_vec());
        // An empty frame closes the connection.
        held.send(Vec::new());
        held.session = None;
    }

    fn sessions(&self) -> usize {
        self.held.lock().unwrap().sessions
    }
}

/// A running discovery and its published list.
struct Running {
    to: Arc<PublishedTargets>,
    changed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(server: &Server, member: ZookeeperMember, paths: &[&str], bytes_max: u64) -> Self {
        let settings = ZookeeperSettings {
            member,
            servers: vec![server.address.clone()],
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            timeout: Duration::from_secs(10),
        };
        let mut watch = ZookeeperDiscovery::new(&settings, bytes_max);
        watch.retry = Duration::from_millis(20);
        let changed = Arc::new(Notify::new());
        let clock = Arc::new(SimClock::default());
        let to = Arc::new(PublishedTargets::new(changed.clone(), clock));
        let task = tokio::spawn(watch.run(to.clone()));
        Self { to, changed, task }
    }

    /// Waits until the published targets are `want`.
    async fn shows(&self, want: &[&str]) {
        let shows = async {
            loop {
                let groups = self.to.groups().unwrap_or_default();
                if format_targets(&groups) == want {
                    return;
                }
                self.changed.notified().await;
            }
        };
        if timeout(PATIENCE, shows).await.is_err() {
            let groups = self.to.groups().unwrap_or_default();
            assert_eq!(format_targets(&groups), want);
        }
    }

    async fn fails(&self, count: u64) {
        let fails = async {
            while self.to.failures.get() < count {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, fails).await.unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

const MEMBER: &str = r#"{"serviceEndpoint": {"host": "10.0.0.1", "port": 80},
  "additionalEndpoints": {"http-admin": {"host": "10.0.0.2", "port": 81}},
  "status": "ALIVE", "shard": 3}"#;

#[tokio::test]
async fn members_of_a_serverset_become_targets_and_follow_their_nodes() {
    let server = Server::start(&[("/a", ""), ("/a/m1", MEMBER), ("/a/no", "{"), ("/b", "")]).await;
    let running = Running::start(&server, ZookeeperMember::Serverset, &["/a", "/b"], 1 << 20);
    let first = "10.0.0.1:80 serverset_endpoint_host=10.0.0.1 \
                 serverset_endpoint_host_http_admin=10.0.0.2 serverset_endpoint_port=80 \
                 serverset_endpoint_port_http_admin=81 serverset_path=/a/m1 serverset_shard=3 \
                 serverset_status=ALIVE";
    running.shows(&[first]).await;
    let bare = |host: &str, path: &str| {
        format!(
            "{host}:80 serverset_endpoint_host={host} serverset_endpoint_port=80 \
             serverset_path={path} serverset_shard=0"
        )
    };
    // Adds a node, a node deep below it and a member in an existing node, and then removes a node.
    let endpoint =
        |host: &str| format!(r#"{{"serviceEndpoint": {{"host": "{host}", "port": 80}}}}"#);
    server.set("/b/x", "");
    server.set("/b/x/deep", &endpoint("h1"));
    let deep = bare("h1", "/b/x/deep");
    running.shows(&[first, &deep]).await;
    server.set("/a/no", &endpoint("h2"));
    let second = bare("h2", "/a/no");
    running.shows(&[first, &second, &deep]).await;
    server.delete("/a/m1");
    running.shows(&[&second, &deep]).await;
    server.delete("/b/x/deep");
    server.delete("/b/x");
    running.shows(&[&second]).await;
    assert_eq!(server.sessions(), 1);
}

#[tokio::test]
async fn members_of_nerve_stay_while_the_server_is_away_and_are_read_anew() {
    let member = |host: &str| format!(r#"{{"host": "{host}", "port": 1, "name": "n"}}"#);
    let (a, b) = (member("h1"), member("::1"));
    let server = Server::start(&[("/s", ""), ("/s/a", &a), ("/s/b", &b)]).await;
    let running = Running::start(&server, ZookeeperMember::Nerve, &["/s"], 1 << 20);
    let of = |address: &str, host: &str, path: &str| {
        format!(
            "{address}:1 nerve_endpoint_host={host} nerve_endpoint_name=n nerve_endpoint_port=1 \
             nerve_path={path}"
        )
    };
    let (one, two) = (of("h1", "h1", "/s/a"), of("[::1]", "::1", "/s/b"));
    running.shows(&[&one, &two]).await;
    // A node is removed while the session is broken, by a closed connection and by invalid data.
    for broken in [vec![], frame(&[0; 3]), vec![0x7f, 0xff, 0xff, 0xff]] {
        let failures = running.to.failures.get();
        let sessions = server.sessions();
        server.cut(&broken);
        running.fails(failures + 1).await;
        while server.sessions() == sessions {
            tokio::task::yield_now().await;
        }
        running.shows(&[&one, &two]).await;
    }
    let failures = running.to.failures.get();
    server.held.lock().unwrap().nodes.remove("/s/a");
    server.cut(&[]);
    running.fails(failures + 1).await;
    running.shows(&[&two]).await;
}

#[tokio::test]
async fn path_that_is_not_there_is_looked_for_and_others_are_followed_meanwhile() {
    let member = r#"{"host": "h", "port": 1, "name": "n"}"#;
    let server = Server::start(&[("/is", member)]).await;
    let running = Running::start(
        &server,
        ZookeeperMember::Nerve,
        &["/is", "/is-not"],
        1 << 20,
    );
    let of = |path: &str| {
        format!(
            "h:1 nerve_endpoint_host=h nerve_endpoint_name=n nerve_endpoint_port=1 \
             nerve_path={path}"
        )
    };
    running.shows(&[&of("/is")]).await;
    server.set("/is-not", member);
    running.shows(&[&of("/is"), &of("/is-not")]).await;
}

#[tokio::test]
async fn more_bytes_than_the_bound_are_refused() {
    let server = Server::start(&[("/a", "0123456789")]).await;
    let running = Running::start(&server, ZookeeperMember::Nerve, &["/a"], 9);
    running.fails(2).await;
    assert!(running.to.groups().is_none());
}

/// A damaged member yields at most one target, with valid label names, for arbitrary data.
#[test]
fn member_that_is_damaged_is_one_target_or_none() {
    let nerve = r#"{"host": "10.0.0.1", "port": 80, "name": "n-1", "weight": null}"#;
    let parts: [&[u8]; 9] = [
        b"", b"{", b"}", b"null", b"\"", b":", b"-1", b"1e999", b"\xff",
    ];
    let mut found = 0;
    for seed in 0..3_000 {
        let rng = SimRng::new(seed);
        for (kind, whole) in [
            (ZookeeperMember::Serverset, MEMBER),
            (ZookeeperMember::Nerve, nerve),
        ] {
            let mut bytes = whole.as_bytes().to_vec();
            for _ in 0..rng.next_below(4) {
                damage_bytes(&mut bytes, &parts, &rng);
            }
            let Some(group) = kind.decode_member("/a/b", &bytes) else {
                continue;
            };
            let context = format!("seed {seed}: {}", String::from_utf8_lossy(&bytes));
            assert_eq!(group.targets.len(), 1, "{context}");
            let is_valid = |name: &String| {
                let mut bytes = name.bytes();
                name.starts_with("__meta_") && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
            };
            assert!(group.labels.keys().all(is_valid), "{context}: {group:?}");
            found += 1;
        }
    }
    assert!(found > 1_500, "{found} members are left");
}
