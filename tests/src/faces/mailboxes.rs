//! The control plane: gRPC, whose messages are written byte by byte.

use tenure::wire::Kind;

use super::Face;
use super::call::{Call, Sent};
use super::json::Carrier;
use super::request::{Field, Operation, Request};
use super::sessions::is_header;
use super::value::Value;

/// Longest message that a call sends whole: more is refused by its length alone.
const MESSAGE_MAX: usize = 400_000;

/// The request, as a runner or a proxy asks.
pub(super) fn call(request: &Request) -> Option<Call> {
    let is_mailbox = request.kind == Kind::Lease;
    let mut carrier = Carrier::of(request);
    let carried = &mut carrier;
    let message = Message::default();
    let (path, message) = match request.operation {
        Operation::Take if is_mailbox => {
            let message = message
                .text(carried, 1, Field::Name)
                .text(carried, 2, Field::Holder)
                .text(carried, 3, Field::ProxyId)
                .number(carried, 4, Field::Partition, i32::MIN.into()..=i32::MAX.into(), 1)
                .text(carried, 5, Field::Address)
                .number(carried, 6, Field::Ttl, i64::MIN.into()..=i64::MAX.into(), 1000);
            ("/prism.admin.v1.ControlPlane/AcquireLease", message)
        }
        Operation::Release if is_mailbox => {
            let message = message.text(carried, 1, Field::Name).text(carried, 2, Field::Holder);
            ("/prism.admin.v1.ControlPlane/ReleaseLease", message)
        }
        Operation::Beat if is_mailbox => {
            let message = message
                .text(carried, 1, Field::Name)
                .text(carried, 2, Field::Holder)
                .text(carried, 7, Field::Status);
            ("/prism.admin.v1.ControlPlane/MailboxHeartbeat", message)
        }
        Operation::Proxy => {
            let message = message.text(carried, 1, Field::ProxyId).text(carried, 2, Field::Address);
            ("/prism.ControlPlane/RegisterProxy", message)
        }
        _ => return None,
    };
    // The tenant is metadata, which is ASCII.
    let is_fit =
        |value: &Value| value.text().is_some_and(|text| is_header(text) && !text.is_empty());
    let tenant = match request.operation {
        Operation::Proxy => None,
        _ => carried.take_if(Field::Tenant, is_fit).and_then(Value::text).map(str::to_owned),
    };
    let Message(message) = message.unknown(carried);
    (message.len() <= MESSAGE_MAX)
        .then(|| Call::new(Face::Mailboxes, carrier, Sent::Grpc { path, message, tenant }))
}

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number as u8 & 0x7f) | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn bytes(mut self, tag: u64, bytes: &[u8]) -> Message {
        self.varint(tag << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// A text. An empty one is one that is left out; one that is there twice is the last one.
    fn text(self, carrier: &mut Carrier<'_>, tag: u64, field: Field) -> Message {
        let is_needed = matches!(field, Field::Name | Field::Holder)
            || carrier.request.operation == Operation::Proxy;
        match carrier.request.get(field) {
            Some(Value::Text(text)) if is_needed || !text.is_empty() => {
                carrier.take(field);
                self.bytes(tag, text.as_bytes())
            }
            Some(Value::Bytes(bytes)) => {
                carrier.take(field);
                self.bytes(tag, bytes)
            }
            Some(Value::Missing) if is_needed => {
                carrier.take(field);
                self
            }
            // A number in the place of a text: the message cannot be read.
            Some(Value::Number(number)) => {
                carrier.take(field);
                let mut message = self;
                message.varint(tag << 3);
                message.varint(*number as u64);
                message
            }
            // Words of JSON. What has to be there is named well.
            _ if field == Field::Address && is_needed => self.bytes(tag, b"127.0.0.1:1"),
            _ if is_needed => self.bytes(tag, b"name-0"),
            _ => self,
        }
    }

    /// A number within a type, in so many of the field's unit.
    fn number(
        mut self,
        carrier: &mut Carrier<'_>,
        tag: u64,
        field: Field,
        within: std::ops::RangeInclusive<i128>,
        unit: i128,
    ) -> Message {
        let is_fit =
            |value: &Value| value.number().is_some_and(|it| within.contains(&it) && it % unit == 0);
        if let Some(Value::Number(number)) = carrier.take_if(field, is_fit) {
            self.varint(tag << 3);
            self.varint((number / unit) as i64 as u64);
        }
        self
    }

    /// A field that there is not.
    fn unknown(self, carrier: &mut Carrier<'_>) -> Message {
        match carrier.take_if(Field::Unknown, |value| value.text().is_some()) {
            Some(value) => self.bytes(999, value.text().unwrap_or_default().as_bytes()),
            None => self,
        }
    }
}
