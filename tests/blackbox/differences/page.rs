//! Format of the page: entries under `###` with text and blocks of steps.
//!
//! ```text
//! flags ARG...              flags of the server
//! config LINE               a line of its config
//! firn-config LINE          a line of the config that only Firn gets
//! scrape LINE               a line of the exposition of a target that it scrapes
//! header NAME: VALUE        a header of the next request
//! METHOD PATH [BODY]        a request; POST sends a form, \r\n in the body ends a line
//! write SERIES [| SERIES]   remote write: labels NAME=VALUE, samples VALUE@AGE
//! query EXPRESSION          an instant query now
//! start ARG...              starts the program with these arguments, until it ends or is ready
//! firn STATUS [TEXT]        status of the previous answer, and a text in its head or body
//! firn has|lacks TEXT       a text that the answer contains, or does not contain
//! firn logs TEXT            a text in the log
//! firn exit CODE TEXT       exit code of the program, and a text in its output
//! firn starts [TEXT]        the program serves; a text in its log
//! held FILE TEST            one of Firn's tests, for a difference that no example can show
//! prometheus ...            the same for Prometheus
//! ```
//!
//! `{TEXT*COUNT}` in a request or a target is replaced by COUNT repetitions of the text, with `#`
//! replaced by the number of the repetition.

/// The system that a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Firn,
    Prometheus,
}

/// Expected property of an answer.
#[derive(Clone, Debug)]
pub enum Want {
    Status(u16, String),
    Has(String),
    Lacks(String),
    Logs(String),
    Exit(i32, String),
    Starts(String),
}

/// A line of a block.
#[derive(Clone, Debug)]
pub enum Step {
    Flags(Vec<String>),
    Config(String),
    FirnConfig(String),
    Scrape(String),
    Header(String),
    Request(String, String, String),
    Write(String),
    Query(String),
    Start(Vec<String>),
    Held(String, String),
    Want(Side, Want),
}

/// The steps of one block, with the line number of each in the page.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub steps: Vec<(usize, Step)>,
}

/// One difference between Firn and Prometheus.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub title: String,
    pub text: String,
    pub blocks: Vec<Block>,
}

impl Block {
    /// Returns whether the entry shows the behaviour of a side, or names a test that does.
    pub fn says(&self, side: Side) -> bool {
        let about = |step: &Step| match step {
            Step::Want(about, _) => *about == side,
            Step::Held(..) => true,
            _ => false,
        };
        self.steps.iter().any(|(_, step)| about(step))
    }
}

/// Parses the page; panics if it is malformed.
pub fn read(page: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut is_in_block = false;
    for (at, line) in page.lines().enumerate() {
        if let Some(title) = line.strip_prefix("### ") {
            entries.push(Entry {
                title: title.into(),
                ..Entry::default()
            });
            continue;
        }
        let Some(entry) = entries.last_mut() else {
            continue;
        };
        match line {
            "```difference" => {
                is_in_block = true;
                entry.blocks.push(Block::default());
            }
            "```" => is_in_block = false,
            _ if is_in_block => {
                let block = entry.blocks.last_mut().expect("a block is open");
                block.steps.push((at + 1, step(at + 1, line)));
            }
            _ => entry.text += &format!("{line}\n"),
        }
    }
    entries
}

fn step(at: usize, line: &str) -> Step {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words = || rest.split_whitespace().map(str::to_owned).collect();
    match word {
        "flags" => Step::Flags(words()),
        "config" => Step::Config(rest.into()),
        "firn-config" => Step::FirnConfig(rest.into()),
        "scrape" => Step::Scrape(expanded(rest)),
        "header" => Step::Header(rest.into()),
        "write" => Step::Write(expanded(rest)),
        "query" => Step::Query(rest.into()),
        "start" => Step::Start(words()),
        "held" => {
            let (file, test) = rest.split_once(' ').expect("a file and a test");
            Step::Held(file.into(), test.into())
        }
        "firn" => Step::Want(Side::Firn, want(at, rest)),
        "prometheus" => Step::Want(Side::Prometheus, want(at, rest)),
        "GET" | "POST" | "PUT" | "HEAD" | "OPTIONS" => {
            let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
            let body = expanded(&body.replace("\\r\\n", "\r\n"));
            Step::Request(word.into(), expanded(path), body)
        }
        _ => panic!("line {at} of the page is no step: {line}"),
    }
}

fn want(at: usize, text: &str) -> Want {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let number = |text: &str| -> i32 {
        let number = text.parse();
        number.unwrap_or_else(|e| panic!("line {at} of the page: {text:?}: {e}"))
    };
    match word {
        "has" => Want::Has(rest.into()),
        "lacks" => Want::Lacks(rest.into()),
        "logs" => Want::Logs(rest.into()),
        "starts" => Want::Starts(rest.into()),
        "exit" => {
            let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
            Want::Exit(number(code), text.into())
        }
        status => Want::Status(number(status) as u16, rest.into()),
    }
}

/// Returns `text` with each `{TEXT*COUNT}` expanded.
fn expanded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once('{') {
        let repeated = inside.split_once('}').and_then(|(inside, after)| {
            let (part, count) = inside.rsplit_once('*').filter(|(p, _)| !p.contains('{'))?;
            Some((part, count.parse::<usize>().ok()?, after))
        });
        out += before;
        match repeated {
            Some((part, count, after)) => {
                for number in 0..count {
                    out += &part.replace('#', &number.to_string());
                }
                rest = after;
            }
            None => {
                out.push('{');
                rest = inside;
            }
        }
    }
    out + rest
}
