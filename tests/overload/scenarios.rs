//! Kinds of overload, and their expected answers.

use crate::PATIENCE;
use crate::bodies::send;
use crate::harness::http::{Answer, Http};
use crate::harness::server::Server;
use crate::sender::{INTERVAL_MS, Load, METRICS};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

/// Selects every series.
const ALL: &str = "{__name__=~\".+\"}";

/// Number of dashboard clients, each of which requests one panel at a time.
const CLIENTS: usize = 300;

/// Panels that each client requests.
const PANELS: usize = 2;

/// A kind of overload.
pub struct Scenario {
    pub name: &'static str,
    /// Sends the requests and records the answers.
    ask: fn(&Asking),
}

/// Every kind of overload.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "everything",
        ask: everything,
    },
    Scenario {
        name: "dashboards",
        ask: dashboards,
    },
    Scenario {
        name: "count_values",
        ask: count_values,
    },
    Scenario {
        name: "labels",
        ask: labels,
    },
    Scenario {
        name: "nesting",
        ask: nesting,
    },
    Scenario {
        name: "patterns",
        ask: patterns,
    },
    Scenario {
        name: "bodies",
        ask: bodies,
    },
];

/// Errors that must occur at least once, by a part of their text.
const ERRORS: [(&str, &str); 5] = [
    ("memory", " memory limit reached: "),
    ("too long a label", "label value too long: "),
    ("nesting", "expression nests too deeply: "),
    ("steps", "exceeded maximum resolution of "),
    (
        "samples",
        "too many samples into memory in query execution: ",
    ),
];

/// Answers to all requests.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Number of answers by status, error type and text without numbers.
    counts: BTreeMap<(u16, String, String), usize>,
    /// Unexpected answers.
    pub surprises: Vec<String>,
}

impl Scenario {
    /// Sends the requests and waits for all answers.
    pub fn run(&self, server: &Server, load: &Load) -> Outcomes {
        let asking = Asking {
            http: Http::patient(&server.address, PATIENCE),
            load: *load,
            outcomes: Mutex::default(),
        };
        (self.ask)(&asking);
        asking
            .outcomes
            .into_inner()
            .expect("no thread panics with the lock")
    }
}

impl Outcomes {
    /// Adds the outcomes of another scenario.
    pub fn add(&mut self, other: Outcomes) {
        for (kind, count) in other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        self.surprises.extend(other.surprises);
    }

    fn note(&mut self, what: &str, answer: &Answer, is_expected: bool) {
        let (kind, text) = match answer.status {
            200 => (String::new(), String::new()),
            _ => error_of(answer),
        };
        if !is_expected {
            self.surprises
                .push(format!("{what}: {} {kind} {text}", answer.status));
        }
        // Numbers and labels do not distinguish kinds of errors.
        let digits = |c: char| c.is_ascii_digit();
        let text = text.split('{').next().unwrap_or_default();
        let text: String = text.split(digits).filter(|part| !part.is_empty()).collect();
        *self.counts.entry((answer.status, kind, text)).or_default() += 1;
    }

    /// Panics unless every error occurred.
    pub fn require_all_errors(&self) {
        for (name, text) in ERRORS {
            let without_digits: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
            let came = self
                .counts
                .keys()
                .any(|(.., t)| t.contains(&without_digits));
            assert!(came, "no error about {name}: {self}");
        }
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((status, kind, text), count) in &self.counts {
            writeln!(f, "{count:6} x {status} {kind} {text:.200}")?;
        }
        self.surprises
            .iter()
            .try_for_each(|surprise| writeln!(f, "surprise: {surprise:.500}"))
    }
}

/// Returns the type and the text of an error.
fn error_of(answer: &Answer) -> (String, String) {
    let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    match text("errorType") {
        none if none.is_empty() => (none, answer.body.chars().take(200).collect()),
        kind => (kind, text("error")),
    }
}

/// Expected answer to a request.
#[derive(Clone, Copy)]
enum Expected {
    /// Status 200.
    Answer,
    /// An error with a limit of memory or samples, or status 200: it may fit if it runs alone.
    AnswerOrLimit,
    /// Status 422 and a limit of memory or samples, with usage and limit.
    Limit,
    /// This status, type and text, unless there was no memory for the request.
    Refused(u16, &'static str, &'static str),
}

