//! The section `otlp`: translation of OpenTelemetry metrics into series.

use ConfigValueShape::{Bool, Text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, TEXTS, key};
use firn_config_schema::section::ConfigSection;
use firn_model::names::NameScheme;
use firn_wire::otlp::{AttributePromotion, OtlpTranslation, TranslationStrategy};
use firn_yaml::YamlError;
use std::collections::BTreeSet;

/// Keys of the section.
pub const KEYS: &[ConfigKey] = &[
    key(ALL, Bool),
    key(SOME, TEXTS),
    key(BUT, TEXTS),
    key("translation_strategy", Text).or("UnderscoreEscapingWithSuffixes"),
    key("keep_identifying_resource_attributes", Bool),
    key("convert_histograms_to_nhcb", Bool),
    key("promote_scope_metadata", Bool),
    key("label_name_underscore_sanitization", Bool).or("true"),
    key("label_name_preserve_multiple_underscores", Bool).or("true"),
];

const ALL: &str = "promote_all_resource_attributes";
const SOME: &str = "promote_resource_attributes";
const BUT: &str = "ignore_resource_attributes";

/// Reads the section. Invalid values are rejected with upstream's errors.
pub fn translation(
    section: ConfigSection<'_>,
    names: NameScheme,
) -> Result<OtlpTranslation, YamlError> {
    Ok(OtlpTranslation {
        strategy: strategy(section, names)?,
        promotion: promotion(section)?,
        keeps_identifying: section.flag("keep_identifying_resource_attributes"),
        converts_histograms: section.flag("convert_histograms_to_nhcb"),
        promotes_scope: section.flag("promote_scope_metadata"),
        sanitizes_underscores: section.flag("label_name_underscore_sanitization"),
        preserves_underscores: section.flag("label_name_preserve_multiple_underscores"),
    })
}

/// Returns the translation strategy. A strategy that keeps UTF-8 requires the UTF-8 name scheme. As
/// upstream, an empty one means no translation, with any name scheme.
fn strategy(
    section: ConfigSection<'_>,
    names: NameScheme,
) -> Result<TranslationStrategy, YamlError> {
    let name = section.text_or_empty("translation_strategy");
    if name.is_empty() {
        return Ok(TranslationStrategy::NoTranslation);
    }
    let node = section.get("translation_strategy");
    let node = node.unwrap_or(section.node());
    let mut known = TranslationStrategy::ALL.into_iter();
    match known.find(|strategy| strategy.name() == name) {
        None => Err(node.error(format!("unsupported OTLP translation strategy {name:?}"))),
        Some(strategy) if names == NameScheme::Legacy && !strategy.is_escaping() => Err(node
            .error(format!(
                "OTLP translation strategy {name:?} is not allowed when UTF8 is disabled"
            ))),
        Some(strategy) => Ok(strategy),
    }
}

fn promotion(section: ConfigSection<'_>) -> Result<AttributePromotion, YamlError> {
    let is_set = |key| !section.items(key).is_empty();
    let at = |key| section.get(key).unwrap_or(section.node());
    let promotes_all = section.flag(ALL);
    if promotes_all && is_set(SOME) {
        Err(at(SOME).error(format!(
            "'{ALL}' and '{SOME}' cannot be configured simultaneously"
        )))
    } else if promotes_all {
        Ok(AttributePromotion::AllBut(attributes(
            section, BUT, "ignored",
        )?))
    } else if is_set(BUT) {
        Err(at(BUT).error(format!(
            "'{BUT}' cannot be configured unless '{ALL}' is true"
        )))
    } else {
        Ok(AttributePromotion::Only(attributes(
            section, SOME, "promoted",
        )?))
    }
}

