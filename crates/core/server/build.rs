//! Collects and compresses the files of the web page in `ui/dist`, once for each build.
//!
//! Writes `page_files.rs` for `src/api/page/files.rs`: the text of `index.html`, and a table of all
//! other files with their compressed contents.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

const INDEX: &str = "index.html";

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let missing = || io::Error::other("Cargo did not set the folders of the build");
    let crate_folder = variable("CARGO_MANIFEST_DIR").ok_or_else(missing)?;
    let out = variable("OUT_DIR").ok_or_else(missing)?;
    let dist = crate_folder.join("../../../ui/dist");
    writeln!(io::stdout(), "cargo::rerun-if-changed={}", dist.display())?;

    let mut names = Vec::new();
    collect(&dist, "", &mut names)?;
    names.sort_unstable();
    let index = fs::read_to_string(dist.join(INDEX))?;
    let mut code = format!("pub(super) const INDEX: &str = {index:?};\n");
    code.push_str("pub(super) const FILES: &[PageFile] = &[\n");
    for (i, name) in names.iter().filter(|name| *name != INDEX).enumerate() {
        let packed = out.join(format!("page_file_{i}.gz"));
        compress(&dist.join(name), &packed)?;
        let _ = writeln!(
            code,
            "    PageFile {{ path: {name:?}, gzip: include_bytes!({packed:?}) }},"
        );
    }
    code.push_str("];\n");
    fs::write(out.join("page_files.rs"), code)
}

/// Appends the paths of all files below `folder`, relative to the first one.
fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), names)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
}

fn compress(from: &Path, to: &Path) -> io::Result<()> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&fs::read(from)?)?;
    fs::write(to, encoder.finish()?)
}
