//! Files of arguments: `@FILE` stands for the lines of the file, as in Prometheus.
//!
//! A line is an argument, without quotes or escapes. Empty lines and lines that begin with `#` do
//! not count. A line may name a further file. Behind `--` nothing is replaced.
//!
//! Invariant: at most [`FILES_MAX`] files are read, so that a file that names itself ends.

use super::FlagError;
use firn_http_client::named_files;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most files of one command line.
const FILES_MAX: usize = 100;

/// The arguments, with files replaced by their lines.
pub(super) fn expand(args: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, FlagError> {
    let mut waiting: VecDeque<OsString> = args.into_iter().collect();
    let mut expanded = Vec::new();
    let mut files = 0;
    while let Some(arg) = waiting.pop_front() {
        let Some(file) = arg.as_bytes().strip_prefix(b"@") else {
            let is_last = arg == "--";
            expanded.push(arg);
            if is_last {
                break;
            }
            continue;
        };
        files += 1;
        if files > FILES_MAX {
            let why = format!("too many argument files: limit {FILES_MAX}");
            return Err(FlagError::ArgumentFile(why));
        }
        for line in lines_of(Path::new(OsStr::from_bytes(file)))?
            .into_iter()
            .rev()
        {
            waiting.push_front(line);
        }
    }
    expanded.extend(waiting);
    Ok(expanded)
}

/// The lines of a file that are arguments.
fn lines_of(file: &Path) -> Result<Vec<OsString>, FlagError> {
    let shown = file.display();
    if file.as_os_str().is_empty() {
        let why = "expected @ file to expand arguments from".to_owned();
        return Err(FlagError::ArgumentFile(why));
    }
    let bytes = named_files::read_any(file).map_err(|e| {
        FlagError::ArgumentFile(format!("cannot read the argument file {shown:?}: {e}"))
    })?;
    let lines = bytes.split(|b| *b == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let is_argument = |line: &&[u8]| !line.starts_with(b"#") && !line.trim_ascii().is_empty();
    let words = lines.filter(is_argument);
    Ok(words
        .map(|line| OsStr::from_bytes(line).to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_their_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write("args.txt", "--web.enable-lifecycle\n--log.level=warn\n");
        write(
            "odd",
            "# a comment\n\n \t\r\n--page title\r\n  --x\n\"q\"\n--last",
        );
        write("outer", &format!("--a\n@{}\n--b\n", path("args.txt")));
        write("self", &format!("@{}\n", path("self")));
        let check = |args: &[String], want: Result<&[&str], &str>| {
            let got = expand(args.iter().map(OsString::from));
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{args:?}"),
                (Err(e), Err(want)) => assert!(e.to_string().contains(want), "{args:?}: {e}"),
                (got, want) => panic!("{args:?}: {got:?}, want {want:?}"),
            }
        };
        let file = |name: &str| format!("@{}", path(name));
        let own = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let args = ["--web.enable-lifecycle", "--log.level=warn"];
        check(&[file("args.txt")], Ok(&args));
        check(
            &[file("odd")],
            Ok(&["--page title", "  --x", "\"q\"", "--last"]),
        );
        check(
            &["--first".to_owned(), file("outer"), "--end".to_owned()],
            Ok(&["--first", "--a", args[0], args[1], "--b", "--end"]),
        );
        check(
            &own(&["--title=@x", "--", "@x"]),
            Ok(&["--title=@x", "--", "@x"]),
        );
        check(&[file("self")], Err("too many argument files: limit 100"));
        check(
            &own(&["@"]),
            Err("expected @ file to expand arguments from"),
        );
        check(&[file("none")], Err("none\": No such file or directory"));
    }
}
