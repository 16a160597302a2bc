//! The report as a picture: one bar a target, the line is the target.

use std::fmt::Write;

use super::report::{Limit, Report, number};

const WIDTH: u32 = 1080;
const ROW: u32 = 30;
const TOP: u32 = 84;
const LABELS: u32 = 472;
/// Where the target's line stands.
const TARGET: u32 = 420;
/// Bars end here, with a mark if they are longer.
const BARS_MAX: f64 = 1.6;

/// An SVG of the report.
pub(super) fn svg(report: &Report) -> String {
    let rows = u32::try_from(report.rows.len()).unwrap_or(0);
    let height = TOP + rows * ROW + 40;
    let target_x = LABELS + TARGET * 10 / 16; // 1 / BARS_MAX
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13">
<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff" stroke="#d8dee4"/>
<text x="24" y="34" font-size="18" font-weight="600" fill="#1f2328">Measured against the targets (shorter is better)</text>
<text x="24" y="56" font-size="11" fill="#656d76">{}</text>
"##,
        escape(&report.machine)
    );
    for (i, row) in report.rows.iter().enumerate() {
        let y = TOP + u32::try_from(i).unwrap_or(0) * ROW;
        let ratio = row.ratio();
        let length = ratio.min(BARS_MAX) / BARS_MAX * f64::from(TARGET);
        let colour = if row.met() { "#2da44e" } else { "#cf222e" };
        let (sign, target) = match row.limit {
            Limit::Most(most) => ("≤", most),
            Limit::Least(least) => ("≥", least),
        };
        let more = if ratio > BARS_MAX { " ▶" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            r##"<text x="24" y="{text_y}" fill="#656d76">{id}</text><text x="64" y="{text_y}" fill="#1f2328">{what}</text>
<rect x="{LABELS}" y="{y}" width="{TARGET}" height="18" rx="4" fill="#f6f8fa"/><rect x="{LABELS}" y="{y}" width="{length:.1}" height="18" rx="4" fill="{colour}"/>
<text x="{value_x}" y="{text_y}" fill="#1f2328">{value} {unit}{more} <tspan fill="#656d76">{sign} {target}</tspan></text>
"##,
            text_y = y + 14,
            id = row.id,
            what = escape(&row.what),
            value_x = LABELS + TARGET + 14,
            value = number(row.value),
            unit = escape(&row.unit),
            target = number(target),
        );
    }
    let bottom = TOP + rows * ROW;
    let _ = write!(
        svg,
        r##"<line x1="{target_x}" y1="{}" x2="{target_x}" y2="{bottom}" stroke="#1f2328" stroke-dasharray="3 3"/>
<text x="{target_x}" y="{}" text-anchor="middle" font-size="11" fill="#656d76">target</text>
</svg>
"##,
        TOP - 6,
        bottom + 16
    );
    svg
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
