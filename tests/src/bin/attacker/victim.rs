//! The client beside the attackers that must not notice.

use std::rc::Rc;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tenure_tests::harness::boottime_ns;
use tokio::sync::mpsc::Receiver;

use super::connection::post;
use super::say;
use super::target::Target;

/// Holds a leader with a short ttl, and acquires and releases all the time. Tells with each order how that went
/// since the one before.
pub(super) async fn victim(target: &Rc<Target>, orders: &mut Receiver<()>) -> anyhow::Result<()> {
    const BETWEEN: Duration = Duration::from_millis(4);
    let mut connection = target.connect().await;
    let session = connection.register(&json!({"name": "victim", "tether": "process"})).await?;
    let claim = json!({"session": session, "kind": "leader", "name": "victim", "ttl_ms": 2000});
    let granted = connection.exchange(&post("/v1/acquire", &claim)).await?;
    ensure!(granted.status == 200, "not granted: {}", granted.text());
    say(&json!({"ready": true}));
    let acquire = json!({"session": session, "kind": "semaphore", "name": "victim", "limit": 4});
    let acquire = post("/v1/acquire", &acquire);
    let look = post("/v1/checkpoint", &json!({"session": session}));
    let mut times_ms = Vec::new();
    loop {
        let ordered = tokio::time::timeout(BETWEEN, orders.recv()).await;
        if let Ok(order) = ordered {
            if order.is_none() {
                return Ok(());
            }
            let held = connection.exchange(&look).await.map(|answer| answer.text());
            let held = held.is_ok_and(|text| text.contains(r#""state":"held""#));
            let times_ms = std::mem::take(&mut times_ms);
            let failures = std::mem::take(&mut *target.seen.borrow_mut());
            say(&json!({"times_ms": times_ms, "held": held, "failures": failures}));
        }
        let began_ns = boottime_ns();
        let pair = async {
            let granted = connection.exchange(&acquire).await?;
            ensure!(granted.status == 200, "{}", granted.sort());
            let hold = granted.field("hold")?;
            let release = post("/v1/release", &json!({"session": session, "hold": hold}));
            anyhow::Ok(connection.exchange(&release).await?)
        };
        if let Err(error) = pair.await {
            target.saw(&error.root_cause().to_string());
            connection = target.connect().await;
        }
        times_ms.push((boottime_ns() - began_ns) as f64 / 1e6);
    }
}
