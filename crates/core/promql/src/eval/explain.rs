//! Builds the report of a plan: its tree with texts, the cost of each matcher in the look-up of its
//! selector, and after an evaluation the figures of each node.
//!
//! The plan contains no parentheses, and its constants are folded; the texts are in the syntax
//! tree. Both trees are traversed together.

mod hints;
mod metric_kinds;
mod probe;

use crate::ast::{Expr, ExprKind};
use crate::depth::ensure_stack;
use crate::eval::account::{grow, storage_error};
use crate::eval::counts::NodeSamples;
use crate::eval::meter::{EvalMeter, NodeMeasurements, node_address};
use crate::eval::tally::SampleTally;
use crate::grid::{SelectorWindow, StepGrid};
use crate::plan::{PlanNode, PlanNodeKind, PlanSelector};
use crate::printer::format_matcher;
use crate::report::{
    MatcherReport, NodeFigures, PlanReport, RAW_RESOLUTION, ReportSources, SelectorReport,
};
use crate::request::{Options, QueryContext};
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::matcher::Matcher;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{MatcherCost, SelectRequest};
use hints::NodeUse;

/// The measurements of an evaluated plan.
pub(crate) struct EvaluatedPlan<'a> {
    /// Time, memory, series and reads of each node.
    pub(crate) meter: &'a EvalMeter,
    /// Rows of each node.
    pub(crate) tally: &'a SampleTally,
    /// Samples of each node.
    pub(crate) samples: NodeSamples,
}

/// Builds the report of one plan.
pub(crate) struct ReportBuilder<'a> {
    ctx: &'a QueryContext<'a>,
    sources: ReportSources<'a>,
    options: &'a Options,
    /// `None` if the query was not evaluated.
    evaluated: Option<EvaluatedPlan<'a>>,
    memory: Reservation,
}

/// An expression with its plan node, and the steps at which it is evaluated.
#[derive(Clone, Copy)]
struct PlannedExpr<'a> {
    expr: &'a Expr,
    node: &'a PlanNode,
    grid: StepGrid,
}

impl<'a> ReportBuilder<'a> {
    /// Creates a builder, which reserves memory in the budget of `ctx`.
    pub(crate) fn new(
        ctx: &'a QueryContext<'a>,
        sources: ReportSources<'a>,
        options: &'a Options,
        evaluated: Option<EvaluatedPlan<'a>>,
    ) -> Self {
        Self {
            memory: ctx.budget.create_reservation(),
            ctx,
            sources,
            options,
            evaluated,
        }
    }

