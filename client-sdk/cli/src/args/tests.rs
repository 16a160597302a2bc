use clap::{CommandFactory, Parser};

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[track_caller]
fn run(line: &str) -> RunArgs {
    match parse(line).map(|cli| cli.command) {
        Ok(Command::Run(args)) => *args,
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn refused(line: &str, why: &str) {
    let error = parse(line).expect_err(line).to_string();
    assert!(error.contains(why), "{line}: {error}");
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn a_quiet_status_shows_nothing() {
    for line in ["tenure status --quiet", "tenure status -q"] {
        assert!(matches!(parse(line).map(|cli| cli.command), Ok(Command::Status(a)) if a.quiet));
    }
    refused("tenure status --quiet --json", "cannot be used with");
    refused("tenure status --watch --quiet", "cannot be used with");
}

#[test]
fn every_subcommand_teaches_by_example() {
    for command in Cli::command().get_subcommands() {
        let help = command.clone().render_long_help().to_string();
        assert!(help.contains("Examples:"), "{}", command.get_name());
    }
}

#[test]
fn the_help_of_run_lists_every_exit_status() {
    let mut cli = Cli::command();
    let help = cli.find_subcommand_mut("run").expect("run").render_long_help().to_string();
    for status in ["64 ", "69 ", "74 ", "75 ", "77 ", "126 ", "127 ", "128+n"] {
        assert!(help.contains(status), "{status}");
    }
}

#[test]
fn each_kind_is_named_by_its_option() {
    let named = |kind, name: &str| (kind, Some(name.to_owned()));
    assert_eq!(
        run("tenure run --leader a -- b").wish.resource.resource(),
        named(Kind::Leader, "a")
    );
    assert_eq!(run("tenure run --lease a -- b").wish.resource.resource(), named(Kind::Lease, "a"));
    assert_eq!(
        run("tenure run --semaphore a --limit 3 -- b").wish.resource.resource(),
        named(Kind::Semaphore, "a")
    );
    assert_eq!(run("tenure run --semaphore a -- b").wish.limit, None, "the limit in force");
    assert_eq!(run("tenure run --master -- b").wish.resource.resource(), (Kind::Master, None));
}

#[test]
fn what_belongs_to_another_kind_is_refused() {
    refused("tenure run -- b", "--leader <NAME>");
    refused("tenure run --leader a --lease b -- c", "cannot be used with");
    refused("tenure run --semaphore a --limit 0 -- c", "0 is not in 1..");
    refused("tenure run --leader a --limit 2 -- c", "cannot be used with");
    refused("tenure run --leader a --priority 2 -- c", "cannot be used with");
    refused("tenure run --leader a --address x:1 -- c", "cannot be used with");
    refused("tenure run --leader a --grace 1s -- c", "cannot be used with");
    refused("tenure run --leader a --wait 1s --no-wait -- c", "cannot be used with");
    refused("tenure run --leader a", "<CMD>");
    refused("tenure run --leader a --ttl ten -- c", "500ms, 10s, 2m");
    let cli = parse("tenure standing boss a").expect("two words");
    assert!(cli.check().is_err_and(|error| error.contains("'boss' is no kind")));
}

#[test]
fn the_guarded_command_keeps_its_own_options() {
    let args = run("tenure run --leader a -- cmd --leader b -- --help");
    assert_eq!(args.command, ["cmd", "--leader", "b", "--", "--help"]);
}

#[test]
fn on_lost_is_a_word_or_a_program() {
    let on_lost = |text: &str| text.parse::<OnLost>().expect(text);
    assert_eq!(on_lost("term"), OnLost::Term);
    assert_eq!(on_lost("kill"), OnLost::Kill);
    assert_eq!(on_lost("ignore"), OnLost::Ignore);
    let program = OnLost::Command(vec!["/bin/sh".to_owned(), "lost".to_owned()]);
    assert_eq!(on_lost("/bin/sh  lost"), program);
    assert_eq!(on_lost("sh"), OnLost::Command(vec!["sh".to_owned()]));
    for none in ["trem", "", "/etc/passwd", "/nowhere/program x"] {
        assert!(none.parse::<OnLost>().is_err(), "{none}");
    }
}

#[test]
fn the_socket_may_stand_anywhere_before_the_command() {
    for line in ["tenure --socket /s status", "tenure status --socket /s"] {
        assert_eq!(parse(line).expect(line).socket.as_deref(), Some("/s"));
    }
}
