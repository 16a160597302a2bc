//! Metrics as text.
//!
//! OpenMetrics 1.0 is what prometheus-client writes. Whoever does not ask for it gets the text format of
//! Prometheus, version 0.0.4, of which it differs in the names of families, in two types, and in
//! comments.

use std::fmt::Write;

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus.
    Prometheus,
}

impl Exposition {
    /// The format for somebody with that `Accept` header.
    pub fn wanted_by(accept: Option<&str>) -> Exposition {
        let is_open = |range: &str| {
            let media_type = range.split(';').next().unwrap_or_default();
            media_type.trim().eq_ignore_ascii_case("application/openmetrics-text")
        };
        if accept.unwrap_or_default().split(',').any(is_open) {
            Exposition::OpenMetrics
        } else {
            Exposition::Prometheus
        }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// An OpenMetrics text in this format.
    pub(super) fn of(self, text: String) -> String {
        match self {
            Exposition::OpenMetrics => text,
            Exposition::Prometheus => prometheus(&text),
        }
    }
}

/// In OpenMetrics a family's name lacks the suffix that all its samples have.
fn prometheus(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        // Writing to a String cannot fail; so in all of this function.
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take_if(|(helped, _)| *helped == name) {
                let _ = writeln!(out, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(out, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_for_whoever_asks_for_it() {
        let modern =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*";
        let check = |accept, expected| assert_eq!(Exposition::wanted_by(accept), expected);
        check(Some(modern), Exposition::OpenMetrics);
        check(
            Some("text/plain, application/openmetrics-text; version=0.0.1"),
            Exposition::OpenMetrics,
        );
        for accept in [None, Some(""), Some("*/*"), Some("text/plain;version=0.0.4")] {
            check(accept, Exposition::Prometheus);
        }
    }

    #[test]
    fn families_are_named_as_their_samples() {
        let text = "# HELP a A thing.\n# TYPE a counter\na_total{b=\"c\"} 1\n# HELP d_seconds D.\n\
                    # TYPE d_seconds histogram\n# UNIT d_seconds seconds\nd_seconds_count 0\n\
                    # HELP e E.\n# TYPE e info\ne_info{v=\"1\"} 1\n# EOF\n";
        let expected = "# HELP a_total A thing.\n# TYPE a_total counter\na_total{b=\"c\"} 1\n\
                        # HELP d_seconds D.\n# TYPE d_seconds histogram\nd_seconds_count 0\n\
                        # HELP e_info E.\n# TYPE e_info gauge\ne_info{v=\"1\"} 1\n";
        assert_eq!(Exposition::Prometheus.of(text.to_owned()), expected);
        assert_eq!(Exposition::OpenMetrics.of(text.to_owned()), text);
    }
}
