//! Line charts over time as inline SVG, without a charting library.

use super::{escape, time_text};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 22.0;
const TOP: f64 = 8.0;

/// Colours that are distinguishable for people with red-green colour blindness.
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

/// A line of a chart with its name for the legend. Its colour follows from its position.
pub struct ChartLine<'a> {
    /// Name of the line, which is shown in the legend.
    pub name: &'a str,
    /// Times in milliseconds and values; a value that is not finite is a gap.
    pub points: Vec<(i64, f64)>,
    /// Whether the line is dashed, so that a line below it remains visible.
    pub is_dashed: bool,
}

/// Draws lines in one chart with a legend below it. The value axis covers at least `least` to
/// `most`.
pub fn draw(lines: &[ChartLine<'_>], least: f64, most: f64) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let values = || {
        all()
            .map(|(_, value)| *value)
            .filter(|value| value.is_finite())
    };
    let (low, high) = (
        values().fold(least, f64::min),
        values().fold(most, f64::max),
    );
    let (low, high) = match (low.is_finite() && high.is_finite(), low < high) {
        (true, true) => (low, high),
        (true, false) => (low - 1.0, high + 1.0),
        (false, _) => (0.0, 1.0),
    };
    let first = all().map(|(time, _)| *time).min().unwrap_or(0);
    let last = all().map(|(time, _)| *time).max().unwrap_or(0);
    let x = |time: i64| {
        let share = (time - first) as f64 / ((last - first).max(1)) as f64;
        LEFT + share * (WIDTH - LEFT - 8.0)
    };
    let y = |value: f64| {
        let share = (value - low) / (high - low);
        TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM)
    };
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
         <rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" class=\"frame\"/>",
        WIDTH - LEFT - 8.0,
        HEIGHT - TOP - BOTTOM
    );
    for value in [low, (low + high) / 2.0, high] {
        out += &format!(
            "<text x=\"{}\" y=\"{:.1}\" class=\"value\">{}</text>",
            LEFT - 6.0,
            y(value) + 4.0,
            number(value)
        );
    }
    for (time, anchor) in [(first, "start"), (last, "end")] {
        out += &format!(
            "<text x=\"{:.1}\" y=\"{}\" class=\"time\" text-anchor=\"{anchor}\">{}</text>",
            x(time),
            HEIGHT - 6.0,
            escape(&time_text(time))
        );
    }
    for (number, line) in lines.iter().enumerate() {
        out += &path(line, COLOURS[number % COLOURS.len()], &x, &y);
    }
    out + "</svg>" + &legend(lines)
}

fn path(
    line: &ChartLine<'_>,
    colour: &str,
    x: &dyn Fn(i64) -> f64,
    y: &dyn Fn(f64) -> f64,
) -> String {
    let mut path = String::new();
    let mut is_open = false;
    let mut dots = String::new();
    for (time, value) in &line.points {
        if !value.is_finite() {
            is_open = false;
            continue;
        }
        let (x, y) = (x(*time), y(*value));
        path += &format!("{}{x:.1} {y:.1}", if is_open { "L" } else { "M" });
        is_open = true;
        if line.points.len() <= 40 {
            let radius = if line.is_dashed { 2 } else { 3 };
            dots += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>");
        }
    }
    let dashes = if line.is_dashed {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    format!(
        "<g stroke=\"{colour}\" fill=\"{colour}\"><path d=\"{path}\" class=\"line\"{dashes}/>\
         {dots}</g>"
    )
}

fn legend(lines: &[ChartLine<'_>]) -> String {
    let item = |(number, line): (usize, &ChartLine<'_>)| {
        let colour = COLOURS[number % COLOURS.len()];
        format!(
            "<span style=\"color:{colour}\">■ {}</span>",
            escape(line.name)
        )
    };
    let items: Vec<String> = lines.iter().enumerate().map(item).collect();
    format!("<p class=\"legend\">{}</p>", items.join(" "))
}

/// Formats a value for an axis with few digits, in exponential notation if it is large or small.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        format!("{value:.3e}")
    } else {
        format!("{value:.3}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    }
}
