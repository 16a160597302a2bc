//! A database that refuses whoever is too late. Every write shows its fencing token, and one with a smaller
//! token than the row has seen changes nothing: also when its writer stood still between its look at the
//! hold and the write. `cargo run -p tenure --example fencing -- redis://127.0.0.1/`
//!
//! In SQL the same is one statement, which changes no row for a late writer:
//!
//! ```sql
//! UPDATE account SET balance = $1, fence = $2 WHERE id = 1 AND fence <= $2
//! ```

/// Compares and writes in one step. A token is text of up to 16 digits, so that Lua's numbers hold it.
const WRITE: &str = r#"
    if tonumber(redis.call("HGET", KEYS[1], "fence") or "0") > tonumber(ARGV[2]) then return 0 end
    redis.call("HSET", KEYS[1], "balance", ARGV[1], "fence", ARGV[2])
    return 1
"#;

/// False if somebody with a greater token has written: the caller must stop.
fn write(database: &mut redis::Connection, balance: i64, token: u64) -> redis::RedisResult<bool> {
    redis::Script::new(WRITE).key("account").arg(balance).arg(token).invoke(database)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: fencing REDIS_URL")?;
    let mut database = redis::Client::open(url)?.get_connection()?;
    let session = tenure::blocking::open(None, |agent| agent.session().name("bank"))?;
    let account = session.leader("account");

    let earlier = session.acquire(&account)?;
    let late = earlier.token();
    earlier.release()?;

    let now = session.acquire(&account)?;
    println!("the holder's write: {}", write(&mut database, 100, now.token())?);
    println!("a late write of an earlier holder: {}", write(&mut database, 0, late)?);
    Ok(())
}
