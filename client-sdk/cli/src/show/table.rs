//! Columns of text.

use std::fmt::Write;

/// Rows under a header, each column as wide as its widest cell. The last one is not padded.
pub(super) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
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
        Cell { text: visible(&text.to_string()), look }
    }
}

/// `-` where there is nothing.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The text without anything that would move a terminal's cursor or colour it: names come from
/// other programs.
pub(super) fn visible(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

impl Table {
    pub(super) fn new(header: &[&'static str]) -> Table {
        Table { header: header.to_vec(), rows: Vec::new() }
    }

    /// A row; cells beyond the header are not shown.
    pub(super) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each indented by two spaces.
    pub(super) fn render(&self, coloured: bool) -> String {
        let width = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self.header.iter().map(|title| width(title)).collect();
        for row in &self.rows {
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = (*wide).max(width(&cell.text));
            }
        }
        let mut out = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = (String, usize)>| {
            let mut text = String::from("  ");
            let mut padding = 0;
            for ((painted, length), wide) in cells.zip(&widths) {
                let _infallible = write!(text, "{:padding$}{painted}", "");
                padding = wide - length + 2;
            }
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line(&mut self.header.iter().map(|title| ((*title).to_owned(), width(title))));
        for row in &self.rows {
            line(&mut row.iter().map(|c| (c.look.paint(&c.text, coloured), width(&c.text))));
        }
        out
    }
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
        assert_eq!(table().render(false), expected);
    }

    #[test]
    fn colours_do_not_count() {
        let plain = table().render(true).replace("\x1b[32m", "").replace("\x1b[33m", "");
        assert_eq!(plain.replace("\x1b[0m", ""), table().render(false));
    }

    #[test]
    fn a_hostile_name_does_not_reach_the_terminal() {
        let mut table = Table::new(&["NAME"]);
        table.row([Cell::from("\x1b[2Jgone\n")]);
        assert_eq!(table.render(false), "  NAME\n  \u{fffd}[2Jgone\u{fffd}\n");
    }
}
