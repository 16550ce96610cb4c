//! A small S3 server: enough of the protocol for the tests, with faults.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A fault that the server injects into the next request with a method.
#[derive(Clone, Debug)]
pub(super) enum ServerFault {
    /// Answers with a status and an error code, without an effect.
    Before(u16, &'static str),
    /// Answers with a status and an error code after the request took effect.
    After(u16, &'static str),
    /// Closes the connection, without an effect.
    DropBefore,
    /// Closes the connection after the request took effect.
    DropAfter,
    /// Sends half of the body, then closes the connection.
    CutBody,
    /// Sends this document.
    Document(u16, String),
    /// Omits the entity tag.
    NoTag,
    /// Ignores the range.
    NoRange,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ServerRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

#[derive(Default)]
pub(super) struct ServerState {
    pub(super) objects: BTreeMap<String, Vec<u8>>,
    pub(super) faults: VecDeque<(&'static str, ServerFault)>,
    pub(super) requests: Vec<ServerRequest>,
    /// Whether `If-None-Match` is accepted and ignored.
    pub(super) ignores_condition: bool,
}

pub(super) struct S3Server {
    pub(super) address: SocketAddr,
    pub(super) state: Arc<Mutex<ServerState>>,
}

struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Length to announce if it is not that of the body.
    length: Option<usize>,
}

impl S3Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let state = server.state.clone();
        // Ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = state.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        server
    }

    pub(super) fn fail_next(&self, method: &'static str, fault: ServerFault) {
        self.state.lock().unwrap().faults.push_back((method, fault));
    }

    pub(super) fn take_requests(&self) -> Vec<ServerRequest> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// The content of an object, by bucket and key.
    pub(super) fn object(&self, path: &str) -> Option<Vec<u8>> {
        self.state.lock().unwrap().objects.get(path).cloned()
    }
}

fn serve(stream: TcpStream, state: &Mutex<ServerState>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read_request(&mut reader) {
        let response = {
            let mut state = state.lock().unwrap();
            state.requests.push(request.clone());
            answer(&mut state, &request)
        };
        let Some(response) = response else { return };
        if write(&stream, &request, &response).is_err() || response.length.is_some() {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<ServerRequest> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut request = ServerRequest {
        method,
        path: decode(path),
        query: pairs
            .map(|(name, value)| (decode(name), decode(&value.replace('+', " "))))
            .collect(),
        ..ServerRequest::default()
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        request
            .headers
            .insert(name.to_lowercase(), value.to_owned());
    }
    let length = request
        .headers
        .get("content-length")
        .map_or(0, |v| v.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            let digits = String::from_utf8(digits.to_vec()).unwrap();
            bytes.push(u8::from_str_radix(&digits, 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The response, or `None` to close the connection.
fn answer(state: &mut ServerState, request: &ServerRequest) -> Option<Response> {
    let fault = state
        .faults
        .iter()
        .position(|(method, _)| *method == request.method);
    let fault = fault
        .and_then(|index| state.faults.remove(index))
        .map(|(_, fault)| fault);
    match fault {
        None => Some(respond(state, request)),
        Some(ServerFault::Before(status, code)) => Some(error(status, code)),
        Some(ServerFault::After(status, code)) => {
            respond(state, request);
            Some(error(status, code))
        }
        Some(ServerFault::DropBefore) => None,
        Some(ServerFault::DropAfter) => {
            respond(state, request);
            None
        }
        Some(ServerFault::CutBody) => {
            let mut response = respond(state, request);
            response.length = Some(response.body.len());
            response.body.truncate(response.body.len() / 2);
            Some(response)
        }
        Some(ServerFault::Document(status, text)) => Some(Response {
            status,
            headers: Vec::new(),
            body: text.into_bytes(),
            length: None,
        }),
        Some(ServerFault::NoTag) => {
            let mut response = respond(state, request);
            response.headers.clear();
            Some(response)
        }
        Some(ServerFault::NoRange) => {
            let mut whole = request.clone();
            whole.headers.remove("range");
            Some(respond(state, &whole))
        }
    }
}

fn error(status: u16, code: &str) -> Response {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>message of {code}</Message></Error>"
    );
    Response {
        status,
        headers: Vec::new(),
        body: body.into_bytes(),
        length: None,
    }
}

fn fine(status: u16, body: &[u8]) -> Response {
    Response {
        status,
        headers: vec![
            ("ETag", "\"tag\"".into()),
            ("Last-Modified", "Sat, 28 Nov 2026 00:00:00 GMT".into()),
        ],
        body: body.to_vec(),
        length: None,
    }
}

fn respond(state: &mut ServerState, request: &ServerRequest) -> Response {
    if request.path.starts_with("/latest/") {
        return metadata_service(request);
    }
    if request.query.contains_key("list-type") {
        return list(state, request);
    }
    let path = request.path.trim_start_matches('/').to_owned();
    match request.method.as_str() {
        "PUT" => {
            let is_conditional = request
                .headers
                .get("if-none-match")
                .is_some_and(|v| v == "*");
            if is_conditional && !state.ignores_condition && state.objects.contains_key(&path) {
                return error(412, "PreconditionFailed");
            }
            state.objects.insert(path, request.body.clone());
            fine(200, b"")
        }
        "GET" | "HEAD" => match state.objects.get(&path) {
            Some(object) => read(object, request.headers.get("range")),
            None => error(404, "NoSuchKey"),
        },
        "DELETE" => {
            state.objects.remove(&path);
            fine(204, b"")
        }
        _ => error(405, "MethodNotAllowed"),
    }
}

fn read(object: &[u8], range: Option<&String>) -> Response {
    let Some(range) = range else {
        return fine(200, object);
    };
    let (start, last) = range
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let start: usize = start.parse().unwrap();
    let last = last
        .parse::<usize>()
        .unwrap()
        .min(object.len().wrapping_sub(1));
    if start >= object.len() {
        return error(416, "InvalidRange");
    }
    let mut response = fine(206, &object[start..=last]);
    let value = format!("bytes {start}-{last}/{}", object.len());
    response.headers.push(("Content-Range", value));
    response
}

fn list(state: &ServerState, request: &ServerRequest) -> Response {
    let of = |name: &str| request.query.get(name).cloned().unwrap_or_default();
    let bucket = format!("{}/", request.path.trim_matches('/'));
    let limit: usize = of("max-keys").parse().unwrap_or(1000);
    let (prefix, after) = (of("prefix"), of("start-after"));
    let keys = state.objects.iter().filter_map(|(path, object)| {
        let key = path.strip_prefix(&bucket)?;
        (key.starts_with(&prefix) && *key > *after).then_some((key, object.len()))
    });
    let found: Vec<_> = keys.take(limit + 1).collect();
    let is_truncated = found.len() > limit;
    let mut text = format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>");
    if is_truncated {
        text += "<NextContinuationToken>token</NextContinuationToken>";
    }
    for (key, bytes) in found.iter().take(limit) {
        text += &format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-28T00:00:00.000Z</LastModified>\
             <ETag>\"tag\"</ETag><Size>{bytes}</Size></Contents>"
        );
    }
    text += "</ListBucketResult>";
    fine(200, text.as_bytes())
}

/// The metadata service of an instance, version 2.
fn metadata_service(request: &ServerRequest) -> Response {
    if request.method == "PUT" {
        return fine(200, b"metadata-token");
    }
    if request
        .headers
        .get("x-aws-ec2-metadata-token")
        .is_none_or(|t| t != "metadata-token")
    {
        return error(401, "Unauthorized");
    }
    match request.path.rsplit('/').next() {
        Some("") => fine(200, b"role"),
        _ => fine(
            200,
            br#"{"AccessKeyId":"AKINSTANCE","SecretAccessKey":"instance-secret",
                "Token":"instance-token","Expiration":"2100-01-01T00:00:00Z"}"#,
        ),
    }
}

fn write(
    mut stream: &TcpStream,
    request: &ServerRequest,
    response: &Response,
) -> std::io::Result<()> {
    let length = response.length.unwrap_or(response.body.len());
    let mut text = format!("HTTP/1.1 {} Some\r\n", response.status);
    if ![204, 304].contains(&response.status) {
        text += &format!("Content-Length: {length}\r\n");
    }
    for (name, value) in &response.headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    // In one packet, since the client delays its acknowledgement of a first small one.
    let mut bytes = text.into_bytes();
    if request.method != "HEAD" && response.status != 304 {
        bytes.extend_from_slice(&response.body);
    }
    stream.write_all(&bytes)?;
    stream.flush()
}
