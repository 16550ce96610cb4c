//! Determines the times that an expression reads from its syntax tree: ranges, subqueries, offsets
//! and `@`.
//!
//! Evaluated at `t`, an instant selector reads from `t` minus the lookback delta to `t`, and a
//! range selector reads its range instead. A subquery reads everything that its operand reads at
//! each inner step. `offset` shifts these times, and `@` replaces `t`. Each selector therefore
//! reads a span around one of up to three times: the evaluation time, and the first and last time
//! of the query.

use firn_model::sample::TimestampMs;
use firn_model::units::format_duration;
use firn_promql::ast::{AtModifier, Expr, ExprKind, QueryDuration, VectorSelector, WindowEdges};
use firn_promql::durations::{self, DurationContext};
use firn_promql::functions::FunctionId;

/// The time range for which two systems have the same data, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonTimeRange {
    /// First time in milliseconds since the epoch.
    pub start_ms: TimestampMs,
    /// Last time in milliseconds since the epoch.
    pub end_ms: TimestampMs,
}

/// The evaluation times of a query. Start and end are equal for an instant query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryGrid {
    /// First evaluation time in milliseconds since the epoch.
    pub start_ms: TimestampMs,
    /// Upper bound of the evaluation times in milliseconds since the epoch.
    pub end_ms: TimestampMs,
    /// Time between two evaluations in milliseconds, unused for an instant query.
    pub step_ms: i64,
}

/// The time to which a span is relative, as `@` and the query determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanAnchor {
    Evaluation,
    Start,
    End,
    Epoch,
}

/// A range of times relative to an anchor, in milliseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AnchoredSpan {
    anchor: SpanAnchor,
    from_ms: i64,
    to_ms: i64,
}

/// The time spans that the selectors of an expression read, relative to the times of its
/// evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectorReach {
    spans: Vec<AnchoredSpan>,
}

impl SelectorReach {
    /// Determines the spans that `expr` reads with the given lookback delta. Duration expressions
    /// are evaluated for `grid`; fails if one of them is invalid.
    pub fn from_expr(expr: &Expr, grid: QueryGrid, lookback_ms: i64) -> Result<Self, String> {
        let context = DurationContext {
            step_ns: if grid.start_ms == grid.end_ms {
                0
            } else {
                grid.step_ms.saturating_mul(1_000_000)
            },
            range_ms: grid.end_ms - grid.start_ms,
        };
        let mut settled = expr.clone();
        durations::resolve(&mut settled, context).map_err(|e| e.to_string())?;
        let mut reach = Self::default();
        let here = AnchoredSpan {
            anchor: SpanAnchor::Evaluation,
            from_ms: 0,
            to_ms: 0,
        };
        reach.walk(&settled, here, lookback_ms);
        Ok(reach)
    }

    fn walk(&mut self, expr: &Expr, times: AnchoredSpan, lookback_ms: i64) {
        match &expr.kind {
            ExprKind::Vector(vector) => {
                let read = times
                    .shift_by_modifiers(vector.at, &vector.offset)
                    .widen(lookback_ms, 0);
                self.spans
                    .push(extend_for_modifier(read, vector, lookback_ms));
            }
            ExprKind::Matrix(matrix) => {
                let vector = &matrix.vector;
                let read = times
                    .shift_by_modifiers(vector.at, &vector.offset)
                    .widen(millis(&matrix.range), 0);
                self.spans
                    .push(extend_for_modifier(read, vector, lookback_ms));
            }
            ExprKind::Subquery(subquery) => {
                let inner = times.shift_by_modifiers(subquery.at, &subquery.offset);
                self.walk(
                    &subquery.expr,
                    inner.widen(millis(&subquery.range), 0),
                    lookback_ms,
                );
            }
            ExprKind::Call(call) => {
                if call.function.id == FunctionId::Info {
                    self.spans.push(times.widen(lookback_ms, 0));
                }
                call.args
                    .iter()
                    .for_each(|arg| self.walk(arg, times, lookback_ms));
            }
            _ => expr.for_each_child(&mut |child| self.walk(child, times, lookback_ms)),
        }
    }

