use super::super::refused::RETRY_MIN;
use super::super::table::tests::route;
use super::*;

const NOW: Boottime = Boottime::from_nanos(1_000_000_000);

fn routed(name: &str, version: u64) -> Change {
    Change { mailbox: name.into(), state: State::Routed(Arc::new(route(name, version))) }
}

fn removed(name: &str, version: u64) -> Change {
    Change { mailbox: name.into(), state: State::Removed(version) }
}

fn take(queue: &mut Queue, now: Boottime) -> Vec<Push> {
    std::iter::from_fn(|| queue.next(now)).collect()
}

fn told(pushes: &[Push]) -> Vec<(&str, u64)> {
    pushes.iter().map(|push| (&*push.mailbox, push.state.version())).collect()
}

fn answered(queue: &mut Queue, now: Boottime, push: &Push) -> Option<Duration> {
    queue.done(now, push, Outcome::Delivered, 0)
}

fn queue_of(names: &[&str]) -> Queue {
    let mut queue = Queue::default();
    queue.replace(NOW, 1, names.iter().map(|name| Arc::new(route(name, 1))).collect());
    queue
}

#[test]
fn a_mailbox_waits_once_and_is_told_the_latest() {
    let mut queue = Queue::default();
    for change in [routed("a", 1), routed("b", 2), routed("a", 3)] {
        queue.change(NOW, change);
    }
    let later = NOW + Duration::from_millis(30);
    let pushes = take(&mut queue, later);
    assert_eq!(told(&pushes), [("a", 3), ("b", 2)]);
    // A change while it is told comes after the answer.
    queue.change(later, removed("a", 4));
    assert_eq!((queue.next(later), queue.behind_since()), (None, Some(NOW)));
    let lag = answered(&mut queue, later, &pushes[0]);
    assert_eq!(lag, Some(Duration::from_millis(30)));
    let last = take(&mut queue, later);
    assert_eq!(told(&last), [("a", 4)]);
    answered(&mut queue, later, &last[0]);
    answered(&mut queue, later, &pushes[1]);
    assert_eq!((queue.behind(), queue.told.len(), queue.behind_since()), (0, 1, None));
}

#[test]
fn a_route_that_was_never_told_is_not_removed() {
    let mut queue = Queue::default();
    queue.change(NOW, routed("a", 1));
    queue.change(NOW, removed("a", 2));
    queue.change(NOW, removed("never heard of", 3));
    assert_eq!((queue.next(NOW), queue.behind()), (None, 0));
}

#[test]
fn a_proxy_that_fails_is_asked_one_thing_at_a_time_and_then_told_all() {
    let mut queue = queue_of(&["a", "b", "c"]);
    let pushes = take(&mut queue, NOW);
    assert_eq!(pushes.len(), 3);
    answered(&mut queue, NOW, &pushes[1]);
    for failed in [&pushes[0], &pushes[2]] {
        assert_eq!(queue.done(NOW, failed, Outcome::Failed, u16::MAX), None);
    }
    let retry_at = queue.poll_timeout().unwrap();
    assert!(retry_at > NOW && !queue.is_reached());
    assert_eq!(queue.next(retry_at.before(Duration::from_nanos(1))), None);
    let again = take(&mut queue, retry_at);
    assert_eq!(told(&again), [("b", 1)], "it may have forgotten b");
    answered(&mut queue, retry_at, &again[0]);
    assert!(queue.is_reached());
    let rest = take(&mut queue, retry_at);
    let mut rest = told(&rest);
    rest.sort_unstable();
    assert_eq!(rest, [("a", 1), ("c", 1)]);
}

