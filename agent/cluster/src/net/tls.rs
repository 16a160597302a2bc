//! TLS between nodes: each shows the other a certificate of the cluster's authority.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, ServerConfig};
use tenure_host::clock;
use tenure_stores::settings::Broken;
use tenure_stores::settings::from_files::{FromFiles, Source};
use tenure_stores::settings::tls::{authorities, certificates, private_key, provider};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tracing::warn;

const CA: &str = "cluster.tls_ca_file";
const CERTIFICATE: &str = "cluster.tls_cert_file";
const KEY: &str = "cluster.tls_key_file";

/// Spoken within TLS. A certificate that is good elsewhere too does not make another server's talk that of a node.
const PROTOCOL: &[u8] = b"tenure-cluster";

/// The certificates in force.
#[derive(Debug)]
pub struct Tls(FromFiles<Files>);

#[derive(Debug)]
struct Files {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

#[derive(Debug)]
struct Current {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// The certificate has neither expired nor is it still to begin.
    is_in_force: bool,
}

impl Source for Files {
    type Value = Current;
    type Error = Broken;

    fn files(&self) -> Vec<&Path> {
        [&self.ca, &self.certificate, &self.key].map(PathBuf::as_path).to_vec()
    }

    fn name(&self) -> String {
        "certificates of the node".to_owned()
    }

    fn read(&self) -> Result<Current, Broken> {
        Current::read(self)
    }

    fn check(&self, value: &Current) -> Result<(), Broken> {
        let expired = || Broken::new(CERTIFICATE, "has expired, or begins later: renew it");
        value.is_in_force.then_some(()).ok_or_else(expired)
    }
}

impl Tls {
    /// Reads the certificates of the authority, and this node's own one with its key. One that has expired is warned
    /// of and used: a clock may be wrong, and the other nodes say what is wrong with it.
    ///
    /// # Errors
    ///
    /// With the key of the first file that is not what it should be.
    pub fn read(ca: &Path, certificate: &Path, key: &Path) -> Result<Tls, Broken> {
        let [ca, certificate, key] = [ca, certificate, key].map(Path::to_owned);
        let tls = Tls(FromFiles::read(Files { ca, certificate, key })?);
        if !tls.0.latest().is_in_force {
            warn!(
                "the node's certificate ({CERTIFICATE}) is not in force now: other nodes refuse it; renew it"
            );
        }
        Ok(tls)
    }

    /// Reads the files again, for connections from now on.
    ///
    /// # Errors
    ///
    /// When they are not good, or the certificate has expired. Then nothing changes.
    pub fn reload(&self) -> Result<(), Broken> {
        self.0.reload()
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.0.current().await.server));
        Ok(acceptor.accept(stream).await?.into())
    }

    /// The name that is checked is the host of the address.
    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        address: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connector = TlsConnector::from(Arc::clone(&self.0.current().await.client));
        Ok(connector.connect(name, stream).await?.into())
    }
}

impl Current {
    fn read(files: &Files) -> Result<Current, Broken> {
        let broken = |key: &'static str| move |rule| Broken::new(key, rule);
        let roots = Arc::new(authorities(&files.ca).map_err(broken(CA))?);
        let chain = certificates(&files.certificate).map_err(broken(CERTIFICATE))?;
        let key = private_key(&files.key).map_err(broken(KEY))?;
        let failed =
            |key: &'static str| move |error: rustls::Error| Broken::new(key, error.to_string());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .build()
            .map_err(|error| Broken::new(CA, error.to_string()))?;

        let (own, between) = chain.split_first().ok_or_else(|| Broken::new(CERTIFICATE, ""))?;
        let now = UnixTime::since_unix_epoch(Duration::from_micros(clock::wall_us()));
        let for_both = verifier.verify_client_cert(own, between, now).and_then(|_| {
            let own = ParsedCertificate::try_from(own)?;
            let algorithms = provider().signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&own, &roots, between, now, algorithms)
        });
        let is_in_force = match for_both {
            Ok(()) => true,
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            )) => false,
            Err(error) => {
                let rule = format!(
                    "must be signed by an authority in {CA}, and for servers and clients alike: {error}"
                );
                return Err(Broken::new(CERTIFICATE, rule));
            }
        };

        let of_certificate = |error| {
            let rule = format!("must be the key of the certificate in {CERTIFICATE}: {error}");
            Broken::new(KEY, rule)
        };
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(failed(CERTIFICATE))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(of_certificate)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(failed(CERTIFICATE))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(of_certificate)?;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Connections last: the certificates are looked at each time.
        client.resumption = Resumption::disabled();
        Ok(Current { server: Arc::new(server), client: Arc::new(client), is_in_force })
    }
}
