//! Folder of rule files that can be edited over HTTP: `firn.rules.folder`.
//!
//! Invariant: a file is replaced as a whole and synced before an edit is accepted, and edits are
//! made one at a time. After an edit the config is reloaded, so that the rules are evaluated at
//! once.

use super::running::ActiveConfig;
use firn_http_client::named_files;
use firn_model::error::{Error, ErrorKind};
use firn_model::sync::lock;
use firn_rules::editing::{self, RuleEditError};
use firn_rules::file::RuleFileOptions;
use firn_server::parts::RuleEditor;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Maximum number of namespaces in a list. A larger folder is a mistake, not rules edited by
/// people.
const NAMESPACES_MAX: usize = 10_000;

/// Edits the rule files in the folder of the active configuration, for the ruler API. Requests fail
/// if the config has no such folder.
pub struct RuleFolder {
    running: Arc<ActiveConfig>,
    /// Held during an edit, so that edits are made one at a time.
    editing: Mutex<()>,
}

impl RuleFolder {
    /// Creates an editor for the folder in the active configuration of `running`, which is looked
    /// up at each request.
    pub fn new(running: Arc<ActiveConfig>) -> Self {
        Self {
            running,
            editing: Mutex::default(),
        }
    }

    fn folder(&self) -> Result<PathBuf, Error> {
        self.running.config().rule_folder.clone().ok_or_else(|| {
            let text = "rule editing is off: set firn.rules.folder in the config";
            Error::new(ErrorKind::NotFound, text)
        })
    }

    fn options(&self) -> RuleFileOptions {
        let config = self.running.config();
        RuleFileOptions {
            ignores_unknown: false,
            is_of_ruler: true,
            has_tenants: config.is_multitenant,
            names: config.names,
            features: self.running.features().language,
        }
    }

    /// Reloads the config after an edit. Fails if the edited rules make it invalid.
    fn take_over(&self) -> Result<(), Error> {
        self.running.reload().map_err(|e| {
            let message = format!("the edit is stored, but the config cannot be reloaded: {e}");
            Error::new(ErrorKind::Internal, message)
        })
    }
}

impl RuleEditor for RuleFolder {
    fn list(&self, namespace: Option<&str>) -> Result<String, Error> {
        let folder = self.folder()?;
        let files = match namespace {
            Some(namespace) => match read(&folder, namespace)? {
                Some(text) => vec![(namespace.to_owned(), text)],
                None => Vec::new(),
            },
            None => read_all(&folder)?,
        };
        if files.is_empty() {
            return Ok("{}\n".to_owned());
        }
        editing::list_namespaces(&files).map_err(refused)
    }

    fn group(&self, namespace: &str, group: &str) -> Result<String, Error> {
        let text = read(&self.folder()?, namespace)?;
        let text = text.ok_or_else(|| refused(RuleEditError::NoGroup))?;
        editing::format_group(namespace, &text, group).map_err(refused)
    }

    fn put(&self, namespace: &str, body: &str) -> Result<(), Error> {
        let folder = self.folder()?;
        let _alone = lock(&self.editing);
        let before = read(&folder, namespace)?;
        let text = editing::set_group(namespace, before.as_deref(), body, self.options());
        write(&folder, namespace, &text.map_err(refused)?)?;
        self.take_over()
    }

    fn remove(&self, namespace: &str, group: Option<&str>) -> Result<(), Error> {
        let folder = self.folder()?;
        let _alone = lock(&self.editing);
        let text = read(&folder, namespace)?;
        let left = match (text, group) {
            (None, Some(_)) => return Err(refused(RuleEditError::NoGroup)),
            (None, None) => return Err(refused(RuleEditError::NoNamespace)),
            (Some(_), None) => None,
            (Some(text), Some(group)) => {
                editing::remove_group(namespace, &text, group).map_err(refused)?
            }
        };
        match left {
            Some(text) => write(&folder, namespace, &text)?,
            None => remove(&folder, namespace)?,
        }
        self.take_over()
    }
}

fn refused(error: RuleEditError) -> Error {
    let kind = match &error {
        RuleEditError::Invalid(_) => ErrorKind::Invalid,
        RuleEditError::NoGroup | RuleEditError::NoNamespace => ErrorKind::NotFound,
        RuleEditError::Spoilt { .. } => ErrorKind::Corrupt,
    };
    Error::new(kind, error.to_string())
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    let message = format!("{what} {}: {error}", path.display());
    Error::new(ErrorKind::Internal, message)
}

fn path_of(folder: &Path, namespace: &str) -> Result<PathBuf, Error> {
    Ok(folder.join(editing::file_name(namespace).map_err(refused)?))
}

/// Returns the content of a namespace's file, or `None` if it does not exist.
fn read(folder: &Path, namespace: &str) -> Result<Option<String>, Error> {
    read_file(&path_of(folder, namespace)?)
}

fn read_file(path: &Path) -> Result<Option<String>, Error> {
    match named_files::read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("read", path, &e)),
    }
}

/// Returns all namespaces in order of their names, with the content of their files.
fn read_all(folder: &Path) -> Result<Vec<(String, String)>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed("read", folder, &e)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| failed("read", folder, &e))?;
        let namespace = entry
            .file_name()
            .to_str()
            .and_then(editing::namespace_from_file_name);
        let Some(namespace) = namespace else {
            continue;
        };
        if files.len() == NAMESPACES_MAX {
            let message = format!("more than {NAMESPACES_MAX} namespaces");
            return Err(Error::new(ErrorKind::Limited, message));
        }
        if let Some(text) = read_file(&entry.path())? {
            files.push((namespace, text));
        }
    }
    files.sort();
    Ok(files)
}

/// Replaces the file of a namespace: writes a new file beside it, syncs and renames it.
fn write(folder: &Path, namespace: &str, text: &str) -> Result<(), Error> {
    let path = path_of(folder, namespace)?;
    // Neither a pattern of rule files nor the name of a namespace matches this name.
    let new = path.with_extension("yml.new");
    replace(folder, &new, &path, text).map_err(|e| failed("write", &path, &e))
}

fn replace(folder: &Path, new: &Path, path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = File::create(new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)?;
    File::open(folder)?.sync_all()
}

fn remove(folder: &Path, namespace: &str) -> Result<(), Error> {
    let path = path_of(folder, namespace)?;
    let removed = fs::remove_file(&path).and_then(|()| File::open(folder)?.sync_all());
    removed.map_err(|e| failed("remove", &path, &e))
}
