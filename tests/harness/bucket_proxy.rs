//! A proxy between a node and its S3 server, which injects the faults of real stores and networks.
//!
//! Requests pass with the signature of another time, so that nodes may have shifted clocks. A fault
//! of a request is chosen at random among those that are switched on and that apply to it.

use super::choices::Choices;
use super::http_message::HttpMessage;
use super::s3_signature::sign_again;
use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// The pause between two looks whether a silent bucket answers again.
const POLL: Duration = Duration::from_millis(20);

/// The delay of slow lists.
const LIST_DELAY: Duration = Duration::from_millis(1_500);

/// The header of a creation that fails if the object exists.
const CONDITION: &str = "if-none-match";

/// A fault of the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BucketFault {
    /// The connection ends without an answer, and nothing is done.
    Gone,
    /// Nothing is done, and there is no answer until the fault ends.
    Silent,
    /// PUT and DELETE are carried out and answered with 500.
    ErrorAfter,
    /// PUT and DELETE are carried out, and the connection ends without an answer.
    LostAnswer,
    /// 503 SlowDown, and nothing is done.
    SlowDown,
    /// PUT is answered with 409 ConditionalRequestConflict, and nothing is done.
    Conflict,
    /// The body of a GET ends half way.
    CutBody,
    /// LIST takes long.
    SlowList,
    /// The condition of a creation is removed, so that it replaces an object.
    StrippedCondition,
    /// PUT is answered with 403 QuotaExceeded, and nothing is done.
    QuotaExceeded,
    /// PUT is answered with 507, and nothing is done.
    NoSpace,
}

impl BucketFault {
    /// Faults that may occur at any time, and that no client notices but by a delay.
    pub const PASSING: [Self; 6] = [
        Self::ErrorAfter,
        Self::LostAnswer,
        Self::SlowDown,
        Self::Conflict,
        Self::CutBody,
        Self::SlowList,
    ];

    fn applies(self, request: &HttpMessage) -> bool {
        let method = request.method();
        let is_list = request.target().contains("list-type");
        match self {
            Self::Gone | Self::Silent | Self::SlowDown => true,
            Self::ErrorAfter | Self::LostAnswer => matches!(method, "PUT" | "DELETE"),
            Self::QuotaExceeded | Self::NoSpace => method == "PUT",
            Self::Conflict | Self::StrippedCondition => {
                method == "PUT" && request.header(CONDITION).is_some()
            }
            Self::CutBody => method == "GET" && !is_list,
            Self::SlowList => method == "GET" && is_list,
        }
    }

    /// Returns the answer of a request that was not carried out, if the fault has one.
    fn refusal(self) -> Option<Vec<u8>> {
        let (status, code) = match self {
            Self::SlowDown => ("503 Slow Down", "SlowDown"),
            Self::Conflict => ("409 Conflict", "ConditionalRequestConflict"),
            Self::QuotaExceeded => ("403 Forbidden", "QuotaExceeded"),
            Self::NoSpace => ("507 Insufficient Storage", "InsufficientStorage"),
            _ => return None,
        };
        Some(error_answer(status, code))
    }
}

fn error_answer(status: &str, code: &str) -> Vec<u8> {
    let text = format!("<Error><Code>{code}</Code><Message>of the proxy</Message></Error>");
    let length = text.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
    format!("{head}{text}").into_bytes()
}

/// The faults that are switched on, and the number of requests that had each of them.
struct FaultSwitch {
    percents: BTreeMap<BucketFault, u64>,
    counts: BTreeMap<BucketFault, u64>,
    choices: Choices,
}

/// A proxy, which goes on until the test ends.
pub struct BucketProxy {
    /// Address as `127.0.0.1:port`.
    pub address: String,
    switch: Arc<Mutex<FaultSwitch>>,
}