    /// Returns the report of a plan whose root is evaluated at the steps of `grid`, and the
    /// reservation for its memory.
    pub(crate) fn build(
        mut self,
        expr: &Expr,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<(PlanReport, Reservation), PromqlError> {
        let root = PlannedExpr { expr, node, grid };
        let report = self.report(root, NodeUse::default())?;
        Ok((report, self.memory))
    }

    fn report(&mut self, at: PlannedExpr<'_>, usage: NodeUse) -> Result<PlanReport, PromqlError> {
        ensure_stack(|| self.report_here(at, usage))
    }

    fn report_here(
        &mut self,
        at: PlannedExpr<'_>,
        usage: NodeUse,
    ) -> Result<PlanReport, PromqlError> {
        let at = PlannedExpr {
            expr: at.expr.without_parens(),
            ..at
        };
        self.ctx.cancel.check().map_err(storage_error)?;
        let measured = self.measurements(at.node);
        let text = self.text(at.expr)?;
        let selector = match selector_of(at.node) {
            Some(selector) => Some(self.selector_report(selector, at)?),
            None => None,
        };
        let hints = self.hints(at, usage, &measured)?;
        let mut report = PlanReport {
            kind: kind_name(&at.node.kind),
            text,
            selector,
            figures: self.figures(at.node, &measured),
            hints,
            children: Vec::new(),
        };
        for (index, child) in self.children(at).into_iter().enumerate() {
            let usage = usage.of_child(at.node, index);
            report.children.push(self.report(child, usage)?);
        }
        Ok(report)
    }

    /// Returns the operands in the order of the query text.
    fn children<'e>(&self, at: PlannedExpr<'e>) -> Vec<PlannedExpr<'e>> {
        let child = |expr: &'e Expr, node: &'e PlanNode| PlannedExpr { expr, node, ..at };
        match (&at.expr.kind, &at.node.kind) {
            (ExprKind::Call(call), PlanNodeKind::Call(_, args)) => {
                let pairs = call.args.iter().zip(args);
                pairs.map(|(expr, node)| child(expr, node)).collect()
            }
            (ExprKind::Aggregate(aggregate), PlanNodeKind::Aggregate(of_plan)) => {
                let param = aggregate.param.iter().zip(&of_plan.param);
                let param = param.map(|(expr, node)| child(expr, node));
                param
                    .chain([child(&aggregate.expr, &of_plan.input)])
                    .collect()
            }
            (ExprKind::Binary(binary), PlanNodeKind::Binary(of_plan)) => vec![
                child(&binary.left, &of_plan.left),
                child(&binary.right, &of_plan.right),
            ],
            (ExprKind::Unary(_, inner), PlanNodeKind::Negate(node) | PlanNodeKind::Same(node)) => {
                vec![child(inner, node)]
            }
            (ExprKind::Subquery(subquery), PlanNodeKind::Subquery(of_plan)) => {
                let step_ms = self.options.default_subquery_step_ms;
                vec![PlannedExpr {
                    expr: &subquery.expr,
                    node: &of_plan.inner,
                    grid: of_plan.grid(at.grid, step_ms),
                }]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the canonical text of an expression, whose memory is reserved.
    fn text(&mut self, expr: &Expr) -> Result<String, PromqlError> {
        let expected = (expr.span.end - expr.span.start) as usize + size_of::<PlanReport>();
        grow(&mut self.memory, expected)?;
        let text = expr.to_string();
        grow(&mut self.memory, text.len().saturating_sub(expected))?;
        Ok(text)
    }

    fn selector_report(
        &mut self,
        selector: &PlanSelector,
        at: PlannedExpr<'_>,
    ) -> Result<SelectorReport, PromqlError> {
        let costs = if at.grid.count == 0 {
            vec![MatcherCost::default(); selector.matchers.len()]
        } else {
            let limit = SeriesLimit::new(usize::MAX);
            let range = self.window_of(selector, at.node).time_range(&at.grid);
            let request = self.request(&selector.matchers, range, &limit);
            self.ctx.store.explain(request).map_err(storage_error)?
        };
        let mut matchers = Vec::with_capacity(costs.len());
        for (matcher, cost) in selector.matchers.iter().zip(costs) {
            let text = format_matcher(matcher);
            grow(&mut self.memory, text.len() + size_of::<MatcherReport>())?;
            matchers.push(MatcherReport { text, cost });
        }
        Ok(SelectorReport {
            matchers,
            resolution: RAW_RESOLUTION,
        })
    }

    /// Returns the window of a selector, whose range is the lookback for an instant vector.
    fn window_of(&self, selector: &PlanSelector, node: &PlanNode) -> SelectorWindow {
        let range_ms = match &node.kind {
            PlanNodeKind::Matrix(_, range_ms) => *range_ms,
            _ => self.options.lookback_ms,
        };
        SelectorWindow {
            range_ms,
            offset_ms: selector.offset_ms,
            at: selector.at,
        }
    }

    fn request<'r>(
        &'r self,
        matchers: &'r [Matcher],
        range: TimeRange,
        limit: &'r SeriesLimit,
    ) -> SelectRequest<'r> {
        SelectRequest {
            tenant: self.ctx.tenant,
            matchers,
            range,
            newest_only: false,
            cancel: self.ctx.cancel,
            budget: self.ctx.budget,
            series: limit,
            span: None,
        }
    }

    fn measurements(&self, node: &PlanNode) -> NodeMeasurements {
        let evaluated = self.evaluated.as_ref();
        evaluated.map_or_else(NodeMeasurements::default, |evaluated| {
            let meter = evaluated.meter;
            meter.measurements(meter.place(node))
        })
    }

    fn figures(&self, node: &PlanNode, measured: &NodeMeasurements) -> Option<NodeFigures> {
        let evaluated = self.evaluated.as_ref()?;
        let samples = evaluated.samples.get(&node_address(node));
        let (samples_total, samples_read) = samples.copied().unwrap_or_default();
        let is_source = selector_of(node).is_some() || is_subquery(node);
        let series = if is_source {
            measured.series
        } else {
            evaluated.tally.row_count(node) as u64
        };
        Some(NodeFigures {
            series,
            samples_read,
            samples_total,
            bytes_read: measured.reads.bytes,
            cache_hits: measured.reads.cache_hits,
            cache_misses: measured.reads.cache_misses,
            cpu: measured.cpu,
            memory_bytes: measured.memory_bytes,
        })
    }
}

fn is_subquery(node: &PlanNode) -> bool {
    matches!(node.kind, PlanNodeKind::Subquery(_))
}

/// Returns the selector of a node, if the node is a selector.
fn selector_of(node: &PlanNode) -> Option<&PlanSelector> {
    match &node.kind {
        PlanNodeKind::Vector(selector) | PlanNodeKind::Matrix(selector, _) => Some(selector),
        _ => None,
    }
}

/// Returns the name of an operation in Prometheus's syntax trees.
fn kind_name(kind: &PlanNodeKind) -> &'static str {
    match kind {
        PlanNodeKind::Number(_) => "numberLiteral",
        PlanNodeKind::Text(_) => "stringLiteral",
        PlanNodeKind::Vector(_) => "vectorSelector",
        PlanNodeKind::Matrix(..) => "matrixSelector",
        PlanNodeKind::Subquery(_) => "subquery",
        PlanNodeKind::Call(..) => "call",
        PlanNodeKind::Aggregate(_) => "aggregation",
        PlanNodeKind::Binary(_) => "binaryExpr",
        PlanNodeKind::Negate(_) | PlanNodeKind::Same(_) => "unaryExpr",
    }
}
