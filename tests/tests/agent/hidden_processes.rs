//! Users whose /proc shows their own processes alone (`hidepid=2`): the agent's user, and its clients'.

use std::process::Stdio;

use nix::sys::signal::Signal;
use tenure_tests::harness::{
    Agent, Client, Heir, Program, Puppet, copy_for_others, other_users, run_to_end, seeing_its_own,
    until,
};

/// `tenure`, as that user.
fn tenure(agent: &Agent, uid: u32, args: &[&str]) -> Program {
    let mut command = seeing_its_own(uid, &copy_for_others("tenure", agent.dir()));
    command.args(args).env("TENURE_SOCKET", agent.socket()).stdin(Stdio::null());
    Program::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn a_command_holds_until_it_is_killed_or_ends_for_the_agents_user_and_others() {
    let Some([of_agent, other]) = other_users() else { return };
    let agent = Agent::setup().seeing_its_own(of_agent).start();
    for uid in [of_agent, other] {
        let sees_itself_alone = "test -e /proc/$$ && test ! -e /proc/1 && exec sleep 1000";
        let held = || agent.http().standing("leader", "role").holders.len() == 1;
        let args = ["lock", "role", "--tether", "child", "--", "sh", "-c", sees_itself_alone];
        for end in [Signal::SIGKILL, Signal::SIGTERM] {
            let mut run = tenure(&agent, uid, &args);
            until("it to hold", || held() || run.ended().is_some());
            let next = Heir::wait_for(&agent, "leader", "role");
            assert_eq!(agent.counts(), (2, 1, 1), "the next one waits");
            run.signal(end);
            next.gets_it();
            assert_eq!(run.wait_code(), 128 + end as i32, "{uid}");
            agent.http().end(next.session);
            until("nothing to be left", || agent.counts() == (0, 0, 0));
        }
    }
}

#[test]
fn a_process_that_the_agent_does_not_see_is_watched_and_can_be_named_by_nobody() {
    let Some([of_agent, other]) = other_users() else { return };
    let agent = Agent::setup().seeing_its_own(of_agent).start();
    for tether in ["process", "connection"] {
        let mut client = seeing_its_own(other, &copy_for_others("puppet", agent.dir()));
        let mut client = Puppet::start_by(&mut client, &agent.socket());
        let (_, next) = Heir::of(&agent, &mut client, tether);
        agent.http().end(next.session);
        until("nothing to be left", || agent.counts() == (0, 0, 0));
    }

    let args = ["acquire", "--leader", "role", "--for-pid", "1"];
    let (code, out, err) = run_to_end(&mut tenure(&agent, other, &args));
    assert_eq!((code, out.as_str()), (64, ""), "{err}");
    for words in ["/proc does not show the agent your process (hidepid=", "name another"] {
        assert!(err.contains(words), "{err}");
    }
}
