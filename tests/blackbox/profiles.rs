//! Profiles of the running server, as read by `go tool pprof`.

use crate::harness::server::Server;
use crate::raw::Ask;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// A query that sorts a million values of a subquery: a tenth of a second or more.
const BUSY: &str = "quantile_over_time(0.5,vector(time())[200h:1s])";

/// Minimum number of samples of a meaningful profile.
const SAMPLES_MIN: u64 = 50;

/// A CPU profile: stacks, with the innermost function first, and their numbers of samples.
#[derive(Debug, Default)]
struct Profile {
    stacks: Vec<(Vec<String>, u64)>,
}

/// One field of a protobuf message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message; panics if they are malformed.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = uvarint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(uvarint(&mut bytes)),
            2 => {
                let length = uvarint(&mut bytes) as usize;
                let (field, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(field)
            }
            kind => panic!("field of kind {kind}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn uvarint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than 64 bits");
}

/// Returns the numbers with one tag in a message, packed or not.
fn numbers(message: &[u8], tag: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (_, field) in fields(message).into_iter().filter(|(t, _)| *t == tag) {
        match field {
            Field::Number(number) => found.push(number),
            Field::Bytes(mut packed) => {
                while !packed.is_empty() {
                    found.push(uvarint(&mut packed));
                }
            }
        }
    }
    found
}

/// Returns the messages or texts with one tag in a message.
fn parts(message: &[u8], tag: u64) -> Vec<&[u8]> {
    let parts = fields(message).into_iter().filter(|(t, _)| *t == tag);
    let bytes = |(_, field)| match field {
        Field::Bytes(bytes) => bytes,
        Field::Number(number) => panic!("{number} where bytes must be"),
    };
    parts.map(bytes).collect()
}

impl Profile {
    /// Decodes a message of `profile.proto`.
    fn decode(bytes: &[u8]) -> Self {
        let strings: Vec<String> = parts(bytes, 6)
            .into_iter()
            .map(|text| String::from_utf8(text.to_vec()).expect("names are text"))
            .collect();
        let names: HashMap<u64, &String> = parts(bytes, 5)
            .into_iter()
            .map(|function| (numbers(function, 1)[0], numbers(function, 2)[0]))
            .map(|(id, name)| (id, &strings[name as usize]))
            .collect();
        let lines = |location| {
            let lines: Vec<u64> = parts(location, 4)
                .into_iter()
                .map(|line| numbers(line, 1)[0])
                .collect();
            (numbers(location, 1)[0], lines)
        };
        let locations: HashMap<u64, Vec<u64>> = parts(bytes, 4).into_iter().map(lines).collect();
        let stack = |sample| {
            let functions = numbers(sample, 1)
                .into_iter()
                .flat_map(|id| &locations[&id]);
            let stack = functions.map(|id| names[id].clone()).collect();
            (stack, numbers(sample, 2)[0])
        };
        Self {
            stacks: parts(bytes, 2).into_iter().map(stack).collect(),
        }
    }

    /// Returns the number of samples whose stack `is_wanted`.
    fn count(&self, is_wanted: impl Fn(&[String]) -> bool) -> u64 {
        let wanted = self.stacks.iter().filter(|(stack, _)| is_wanted(stack));
        wanted.map(|(_, count)| count).sum()
    }
}

/// Returns the exact body of the answer to a GET.
fn get_bytes(address: &str, path: &str) -> Vec<u8> {
    let reply = Ask::get(path).send(address);
    assert_eq!(reply.status, 200, "{}", reply.head);
    reply.body
}

/// Ends the load of a test, also when the test fails.
struct LoadEnd<'a>(&'a AtomicBool);

impl Drop for LoadEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes a CPU profile of a server during consecutive queries. The profile is longer if the server
/// got too little CPU time for [`SAMPLES_MIN`].
fn profile_under_load(server: &Server) -> Profile {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let http = server.http();
            while !is_over.load(Ordering::Relaxed) {
                let answer = http.post("/api/v1/query", &[("query", BUSY), ("time", "0")]);
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
        });
        let _end = LoadEnd(&is_over);
        let mut taken = [3, 10, 30].into_iter().map(|seconds| {
            let path = format!("/debug/pprof/profile?seconds={seconds}");
            Profile::decode(&get_bytes(&server.address, &path))
        });
        let profile = taken.find(|profile| profile.count(|_| true) >= SAMPLES_MIN);
        profile.expect("half a minute of a busy server has samples enough")
    })
}