#[test]
fn mailboxes_that_always_fail_while_others_are_taken_are_seldom_tried() {
    let names: Vec<String> = (0..1000).map(|number| format!("m{number:03}")).collect();
    let mut queue = queue_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut now, mut count, mut taken) = (NOW, 0, HashSet::new());
    let is_bad = |name: &str| name == "m000" || name == "m500" || name == "m999";
    while now < NOW + Duration::from_secs(100) {
        // As answers come: those of earlier pushes after the failure.
        for push in take(&mut queue, now) {
            count += 1;
            if is_bad(&push.mailbox) {
                queue.done(now, &push, Outcome::Failed, 0);
            } else {
                answered(&mut queue, now, &push);
                taken.insert(push.mailbox);
            }
        }
        let at = queue.poll_timeout().unwrap_or(now);
        now = at.max(now + Duration::from_millis(1));
    }
    assert_eq!(taken.len(), 997);
    assert!(queue.is_reached());
    assert_eq!(queue.behind(), 3);
    assert!(count <= 5 * 1000, "{count}");
}

#[test]
fn after_a_lost_connection_everything_is_told_again_at_once() {
    let mut queue = queue_of(&["a", "b"]);
    for push in take(&mut queue, NOW) {
        answered(&mut queue, NOW, &push);
    }
    queue.lost_connection(NOW);
    queue.lost_connection(NOW);
    let first = take(&mut queue, NOW);
    assert_eq!(told(&first), [("a", 1)], "whether it is there");
    answered(&mut queue, NOW, &first[0]);
    assert_eq!(told(&take(&mut queue, NOW)), [("b", 1)]);
}

#[test]
fn what_is_not_among_all_routes_is_taken_away() {
    let mut queue = queue_of(&["a", "b", "c"]);
    let first = queue.next(NOW).unwrap();
    queue.replace(NOW, 9, vec![Arc::new(route("c", 1)), Arc::new(route("d", 9))]);
    answered(&mut queue, NOW, &first);
    let pushes = take(&mut queue, NOW);
    let mut told = told(&pushes);
    told.sort_unstable();
    assert_eq!(told, [("a", 9), ("c", 1), ("d", 9)]);
}

#[test]
fn a_proxy_that_is_always_slow_is_told_everything() {
    let names: Vec<String> = (0..2 * UNDER_WAY_MAX).map(|number| format!("m{number}")).collect();
    let mut queue = queue_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let takes = 40 * SLOW_AFTER;
    let (mut now, mut under_way) = (NOW, Vec::<(Boottime, Push)>::new());
    while queue.behind() > 0 {
        under_way.extend(take(&mut queue, now).into_iter().map(|it| (now + takes, it)));
        let abandoned = queue.take_abandoned();
        under_way.retain(|(_, push)| !abandoned.contains(&push.attempt));
        assert!(under_way.len() <= UNDER_WAY_MAX + 1, "one probe");
        let answer = under_way.iter().map(|(at, _)| *at).min().unwrap();
        now = queue.poll_timeout().map_or(answer, |at| at.min(answer)).max(now);
        for (_, push) in under_way.extract_if(.., |(at, _)| *at <= now) {
            answered(&mut queue, now, &push);
        }
    }
    assert!(queue.is_reached() && now.since(NOW) < 3 * takes, "{:?}", now.since(NOW));
}

#[test]
fn a_proxy_that_is_fast_again_does_not_wait_for_old_answers() {
    let mut queue = queue_of(&["a", "b", "c"]);
    assert_eq!(take(&mut queue, NOW).len(), 3);
    let slow_at = NOW + SLOW_AFTER;
    assert_eq!(
        (queue.poll_timeout(), queue.next(slow_at.before(PROBE_EVERY))),
        (Some(slow_at), None)
    );
    queue.change(slow_at, routed("a", 2));
    let probe = take(&mut queue, slow_at);
    assert_eq!(told(&probe), [("a", 2)], "the latest of what has waited for longest");
    assert_eq!(queue.poll_timeout(), Some(slow_at + PROBE_EVERY));
    let later = slow_at + PROBE_EVERY;
    let again = take(&mut queue, later);
    assert_eq!((told(&again), queue.take_abandoned()), (vec![("a", 2)], vec![probe[0].attempt]));
    assert_eq!(answered(&mut queue, later, &probe[0]), None, "it was abandoned");
    answered(&mut queue, later, &again[0]);
    assert_eq!(queue.take_abandoned().len(), 3);
    let rest = take(&mut queue, later);
    let mut rest = told(&rest);
    rest.sort_unstable();
    assert_eq!(rest, [("a", 2), ("b", 1), ("c", 1)]);
}

