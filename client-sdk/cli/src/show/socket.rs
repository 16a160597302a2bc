//! `tenure socket`.

use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileTypeExt;

use tenure::client::{CallError, Client};

use crate::failure::Failure;
use crate::output::print;

/// Prints the path of the agent's socket.
///
/// # Errors
///
/// When there is none; says where it was looked for.
pub(crate) fn socket(client: &Client) -> Result<(), Failure> {
    let path = client.path();
    let found = path.metadata().and_then(|metadata| match metadata.file_type().is_socket() {
        true => Ok(()),
        false => Err(Error::from(ErrorKind::ConnectionRefused)),
    });
    found.map_err(|source| {
        Failure::of_call("socket", &CallError::Unreachable { path: path.to_owned(), source })
    })?;
    print(&format!("{}\n", path.display()))
}
