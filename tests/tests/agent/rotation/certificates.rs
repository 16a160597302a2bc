//! Keys, certificates and trusted authorities of TLS are rotated at both ends of a connection, in the usual order, and
//! the server drops every connection after each step. The last steps of each row prove that the new ones are in use,
//! and that the old ones no longer do.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tenure_tests::harness::{
    Agent, Authority, Client, Holds, boottime_ns, replace, start_agent, until,
};

use super::{Connected, USER, has_others, is_up, reload};

/// The files of one end of a connection.
pub(super) const CERTIFICATE: &str = "own.pem";
pub(super) const KEY: &str = "own.key";
pub(super) const AUTHORITIES: &str = "ca.pem";

struct Row {
    secret: &'static str,
    rotate: fn(&mut Scene<'_>),
}

const ROWS: [Row; 3] = [
    Row { secret: "the server's key and certificate", rotate: the_servers_certificate },
    Row { secret: "the authority of servers", rotate: the_authority_of_servers },
    Row { secret: "the client's key and certificate, and their authority", rotate: the_clients },
];

fn the_servers_certificate(scene: &mut Scene<'_>) {
    scene.client_trusts(&[OLD, NEW]);
    scene.client_connects_again();
    scene.server_shows(NEW);
    scene.client_connects_again();
    // From here on the old one would be refused.
    scene.client_trusts(&[NEW]);
    scene.client_connects_again();
}

fn the_authority_of_servers(scene: &mut Scene<'_>) {
    scene.client_trusts(&[OLD, NEW]);
    scene.client_is_told();
    scene.server_shows(NEW);
    scene.client_connects_again();
    scene.client_trusts(&[NEW]);
    scene.client_is_told();
    scene.client_connects_again();
    scene.server_shows(OLD);
    scene.client_is_refused("authority");
    scene.server_shows(NEW);
    scene.client_is_let_in();
}

fn the_clients(scene: &mut Scene<'_>) {
    scene.server_trusts(&[OLD, NEW]);
    scene.client_connects_again();
    // One file is replaced, and the other not yet.
    scene.put(CERTIFICATE, NEW, "client.pem");
    scene.client_connects_again();
    scene.put(KEY, NEW, "client.key");
    scene.client_connects_again();
    // From here on the old one would be refused.
    scene.server_trusts(&[NEW]);
    scene.client_connects_again();
    for (file, name) in [(CERTIFICATE, "client.pem"), (KEY, "client.key")] {
        scene.put(file, OLD, name);
    }
    scene.client_is_refused("it wants a certificate of its clients that it trusts");
    for (file, name) in [(CERTIFICATE, "client.pem"), (KEY, "client.key")] {
        scene.put(file, NEW, name);
    }
    scene.client_is_let_in();
}

/// The numbers of the two authorities.
const OLD: usize = 0;
const NEW: usize = 1;

/// A directory with the files of one end.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Folder {
        Folder(TempDir::new().expect("a directory can be made"))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a file in the place of the one before.
    pub(super) fn put(&self, name: &str, content: &[u8]) {
        replace(&self.path(name), content);
    }

    /// A section of settings that names the files.
    pub(super) fn section(&self, section: &str) -> String {
        let path = |name| self.path(name).display().to_string();
        let [ca, certificate, key] = [AUTHORITIES, CERTIFICATE, KEY].map(path);
        format!(
            "[{section}]\ntls_ca_file = {ca:?}\ntls_cert_file = {certificate:?}\ntls_key_file = {key:?}\n"
        )
    }
}

/// A server that speaks TLS, and asks its clients for certificates.
pub(super) trait Server: Connected {
    /// Reads the files of its folder again.
    fn reload(&mut self, files: &Folder);

    /// The settings of the agent, given the files of the client.
    fn config(&self, client: &Folder) -> String;

    /// Has the client read its files again.
    fn tell_client(&self, agent: &Agent, times: usize) {
        assert_eq!(reload(agent, times)["restart"], "");
    }

    /// What the client says of its tries.
    fn error(&self, agent: &Agent) -> String {
        agent.http().status().upstream.last_error.unwrap_or_default()
    }
}

