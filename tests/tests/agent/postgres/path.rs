//! Another role may create functions and operators in the database: none of them is called in the place of Postgres's.

use serde_json::json;
use tenure_tests::harness::{Agent, Campaigner, Client, Gateway, Postgres, start_agent, until};

/// Functions that would fit better than Postgres's, which take anything.
const FUNCTIONS: [(&str, &str, &str); 15] = [
    ("json_build_object", "text, text", "json"),
    ("json_build_object", "text, bigint", "json"),
    ("json_build_object", "text, boolean", "json"),
    ("json_build_object", "text, json", "json"),
    ("json_build_object", "text, text, text, text", "json"),
    ("json_build_object", "text, bigint, text, bigint", "json"),
    ("json_build_object", "text, json, text, json", "json"),
    ("json_build_object", "text, text, text, bigint, text, bigint", "json"),
    ("json_build_object", "text, bigint, text, bigint, text, bigint", "json"),
    ("json_build_array", "text, text, text, text", "json"),
    ("json_build_array", "text, uuid", "json"),
    ("clock_timestamp", "", "timestamptz"),
    ("current_setting", "text", "text"),
    ("hashtext", "text", "integer"),
    ("nextval", "regclass", "bigint"),
];
/// Operators that the database finds before Postgres's.
const OPERATORS: [(&str, &str, &str); 7] = [
    ("=", "text", "boolean"),
    ("=", "bigint", "boolean"),
    ("=", "uuid", "boolean"),
    (">", "bigint", "boolean"),
    ("<=", "bigint", "boolean"),
    ("+", "bigint", "bigint"),
    ("/", "bigint", "bigint"),
];

/// The body of a function that notes its caller, and answers as Postgres's own.
fn body(name: &str, call: &str) -> String {
    format!(
        "begin insert into public.pwned values (pg_catalog.concat(current_user, ' {name}')); return {call}; end"
    )
}

/// Makes all of that, as a role that may create in `public`, which is searched first.
fn plant(postgres: &Postgres) {
    postgres.sql(
        "create role app login; create role tenure login; grant create on database postgres to tenure; \
         grant create on schema public to app; alter database postgres set search_path = public, pg_catalog",
    );
    let mut text =
        "create table public.pwned (who text); grant select, insert on public.pwned to public;"
            .to_owned();
    for (name, arguments, returns) in FUNCTIONS {
        let count = arguments.split(", ").filter(|it| !it.is_empty()).count();
        let given: Vec<_> = (1..=count).map(|at| format!("${at}")).collect();
        let body = body(name, &format!("pg_catalog.{name}({})", given.join(", ")));
        text.push_str(&format!(
            "create function public.{name}({arguments}) returns {returns} language plpgsql as $${body}$$;"
        ));
    }
    for (at, (name, of, returns)) in OPERATORS.into_iter().enumerate() {
        let body = body(name, &format!("$1 operator(pg_catalog.{name}) $2"));
        text.push_str(&format!(
            "create function public.planted_{at}({of}, {of}) returns {returns} language plpgsql as $${body}$$; \
             create operator public.{name} (leftarg = {of}, rightarg = {of}, function = public.planted_{at});"
        ));
    }
    let mut psql = postgres.psql("app");
    let out = psql.args(["-c", &text]).output().expect("psql runs");
    assert!(out.status.success(), "{out:?}");
}

/// All kinds of operations.
fn live(agents: &[Agent]) {
    let mut first = Campaigner::start(&agents[0], "first");
    let mut second = Campaigner::start(&agents[1], "second");
    let brief = json!({"ttl_ms": 1000});
    for kind in ["leader", "master", "lease"] {
        let name = if kind == "master" { "p" } else { "role" };
        let held = first.acquire(kind, "role", &brief);
        let waiting = second.queue(kind, "role", &brief);
        let standing = agents[1].http().standing(kind, name);
        assert_eq!(standing.holders[0].token, held.token);
        first.release(held.hold);
        let granted = second.events.granted(waiting);
        until("a beat to confirm it", || {
            agents[0].http().standing(kind, name).holders.iter().any(|it| it.token == granted.token)
        });
        let revoked = json!({"kind": kind, "name": name});
        agents[1].http().post("/v1/revoke", &revoked).json(200);
        second.events.lost(waiting);
    }
    first.acquire("semaphore", "gpu", &json!({"limit": 2}));
    agents[0].http().get("/v1/routes").json(200);
}

#[test]
fn what_another_role_plants_in_the_database_is_never_called() {
    let postgres = Postgres::setup().start();
    plant(&postgres);
    let url = postgres.url_as("tenure");
    let agents = [0, 1].map(|host| start_agent(host, &url, ""));
    live(&agents);
    drop(agents);
    let gateway = Gateway::start_by(&url, &[], &["--keys-in-store".to_owned()]);
    let key = gateway.add_store_key("laptop", &["--right", "revoke"]);
    until("the key to be good", || gateway.status_for(&key) == 200);
    let config = gateway.config(&key);
    live(&[0, 1].map(|host| start_agent(host, &gateway.url(), &config)));
    gateway.store_keys(&["list"]);
    gateway.store_keys(&["revoke", key.id()]);
    until("the key to be gone", || gateway.status_for(&key) == 401);
    // The tables were made and filled by that role.
    assert!(postgres.count("select count(*) from tenure.history") > 0);
    let found =
        postgres.sql("select distinct who from public.pwned where starts_with(who, 'tenure ')");
    assert_eq!(found, "", "code of another role ran as that of the agent");
    // It would have been called: those who search the schemas as the database says do.
    postgres.sql(
        "set role tenure; select json_build_object('a'::text, 1::bigint), 1::bigint + 1::bigint",
    );
    let found =
        postgres.count("select count(*) from public.pwned where starts_with(who, 'tenure ')");
    assert_eq!(found, 2);
}
