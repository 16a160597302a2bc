//! Tokens grow, also where the tables are a copy that lacks the last grants.

use std::future::poll_fn;
use std::process::Command;
use std::time::Duration;

use tenure_core::model::{Answer, CallId, Claim, ClaimAnswer, ClaimId, Owner, Request, Resource};
use tenure_core::model::{SessionId, Terms};
use tenure_harness::{POSTGRES_PORT, Postgres};
use tenure_host::clock;
use tenure_stores::postgres::{self, PostgresAccess, PostgresServer};
use tenure_stores::{Report, Upstream};
use tenure_wire::Kind;
use tokio::task::LocalSet;
use uuid::Uuid;

/// Not a measure of speed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The token of a claim that an agent makes which knows of no other.
async fn token(server: &Postgres, database: &str) -> u64 {
    let access = PostgresAccess {
        server: PostgresServer::Unix { directory: server.dir().to_owned(), port: POSTGRES_PORT },
        tls: None,
        user: "postgres".to_owned(),
        password: None,
        database: database.to_owned(),
        connect_timeout: TIMEOUT,
        timeout: TIMEOUT,
    };
    let claim = Claim {
        id: ClaimId(Uuid::new_v4()),
        resource: Resource {
            tenant: "t".into(),
            kind: Kind::Leader,
            name: Uuid::new_v4().to_string().into(),
        },
        owner: Owner { session: SessionId(Uuid::new_v4()), host: "h".into(), name: "n".into() },
        ttl: Duration::from_secs(30),
        terms: Terms::Leader,
        enqueue: false,
    };
    let asking = async {
        let mut upstream = postgres::Postgres::open(access);
        for call in 1.. {
            upstream.submit(clock::now(), CallId(call), Request::Claim(claim.clone()));
            upstream.dispatch();
            loop {
                let report = poll_fn(|context| upstream.poll_report(context));
                let report = tokio::time::timeout(Duration::from_millis(20), report).await;
                if upstream.poll_timeout().is_some_and(|due| due <= clock::now()) {
                    upstream.handle_timeout(clock::now());
                }
                match report {
                    Ok(Report::Answer { result: Ok(answer), .. }) => {
                        let Answer::Claim(ClaimAnswer::Held { token, .. }) = answer else {
                            panic!("{answer:?}");
                        };
                        return token;
                    }
                    // It was not connected yet.
                    Ok(Report::Answer { result: Err(_), .. }) => break,
                    _ => {}
                }
            }
        }
        unreachable!("it asks again")
    };
    LocalSet::new().run_until(asking).await
}

/// Runs a program of Postgres on a database of the server.
fn try_to_run(server: &Postgres, program: &str, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg("--host").arg(server.dir()).args(["--username", "postgres"]).args(arguments);
    let output = command.output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn run(server: &Postgres, program: &str, arguments: &[&str]) {
    try_to_run(server, program, arguments).unwrap();
}

#[tokio::test]
async fn a_restored_dump_repeats_no_token() {
    let server = Postgres::start_with(&["-c", "fsync=off"], &[]).unwrap();
    run(&server, "createdb", &["here"]);
    run(&server, "createdb", &["there"]);
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump").display().to_string();

    let mut last = token(&server, "here").await;
    run(&server, "pg_dump", &["--format", "custom", "--file", &dump, "here"]);
    let mut grows = |token: u64, what: &str| {
        assert!(token > last, "{what}: {token} after {last}");
        last = token;
    };
    grows(token(&server, "here").await, "after the dump");
    run(&server, "pg_restore", &["--dbname", "there", &dump]);
    grows(token(&server, "there").await, "in another database");
    grows(token(&server, "there").await, "again");
    // Over what is there.
    run(&server, "pg_restore", &["--clean", "--dbname", "there", &dump]);
    grows(token(&server, "there").await, "in the same database");
    run(&server, "dropdb", &["--force", "here"]);
    // The connections of the agent before have to end first.
    while try_to_run(&server, "createdb", &["--template", "there", "here"]).is_err() {
        tokio::task::yield_now().await;
    }
    grows(token(&server, "there").await, "before the copy is used");
    grows(token(&server, "here").await, "in a copy of a database");
}
