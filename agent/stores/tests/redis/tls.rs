//! TLS with an authority of the test's own, from the configuration on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure_harness::free_port;
use tenure_stores::redis::settings::{RedisAccess, Section};
use tenure_stores::remote::Purpose;
use tenure_stores::settings::Settings;
use tenure_stores::settings::secret::Credentials;

use super::server::Server;
use super::{get, open, refused, up};

struct Authority {
    dir: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        let authority = Authority { dir: tempfile::tempdir().unwrap() };
        let (key, cert) = (authority.path("ca.key"), authority.path("ca.pem"));
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
             -subj /CN=test -keyout {} -out {}",
            key.display(),
            cert.display()
        ));
        authority.issue("server", "IP:127.0.0.1,DNS:localhost");
        authority.issue("client", "DNS:agent");
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A certificate NAME.pem with its key NAME.key.
    fn issue(&self, name: &str, names: &str) {
        let path = |extension| self.path(&format!("{name}.{extension}")).display().to_string();
        let (key, request, cert, extensions) = (path("key"), path("csr"), path("pem"), path("ext"));
        fs::write(&extensions, format!("subjectAltName={names}\n")).unwrap();
        openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} \
             -keyout {key} -out {request}"
        ));
        openssl(&format!(
            "x509 -req -in {request} -CA {} -CAkey {} -CAcreateserial -days 2 -extfile {extensions} \
             -out {cert}",
            self.path("ca.pem").display(),
            self.path("ca.key").display()
        ));
    }

    /// A server that speaks TLS, and the port on which it does.
    fn server(&self, clients: &str) -> (Server, u16) {
        let path = |name| self.path(name).display().to_string();
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
}

fn openssl(arguments: &str) {
    let done = Command::new("openssl")
        .args(arguments.split_whitespace())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("openssl can be run");
    assert!(done.success(), "openssl {arguments}");
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
    let authority = Authority::new();
    let (_server, port) = authority.server("no");
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
    let (_moved, port_moved) = authority.server("no");
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
    let authority = Authority::new();
    let (_server, port) = authority.server("yes");
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
