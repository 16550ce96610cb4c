//! What a request asks, as the queue and the file of active queries need to know it.

use crate::active::SLOT_BYTES;
use crate::form::Form;
use crate::queue::Client;
use firn_model::tenant::TenantId;
use firn_promql::EvalTime;

pub(crate) use crate::active::Range;

/// The parameters that say what is looked for, in the order in which they are written down.
const EXPRESSIONS: [&str; 3] = ["query", "match[]", "match_target"];

/// A question, and who asks it.
#[derive(Debug)]
pub(crate) struct Question {
    /// The endpoint.
    pub(crate) handler: &'static str,
    pub(crate) tenant: TenantId,
    pub(crate) client: Client,
    /// `None` if it is about no time, or about all.
    pub(crate) range: Option<Range>,
    /// The query or the selectors with commas between them, no more than is ever written down.
    pub(crate) expression: String,
    /// Bytes of the whole expression.
    pub(crate) expression_bytes: usize,
}

impl Question {
    /// What the parameters in `form` ask.
    pub(crate) fn new(
        handler: &'static str,
        tenant: TenantId,
        client: Client,
        form: &Form,
        range: Option<Range>,
    ) -> Self {
        let mut expression = String::new();
        let mut expression_bytes = 0;
        for text in EXPRESSIONS.iter().flat_map(|name| form.all(name)) {
            for part in [if expression_bytes == 0 { "" } else { ", " }, text] {
                let room = SLOT_BYTES - expression.len();
                expression.push_str(&part[..part.floor_char_boundary(room)]);
                expression_bytes += part.len();
            }
        }
        Self {
            handler,
            tenant,
            client,
            range,
            expression,
            expression_bytes,
        }
    }
}

impl From<EvalTime> for Range {
    fn from(time: EvalTime) -> Self {
        let (start, end) = match time {
            EvalTime::Instant(time) => (time, time),
            EvalTime::Range { start, end, .. } => (start, end),
        };
        Range {
            start,
            end,
            step_ms: time.step_ms(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_names_every_selector_and_keeps_what_fits() {
        let ask = |form: &str| {
            let form = Form::parse(form, "").unwrap();
            let client = Client::at(None);
            Question::new("series", TenantId::anonymous(), client, &form, None)
        };
        let question = ask("match[]=up&start=1&match[]=down");
        assert_eq!(question.expression, "up, down");
        assert_eq!(question.expression_bytes, 8);
        let question = ask(&format!("query={}&match[]=x", "%C3%A9".repeat(3000)));
        assert_eq!(question.expression, "é".repeat(SLOT_BYTES / 2));
        assert_eq!(question.expression_bytes, 6003);
        assert_eq!(ask("").expression_bytes, 0);
    }
}
