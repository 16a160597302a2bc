//! Pattern runners of RFC-049. See `tests/python/runner_client.py`.

use std::path::Path;

use serde_json::{Value, json};

use super::{Authority, Gateway, Pending, Python};

/// The mailbox that most tests are about.
pub const MAILBOX: &str = "$admin@proxy-01";

/// Processes of runners, each with a connection of its own.
pub struct RfcRunners(Python);

impl RfcRunners {
    /// Starts their program.
    #[track_caller]
    pub fn start() -> RfcRunners {
        let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client-sdk/proto/tests");
        RfcRunners(Python::start("runner_client.py", &[&protos.display().to_string()]))
    }

    /// A process, which may say more of itself.
    #[track_caller]
    pub fn open(&mut self, channel: &str, gateway: &Gateway, metadata: &Value) {
        let address = format!("127.0.0.1:{}", gateway.port());
        let with = json!({"channel": channel, "address": address, "metadata": metadata});
        self.0.call("open", &with);
    }

    /// The same over TLS: the gateway's authority, and the certificate that the process shows, if it does.
    #[track_caller]
    pub fn open_secure(
        &mut self,
        channel: &str,
        gateway: &Gateway,
        authority: &Authority,
        shown: Option<&str>,
    ) {
        let path = |name: String| authority.path(&name).display().to_string();
        let mut with = json!({"channel": channel, "ca": path("ca.pem".to_owned())});
        with["address"] = json!(format!("127.0.0.1:{}", gateway.port()));
        if let Some(name) = shown {
            with["cert"] = json!(path(format!("{name}.pem")));
            with["key"] = json!(path(format!("{name}.key")));
        }
        self.0.call("open", &with);
    }

    /// Makes a call of any method with these bytes; `code`, and `hex` or `details`.
    #[track_caller]
    pub fn raw(&mut self, channel: &str, path: &str, message: &[u8]) -> Value {
        self.raw_with(channel, path, message, &json!({}))
    }

    /// The same with so many more bytes of `zeros`, or with `gzip`.
    #[track_caller]
    pub fn raw_with(&mut self, channel: &str, path: &str, message: &[u8], more: &Value) -> Value {
        let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut with = json!({"channel": channel, "path": path, "hex": hex});
        for (name, value) in more.as_object().into_iter().flatten() {
            with[name] = value.clone();
        }
        self.0.call("raw", &with)
    }

    /// Makes calls for mailboxes with this prefix, each over a connection of its own, and gives each up at an instant of its
    /// own; their codes.
    #[track_caller]
    pub fn give_up(
        &mut self,
        gateway: &Gateway,
        prefix: &str,
        calls: usize,
        metadata: &Value,
    ) -> Pending {
        let with = json!({
            "channel": prefix, "address": format!("127.0.0.1:{}", gateway.port()), "metadata": metadata,
            "prefix": prefix, "calls": calls, "seed": prefix, "within_s": 0.02,
        });
        self.0.begin("give_up", &with)
    }

    /// Begins a call that has so little time; its result is the answer's fields and its status.
    #[track_caller]
    pub fn begin_within(
        &mut self,
        what: &str,
        channel: &str,
        fields: &Value,
        seconds: f64,
    ) -> Pending {
        let with = json!({"channel": channel, "fields": fields, "within_s": seconds});
        self.0.begin(what, &with)
    }

    /// Ends a process.
    #[track_caller]
    pub fn close(&mut self, channel: &str) {
        self.0.call("close", &json!({"channel": channel}));
    }

    /// Makes a call; the answer's fields and its status.
    #[track_caller]
    pub fn call(&mut self, what: &str, channel: &str, fields: &Value) -> Value {
        self.0.call(what, &json!({"channel": channel, "fields": fields}))
    }

    /// What the gateway says of the health of a service: the bytes of its answer, or the status.
    #[track_caller]
    pub fn health(&mut self, channel: &str, service: &str) -> Value {
        self.0.call("health", &json!({"channel": channel, "service": service}))
    }

    /// Gives a call without waiting for its answer.
    #[track_caller]
    pub fn begin(&mut self, what: &str, channel: &str, fields: &Value) -> Pending {
        self.0.begin(what, &json!({"channel": channel, "fields": fields}))
    }

    /// Waits for the answer to a call.
    #[track_caller]
    pub fn result(&self, pending: Pending) -> Value {
        self.0.result(pending)
    }

    /// Asks for [`MAILBOX`].
    #[track_caller]
    pub fn acquire(&mut self, channel: &str, runner: &str) -> Value {
        self.call("acquire", channel, &of_runner(runner))
    }

    /// Renews it.
    #[track_caller]
    pub fn heartbeat(&mut self, channel: &str, runner: &str) -> Value {
        self.call("heartbeat", channel, &of_runner(runner))
    }

    /// Gives it up.
    #[track_caller]
    pub fn release(&mut self, channel: &str, runner: &str) -> Value {
        self.call("release", channel, &of_runner(runner))
    }
}

/// The fields of a call about [`MAILBOX`].
pub fn of_runner(runner: &str) -> Value {
    json!({"mailbox_id": MAILBOX, "runner_id": runner})
}

/// The line of [`MAILBOX`] in the routing table, as this gateway knows.
#[track_caller]
pub fn listed_route(gateway: &Gateway) -> Value {
    let body = json!({"tenant": "default", "name": MAILBOX, "page": {"after": null, "limit": 9}});
    let (_, answer) =
        gateway.call("POST /v1/upstream/routes", &body.to_string()).expect("it answers");
    let (_, body) = answer.split_once("\r\n\r\n").expect("it has a body");
    let routes: Value = serde_json::from_str(body).expect("it is JSON");
    routes["routes"][0].clone()
}
