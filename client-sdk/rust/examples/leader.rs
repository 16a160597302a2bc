//! One host does the work. `cargo run -p tenure --example leader` on each.

async fn clean_up(token: u64) {
    println!("I lead, with the fencing token {token}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = tenure::Agent::connect().await?.session().open().await?;
    let hold = session.leader("nightly").acquire().await?;
    hold.guard(clean_up(hold.token())).await?; // dropped the moment the lock is lost
    hold.release().await?;
    Ok(())
}
