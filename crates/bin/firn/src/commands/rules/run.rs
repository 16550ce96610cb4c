//! Runs one test of rules: input series are loaded as the test's time advances, groups are
//! evaluated one after the other on a real head, and alerts are compared at their times.

use super::expect::{AlertLabels, check_alerts, check_expr};
use super::read_rules;
use super::suite::{RuleTest, RuleTestSuite};
use crate::commands::head::TestHead;
use crate::console;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim;
use firn_model::sample::TimestampMs;
use firn_model::tenant::TenantId;
use firn_model::units::format_go_duration;
use firn_promql::ast::Expr;
use firn_promql::script::{InputSeries, ScriptStore};
use firn_promql::value::{PromqlError, QueryResult, QueryValue};
use firn_promql::{EvalTime, Features, Options, QueryContext, query, query_expr, script};
use firn_rules::alert::AlertState;
use firn_rules::alerts::RestoreSettings;
use firn_rules::file::RuleFileOptions;
use firn_rules::group::RuleGroup;
use firn_rules::instant::RuleInstant;
use firn_rules::machine::{GroupAction, GroupEvent, GroupMachine, GroupMachineSettings};
use firn_rules::rule::{RuleEvalContext, RuleQuerier, TemplateServerSettings};
use firn_rules::schedule::CatchUpSettings;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Memory limit of a query of a test in bytes: ten thousand samples need a fraction of it.
const QUERY_BYTES_MAX: usize = 256 << 20;

/// Options of the test runner, from the command line and the same for all tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) options: RuleFileOptions,
    pub(super) features: Features,
    pub(super) shows_diff: bool,
    pub(super) is_debug: bool,
}

