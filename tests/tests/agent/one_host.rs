//! Agents whose store is their host's alone, and programs that want a hold of the whole fleet.

use std::path::Path;

use serde_json::json;
use tenure::wire::Code;
use tenure_tests::harness::{Agent, Client, Gateway, RedisServer, TenureRun, start_agent};

/// The line for cron of docs/cron.md.
const CRON: [&str; 9] =
    ["--leader", "nightly", "--fleet", "-n", "-q", "-E", "0", "--at-least", "10m"];

/// The statuses of one tick of cron on each host, and the hosts that ran the job.
fn tick(agents: &[Agent], dir: &Path) -> (Vec<i32>, usize) {
    let ran = dir.join("ran");
    let job = format!("echo ran >>{}", ran.display());
    let end = |agent: &Agent| {
        let (code, _, err) = TenureRun::new(&agent.socket(), &CRON, &["sh", "-c", &job]).finish();
        if code == 77 {
            for words in ["this host alone (upstream embedded)", "`tenure agents` lists them"] {
                assert!(err.contains(words), "{err}");
            }
        }
        code
    };
    let codes = agents.iter().map(end).collect();
    (codes, std::fs::read_to_string(ran).unwrap_or_default().lines().count())
}

#[test]
fn a_job_for_one_host_of_the_fleet_runs_on_none_that_has_a_store_of_its_own() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let alone = [(); 3].map(|()| Agent::start());
    assert_eq!(tick(&alone, dir.path()), (vec![77; 3], 0));
    let redis = RedisServer::start();
    let gateway = Gateway::start("embedded:");
    for (url, ran) in [(redis.url(), 1), (gateway.url(), 2)] {
        let agents = [0, 1, 2].map(|host| start_agent(host, &url, ""));
        assert_eq!(tick(&agents, dir.path()), (vec![0; 3], ran));
    }
}

#[test]
fn an_agent_may_have_to_have_the_store_of_the_fleet() {
    let agent = Agent::setup().config("require = \"fleet\"").start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    for kind in ["leader", "lease", "semaphore", "master"] {
        let mut ask = json!({"session": session, "kind": kind});
        if kind != "master" {
            ask["name"] = json!("role");
        }
        let problem = http.post("/v1/acquire", &ask).problem(Code::Forbidden);
        assert!(problem.detail.contains("require = \"fleet\""), "{problem}");
    }
    let args = ["--leader", "role"];
    assert_eq!(TenureRun::new(&agent.socket(), &args, &["true"]).finish().0, 77);
    assert_eq!(agent.counts(), (1, 0, 0));
    let redis = RedisServer::start();
    let shared = start_agent(0, &redis.url(), "require = \"fleet\"");
    assert_eq!(TenureRun::new(&shared.socket(), &args, &["true"]).finish().0, 0);
}
