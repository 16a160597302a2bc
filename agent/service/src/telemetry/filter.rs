//! The filter of the log, now and by configuration.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

use super::log::LogError;

/// Longest filter, bytes: every event of the program is compared with it.
const FILTER_MAX: usize = 1000;

/// Libraries whose words below that are for their authors.
const QUIET: &str = "openraft=error";

/// The filter of the log. Cheap to clone; clones are the same filter.
#[derive(Clone)]
pub struct Filter(Arc<Mutex<State>>);

struct State {
    handle: reload::Handle<EnvFilter, Registry>,
    configured: String,
    /// The filter that somebody set for the time being.
    wanted: Option<String>,
}

impl Filter {
    /// A filter, and the layer that obeys it.
    ///
    /// # Errors
    ///
    /// [`LogError::Filter`].
    pub fn new(configured: &str) -> Result<(reload::Layer<EnvFilter, Registry>, Filter), LogError> {
        let (layer, handle) = reload::Layer::new(parse(configured)?);
        let state = State { handle, configured: configured.to_owned(), wanted: None };
        Ok((layer, Filter(Arc::new(Mutex::new(state)))))
    }

    /// Logs what the configuration now says. Ends what was wanted for the time being.
    ///
    /// # Errors
    ///
    /// [`LogError::Filter`]; the log then goes on as before.
    pub fn configure(&self, configured: &str) -> Result<(), LogError> {
        let mut state = self.state();
        state.obey(configured)?;
        configured.clone_into(&mut state.configured);
        state.wanted = None;
        Ok(())
    }

    /// Logs something else for the time being; with `None` what is configured again.
    ///
    /// # Errors
    ///
    /// [`LogError::Filter`]; the log then goes on as before.
    pub fn want(&self, wanted: Option<&str>) -> Result<(), LogError> {
        let mut state = self.state();
        let filter = wanted.unwrap_or(&state.configured).to_owned();
        state.obey(&filter)?;
        state.wanted = wanted.map(str::to_owned);
        Ok(())
    }

    /// The filter now, and the configured one.
    pub fn current(&self) -> (String, String) {
        let state = self.state();
        let configured = state.configured.clone();
        (state.wanted.clone().unwrap_or_else(|| configured.clone()), configured)
    }

    /// Nothing panics while it holds the lock, and the state is right between any two calls.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn obey(&self, filter: &str) -> Result<(), LogError> {
        // Fails only when the subscriber is gone, and with it the log.
        let _ = self.handle.reload(parse(filter)?);
        Ok(())
    }
}

/// Checks the text of a filter.
///
/// # Errors
///
/// The rule that it breaks.
pub fn check(text: &str) -> Result<(), String> {
    const RULE: &str =
        "must be error, warn, info, debug or trace, or a filter such as info,tenured::api=debug";
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    if text.len() > FILTER_MAX {
        return Err(format!("must have at most {FILTER_MAX} bytes"));
    }
    let is_level = |word: &str| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    let is_module = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c))
    };
    // The parser takes any word for the name of a module, `verbose` too; and spans, of which there
    // are none here.
    let is_part = |part: &str| match part.split_once('=') {
        None => is_level(part),
        Some((module, level)) => is_module(module) && is_level(level),
    };
    if !text.split(',').all(is_part) {
        return Err(RULE.to_owned());
    }
    EnvFilter::builder().parse(text).map(drop).map_err(|_| RULE.to_owned())
}

fn parse(text: &str) -> Result<EnvFilter, LogError> {
    check(text).map_err(|rule| LogError::Filter { text: text.to_owned(), rule })?;
    // What is wanted by name wins.
    Ok(EnvFilter::builder().parse_lossy(format!("{QUIET},{text}")))
}

#[cfg(test)]
mod tests {
    use tracing::{Level, enabled};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn filters_are_levels_or_modules_with_levels() {
        for text in
            ["info", "WARN", "off", "info,tenured::api=debug", "tenured=trace", "info,a=off"]
        {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        let long = format!("info,{}=debug", "x".repeat(FILTER_MAX));
        for text in
            ["", "verbose", "info,chatty", "tenured=loud", "=info", "a=", "[a{b=c}]=info", &long]
        {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_wanted_for_now_ends_with_what_is_configured_anew() {
        let (layer, filter) = Filter::new("info").unwrap();
        let filter_now = || filter.current();
        let pair = |now: &str, configured: &str| (now.to_owned(), configured.to_owned());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            assert!(!enabled!(Level::DEBUG));
            filter.want(Some("debug")).unwrap();
            assert!(enabled!(Level::DEBUG));
            assert_eq!(filter_now(), pair("debug", "info"));
            assert!(filter.want(Some("loud")).is_err());
            assert_eq!(filter_now(), pair("debug", "info"));
            filter.want(None).unwrap();
            assert!(!enabled!(Level::DEBUG));

            filter.want(Some("trace")).unwrap();
            filter.configure("warn").unwrap();
            assert_eq!(filter_now(), pair("warn", "warn"));
            assert!(!enabled!(Level::INFO));
        });
    }
}
