//! Files that a config names: expansion of patterns, and reads with limits.
//!
//! Patterns have the syntax of Go's `path/filepath`, which upstream uses. `*` and `?` do not match
//! a slash, `[^x]` matches any character except `x`, and a backslash quotes the next character. A
//! leading dot in a name is an ordinary character. Folders that cannot be read match nothing.
//!
//! Invariant: [`read`] terminates and uses bounded memory for every path. Devices and pipes are
//! rejected before they are opened.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;

/// Maximum size in bytes of a file that is read completely. It is sufficient for a hundred thousand
/// rules or targets.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// Characters that make a text a pattern.
const META: [char; 4] = ['*', '?', '[', '\\'];

/// Reads a regular file of at most [`FILE_BYTES_MAX`] bytes. May block.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    // Opening a folder fails with the error of the operating system.
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("not a regular file"));
    }
    read_limited(File::open(path)?, FILE_BYTES_MAX)
}

/// Reads a text file like [`read`]. The encoding is UTF-8, or UTF-16 with a byte order mark, as for
/// YAML files.
pub fn read_text(path: &Path) -> io::Result<String> {
    decode_text(read(path)?)
}

/// Reads at most [`FILE_BYTES_MAX`] bytes from a file of any kind, including pipes.
pub fn read_any(path: &Path) -> io::Result<Vec<u8>> {
    read_limited(File::open(path)?, FILE_BYTES_MAX)
}

/// Reads a text file of any kind like [`read_any`].
pub fn read_any_text(path: &Path) -> io::Result<String> {
    decode_text(read_any(path)?)
}

/// Reads a file like [`read`], on a blocking thread.
pub async fn read_async(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    let reading = spawn_blocking(move || read(&path));
    reading.await.map_err(io::Error::other)?
}

/// Reads a text file like [`read_text`], on a blocking thread.
pub async fn read_text_async(path: &Path) -> io::Result<String> {
    decode_text(read_async(path).await?)
}

fn decode_text(bytes: Vec<u8>) -> io::Result<String> {
    match firn_yaml::decode(&bytes) {
        Ok(text) => Ok(text.into_owned()),
        Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, e)),
    }
}

fn read_limited(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The size in the metadata may be wrong, for example in `/proc`.
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("file is too long: limit {bytes_max} bytes"),
        ))
    } else {
        Ok(bytes)
    }
}

/// Error for a pattern with a syntax error, such as an unclosed class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobSyntaxError;

impl fmt::Display for GlobSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("syntax error in pattern")
    }
}

/// Returns the paths that match `pattern`, sorted by name within each folder. A path without meta
/// characters matches itself if it exists. May block.
pub fn find(pattern: &Path) -> Result<Vec<PathBuf>, GlobSyntaxError> {
    let text = pattern.to_string_lossy();
    GlobPattern::parse(&text)?;
    if !text.contains(META) {
        let is_there = std::fs::symlink_metadata(pattern).is_ok();
        return Ok(is_there.then(|| pattern.to_owned()).into_iter().collect());
    }
    let (dir, name) = match text.rfind('/') {
        Some(at) => text.split_at(at + 1),
        None => ("", &*text),
    };
    let name = GlobPattern::parse(name)?;
    let dirs = match dir {
        "" => vec![PathBuf::new()],
        "/" => vec![PathBuf::from("/")],
        _ => find(Path::new(&dir[..dir.len() - 1]))?,
    };
    let mut found = Vec::new();
    for dir in dirs {
        let listed = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &dir
        };
        let entries = std::fs::read_dir(listed).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        let mut names: Vec<_> = names
            .filter(|n| name.matches(&n.to_string_lossy()))
            .collect();
        names.sort();
        found.extend(names.into_iter().map(|name| dir.join(name)));
    }
    Ok(found)
}

/// A parsed pattern for paths or single names.
struct GlobPattern(Vec<GlobElement>);

/// Element of a pattern, which matches one character or, for a star, any number.
enum GlobElement {
    /// Any sequence of characters.
    Star,
    /// Any single character.
    Any,
    /// A character in one of these ranges, or in none of them if negated.
    Class {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Exactly this character.
    Char(char),
}

impl GlobPattern {
    fn parse(text: &str) -> Result<Self, GlobSyntaxError> {
        let mut parts = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            parts.push(match c {
                '*' => GlobElement::Star,
                '?' => GlobElement::Any,
                '[' => parse_class(&mut rest)?,
                '\\' => GlobElement::Char(rest.next().ok_or(GlobSyntaxError)?),
                c => GlobElement::Char(c),
            });
        }
        Ok(Self(parts))
    }

    fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut at, mut part) = (0, 0);
        // Position of the latest star in the pattern, and end of its match in the name.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.0.get(part) {
                Some(GlobElement::Star) => {
                    star = Some((part, at));
                    part += 1;
                }
                Some(single) if single.matches(name[at]) => {
                    at += 1;
                    part += 1;
                }
                _ => {
                    let Some((of, reach)) = star else {
                        return false;
                    };
                    star = Some((of, reach + 1));
                    (part, at) = (of + 1, reach + 1);
                }
            }
        }
        self.0[part..]
            .iter()
            .all(|part| matches!(part, GlobElement::Star))
    }
}

impl GlobElement {
    fn matches(&self, c: char) -> bool {
        match self {
            GlobElement::Star => false,
            GlobElement::Any => c != '/',
            GlobElement::Class { is_negated, ranges } => {
                let is_in = ranges.iter().any(|(low, high)| (*low..=*high).contains(&c));
                is_in != *is_negated
            }
            GlobElement::Char(own) => *own == c,
        }
    }
}

/// Parses a character class after its opening bracket.
fn parse_class(rest: &mut std::str::Chars<'_>) -> Result<GlobElement, GlobSyntaxError> {
    let is_negated = rest.as_str().starts_with('^');
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        if rest.as_str().starts_with(']') && !ranges.is_empty() {
            rest.next();
            return Ok(GlobElement::Class { is_negated, ranges });
        }
        let low = parse_class_char(rest)?;
        let mut high = low;
        if rest.as_str().starts_with('-') {
            rest.next();
            high = parse_class_char(rest)?;
        }
        ranges.push((low, high));
    }
}

/// Parses a bound of a range. It must not be the end of the pattern.
fn parse_class_char(rest: &mut std::str::Chars<'_>) -> Result<char, GlobSyntaxError> {
    let c = match rest.next() {
        None | Some('-' | ']') => return Err(GlobSyntaxError),
        Some('\\') => rest.next().ok_or(GlobSyntaxError)?,
        Some(c) => c,
    };
    if rest.as_str().is_empty() {
        Err(GlobSyntaxError)
    } else {
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_go() {
        for (pattern, name, want) in [
            ("a.yml", "a.yml", true),
            ("*", ".hidden", true),
            ("*.yml", "a.yml", true),
            ("**.yml", "a.yml", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("a?c", "aüc", true),
            ("a?c", "ac", false),
            ("[^x]a", "ba", true),
            ("[^x]a", "xa", false),
            ("[!x]a", "!a", true),
            ("[!x]a", "ba", false),
            ("[a-c]", "b", true),
            ("[a-c]", "d", false),
            ("[\\-x]", "-", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("", "a", false),
        ] {
            let found = GlobPattern::parse(pattern).map(|pattern| pattern.matches(name));
            assert_eq!(found, Ok(want), "{pattern} of {name}");
        }
        for pattern in ["[", "[a", "[]a]", "[-]", "[a-]", "[^]", "a\\", "[x-\\"] {
            let found = GlobPattern::parse(pattern).map(|_| ());
            assert_eq!(found, Err(GlobSyntaxError), "{pattern}");
        }
    }

    #[test]
    fn files_are_found_through_folders() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/2.yml", "a/1.yml", "b/1.yml", "b/deep/1.yml", "c.yml"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let found = |pattern: &str| {
            let found = find(&dir.path().join(pattern)).unwrap();
            let names = found.iter().map(|f| f.strip_prefix(dir.path()).unwrap());
            let names = names.map(|name| name.display().to_string());
            names.collect::<Vec<_>>().join(" ")
        };
        for (pattern, want) in [
            ("*/*.yml", "a/1.yml a/2.yml b/1.yml"),
            ("**/*.yml", "a/1.yml a/2.yml b/1.yml"),
            ("[^b]/1.yml", "a/1.yml"),
            ("c.yml", "c.yml"),
            ("d.yml", ""),
            ("c.yml/*", ""),
        ] {
            assert_eq!(found(pattern), want, "{pattern}");
        }
        assert_eq!(find(Path::new("[")), Err(GlobSyntaxError));
    }

    #[test]
    fn what_is_no_file_or_an_endless_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        let file = File::create(&path).unwrap();
        for (bytes, is_read) in [(FILE_BYTES_MAX, true), (FILE_BYTES_MAX + 1, false)] {
            file.set_len(bytes).unwrap();
            assert_eq!(read(&path).is_ok(), is_read, "{bytes}");
        }
        let error = |path: &Path| read(path).unwrap_err().to_string();
        assert_eq!(error(&path), "file is too long: limit 16777216 bytes");
        let socket = dir.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [Path::new("/dev/zero"), &socket] {
            assert_eq!(error(path), "not a regular file", "{}", path.display());
        }
        assert_eq!(error(dir.path()), "Is a directory (os error 21)");
    }
}
