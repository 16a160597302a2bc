//! The agents of a store, as each of them tells of them, directly and behind gateways.

use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenure_core::model::AGENTS_TENANT;
use tenure_tests::harness::{
    Agent, Client, Fleet, Gateway, Key, Program, RedisServer, binary, eventually, run_to_end,
    start_agent, until,
};

/// The agents that `tenure agents --json` tells.
#[track_caller]
fn agents(asked: &Agent) -> Vec<Value> {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", asked.socket()).args(["agents", "--json"]);
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    told["agents"].as_array().expect("there is a list").clone()
}

fn hosts(agents: &[Value]) -> Vec<&str> {
    agents.iter().map(|agent| agent["host"].as_str().expect("a host")).collect()
}

/// Waits until an agent tells of agents on these hosts, in their order.
#[track_caller]
fn agents_on(asked: &Agent, wanted: &[&str]) -> Vec<Value> {
    eventually(&format!("the agents of {wanted:?}"), || {
        Some(agents(asked)).filter(|agents| hosts(agents) == wanted)
    })
}

fn id(agent: &Value) -> String {
    agent["agent"].as_str().expect("an id").to_owned()
}

#[track_caller]
fn table(asked: &Agent) -> String {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", asked.socket()).arg("agents");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, out, err) = run_to_end(&mut Program::start(&mut command));
    assert_eq!((code, err.as_str()), (0, ""));
    out
}

#[test]
fn agents_of_one_redis_tell_of_each_other_until_they_are_gone() {
    let mut fleet = Fleet::start();
    for asked in &fleet.agents {
        let listed = agents_on(asked, &["alpha", "beta"]);
        assert!(listed.iter().all(|agent| agent["seen"] == true), "{listed:?}");
        let this: Vec<_> = listed.iter().filter(|agent| agent["this"] == true).collect();
        assert_eq!(this.len(), 1, "{listed:?}");
        assert_eq!(this[0]["last_seen_ms"], 0);
        assert_eq!(listed[0]["version"], env!("CARGO_PKG_VERSION"));
    }
    let mut http = fleet.agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "role", &json!({}));
    let own = &agents(&fleet.agents[0])[0];
    assert_eq!(
        (&own["sessions"], &own["held"], &own["waiting"]),
        (&json!(1), &json!(1), &json!(0))
    );

    let beta = id(&agents(&fleet.agents[0])[1]);
    // The one that takes over is the same agent.
    fleet.agents[1].kill();
    let registered = format!("prism:session:{beta}");
    // As if nobody had seen it for four minutes.
    let left = (600_000 - 4 * 60_000).to_string();
    assert_eq!(fleet.redis.command::<u64>(&["PEXPIRE", &registered, &left]), 1);
    let listed = agents(&fleet.agents[0]);
    assert_eq!((&listed[1]["seen"], id(&listed[1])), (&json!(false), beta.clone()));
    assert!(listed[1]["last_seen_ms"].as_u64() >= Some(240_000), "{listed:?}");
    assert!(table(&fleet.agents[0]).contains("not seen for 4m"));
    fleet.agents[1].start_again();
    let listed = eventually("it to be seen again", || {
        Some(agents(&fleet.agents[0])).filter(|agents| agents[1]["seen"] == true)
    });
    assert_eq!((hosts(&listed), id(&listed[1])), (vec!["alpha", "beta"], beta));

    // One that nobody sees any more is forgotten.
    fleet.agents[1].kill();
    assert_eq!(fleet.redis.command::<u64>(&["PEXPIRE", &registered, "1"]), 1);
    agents_on(&fleet.agents[0], &["alpha"]);
    // Nor is one known that was stopped, and the next one is another.
    fleet.agents[1].start_again();
    let next = id(&agents_on(&fleet.agents[0], &["alpha", "beta"])[1]);
    fleet.agents[1].stop();
    agents_on(&fleet.agents[0], &["alpha"]);
    fleet.agents[1].start_again();
    let after = id(&agents_on(&fleet.agents[0], &["alpha", "beta"])[1]);
    assert_ne!(after, next);
}

#[test]
fn a_restart_keeps_an_agent_and_two_on_a_host_are_two() {
    let redis = RedisServer::start();
    let [first, mut second] = [0, 0].map(|host| start_agent(host, &redis.url(), ""));
    let before: Vec<_> = agents_on(&first, &["alpha", "alpha"]).iter().map(id).collect();
    second.signal(Signal::SIGUSR2);
    second.wait_exit();
    second.start_again();
    let after = agents_on(&second, &["alpha", "alpha"]);
    assert_eq!(after.iter().map(id).collect::<Vec<_>>(), before);
}

#[test]
fn what_others_wrote_into_the_store_harms_nobody() {
    let fleet = Fleet::start();
    let asked = &fleet.agents[0];
    agents_on(asked, &["alpha", "beta"]);
    let facts = |version: &str| json!({"version": version, "up_ms": 1, "shown_for_ms": u64::MAX, "sessions": 0, "held": 0, "waiting": 0});
    let set = format!("prism:project:{AGENTS_TENANT}:agents:sessions");
    let write = |id: &str, host: &str, name: &str| {
        let key = format!("prism:session:{id}");
        fleet.redis.command::<u64>(&[
            "HSET",
            &key,
            "tenant_id",
            AGENTS_TENANT,
            "project_id",
            "agents",
            "machine_id",
            host,
            "agent_identity",
            name,
        ]);
        fleet.redis.command::<u64>(&["SADD", &set, id]);
    };
    write("\u{1b}[2J", "\u{1b}[31mgamma\n", &facts("\u{1b}]0;x\u{7}9").to_string());
    write("huge", &"h".repeat(1 << 20), &facts(&"v".repeat(1 << 20)).to_string());
    write("long", &"h".repeat(1 << 20), &facts("1").to_string());
    write("none", "delta", "no agent writes this");
    let listed =
        eventually("what can be read", || Some(agents(asked)).filter(|agents| agents.len() == 4));
    let longest = listed.iter().map(|agent| agent.to_string().len()).max();
    assert!(longest < Some(1024), "{longest:?}");
    let table = table(asked);
    assert!(table.contains("alpha (this one)") && table.contains("beta"), "{table}");
    assert!(!table.contains('\u{1b}') && table.lines().count() == 5, "{table}");
    // Programs do not get there.
    let answer = asked.http().post("/v1/register", &json!({"tenant": AGENTS_TENANT}));
    assert_eq!(answer.status, 422);
}

