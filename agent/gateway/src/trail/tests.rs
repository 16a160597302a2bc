//! Trails on real files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn told(trail: &Trail, event: Event, outcome: &str) {
    trail.tell(By::default(), Fact::new(event, outcome));
}

fn stranger(last: u8) -> By {
    By { peer: Some(([192, 0, 2, last], 7).into()), ..By::default() }
}

#[tokio::test]
async fn lines_come_in_order_and_a_moved_file_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("audit"), dir.path().join("audit.1"));
    let trail = Trail::keep(Place::named(&path), Limits::default()).unwrap();
    told(&trail, Event::Register, "\"one\"\n");
    trail.tell(
        By { principal: Some("p".into()), peer: Some(([127, 0, 0, 1], 7).into()), key: None },
        Fact { token: Some(9), ..Fact::new(Event::Grant, "two") },
    );
    trail.flush().await;
    let found = lines(&path);
    assert_eq!(found[0]["outcome"], "\"one\"\n");
    let second = &found[1];
    assert_eq!((&second["event"], &second["principal"]), (&"grant".into(), &"p".into()));
    assert_eq!((&second["peer"], &second["token"]), (&"127.0.0.1:7".into(), &9.into()));
    assert!(second["time"].as_str().unwrap().ends_with('Z') && second.get("key").is_none());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

    fs::rename(&path, &moved).unwrap();
    trail.reopen();
    told(&trail, Event::Loss, "three");
    trail.flush().await;
    assert_eq!((lines(&moved).len(), lines(&path).len()), (2, 1));
}

#[tokio::test]
async fn a_flood_of_refusals_is_summed_up_and_costs_no_other_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let trail = Trail::keep(Place::named(&path), Limits::default()).unwrap();
    for number in 0..10_000 {
        trail.tell(stranger(1), Fact::new(Event::Refusal, &format!("r{number}")));
        // An end of nothing is no success.
        let gone = Fact::new(Event::Release, crate::access::NOT_FOUND);
        trail.tell(By { principal: Some("p".into()), ..By::default() }, gone);
        if number % 10 == 0 {
            told(&trail, Event::Grant, "granted");
        }
    }
    trail.tell(stranger(2), Fact::new(Event::Refusal, "of another"));
    trail.flush().await;
    let found = lines(&path);
    let of = |event: &'static str| found.iter().filter(move |line| line["event"] == event);
    assert_eq!(of("grant").count(), 1000);
    assert!(found.iter().any(|line| line["outcome"] == "of another"));
    let of_stranger = of("refusal").filter(|line| line["peer"] == "192.0.2.1:7").count() as u64;
    // The machine may take its time.
    assert!((50..5000).contains(&of_stranger), "{of_stranger}");
    let sum = of("refusals_left_out").find(|line| line["source"] == "192.0.2.1").unwrap();
    assert_eq!(sum["count"], 10_000 - of_stranger);
    assert!(sum["first_reason"].as_str().unwrap().starts_with('r') && sum["since"].is_string());
    assert!(of("refusals_left_out").any(|line| line["principal"] == "p"));
}

#[tokio::test]
async fn the_files_have_a_bound_together_and_no_line_is_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let limits = Limits { bytes_max: 64 << 10, files_max: 3, ..Limits::default() };
    let trail = Trail::keep(Place::named(&path), limits).unwrap();
    // By two principals, since one has no more than half of the room that waits for the disk.
    let by = ["even", "odd"].map(|name| By { principal: Some(name.into()), ..By::default() });
    for (number, by) in (0..10_000).zip(by.iter().cycle()) {
        trail.tell(by.clone(), Fact { token: Some(number), ..Fact::new(Event::Grant, "g") });
    }
    trail.flush().await;
    let names = ["audit.2", "audit.1", "audit"];
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), names.len());
    let mut tokens = Vec::new();
    for name in names {
        let path = dir.path().join(name);
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.len() <= 64 << 10 && metadata.mode() & 0o777 == 0o600, "{metadata:?}");
        tokens.extend(lines(&path).iter().filter_map(|line| line["token"].as_u64()));
    }
    assert!(tokens.is_sorted() && tokens.last() == Some(&9999));
}

#[tokio::test]
async fn a_place_that_takes_nothing_stops_nobody_and_what_it_lacks_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let trail = Trail::keep(Place::named(&path), Limits::default()).unwrap();
    for _ in 0..5000 {
        told(&trail, Event::Grant, "granted");
    }
    trail.flush().await;
    fs::remove_file(&path).unwrap();
    trail.reopen();
    told(&trail, Event::Grant, "after");
    trail.flush().await;
    trail.flush().await;
    let found = lines(&path);
    let granted = found.iter().filter(|line| line["event"] == "grant").count();
    let dropped = found.iter().filter(|line| line["event"] == "dropped");
    let dropped: usize = dropped
        .map(|line| line["outcome"].as_str().unwrap().split(' ').next().unwrap())
        .map(|count| count.parse::<usize>().unwrap())
        .sum();
    assert_eq!(granted + dropped, 5001);
    assert!(found.iter().any(|line| line["outcome"] == "after"));
}

#[test]
fn sources_are_principals_and_neighbourhoods() {
    let of = |address: &str| {
        By { peer: Some((address.parse::<std::net::IpAddr>().unwrap(), 1).into()), ..By::default() }
            .source()
    };
    assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    let named = By { principal: Some("p".into()), ..stranger(1) };
    assert_eq!(named.source(), Source::Principal("p".into()));
    assert_eq!(By::default().source(), Source::Others);
    assert_eq!(Place::named(Path::new("-")), Place::Stdout);
    assert_eq!(Place::named(Path::new("/a")), Place::File(PathBuf::from("/a")));
}
