//! Lists the objects of a folder in the order of their keys.
//!
//! A folder sorts as its name with a slash, so that a walk in this order visits keys in the order
//! of their bytes: `a-b` before `a/b` before `a0`. Memory is proportional to the number of names in
//! the largest folder.

use super::{STAGED, failed, head_of, is_missing};
use crate::bucket::{ListPage, ListRequest, ListedObject};
use crate::error::{BucketError, BucketFailure};
use crate::key::ObjectKey;
use std::fs;
use std::path::Path;

/// Lists a page of the objects below `root`.
pub(super) fn page(root: &Path, request: &ListRequest) -> Result<ListPage, BucketError> {
    let mut walk = FolderWalk {
        request,
        page: ListPage::default(),
    };
    walk.folder(root, "")?;
    Ok(walk.page)
}

struct FolderWalk<'r> {
    request: &'r ListRequest,
    page: ListPage,
}

impl FolderWalk<'_> {
    /// Adds the objects of a folder, whose keys begin with `prefix`.
    fn folder(&mut self, path: &Path, prefix: &str) -> Result<(), BucketError> {
        for name in self.names(path, prefix)? {
            let key = format!("{prefix}{name}");
            let path = path.join(name.trim_end_matches('/'));
            if name.ends_with('/') {
                self.folder(&path, &key)?;
            } else {
                self.object(&path, &key)?;
            }
            if self.page.is_truncated {
                break;
            }
        }
        Ok(())
    }

    /// Returns the sorted names in a folder that may belong to the page; folders with a slash.
    fn names(&self, path: &Path, prefix: &str) -> Result<Vec<String>, BucketError> {
        let fail = |e| failed("list", &path.display().to_string(), &e);
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            // Removed in the meantime.
            Err(e) if is_missing(&e) && !prefix.is_empty() => return Ok(Vec::new()),
            Err(e) => return Err(fail(e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(fail)?;
            let mut name = entry.file_name().to_string_lossy().into_owned();
            if prefix.is_empty() && name == STAGED {
                continue;
            }
            if entry.file_type().map_err(fail)?.is_dir() {
                name.push('/');
            }
            if self.may_contain(&format!("{prefix}{name}")) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns whether the object `key`, or an object in the folder `key`, may be in the page.
    fn may_contain(&self, key: &str) -> bool {
        let wanted = self.request.prefix.as_str();
        let is_folder = key.ends_with('/');
        let after = self
            .request
            .start_after
            .as_ref()
            .map_or("", ObjectKey::as_str);
        let has_prefix = key.starts_with(wanted) || (is_folder && wanted.starts_with(key));
        has_prefix && (key > after || (is_folder && after.starts_with(key)))
    }

    fn object(&mut self, path: &Path, key: &str) -> Result<(), BucketError> {
        let head = match fs::metadata(path) {
            Ok(metadata) => head_of(&metadata),
            Err(e) if is_missing(&e) => return Ok(()),
            Err(e) => return Err(failed("list", key, &e)),
        };
        let key = ObjectKey::new(key).map_err(|_| {
            let text = format!("list {}: found a foreign file {key:?}", self.request.prefix);
            BucketError::new(BucketFailure::Invalid, text)
        })?;
        self.page.is_truncated = self.page.objects.len() == self.request.limit;
        if !self.page.is_truncated {
            self.page.objects.push(ListedObject { key, head });
        }
        Ok(())
    }
}
