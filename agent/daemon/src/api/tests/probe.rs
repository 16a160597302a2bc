//! The agent asks itself whether it answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::model::Share;

use super::super::{Limits, Unanswered};
use super::{Rig, SESSION, within};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn is_answered_when_clients_take_up_every_connection() {
    let limits = Limits { connections: Share { max: 3, per_uid: 3 }, ..Limits::default() };
    let mut rig = Rig::with_limits(limits);
    // Streams make no room for anybody.
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut client = rig.connect().await;
        client.send(format!("GET /v1/events?session={SESSION} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        let (_, _, events) = rig.opened().await;
        streams.push((client, events));
    }
    let mut refused = rig.connect().await;
    assert_eq!(refused.get("/readyz").await.status, 429);
    for _ in 0..3 {
        rig.probe.ask(PATIENCE).await.unwrap();
    }
    assert_eq!(rig.metrics.connections.get(), 3, "it takes no place");
}

#[tokio::test]
async fn says_what_does_not_answer() {
    let mut rig = Rig::new();
    rig.beats.store(false, Ordering::Relaxed);
    let stuck = rig.probe.ask(PATIENCE).await.unwrap_err();
    assert_eq!(stuck.to_string(), "the heart did not answer within 1 s");
    let hasty = rig.probe.ask(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(hasty, Unanswered::Answering), "{hasty}");
    rig.beats.store(true, Ordering::Relaxed);
    rig.probe.ask(PATIENCE).await.unwrap();

    rig.shutdown.cancel();
    within("the end of serving", &mut rig.served).await.unwrap();
    let over = rig.probe.ask(PATIENCE).await.unwrap_err();
    assert!(matches!(over, Unanswered::Accepting), "{over}");
}
