//! The servers to which agents, and gateways, speak TLS.

use std::collections::BTreeSet;

use tenure_tests::harness::{Agent, Gateway, Passage, Postgres, RedisServer, free_port, until};

use super::certificates::{AUTHORITIES, CERTIFICATE, Folder, KEY, Server, no_rotation_ends_a_hold};
use super::{Connected, USER, end_processes, ids, processes};

/// A gateway, behind a way that can be cut.
struct TlsGateway {
    _gateway: Gateway,
    way: Passage,
}

impl TlsGateway {
    fn start(files: &Folder, _: &Folder) -> Box<dyn Server> {
        let flag = |flag: &str, name| format!("--tls-{flag}-file={}", files.path(name).display());
        let args = [flag("cert", CERTIFICATE), flag("key", KEY), flag("client-ca", AUTHORITIES)];
        let gateway = Gateway::start_by("embedded:", &[], &args);
        let way = Passage::to(gateway.port());
        Box::new(TlsGateway { _gateway: gateway, way })
    }
}

impl Connected for TlsGateway {
    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.way.port())
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        self.way.connections()
    }

    fn drop_connections(&mut self) {
        self.way.cut();
    }
}

impl Server for TlsGateway {
    fn reload(&mut self, _: &Folder) {
        // It looks at them for each connection.
    }

    fn config(&self, client: &Folder) -> String {
        client.section("gateway")
    }
}

#[test]
fn between_an_agent_and_a_gateway() {
    no_rotation_ends_a_hold(TlsGateway::start);
}

/// A Redis that speaks TLS.
struct TlsRedis {
    redis: RedisServer,
    port: u16,
}

impl TlsRedis {
    fn new(files: &Folder) -> TlsRedis {
        let port = free_port();
        let path = |name| files.path(name).display().to_string();
        let redis = RedisServer::setup()
            .option("tls-port", &port.to_string())
            .option("tls-cert-file", &path(CERTIFICATE))
            .option("tls-key-file", &path(KEY))
            .option("tls-ca-cert-file", &path(AUTHORITIES))
            .start();
        TlsRedis { redis, port }
    }

    fn start(files: &Folder, _: &Folder) -> Box<dyn Server> {
        Box::new(TlsRedis::new(files))
    }
}

impl Connected for TlsRedis {
    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        ids(&mut self.redis.connect(), "default")
    }

    fn drop_connections(&mut self) {
        let _: u64 = self.redis.command(&["CLIENT", "KILL", "USER", "default", "SKIPME", "yes"]);
    }
}

impl Server for TlsRedis {
    fn reload(&mut self, files: &Folder) {
        // All files are read again with one of them.
        let certificate = files.path(CERTIFICATE).display().to_string();
        let () = self.redis.command(&["CONFIG", "SET", "tls-cert-file", &certificate]);
    }

    fn config(&self, client: &Folder) -> String {
        client.section("redis")
    }
}

#[test]
fn between_an_agent_and_a_redis() {
    no_rotation_ends_a_hold(TlsRedis::start);
}

/// A Redis that speaks TLS, behind a gateway, which is its client.
struct RedisBehindGateway {
    redis: TlsRedis,
    gateway: Gateway,
    _config: Folder,
}

impl RedisBehindGateway {
    fn start(files: &Folder, client: &Folder) -> Box<dyn Server> {
        let (redis, config) = (TlsRedis::new(files), Folder::new());
        config.put("gateway.toml", client.section("redis").as_bytes());
        let named = format!("--config={}", config.path("gateway.toml").display());
        let gateway = Gateway::start_by(&redis.url(), &[], &[named]);
        Box::new(RedisBehindGateway { redis, gateway, _config: config })
    }
}

impl Connected for RedisBehindGateway {
    fn url(&self) -> String {
        self.gateway.url()
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        self.redis.connections()
    }

    fn drop_connections(&mut self) {
        self.redis.drop_connections();
    }
}

impl Server for RedisBehindGateway {
    fn reload(&mut self, files: &Folder) {
        self.redis.reload(files);
    }

    fn config(&self, _: &Folder) -> String {
        String::new()
    }

    fn tell_client(&self, _: &Agent, times: usize) {
        self.gateway.reload();
        let line = "read the certificates of [redis] again";
        until("a reload", || self.gateway.log().matches(line).count() >= times);
    }

    fn error(&self, _: &Agent) -> String {
        self.gateway.log()
    }
}

#[test]
fn between_a_gateway_and_its_redis() {
    no_rotation_ends_a_hold(RedisBehindGateway::start);
}

/// A Postgres that speaks TLS, and knows its roles by their certificates.
struct TlsPostgres(Postgres);

impl TlsPostgres {
    fn start(files: &Folder, _: &Folder) -> Box<dyn Server> {
        let path = |name| files.path(name);
        let setup = Postgres::setup().tls(&path(CERTIFICATE), &path(KEY));
        let postgres = setup.clients(&path(AUTHORITIES)).start();
        postgres.let_in("hostssl all all 127.0.0.1/32 cert");
        postgres.sql(&format!("create role {USER} login"));
        postgres.sql(&format!("create schema tenure authorization {USER}"));
        postgres.sql(&format!("grant create on database postgres to {USER}"));
        Box::new(TlsPostgres(postgres))
    }
}

impl Connected for TlsPostgres {
    fn url(&self) -> String {
        self.0.tcp_url(USER, "")
    }

    fn connections(&mut self) -> BTreeSet<u64> {
        processes(&self.0)
    }

    fn drop_connections(&mut self) {
        end_processes(&self.0);
    }
}

impl Server for TlsPostgres {
    fn reload(&mut self, files: &Folder) {
        let [certificate, key, clients] =
            [CERTIFICATE, KEY, AUTHORITIES].map(|name| files.path(name));
        self.0.change_tls(&certificate, &key, &clients);
    }

    fn config(&self, client: &Folder) -> String {
        client.section("postgres")
    }
}

#[test]
fn between_an_agent_and_a_postgres() {
    no_rotation_ends_a_hold(TlsPostgres::start);
}