    /// Checks that an instant query at the end of `stretch` reads only data inside it. Fails with
    /// the reason if it does not.
    pub fn check_instant(&self, stretch: CommonTimeRange) -> Result<(), String> {
        self.check(stretch.end_ms, stretch)
    }

    /// Returns the earliest start of a range query up to the end of `stretch` that reads only data
    /// inside it. Fails with the reason if there is none.
    pub fn range_start(&self, stretch: CommonTimeRange) -> Result<TimestampMs, String> {
        let moving = |span: &&AnchoredSpan| {
            matches!(span.anchor, SpanAnchor::Evaluation | SpanAnchor::Start)
        };
        let back = self
            .spans
            .iter()
            .filter(moving)
            .map(|span| -span.from_ms)
            .max();
        let start = stretch.start_ms.saturating_add(back.unwrap_or(0).max(0));
        self.check(start, stretch)?;
        Ok(start)
    }

    /// Checks that all data that is read is inside `stretch` if the expression is evaluated from
    /// `start` to its end.
    fn check(&self, start: TimestampMs, stretch: CommonTimeRange) -> Result<(), String> {
        let end = stretch.end_ms;
        let has_ms = end - stretch.start_ms;
        for span in &self.spans {
            let (first, last) = match span.anchor {
                SpanAnchor::Evaluation => (start, end),
                SpanAnchor::Start => (start, start),
                SpanAnchor::End => (end, end),
                SpanAnchor::Epoch => (0, 0),
            };
            let from = first.saturating_add(span.from_ms);
            let to = last.saturating_add(span.to_ms);
            if span.anchor == SpanAnchor::Epoch && (from < stretch.start_ms || to > end) {
                return Err(format!(
                    "reads from {} to {}, for which the systems may have different data",
                    crate::api::seconds(from),
                    crate::api::seconds(to)
                ));
            }
            if to > end {
                return Err(format!("reads {} past the end", text(to - end)));
            }
            if from < stretch.start_ms || start > end {
                return Err(format!(
                    "needs {} of history, both systems have {}",
                    text(-span.from_ms),
                    text(has_ms)
                ));
            }
        }
        if start > end {
            Err("both systems have no time in common".to_owned())
        } else {
            Ok(())
        }
    }
}

fn text(ms: i64) -> String {
    format_duration(std::time::Duration::from_millis(ms.max(0).unsigned_abs()))
}

/// Returns a duration in milliseconds. All duration expressions have been evaluated before.
fn millis(duration: &QueryDuration) -> i64 {
    match duration {
        QueryDuration::Millis(ms) => *ms,
        QueryDuration::Expr(_) => 0,
    }
}

/// Extends a span for range modifiers: `anchored` reads a sample before the window, and `smoothed`
/// one after it as well.
fn extend_for_modifier(
    read: AnchoredSpan,
    vector: &VectorSelector,
    lookback_ms: i64,
) -> AnchoredSpan {
    match vector.edges {
        WindowEdges::Plain => read,
        WindowEdges::Anchored => read.widen(lookback_ms, 0),
        WindowEdges::Smoothed => read.widen(lookback_ms, lookback_ms),
    }
}

impl AnchoredSpan {
    fn shift_by_modifiers(self, at: Option<AtModifier>, offset: &QueryDuration) -> Self {
        let at_one = |anchor, ms| AnchoredSpan {
            anchor,
            from_ms: ms,
            to_ms: ms,
        };
        let moved = match at {
            None => self,
            Some(AtModifier::Start) => at_one(SpanAnchor::Start, 0),
            Some(AtModifier::End) => at_one(SpanAnchor::End, 0),
            Some(AtModifier::Time(ms)) => at_one(SpanAnchor::Epoch, ms),
        };
        let offset_ms = millis(offset);
        moved.widen(offset_ms, offset_ms.saturating_neg())
    }