#[test]
fn what_is_never_answered_is_sent_again_and_delays_nothing() {
    let mut queue = queue_of(&["a", "b"]);
    let pushes = take(&mut queue, NOW);
    answered(&mut queue, NOW, &pushes[1]);
    let later = NOW + PUSH_WITHIN;
    queue.done(later, &pushes[0], Outcome::Late, 0);
    assert!(queue.is_reached());
    assert_eq!(told(&take(&mut queue, later)), [("a", 1)]);
}

#[test]
fn an_answer_that_is_taken_after_the_end_of_its_connection_proves_nothing() {
    let mut queue = queue_of(&["a"]);
    let push = queue.next(NOW).unwrap();
    queue.done(NOW, &push, Outcome::Failed, 0);
    let again_at = queue.poll_timeout().unwrap();
    let again = queue.next(again_at).unwrap();
    queue.lost_connection(again_at);
    answered(&mut queue, again_at, &again);
    let told = take(&mut queue, again_at);
    assert_eq!(told.len(), 1, "whoever comes back knows nothing");
    answered(&mut queue, again_at, &told[0]);
    assert!(queue.is_reached() && queue.behind() == 0);
}

#[test]
fn a_proxy_that_answers_nothing_is_away_and_its_connection_is_made_anew() {
    let mut queue = queue_of(&["a", "b", "c"]);
    for push in take(&mut queue, NOW) {
        answered(&mut queue, NOW, &push);
    }
    let changed_at = NOW + Duration::from_secs(5);
    for name in ["a", "b"] {
        queue.change(changed_at, routed(name, 2));
    }
    let pushes = take(&mut queue, changed_at);
    let mut now = changed_at + PUSH_WITHIN;
    queue.done(now, &pushes[0], Outcome::Late, u16::MAX);
    assert!(!queue.is_reached() && queue.has_fallen_silent());
    assert!(!queue.has_fallen_silent(), "once");
    assert_eq!(queue.take_abandoned(), [pushes[1].attempt], "it is broken off with the connection");
    queue.done(now, &pushes[1], Outcome::Late, u16::MAX);
    assert!(!queue.has_fallen_silent(), "that was over already");
    // As long as it is silent it is asked one thing at a time, over another connection each time.
    for _ in 0..3 {
        now = queue.poll_timeout().unwrap();
        let again = take(&mut queue, now);
        assert_eq!(again.len(), 1);
        now = now + PUSH_WITHIN;
        queue.done(now, &again[0], Outcome::Late, u16::MAX);
        assert!(!queue.is_reached() && queue.has_fallen_silent());
    }
    now = queue.poll_timeout().unwrap();
    while let Some(push) = queue.next(now) {
        answered(&mut queue, now, &push);
    }
    assert!(queue.is_reached() && queue.behind() == 0);
}

#[test]
fn a_mailbox_that_is_never_answered_has_the_connection_made_anew_once() {
    let mut queue = queue_of(&["a", "b", "hangs"]);
    let (mut now, mut silences) = (NOW, 0);
    for _ in 0..20 {
        let pushes = take(&mut queue, now);
        for push in pushes.iter().filter(|it| &*it.mailbox != "hangs") {
            answered(&mut queue, now, push);
        }
        // Probes are broken off long before.
        if let Some(push) = pushes.iter().find(|it| &*it.mailbox == "hangs") {
            now = now + PUSH_WITHIN;
            queue.done(now, push, Outcome::Late, 0);
        }
        silences += u32::from(queue.has_fallen_silent());
        now = queue.poll_timeout().map_or(now, |at| at.max(now));
    }
    assert_eq!(silences, 1);
    assert!(queue.is_reached() && queue.behind() == 1, "{}", queue.behind());
}

