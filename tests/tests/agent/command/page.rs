//! The tables of docs/wrapper.md, each line of which has a proof.

use std::fs;
use std::path::Path;

/// The cells of each line of a table. A cell that says "the same" has the words above it.
pub(super) fn table<const N: usize>(heading: &str) -> Vec<[String; N]> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/wrapper.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let heading = format!("\n## {heading}\n");
    let (_, section) = page.split_once(&heading).expect("there is a section");
    let table = section.lines().skip_while(|line| !line.starts_with('|'));
    let lines = table.take_while(|line| line.starts_with('|')).skip(2);
    let mut cells: Vec<[String; N]> = Vec::new();
    for line in lines {
        let row = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        let mut row: [String; N] = row.collect::<Vec<_>>().try_into().expect("as many cells");
        for (at, cell) in row.iter_mut().enumerate() {
            if cell == "the same" {
                cells.last().expect("a line above")[at].clone_into(cell);
            }
        }
        cells.push(row);
    }
    cells
}

/// Fails unless a table has these lines: first cells, and the beginnings of the others.
#[track_caller]
pub(super) fn check<const N: usize>(heading: &str, lines: &[[&str; N]]) {
    let table = table::<N>(heading);
    let first_cells: Vec<_> = table.iter().map(|cells| cells[0].as_str()).collect();
    let lines_here: Vec<_> = lines.iter().map(|cells| cells[0]).collect();
    assert_eq!(first_cells, lines_here, "{heading} of docs/wrapper.md, and the lines here");
    for (expected, cells) in lines.iter().zip(&table) {
        for (expected, cell) in expected.iter().zip(cells) {
            let begins = cell.starts_with(expected) && expected.is_empty() == cell.is_empty();
            assert!(begins, "{heading}: {cell:?} is not {expected:?}");
        }
    }
}
