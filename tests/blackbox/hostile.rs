//! Clients that are slow, endless or too many: other clients are still served.

use crate::Kept;
use crate::harness::server::{DEADLINE, Server, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Opens a connection without sending anything.
pub fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(&server.address).expect("the server listens");
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.set_write_timeout(Some(DEADLINE)).unwrap();
    socket
}

/// Reads until the server closes the connection, and returns the text.
fn read_to_end(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn body_without_end_is_cut_at_the_limit() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let kept = Kept::store(&server.http());
    let mut socket = connect(&server);
    let head = "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\n\
                Content-Type: application/x-protobuf\r\nTransfer-Encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let mut chunk = b"100000\r\n".to_vec();
    chunk.resize(chunk.len() + (1 << 20), b'x');
    chunk.extend_from_slice(b"\r\n");
    let mut sent_mib = 0;
    while sent_mib < 1024 && socket.write_all(&chunk).is_ok() {
        sent_mib += 1;
    }
    assert!(sent_mib < 200, "the server took {sent_mib} MiB of one body");
    let answer = read_to_end(socket);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
        "{answer}"
    );
    kept.check(&server.http(), "a body without end");
}

#[test]
fn body_that_declares_too_much_is_refused_at_once() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut socket = connect(&server);
    let head = "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\n\
                Content-Length: 99999999999\r\nConnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let answer = read_to_end(socket);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[test]
fn clients_that_drip_are_cut_and_disturb_nobody() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let kept = Kept::store(&http);
    let mut slow: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    for (i, socket) in slow.iter_mut().enumerate() {
        let head: &[u8] = if i % 2 == 0 {
            b"GET /api/v1/query?query=1 HTTP/1.1\r\nHost: "
        } else {
            // Longer than the bytes sent until the cut, because a complete body would restart the
            // timeout.
            b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx"
        };
        socket.write_all(head).unwrap();
    }
    let start = Instant::now();
    let mut asked = 0;
    wait_for("the slow clients to be cut", || {
        let before = Instant::now();
        kept.check(&http, "slow clients");
        asked += 1;
        assert!(
            before.elapsed().as_secs() < 5,
            "slow clients slow others down"
        );
        slow.retain_mut(|socket| !is_cut(socket));
        slow.is_empty()
    });
    println!("{asked} queries in {:?}", start.elapsed());
}

/// Sends one byte, and returns whether the server has closed the connection.
fn is_cut(socket: &mut TcpStream) -> bool {
    socket.set_nonblocking(true).expect("a socket of ours");
    let is_closed = match socket.read(&mut [0; 4096]) {
        Ok(0) => true,
        // An answer such as 408, followed by the end.
        Ok(_) => false,
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    };
    is_closed || socket.write_all(b"x").is_err()
}

#[test]
fn connections_by_the_thousand_leave_room_for_others() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let kept = Kept::store(&server.http());
    allow_open_files(4096);
    let idle: Vec<TcpStream> = (0..1000).map(|_| connect(&server)).collect();
    // New connections wait until idle ones are cut, but not forever.
    let http = server.http();
    wait_for("an answer among a thousand connections", || {
        http.get("/-/healthy").status == 200
    });
    kept.check(&http, "a thousand connections");
    drop(idle);
    kept.check(&server.http(), "a thousand connections that went away");
}

/// Raises the limit of open files of the test itself.
pub fn allow_open_files(count: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|now| now < count) {
        limit.current = Some(limit.maximum.map_or(count, |most| most.min(count)));
        setrlimit(Resource::Nofile, limit).expect("raising the soft limit");
    }
}
