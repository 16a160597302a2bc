//! A service that is ready only on the host that leads, for a load balancer in front of all of them.
//! `cargo run -p tenure --example readiness -- 127.0.0.1:8080` on each, then `curl -i localhost:8080/readyz`.

use std::sync::{Arc, RwLock};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tenure::Hold;

type Lead = Arc<RwLock<Option<Hold>>>;

async fn readyz(State(lead): State<Lead>) -> StatusCode {
    // Asked at every call: right even when the agent is stopped, or this program was.
    let leads = lead.read().is_ok_and(|lead| lead.as_ref().is_some_and(Hold::is_held));
    if leads { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let session = tenure::Agent::connect().await?.session().name("service").open().await?;
    let lead = Lead::default();
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}/readyz", listener.local_addr()?);
    let service = Router::new().route("/readyz", get(readyz)).with_state(Arc::clone(&lead));
    tokio::spawn(async move { axum::serve(listener, service).await });

    let mut campaign = session.leader("service").campaign();
    while let Some(term) = campaign.next().await {
        let hold = term?;
        let lost = hold.lost();
        if let Ok(mut lead) = lead.write() {
            *lead = Some(hold);
        }
        eprintln!("{}", lost.await);
    }
    Ok(())
}