/// Settings of the groups: no notification is sent, and no evaluation is caught up or restored.
const MACHINE: GroupMachineSettings = GroupMachineSettings {
    catch_up: CatchUpSettings {
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
    test: &RuleTest,
    name: &str,
    suite: &RuleTestSuite,
    order: &HashMap<&str, usize>,
    rule_files: &[PathBuf],
    settings: Settings,
) -> Vec<String> {
    let began = std::time::Instant::now();
    if settings.is_debug {
        console::err(&format!("DEBUG: Starting test {name}"));
    }
    let errors = match RuleTestRun::start(test, suite, order, rule_files, settings) {
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
struct RuleTestRun<'a> {
    test: &'a RuleTest,
    suite: &'a RuleTestSuite,
    settings: Settings,
    head: TestHead,
    input: InputSeries,
    machines: Vec<GroupMachine>,
    outside: TemplateServerSettings,
}

impl<'a> RuleTestRun<'a> {
    fn start(
        test: &'a RuleTest,
        suite: &'a RuleTestSuite,
        order: &HashMap<&str, usize>,
        rule_files: &[PathBuf],
        settings: Settings,
    ) -> Result<Self, Vec<String>> {
        let one = |e: String| vec![e];
        let lines: Vec<&str> = test.input.iter().map(String::as_str).collect();
        let input = InputSeries::parse_lines(test.interval, test.start, &lines).map_err(one)?;
        let mut groups = Vec::new();
        for file in rule_files {
            let rules = read_rules(file, settings.options)?;
            let path = file.display().to_string();
            let features = settings.options.features;
            groups
                .extend(RuleGroup::from_file(&path, &rules, test.interval, features).map_err(one)?);
        }
        groups.sort_by_key(|group| order.get(group.name.as_str()).copied().unwrap_or(0));
        let start = RuleInstant::from_ms(test.start);
        let machine = |group: RuleGroup| {
            let mut machine = GroupMachine::start_added(Arc::new(group), MACHINE, start);
            machine.stop();
            machine
        };
        Ok(Self {
            test,
            suite,
            settings,
            head: TestHead::open().map_err(|e| one(e.message))?,
            input,
            machines: groups.into_iter().map(machine).collect(),
            outside: TemplateServerSettings {
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
            let at = self.instant_after(expr.eval_time).ms();
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
    fn instant_after(&self, since: Duration) -> RuleInstant {
        RuleInstant::from_ms(self.test.start).after(since)
    }

    /// Loads the input samples up to now and evaluates all groups. Fails if a rule fails.
    fn evaluate(&mut self, since: Duration, errors: &mut Vec<String>) -> Result<(), Vec<String>> {
        let instant = self.instant_after(since);
        let batch = self.input.take_until(instant.ms());
        let stored = batch.and_then(|batch| self.head.append(&batch).map_err(|e| e.message));
        if let Err(e) = stored {
            errors.push(e);
            return Ok(());
        }
        let mut failed = Vec::new();
        for machine in &mut self.machines {
            let evaluation = TestGroupEvaluation {
                head: &self.head,
                outside: &self.outside,
                options: options(self.settings.features, self.suite.evaluation_interval),
                cancel: CancelToken::new(),
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
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed)
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

    fn query(&self, text: &str, at: TimestampMs) -> Result<QueryResult, PromqlError> {
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
        match self
            .query(&expr, self.instant_after(span).ms())
            .map(|r| r.value)
        {
            Ok(QueryValue::Matrix(matrix)) => {
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

fn with_context<T>(head: &TestHead, run: impl FnOnce(&QueryContext<'_>) -> T) -> T {
    run(&QueryContext {
        store: head.select(),
        tenant: &TenantId::anonymous(),
        compute: &sim::InlineCompute,
        budget: &Budget::new("query of a test", QUERY_BYTES_MAX),
        cancel: &CancelToken::default(),
        failed_counts: None,
    })
}

/// Evaluation of one group at one instant, on the head of the test.
struct TestGroupEvaluation<'a> {
    head: &'a TestHead,
    outside: &'a TemplateServerSettings,
    options: Options,
    /// Required by queries; tests never cancel them.
    cancel: CancelToken,
}

impl TestGroupEvaluation<'_> {
    /// Performs the actions of the machine until none is left.
    fn run(&self, machine: &mut GroupMachine, instant: RuleInstant) {
        let mut actions = machine.start_evaluation_at(instant);
        while let Some(action) = actions.pop() {
            let event = match action {
                GroupAction::Query { rule, instant, .. } => {
                    let moment = RuleEvalContext {
                        instant,
                        query_offset: machine.query_offset(),
                        limit: machine.group().limit,
                        outside: self.outside,
                    };
                    let group = machine.group().clone();
                    let mut asking = TestHeadQuerier(self);
                    let found = group.rules[rule].evaluate(&moment, &mut asking);
                    let took = Duration::ZERO;
                    GroupEvent::Answered { rule, found, took }
                }
                GroupAction::Append { of, batch, .. } => {
                    let outcome = self.head.append_batch(&batch);
                    GroupEvent::Stored { of, outcome }
                }
                GroupAction::Wait(_)
                | GroupAction::Hold(_)
                | GroupAction::Send { .. }
                | GroupAction::Backfill(_)
                | GroupAction::Ended(_) => continue,
                // Alerts of a test have no stored state.
                GroupAction::Restore { rule, .. } => GroupEvent::Restored {
                    rule,
                    kept: Vec::new(),
                },
            };
            actions.extend(machine.step(instant, event));
        }
    }
}

/// Evaluates the queries of rules and templates on the head of the test.
struct TestHeadQuerier<'a, 'e>(&'a TestGroupEvaluation<'e>);

impl RuleQuerier for TestHeadQuerier<'_, '_> {
    fn query_expr(&mut self, expr: &Expr, at: TimestampMs) -> Result<QueryValue, String> {
        let found = with_context(self.0.head, |context| {
            query_expr(context, expr, EvalTime::Instant(at), &self.0.options)
        });
        found.map(|r| r.value).map_err(|e| e.to_string())
    }

    fn query_text(&mut self, text: &str, at: TimestampMs) -> Result<QueryValue, String> {
        let found = with_context(self.0.head, |context| {
            query(context, text, EvalTime::Instant(at), &self.0.options)
        });
        found.map(|r| r.value).map_err(|e| e.to_string())
    }

    fn cancel(&self) -> &CancelToken {
        &self.0.cancel
    }
}
