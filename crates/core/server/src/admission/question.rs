//! Description of a query for the queue, the registry and the file of active queries.

use super::active::SLOT_BYTES;
use super::queue::QueueClient;
use firn_model::tenant::TenantId;
use firn_promql::EvalTime;

pub(crate) use crate::admission::active::ActiveQueryRange;

/// The expression and evaluation range of a request, and its client. Created before the request
/// enters the queue.
#[derive(Debug)]
pub(crate) struct RequestedQuery {
    /// Label of the [`ServerEndpoint`](crate::metrics::ServerEndpoint), or `rule` for the query of
    /// a rule.
    pub(crate) handler: &'static str,
    pub(crate) tenant: TenantId,
    /// Line of the queue in which the query waits.
    pub(crate) line: QueueClient,
    /// Who started the query: the address of a client, or a rule group.
    pub(crate) client: String,
    /// Value of the parameter `query_id`.
    pub(crate) query_id: Option<String>,
    /// Evaluation range; `None` if the request has none or covers all times.
    pub(crate) range: Option<ActiveQueryRange>,
    /// Query, or selectors separated by commas, truncated to the size of a record.
    pub(crate) expression: String,
    /// Length of the whole expression in bytes.
    pub(crate) expression_bytes: usize,
}

impl RequestedQuery {
    /// Creates the description of a query with the text or selectors `texts`, without a `query_id`.
    pub(crate) fn new<'a>(
        handler: &'static str,
        tenant: TenantId,
        line: QueueClient,
        client: String,
        texts: impl Iterator<Item = &'a str>,
        range: Option<ActiveQueryRange>,
    ) -> Self {
        let mut expression = String::new();
        let mut expression_bytes = 0;
        for text in texts {
            for part in [if expression_bytes == 0 { "" } else { ", " }, text] {
                let room = SLOT_BYTES - expression.len();
                expression.push_str(&part[..part.floor_char_boundary(room)]);
                expression_bytes += part.len();
            }
        }
        Self {
            handler,
            tenant,
            line,
            client,
            query_id: None,
            range,
            expression,
            expression_bytes,
        }
    }
}

impl From<EvalTime> for ActiveQueryRange {
    fn from(time: EvalTime) -> Self {
        let (start, end) = match time {
            EvalTime::Instant(time) => (time, time),
            EvalTime::Range { start, end, .. } => (start, end),
        };
        ActiveQueryRange {
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
        let ask = |texts: &[&str]| {
            let (tenant, line) = (TenantId::anonymous(), QueueClient::from_address(None));
            let texts = texts.iter().copied();
            RequestedQuery::new("series", tenant, line, String::new(), texts, None)
        };
        let question = ask(&["up", "down"]);
        assert_eq!(question.expression, "up, down");
        assert_eq!(question.expression_bytes, 8);
        let question = ask(&["é".repeat(3000).as_str(), "x"]);
        assert_eq!(question.expression, "é".repeat(SLOT_BYTES / 2));
        assert_eq!(question.expression_bytes, 6003);
        assert_eq!(ask(&[]).expression_bytes, 0);
    }
}
