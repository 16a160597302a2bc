//! Columns of text.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use tenure::wire::steers_terminal;

use crate::output::coloured;

/// Least width of a column that may be made narrower.
const ELASTIC_MIN: usize = 10;
/// Longest text of another program that is shown, characters: it may have any length. A resource with its tenant has 411 at
/// most.
const SHOWN_MAX: usize = 512;

/// The place where text is shown. The default is a file: neither colours nor an edge.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Screen {
    pub(super) coloured: bool,
    /// Columns of the terminal.
    pub(super) width: Option<usize>,
}

impl Screen {
    /// What stdout is.
    pub(super) fn of_stdout() -> Screen {
        let out = io::stdout();
        let width = out.is_terminal().then(|| terminal_size::terminal_size_of(&out)).flatten();
        Screen { coloured: coloured(), width: width.map(|(width, _)| usize::from(width.0)) }
    }
}

/// Rows under a header, each column as wide as its widest cell. The last one is not padded.
pub(super) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// Columns that become narrower where the screen is too narrow; cells are cut off then.
    elastic: Vec<usize>,
}

/// A piece of text and how it is to look.
pub(super) struct Cell {
    text: String,
    look: Look,
}

/// How a cell looks where colours are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Good,
    Warning,
    Bad,
}

impl Look {
    /// The text in this look.
    pub(super) fn paint(self, text: &str, coloured: bool) -> String {
        let code = match self {
            Look::Plain => return text.to_owned(),
            Look::Good => "32",
            Look::Warning => "33",
            Look::Bad => "31",
        };
        if coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::new(text, Look::Plain)
    }
}

impl Cell {
    pub(super) fn new(text: impl ToString, look: Look) -> Cell {
        Cell { text: shown(&text.to_string()), look }
    }
}

/// `-` where there is nothing.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The text without anything that would move a terminal's cursor or colour it: names come from
/// other programs.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(seen).collect()
}

/// The same of a text that may have any length: its beginning.
pub(crate) fn shown(text: &str) -> String {
    cut(text, SHOWN_MAX).chars().map(seen).collect()
}

fn seen(letter: char) -> char {
    if steers_terminal(letter) { '\u{fffd}' } else { letter }
}

impl Table {
    pub(super) fn new(header: &[&'static str]) -> Table {
        Table::elastic(header, &[])
    }

    /// One whose columns of these numbers may become narrower.
    pub(super) fn elastic(header: &[&'static str], elastic: &[usize]) -> Table {
        Table { header: header.to_vec(), rows: Vec::new(), elastic: elastic.to_vec() }
    }

    /// A row; cells beyond the header are not shown.
    pub(super) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each indented by two spaces.
    pub(super) fn render(&self, screen: Screen) -> String {
        let widths = self.widths(screen.width);
        let mut out = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = (&str, Look)>| {
            let mut text = String::from("  ");
            let mut padding = 0;
            for ((cell, look), wide) in cells.zip(&widths) {
                let cell = cut(cell, *wide);
                let _infallible =
                    write!(text, "{:padding$}{}", "", look.paint(&cell, screen.coloured));
                padding = wide - width(&cell) + 2;
            }
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line(&mut self.header.iter().map(|title| (*title, Look::Plain)));
        for row in &self.rows {
            line(&mut row.iter().map(|cell| (cell.text.as_str(), cell.look)));
        }
        out
    }

    /// The width of each column, so that all fit on the screen if they can.
    fn widths(&self, screen: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|title| width(title)).collect();
        for row in &self.rows {
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = (*wide).max(width(&cell.text));
            }
        }
        let Some(screen) = screen else { return widths };
        let mut excess = (widths.iter().sum::<usize>() + 2 * widths.len()).saturating_sub(screen);
        while excess > 0 {
            let narrower = |column: &&usize| widths[**column] > ELASTIC_MIN;
            let widest = self.elastic.iter().filter(narrower).max_by_key(|column| widths[**column]);
            let Some(widest) = widest else { break };
            widths[*widest] -= 1;
            excess -= 1;
        }
        widths
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// The text as far as it fits, with a mark where it goes on.
fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "STATE", "TOKEN"]);
        table.row([Cell::from("a"), Cell::new("held", Look::Good), 17.into()]);
        table.row([Cell::from("grüße"), Cell::new("jeopardy", Look::Warning), "-".into()]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "  NAME   STATE     TOKEN\n  a      held      17\n  grüße  jeopardy  -\n";
        assert_eq!(table().render(Screen::default()), expected);
    }

    #[test]
    fn colours_do_not_count() {
        let plain = table()
            .render(Screen { coloured: true, width: None })
            .replace("\x1b[32m", "")
            .replace("\x1b[33m", "");
        assert_eq!(plain.replace("\x1b[0m", ""), table().render(Screen::default()));
    }

    #[test]
    fn elastic_columns_give_way() {
        let mut table = Table::elastic(&["NAME", "STATE", "OTHER"], &[0, 2]);
        let long = "a-name-that-is-rather-long";
        table.row([Cell::from(long), Cell::from("held"), Cell::from("short")]);
        let render = |width| table.render(Screen { coloured: false, width: Some(width) });
        let line = |width| render(width).lines().nth(1).expect("a row").to_owned();
        assert_eq!(line(80), format!("  {long}  held   short"));
        assert_eq!(line(32), "  a-name-that-is-…  held   short");
        // There is an end to it.
        assert_eq!(line(10), "  a-name-th…  held   short");
    }

    #[test]
    fn a_hostile_name_does_not_reach_the_terminal() {
        let mut table = Table::new(&["NAME"]);
        table.row([Cell::from("\x1b[2Jgone\n")]);
        assert_eq!(table.render(Screen::default()), "  NAME\n  \u{fffd}[2Jgone\u{fffd}\n");
        assert_eq!(visible("a\u{202e}b"), "a\u{fffd}b");
    }

    #[test]
    fn a_name_of_any_length_is_cut() {
        let mut table = Table::new(&["NAME", "STATE"]);
        // More than a width may be for the formatter.
        table.row([Cell::from("x".repeat(70_000)), Cell::from("held")]);
        table.row([Cell::from("y"), Cell::from("held")]);
        let text = table.render(Screen::default());
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert_eq!(longest, Some(2 + SHOWN_MAX + 2 + 5), "{text}");
        assert!(text.contains("x…  held"), "{text}");
        assert_eq!(shown(&"x".repeat(SHOWN_MAX)), "x".repeat(SHOWN_MAX));
    }
}
