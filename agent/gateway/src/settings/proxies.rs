//! `[[proxies]]`: proxies that are told of routes without having registered, as they are written.

use tenure_service::config::{ConfigError, List, Origin, closest};
use tenure_wire::rules::{NAME_MAX, scope, visible};
use toml::Table;

use crate::delivery::{Registration, is_address};
use crate::routes::PROXIES_MAX;

pub(super) const LIST: List = List { name: "proxies", reloads: false };

const KEYS: [&str; 3] = ["id", "address", "tenant"];

/// The documentation of the proxies.
pub(super) const ABOUT: &str = "A proxy that is told of the routes of a tenant, as one that calls RegisterProxy is. Its address is HOST:PORT, at \
     which it takes gRPC without TLS.";

/// A proxy for the documentation.
pub(super) const EXAMPLE: [(&str, &str); 3] =
    [("id", "\"proxy-01\""), ("address", "\"10.0.0.7:8982\""), ("tenant", "\"default\"")];

/// The proxy of a table; `earlier` have been read.
pub(super) fn proxy(
    table: &Table,
    index: usize,
    origin: &Origin,
    earlier: &[Registration],
) -> Result<Registration, ConfigError> {
    let number = index + 1;
    if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(ConfigError::UnknownKey {
            key: format!("{unknown} in [[proxies]] number {number}"),
            origin: origin.clone(),
            nearest: closest(unknown, KEYS.into_iter()),
        });
    }
    let text = |key: &str, rule: &str, fits: &dyn Fn(&str) -> bool| {
        let written = table.get(key);
        let text = written.and_then(toml::Value::as_str).filter(|text| fits(text));
        text.map(Into::into).ok_or_else(|| ConfigError::Value {
            key: format!("proxies[{number}].{key}"),
            value: written.map_or_else(|| "unset".to_owned(), ToString::to_string),
            origin: origin.clone(),
            rule: rule.to_owned(),
        })
    };
    let tenant = match table.get("tenant") {
        None => tenure_wire::DEFAULT_TENANT.into(),
        Some(_) => {
            text("tenant", "must be the name of a tenant", &|it| scope("tenant", it).is_ok())?
        }
    };
    let of_tenant = |id: Option<&str>| {
        let same =
            |it: &&Registration| it.tenant == tenant && id.is_none_or(|id| *it.proxy_id == *id);
        earlier.iter().filter(same).count()
    };
    let rule = format!(
        "must be a visible text of 1 to {NAME_MAX} bytes that no earlier proxy of the tenant has; a tenant has at most {PROXIES_MAX}"
    );
    let is_new = |id: &str| {
        visible("id", id).is_ok() && of_tenant(Some(id)) == 0 && of_tenant(None) < PROXIES_MAX
    };
    let proxy_id = text("id", &rule, &is_new)?;
    let address = text("address", "must be HOST:PORT, such as \"10.0.0.7:8982\"", &is_address)?;
    Ok(Registration { tenant, proxy_id, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Registration>, String> {
        let table: Table = text.parse().unwrap();
        let origin = Origin::Flag("/f");
        let tables = LIST.tables(&table["proxies"], &origin).map_err(|error| error.to_string())?;
        let mut proxies = Vec::new();
        for (index, table) in tables.iter().enumerate() {
            let read = proxy(table, index, &origin, &proxies).map_err(|error| error.to_string())?;
            proxies.push(read);
        }
        Ok(proxies)
    }

    #[test]
    fn a_proxy_has_an_id_and_an_address() {
        let two = "[[proxies]]\nid = \"p\"\naddress = \"h:1\"\n[[proxies]]\nid = \"p\"\naddress = \"h:1\"\ntenant = \"t\"";
        let tenants: Vec<_> = read(two).unwrap().into_iter().map(|it| it.tenant).collect();
        assert_eq!(tenants, ["default", "t"].map(std::sync::Arc::<str>::from));
    }

    #[test]
    fn says_what_is_wrong() {
        let twice = "[[proxies]]\nid = \"p\"\naddress = \"h:1\"\n[[proxies]]\nid = \"p\"\naddress = \"h:2\"";
        for (text, words) in [
            (
                "[[proxies]]\naddress = \"h:1\"",
                "/f: proxies[1].id = unset: must be a visible text of 1 to 200 bytes",
            ),
            (
                "[[proxies]]\nid = \"p\"\naddress = \"h\"",
                "/f: proxies[1].address = \"h\": must be HOST:PORT",
            ),
            (
                "[[proxies]]\nid = \"p\"\naddres = \"h:1\"",
                "there is no key addres in [[proxies]] number 1; did you mean address?",
            ),
            (
                twice,
                "/f: proxies[2].id = \"p\": must be a visible text of 1 to 200 bytes that no earlier proxy",
            ),
            ("proxies = 3", "/f: proxies = 3: must be sections that begin with [[proxies]]"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
