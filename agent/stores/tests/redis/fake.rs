//! A server that says what a test wants.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use tenure_stores::redis::settings::{RedisAccess, RedisServer};

use super::server::{access, local};

/// Answers every command with one of these, in turn, and then hangs up. Ends with the process.
pub(crate) fn server(answers: &'static [&'static str]) -> RedisAccess {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, answers));
        }
    });
    access(RedisServer::Tcp(local(port)))
}

fn serve(mut stream: TcpStream, answers: &[&str]) {
    let mut heard = Vec::new();
    let mut answered = 0;
    let mut buffer = [0; 4096];
    while answered < answers.len() {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => heard.extend_from_slice(&buffer[..read]),
        }
        // A command is an array; nothing else that a client says has a star after a line break.
        let commands = heard.iter().filter(|&&byte| byte == b'*').count();
        while answered < answers.len().min(commands) {
            stream.write_all(answers[answered].as_bytes()).unwrap();
            answered += 1;
        }
    }
}
