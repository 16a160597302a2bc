//! The thread that waits for the disk in the ledger's place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::ledger::LedgerError;
use super::signed;

/// Something to be made durable.
enum Job {
    Tokens { upto: u64 },
    Ttl { ttl_ns: i64, done: mpsc::Sender<Result<(), LedgerError>> },
    Clean { done: mpsc::Sender<Result<(), LedgerError>> },
}

/// The way to the thread. The thread takes jobs and answers each; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    /// Bounded by its users: one request for tokens at a time, and notes are waited for.
    jobs: Option<mpsc::Sender<Job>>,
    answers: tokio::sync::mpsc::UnboundedReceiver<Result<u64, LedgerError>>,
    thread: Option<JoinHandle<()>>,
}

impl Reserve {
    pub(super) fn start(connection: Connection, path: PathBuf) -> io::Result<Reserve> {
        let (jobs, jobs_out) = mpsc::channel();
        let (answers, answers_out) = tokio::sync::mpsc::unbounded_channel();
        let file = path.clone();
        let work = move || {
            for job in jobs_out {
                // A receiver that is gone is an agent that is stopping.
                match job {
                    Job::Tokens { upto } => drop(answers.send(reserve(&connection, &file, upto))),
                    Job::Ttl { ttl_ns, done } => {
                        let sql = "UPDATE ledger SET longest_ttl_ns = ?1";
                        drop(done.send(execute(&connection, &file, sql, ttl_ns)));
                    }
                    Job::Clean { done } => {
                        let sql = "UPDATE ledger SET clean = ?1";
                        drop(done.send(execute(&connection, &file, sql, 1)));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("tokens".to_owned()).spawn(work)?;
        Ok(Reserve { path, jobs: Some(jobs), answers: answers_out, thread: Some(thread) })
    }

    pub(super) fn ask(&self, upto: u64) {
        if let Some(jobs) = &self.jobs {
            // Fails only if the thread has panicked; `poll` tells that.
            let _ = jobs.send(Job::Tokens { upto });
        }
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<u64, LedgerError>> {
        self.answers.poll_recv(context).map(|answer| answer.unwrap_or_else(|| Err(self.gone())))
    }

    pub(super) fn note_ttl(&self, ttl_ns: i64) -> Result<(), LedgerError> {
        self.wait_for(|done| Job::Ttl { ttl_ns, done })
    }

    pub(super) fn note_clean(&self) -> Result<(), LedgerError> {
        self.wait_for(|done| Job::Clean { done })
    }

    fn wait_for(
        &self,
        job: impl FnOnce(mpsc::Sender<Result<(), LedgerError>>) -> Job,
    ) -> Result<(), LedgerError> {
        let (done, answer) = mpsc::channel();
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job(done));
        }
        answer.recv().unwrap_or_else(|_| Err(self.gone()))
    }

    fn gone(&self) -> LedgerError {
        let cause = "the thread that writes it has ended; start the agent again".to_owned();
        LedgerError::Write { path: self.path.clone(), cause }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The file must be closed before a next ledger opens it. A panic was told by `poll`.
            let _ = thread.join();
        }
    }
}

fn reserve(connection: &Connection, path: &Path, upto: u64) -> Result<u64, LedgerError> {
    execute(connection, path, "UPDATE ledger SET high_water = ?1", signed(upto)).map(|()| upto)
}

fn execute(connection: &Connection, path: &Path, sql: &str, value: i64) -> Result<(), LedgerError> {
    connection
        .execute(sql, [value])
        .map(drop)
        .map_err(|error| LedgerError::Write { path: path.to_owned(), cause: error.to_string() })
}
