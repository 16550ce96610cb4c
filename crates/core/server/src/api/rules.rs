//! `/api/v1/rules` and `/api/v1/alerts`: rule groups and active alerts. `/api/v1/rules/backfill`,
//! an extension of Firn: evaluation of recording rules for past times.
//!
//! Fields, their order, filters, pagination and errors follow upstream (`web/api/v1/api.go`).

use super::call::ApiCall;
use super::form::{parse_bool, parse_integer};
use super::status::{ok_response, run_and_respond};
use super::targets::{LabelMap, label_map};
use super::times::format_rfc3339_nanos;
use crate::http::failure::{ApiFailure, FailureCause};
use axum::response::Response;
use firn_model::error::ErrorKind;
use firn_model::go_float::format_scientific;
use firn_model::matcher::Matcher;
use firn_rules::alert::Alert;
use firn_rules::file::Texts;
use firn_rules::group::RuleGroup;
use firn_rules::instant::RuleInstant;
use firn_rules::rule::{Rule, RuleKind};
use firn_rules::view::{BackfillError, BackfillRequest, BackfillView, GroupView, RuleView};
use ring::digest::{SHA256, digest};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// A duration that is serialized in seconds like in Go: whole numbers without a fraction.
struct GoSeconds(Duration);

impl Serialize for GoSeconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.subsec_nanos() {
            0 => serializer.serialize_u64(self.0.as_secs()),
            _ => serializer.serialize_f64(self.0.as_secs_f64()),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleGroupsDocument {
    groups: Vec<RuleGroupDocument>,
    #[serde(skip_serializing_if = "String::is_empty")]
    group_next_token: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleGroupDocument {
    name: String,
    file: String,
    rules: Vec<RuleDocument>,
    interval: GoSeconds,
    limit: usize,
    evaluation_time: GoSeconds,
    last_evaluation: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum RuleDocument {
    Alerting(Box<AlertingRuleDocument>),
    Recording(Box<RecordingRuleDocument>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlertingRuleDocument {
    state: &'static str,
    name: String,
    query: String,
    duration: GoSeconds,
    keep_firing_for: GoSeconds,
    labels: Texts,
    annotations: BTreeMap<String, String>,
    /// Alerts of the rule; null if the request excludes them.
    alerts: Option<Vec<AlertDocument>>,
    health: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    last_error: String,
    evaluation_time: GoSeconds,
    last_evaluation: String,
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordingRuleDocument {
    name: String,
    query: String,
    labels: Texts,
    health: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    last_error: String,
    evaluation_time: GoSeconds,
    last_evaluation: String,
    r#type: &'static str,
}

#[derive(Serialize)]
struct AlertsDocument {
    alerts: Vec<AlertDocument>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlertDocument {
    labels: LabelMap,
    annotations: BTreeMap<String, String>,
    state: &'static str,
    active_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_firing_since: Option<String>,
    value: String,
}

impl From<&Alert> for AlertDocument {
    fn from(alert: &Alert) -> Self {
        Self {
            labels: label_map(&alert.labels),
            annotations: alert.annotations.iter().cloned().collect(),
            state: alert.state.as_str(),
            active_at: format_time(Some(alert.active_at)),
            keep_firing_since: alert
                .keep_firing_since
                .map(|since| format_time(Some(since))),
            value: format_scientific(alert.value),
        }
    }
}

/// Formats a time like Go. `None` becomes Go's zero time in the year 1.
pub(super) fn format_time(time: Option<RuleInstant>) -> String {
    match time {
        Some(time) => format_rfc3339_nanos(time.nanos()),
        None => "0001-01-01T00:00:00Z".into(),
    }
}

/// Filters and page of a request for rules. Empty filters match everything.
struct RulesFilter {
    names: HashSet<String>,
    groups: HashSet<String>,
    files: HashSet<String>,
    selectors: Vec<String>,
    kind: RuleTypeFilter,
    without_alerts: bool,
    page: Option<RuleGroupPage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleTypeFilter {
    All,
    Alerting,
    Recording,
}

/// The requested page of groups.
struct RuleGroupPage {
    groups_max: usize,
    /// Token of the first group on the page; empty for the first page.
    token: String,
}

/// Returns a function that selects the groups of the tenants of a request.
fn visibility(call: &ApiCall) -> impl FnMut(&GroupView) -> bool + Send + use<> {
    let tenants = call.app.parts.multitenancy.then(|| call.tenant.members());
    move |view| {
        tenants
            .as_ref()
            .is_none_or(|all| all.contains(&view.group.tenant))
    }
}

/// Returns the groups with the rules that match the filters, one page if requested.
pub(crate) async fn rules(call: ApiCall) -> Result<Response, ApiFailure> {
    let filter = RulesFilter::read(&call)?;
    let groups = call.backend.rules.clone();
    let engine = call.app.parts.engine.clone();
    let is_visible = visibility(&call);
    // There may be many thousands of rules, so they are filtered in the query queue.
    run_and_respond(&call, move |run| {
        let mut memory = run.budget().create_reservation();
        let sets = filter.selectors.iter();
        let sets = sets.map(|text| engine.selector(text, &mut memory));
        let sets: Vec<Vec<Matcher>> = sets
            .collect::<Result<_, _>>()
            .map_err(|e| ApiFailure::from_parser(e, None))?;
        if sets.iter().any(|set| set.iter().all(|m| m.matches(b""))) {
            let why = "match[] must contain at least one non-empty matcher";
            return Err(ApiFailure::bad_data(why));
        }
        let mut found = groups.groups(!filter.without_alerts);
        found.retain(is_visible);
        filter.apply(&found, &sets)
    })
    .await
}

/// Returns the pending and firing alerts of all rules, without grouping.
pub(crate) async fn alerts(call: ApiCall) -> Result<Response, ApiFailure> {
    let groups = call.backend.rules.clone();
    let is_visible = visibility(&call);
    run_and_respond(&call, move |_| {
        let mut groups = groups.groups(true);
        groups.retain(is_visible);
        let rules = groups.iter().flat_map(|group| &group.rules);
        let alerts = rules.flat_map(|rule| &rule.alerts);
        Ok(AlertsDocument {
            alerts: alerts.map(AlertDocument::from).collect(),
        })
    })
    .await
}

#[derive(Serialize)]
struct BackfillsDocument {
    backfills: Vec<BackfillDocument>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BackfillDocument {
    group: String,
    file: String,
    start: String,
    end: String,
    state: &'static str,
    instants_done: u64,
    instants: u64,
    samples: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    last_error: String,
}

impl From<BackfillView> for BackfillDocument {
    fn from(view: BackfillView) -> Self {
        Self {
            group: view.request.group,
            file: view.request.file,
            start: format_time(Some(view.request.start)),
            end: format_time(Some(view.request.end)),
            state: if view.is_over { "done" } else { "running" },
            instants_done: view.done,
            instants: view.total,
            samples: view.samples,
            last_error: view.last_error,
        }
    }
}

/// Returns the progress of all backfills that are running or ended recently.
pub(crate) async fn backfills(call: ApiCall) -> Result<Response, ApiFailure> {
    call.require_operator()?;
    let views = call.backend.rules.backfills();
    let backfills = views.into_iter().map(BackfillDocument::from).collect();
    ok_response(&call, &BackfillsDocument { backfills })
}

/// Starts a backfill of the recording rules of one group, and returns its progress.
pub(crate) async fn backfill(call: ApiCall) -> Result<Response, ApiFailure> {
    call.require_operator()?;
    let (start, end) = (call.form.time("start")?, call.form.time("end")?);
    if end < start {
        let why = "end timestamp must not be before start time";
        return Err(ApiFailure::parameter("end", why));
    }
    let now = call.app.parts.env.clock.now_ms();
    if end > now {
        let why = "end timestamp must not be in the future";
        return Err(ApiFailure::parameter("end", why));
    }
    let request = BackfillRequest {
        group: call.form.get("group").to_owned(),
        file: call.form.get("file").to_owned(),
        start: RuleInstant::from_ms(start),
        end: RuleInstant::from_ms(end),
    };
    let begun = call.backend.rules.backfill(request);
    let begun = begun.map_err(|e| match e {
        BackfillError::TooMany(_) | BackfillError::NotYet => {
            ApiFailure::new(FailureCause::Request(ErrorKind::Unavailable), e.to_string())
        }
        e => ApiFailure::parameter("group", e),
    })?;
    ok_response(&call, &BackfillDocument::from(begun))
}

impl RulesFilter {
    fn read(call: &ApiCall) -> Result<Self, ApiFailure> {
        let form = &call.form;
        let all = |name: &str| form.all(name).map(str::to_owned).collect();
        let kind = match form.get("type").to_lowercase().as_str() {
            "" => RuleTypeFilter::All,
            "alert" => RuleTypeFilter::Alerting,
            "record" => RuleTypeFilter::Recording,
            other => {
                let why = format!("not supported value {other:?}");
                return Err(ApiFailure::parameter("type", why));
            }
        };
        let without_alerts = match form.get("exclude_alerts").to_lowercase().as_str() {
            "" => false,
            text => parse_bool(text).map_err(|e| {
                let why = format!("error converting exclude_alerts: {e}");
                ApiFailure::parameter("exclude_alerts", why)
            })?,
        };
        Ok(Self {
            names: all("rule_name[]"),
            groups: all("rule_group[]"),
            files: all("file[]"),
            selectors: form.all("match[]").map(str::to_owned).collect(),
            kind,
            without_alerts,
            page: page(form.get("group_limit"), form.get("group_next_token"))?,
        })
    }

    fn apply(
        &self,
        groups: &[GroupView],
        sets: &[Vec<Matcher>],
    ) -> Result<RuleGroupsDocument, ApiFailure> {
        let mut found = RuleGroupsDocument {
            groups: Vec::new(),
            group_next_token: String::new(),
        };
        for view in self.skip_to_token(groups)? {
            let group = &view.group;
            let is_in = |set: &HashSet<String>, name| set.is_empty() || set.contains(name);
            let is_of_file =
                is_in(&self.files, &group.file) || self.files.contains(group.api_file_name());
            if !is_in(&self.groups, &group.name) || !is_of_file {
                continue;
            }
            let rules = group.rules.iter().zip(&view.rules);
            let rules = rules.filter(|(rule, _)| {
                is_in(&self.names, &rule.name) && is_matched(rule, sets) && self.matches_type(rule)
            });
            let rules: Vec<_> = rules.map(|(r, v)| self.document(r, v)).collect();
            if rules.is_empty() {
                continue;
            }
            let page = self.page.as_ref();
            if page.is_some_and(|page| found.groups.len() == page.groups_max) {
                found.group_next_token = token(group);
                break;
            }
            found.groups.push(RuleGroupDocument {
                name: group.name.clone(),
                file: group.api_file_name().to_owned(),
                rules,
                interval: GoSeconds(group.interval),
                limit: group.limit,
                evaluation_time: GoSeconds(view.last.took),
                last_evaluation: format_time(view.last.began),
            });
        }
        Ok(found)
    }

    /// Returns the groups from the first one of the page on. Fails if the token matches no group,
    /// because groups were changed.
    fn skip_to_token<'g>(&self, groups: &'g [GroupView]) -> Result<&'g [GroupView], ApiFailure> {
        let token_wanted = self.page.as_ref().map_or("", |page| page.token.as_str());
        if token_wanted.is_empty() {
            return Ok(groups);
        }
        let first = groups.iter().position(|g| token(&g.group) == token_wanted);
        match first {
            Some(first) => Ok(&groups[first..]),
            None => {
                let why =
                    format!("invalid group_next_token '{token_wanted}'. were rule groups changed?");
                Err(ApiFailure::parameter("group_next_token", why))
            }
        }
    }

    fn matches_type(&self, rule: &Rule) -> bool {
        match self.kind {
            RuleTypeFilter::All => true,
            RuleTypeFilter::Alerting => rule.alert_settings().is_some(),
            RuleTypeFilter::Recording => rule.alert_settings().is_none(),
        }
    }

    fn document(&self, rule: &Rule, view: &RuleView) -> RuleDocument {
        let last_evaluation = format_time(view.evaluated);
        let evaluation_time = GoSeconds(view.took);
        match &rule.kind {
            RuleKind::Alerting(settings) => {
                RuleDocument::Alerting(Box::new(AlertingRuleDocument {
                    state: match view.evaluated {
                        Some(_) => view.state.as_str(),
                        None => "unknown",
                    },
                    name: rule.name.clone(),
                    query: rule.query.clone(),
                    duration: GoSeconds(settings.hold),
                    keep_firing_for: GoSeconds(settings.keep_firing_for),
                    labels: rule.labels.clone(),
                    annotations: settings.annotations.iter().cloned().collect(),
                    alerts: (!self.without_alerts)
                        .then(|| view.alerts.iter().map(AlertDocument::from).collect()),
                    health: view.health.as_str(),
                    last_error: view.last_error.clone(),
                    evaluation_time,
                    last_evaluation,
                    r#type: "alerting",
                }))
            }
            RuleKind::Recording => RuleDocument::Recording(Box::new(RecordingRuleDocument {
                name: rule.name.clone(),
                query: rule.query.clone(),
                labels: rule.labels.clone(),
                health: view.health.as_str(),
                last_error: view.last_error.clone(),
                evaluation_time,
                last_evaluation,
                r#type: "recording",
            })),
        }
    }
}

/// Returns whether the unexpanded labels of a rule match at least one of the sets, or there are no
/// sets.
fn is_matched(rule: &Rule, sets: &[Vec<Matcher>]) -> bool {
    let value = |name: &str| rule.labels.get(name).map_or("", String::as_str);
    let holds = |m: &Matcher| m.matches(value(m.name()).as_bytes());
    sets.is_empty() || sets.iter().any(|set| set.iter().all(holds))
}

/// Parses the page parameters; `None` if all groups are requested.
fn page(limit: &str, token: &str) -> Result<Option<RuleGroupPage>, ApiFailure> {
    if limit.is_empty() {
        if token.is_empty() {
            return Ok(None);
        }
        let why = "group_limit needs to be present in order to paginate over the groups";
        return Err(ApiFailure::parameter("group_next_token", why));
    }
    let wrong = |why: String| ApiFailure::parameter("group_limit", why);
    let of_long = |why: String| why.replacen("strconv.Atoi", "strconv.ParseInt", 1);
    let groups_max = parse_integer(limit).map_err(of_long);
    let groups_max = groups_max.and_then(|n| match i32::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => Err(format!(
            "strconv.ParseInt: parsing {limit:?}: value out of range"
        )),
    });
    let groups_max =
        groups_max.map_err(|e| wrong(format!("group_limit needs to be a valid number: {e}")))?;
    match usize::try_from(groups_max) {
        Ok(groups_max) if groups_max > 0 => Ok(Some(RuleGroupPage {
            groups_max,
            token: token.to_owned(),
        })),
        _ => Err(wrong("group_limit needs to be greater than 0".into())),
    }
}

/// Returns the page token of a group: a hash of its key in hexadecimal form.
fn token(group: &RuleGroup) -> String {
    let hash = digest(&SHA256, group.key().as_bytes());
    hash.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}
