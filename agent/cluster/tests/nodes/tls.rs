//! Nodes that show each other certificates.

use std::fs;
use std::sync::Arc;

use tempfile::TempDir;
use tenure_cluster::Tls;
use tenure_core::model::Answer;
use tenure_harness::Authority;

use super::running::{Running, claim, listener, release, start_with, token};

/// The certificate of that name, and the authority's own one.
fn tls(authority: &Authority, name: &str) -> Arc<Tls> {
    let path = |extension: &str| authority.path(&format!("{name}.{extension}"));
    Arc::new(Tls::read(&authority.path("ca.pem"), &path("pem"), &path("key")).unwrap())
}

async fn start(tls: Option<Arc<Tls>>) -> Running {
    start_with(TempDir::new().unwrap(), listener().await, tls).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_certificates_of_one_authority_are_a_cluster_also_after_renewals() {
    let authority = Authority::new();
    let mut nodes = Vec::new();
    let mut certificates = Vec::new();
    for id in 1..=3 {
        let name = format!("node-{id}");
        authority.issue(&name, "IP:127.0.0.1");
        certificates.push(tls(&authority, &name));
        nodes.push(start(certificates.last().cloned()).await);
    }
    nodes[0].found().await;
    for other in &nodes[1..] {
        nodes[0].add(other).await;
    }
    let first = token(&nodes[1].node.ask(claim(1, false)).await.unwrap());
    assert_eq!(nodes[2].node.ask(release(1)).await.unwrap(), Answer::Released(true));

    // Another authority follows: each trusts both, then each has a new certificate.
    let next = Authority::new();
    let read = |authority: &Authority, name: &str| fs::read(authority.path(name)).unwrap();
    let both = [read(&authority, "ca.pem"), read(&next, "ca.pem")].concat();
    fs::write(authority.path("ca.pem"), both).unwrap();
    for tls in &certificates {
        tls.reload().unwrap();
    }
    for (id, tls) in (1..=3).zip(&certificates) {
        let name = format!("node-{id}");
        next.issue(&name, "IP:127.0.0.1");
        for file in [format!("{name}.pem"), format!("{name}.key")] {
            fs::write(authority.path(&file), read(&next, &file)).unwrap();
        }
        tls.reload().unwrap();
    }
    // The one that starts again has connections of the new kind alone.
    let (folder, listener) = nodes.remove(2).stop().await;
    let again = start_with(folder, listener, certificates.pop()).await;
    let second = token(&again.node.ask(claim(2, false)).await.unwrap());
    assert!(second > first, "{second}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_shows_no_good_certificate_is_not_let_in() {
    let authority = Authority::new();
    authority.issue("founder", "IP:127.0.0.1");
    authority.issue("elsewhere", "DNS:elsewhere.test");
    authority.issue_for("late", "/CN=late", "IP:127.0.0.1", -1);
    let stranger = Authority::new();
    stranger.issue("founder", "IP:127.0.0.1");
    let founder = start(Some(tls(&authority, "founder"))).await;
    founder.found().await;
    let others = [
        (None, "in the clear", "cannot be reached"),
        (Some(tls(&stranger, "founder")), "of another authority", "invalid peer certificate"),
        (Some(tls(&authority, "elsewhere")), "for another host", "not valid for name"),
        (Some(tls(&authority, "late")), "that has expired", "Expired"),
    ];
    for (tls, which, words) in others {
        let other = start(tls).await;
        // Neither as the one that is called ...
        let refused = founder.node.add(other.node.id(), other.address.clone()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(words), "{which}: {refused}");
        // ... nor as the one that calls.
        other.found().await;
        let refused = other.node.add(founder.node.id(), founder.address.clone()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(&founder.address), "{which}: {refused}");
        assert_eq!(founder.node.view().voters.len(), 1, "{which}: {refused}");
        other.node.stop().await;
    }
    token(&founder.node.ask(claim(1, false)).await.unwrap());
}

#[test]
fn what_is_wrong_with_the_files_is_said_and_a_reload_keeps_what_was_good() {
    let authority = Authority::new();
    authority.issue("node", "IP:127.0.0.1");
    authority.issue("other", "IP:127.0.0.1");
    let stranger = Authority::new();
    stranger.issue("node", "IP:127.0.0.1");
    let path = |name: &str| authority.path(name);
    let read = |ca, certificate, key| {
        let error = Tls::read(ca, certificate, key).expect_err("it is refused");
        (error.key, error.rule)
    };
    let (ca, certificate, key) = (&path("ca.pem"), &path("node.pem"), &path("node.key"));
    for (found, section, words) in [
        (read(&path("none"), certificate, key), "cluster.tls_ca_file", "readable"),
        (read(ca, key, key), "cluster.tls_cert_file", "certificates in PEM format"),
        (read(ca, certificate, ca), "cluster.tls_key_file", "private key"),
        (read(ca, certificate, &path("other.key")), "cluster.tls_key_file", "must be the key"),
        (read(&stranger.path("ca.pem"), certificate, key), "cluster.tls_cert_file", "signed by"),
    ] {
        assert_eq!(found.0, section);
        assert!(found.1.contains(words), "{found:?}");
    }
    let tls = tls(&authority, "node");
    authority.issue_for("node", "/CN=node", "IP:127.0.0.1", -1);
    let late = tls.reload().expect_err("it has expired");
    assert_eq!(late.key, "cluster.tls_cert_file");
    assert!(late.rule.contains("expired"), "{late:?}");
}
