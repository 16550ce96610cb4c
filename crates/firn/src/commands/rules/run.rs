//! Runs one test of rules: input series are loaded as the test's time advances, groups are
//! evaluated one after the other on a real head, and alerts are compared at their times.

use super::expect::{AlertLabels, check_alerts, check_expr};
use super::read_rules;
use super::suite::{Suite, Test};
use crate::commands::head::Head;
use crate::console;
use firn_model::budget::Budget;
use firn_model::cancel::Cancel;
use firn_model::env::sim;
use firn_model::sample::TimestampMs;
use firn_model::tenant::TenantId;
use firn_model::units::format_go_duration;
use firn_promql::ast::Expr;
use firn_promql::script::{Input, ScriptStore};
use firn_promql::value::{QueryError, QueryResult, Value};
use firn_promql::{Context, EvalTime, Features, Options, query, query_expr, script};
use firn_rules::alert::AlertState;
use firn_rules::alerts::RestoreSettings;
use firn_rules::file::ReadOptions;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::machine::{Action, Event, Machine, MachineSettings};
use firn_rules::rule::{Moment, Outside, Queries};
use firn_rules::schedule::CatchUp;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Memory limit of a query of a test in bytes: ten thousand samples need a fraction of it.
const QUERY_BYTES_MAX: usize = 256 << 20;

/// Options of the test runner, from the command line and the same for all tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) options: ReadOptions,
    pub(super) features: Features,
    pub(super) shows_diff: bool,
    pub(super) is_debug: bool,
}

/// Settings of the groups: no notification is sent, and no evaluation is caught up or restored.
const MACHINE: MachineSettings = MachineSettings {
    catch_up: CatchUp {
        span: Duration::ZERO,
        delay: Duration::ZERO,
    },
    restore: RestoreSettings {
        outage_tolerance: Duration::ZERO,
        grace_period: Duration::ZERO,
    },
    resend_delay: Duration::ZERO,
    query_offset: Duration::ZERO,
    rules_at_once: 1,
};

/// Runs a test and returns the texts of its failures; empty if it passed.
pub(super) fn run(
    test: &Test,
    name: &str,
    suite: &Suite,
    order: &HashMap<&str, usize>,
    rule_files: &[PathBuf],
    settings: Settings,
) -> Vec<String> {
    let began = std::time::Instant::now();
    if settings.is_debug {
        console::err(&format!("DEBUG: Starting test {name}"));
    }
    let errors = match Running::start(test, suite, order, rule_files, settings) {
        Ok(mut running) => running.run(),
        Err(errors) => errors,
    };
    if settings.is_debug {
        let took = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let took = format_go_duration(took);
        console::err(&format!("DEBUG: Test {name} finished, took {took}"));
    }
    errors
}

/// State of a running test: the head, the remaining input and the machines of the groups.
struct Running<'a> {
    test: &'a Test,
    suite: &'a Suite,
    settings: Settings,
    head: Head,
    input: Input,
    machines: Vec<Machine>,
    outside: Outside,
}

impl<'a> Running<'a> {
    fn start(
        test: &'a Test,
        suite: &'a Suite,
        order: &HashMap<&str, usize>,
        rule_files: &[PathBuf],
        settings: Settings,
    ) -> Result<Self, Vec<String>> {
        let one = |e: String| vec![e];
        let lines: Vec<&str> = test.input.iter().map(String::as_str).collect();
        let input = Input::read(test.interval, test.start, &lines).map_err(one)?;
        let mut groups = Vec::new();
        for file in rule_files {
            let rules = read_rules(file, settings.options)?;
            let path = file.display().to_string();
            let features = settings.options.features;
            groups.extend(Group::of_file(&path, &rules, test.interval, features).map_err(one)?);
        }
        groups.sort_by_key(|group| order.get(group.name.as_str()).copied().unwrap_or(0));
        let start = Instant::from_ms(test.start);
        let machine = |group: Group| {
            let mut machine = Machine::added(Arc::new(group), MACHINE, start);
            machine.stop();
            machine
        };
        Ok(Self {
            test,
            suite,
            settings,
            head: Head::open().map_err(|e| one(e.message))?,
            input,
            machines: groups.into_iter().map(machine).collect(),
            outside: Outside {
                external_labels: test.external_labels.clone(),
                external_url: test.external_url.clone(),
                path_prefix: String::new(),
            },
        })
    }

