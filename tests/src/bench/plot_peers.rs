//! The comparisons as a picture: one bar a contestant, on a scale on which every step is ten times
//! the last.

use std::fmt::Write;

use super::plot::escape;
use super::report::{Comparison, Report, Side, in_vain, number};

const WIDTH: f64 = 1080.0;
const TOP: f64 = 84.0;
const ROW: f64 = 26.0;
const TITLE: f64 = 40.0;
/// Where the bars begin.
const LEFT: f64 = 392.0;
const DECADE: f64 = 68.0;
/// Where the scale begins, ms, and the names of its steps.
const FIRST_MS: f64 = 0.01;
const STEPS: [&str; 8] = ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"];

/// An SVG of the comparisons.
pub(super) fn svg(report: &Report) -> String {
    let rows: usize = report.comparisons.iter().map(|of| of.contestants.len()).sum();
    let bottom = TOP + rows as f64 * ROW + report.comparisons.len() as f64 * TITLE;
    let height = bottom + 36.0;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13">
<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff" stroke="#d8dee4"/>
<text x="24" y="34" font-size="18" font-weight="600" fill="#1f2328">Tenure and what people use today (bar: median, line: p99; every step is ten times the last)</text>
<text x="24" y="56" font-size="11" fill="#656d76">{}</text>
"##,
        escape(&report.machine)
    );
    for (step, name) in STEPS.iter().enumerate() {
        let x = LEFT + step as f64 * DECADE;
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            r##"<line x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}" stroke="#d8dee4"/>
<text x="{x}" y="{}" text-anchor="middle" font-size="11" fill="#656d76">{name}</text>
"##,
            bottom + 18.0
        );
    }
    let mut y = TOP;
    for comparison in &report.comparisons {
        group(&mut svg, comparison, &mut y);
    }
    svg.push_str("</svg>\n");
    svg
}

fn group(svg: &mut String, comparison: &Comparison, y: &mut f64) {
    let title_y = *y + TITLE - 14.0;
    let (id, what) = (&comparison.id, escape(&comparison.what));
    let _ = writeln!(
        svg,
        r##"<text x="24" y="{title_y}" font-weight="600" fill="#1f2328">{id} {what}</text>"##
    );
    *y += TITLE;
    for contestant in &comparison.contestants {
        let (name, colour) = match contestant.side {
            Side::Tenure => (format!("Tenure, {}", contestant.name), "#2da44e"),
            Side::Floor => (format!("floor: {}", contestant.name), "#8c959f"),
            Side::Peer => (contestant.name.clone(), "#bf8700"),
        };
        let [p50, p99] = [contestant.p50_ms, contestant.p99_ms].map(|ms| LEFT + length(ms));
        let _ = write!(
            svg,
            r##"<text x="40" y="{text_y}" fill="#1f2328">{name}</text>
<rect x="{LEFT}" y="{bar_y}" width="{width:.1}" height="16" rx="3" fill="{colour}"/>
<line x1="{p50:.1}" y1="{line_y}" x2="{p99:.1}" y2="{line_y}" stroke="{colour}" stroke-width="2"/>
<text x="{text_x:.1}" y="{text_y}" fill="#1f2328">{} <tspan fill="#656d76">/ {} ms</tspan></text>
"##,
            contestant.p50_ms.map_or_else(in_vain, number),
            contestant.p99_ms.map_or_else(in_vain, number),
            text_y = *y + 13.0,
            bar_y = *y,
            line_y = *y + 8.0,
            width = p50 - LEFT,
            text_x = p50.max(p99) + 8.0,
            name = escape(&name),
        );
        *y += ROW;
    }
}

/// On the scale; what is beyond its end, or never came, ends there.
fn length(ms: Option<f64>) -> f64 {
    ((ms.unwrap_or(f64::INFINITY) / FIRST_MS).log10() * DECADE)
        .clamp(0.0, (STEPS.len() - 1) as f64 * DECADE)
}
