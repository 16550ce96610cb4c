//! A second evaluator that follows the definition of the language as directly as possible: step by
//! step, series by series, from the raw samples, without sharing, planning or reordering. It
//! supports only the features that the random queries use.

use crate::support::Series;
use firn_model::labels::Labels;
use firn_model::sample::is_stale;
use firn_promql::ast::{
    AggregateExpr, AggregateGrouping, AggregateOp, BinaryExpr, BinaryOp, Expr, ExprKind,
    FunctionCall, QueryDuration, UnaryOp, ValueType, VectorSelector,
};
use firn_promql::functions::FunctionId;
use std::collections::BTreeMap;

/// An instant vector: one float per label set.
pub type Vector = BTreeMap<Labels, f64>;

/// The series of the store, and the lookback of instant selectors.
pub struct Naive<'a> {
    pub series: &'a [Series],
    pub lookback_ms: i64,
}

fn millis(duration: &QueryDuration) -> i64 {
    match duration {
        QueryDuration::Millis(ms) => *ms,
        QueryDuration::Expr(_) => panic!("random queries have plain durations"),
    }
}

fn without_name(labels: &Labels) -> Labels {
    Labels::from_pairs(labels.iter().filter(|(name, _)| *name != "__name__"))
}

impl Naive<'_> {
    /// Returns the value of an expression at a time; `None` if Prometheus would fail.
    pub fn vector(&self, expr: &Expr, time: i64) -> Option<Vector> {
        match &expr.kind {
            ExprKind::Paren(inner) => self.vector(inner, time),
            ExprKind::Vector(selector) => Some(self.newest(selector, time)),
            ExprKind::Unary(UnaryOp::Minus, inner) => {
                map(self.vector(inner, time)?, without_name, |v| Some(-v))
            }
            ExprKind::Call(call) => self.call(call, time),
            ExprKind::Aggregate(aggregate) => self.aggregate(aggregate, time),
            ExprKind::Binary(binary) => self.binary(binary, time),
            other => panic!("random queries have no {other:?}"),
        }
    }

    fn scalar(&self, expr: &Expr, time: i64) -> f64 {
        match &expr.kind {
            ExprKind::Number(number) => number.value,
            ExprKind::Paren(inner) => self.scalar(inner, time),
            ExprKind::Unary(UnaryOp::Minus, inner) => -self.scalar(inner, time),
            ExprKind::Call(call) if call.function.id == FunctionId::Time => time as f64 / 1000.0,
            other => panic!("random queries have no scalar {other:?}"),
        }
    }

    fn selected(&self, selector: &VectorSelector) -> impl Iterator<Item = &Series> {
        let matches = |series: &&Series| {
            let matches = |m: &firn_model::matcher::Matcher| m.matches(series.labels.get(m.name()));
            selector.matchers.iter().all(matches)
        };
        self.series.iter().filter(matches)
    }

    fn window(&self, series: &Series, selector: &VectorSelector, time: i64, range: i64) -> Window {
        let end = time - millis(&selector.offset);
        let samples = series
            .times
            .iter()
            .copied()
            .zip(series.values.iter().copied());
        let inside = samples.filter(|(t, _)| *t > end - range && *t <= end);
        Window {
            end,
            range,
            samples: inside.collect(),
        }
    }

    fn newest(&self, selector: &VectorSelector, time: i64) -> Vector {
        let mut out = Vector::new();
        for series in self.selected(selector) {
            let window = self.window(series, selector, time, self.lookback_ms);
            if let Some((_, value)) = window.samples.last()
                && !is_stale(*value)
            {
                out.insert(series.labels.clone(), *value);
            }
        }
        out
    }

    fn call(&self, call: &FunctionCall, time: i64) -> Option<Vector> {
        if let ExprKind::Matrix(matrix) = &call.args[0].kind {
            let mut out = Vector::new();
            for series in self.selected(&matrix.vector) {
                let range = millis(&matrix.range);
                let mut window = self.window(series, &matrix.vector, time, range);
                window.samples.retain(|(_, value)| !is_stale(*value));
                let labels = match call.function.id {
                    FunctionId::LastOverTime => series.labels.clone(),
                    _ => without_name(&series.labels),
                };
                if let Some(value) = window.value(call.function.id)
                    && out.insert(labels, value).is_some()
                {
                    return None;
                }
            }
            return Some(out);
        }
        let input = self.vector(&call.args[0], time)?;
        map(input, without_name, |value| match call.function.id {
            FunctionId::Abs => Some(value.abs()),
            FunctionId::Sqrt => Some(value.sqrt()),
            other => panic!("random queries have no {other:?}"),
        })
    }

    fn aggregate(&self, node: &AggregateExpr, time: i64) -> Option<Vector> {
        let mut groups: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
        for (labels, value) in self.vector(&node.expr, time)? {
            let kept = labels.iter().filter(|(name, _)| match &node.grouping {
                AggregateGrouping::By(names) => names.iter().any(|n| n == name),
                AggregateGrouping::Without(names) => {
                    *name != "__name__" && !names.iter().any(|n| n == name)
                }
            });
            groups
                .entry(Labels::from_pairs(kept))
                .or_default()
                .push(value);
        }
        let fold = |values: Vec<f64>| {
            let count = values.len() as f64;
            let sum: f64 = values.iter().sum();
            match node.op {
                AggregateOp::Sum => sum,
                AggregateOp::Avg => sum / count,
                AggregateOp::Count => count,
                AggregateOp::Min => values.into_iter().fold(f64::NAN, f64::min),
                AggregateOp::Max => values.into_iter().fold(f64::NAN, f64::max),
                AggregateOp::Group => 1.0,
                AggregateOp::Stdvar => {
                    let mean = sum / count;
                    values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count
                }
                other => panic!("random queries have no {other:?}"),
            }
        };
        Some(
            groups
                .into_iter()
                .map(|(l, values)| (l, fold(values)))
                .collect(),
        )
    }

    fn binary(&self, node: &BinaryExpr, time: i64) -> Option<Vector> {
        let is_scalar = |expr: &Expr| expr.value_type() == ValueType::Scalar;
        let combine = |left: f64, right: f64, kept: f64| combine(node, left, right, kept);
        let labels = |labels: &Labels| {
            if node.op.is_comparison() && !node.returns_bool {
                labels.clone()
            } else {
                without_name(labels)
            }
        };
        if is_scalar(&node.right) {
            let right = self.scalar(&node.right, time);
            return map(self.vector(&node.left, time)?, labels, |v| {
                combine(v, right, v)
            });
        }
        if is_scalar(&node.left) {
            let left = self.scalar(&node.left, time);
            return map(self.vector(&node.right, time)?, labels, |v| {
                combine(left, v, v)
            });
        }
        let (left, right) = (
            self.vector(&node.left, time)?,
            self.vector(&node.right, time)?,
        );
        let signatures = |side: &Vector| -> BTreeMap<Labels, Vec<(Labels, f64)>> {
            let mut out: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for (labels, value) in side {
                let elements = out.entry(without_name(labels)).or_default();
                elements.push((labels.clone(), *value));
            }
            out
        };
        let (left_of, right_of) = (signatures(&left), signatures(&right));
        let keep = |side: &Vector, other: &BTreeMap<Labels, Vec<(Labels, f64)>>, has: bool| {
            let kept = side
                .iter()
                .filter(|(l, _)| other.contains_key(&without_name(l)) == has);
            kept.map(|(l, v)| (l.clone(), *v)).collect::<Vector>()
        };
        match node.op {
            BinaryOp::And => return Some(keep(&left, &right_of, true)),
            BinaryOp::Unless => return Some(keep(&left, &right_of, false)),
            BinaryOp::Or => {
                let mut out = keep(&right, &left_of, false);
                out.extend(left);
                return Some(out);
            }
            _ => {}
        }
        if left.is_empty() || right.is_empty() {
            return Some(Vector::new());
        }
        if right_of.values().any(|elements| elements.len() > 1) {
            return None;
        }
        let mut out = Vector::new();
        for (signature, elements) in left_of {
            let Some(partner) = right_of.get(&signature) else {
                continue;
            };
            if elements.len() > 1 {
                return None;
            }
            let ((name, l), (_, r)) = (&elements[0], &partner[0]);
            if let Some(value) = combine(*l, *r, *l) {
                out.insert(labels(name), value);
            }
        }
        Some(out)
    }
}

