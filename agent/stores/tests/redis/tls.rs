//! TLS with an authority of the test's own, from the configuration on.

use std::path::Path;
use std::time::Duration;

use tenure_harness::{Authority, free_port};
use tenure_stores::redis::settings::{RedisAccess, Section};
use tenure_stores::remote::Purpose;
use tenure_stores::settings::Settings;
use tenure_stores::settings::secret::Credentials;

use super::server::Server;
use super::{get, open, refused, up};

/// With a certificate for a server here, and one for a client.
fn authority() -> Authority {
    let authority = Authority::new();
    authority.issue("server", "IP:127.0.0.1,DNS:localhost");
    authority.issue("client", "DNS:agent");
    authority
}

/// A server that speaks TLS, and the port on which it does.
fn server(authority: &Authority, clients: &str) -> (Server, u16) {
    let path = |name| authority.path(name).display().to_string();
    let port = free_port();
    let server = Server::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &path("server.pem"),
        "--tls-key-file",
        &path("server.key"),
        "--tls-ca-cert-file",
        &path("ca.pem"),
        "--tls-auth-clients",
        clients,
    ]);
    (server, port)
}

/// How to get in by this URL and these keys of `[redis]`.
fn configured(url: &str, keys: &[(&str, &Path)]) -> Result<RedisAccess, String> {
    let (scheme, rest) = url.split_once(':').unwrap();
    let mut section = Section::default();
    section.set_url(scheme, rest).unwrap()?;
    section.set("redis.connect_timeout", "10s")?;
    for (key, path) in keys {
        section.set(&format!("redis.{key}"), path.to_str().unwrap())?;
    }
    let found = section.access(None, &Credentials::default());
    found.map(|found| found.access).map_err(|broken| format!("{}: {}", broken.key, broken.rule))
}

#[tokio::test]
async fn a_server_is_known_by_its_certificate() {
    let authority = authority();
    let (_server, port) = server(&authority, "no");
    let of =
        |upstream: &str, ca: &str| configured(upstream, &[("tls_ca_file", &authority.path(ca))]);
    for host in ["localhost", "127.0.0.1"] {
        let access = of(&format!("rediss://{host}:{port}/2"), "ca.pem").unwrap();
        let link = open(access, Purpose::Commands);
        assert_eq!(get(&up(&link).await, "a").await, None);
    }

    let stranger = Authority::new();
    let url = format!("rediss://localhost:{port}");
    let access = configured(&url, &[("tls_ca_file", &stranger.path("ca.pem"))]).unwrap();
    refused(access, "put the certificate of its authority into redis.tls_ca_file").await;
    authority.issue("server", "DNS:elsewhere");
    let (_moved, port_moved) = server(&authority, "no");
    let access = of(&format!("rediss://localhost:{}", port_moved), "ca.pem").unwrap();
    refused(access, "name it in upstream as its certificate does").await;

    // One of the two speaks TLS.
    let plain = Server::start(&[]);
    let access = of(&format!("rediss://localhost:{}", plain.port()), "ca.pem").unwrap();
    let access = RedisAccess { connect_timeout: Duration::from_millis(800), ..access };
    refused(access, "within 600 ms while agreeing on TLS, which it may not speak").await;
    let access = configured(&format!("redis://localhost:{port}"), &[]).unwrap();
    refused(access, "if it speaks TLS on this port").await;

    let wrong = of(&format!("rediss://localhost:{port}"), "ca.key").unwrap_err();
    assert!(wrong.contains("must contain certificates in PEM format, and has none"), "{wrong}");
}

#[tokio::test]
async fn a_client_can_show_a_certificate() {
    let authority = authority();
    let (_server, port) = server(&authority, "yes");
    let url = format!("rediss://localhost:{port}");
    let file = |name: &str| authority.path(name);
    let (ca, cert, key) = (&file("ca.pem"), &file("client.pem"), &file("client.key"));

    let keys = [("tls_ca_file", &**ca), ("tls_cert_file", cert), ("tls_key_file", key)];
    let access = configured(&url, &keys).unwrap();
    assert_eq!(get(&up(&open(access, Purpose::Commands)).await, "a").await, None);

    let access = configured(&url, &keys[..1]).unwrap();
    refused(access, "it wants a certificate of its clients").await;
    let other = file("server.key");
    let wrong = configured(&url, &[keys[0], keys[1], ("tls_key_file", &other)]).unwrap_err();
    assert!(wrong.contains("must be the key of the certificate"), "{wrong}");
}
