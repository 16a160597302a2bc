//! Hosts with networks of their own, and a router between them that loses what a test tells it to.

use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns};

/// Network namespaces, and one between them that forwards. Takes root.
#[derive(Debug)]
pub struct Hosts {
    /// The start of the namespaces' names.
    name: String,
    count: usize,
}

impl Hosts {
    /// So many; `None` without root.
    #[track_caller]
    pub fn new(count: usize) -> Option<Hosts> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        super::other_users()?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts { name: format!("tenure-{}-{number}", std::process::id()), count };
        let router = hosts.router();
        ip(&["netns", "add", &router]);
        hosts.ip_there(&router, "link set lo up");
        enter(&router, || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("root may");
        });
        for host in 0..count {
            let namespace = hosts.namespace(host);
            ip(&["netns", "add", &namespace]);
            let link = format!("link add {} type veth peer name net netns {namespace}", way(host));
            hosts.ip_there(&router, &link);
            let gateway = format!("10.77.{host}.1");
            hosts.ip_there(&router, &format!("addr add {gateway}/24 dev {}", way(host)));
            hosts.ip_there(&router, &format!("link set {} up", way(host)));
            let address = hosts.address(host);
            hosts.ip_there(&namespace, &format!("addr add {address}/24 dev net"));
            hosts.ip_there(&namespace, "link set dev net up");
            hosts.ip_there(&namespace, "link set lo up");
            hosts.ip_there(&namespace, &format!("route add default via {gateway}"));
        }
        Some(hosts)
    }

    /// The address at which the others find a host. Each has a 127.0.0.1 too, for itself.
    pub fn address(&self, host: usize) -> String {
        format!("10.77.{host}.2")
    }

    /// Does something as a program on that host would: its sockets, and the processes that it starts, belong there.
    #[track_caller]
    pub fn on<T: Send>(&self, host: usize, what: impl FnOnce() -> T + Send) -> T {
        enter(&self.namespace(host), what)
    }

    /// Moves this thread to a host, for the sockets that it opens from now on.
    #[track_caller]
    pub fn move_to(&self, host: usize) {
        move_to(&self.namespace(host));
    }

    /// Loses everything that goes from one to the other, without a word to either.
    #[track_caller]
    pub fn cut_one_way(&self, from: usize, to: usize) {
        let rule = format!("rule add iif {} to {} blackhole", way(from), self.address(to));
        self.ip_there(&self.router(), &rule);
    }

    /// Loses everything between the two.
    #[track_caller]
    pub fn cut(&self, one: usize, other: usize) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Loses everything between a host and the others.
    #[track_caller]
    pub fn cut_off(&self, host: usize) {
        self.others(host).for_each(|other| self.cut(host, other));
    }

    /// Forwards everything again.
    #[track_caller]
    pub fn heal(&self) {
        // Each call takes one away, until there is none.
        let remove = ["-n", &self.router(), "rule", "del", "type", "blackhole"];
        while Command::new("ip").args(remove).output().expect("ip can be run").status.success() {}
    }

    /// All hosts but that one.
    pub fn others(&self, host: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.count).filter(move |other| *other != host)
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}-{host}", self.name)
    }

    fn router(&self) -> String {
        format!("{}-r", self.name)
    }

    #[track_caller]
    fn ip_there(&self, namespace: &str, arguments: &str) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        ip(&[&["-n", namespace], &arguments[..]].concat());
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for namespace in (0..self.count).map(|host| self.namespace(host)).chain([self.router()]) {
            let _ = Command::new("ip").args(["netns", "del", &namespace]).output();
        }
    }
}

/// The router's interface to a host.
fn way(host: usize) -> String {
    format!("to{host}")
}

#[track_caller]
fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip can be run");
    assert!(output.status.success(), "ip {arguments:?}: {output:?}");
}

#[track_caller]
fn move_to(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace is there");
    setns(file, CloneFlags::CLONE_NEWNET).expect("root may enter it");
}

/// Does something on a thread in a namespace.
#[track_caller]
fn enter<T: Send>(namespace: &str, what: impl FnOnce() -> T + Send) -> T {
    let there = || {
        move_to(namespace);
        what()
    };
    std::thread::scope(|scope| match scope.spawn(there).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
