//! Readers of a project's sessions and of a resource's holders, and how often they are told.

use std::time::Duration;

use serde_json::json;
use tenure_wire::{Event, Kind};
use uuid::Uuid;

use super::bench::{ALICE, Bench, Link, peer};
use crate::keeper::{Reply, Request, Settings, StatusPage, StreamId, StreamTarget};
use crate::model::{Page, Resource};

/// Longer than the rest between two tellings.
const A_REST: Duration = Duration::from_millis(400);

fn member(bench: &mut Bench, number: usize) -> Uuid {
    bench.register(json!({
        "name": format!("program {number}"), "project": "p", "keepalive_ms": 3_600_000,
    }))
}

/// The standings and the messages that came on a stream since the last look.
fn heard(bench: &mut Bench, stream: StreamId) -> (Vec<u64>, usize) {
    let events = std::mem::take(bench.events.entry(stream).or_default());
    let mut standings = Vec::new();
    let mut messages = 0;
    for event in events {
        match event {
            Event::Standing(standing) => standings.push(standing.members),
            Event::Message(_) => messages += 1,
            _ => {}
        }
    }
    (standings, messages)
}

#[test]
fn sessions_that_come_and_go_are_told_of_together() {
    let mut bench = Bench::new();
    let sessions: Vec<_> = (0..200).map(|number| member(&mut bench, number)).collect();
    let streams: Vec<_> = sessions.iter().map(|session| bench.listen(*session, None)).collect();
    bench.pass(A_REST);
    for stream in &streams {
        heard(&mut bench, *stream);
    }
    for number in 0..60 {
        let guest = member(&mut bench, 1000 + number);
        bench.release(guest, None).unwrap();
    }
    member(&mut bench, 9999);
    // At most the first change is told at once, and all others together.
    bench.pass(A_REST);
    for stream in streams {
        let (standings, messages) = heard(&mut bench, stream);
        assert!((1..=2).contains(&standings.len()), "{} standings", standings.len());
        assert_eq!((standings.last(), messages), (Some(&201), 60));
    }
}

#[test]
fn a_standing_that_was_not_answered_is_asked_for_again() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"keepalive_ms": 3_600_000}));
    let stream = StreamId(1 << 32);
    let resource = Resource { tenant: "default".into(), kind: Kind::Semaphore, name: "gpu".into() };
    let target = StreamTarget::Resource(resource);
    bench.link = Link::RepliesLost;
    bench.keeper.open_stream(bench.now, stream, peer(ALICE), target).unwrap();
    bench.settle();
    bench.pass(Duration::from_secs(60));
    assert_eq!(heard(&mut bench, stream), (vec![], 0));
    bench.set_link(Link::Up);
    bench.pass(Settings::default().retry_max);
    assert_eq!(heard(&mut bench, stream), (vec![0], 0));

    // The hint of a grant comes, and the question that it leads to is lost.
    bench.hold(session, json!({"kind": "semaphore", "name": "gpu", "limit": 1}));
    bench.link = Link::RepliesLost;
    bench.pass(A_REST);
    bench.set_link(Link::Up);
    bench.pass(Settings::default().retry_max);
    let Some(Event::Standing(told)) = bench.events.entry(stream).or_default().pop() else {
        panic!("nothing was told")
    };
    assert_eq!(told.holding, 1);
    bench.pass(Duration::from_secs(60));
    assert_eq!(heard(&mut bench, stream), (vec![], 0), "an answer is the end of it");
}

#[test]
fn a_flood_of_messages_is_cut_to_the_last_ones_and_numbers_show_the_gap() {
    let mut bench = Bench::new();
    let session = member(&mut bench, 0);
    let stream = bench.listen(session, None);
    bench.pass(A_REST);
    heard(&mut bench, stream);
    let guests: Vec<_> = (1..=300).map(|number| member(&mut bench, number)).collect();
    bench.pass(A_REST);
    heard(&mut bench, stream);
    let before = bench.ids[&stream].len();
    for guest in guests {
        bench.release(guest, None).unwrap();
    }
    bench.pass(A_REST);
    let (standings, messages) = heard(&mut bench, stream);
    // The first at once, and of the others the last.
    assert_eq!((standings.last(), messages), (Some(&1), 65));
    let ids = &bench.ids[&stream][before..];
    let missing = ids[ids.len() - 1] - ids[0] + 1 - ids.len() as u64;
    assert_eq!(missing, 300 - 65);
}

