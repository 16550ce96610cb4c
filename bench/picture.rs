//! Chart of a churn run: memory and query latency over data time, with one line per system.
//!
//! The SVG is generated directly from the observations, without a charting library. Each column of
//! pixels shows the maximum of its values, because the chart is meant to show spikes.

use crate::churn::{Look, Steadiness};
use crate::system::Kind;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const PLOT_HEIGHT: f64 = 190.0;
const PLOT_GAP: f64 = 62.0;
const TOP: f64 = 54.0;
/// Maximum number of columns of a line, which bounds the size of the chart.
const COLUMNS: usize = 360;
const MIB: f64 = 1_048_576.0;

/// One of the two plots of the chart: its title, its position and its figure.
struct Plot<'a> {
    title: &'a str,
    top: f64,
    of: fn(&Look) -> f64,
}

/// Renders the complete chart as SVG, with a legend and both plots.
pub fn svg(measured: &[Steadiness]) -> String {
    let plots = [
        Plot {
            title: "Resident memory, MiB",
            top: TOP,
            of: |l| l.resident_bytes as f64 / MIB,
        },
        Plot {
            title: "Latency of the query, ms",
            top: TOP + PLOT_HEIGHT + PLOT_GAP,
            of: |l| l.query_ms,
        },
    ];
    let height = TOP + 2.0 * PLOT_HEIGHT + PLOT_GAP + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    legend(&mut out, measured);
    for plot in &plots {
        plot.draw(&mut out, measured);
    }
    out.push_str("</svg>\n");
    out
}

fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Firn => "#1b6ac9",
        Kind::Prometheus => "#d9480f",
        Kind::VictoriaMetrics => "#7a4fb5",
    }
}

fn legend(out: &mut String, measured: &[Steadiness]) {
    for (place, one) in measured.iter().enumerate() {
        let x = LEFT + 200.0 * place as f64;
        let kind = one.system.kind;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"10\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"20\">{} {}</text>",
            colour(kind),
            x + 18.0,
            kind.name(),
            one.system.version
        );
    }
}

impl Plot<'_> {
    fn draw(&self, out: &mut String, measured: &[Steadiness]) {
        let all = || measured.iter().flat_map(|m| &m.looks);
        let end_ms = all().map(|l| l.at_ms).max().unwrap_or(0).max(1) as f64;
        let top_value = round_up(all().map(self.of).fold(0.0, f64::max));
        let bottom = self.top + PLOT_HEIGHT;
        let x = |at_ms: f64| LEFT + at_ms / end_ms * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| bottom - value / top_value * PLOT_HEIGHT;
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            self.top - 8.0,
            self.title
        );
        for part in 0..=4 {
            let value = top_value * f64::from(part) / 4.0;
            let at = y(value);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#dddddd\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{value}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0
            );
        }
        for hour in 0..=(end_ms / 3_600_000.0) as u32 {
            let at = x(f64::from(hour) * 3_600_000.0);
            let _ = writeln!(
                out,
                "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{hour} h</text>",
                bottom + 18.0
            );
        }
        for one in measured {
            let _ = write!(
                out,
                "<polyline fill=\"none\" stroke-width=\"1.3\" stroke=\"{}\" points=\"",
                colour(one.system.kind)
            );
            for (at_ms, value) in columns(&one.looks, end_ms, self.of) {
                let _ = write!(out, "{:.1},{:.1} ", x(at_ms), y(value));
            }
            out.push_str("\"/>\n");
        }
    }
}

/// Returns the maximum of each column that has values, and the middle of the column.
fn columns(looks: &[Look], end_ms: f64, of: fn(&Look) -> f64) -> Vec<(f64, f64)> {
    let mut largest = [f64::NAN; COLUMNS];
    for look in looks {
        let column = (look.at_ms as f64 / end_ms * COLUMNS as f64) as usize;
        let slot = &mut largest[column.min(COLUMNS - 1)];
        *slot = slot.max(of(look));
    }
    let middle = |column: usize| (column as f64 + 0.5) * end_ms / COLUMNS as f64;
    let present = largest.iter().enumerate().filter(|(_, v)| !v.is_nan());
    present.map(|(c, v)| (middle(c), *v)).collect()
}

/// Rounds up to the next of 1, 2, 4 or 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-3).log10().floor());
    let steps = [1.0, 2.0, 4.0, 8.0, 10.0].map(|s| s * power);
    steps.into_iter().find(|s| *s >= value).unwrap_or(power)
}
