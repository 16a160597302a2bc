//! Values that are refused, and the words for it.

use super::*;

#[test]
fn unknown_keys_are_refused_with_the_nearest() {
    let check = |text, expected| Room::with(text).refused(expected);
    check("[leader]\ntll = \"1s\"", "FILE:2: there is no key leader.tll; did you mean leader.ttl?");
    check("[ttl]\nleader = \"1s\"", "FILE:2: there is no key ttl.leader; did you mean leader.ttl?");
    check("sokcet = \"/a\"", "FILE:1: there is no key sokcet; did you mean socket?");
    check("zzz = 1", "FILE:1: there is no key zzz");
    check(
        "[leader.ttl]\nx = 1",
        "FILE:1: leader.ttl = { x = 1 }: must be a duration such as \"15s\" or \"500ms\"",
    );
}

#[test]
fn broken_rules_name_key_value_and_rule() {
    let check = |text, expected| Room::with(text).refused(expected);
    check(
        "[leader]\nttl = \"15s\"",
        "FILE:2: leader.ttl = \"15s\": must be more than twice leader.beat = 10s, so that one lost beat \
         loses nothing; raise it above 20s, or beat more often",
    );
    check(
        "[margin]\nfloor = \"40s\"",
        // The default is what breaks the rule with it.
        "default: leader.ttl = \"30s\": must be more than its safety margin of 40s 150ms (itself \
         divided by margin.divisor = 200, plus margin.floor = 40s); raise it, or lower margin.floor",
    );
    check(
        "[limits]\nttl_max = \"60s\"",
        "default: session.ttl = \"90s\": must be from limits.ttl_min = 300ms to limits.ttl_max = 60s",
    );
    check("a = 1\nlog = bare", "FILE:2: string values must be quoted, expected literal string");
}

#[test]
fn a_broken_layer_is_refused_also_when_it_is_overridden() {
    let mut room = Room::with("log = \"chatty\"");
    room.flags.log = Some("info".into());
    assert!(room.load().is_err());
    let room = Room::with("").variable("TENURED_LEADER_TTL", "soon");
    room.refused("TENURED_LEADER_TTL: leader.ttl = \"soon\": must be a duration such as \"15s\" or \"500ms\"");
}

#[test]
fn no_password_is_ever_shown() {
    for (room, start) in [
        (
            Room::with("upstream = \"https://hunter2@h/0\""),
            "FILE:1: upstream = \"https://***@h/0\": must have no user",
        ),
        (
            Room::with("upstream = \"redis://:hunter2@h:x\""),
            "FILE:1: upstream = \"redis://:***@h:x\": must have",
        ),
        (
            Room::with("upstream = \"redis://hunter2@h\""),
            "FILE:1: upstream = \"redis://***@h:6379/0\": must have a password",
        ),
        (Room::with("upstream = \"redis://:hunter2@h/0"), "FILE:1: "),
        (Room::with("upstream = [\"hunter2\"]"), "FILE:1: upstream = ***: must be"),
        (
            Room::with("").variable("TENURED_UPSTREAM", "hunter2"),
            "TENURED_UPSTREAM: upstream = ***: not",
        ),
    ] {
        let error = room.load().map(|loaded| loaded.effective()).unwrap_err();
        let file = room.dir.path().join("t.toml");
        let text = format!("{error:?} {error}").replace(file.to_str().unwrap(), "FILE");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains(start), "{text}");
    }
}
