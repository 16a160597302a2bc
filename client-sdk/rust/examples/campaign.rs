//! One host does the work, term after term. `cargo run -p tenure --example campaign` on each.

async fn lead(token: u64) {
    println!("I lead, with the fencing token {token}");
    std::future::pending().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = tenure::Agent::connect().await?.session().name("example").open().await?;
    let mut campaign = session.leader("nightly").campaign();
    while let Some(term) = campaign.next().await {
        let hold = term?;
        // Dropped the moment the lead is lost.
        if let Err(lost) = hold.guard(lead(hold.token())).await {
            eprintln!("{lost}");
        }
    }
    Ok(())
}
