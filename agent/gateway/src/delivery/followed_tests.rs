use tenure_core::model::UpstreamStanding;

use super::*;
use crate::routes::tests::route;
use crate::routes::{Lack, Place};

#[test]
fn what_the_run_before_told_is_removed_by_the_first_reading_that_comes() {
    let followed = Followed::new("t".into(), vec!["gone".into()]);
    // The store was away.
    followed.readings.send_modify(|readings| *readings += 1);
    assert!(!followed.was_read());
    let reading = Reading { version: 5, until: 5, ..Reading::default() };
    assert_eq!(followed.take(reading), (true, Vec::new()));
    assert!(followed.was_read());
    assert_eq!(followed.table().mailboxes(), [Arc::<str>::from("gone")]);
    let removed = Change { mailbox: "gone".into(), state: State::Removed(5) };
    assert_eq!(followed.table().after(Place::default()), Lack::Changes(vec![removed]));
}

/// A store with one lease, whose ttl runs out just before the question of this number: the lease is in its grace then, or gone.
/// Like Redis, the store notes the end when that lease's route is read, and not when the version is asked for.
fn runs_out_at(question: u64, is_in_grace: bool) -> Store {
    let (mut asked, mut version) = (0, 1);
    Store::scripted(move |request| {
        let has_run_out = asked >= question;
        asked += 1;
        match request {
            Request::Inspect(_) => {
                let left = match (has_run_out, is_in_grace) {
                    (false, _) => Some(Duration::from_millis(1)),
                    (true, true) => Some(Duration::from_hours(1)),
                    (true, false) => None,
                };
                Answer::Standing(UpstreamStanding { runs_out: left, ..UpstreamStanding::default() })
            }
            Request::Routes { name, .. } => {
                let is_of_lease = name.is_none_or(|name| &*name == "mailbox");
                if has_run_out && is_of_lease {
                    version = 2;
                }
                let status = if has_run_out { "expiring" } else { "active" };
                let line = Route { status: status.to_owned(), ..route("mailbox", version) };
                let is_there = is_of_lease && (!has_run_out || is_in_grace);
                let routes = if is_there { vec![line] } else { Vec::new() };
                Answer::Routes(Routes { version, routes, total: None, cursor: None })
            }
            other => panic!("{other:?}"),
        }
    })
}

/// On a busy machine a ttl runs out between any two questions of the reader.
#[tokio::test]
async fn the_end_of_a_route_is_told_whichever_question_it_falls_on() {
    for (question, is_in_grace) in (3..40).flat_map(|it| [(it, true), (it, false)]) {
        let followed = Arc::new(Followed::new("t".into(), Vec::new()));
        let store = runs_out_at(question, is_in_grace);
        let mut news = followed.news();
        let reader = Reader::new(Arc::clone(&followed), store, true);
        let reading = tokio::spawn(reader.run());
        let expected = is_in_grace.then_some("expiring");
        let is_told = news.wait_for(|readings| {
            let table = followed.table();
            *readings > 0 && table.route("mailbox").map(|it| it.status.as_str()) == expected
        });
        let is_told = timeout(Duration::from_secs(60), is_told).await;
        assert!(is_told.is_ok(), "it ran out at question {question}, in its grace: {is_in_grace}");
        reading.abort();
    }
}