impl Expected {
    fn holds(self, answer: &Answer) -> bool {
        let (kind, text) = match answer.status {
            200 => return matches!(self, Expected::Answer | Expected::AnswerOrLimit),
            _ => error_of(answer),
        };
        let has_numbers = |before: &str| {
            let rest = text.split_once(before).map(|(_, rest)| rest);
            let (number, limit) = rest.and_then(|rest| rest.split_once("limit ")).unzip();
            let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
            number.is_some_and(is_number) && limit.is_some_and(is_number)
        };
        // Large forms do not delay other requests, which have the memory for their forms.
        let has_no_room = answer.status == 503
            && kind == "unavailable"
            && has_numbers("forms memory limit reached: ");
        match self {
            Expected::Answer => false,
            Expected::Limit | Expected::AnswerOrLimit => {
                let is_of_query =
                    has_numbers("memory limit reached: ") || has_numbers("in query execution: ");
                (answer.status == 422 && kind == "execution" && is_of_query) || has_no_room
            }
            Expected::Refused(status, error_type, part) => {
                let is_refused = answer.status == status && kind == error_type;
                is_refused && text.contains(part) || has_no_room
            }
        }
    }
}

/// A running scenario.
struct Asking {
    http: Http,
    load: Load,
    outcomes: Mutex<Outcomes>,
}

impl Asking {
    /// Sends an instant query at the newest sample's time.
    fn instant(&self, query: &str, expected: Expected) {
        let time = seconds(self.load.newest_ms);
        let form = [("query", query), ("time", &time)];
        self.note(query, &self.http.post("/api/v1/query", &form), expected);
    }

    /// Sends a range query over all samples with `steps` steps.
    fn range(&self, query: &str, steps: i64, expected: Expected) {
        let span_ms = self.load.newest_ms - self.load.oldest_ms;
        let (start, end) = (seconds(self.load.oldest_ms), seconds(self.load.newest_ms));
        let step = format!("{}ms", span_ms / (steps - 1));
        let form = [
            ("query", query),
            ("start", &start),
            ("end", &end),
            ("step", &step),
        ];
        let answer = self.http.post("/api/v1/query_range", &form);
        self.note(query, &answer, expected);
    }

    fn note(&self, what: &str, answer: &Answer, expected: Expected) {
        let what: String = what.chars().take(200).collect();
        let holds = expected.holds(answer);
        let mut outcomes = self
            .outcomes
            .lock()
            .expect("no thread panics with the lock");
        outcomes.note(&what, answer, holds);
    }
}

fn seconds(ms: i64) -> String {
    format!("{}", ms as f64 / 1000.0)
}

/// Queries every series: alone, in functions, sorted, at many steps and as labels.
fn everything(asking: &Asking) {
    asking.instant(ALL, Expected::AnswerOrLimit);
    asking.instant(&format!("{ALL}[1h]"), Expected::AnswerOrLimit);
    asking.instant(&format!("sort_desc({ALL})"), Expected::AnswerOrLimit);
    asking.instant(&format!("count({ALL})"), Expected::Answer);
    asking.instant(&format!("topk(1e9, {ALL})"), Expected::AnswerOrLimit);
    asking.range(
        &format!("sum(rate({ALL}[1m]))"),
        100,
        Expected::AnswerOrLimit,
    );
    asking.range(ALL, 5_000, Expected::Limit);
    asking.range(&format!("quantile(0.5, {ALL})"), 5_000, Expected::Limit);
    asking.range(&format!("topk by (pod) (5, {ALL})"), 5_000, Expected::Limit);
    let steps = Expected::Refused(
        400,
        "bad_data",
        "exceeded maximum resolution of 11,000 points",
    );
    asking.range(ALL, 11_002, steps);
    let selector = [("match[]", ALL)];
    for path in ["/api/v1/series", "/api/v1/labels"] {
        let answer = asking.http.post(path, &selector);
        asking.note(path, &answer, Expected::AnswerOrLimit);
    }
    let answer = asking.http.get("/api/v1/label/path/values");
    asking.note("values of path", &answer, Expected::AnswerOrLimit);
}

/// Simulates hundreds of clients with small queries.
fn dashboards(asking: &Asking) {
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            let ask = move || {
                for panel in 0..PANELS {
                    let metric = (client * PANELS + panel) % METRICS;
                    let query = format!("sum by (zone) (rate(load_{metric}[1m]))");
                    asking.range(&query, 60, Expected::Answer);
                }
            };
            threads.spawn(ask);
        }
    });
}

