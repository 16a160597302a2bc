//! The place of the master, by the word of Sentinels.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, cmd};
use tokio::time::timeout;

use super::address::Spot;
use super::settings::{Login, Place};
use super::stream;
use super::trouble::{Trouble, Whom};
use crate::settings::tls::Trust;

/// The question, and the credentials.
pub(super) struct Query<'a> {
    pub(super) master: &'a str,
    pub(super) login: &'a Login,
    pub(super) tls: Option<&'a Trust>,
}

impl Query<'_> {
    /// Asks one after the other, as Redis advises its clients, each with its share of the time. Says
    /// which of them knew.
    pub(super) async fn ask(
        &self,
        sentinels: &[&Place],
        patience: Duration,
    ) -> Result<(usize, Spot), Trouble> {
        let share = patience / u32::try_from(sentinels.len().max(1)).unwrap_or(1);
        let mut answers = Vec::new();
        for (index, sentinel) in sentinels.iter().enumerate() {
            let whom = Whom::Sentinel(sentinel.to_string());
            let answer = timeout(share, self.ask_one(&whom, sentinel, share)).await;
            match answer.unwrap_or_else(|_| Err(Trouble::silent(&whom, "asking it", share))) {
                Ok(Some(place)) => return Ok((index, Spot::Tcp(place))),
                Ok(None) => answers.push(format!("{whom} knows no such master")),
                Err(trouble) => answers.push(trouble.told()),
            }
        }
        Err(Trouble::NoMaster { master: self.master.to_owned(), answers })
    }

    async fn ask_one(
        &self,
        whom: &Whom,
        sentinel: &Place,
        patience: Duration,
    ) -> Result<Option<Place>, Trouble> {
        let stream =
            stream::connect(whom, &Spot::Tcp(sentinel.clone()), self.tls, patience).await?;
        // Old Sentinels speak RESP2 only.
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &self.login.user {
            info = info.set_username(user);
        }
        if let Some(password) = &self.login.password {
            info = info.set_password(password.expose());
        }
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let trouble = |error| Trouble::of(whom, self.login, &error);
        let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let plain = self.tls.is_none();
        let (mut connection, motor) =
            made.map_err(|error| Trouble::at_first(whom, plain, self.login, &error))?;
        let mut question = cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(self.master);
        let answer = tokio::select! {
            answer = question.query_async::<Option<(String, u16)>>(&mut connection) => answer,
            () = motor => return Err(Trouble::lost(whom, "it hung up")),
        };
        Ok(answer.map_err(trouble)?.map(|(host, port)| Place { host, port }))
    }
}
