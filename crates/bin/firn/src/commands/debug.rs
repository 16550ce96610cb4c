//! The command `firn debug pprof|metrics|all SERVER`: collects profiles and metrics of a server in
//! an archive, `debug.tar.gz`, for bug reports. Names and texts are those of promtool.
//!
//! A profile that the server does not have is reported and left out: Firn has no execution trace.

use super::arguments::NOT_UNDERSTOOD;
use super::client::{CommandClient, CommandResponse};
use crate::console;
use clap::{Arg, ArgMatches, Command};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;

/// Path of the archive, in the current folder of the process.
const ARCHIVE: &str = "debug.tar.gz";

/// Paths of profiles, and their file names in the archive.
const PROFILES: [(&str, &str); 7] = [
    ("/debug/pprof/profile?seconds=30", "cpu.pb"),
    ("/debug/pprof/block", "block.pb"),
    ("/debug/pprof/goroutine", "goroutine.pb"),
    ("/debug/pprof/heap", "heap.pb"),
    ("/debug/pprof/mutex", "mutex.pb"),
    ("/debug/pprof/threadcreate", "threadcreate.pb"),
    ("/debug/pprof/trace?seconds=30", "trace.pb"),
];

const METRICS: [(&str, &str); 1] = [("/metrics", "metrics.txt")];

/// Maximum number of bytes of a decompressed profile.
const PROFILE_BYTES_MAX: u64 = 1 << 30;

/// Returns the command line of `firn debug` with its subcommands: arguments, flags and help texts.
pub fn command() -> Command {
    let server = Arg::new("server")
        .value_name("SERVER")
        .required(true)
        .help("URL or address of the server, for example localhost:9090");
    let commands = [
        (
            "pprof",
            "Collect profiles; the CPU profile takes 30 seconds",
        ),
        ("metrics", "Collect the server's metrics"),
        ("all", "Collect profiles and metrics"),
    ];
    let commands =
        commands.map(|(name, about)| Command::new(name).about(about).arg(server.clone()));
    Command::new("debug")
        .about("Collect debug information of a server in debug.tar.gz")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands)
}

/// Runs `firn debug` with the parsed arguments `matches` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let Some((kind, matches)) = matches.subcommand() else {
        return ExitCode::from(NOT_UNDERSTOOD);
    };
    let parts: Vec<(&str, &str)> = match kind {
        "pprof" => PROFILES.to_vec(),
        "metrics" => METRICS.to_vec(),
        _ => PROFILES.into_iter().chain(METRICS).collect(),
    };
    let server = matches.get_one::<String>("server");
    match collect(server.map_or("", String::as_str), &parts) {
        Ok(()) => {
            console::out(&format!(
                "Compiling debug information complete, all files written in {ARCHIVE:?}.\n"
            ));
            ExitCode::SUCCESS
        }
        Err(e) => {
            console::err(&format!("error completing debug command: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn collect(server: &str, parts: &[(&str, &str)]) -> Result<(), String> {
    let client = CommandClient::new(server, None, &[]).map_err(|e| e.to_string())?;
    let file = File::create(ARCHIVE);
    let file = file.map_err(|e| format!("error creating archive {ARCHIVE:?}: {e}"))?;
    let mut archive = GzEncoder::new(file, Compression::default());
    let unwritten = |e: std::io::Error| format!("error writing into the archive {ARCHIVE:?}: {e}");
    for (path, name) in parts {
        console::out(&format!("collecting: {server}{path}\n"));
        let answer = client.get(path, &Vec::new());
        let answer = answer.map_err(|e| format!("error executing HTTP request: {e}"))?;
        if !answer.status.is_success() {
            let status = answer.status;
            console::err(&format!("  not found: {path}: {status}"));
            continue;
        }
        let body = unpacked(answer).map_err(|e| format!("error reading {name}: {e}"))?;
        put_file(&mut archive, name, &body).map_err(unwritten)?;
    }
    // Two empty blocks mark the end of an archive.
    archive
        .write_all(&[0; 2 * BLOCK_BYTES])
        .map_err(unwritten)?;
    let file = archive.finish().map_err(unwritten)?;
    file.sync_all().map_err(unwritten)
}

/// Returns the body of the response. Profiles are sent compressed and stored uncompressed.
fn unpacked(answer: CommandResponse) -> Result<Vec<u8>, std::io::Error> {
    if !answer.body.starts_with(&[0x1f, 0x8b]) {
        return Ok(answer.body);
    }
    let mut body = Vec::new();
    let packed = GzDecoder::new(answer.body.as_slice());
    packed.take(PROFILE_BYTES_MAX).read_to_end(&mut body)?;
    Ok(body)
}

/// Size of the blocks of an archive. A file is preceded by one block with its header and begins at
/// a block boundary.
const BLOCK_BYTES: usize = 512;

/// Appends a file to the archive in the format of `tar` (POSIX 1003.1-1990, ustar).
fn put_file(out: &mut impl Write, name: &str, body: &[u8]) -> std::io::Result<()> {
    let mut head = [0u8; BLOCK_BYTES];
    let mut put = |at: usize, text: &[u8]| head[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000666\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", body.len()).as_bytes());
    put(136, b"00000000000\0");
    put(156, b"0");
    put(257, b"ustar\x0000");
    // The checksum is computed with spaces in its own field.
    put(148, &[b' '; 8]);
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.write_all(&head)?;
    out.write_all(body)?;
    let rest = body.len().next_multiple_of(BLOCK_BYTES) - body.len();
    out.write_all(&vec![0; rest])
}
