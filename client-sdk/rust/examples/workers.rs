//! Ten jobs at once in this program, and never more than four of them in the whole fleet.
//! `cargo run -p tenure --example workers`, also several times side by side.

async fn encode(job: u32, token: u64) {
    println!("job {job} runs with token {token}");
    tokio::task::yield_now().await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = tenure::Agent::connect().await?.session().name("encoder").open().await?;
    let permits = session.semaphore("encode", 4);
    let jobs: Vec<_> = (0..10)
        .map(|job| {
            let permits = permits.clone();
            tokio::spawn(async move {
                permits.run(|permit| async move { encode(job, permit.token()).await }).await
            })
        })
        .collect();
    for job in jobs {
        job.await??;
    }
    println!("all is done");
    Ok(())
}
