//! Reads an exemplar of the protobuf exposition format.

use super::message::read_exemplar;
use firn_model::exemplar::SampleExemplars;
use firn_model::labels::LabelsBuilder;

/// Appends the exemplar in `message`, unless a label name is not UTF-8 or it lacks a required
/// timestamp.
pub(super) fn push_exemplar(message: Option<&[u8]>, needs_time: bool, out: &mut SampleExemplars) {
    let Some(Ok(exemplar)) = message.map(read_exemplar) else {
        return;
    };
    if needs_time && exemplar.time.is_none() {
        return;
    }
    let mut labels = LabelsBuilder::default();
    for (name, value) in exemplar.labels {
        match std::str::from_utf8(name) {
            Ok("") => {}
            Ok(name) => drop(labels.set(name, value)),
            Err(_) => return,
        }
    }
    out.push(labels.build().as_ref(), exemplar.value, exemplar.time);
}
