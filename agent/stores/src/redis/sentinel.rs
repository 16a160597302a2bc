//! The place of the master, by the word of Sentinels.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, cmd};

use super::connect_error::{self, SENTINEL};
use super::settings::{Login, Place};
use crate::remote::{ConnectError, Endpoint, Peer, Tls, stream};
use crate::settings::secret::SecretSource;

/// The question, and the credentials.
pub(super) struct Query<'a> {
    pub(super) master: &'a str,
    pub(super) login: &'a Login,
    pub(super) tls: Option<Tls<'a>>,
}

impl Query<'_> {
    /// Asks one after the other, as Redis advises its clients, each with its share of the time. Says
    /// which of them knew.
    pub(super) async fn ask(
        &self,
        sentinels: &[&Place],
        timeout: Duration,
    ) -> Result<(usize, Endpoint), ConnectError> {
        let share = timeout / u32::try_from(sentinels.len().max(1)).unwrap_or(1);
        let mut answers = Vec::new();
        for (index, sentinel) in sentinels.iter().enumerate() {
            let peer = Peer { what: SENTINEL, place: sentinel.to_string() };
            let answer = self.ask_one(&peer, sentinel, share);
            match ConnectError::within(share, &peer, "asking it", answer).await {
                Ok(Some(endpoint)) => return Ok((index, endpoint)),
                Ok(None) => answers.push(format!("{peer} knows no such master")),
                Err(error) => answers.push(error.with_causes()),
            }
        }
        let (master, answers) = (self.master, answers.join("; "));
        let text =
            format!("no Sentinel says where the master {master:?} is; check upstream: {answers}");
        Err(ConnectError::NotLocated(text))
    }

    async fn ask_one(
        &self,
        peer: &Peer,
        Place { host, port }: &Place,
        timeout: Duration,
    ) -> Result<Option<Endpoint>, ConnectError> {
        let endpoint = Endpoint::Tcp(host.clone(), *port);
        let stream = stream::connect(peer, &endpoint, self.tls, timeout).await?;
        // Old Sentinels speak RESP2 only.
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &self.login.user {
            info = info.set_username(user);
        }
        let password = self.login.password.as_ref().map(SecretSource::read);
        if let Some(password) = &password {
            info = info.set_password(password.expose());
        }
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let plain = self.tls.is_none();
        let (mut connection, pump) = made.map_err(|error| {
            connect_error::at_first(peer, plain, self.login, password.as_ref(), &error)
        })?;
        let mut question = cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(self.master);
        let answer = tokio::select! {
            answer = question.query_async::<Option<(String, u16)>>(&mut connection) => answer,
            () = pump => return Err(ConnectError::lost(peer, "it hung up")),
        };
        let answer = answer.map_err(|error| connect_error::later(peer, self.login, &error))?;
        Ok(answer.map(|(host, port)| Endpoint::Tcp(host, port)))
    }
}
