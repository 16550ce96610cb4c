//! Command lines of the programs that a scenario runs.

use super::ScenarioRun;
use crate::scenario::plan::SystemPlan;
use crate::scenario::run::{SENT_WITHIN_MS, STEPS};
use crate::scenario::state::ScenarioLoadResults;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl ScenarioRun {
    pub(super) fn load_command(&self, start_ms: i64) -> Vec<String> {
        let load = &self.plan.load;
        let span = |span: Duration| format!("{}ms", span.as_millis());
        let mut command = vec![self.firn.display().to_string(), "load".to_owned()];
        let url = format!("http://{}/api/v1/write", self.plan.mirror);
        for (flag, value) in [
            ("--url", url),
            ("--series", load.series.to_string()),
            ("--interval", span(load.interval)),
            ("--duration", span(load.duration)),
            ("--churn", load.churn.clone()),
            ("--churn-period", load.churn_period.clone()),
            ("--seed", load.seed.to_string()),
            ("--start", start_ms.to_string()),
        ] {
            command.extend([flag.to_owned(), value]);
        }
        // Requests fail while a system is down, which must not end the load.
        let switches = ["--live", "--json", "--keep-going"];
        command.extend(switches.map(str::to_owned));
        if let Some(reads) = &load.reads {
            let system = self.plan.system(&reads.system);
            let url = system.map_or(String::new(), |s| format!("http://{}", s.address));
            command.extend(["--query-url".to_owned(), url]);
            command.extend(self.questions(&reads.queries, &reads.flags));
        }
        command
    }

    /// Returns the flags for queries from files that were copied into the run, followed by other
    /// flags.
    fn questions(&self, files: &[PathBuf], flags: &[(String, String)]) -> Vec<String> {
        let files = files.iter().map(|file| {
            let file = self.dir.join(file).display().to_string();
            ["--queries".to_owned(), file]
        });
        let flags = flags
            .iter()
            .map(|(flag, value)| [flag.clone(), value.clone()]);
        files.chain(flags).flatten().collect()
    }

    pub(super) fn compare_command(
        &self,
        system: &SystemPlan,
        from_ms: i64,
        loaded: &ScenarioLoadResults,
        report: &Path,
    ) -> Vec<String> {
        let url = |system: &SystemPlan| format!("http://{}", system.address);
        let interval_ms = self.plan.load.interval.as_millis() as i64;
        let step_ms = interval_ms
            .max((loaded.end_ms - from_ms) / STEPS)
            .max(1_000);
        let compare = &self.plan.compare;
        let mut command = vec![self.firn.display().to_string(), "compare".to_owned()];
        for (flag, value) in [
            ("--baseline", url(&self.plan.baseline)),
            ("--candidate", url(system)),
            ("--start", crate::api::seconds(from_ms)),
            ("--end", crate::api::seconds(loaded.end_ms)),
            ("--step", format!("{step_ms}ms")),
            ("--fail-below", self.plan.checks.match_rate.to_string()),
            ("--report", report.display().to_string()),
        ] {
            command.extend([flag.to_owned(), value]);
        }
        if self.state.joined_ms.contains_key(&system.name) {
            // Series end with staleness markers, so no selector reads data older than the last
            // scrape.
            let wait = format!("{}ms", 2 * interval_ms + SENT_WITHIN_MS);
            command.extend(["--staleness-wait".to_owned(), wait]);
        }
        command.extend(self.questions(&compare.queries, &compare.flags));
        command
    }
}
