//! The elements of a value that a loop iterates over.

use crate::value::TemplateValue;
use std::rc::Rc;

/// Returns the elements for a loop over `value`, with their indices or keys; `None` if the type
/// cannot be iterated.
pub(super) fn elements<'v>(
    value: &'v TemplateValue,
) -> Option<Box<dyn Iterator<Item = (TemplateValue, TemplateValue)> + 'v>> {
    fn numbered<'v>(
        values: impl Iterator<Item = TemplateValue> + 'v,
    ) -> Box<dyn Iterator<Item = (TemplateValue, TemplateValue)> + 'v> {
        Box::new(
            values
                .enumerate()
                .map(|(i, value)| (TemplateValue::int(i), value)),
        )
    }
    let key = |key: &Rc<[u8]>| TemplateValue::String(Rc::clone(key));
    Some(match value {
        TemplateValue::Int(int, count) => {
            let element = |index| (TemplateValue::Invalid, TemplateValue::Int(*int, index));
            Box::new((0..*count).map(element))
        }
        TemplateValue::Query(query) => {
            let sample = |index| Some(TemplateValue::Sample(Some(query.get(index)?)));
            numbered((0..query.len()).map_while(sample))
        }
        TemplateValue::Floats(floats) => numbered(floats.iter().copied().map(TemplateValue::Float)),
        TemplateValue::Texts(texts) => numbered(texts.iter().cloned().map(TemplateValue::String)),
        TemplateValue::Params(map) => {
            let texts = |texts: &Rc<[_]>| TemplateValue::Texts(Rc::clone(texts));
            Box::new(map.iter().map(move |(k, v)| (key(k), texts(v))))
        }
        TemplateValue::Strings(map) => Box::new(map.iter().map(move |(k, v)| (key(k), key(v)))),
        TemplateValue::Args(args) => Box::new(
            args.entries()
                .iter()
                .map(move |(k, v)| (key(k), TemplateValue::wrap_interface(v.clone()))),
        ),
        TemplateValue::Invalid => Box::new(std::iter::empty()),
        _ => return None,
    })
}
