//! A Postgres that is not as an agent needs it, and the words about it.

use std::fs;

use serde_json::json;
use tenure::wire::{Check, Code, Diagnosis, UpstreamState, Verdict};
use tenure_tests::harness::{
    Agent, Authority, Campaigner, Client, Gateway, Pooler, Postgres, kind_of, start_agent, until,
};

#[track_caller]
fn is_up(agent: &Agent) {
    until("the agent to be up", || agent.http().status().upstream.state == UpstreamState::Up);
}

#[track_caller]
fn is_refused(agent: &Agent, words: &str) {
    let mut last = String::new();
    until(&format!("the agent to say {words:?}"), || {
        let upstream = agent.http().status().upstream;
        let error = upstream.last_error.unwrap_or_default();
        if error != last {
            eprintln!("{error}");
            last = error;
        }
        upstream.state != UpstreamState::Up && last.contains(words)
    });
}

#[track_caller]
fn doctor(agent: &Agent) -> Vec<Check> {
    agent.http().get("/v1/doctor").expect::<Diagnosis>(200).checks
}

/// Waits until a check says that.
#[track_caller]
fn says(agent: &Agent, name: &str, verdict: Verdict, words: &str) {
    until(&format!("{name} to say {words:?}"), || {
        doctor(agent).iter().any(|check| {
            check.name == name && check.verdict == verdict && check.detail.contains(words)
        })
    });
}

fn change(postgres: &Postgres, setting: &str) {
    postgres.sql(&format!("alter system set {setting}"));
    postgres.sql("select pg_reload_conf()");
}