/// The parts that the connections of a proxy share.
#[derive(Clone)]
struct ProxyParts {
    upstream: String,
    secret_key: String,
    switch: Arc<Mutex<FaultSwitch>>,
}

impl BucketProxy {
    /// Starts a proxy before the server at `upstream`, which signs with `secret_key`. `seed`
    /// determines the faults.
    pub fn start(upstream: &str, secret_key: &str, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let switch = Arc::new(Mutex::new(FaultSwitch {
            percents: BTreeMap::new(),
            counts: BTreeMap::new(),
            choices: Choices::new(seed),
        }));
        let parts = ProxyParts {
            upstream: upstream.to_owned(),
            secret_key: secret_key.to_owned(),
            switch: switch.clone(),
        };
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let parts = parts.clone();
                // An error closes the connection; the client gets no other notice.
                spawn(move || parts.serve(stream).unwrap_or_default());
            }
        });
        Self { address, switch }
    }

    /// Gives a percentage of the requests to which it applies this fault.
    pub fn set(&self, fault: BucketFault, percent: u64) {
        self.switch.lock().unwrap().percents.insert(fault, percent);
    }

    /// Switches all faults off.
    pub fn heal(&self) {
        self.switch.lock().unwrap().percents.clear();
    }

    /// Returns the number of requests that had each fault.
    pub fn counts(&self) -> BTreeMap<BucketFault, u64> {
        self.switch.lock().unwrap().counts.clone()
    }
}

impl ProxyParts {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        let mut upstream: Option<BufReader<TcpStream>> = None;
        while let Some(mut request) = HttpMessage::read_request(&mut reader)? {
            let fault = self.choose(&request);
            if fault == Some(BucketFault::Silent) {
                self.wait_for_end(BucketFault::Silent);
            }
            if matches!(fault, Some(BucketFault::Gone | BucketFault::Silent)) {
                return Ok(());
            }
            if let Some(refusal) = fault.and_then(BucketFault::refusal) {
                reader.get_mut().write_all(&refusal)?;
                continue;
            }
            if fault == Some(BucketFault::SlowList) {
                sleep(LIST_DELAY);
            }
            let is_stripped = fault == Some(BucketFault::StrippedCondition);
            let dropped = is_stripped.then_some(CONDITION);
            sign_again(&mut request, &self.secret_key, dropped);
            let connection = match &mut upstream {
                Some(connection) => connection,
                None => upstream.insert(self.connect()?),
            };
            connection.get_mut().write_all(&request.bytes())?;
            let answer = HttpMessage::read_response(connection, request.method())?;
            match fault {
                Some(BucketFault::LostAnswer) => return Ok(()),
                Some(BucketFault::ErrorAfter) => {
                    let error = error_answer("500 Internal Server Error", "InternalError");
                    reader.get_mut().write_all(&error)?;
                }
                Some(BucketFault::CutBody) if !answer.body.is_empty() => {
                    let cut = answer.head.len() + answer.body.len() / 2;
                    return reader.get_mut().write_all(&answer.bytes()[..cut]);
                }
                _ => reader.get_mut().write_all(&answer.bytes())?,
            }
        }
        Ok(())
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.upstream)?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }

    /// Chooses and counts the fault of a request.
    fn choose(&self, request: &HttpMessage) -> Option<BucketFault> {
        let mut switch = self.switch.lock().unwrap();
        let faults = switch.percents.clone();
        let mut applicable = faults.into_iter().filter(|(f, _)| f.applies(request));
        let (fault, _) = applicable.find(|(_, percent)| switch.choices.below(100) < *percent)?;
        *switch.counts.entry(fault).or_default() += 1;
        Some(fault)
    }

    fn wait_for_end(&self, fault: BucketFault) {
        let end = Instant::now() + Duration::from_secs(300);
        let is_on = || self.switch.lock().unwrap().percents.contains_key(&fault);
        while is_on() && Instant::now() < end {
            sleep(POLL);
        }
    }
}
