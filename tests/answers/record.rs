//! `make answers`: records what a reference Prometheus says, or holds a system against the record.
//!
//! ```text
//! firn-answers record SET URL    sends data.txt, asks SET.txt, writes SET.jsonl.gz
//! firn-answers check SET URL     sends data.txt, asks again, prints where the answers differ
//! ```
//!
//! The set `plain` is for a system without feature flags, `full` for one with all of PromQL's. The
//! system at URL must be empty and take remote write.

use firn_mirror::answers::data::Data;
use firn_mirror::answers::{self, Recorded, queries};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            // Whoever closed the pipe does not want the text.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(e) => {
            let _ = writeln!(io::stderr(), "{e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/answers");
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let data = Data::parse(&read("data.txt")?).map_err(|e| format!("data.txt: {e}"))?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["record", set, url] => {
            let name = format!("{set}.txt");
            let asks =
                queries::parse(&read(&name)?, data.start_ms).map_err(|e| format!("{name}: {e}"))?;
            answers::send(url, &data).map_err(|e| e.to_string())?;
            let recorded = answers::record(url, asks).map_err(|e| e.to_string())?;
            let file = Recorded::pack(&recorded).map_err(|e| e.to_string())?;
            let path = dir.join(format!("{set}.jsonl.gz"));
            std::fs::write(&path, file).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok(format!("{} answers: {}\n", recorded.len(), path.display()))
        }
        ["check", set, url] => {
            let path = dir.join(format!("{set}.jsonl.gz"));
            let file = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let recorded =
                Recorded::unpack(&file).map_err(|e| format!("{}: {e}", path.display()))?;
            answers::send(url, &data).map_err(|e| e.to_string())?;
            let failures = answers::check(url, &recorded).map_err(|e| e.to_string())?;
            let passed = recorded.len() - failures.len();
            let lines: String = failures.iter().map(|f| format!("{f}\n")).collect();
            Ok(format!(
                "{lines}{passed} passed, {} failed\n",
                failures.len()
            ))
        }
        _ => Err("usage: firn-answers record|check SET URL".to_owned()),
    }
}