    fn run(&mut self) -> Vec<String> {
        if let Some(nameless) = self.test.alerts.iter().find(|alert| alert.name.is_empty()) {
            let of_group = match self.test.name.as_str() {
                "" => String::new(),
                name => format!(" (in TestGroup {name})"),
            };
            let time = firn_model::units::format_duration(nameless.eval_time);
            return vec![format!(
                "an item under alert_rule_test misses required attribute alertname at eval_time \
                 {time}{of_group}"
            )];
        }
        let mut errors = Vec::new();
        let times: BTreeSet<Duration> = self.test.alerts.iter().map(|a| a.eval_time).collect();
        let mut times = times.into_iter().peekable();
        let mut since = Duration::ZERO;
        while since <= self.longest() {
            if let Err(failed) = self.evaluate(since, &mut errors) {
                errors.extend(failed);
                return errors;
            }
            let next = since + self.suite.evaluation_interval;
            while let Some(time) = times.next_if(|time| *time < next) {
                errors.extend(self.check_alerts_at(time));
            }
            since = next;
        }
        for expr in &self.test.exprs {
            let at = self.at(expr.eval_time).ms();
            let found = self.query(&expr.expr, at);
            errors.extend(check_expr(expr, found, self.suite.is_fuzzy));
        }
        if self.settings.is_debug {
            self.show_all();
        }
        errors
    }

    /// Returns the latest time at which the test compares something.
    fn longest(&self) -> Duration {
        let alerts = self.test.alerts.iter().map(|alert| alert.eval_time);
        let exprs = self.test.exprs.iter().map(|expr| expr.eval_time);
        alerts.chain(exprs).max().unwrap_or_default()
    }

    /// Returns the instant `since` after the start of the test.
    fn at(&self, since: Duration) -> Instant {
        Instant::from_ms(self.test.start).after(since)
    }

    /// Loads the input samples up to now and evaluates all groups. Fails if a rule fails.
    fn evaluate(&mut self, since: Duration, errors: &mut Vec<String>) -> Result<(), Vec<String>> {
        let instant = self.at(since);
        let batch = self.input.take_until(instant.ms());
        let stored = batch.and_then(|batch| self.head.append(&batch).map_err(|e| e.message));
        if let Err(e) = stored {
            errors.push(e);
            return Ok(());
        }
        let mut failed = Vec::new();
        for machine in &mut self.machines {
            let evaluation = Evaluation {
                head: &self.head,
                outside: &self.outside,
                options: options(self.settings.features, self.suite.evaluation_interval),
                cancel: Cancel::new(),
            };
            evaluation.run(machine, instant);
            let rules = machine.group().rules.iter().zip(machine.rules());
            for (rule, state) in rules.filter(|(_, state)| !state.last_error.is_empty()) {
                let time = format_go_duration(instant.nanos());
                failed.push(format!(
                    "    rule: {}, time: {time}, err: {}",
                    rule.name, state.last_error
                ));
            }
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(failed),
        }
    }

    fn check_alerts_at(&self, time: Duration) -> Vec<String> {
        let firing = |name: &str| -> Vec<AlertLabels> {
            let rules = self.machines.iter().flat_map(|machine| {
                let rules = machine.group().rules.iter();
                rules.zip(machine.rules())
            });
            let rules = rules.filter(|(rule, _)| rule.name == name);
            let alerts = rules.flat_map(|(_, state)| state.alerts.active());
            let firing = alerts.filter(|alert| alert.state == AlertState::Firing);
            firing
                .map(|alert| AlertLabels::new(&alert.labels, &alert.annotations))
                .collect()
        };
        let tests = self.test.alerts.iter().filter(|t| t.eval_time == time);
        let name = self.test.name.as_str();
        let check = |test| check_alerts(name, test, firing(&test.name), self.settings.shows_diff);
        tests.filter_map(check).collect()
    }

