//! `firn test promql FILE...`: runs PromQL scripts against the real head on a simulated disk.
//!
//! One shard and inline compute make a run deterministic. The exit code is 1 if an evaluation
//! failed or a script could not be read, so that a list of scripts can be held by a build.

use super::arguments::{files, paths};
use crate::console;
use clap::{ArgMatches, Command};
use firn_model::batch::Batch;
use firn_model::env::sim;
use firn_model::error::{Error, ErrorKind};
use firn_model::store::{Append, AppendBounds, Select};
use firn_model::tenant::TenantId;
use firn_promql::script::{self, Failure, FileReport, ScriptReport, ScriptStore};
use firn_storage::store::{Store, StoreOptions};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// A span that no script reaches, and that added to a time does not overflow.
const FOREVER_MS: i64 = i64::MAX / 4;

/// The seed of the simulated world; scripts do not depend on it.
const SEED: u64 = 1;

/// What `firn test` understands.
pub fn command() -> Command {
    let promql = Command::new("promql")
        .about("Run PromQL scripts; the exit code is 1 if an evaluation fails")
        .arg(files("Scripts in the format of Prometheus's own tests"));
    Command::new("test")
        .about("Run tests that are written down in files")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(promql)
}

/// Runs `firn test`.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let mut report = ScriptReport::default();
    for file in paths(matches) {
        report.files.push(run_file(&file));
    }
    console::out(&format!("{report}\n"));
    ExitCode::from(u8::from(!report.is_success()))
}

fn run_file(file: &Path) -> FileReport {
    let name = file.to_string_lossy();
    let world = std::fs::read_to_string(file)
        .map_err(|e| e.to_string())
        .and_then(|text| Ok((text, Head::open().map_err(|e| e.message)?)));
    match world {
        Ok((text, mut head)) => script::run(&name, &text, &mut head, &sim::Inline),
        Err(why) => FileReport {
            name: name.into_owned(),
            broken: vec![Failure {
                line: 1,
                text: "open".into(),
                why,
            }],
            ..FileReport::default()
        },
    }
}

/// The head of a script.
struct Head {
    store: Arc<Store>,
    tenant: TenantId,
}

impl Head {
    /// An empty head in a world of its own.
    fn open() -> Result<Self, Error> {
        let options = StoreOptions {
            shards: 1,
            retention_ms: FOREVER_MS,
            lateness_max_ms: FOREVER_MS,
            ..StoreOptions::new("/data")
        };
        Ok(Self {
            store: Store::open(sim::env(SEED).env, options)?,
            tenant: TenantId::anonymous(),
        })
    }
}

impl ScriptStore for Head {
    fn clear(&mut self) -> Result<(), Error> {
        *self = Self::open()?;
        Ok(())
    }

    fn append(&mut self, batch: &Batch) -> Result<(), Error> {
        let bounds = AppendBounds::until(i64::MAX);
        let appended = self.store.append(&self.tenant, batch, bounds).wait()?;
        match appended.rejected.first() {
            None => Ok(()),
            Some(first) => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{:?}: {} samples, the first of {} at {}",
                    first.rejection, first.count, first.first_labels, first.first_time
                ),
            )),
        }
    }

    fn select(&self) -> &dyn Select {
        &*self.store
    }
}