/// Turns a million values into labels; a tenth of them may fit.
fn count_values(asking: &Asking) {
    let expected = match asking.load.series {
        100_000.. => Expected::Limit,
        _ => Expected::AnswerOrLimit,
    };
    asking.range(&format!("count_values(\"v\", {ALL})"), 4, expected);
    let by_pod = format!("count_values by (pod) (\"v\", {ALL})");
    asking.range(&by_pod, 4, expected);
    asking.instant("max_over_time(vector(time())[100y:1ms])", Expected::Limit);
}

/// Sends many large remote-write bodies.
fn bodies(asking: &Asking) {
    send(&asking.http, |what, answer, is_expected| {
        let mut outcomes = asking
            .outcomes
            .lock()
            .expect("no thread panics with the lock");
        outcomes.note(what, answer, is_expected);
    });
}

/// Grows labels, and copies them to many series with joins.
fn labels(asking: &Asking) {
    let nested = |count: usize, inner: &str| {
        (0..count).fold(inner.to_owned(), |inner, _| {
            format!("label_join({inner}, \"path\", \"-\", \"path\", \"path\")")
        })
    };
    asking.instant(&nested(10, ALL), Expected::Limit);
    let too_long = Expected::Refused(422, "execution", "label value too long: ");
    asking.instant(&nested(30, "topk(1, load_1)"), too_long);
    let replaced = format!(
        "label_replace({ALL}, \"new\", \"{}\", \"path\", \"(.*)\")",
        "$1".repeat(500)
    );
    asking.instant(&replaced, Expected::Limit);
    // Without names and paths, series of several metrics would be equal.
    let distinct = format!("label_replace({ALL}, \"metric\", \"$1\", \"__name__\", \"(.*)\")");
    let long = nested(10, "topk(1, load_1)");
    let joined = format!("{distinct} * on () group_left (path) {long}");
    asking.instant(&joined, Expected::Limit);
    asking.range(&format!("{ALL} or {ALL} or {ALL}"), 2_000, Expected::Limit);
    let by_path = format!("sum by (path, pod, zone) ({ALL}) / on (path) {ALL}");
    asking.range(&by_path, 500, Expected::AnswerOrLimit);
}

/// Sends deeply nested expressions.
fn nesting(asking: &Asking) {
    const DEPTH: usize = 20_000;
    let nest = |open: &str, close: &str| format!("{}1{}", open.repeat(DEPTH), close.repeat(DEPTH));
    let too_deep = Expected::Refused(400, "bad_data", "expression nests too deeply: 1001 levels");
    for (open, close) in [("(", ")"), ("-", ""), ("abs(", ")"), ("1 + (", ")")] {
        asking.instant(&nest(open, close), too_deep);
    }
    let subqueries = |count: usize| {
        (0..count).fold("load_1".to_owned(), |inner, _| {
            format!("max_over_time({inner}[{INTERVAL_MS}ms:1ms])")
        })
    };
    asking.instant(&subqueries(150), Expected::Limit);
    let chain = vec!["load_1{pod=\"none\"}"; 10_001].join(" or ");
    asking.instant(&chain, Expected::AnswerOrLimit);
    let answer = asking
        .http
        .get(&format!("/api/v1/series?match[]={}", "(".repeat(10_000)));
    asking.note(
        "nested match[]",
        &answer,
        Expected::Refused(400, "bad_data", ""),
    );
}

/// Sends patterns whose byte automata would need a hundred megabytes each, and longer ones, from
/// thirty clients at once, together with a small query.
fn patterns(asking: &Asking) {
    let hostile = [
        r"\\pL{1000}1".to_owned(),
        format!("({})-.*", [r"\\pL{300}"; 10].join("|")),
        ".{1000}".repeat(100),
        (0..50_000).map(|n| format!("pod-{n}|")).collect::<String>() + "x.y",
    ];
    std::thread::scope(|threads| {
        for client in 0..30 {
            let query = format!("{{__name__=~\"{}\"}}", hostile[client % hostile.len()]);
            threads.spawn(move || asking.instant(&query, Expected::AnswerOrLimit));
        }
        for _ in 0..10 {
            asking.instant("1", Expected::Answer);
        }
    });
}
