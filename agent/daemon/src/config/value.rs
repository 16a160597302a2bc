//! Values as they are written in a configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;

use tenure_stores::settings::Refusal;

/// A socket's path, also as `unix:/path` or `unix:///path`. Relative ones start here.
pub(super) fn socket(text: &str) -> Result<PathBuf, Refusal> {
    let path = match text.strip_prefix("unix:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => text,
    };
    if path.is_empty() || path.contains('\0') || (path != text && !path.starts_with('/')) {
        return Err("must be a path, or a URI such as unix:///run/tenured/api.sock".to_owned());
    }
    std::path::absolute(path).map_err(|error| format!("must be a path that exists: {error}"))
}

/// An address to listen at. A name is none: what it means is decided elsewhere.
pub(super) fn address(text: &str) -> Result<SocketAddr, Refusal> {
    const RULE: &str =
        "must be an address with a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\"";
    let address: SocketAddr = text.parse().map_err(|_| RULE.to_owned())?;
    if address.port() == 0 {
        return Err(format!("{RULE}; port 0 is none"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_no_name() {
        for text in ["127.0.0.1:9464", "0.0.0.0:1", "[::1]:9464"] {
            assert_eq!(address(text).unwrap().to_string(), text);
        }
        for text in
            ["", "9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999"]
        {
            address(text).unwrap_err();
        }
    }

    #[test]
    fn sockets_are_paths_or_uris() {
        for text in ["/a/b", "unix:/a/b", "unix:///a/b"] {
            assert_eq!(socket(text).unwrap(), PathBuf::from("/a/b"));
        }
        assert!(socket("b.sock").unwrap().is_absolute());
        for text in ["", "unix:", "unix://host/b", "unix:b"] {
            socket(text).unwrap_err();
        }
    }
}
