//! The cron recipe of docs/cron.md on hosts whose clocks are apart.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tenure_host::clock;
use tenure_tests::harness::{Agent, Client, Program, RedisServer, binary, run_to_end, skew, until};

/// The seconds by which the clock of each host is ahead.
const CLOCKS: [f64; 4] = [0.0, 2.5, 5.0, -5.0];
/// More than the clocks differ, and some for a busy machine.
const AT_LEAST: Duration = Duration::from_secs(25);
/// Until the clock that is furthest ahead comes to the minute.
const AHEAD: Duration = Duration::from_secs(6);
/// Ticks that a busy machine may stretch beyond `AT_LEAST`; what they show is not looked at.
const TRIES: usize = 5;

/// Stands for cron on each host, and starts both at the minute of its own clock.
const CRON: &str = r#"
until [ "$(date +%s%N)" -ge "$MINUTE" ]; do sleep 0.1; done
sh -c "$CARELESS" & sh -c "$RECIPE"
status=$?
wait $! && exit $status
"#;

fn since_1970() -> Duration {
    Duration::from_micros(clock::wall_us())
}

/// The command of the recipe, as users copy it.
fn recipe() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cron.md");
    let page = fs::read_to_string(page).expect("it is there");
    let line = page.lines().find_map(|line| line.strip_prefix("0 2 * * *  "));
    line.expect("the page has a line for a crontab").to_owned()
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in {text}");
    text.replace(from, to)
}

struct Hosts {
    agents: Vec<Agent>,
    dir: TempDir,
    _redis: RedisServer,
}

impl Hosts {
    fn start() -> Hosts {
        let redis = RedisServer::start();
        let start = |(at, &seconds): (usize, &f64)| {
            let config = format!("host_name = \"host{at}\"\n");
            let before = since_1970();
            let agent =
                Agent::setup().upstream(&redis.url()).config(&config).skewed(seconds).start();
            let started = started_by_its_clock(&agent) - seconds;
            let truly = before.as_secs_f64() - 1.0..since_1970().as_secs_f64() + 1.0;
            assert!(truly.contains(&started), "{started} is not in {truly:?}: {seconds} s");
            agent
        };
        let agents = CLOCKS.iter().enumerate().map(start).collect();
        let hosts = Hosts { agents, dir: TempDir::new().expect("a folder"), _redis: redis };
        for name in ["backup", "careless"] {
            let job = format!("#!/bin/sh\necho ran >>{}\nsleep 1\n", hosts.file(name, "ran"));
            let file = hosts.file(name, "sh");
            fs::write(&file, job).expect("the folder is ours");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        hosts
    }

    fn file(&self, name: &str, ending: &str) -> String {
        format!("{}/{name}.{ending}", self.dir.path().display())
    }

    /// The runs of a job since it was last asked.
    fn ran(&self, name: &str) -> usize {
        let file = self.file(name, "ran");
        let ran = fs::read_to_string(&file).unwrap_or_default().lines().count();
        let _ = fs::remove_file(file);
        ran
    }

    fn wait_until_it_is_free(&self) {
        let mut http = self.agents[0].http();
        until("the lock to be free", || http.standing("leader", "nightly").holders.is_empty());
    }

    /// Has each host run the recipe, and one without `--at-least`, at the same minute of its own clock.
    fn run_at_a_minute(&self) {
        let minute = (since_1970() + AHEAD).as_nanos().to_string();
        let recipe = replaced(&recipe(), "/usr/local/bin/backup.sh", &self.file("backup", "sh"));
        let careless = replaced(&recipe, " --at-least 10m", "").replace("nightly", "careless");
        let careless = replaced(&careless, "/backup.sh", "/careless.sh");
        let recipe = replaced(&recipe, "10m", &format!("{}s", AT_LEAST.as_secs()));
        let folder = binary("tenure").parent().expect("it is in a folder").to_owned();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        let cron = |(agent, &seconds): (&Agent, &f64)| {
            let mut command = Command::new("sh");
            command.args(["-c", CRON]).env("PATH", &path).env("TENURE_SOCKET", agent.socket());
            command.env("MINUTE", &minute).env("RECIPE", &recipe).env("CARELESS", &careless);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            skew(&mut command, seconds);
            Program::start(&mut command)
        };
        let started: Vec<Program> = self.agents.iter().zip(&CLOCKS).map(cron).collect();
        for mut program in started {
            // Anything printed, and any other status, would be a mail to somebody.
            assert_eq!(run_to_end(&mut program), (0, String::new(), String::new()));
        }
    }

    /// The runs of the recipe at one minute, and those of the one without `--at-least`.
    fn tick(&self) -> (usize, usize) {
        for _ in 0..TRIES {
            self.wait_until_it_is_free();
            let began = clock::now();
            self.run_at_a_minute();
            let ran = (self.ran("backup"), self.ran("careless"));
            if clock::now().since(began) < AT_LEAST {
                return ran;
            }
        }
        panic!("the machine was too busy: each of {TRIES} ticks took more than {AT_LEAST:?}");
    }
}

/// When an agent's process was started, in seconds since 1970, by the clock that it sees.
fn started_by_its_clock(agent: &Agent) -> f64 {
    let metrics = agent.http().get("/metrics").text();
    let line = metrics.lines().find_map(|it| it.strip_prefix("process_start_time_seconds "));
    line.expect("the agent tells it").parse().expect("a number")
}

#[test]
fn the_recipe_runs_once_a_tick_on_hosts_whose_clocks_are_apart() {
    let hosts = Hosts::start();
    for tick in 1..=2 {
        let (careful, careless) = hosts.tick();
        assert_eq!(careful, 1, "tick {tick}");
        // The clocks do this to a lock that goes with its job.
        assert!(careless > 1, "tick {tick}: {careless}");
    }
}
