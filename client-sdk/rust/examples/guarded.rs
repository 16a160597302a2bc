//! Work in steps on a thread without a runtime: it looks before each step, and is told why it must stop.
//! `cargo run -p tenure --example guarded`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = tenure::blocking::open(None, |agent| agent.session().name("report"))?;
    let rows = session.run(&session.leader("report"), |hold| {
        let mut rows = 0;
        for part in 0..1000 {
            // Some 40 ns: it reads a word of memory and the clock, and asks nobody.
            hold.check()?;
            rows += part % 7;
        }
        Ok::<u32, tenure::Lost>(rows)
    })??;
    println!("{rows} rows");
    Ok(())
}
