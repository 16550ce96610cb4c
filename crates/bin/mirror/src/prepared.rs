//! A load in files: requests that are generated in advance, so that generating them does not
//! disturb a measurement.
//!
//! ```text
//! DIR/load.json       summary of the load: senders, series, samples, times
//! DIR/sender-N.load   { due i64 | samples u32 | length u32 | version u8 | body }*, little endian
//! ```
//!
//! The directory is a temporary file of one machine; the format is not stable between versions.

use crate::error::MirrorError;
use crate::request::{RemoteWriteProtocol, Request};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 17;

/// Size and times of a load, which are stored beside its requests and shown in reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreparedLoadSummary {
    /// Number of connections that send it, and of its files.
    pub senders: usize,
    /// Number of series that exist at any one time.
    pub series: u64,
    /// Number of targets that the series belong to; zero if unknown.
    pub targets: u64,
    /// Number of distinct series over the whole load, including replaced ones.
    pub series_created: u64,
    /// Total number of samples in all requests.
    pub samples: u64,
    /// Total number of requests of all senders.
    pub requests: u64,
    /// Total length of all compressed bodies in bytes.
    pub body_bytes: u64,
    /// Time of the first round in milliseconds since the epoch.
    pub start_ms: i64,
    /// Timestamp of the newest sample in milliseconds since the epoch.
    pub end_ms: i64,
    /// Time between rounds in milliseconds.
    pub interval_ms: i64,
}

impl PreparedLoadSummary {
    /// Converts the summary to the JSON of files and reports.
    pub fn to_json(&self) -> Value {
        json!({
            "senders": self.senders,
            "series": self.series,
            "targets": self.targets,
            "series_born": self.series_created,
            "samples": self.samples,
            "requests": self.requests,
            "body_bytes": self.body_bytes,
            "start_ms": self.start_ms,
            "end_ms": self.end_ms,
            "interval_ms": self.interval_ms,
        })
    }

    /// Parses the JSON that [`PreparedLoadSummary::to_json`] returns; returns `None` if a field is
    /// missing.
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            senders: usize::try_from(value["senders"].as_u64()?).ok()?,
            series: value["series"].as_u64()?,
            targets: value["targets"].as_u64()?,
            series_created: value["series_born"].as_u64()?,
            samples: value["samples"].as_u64()?,
            requests: value["requests"].as_u64()?,
            body_bytes: value["body_bytes"].as_u64()?,
            start_ms: value["start_ms"].as_i64()?,
            end_ms: value["end_ms"].as_i64()?,
            interval_ms: value["interval_ms"].as_i64()?,
        })
    }
}

/// Writes the requests of a load to a directory, which is valid only after
/// [`PreparedLoadWriter::finish`].
#[derive(Debug)]
pub struct PreparedLoadWriter {
    dir: PathBuf,
    files: Vec<(PathBuf, BufWriter<File>)>,
}

impl PreparedLoadWriter {
    /// Creates the directory and an empty file for each sender, replacing existing ones. Fails if a
    /// file cannot be created.
    pub fn create(dir: &Path, senders: usize) -> Result<Self, MirrorError> {
        std::fs::create_dir_all(dir).map_err(MirrorError::file("create folder", dir))?;
        let create = |sender| {
            let path = sender_path(dir, sender);
            let file = File::create(&path).map_err(MirrorError::file("create", &path))?;
            Ok((path, BufWriter::with_capacity(1 << 20, file)))
        };
        Ok(Self {
            dir: dir.to_path_buf(),
            files: (0..senders)
                .map(create)
                .collect::<Result<_, MirrorError>>()?,
        })
    }

    /// Appends a request to the file of `sender`, behind its earlier ones, through a buffer.
    pub fn push(&mut self, sender: usize, request: &Request) -> Result<(), MirrorError> {
        let (path, file) = &mut self.files[sender];
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&request.due_ms.to_le_bytes());
        header[8..12].copy_from_slice(&request.samples.to_le_bytes());
        header[12..16].copy_from_slice(&(request.body.len() as u32).to_le_bytes());
        header[16] = match request.protocol {
            RemoteWriteProtocol::One => 1,
            RemoteWriteProtocol::Two => 2,
        };
        file.write_all(&header)
            .and_then(|()| file.write_all(&request.body))
            .map_err(MirrorError::file("write", path))
    }

    /// Flushes the files and writes the summary, without which the directory is not a valid load.
    pub fn finish(self, summary: &PreparedLoadSummary) -> Result<(), MirrorError> {
        for (path, mut file) in self.files {
            file.flush().map_err(MirrorError::file("write", &path))?;
        }
        let path = self.dir.join("load.json");
        let text = format!("{:#}\n", summary.to_json());
        std::fs::write(&path, text).map_err(MirrorError::file("write", &path))
    }
}

/// Reads the summary of the load in `dir`. Fails if the directory was not finished.
pub fn read_summary(dir: &Path) -> Result<PreparedLoadSummary, MirrorError> {
    let path = dir.join("load.json");
    let text = std::fs::read_to_string(&path).map_err(MirrorError::file("read", &path))?;
    serde_json::from_str(&text)
        .ok()
        .and_then(|v| PreparedLoadSummary::from_json(&v))
        .ok_or_else(|| MirrorError::Usage(format!("{} does not describe a load", path.display())))
}

/// Iterates over the requests of one sender in the order in which they were written.
#[derive(Debug)]
pub struct PreparedLoadReader {
    path: PathBuf,
    file: BufReader<File>,
}

impl PreparedLoadReader {
    /// Opens the file of `sender` in `dir`, positioned at its first request. Fails if it does not
    /// exist.
    pub fn open(dir: &Path, sender: usize) -> Result<Self, MirrorError> {
        let path = sender_path(dir, sender);
        let file = File::open(&path).map_err(MirrorError::file("open", &path))?;
        Ok(Self {
            path,
            file: BufReader::with_capacity(1 << 18, file),
        })
    }

    fn read(&mut self) -> std::io::Result<Option<Request>> {
        let mut header = [0; HEADER_BYTES];
        match self.file.read_exact(&mut header) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let (due, counts) = header.split_at(8);
        let (samples, rest) = counts.split_at(4);
        let (length, version) = rest.split_at(4);
        let u32_of = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let mut body = Vec::new();
        let length = u64::from(u32_of(length));
        if self.file.by_ref().take(length).read_to_end(&mut body)? as u64 != length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(Request {
            due_ms: i64::from_le_bytes(due.try_into().expect("eight bytes")),
            samples: u32_of(samples),
            protocol: match version {
                [2] => RemoteWriteProtocol::Two,
                _ => RemoteWriteProtocol::One,
            },
            body,
        }))
    }
}

impl Iterator for PreparedLoadReader {
    type Item = Result<Request, MirrorError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read()
            .map_err(MirrorError::file("read", &self.path))
            .transpose()
    }
}

fn sender_path(dir: &Path, sender: usize) -> PathBuf {
    dir.join(format!("sender-{sender}.load"))
}
