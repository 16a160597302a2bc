//! `tenure man` and `tenure completions`.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

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
    let Some(dir) = dir else { return print(&page(cli)?) };
    let pages = std::iter::once(cli.clone()).chain(cli.get_subcommands().cloned());
    for command in pages {
        let name = command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-");
        let path = dir.join(format!("{name}.1"));
        fs::write(&path, page(command.display_name(name.clone()))?).map_err(|error| {
            Failure::new(
                exit::REFUSED,
                format!("{}: {error}; name a directory that there is", path.display()),
            )
        })?;
    }
    Ok(())
}

fn page(command: Command) -> Result<String, Failure> {
    let mut out = Vec::new();
    let failed = |error: io::Error| Failure::new(exit::REFUSED, format!("man: {error}"));
    Man::new(command).manual("Tenure").render(&mut out).map_err(failed)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
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
            assert!(page.contains("Examples:"), "{}", path.display());
            count += 1;
        }
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), count + 1);
    }
}
