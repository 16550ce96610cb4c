//! POST `/api/v1/targets/relabel_steps`, an extension of Firn: relabelling rules of the request are
//! applied to its labels.
//!
//! Rules and labels come from clients and can multiply the size of labels with each step. Limits
//! apply to the size of the request, to the output of a single rule, and to all label sets
//! together.

use super::call::ApiCall;
use super::status::run_and_respond;
use super::targets::{LabelMap, RelabelStepsDocument};
use crate::http::failure::ApiFailure;
use axum::response::Response;
use firn_ingest::relabel::{self, RelabelRule, RelabelStep};
use firn_model::labels::Labels;

/// Maximum size of the rules, and of the labels before them, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Maximum size of the label sets after all rules together, in bytes.
const OUTPUT_BYTES_MAX: usize = 8 << 20;

/// Returns the label set after each rule of the parameter `configs`.
pub(crate) async fn relabel_steps(call: ApiCall) -> Result<Response, ApiFailure> {
    let configs = text_parameter(&call, "configs")?;
    let labels = text_parameter(&call, "labels")?;
    let parse = call.app.parts.parse_relabel_rules.clone();
    run_and_respond(&call, move |_| {
        let labels: LabelMap = serde_json::from_str(&labels)
            .map_err(|e| ApiFailure::bad_data(format!("error parsing labels: {e}")))?;
        let rules = parse(&configs).map_err(|e| ApiFailure::bad_data(format!("configs:{e}")))?;
        let steps = trace_within_limits(&rules, &Labels::from_pairs(labels))?;
        Ok(RelabelStepsDocument::new(rules.iter().zip(steps)))
    })
    .await
}

fn text_parameter(call: &ApiCall, name: &str) -> Result<String, ApiFailure> {
    match call.form.get(name) {
        "" => Err(ApiFailure::bad_data(format!(
            "no {name} parameter provided"
        ))),
        text if text.len() > TEXT_BYTES_MAX => Err(ApiFailure::parameter(
            name,
            format!("{} bytes, limit {TEXT_BYTES_MAX}", text.len()),
        )),
        text => Ok(text.to_owned()),
    }
}

/// Applies the rules. Fails before a rule could write too much, and when all label sets together
/// are too long.
fn trace_within_limits(
    rules: &[RelabelRule],
    labels: &Labels,
) -> Result<Vec<RelabelStep>, ApiFailure> {
    let (mut before, mut total) = (size(labels), 0);
    let mut traced = relabel::trace_rules(rules, labels);
    let mut steps = Vec::with_capacity(rules.len());
    for (i, rule) in rules.iter().enumerate() {
        let settings = rule.settings();
        let templates = [settings.replacement(), &settings.target_label];
        let references: usize = templates.iter().map(|t| t.matches('$').count()).sum();
        total += before.saturating_mul(references.max(1));
        if total > OUTPUT_BYTES_MAX {
            return Err(ApiFailure::bad_data(format!(
                "rule {}: the labels after all rules may have more than {OUTPUT_BYTES_MAX} bytes",
                i + 1
            )));
        }
        let Some(step) = traced.next() else {
            break;
        };
        before = size(&step.output);
        steps.push(step);
    }
    Ok(steps)
}

fn size(labels: &Labels) -> usize {
    labels
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_ingest::relabel::RelabelRuleSettings;
    use firn_model::names::NameScheme;

    fn doubling_rules(count: usize, replacement: &str) -> Vec<RelabelRule> {
        let settings = RelabelRuleSettings {
            source_labels: Some(vec!["a".to_owned()]),
            target_label: "a".to_owned(),
            replacement: Some(replacement.to_owned()),
            ..RelabelRuleSettings::default()
        };
        let compile = |settings: RelabelRuleSettings| settings.compile(NameScheme::Utf8);
        let rules = vec![settings; count].into_iter().map(compile);
        rules.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn growth_of_labels_ends_at_the_limit() {
        let labels = Labels::from_pairs([("a", "x".repeat(1000))]);
        let steps = trace_within_limits(&doubling_rules(3, "$1$1"), &labels).unwrap();
        assert_eq!(size(&steps[2].output), 8001);
        let failure = trace_within_limits(&doubling_rules(40, "$1$1"), &labels).unwrap_err();
        let expected = "rule 13: the labels after all rules may have more than 8388608 bytes";
        assert_eq!(failure.message, expected);
        let failure = trace_within_limits(&doubling_rules(1, &"$1".repeat(9000)), &labels);
        assert!(failure.is_err());
    }
}