/// Changes labels and values of all elements. Returns `None` if two elements become equal.
fn map(
    input: Vector,
    labels: impl Fn(&Labels) -> Labels,
    value: impl Fn(f64) -> Option<f64>,
) -> Option<Vector> {
    let mut out = Vector::new();
    for (l, v) in input {
        if let Some(v) = value(v)
            && out.insert(labels(&l), v).is_some()
        {
            return None;
        }
    }
    Some(out)
}

fn combine(node: &BinaryExpr, left: f64, right: f64, kept: f64) -> Option<f64> {
    let holds = match node.op {
        BinaryOp::Add => return Some(left + right),
        BinaryOp::Sub => return Some(left - right),
        BinaryOp::Mul => return Some(left * right),
        BinaryOp::Div => return Some(left / right),
        BinaryOp::Greater => left > right,
        BinaryOp::LessOrEqual => left <= right,
        BinaryOp::NotEqual => left != right,
        other => panic!("random queries have no {other:?}"),
    };
    if node.returns_bool {
        return Some(f64::from(u8::from(holds)));
    }
    holds.then_some(kept)
}

/// The samples of a series in the window of a range selector.
struct Window {
    end: i64,
    range: i64,
    samples: Vec<(i64, f64)>,
}

impl Window {
    fn value(&self, function: FunctionId) -> Option<f64> {
        let values = || self.samples.iter().map(|(_, value)| *value);
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        let count = self.samples.len() as f64;
        Some(match function {
            FunctionId::Rate => self.change(true)? / (self.range as f64 / 1000.0),
            FunctionId::Increase => self.change(true)?,
            FunctionId::Delta => self.change(false)?,
            FunctionId::SumOverTime => values().sum(),
            FunctionId::AvgOverTime => values().sum::<f64>() / count,
            FunctionId::MinOverTime => values().fold(f64::NAN, f64::min),
            FunctionId::MaxOverTime => values().fold(f64::NAN, f64::max),
            FunctionId::CountOverTime => count,
            FunctionId::LastOverTime => last.1,
            FunctionId::Changes => {
                self.samples.windows(2).filter(|w| w[0].1 != w[1].1).count() as f64
            }
            FunctionId::Resets => {
                self.samples.windows(2).filter(|w| w[1].1 < w[0].1).count() as f64
            }
            FunctionId::Idelta if first.0 == last.0 => return None,
            FunctionId::Idelta => last.1 - self.samples[self.samples.len() - 2].1,
            other => panic!("random queries have no {other:?}"),
        })
    }

    /// Returns the change over the whole range, extrapolated from the samples.
    fn change(&self, counter: bool) -> Option<f64> {
        if self.samples.len() < 2 {
            return None;
        }
        let (first, last) = (self.samples[0], self.samples[self.samples.len() - 1]);
        let mut change = last.1 - first.1;
        for pair in self.samples.windows(2) {
            if counter && pair[1].1 < pair[0].1 {
                change += pair[0].1;
            }
        }
        let sampled = (last.0 - first.0) as f64 / 1000.0;
        let average = sampled / (self.samples.len() - 1) as f64;
        let near = |distance: i64| match distance as f64 / 1000.0 {
            far if far >= average * 1.1 => average / 2.0,
            distance => distance,
        };
        let mut to_start = near(first.0 - (self.end - self.range));
        if counter && change > 0.0 && first.1 >= 0.0 {
            to_start = to_start.min(sampled * (first.1 / change));
        }
        Some(change * ((sampled + to_start + near(self.end - last.0)) / sampled))
    }
}