/// Returns the attributes of a list. Empty and duplicate ones are errors.
fn attributes(
    section: ConfigSection<'_>,
    key: &str,
    what: &str,
) -> Result<BTreeSet<String>, YamlError> {
    let mut attributes = BTreeSet::new();
    for item in section.items(key) {
        let attribute = item.text().unwrap_or_default().trim().to_owned();
        let why = if attribute.is_empty() {
            format!("empty {what} OTel resource attribute")
        } else if attributes.contains(&attribute) {
            format!("duplicated {what} OTel resource attribute {attribute:?}")
        } else {
            attributes.insert(attribute);
            continue;
        };
        return Err(item.error(format!("invalid '{key}': {why}")));
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::KEYS as CONFIG;
    use std::path::Path;

    fn check(text: &str, names: NameScheme, want: Result<OtlpTranslation, &str>) {
        let root = firn_yaml::parse(text).unwrap().unwrap();
        let root = ConfigSection::new(Some(&root), CONFIG, Path::new(""));
        match (translation(root.section("otlp"), names), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{text}"),
            (Err(e), Err(want)) => assert!(e.to_string().contains(want), "{text}: {e}"),
            (got, want) => panic!("{text}: {got:?}, wanted {want:?}"),
        }
    }

    #[test]
    fn section_sets_every_key_and_defaults_are_upstreams() {
        let set = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        let some = OtlpTranslation {
            strategy: TranslationStrategy::NoTranslation,
            promotion: AttributePromotion::Only(set(&["a", "b.c"])),
            keeps_identifying: true,
            converts_histograms: true,
            promotes_scope: true,
            sanitizes_underscores: false,
            preserves_underscores: false,
        };
        let all = OtlpTranslation {
            promotion: AttributePromotion::AllBut(set(&["x"])),
            ..OtlpTranslation::default()
        };
        for (text, want) in [
            ("global: {}", OtlpTranslation::default()),
            ("otlp:", OtlpTranslation::default()),
            ("otlp: {}", OtlpTranslation::default()),
            (
                "otlp: {translation_strategy: NoTranslation, \
                 promote_resource_attributes: [a, ' b.c '], \
                 keep_identifying_resource_attributes: true, convert_histograms_to_nhcb: true, \
                 promote_scope_metadata: true, label_name_underscore_sanitization: false, \
                 label_name_preserve_multiple_underscores: false}",
                some,
            ),
            (
                "otlp: {promote_all_resource_attributes: true, ignore_resource_attributes: [x]}",
                all,
            ),
        ] {
            check(text, NameScheme::Utf8, Ok(want));
        }
        let nothing = OtlpTranslation {
            strategy: TranslationStrategy::NoTranslation,
            ..OtlpTranslation::default()
        };
        for text in ["''", "", "~"] {
            let text = format!("otlp: {{translation_strategy: {text}}}");
            check(&text, NameScheme::Legacy, Ok(nothing.clone()));
        }
    }

    #[test]
    fn section_that_upstream_refuses_is_refused() {
        for (keys, names, want) in [
            (
                "promote_all_resource_attributes: true, promote_resource_attributes: [a]",
                NameScheme::Utf8,
                "cannot be configured simultaneously",
            ),
            (
                "ignore_resource_attributes: [a]",
                NameScheme::Utf8,
                "cannot be configured unless 'promote_all_resource_attributes' is true",
            ),
            (
                "promote_resource_attributes: [a, ' ']",
                NameScheme::Utf8,
                "invalid 'promote_resource_attributes': empty promoted OTel resource attribute",
            ),
            (
                "promote_all_resource_attributes: true, ignore_resource_attributes: [a, a]",
                NameScheme::Utf8,
                "duplicated ignored OTel resource attribute \"a\"",
            ),
            (
                "translation_strategy: Nonsense",
                NameScheme::Utf8,
                "unsupported OTLP translation strategy \"Nonsense\"",
            ),
            (
                "translation_strategy: NoTranslation",
                NameScheme::Legacy,
                "OTLP translation strategy \"NoTranslation\" is not allowed when UTF8 is disabled",
            ),
        ] {
            check(&format!("otlp: {{{keys}}}"), names, Err(want));
        }
    }
}
