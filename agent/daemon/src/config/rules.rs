//! Rules between settings; the safety of every hold rests on some of these.

use std::time::Duration;

use tenure_core::keeper::{BEAT_MIN, Rhythm};
use tenure_stores::settings::Broken;
use tenure_stores::settings::value::show;

use super::Config;

pub(super) fn check(config: &Config) -> Result<(), Broken> {
    metrics(config)?;
    let settings = &config.settings;
    // These come first, because the others are measured by them.
    let (min, max) = (settings.ttl_min, settings.ttl_max);
    ensure("limits.ttl_max", max >= min, || {
        format!("must be at least limits.ttl_min = {}", show(min))
    })?;
    for (section, rhythm) in [
        ("session", settings.session),
        ("master", settings.master),
        ("leader", settings.leader),
        ("lease", settings.lease),
        ("semaphore", settings.semaphore),
    ] {
        self::rhythm(config, section, rhythm)?;
    }
    ensure("limits.ttl_min", min > BEAT_MIN * 2, || {
        format!("must be more than {}, twice the shortest beat", show(BEAT_MIN * 2))
    })?;
    margin(config, "limits.ttl_min", min)?;
    for (key, value) in [
        ("lease.grace", settings.grace),
        ("tether.keepalive", settings.keepalive),
        ("tether.linger", settings.linger),
    ] {
        ensure(key, value <= max, || format!("must be at most limits.ttl_max = {}", show(max)))?;
    }
    ensure("retry.longest", settings.retry_max >= settings.retry_min, || {
        format!("must be at least retry.first = {}", show(settings.retry_min))
    })
}

/// Who asks there is not known.
fn metrics(config: &Config) -> Result<(), Broken> {
    let stays_here = config.metrics_listen.is_none_or(|address| address.ip().is_loopback());
    ensure("metrics_listen", stays_here || config.metrics_listen_public, || {
        "must be a loopback address, such as \"127.0.0.1:9464\": whoever reaches another one reads it \
         without signing in. Where that is meant, in a pod for example, say metrics_listen_public = true"
            .to_owned()
    })
}

fn rhythm(config: &Config, section: &str, rhythm: Rhythm) -> Result<(), Broken> {
    let Rhythm { ttl, beat } = rhythm;
    let (ttl_key, beat_key) = (format!("{section}.ttl"), format!("{section}.beat"));
    ensure(&beat_key, beat >= BEAT_MIN, || format!("must be at least {}", show(BEAT_MIN)))?;
    ensure(&ttl_key, ttl > beat * 2, || {
        format!(
            "must be more than twice {beat_key} = {}, so that one lost beat loses nothing; \
             raise it above {}, or beat more often",
            show(beat),
            show(beat * 2)
        )
    })?;
    margin(config, &ttl_key, ttl)?;
    let (min, max) = (config.settings.ttl_min, config.settings.ttl_max);
    ensure(&ttl_key, (min..=max).contains(&ttl), || {
        format!("must be from limits.ttl_min = {} to limits.ttl_max = {}", show(min), show(max))
    })
}

fn margin(config: &Config, key: &str, ttl: Duration) -> Result<(), Broken> {
    let settings = &config.settings;
    let margin = settings.margin(ttl);
    ensure(key, margin < ttl, || {
        format!(
            "must be more than its safety margin of {} (itself divided by margin.divisor = {}, plus \
             margin.floor = {}); raise it, or lower margin.floor",
            humantime::format_duration(margin),
            settings.margin_divisor,
            show(settings.margin_floor)
        )
    })
}

fn ensure(key: &str, holds: bool, rule: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken::new(key, rule())) }
}