    /// Extends the span at its start and at its end.
    fn widen(self, before_ms: i64, after_ms: i64) -> Self {
        Self {
            anchor: self.anchor,
            from_ms: self.from_ms.saturating_sub(before_ms),
            to_ms: self.to_ms.saturating_add(after_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::parse;

    const MINUTE: i64 = 60_000;

    /// One hour of data, from one to two hours after the epoch.
    const HOUR: CommonTimeRange = CommonTimeRange {
        start_ms: 60 * MINUTE,
        end_ms: 120 * MINUTE,
    };

    fn reach(text: &str) -> SelectorReach {
        let grid = QueryGrid {
            start_ms: HOUR.start_ms,
            end_ms: HOUR.end_ms,
            step_ms: MINUTE,
        };
        SelectorReach::from_expr(&parse(text).unwrap(), grid, 5 * MINUTE).unwrap()
    }

    #[test]
    fn reach_decides_whether_and_from_when_a_question_is_asked() {
        let cases = [
            ("time()", Ok(0)),
            ("up", Ok(5)),
            ("up offset 10m", Ok(15)),
            ("rate(up[20m])", Ok(20)),
            ("rate(up[20m] offset 10m)", Ok(30)),
            ("max_over_time(rate(up[20m])[30m:1m])", Ok(50)),
            (
                "max_over_time(rate(up[20m] offset 5m)[30m:1m] offset 5m)",
                Ok(60),
            ),
            ("sum(up) / sum(rate(up[7m]))", Ok(7)),
            ("rate(up[59m59s])", Ok(60)),
            (
                "rate(up[1h1s])",
                Err("needs 1h1s of history, both systems have 1h"),
            ),
            ("up offset -1s", Err("reads 1s past the end")),
            ("up @ 4000", Ok(0)),
            (
                "up @ 3600",
                Err(
                    "reads from 3300.000 to 3600.000, for which the systems may have different \
                     data",
                ),
            ),
            ("up @ start()", Ok(5)),
            ("up @ end()", Ok(0)),
            (
                "rate(up[70m] @ end())",
                Err("needs 1h10m of history, both systems have 1h"),
            ),
            ("max_over_time((up @ end())[2d:1h])", Ok(0)),
            ("rate(up[10m] anchored)", Ok(15)),
            ("rate(up[10m] smoothed)", Err("reads 5m past the end")),
            ("rate(up[step() * 3])", Ok(3)),
            ("info(up)", Ok(5)),
        ];
        for (text, expected) in cases {
            let found = reach(text).range_start(HOUR);
            let minutes = found.map(|ms| (ms - HOUR.start_ms + MINUTE - 1) / MINUTE);
            assert_eq!(minutes, expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn reach_of_an_instant_is_held_against_the_end() {
        let check = |text: &str| reach(text).check_instant(HOUR);
        assert_eq!(check("rate(up[1h])"), Ok(()));
        assert_eq!(check("up @ start()"), Ok(()));
        let e = check("rate(up[61m])").unwrap_err();
        assert_eq!(e, "needs 1h1m of history, both systems have 1h");
        let none = CommonTimeRange {
            start_ms: 10,
            end_ms: 9,
        };
        let e = reach("1").range_start(none).unwrap_err();
        assert_eq!(e, "both systems have no time in common");
    }

    #[test]
    fn reach_of_a_duration_that_makes_no_sense_is_an_error() {
        let grid = QueryGrid {
            start_ms: 0,
            end_ms: 0,
            step_ms: 0,
        };
        let expr = parse("rate(up[step() - 1m])").unwrap();
        let e = SelectorReach::from_expr(&expr, grid, 0).unwrap_err();
        assert!(e.contains("duration must be greater than 0"), "{e}");
    }
}