    fn query(&self, text: &str, at: TimestampMs) -> Result<QueryResult, QueryError> {
        let options = options(self.settings.features, self.suite.evaluation_interval);
        with_context(&self.head, |context| {
            query(context, text, EvalTime::Instant(at), &options)
        })
    }

    /// Prints all samples to standard error in debug mode, like promtool.
    fn show_all(&self) {
        let seconds = (self.longest() + Duration::from_secs(1)).as_secs();
        let span = Duration::from_secs(seconds);
        let text = format_go_duration(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX));
        let expr = format!("{{__name__=~\".+\"}}[{text}]");
        match self.query(&expr, self.at(span).ms()).map(|r| r.value) {
            Ok(Value::Matrix(matrix)) => {
                console::err(&format!(
                    "DEBUG: Dump of all data (input_series and rules) at {text}:"
                ));
                console::err(&super::expect::shown_matrix(&matrix));
            }
            Ok(_) => {}
            Err(e) => console::err(&format!(
                "DEBUG: Failed query exec, expr: {expr:?}, err: {e}"
            )),
        }
    }
}

fn options(features: Features, interval: Duration) -> Options {
    Options {
        features,
        default_subquery_step_ms: interval.as_millis() as i64,
        ..script::OPTIONS
    }
}

fn with_context<T>(head: &Head, run: impl FnOnce(&Context<'_>) -> T) -> T {
    run(&Context {
        store: head.select(),
        tenant: &TenantId::anonymous(),
        compute: &sim::Inline,
        budget: &Budget::new("query of a test", QUERY_BYTES_MAX),
        cancel: &Cancel::default(),
        failed_counts: None,
    })
}

/// Evaluation of one group at one instant, on the head of the test.
struct Evaluation<'a> {
    head: &'a Head,
    outside: &'a Outside,
    options: Options,
    /// Required by queries; tests never cancel them.
    cancel: Cancel,
}

impl Evaluation<'_> {
    /// Performs the actions of the machine until none is left.
    fn run(&self, machine: &mut Machine, instant: Instant) {
        let mut actions = machine.begin_at(instant);
        while let Some(action) = actions.pop() {
            let event = match action {
                Action::Query { rule, instant, .. } => {
                    let moment = Moment {
                        instant,
                        query_offset: machine.query_offset(),
                        limit: machine.group().limit,
                        outside: self.outside,
                    };
                    let group = machine.group().clone();
                    let mut asking = Asking(self);
                    let found = group.rules[rule].evaluate(&moment, &mut asking);
                    let took = Duration::ZERO;
                    Event::Answered { rule, found, took }
                }
                Action::Append { of, batch, .. } => {
                    let outcome = self.head.offer(&batch);
                    Event::Stored { of, outcome }
                }
                Action::Wait(_)
                | Action::Hold(_)
                | Action::Send { .. }
                | Action::Backfill(_)
                | Action::Ended(_) => continue,
                // Alerts of a test have no stored state.
                Action::Restore { rule, .. } => Event::Restored {
                    rule,
                    kept: Vec::new(),
                },
            };
            actions.extend(machine.step(instant, event));
        }
    }
}

/// Evaluates the queries of rules and templates on the head of the test.
struct Asking<'a, 'e>(&'a Evaluation<'e>);

impl Queries for Asking<'_, '_> {
    fn expr(&mut self, expr: &Expr, at: TimestampMs) -> Result<Value, String> {
        let found = with_context(self.0.head, |context| {
            query_expr(context, expr, EvalTime::Instant(at), &self.0.options)
        });
        found.map(|r| r.value).map_err(|e| e.to_string())
    }

    fn text(&mut self, text: &str, at: TimestampMs) -> Result<Value, String> {
        let found = with_context(self.0.head, |context| {
            query(context, text, EvalTime::Instant(at), &self.0.options)
        });
        found.map(|r| r.value).map_err(|e| e.to_string())
    }

    fn cancel(&self) -> &Cancel {
        &self.0.cancel
    }
}
