//! Access to files below a configured folder by the paths of requests.
//!
//! ```text
//! path -- clean --> path below the folder -- open --> regular file or folder
//! media   media type of a file, by name or content
//! body    a file as the body of a response
//! ```
//!
//! Invariant: dots in a path do not lead out of the folder. Symbolic links may, because their
//! creator controls the content of the folder. Only regular files are read. All functions may
//! block, except for those of `body`.

pub(crate) mod body;
pub(crate) mod media;

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Error of opening a file, with upstream's messages for console templates.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileOpenError {
    /// The path is not a valid file path.
    #[error("http: invalid or unsafe file path")]
    Unsafe,
    /// A parent in the path is a file rather than a folder.
    #[error("file does not exist")]
    Below,
    /// The system reported an error.
    #[error("open {}: {}", path.display(), reason(error))]
    System {
        /// Path of the file in the file system.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

impl FileOpenError {
    /// Returns the kind of the error, from which the HTTP status is derived.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            FileOpenError::Unsafe | FileOpenError::Below => io::ErrorKind::NotFound,
            FileOpenError::System { error, .. } => error.kind(),
        }
    }
}

/// An existing file or folder with its metadata, found by [`find`]. The file is not opened yet.
#[derive(Debug)]
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    pub(crate) metadata: Metadata,
}

/// Finds the file or folder at `path` below `folder`. The path must start with a slash.
pub(crate) fn find(folder: &Path, path: &str) -> Result<FoundFile, FileOpenError> {
    let inside = clean(path).ok_or(FileOpenError::Unsafe)?;
    let is_named = |part: &Component<'_>| *part != Component::CurDir;
    let mut whole: PathBuf = folder.components().filter(is_named).collect();
    if !inside.as_os_str().is_empty() {
        whole.push(inside);
    }
    if whole.as_os_str().is_empty() {
        whole.push(".");
    }
    match std::fs::metadata(&whole) {
        Ok(metadata) => Ok(FoundFile {
            path: whole,
            metadata,
        }),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Err(FileOpenError::Below),
        Err(error) => Err(FileOpenError::System { path: whole, error }),
    }
}

/// Normalizes a path relative to a folder; `None` if it cannot be a file path.
fn clean(path: &str) -> Option<PathBuf> {
    if path.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.iter().collect())
}

impl FoundFile {
    /// Opens the file for reading. Fails if it is not a regular file.
    pub(crate) fn open(&self) -> io::Result<File> {
        if !self.metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        File::open(&self.path)
    }

    /// Reads the file as text of at most `bytes_max` bytes. Invalid UTF-8 becomes the replacement
    /// character.
    pub(crate) fn text(&self, bytes_max: u64) -> Result<String, String> {
        let told = |error: &io::Error| format!("read {}: {}", self.path.display(), reason(error));
        if self.metadata.is_dir() {
            return Err(told(&io::ErrorKind::IsADirectory.into()));
        }
        let mut bytes = Vec::new();
        let file = self.open().map_err(|e| told(&e))?;
        let read = file
            .take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes);
        read.map_err(|e| told(&e))?;
        if bytes.len() as u64 > bytes_max {
            let path = self.path.display();
            return Err(format!("read {path}: longer than {bytes_max} bytes"));
        }
        Ok(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        })
    }
}

/// Returns the text of a system error in Go's form: lower case and without the error number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_of_a_path_stays_in_the_folder() {
        let cases = [
            ("/a/b.html", Some("a/b.html")),
            ("/", Some("")),
            ("", Some("")),
            ("//a//b/", Some("a/b")),
            ("/a/./b/../c", Some("a/c")),
            ("/../../etc/passwd", Some("etc/passwd")),
            ("/a/../../b", Some("b")),
            ("/..a/b..", Some("..a/b..")),
            ("/a\0b", None),
        ];
        for (path, want) in cases {
            assert_eq!(clean(path), want.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn find_says_what_upstream_says() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "text").unwrap();
        let at = folder.path().display();
        let cases = [
            ("/a", Ok("text".to_owned())),
            ("/x/../a", Ok("text".to_owned())),
            ("/a/b", Err("file does not exist".to_owned())),
            ("/b", Err(format!("open {at}/b: no such file or directory"))),
            ("/", Err(format!("read {at}: is a directory"))),
            ("/\0", Err("http: invalid or unsafe file path".to_owned())),
        ];
        for (path, want) in cases {
            let found = find(folder.path(), path).map_err(|e| e.to_string());
            let got = found.and_then(|found| found.text(4));
            assert_eq!(got, want, "{path}");
        }
        let long = find(folder.path(), "/a").unwrap().text(3).unwrap_err();
        assert_eq!(long, format!("read {at}/a: longer than 3 bytes"));
    }
}
