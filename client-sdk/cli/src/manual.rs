//! `tenure man` and `tenure completions`.

mod page;

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit;
use crate::failure::Failure;
use crate::output::print;

/// Prints the page of the whole command, or writes one page for it and one for every subcommand.
///
/// # Errors
///
/// When a file cannot be written.
pub(crate) fn man(dir: Option<&Path>) -> Result<(), Failure> {
    let mut cli = Cli::command();
    cli.build();
    let names = |of: &Command| format!("{}(1)", page_name(of));
    let mut all: Vec<String> = cli.get_subcommands().map(names).collect();
    all.extend(["tenured(8)".to_owned(), "tenured.toml(5)".to_owned()]);
    let Some(dir) = dir else { return print(&rendered(&cli, &all)?) };
    let pages = std::iter::once(cli.clone()).chain(cli.get_subcommands().cloned());
    for command in pages {
        let name = page_name(&command);
        let own = format!("{name}(1)");
        let others = std::iter::once("tenure(1)".to_owned()).chain(all.iter().cloned());
        let others: Vec<String> = others.filter(|other| *other != own).collect();
        let path = dir.join(format!("{name}.1"));
        fs::write(&path, rendered(&command.display_name(name), &others)?).map_err(|error| {
            let line = format!("{}: {error}; name a directory that there is", path.display());
            Failure::new(exit::REFUSED, line)
        })?;
    }
    Ok(())
}

fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-")
}

fn rendered(command: &Command, others: &[String]) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::new(exit::REFUSED, format!("man: {error}"));
    let page = page::page(command, others).map_err(failed)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Prints the completion script of a shell.
///
/// # Errors
///
/// When stdout cannot be written to.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tenure", &mut out);
    print(&String::from_utf8_lossy(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page() {
        let dir = tempfile::tempdir().expect("a directory");
        man(Some(dir.path())).expect("written");
        let mut count = 0;
        for command in Cli::command().get_subcommands() {
            let path = dir.path().join(format!("tenure-{}.1", command.get_name()));
            let page = fs::read_to_string(&path).expect("a page");
            for title in ["SYNOPSIS", "EXAMPLES", "ENVIRONMENT", "FILES", "EXIT STATUS", "SEE ALSO"]
            {
                let found = page.lines().filter(|line| {
                    line.trim_matches('"') == format!(".SH {title}")
                        || *line == format!(".SH \"{title}\"")
                });
                assert_eq!(found.count(), 1, "{title}: {}", path.display());
            }
            assert!(!page.contains("EXTRA"), "{}", path.display());
            count += 1;
        }
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), count + 1);
    }
}