#[test]
fn the_doctor_and_the_guarantee_follow_the_settings_of_the_server() {
    let setup = Postgres::setup().option("max_connections", "20");
    let postgres = setup.option("fsync", "on").start();
    let agent = start_agent(0, &postgres.url(), "");
    is_up(&agent);
    says(&agent, "postgres.feed", Verdict::Ok, "hears at once");
    let checks = doctor(&agent);
    let of_postgres = checks.iter().filter(|check| check.name.starts_with("postgres."));
    let names: Vec<&str> = of_postgres.map(|check| &*check.name).collect();
    let expected = ["connection", "writes", "version", "durability", "standbys"];
    let expected = expected.iter().chain(&["connections", "notifications", "clock", "feed"]);
    assert_eq!(names, expected.map(|name| format!("postgres.{name}")).collect::<Vec<_>>());
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:#?}");

    let guarantee = || agent.http().status().upstream.guarantee;
    let found = "one Postgres; an asynchronous failover can lose a grant";
    assert_eq!(guarantee(), found);
    // Everywhere else where a store's guarantee is told.
    assert_eq!(agent.http().register(&json!({})).agent.guarantee, found);
    assert!(agent.log().contains(&format!("guarantee: {found}")), "{}", agent.log());
    let gateway = Gateway::start(&postgres.url());
    for path in ["/v1/overview", "/healthz"] {
        until("the gateway to say it", || {
            let answer = gateway.call(&format!("GET {path}"), "");
            answer.is_ok_and(|(_, answer)| answer.contains(&format!(r#""guarantee":"{found}""#)))
        });
    }
    drop(gateway);
    change(&postgres, "synchronous_commit = off");
    says(&agent, "postgres.durability", Verdict::Failure, "synchronous_commit is off");
    until("the guarantee to say it", || guarantee().contains("a crash of its host can lose"));
    change(&postgres, "synchronous_commit = on");
    let careless = Postgres::setup().option("fsync", "off").start();
    let of_careless = start_agent(1, &careless.url(), "");
    says(&of_careless, "postgres.durability", Verdict::Failure, "fsync is off");

    let standby = postgres.standby("second");
    let lags = "select count(*) from pg_stat_replication";
    until("the standby to follow", || postgres.count(lags) == 1);
    change(&postgres, "synchronous_standby_names = 'second'");
    says(&agent, "postgres.standbys", Verdict::Ok, "survives a failover to a synchronous standby");
    until("the guarantee to say it", || guarantee().ends_with("to a synchronous standby"));
    drop(standby);
    says(&agent, "postgres.standbys", Verdict::Failure, "every commit waits");
    change(&postgres, "synchronous_standby_names = ''");
    says(&agent, "postgres.standbys", Verdict::Ok, "no synchronous standby");

    let others: Vec<_> = (0..12).map(|_| postgres.hold("select 1")).collect();
    says(&agent, "postgres.connections", Verdict::Warning, "of 20 connections");
    drop(others);
    says(&agent, "postgres.connections", Verdict::Ok, "of 20 connections");
}

#[test]
fn a_standby_is_refused_until_it_takes_changes() {
    let primary = Postgres::setup().start();
    let standby = primary.standby("second");
    let agent = start_agent(0, &standby.url(), "");
    is_refused(&agent, "it is a standby, which takes no changes; name the primary");
    standby.promote();
    is_up(&agent);
}

#[test]
fn a_pooler_is_refused_in_transaction_mode_and_used_in_session_mode() {
    let postgres = Postgres::setup().start();
    let pooler = Pooler::before(&postgres, "transaction");
    let agent = start_agent(0, &pooler.url(), "");
    is_refused(&agent, "is behind a pooler in transaction mode, such as PgBouncer's");
    // Not even the schema was made over it.
    assert_eq!(postgres.sql("select count(*) from pg_namespace where nspname = 'tenure'"), "0");
    let pooler = Pooler::before(&postgres, "session");
    let agents = [0, 1].map(|host| start_agent(host, &pooler.url(), ""));
    agents.iter().for_each(is_up);
    for (kind, more) in [0, 1, 3, 4].map(kind_of) {
        let mut first = Campaigner::start(&agents[0], "first");
        let mut second = Campaigner::start(&agents[1], "second");
        let held = first.acquire(kind, "role", &more);
        let waiting = second.queue(kind, "role", &more);
        first.release(held.hold);
        second.events.granted(waiting);
        second.release(waiting);
    }
}

#[test]
fn what_the_server_refuses_is_said_with_the_setting_that_mends_it() {
    let postgres = Postgres::setup().start();
    let create = |role: &str| {
        postgres.sql(&format!("create role {role} login"));
        postgres.sql(&format!("grant create on database postgres to {role}"));
    };
    create("few");
    postgres.sql("create schema tenure authorization few");
    postgres.sql("alter role few connection limit 0");
    let few = start_agent(0, &postgres.url_as("few"), "");
    is_refused(&few, "raise the limit of the role (alter role … connection limit)");
    let mut http = few.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let refused = http.ask(session, "leader", "role", &json!({}));
    let detail = refused.problem(Code::UpstreamUnavailable).detail;
    assert!(detail.starts_with("the upstream refuses (Postgres at "), "{detail}");
    postgres.sql("alter role few connection limit -1");
    is_up(&few);

    // A server that comes to take no writes, while the agent is connected.
    http.acquire(session, "leader", "role", &json!({}));
    postgres.sql("alter role few set default_transaction_read_only = on");
    postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'few'");
    until("the agent to say it", || {
        let refused = http.ask(session, "leader", "other", &json!({}));
        let detail = refused.problem(Code::UpstreamUnavailable).detail;
        detail.starts_with("the upstream refuses (Postgres")
            && detail.contains("default_transaction_read_only")
    });
}

/// Why a wish is refused.
#[track_caller]
fn refusal(agent: &Agent) -> String {
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let refused = http.ask(session, "leader", "role", &json!({}));
    refused.problem(Code::UpstreamUnavailable).detail
}

#[test]
fn a_server_that_takes_no_writes_is_not_said_to_be_silent() {
    let primary = Postgres::setup().start();
    let standby = primary.standby("second");
    primary.sql("create role reader login");
    primary.sql("grant create on database postgres to reader");
    primary.sql("alter role reader set default_transaction_read_only = on");
    for (url, words) in [
        (standby.url(), "it is a standby, which takes no changes; name the primary"),
        (primary.url_as("reader"), "default_transaction_read_only"),
    ] {
        let agent = start_agent(0, &url, "");
        is_refused(&agent, words);
        let said = refusal(&agent);
        let is_judged = ["the upstream is not available (", "the upstream refuses ("]
            .iter()
            .any(|start| said.starts_with(start));
        assert!(is_judged && said.contains(words), "{said}");
        assert!(!said.contains("does not answer"), "{said}");
    }
}

#[test]
fn passwords_and_certificates_are_checked() {
    const LOCAL: &str = "IP:127.0.0.1,DNS:localhost";
    let (known, stranger) = (Authority::new(), Authority::new());
    known.issue("server", LOCAL);
    known.issue("elsewhere", "DNS:elsewhere");
    let server = |name: &str| {
        let [certificate, key] = ["pem", "key"].map(|it| known.path(&format!("{name}.{it}")));
        let postgres = Postgres::setup().tls(&certificate, &key).start();
        postgres.let_in("hostssl all all 127.0.0.1/32 scram-sha-256");
        postgres
            .sql("create role own login password 'right'; create schema tenure authorization own");
        postgres.sql("grant create on database postgres to own");
        postgres
    };
    let [good, elsewhere] = ["server", "elsewhere"].map(server);
    let secret = known.path("secret");
    let config = |authority: &Authority, password: &str| {
        fs::write(&secret, format!("{password}\n")).expect("it is ours");
        let (secret, authority) = (secret.display(), authority.path("ca.pem"));
        let authority = authority.display();
        format!("upstream_secret_file = \"{secret}\"\n[postgres]\ntls_ca_file = \"{authority}\"\n")
    };
    private(&secret);
    let url = |server: &Postgres| server.tcp_url("own", "");
    for (server, authority, password, words) in [
        (&good, &stranger, "right", "its certificate is not trusted"),
        (&elsewhere, &known, "right", "its certificate is for another name"),
        (
            &good,
            &known,
            "wrong",
            "the password in upstream_secret_file, which is read at each sign-in",
        ),
    ] {
        let agent = start_agent(0, &url(server), &config(authority, password));
        is_refused(&agent, words);
        assert!(!agent.log().contains("wrong\""), "no password is logged");
    }
    let agent = start_agent(0, &url(&good), &config(&known, "right"));
    is_up(&agent);
    let plain = start_agent(1, &good.tcp_url("own", "?sslmode=disable"), "");
    is_refused(&plain, "no encryption");
}

#[test]
fn a_server_without_tls_is_refused_unless_the_url_goes_without() {
    let postgres = Postgres::setup().tcp().start();
    postgres.let_in("host all all 127.0.0.1/32 trust");
    for parameters in ["", "?sslmode=require", "?sslmode=verify-full"] {
        let agent = start_agent(0, &postgres.tcp_url("postgres", parameters), "");
        is_refused(&agent, "if it does not speak TLS, write ?sslmode=disable at the end");
    }
    is_up(&start_agent(0, &postgres.tcp_url("postgres", "?sslmode=disable"), ""));
}

/// Makes a file that its owner alone may read.
fn private(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, "").expect("it is ours");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}
