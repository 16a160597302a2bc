//! Requests as JSON and as query strings, byte by byte: also what no library would write.

use super::request::{Field, Request};
use super::value::Value;

/// A request on its way to a face, which notes the fields that the face is given.
pub(super) struct Carrier<'a> {
    pub request: &'a Request,
    pub carried: Vec<Field>,
}

impl<'a> Carrier<'a> {
    pub(super) fn of(request: &'a Request) -> Carrier<'a> {
        Carrier { request, carried: Vec::new() }
    }

    /// The value of a field, which is given to the face.
    pub(super) fn take(&mut self, field: Field) -> Option<&'a Value> {
        let value = self.request.get(field)?;
        if !self.carried.contains(&field) {
            self.carried.push(field);
        }
        Some(value)
    }

    /// The same, if it is one that the face can be given.
    pub(super) fn take_if(
        &mut self,
        field: Field,
        is_fit: impl Fn(&Value) -> bool,
    ) -> Option<&'a Value> {
        self.request.get(field).filter(|value| is_fit(value))?;
        self.take(field)
    }
}

/// An object that is being written.
#[derive(Default)]
pub(super) struct Object(Vec<u8>);

impl Object {
    fn key(&mut self, key: &str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.extend_from_slice(format!("{key:?}:").as_bytes());
    }

    /// A field as it stands.
    pub(super) fn raw(mut self, key: &str, json: impl AsRef<[u8]>) -> Object {
        self.key(key);
        self.0.extend_from_slice(json.as_ref());
        self
    }

    /// A field of the request, if it has it.
    pub(super) fn field(self, carrier: &mut Carrier<'_>, key: &str, field: Field) -> Object {
        self.written(carrier, key, field, &written)
    }

    /// The same for a time, which the model has as seconds and nanoseconds.
    pub(super) fn time(self, carrier: &mut Carrier<'_>, key: &str, field: Field) -> Object {
        self.written(carrier, key, field, &duration)
    }

    /// An id: the request's own, unless something is wrong with it.
    pub(super) fn id(self, carrier: &mut Carrier<'_>, key: &str, own: &str) -> Object {
        match carrier.request.get(Field::Id) {
            Some(_) => self.field(carrier, key, Field::Id),
            None => self.raw(key, format!("{own:?}")),
        }
    }

    fn written(
        mut self,
        carrier: &mut Carrier<'_>,
        key: &str,
        field: Field,
        write: &dyn Fn(&Value) -> Vec<u8>,
    ) -> Object {
        match carrier.take(field) {
            None | Some(Value::Missing) => self,
            Some(Value::Twice(value)) => {
                let value = write(value);
                self = self.raw(key, &value);
                self.raw(key, value)
            }
            Some(value) => self.raw(key, write(value)),
        }
    }

    /// The bytes of the object.
    pub(super) fn end(mut self) -> Vec<u8> {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        self.0
    }
}

fn written(value: &Value) -> Vec<u8> {
    match value {
        // Also what could stand as it is: escapes are the longest form.
        Value::Text(text) => serde_json::to_vec(text).unwrap_or_default(),
        Value::Bytes(bytes) => [b"\"", &bytes[..], b"\""].concat(),
        Value::Number(number) => number.to_string().into_bytes(),
        Value::Word(word) => word.clone().into_bytes(),
        Value::Twice(value) => written(value),
        Value::Missing => Vec::new(),
    }
}

fn duration(value: &Value) -> Vec<u8> {
    match value {
        Value::Number(ms) => {
            let (secs, nanos) = (ms.div_euclid(1000), ms.rem_euclid(1000) * 1_000_000);
            format!("{{\"secs\":{secs},\"nanos\":{nanos}}}").into_bytes()
        }
        other => written(other),
    }
}

/// A query string that is being written.
#[derive(Default)]
pub(super) struct Query(String);

impl Query {
    pub(super) fn raw(mut self, key: &str, value: &[u8]) -> Query {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(key);
        self.0.push('=');
        for byte in value {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => self.0.push(char::from(*byte)),
                _ => self.0.push_str(&format!("%{byte:02x}")),
            }
        }
        self
    }

    /// A text of the request. A word of JSON is a text like any other here, and a good one is given in its place.
    pub(super) fn text(self, carrier: &mut Carrier<'_>, key: &str, field: Field) -> Query {
        let is_fit = |value: &Value| !matches!(value, Value::Word(_) | Value::Number(_));
        match carrier.take_if(field, is_fit) {
            Some(Value::Text(text)) => self.raw(key, text.as_bytes()),
            Some(Value::Bytes(bytes)) => self.raw(key, bytes),
            Some(Value::Twice(value)) => {
                let text = value.text().unwrap_or_default().as_bytes();
                self.raw(key, text).raw(key, text)
            }
            None if carrier.request.get(field).is_some() => self.raw(key, b"name-0"),
            _ => self,
        }
    }

    /// A number of the request.
    pub(super) fn number(self, carrier: &mut Carrier<'_>, key: &str, field: Field) -> Query {
        match carrier.take(field) {
            Some(Value::Twice(value)) => {
                let text = written(value);
                self.raw(key, &text).raw(key, &text)
            }
            None | Some(Value::Missing) => self,
            Some(Value::Text(text)) => self.raw(key, text.as_bytes()),
            Some(Value::Bytes(bytes)) => self.raw(key, bytes),
            Some(value) => self.raw(key, &written(value)),
        }
    }

    /// A parameter that there is not.
    pub(super) fn unknown(self, carrier: &mut Carrier<'_>) -> Query {
        match carrier.take_if(Field::Unknown, |value| *value != Value::Missing) {
            Some(_) => self.raw("colour", b"red"),
            None => self,
        }
    }

    pub(super) fn end(self) -> String {
        self.0
    }
}