#[test]
fn a_crowd_is_told_part_by_part() {
    const CROWD: usize = 3000;
    let mut bench = Bench::new();
    let sessions: Vec<_> = (0..CROWD).map(|number| member(&mut bench, number)).collect();
    let streams: Vec<_> = sessions.iter().map(|session| bench.listen(*session, None)).collect();
    bench.pass(A_REST);
    let told = |bench: &mut Bench| -> usize {
        streams.iter().map(|stream| heard(bench, *stream)).map(|(_, messages)| messages).sum()
    };
    told(&mut bench);
    let guest = member(&mut bench, CROWD);
    bench.pass(A_REST);
    told(&mut bench);
    bench.release(guest, None).unwrap();
    let at_once = told(&mut bench);
    assert!((1..=1024).contains(&at_once), "{at_once} of {CROWD} at once");
    bench.pass(A_REST);
    assert_eq!(at_once + told(&mut bench), CROWD);
}

#[test]
fn an_observer_is_told_at_once_and_then_at_a_bounded_rate() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"keepalive_ms": 3_600_000}));
    let stream = StreamId(1 << 32);
    let resource = Resource { tenant: "default".into(), kind: Kind::Semaphore, name: "gpu".into() };
    let target = StreamTarget::Resource(resource);
    bench.keeper.open_stream(bench.now, stream, peer(ALICE), target).unwrap();
    bench.settle();
    assert_eq!(heard(&mut bench, stream), (vec![0], 0));
    let asks = json!({"kind": "semaphore", "name": "gpu", "limit": 100});
    let holds: Vec<_> = (0..40).map(|_| bench.hold(session, asks.clone())).collect();
    bench.pass(A_REST);
    let told = bench.events.remove(&stream).unwrap_or_default();
    assert!(told.len() <= 2, "{} standings of 40 grants", told.len());
    let Some(Event::Standing(last)) = told.last() else { panic!("{told:?}") };
    assert_eq!((last.holding, last.holders.len()), (40, 40));
    for hold in holds {
        bench.release(session, Some(hold)).unwrap();
    }
    bench.pass(A_REST);
    let told = bench.events.remove(&stream).unwrap_or_default();
    let Some(Event::Standing(last)) = told.last() else { panic!("{told:?}") };
    assert_eq!((told.len() <= 2, last.holding), (true, 0));
}

#[test]
fn standings_that_change_together_are_asked_for_apart() {
    const MANY: u64 = 16;
    let mut bench = Bench::new();
    let session = bench.register(json!({"keepalive_ms": 3_600_000}));
    let streams: Vec<_> = (0..MANY).map(|number| StreamId(1 << 32 | number)).collect();
    for (number, stream) in streams.iter().enumerate() {
        let name = format!("gpu {number}").into();
        let resource = Resource { tenant: "default".into(), kind: Kind::Semaphore, name };
        let target = StreamTarget::Resource(resource);
        bench.keeper.open_stream(bench.now, *stream, peer(ALICE), target).unwrap();
    }
    bench.settle();
    for number in 0..MANY {
        let name = format!("gpu {number}");
        bench.hold(session, json!({"kind": "semaphore", "name": name, "limit": 1}));
    }
    streams.iter().for_each(|stream| drop(heard(&mut bench, *stream)));
    let mut told = Vec::new();
    for _ in 0..A_REST.as_millis() {
        bench.pass(Duration::from_millis(1));
        told.push(streams.iter().map(|stream| heard(&mut bench, *stream).0.len()).sum::<usize>());
    }
    assert_eq!(told.iter().sum::<usize>(), streams.len(), "each is told");
    let most = told.iter().max().copied().unwrap_or_default();
    assert!(most < streams.len() / 2, "{most} of {MANY} at once");
}