#[test]
fn a_large_fleet_is_listed_in_pages() {
    let fleet = Fleet::start();
    let asked = &fleet.agents[0];
    agents_on(asked, &["alpha", "beta"]);
    let set = format!("prism:project:{AGENTS_TENANT}:agents:sessions");
    let script = "for i = 1, 10000 do
        local id = string.format('00000000-0000-4000-8000-%012d', i)
        redis.call('HSET', 'prism:session:' .. id, 'tenant_id', ARGV[1], 'project_id', 'agents', 'machine_id', 'h' .. i,
          'agent_identity', ARGV[2])
        redis.call('PEXPIRE', 'prism:session:' .. id, 600000)
        redis.call('SADD', KEYS[1], id)
      end return 1";
    let facts =
        r#"{"version":"1","up_ms":1,"shown_for_ms":600000,"sessions":0,"held":0,"waiting":0}"#;
    fleet.redis.command::<u64>(&["EVAL", script, "1", &set, AGENTS_TENANT, facts]);
    let page = asked.http().get("/v1/agents?limit=500");
    let page: Value = serde_json::from_slice(&page.body).expect("JSON");
    let listed = page["agents"].as_array().expect("a list").len();
    // The server looks at some more than it is asked for.
    assert!((400..=700).contains(&listed) && page["cursor"].is_string(), "{listed}");
    assert_eq!(agents(asked).len(), 10_002);
}

#[test]
fn an_agent_with_its_own_store_tells_of_itself() {
    let agent = Agent::start();
    let listed = agents(&agent);
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["this"], &listed[0]["seen"]), (&json!(true), &json!(true)));
}

/// Two gateways over one Redis, three keys: two of a tenant, one of another.
#[test]
fn behind_gateways_a_tenant_is_told_of_its_own_agents_and_an_operator_of_all() {
    let redis = RedisServer::start();
    let keys = [
        Key::within("laptop-1", &["--tenant", "acme", "--sessions-max", "1", "--right", "agents"]),
        Key::within("laptop-2", &["--tenant", "acme", "--right", "agents"]),
        Key::within("other", &["--tenant", "globex", "--right", "agents"]),
        Key::within("operator", &["--right", "agents"]),
    ];
    let all: Vec<_> = keys.iter().collect();
    let gateways = [(); 2].map(|()| Gateway::start_with(&redis.url(), &all));
    let start = |host: usize, at: usize, key: usize| {
        start_agent(host, &gateways[at].url(), &gateways[at].config(&keys[key]))
    };
    let agents = [start(0, 0, 0), start(1, 1, 1), start(2, 1, 2)];
    let direct = start_agent(1, &redis.url(), "");
    let operator = start(0, 0, 3);
    let principals = |asked: &Agent, wanted: &[Option<&str>]| {
        let listed = eventually(&format!("the agents of {wanted:?}"), || {
            let listed = self::agents(asked);
            let mut told: Vec<_> = listed.iter().map(|it| it["principal"].as_str()).collect();
            told.sort_unstable();
            (told == wanted).then(|| listed.clone())
        });
        assert_eq!(listed.iter().filter(|agent| agent["this"] == true).count(), 1, "{listed:?}");
    };
    let everybody = [None, Some("laptop-1"), Some("laptop-2"), Some("operator"), Some("other")];
    // An agent does not know its own principal; its gateway does.
    let told_of = |own: Option<&str>, all: &[Option<&'static str>]| {
        let mut all: Vec<_> = all.iter().map(|it| it.filter(|it| Some(*it) != own)).collect();
        all.sort_unstable();
        all
    };
    principals(&agents[0], &told_of(Some("laptop-1"), &[Some("laptop-1"), Some("laptop-2")]));
    principals(&agents[1], &told_of(Some("laptop-2"), &[Some("laptop-1"), Some("laptop-2")]));
    principals(&agents[2], &told_of(Some("other"), &[Some("other")]));
    principals(&operator, &told_of(Some("operator"), &everybody));
    principals(&direct, &everybody);
    // The status page has the same, of whichever gateway.
    for gateway in &gateways {
        for (key, wanted) in [(1, 2), (2, 1), (3, 5)] {
            let (status, answer) =
                gateway.call_with(&keys[key].header(), "GET /v1/agents", "").expect("an answer");
            let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
            let listed: Value = serde_json::from_str(body).expect("JSON");
            let listed = listed["agents"].as_array().expect("a list");
            assert_eq!((status, listed.len()), (200, wanted), "{listed:?}");
        }
    }
    // An agent takes none of the sessions that its key is for.
    let mut http = agents[0].http();
    http.register(&json!({"tenant": "acme", "project": "p"}));
    until("the session to be announced", || {
        redis.command::<u64>(&["EXISTS", "prism:project:acme:p:sessions"]) == 1
    });
}