#[test]
fn what_is_refused_delays_nothing_and_is_tried_again_ever_more_seldom() {
    let mut queue = queue_of(&["a", "b", "poison"]);
    let mut now = NOW;
    for push in take(&mut queue, now) {
        let is_poison = &*push.mailbox == "poison";
        let outcome = if is_poison { Outcome::Refused } else { Outcome::Delivered };
        queue.done(now, &push, outcome, 0);
    }
    assert!(queue.is_reached() && queue.behind_since().is_none());
    assert_eq!((queue.behind(), queue.next(now)), (1, None));
    for wait in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
        assert_eq!(queue.poll_timeout(), Some(now + wait));
        now = now + wait;
        queue.change(now, routed("a", 2 + now.as_nanos()));
        let pushes = take(&mut queue, now);
        assert_eq!(pushes.iter().map(|it| &*it.mailbox).collect::<Vec<_>>(), ["a", "poison"]);
        assert!(queue.is_reached() && queue.behind_since() == Some(now));
        answered(&mut queue, now, &pushes[0]);
        assert_eq!(queue.behind_since(), None);
        queue.done(now, &pushes[1], Outcome::Refused, 0);
    }
    queue.change(now, routed("poison", 2));
    let changed = take(&mut queue, now);
    assert_eq!(told(&changed), [("poison", 2)], "a change is told at once");
    queue.done(now, &changed[0], Outcome::Refused, 0);
    assert_eq!(queue.poll_timeout(), Some(now + RETRY_MIN));
    let again = take(&mut queue, now + RETRY_MIN);
    answered(&mut queue, now + RETRY_MIN, &again[0]);
    assert_eq!((queue.behind(), queue.poll_timeout()), (0, None));
}

#[test]
fn a_proxy_that_refuses_everything_is_asked_one_thing_at_a_time() {
    let names: Vec<String> = (0..1000).map(|number| format!("m{number}")).collect();
    let mut queue = queue_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut now, mut count) = (NOW, 0);
    while now < NOW + Duration::from_secs(20) {
        while let Some(push) = queue.next(now) {
            queue.done(now, &push, Outcome::Refused, 0);
            count += 1;
        }
        let at = queue.poll_timeout().unwrap();
        assert!(at > now, "there is a wait");
        now = at;
    }
    assert!(count <= 1000 + 2000, "{count}");
    queue.lost_connection(now);
    let first = take(&mut queue, now);
    answered(&mut queue, now, &first[0]);
    assert_eq!(take(&mut queue, now).len(), UNDER_WAY_MAX, "one that is started again is told all");
}

#[test]
fn a_removal_that_is_refused_is_tried_again() {
    let mut queue = queue_of(&["a"]);
    let pushes = take(&mut queue, NOW);
    answered(&mut queue, NOW, &pushes[0]);
    queue.change(NOW, removed("a", 5));
    let pushes = take(&mut queue, NOW);
    queue.done(NOW, &pushes[0], Outcome::Refused, 0);
    let again = take(&mut queue, NOW + RETRY_MIN);
    assert_eq!(told(&again), [("a", 5)]);
    answered(&mut queue, NOW + RETRY_MIN, &again[0]);
    assert_eq!((queue.behind(), queue.told.len()), (0, 0));
}

#[test]
fn with_nothing_to_tell_a_lost_connection_is_no_trouble() {
    let mut queue = Queue::default();
    queue.lost_connection(NOW);
    assert!(queue.is_reached());
    queue.change(NOW, routed("a", 1));
    queue.lost_connection(NOW);
    assert!(!queue.is_reached(), "whether it is there will show");
    queue.change(NOW, removed("a", 2));
    assert!(queue.is_reached() && queue.next(NOW).is_none());
}

#[test]
fn waits_after_failures_grow_to_a_bound_and_differ() {
    for failures in 1..100 {
        let [least, most] = [0, u16::MAX].map(|roll| back_off(failures, roll));
        assert!(least < most && most <= BACK_OFF_MAX && least >= BACK_OFF_MIN / 2);
    }
    assert_eq!(back_off(99, u16::MAX), BACK_OFF_MAX);
}