pub(super) type Start = fn(&Folder, &Folder) -> Box<dyn Server>;

/// Two authorities, the server, its client, and a hundred holds.
struct Scene<'a> {
    authorities: &'a [Authority; 2],
    server: Box<dyn Server>,
    of_server: Folder,
    of_client: Folder,
    agent: Agent,
    holds: Holds,
    reloads: usize,
}

impl Scene<'_> {
    fn start(authorities: &[Authority; 2], start: Start) -> Scene<'_> {
        let (of_server, of_client) = (Folder::new(), Folder::new());
        let old = |name: &str| fs::read(authorities[OLD].path(name)).expect("it is ours");
        for (folder, name) in [(&of_server, "server"), (&of_client, "client")] {
            folder.put(AUTHORITIES, &old("ca.pem"));
            folder.put(CERTIFICATE, &old(&format!("{name}.pem")));
            folder.put(KEY, &old(&format!("{name}.key")));
        }
        let server = start(&of_server, &of_client);
        let config = format!("{}{}", Holds::CONFIG, server.config(&of_client));
        let agent = start_agent(0, &server.url(), &config);
        let holds = Holds::take(&agent);
        Scene { authorities, server, of_server, of_client, agent, holds, reloads: 0 }
    }

    fn read(&self, authority: usize, name: &str) -> Vec<u8> {
        fs::read(self.authorities[authority].path(name)).expect("it is ours")
    }

    fn put(&self, file: &str, authority: usize, name: &str) {
        self.of_client.put(file, &self.read(authority, name));
    }

    fn both(&self, trusted: &[usize]) -> Vec<u8> {
        trusted.iter().flat_map(|authority| self.read(*authority, "ca.pem")).collect()
    }

    fn client_trusts(&self, trusted: &[usize]) {
        self.of_client.put(AUTHORITIES, &self.both(trusted));
    }

    fn client_is_told(&mut self) {
        self.reloads += 1;
        self.server.tell_client(&self.agent, self.reloads);
    }

    fn server_trusts(&mut self, trusted: &[usize]) {
        self.of_server.put(AUTHORITIES, &self.both(trusted));
        self.server_reloads();
    }

    fn server_shows(&mut self, authority: usize) {
        self.of_server.put(CERTIFICATE, &self.read(authority, "server.pem"));
        self.of_server.put(KEY, &self.read(authority, "server.key"));
        self.server_reloads();
    }

    #[track_caller]
    fn server_reloads(&mut self) {
        let (was_up, earlier) = (is_up(&self.agent), self.server.connections());
        self.server.reload(&self.of_server);
        let now = self.server.connections();
        // Those of an agent that is refused come and go.
        let stay = now.is_superset(&earlier) || !was_up;
        assert!(stay, "a rotation alone ends no connection");
    }

    /// Nobody tells the client of new files: it reads them for the new connections.
    #[track_caller]
    fn client_connects_again(&mut self) {
        let earlier = self.server.connections();
        self.server.drop_connections();
        has_others(&self.agent, &mut *self.server, &earlier);
        self.holds.are_renewed_after(&self.agent, boottime_ns());
    }

    #[track_caller]
    fn client_is_refused(&mut self, words: &str) {
        self.server.drop_connections();
        until(&format!("the client to be refused for {words:?}"), || {
            self.server.error(&self.agent).contains(words)
        });
    }

    #[track_caller]
    fn client_is_let_in(&mut self) {
        has_others(&self.agent, &mut *self.server, &BTreeSet::new());
        self.holds.are_renewed_after(&self.agent, boottime_ns());
    }
}

/// Each of two authorities has a certificate for a server here, and one for a client.
fn authorities() -> [Authority; 2] {
    let authorities = [Authority::new(), Authority::new()];
    for authority in &authorities {
        authority.issue("server", "IP:127.0.0.1,DNS:localhost");
        authority.issue_for("client", &format!("/CN={USER}"), "DNS:client", 2);
    }
    authorities
}

pub(super) fn no_rotation_ends_a_hold(start: Start) {
    let authorities = authorities();
    for Row { secret, rotate } in ROWS {
        eprintln!("{secret}");
        rotate(&mut Scene::start(&authorities, start));
    }
}