#[test]
fn a_long_queue_is_counted_and_its_first_are_named() {
    let mut bench = Bench::new();
    let wish = json!({"kind": "leader", "name": "l", "wait": "queue"});
    for number in 0..121 {
        let session = member(&mut bench, number);
        bench.acquire(session, wish.clone());
    }
    let resource = Resource { tenant: "default".into(), kind: Kind::Leader, name: "l".into() };
    let ticket = bench.ask(ALICE, Request::Standing(resource));
    let Some(Ok(Reply::Standing(standing))) = bench.reply(ticket) else {
        panic!("no standing");
    };
    assert_eq!((standing.waiters.len(), standing.waiting), (100, 120));
    assert_eq!(standing.waiters[99].position, 100);
}

#[test]
fn a_reader_that_was_away_is_told_the_last_standing_only() {
    let mut bench = Bench::new();
    let session = member(&mut bench, 0);
    let stream = bench.listen(session, None);
    bench.pass(A_REST);
    let last = *bench.ids[&stream].last().unwrap();
    bench.close(stream);
    for number in 1..=5 {
        member(&mut bench, number);
        bench.pass(A_REST);
    }
    let stream = bench.listen(session, Some(last));
    assert_eq!(heard(&mut bench, stream), (vec![6], 0));
}

/// Reads a status page by page; what each page has, and what all of them have.
fn pages(bench: &mut Bench, uid: u32, limit: usize) -> (Vec<usize>, Vec<(Uuid, Uuid)>) {
    let mut page = StatusPage::first(limit);
    let (mut sizes, mut entries) = (Vec::new(), Vec::new());
    loop {
        let ticket = bench.ask(uid, Request::Status(page));
        let Some(Ok(Reply::Status(view))) = bench.reply(ticket) else { panic!("no status") };
        let before = entries.len();
        for session in view.visible {
            if entries.last().is_none_or(|(last, _)| *last != session.session) {
                entries.push((session.session, Uuid::nil()));
            }
            entries.extend(session.holds.iter().map(|hold| (session.session, hold.hold)));
        }
        sizes.push(entries.len() - before);
        let Some(next) = view.next else { return (sizes, entries) };
        page.after = Some(next);
    }
}

#[test]
fn a_status_comes_in_pages_of_sessions_and_holds() {
    let mut bench = Bench::new();
    let mut expected = Vec::new();
    for number in 0..7 {
        let session = bench.register(json!({"keepalive_ms": 3_600_000}));
        expected.push((session, Uuid::nil()));
        for lease in 0..number * 2 {
            let wish = json!({"kind": "lease", "name": format!("{number}-{lease}")});
            expected.push((session, bench.hold(session, wish)));
        }
    }
    expected.sort();
    for limit in [1, 2, 5, 7, 48, 49, 1000] {
        for uid in [ALICE, 0] {
            let (sizes, entries) = pages(&mut bench, uid, limit);
            assert_eq!(entries, expected, "pages of {limit} for {uid}");
            assert!(sizes.iter().all(|size| *size <= limit), "{sizes:?} for {limit}");
            assert!(sizes.iter().rev().skip(1).all(|size| *size > 0), "{sizes:?}");
        }
    }
    assert_eq!(pages(&mut bench, super::bench::MALLORY, 5), (vec![0], vec![]));
}

#[test]
fn a_routing_table_comes_in_pages_by_name() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"keepalive_ms": 3_600_000}));
    for number in 0..25 {
        bench.hold(session, json!({"kind": "lease", "name": format!("{number:02}")}));
    }
    let mut names = Vec::new();
    let mut page = Page { after: None, limit: 10 };
    loop {
        let tenant = "default".into();
        let ticket = bench.ask(ALICE, Request::Routes { tenant, name: None, page: page.clone() });
        let Some(Ok(Reply::Routes(routes))) = bench.reply(ticket) else { panic!("no routes") };
        assert!(routes.routes.len() <= 10);
        assert_eq!(routes.total, Some(25));
        names.extend(routes.routes.into_iter().map(|route| route.name));
        let Some(cursor) = routes.cursor else { break };
        page.after = Some(cursor.into());
    }
    assert_eq!(names, (0..25).map(|number| format!("{number:02}")).collect::<Vec<_>>());
}
