//! Strangers on the network of a cluster, and nodes that misbehave.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::model::{Answer, BeatAnswer};
use tenure_host::machine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::running::{Running, beat, claim, cluster, start_with, token, until};

const FLOOD: usize = 10_000;

/// A frame as nodes send it.
fn frame(head: &str, body: &[u8]) -> Vec<u8> {
    let number = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    let lengths = [number(4 + head.len() + body.len()), number(head.len())].concat();
    [&lengths, head.as_bytes(), body].concat()
}

fn hello(node: u64) -> Vec<u8> {
    frame(&format!(r#"{{"protocol":1,"to":{node}}}"#), &[])
}

async fn connect(to: &Running) -> TcpStream {
    TcpStream::connect(&to.address).await.unwrap()
}

/// All that comes until the node closes the connection.
async fn last_words(mut stream: TcpStream) -> String {
    let mut words = Vec::new();
    // It may be reset, with what was sent still unread there.
    let _ = stream.read_to_end(&mut words).await;
    String::from_utf8_lossy(&words).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_speak_as_a_node_is_closed_and_told_why() {
    let nodes = cluster(1).await;
    let node = &nodes[0];
    let id = node.node.id();
    let long = 65_u32 << 20;
    for (said, words) in [
        (Vec::new(), ""),
        (b"GET / HTTP/1.1\r\nHost: node\r\n\r\n".to_vec(), "at most are taken"),
        (frame("{", &[]), "not understood"),
        (frame(r#"{"to":1}"#, &[]), "not understood"),
        (frame(&" ".repeat(2000), &[]), "at most are taken"),
        (vec![0, 0, 0, 1, 0], "too short"),
        (vec![0, 0, 0, 4, 0, 0, 0, 9], "too short"),
        (hello(id + 1), "is not for this node"),
        (frame(&format!(r#"{{"protocol":2,"to":{id}}}"#), &[]), "is not for this node"),
        // After a good hello.
        ([hello(id), long.to_be_bytes().to_vec()].concat(), ""),
        ([hello(id), frame(r#"{"number":1,"what":"Sing"}"#, &[])].concat(), ""),
    ] {
        let mut stream = connect(node).await;
        stream.write_all(&said).await.unwrap();
        let told = last_words(stream).await;
        assert!(told.contains(words), "{:?}: {told}", String::from_utf8_lossy(&said));
    }
    token(&node.node.ask(claim(1, false)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_image_is_taken_at_a_time() {
    let nodes = cluster(1).await;
    let said =
        [hello(nodes[0].node.id()), frame(r#"{"number":1,"what":"Part"}"#, b"part")].concat();
    let mut first = connect(&nodes[0]).await;
    first.write_all(&said).await.unwrap();
    assert!(first.read_u32().await.unwrap() > 0, "it is taken");
    let mut second = connect(&nodes[0]).await;
    second.write_all(&said).await.unwrap();
    let told = last_words(second).await;
    assert!(told.contains("takes an image already"), "{told}");
    drop(first);
    until("the first to be forgotten", async || {
        let mut third = connect(&nodes[0]).await;
        third.write_all(&said).await.unwrap();
        third.shutdown().await.unwrap();
        last_words(third).await.contains("Taken")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_reads_nothing_is_closed_before_its_answers_fill_the_memory() {
    let nodes = cluster(1).await;
    let mut stream = connect(&nodes[0]).await;
    stream.write_all(&hello(nodes[0].node.id())).await.unwrap();
    let questions = frame(r#"{"number":1,"what":{"Attest":{"index":0}}}"#, &[]).repeat(1000);
    let before = machine::usage().resident_bytes;
    let mut sent = 0;
    let sending = async {
        while stream.write_all(&questions).await.is_ok() {
            sent += questions.len();
        }
    };
    tokio::time::timeout(Duration::from_secs(120), sending).await.expect("it is closed");
    let grown = machine::usage().resident_bytes.saturating_sub(before);
    assert!(sent < 256 << 20 && grown < 256 << 20, "{sent} bytes were taken, and {grown} grew");
    token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beats_go_on_in_a_flood_of_connections_and_a_node_comes_back() {
    machine::raise_descriptor_limit().unwrap();
    let mut nodes = cluster(3).await;
    let held = token(&nodes[1].node.ask(claim(1, false)).await.unwrap());
    let addresses = nodes.iter().map(|it| it.address.clone()).collect::<Vec<_>>();
    let open = AtomicUsize::new(0);
    let flood = async {
        let mut all = Vec::new();
        for number in 0..FLOOD {
            let to = addresses[number % addresses.len()].clone();
            // Those that the node has closed stay open on this side.
            all.push(TcpStream::connect(to).await.unwrap());
            open.fetch_add(1, Ordering::Relaxed);
        }
        all
    };
    let beats = async {
        let (mut beats, mut at_the_end) = (0, 0);
        while at_the_end < 20 {
            let answer = nodes[1].node.ask(beat(1)).await.unwrap();
            assert!(
                matches!(&answer, Answer::Renew(it) if matches!(it[0], BeatAnswer::Held { token, .. } if token == held)),
                "{answer:?} after {beats} beats"
            );
            beats += 1;
            at_the_end += usize::from(open.load(Ordering::Relaxed) == FLOOD);
        }
    };
    let (flood, ()) = tokio::join!(flood, beats);
    assert_eq!(flood.len(), FLOOD);
    // A node that starts again finds its way in, among strangers of its own address.
    let (folder, listener) = nodes.pop().unwrap().stop().await;
    let again = start_with(folder, listener, None).await;
    until("it to keep up", async || {
        again.node.view().applied > 0 && again.node.view().applied == nodes[0].node.view().applied
    })
    .await;
    drop(flood);
}