#[test]
fn cpu_profile_under_load_shows_functions_with_their_callers() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let profile = profile_under_load(&server);
    let all = profile.count(|_| true);
    let with_callers = profile.count(|stack| stack.len() > 1);
    assert!(
        with_callers * 10 >= all * 9,
        "{with_callers} of {all} samples have a stack"
    );
    // Outermost last: a thread, the runtime, the server, the evaluation of the query.
    let path = ["firn_promql::", "firn_server::", "std::sys"];
    let is_whole = |stack: &[String]| {
        let mut functions = stack.iter();
        let mut comes = |part: &str| functions.any(|function| function.contains(part));
        path.into_iter().all(&mut comes)
    };
    let whole = profile.count(is_whole);
    println!("{all} samples, {with_callers} with callers, {whole} from thread to kernel");
    assert!(
        whole * 2 >= all,
        "{whole} of {all} samples lead through {path:?}: {:#?}",
        profile.stacks.first()
    );
}

#[test]
fn cpu_profile_after_another_has_stacks_too() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    for _ in 0..2 {
        let profile = profile_under_load(&server);
        let all = profile.count(|_| true);
        let with_callers = profile.count(|stack| stack.len() > 1);
        assert!(with_callers * 10 >= all * 9, "{with_callers} of {all}");
    }
}

#[test]
fn profiles_are_listed_and_each_link_leads_to_one() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--web.route-prefix=/firn"];
    let server = Server::start_unready(data.path(), &flags);
    let http = server.http();
    let folder = http.get("/firn/debug/pprof");
    assert_eq!(folder.status, 200, "{}", folder.body);
    let list = http.get("/firn/debug/pprof/");
    assert_eq!(list.body, folder.body);
    let links = list.body.split("href=\"").skip(1);
    let links: Vec<_> = links.filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(
        links,
        [
            "heap",
            "allocs",
            "goroutine",
            "threadcreate",
            "block",
            "mutex",
            "cmdline",
            "profile?seconds=30"
        ]
    );
    let heap = get_bytes(&server.address, "/firn/debug/pprof/heap");
    assert!(!heap.is_empty());
    let cpu = get_bytes(&server.address, "/firn/debug/pprof/profile?seconds=1");
    Profile::decode(&cpu);
    assert_eq!(http.get("/firn/debug/pprof/trace").status, 404);
}

/// Returns the types and units of a profile's values.
fn types(bytes: &[u8]) -> Vec<(String, String)> {
    let strings = parts(bytes, 6);
    let text = |at: u64| String::from_utf8(strings[at as usize].to_vec()).unwrap();
    let pair = |value| (text(numbers(value, 1)[0]), text(numbers(value, 2)[0]));
    parts(bytes, 1).into_iter().map(pair).collect()
}

#[test]
fn profiles_that_collectors_pull_are_those_of_go_in_form() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let get = |name: &str| get_bytes(&server.address, &format!("/debug/pprof/{name}"));
    let pair = |kind: &str, unit: &str| (kind.to_owned(), unit.to_owned());
    for kind in ["goroutine", "threadcreate"] {
        let bytes = get(kind);
        assert_eq!(types(&bytes), [pair(kind, "count")]);
        let profile = Profile::decode(&bytes);
        let all = profile.count(|_| true);
        assert!(
            all > 1 && profile.count(|stack| stack.len() == 1) == all,
            "{profile:?}"
        );
    }
    for kind in ["block", "mutex"] {
        let bytes = get(kind);
        let waiting = [pair("contentions", "count"), pair("delay", "nanoseconds")];
        assert_eq!(types(&bytes), waiting);
        assert_eq!(Profile::decode(&bytes).count(|_| true), 0);
    }
    assert!(!get("allocs").is_empty());
    let words = String::from_utf8(get("cmdline")).unwrap();
    assert_eq!(words.split('\0').nth(1), Some("serve"), "{words}");
    assert_eq!(get("symbol"), b"num_symbols: 0\n");
    let trace = Ask::get("/debug/pprof/trace?seconds=1").send(&server.address);
    assert_eq!(trace.status, 404);
}
