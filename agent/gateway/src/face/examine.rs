//! An examination of the store, for `tenure doctor`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use tenure_stores::{EXAMINATION_MAX, NAMING_CHECKS};
use tenure_wire::{Code, Diagnosis, Verdict};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Face;
use super::refused::Refused;
use crate::access::Right;
use crate::store::Gone;

/// One at a time, because each costs the store some work.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Looks at the store: reachability, settings, rights, clocks.
pub(super) async fn examine(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Json<Diagnosis>, Refused> {
    let caller = face.access.caller(&request)?;
    caller.needs(Right::Examine, || "the examination of the store".to_owned())?;
    let Ok(_alone) = ALONE.try_lock() else {
        let detail = "another examination of the store is under way; ask again in a moment";
        return Err(Refused::new(Code::QuotaExceeded, detail));
    };
    let examined = timeout(EXAMINATION_MAX, async {
        let examination = face.store.examine().await?;
        Ok::<_, Gone>(examination.await)
    });
    match examined.await {
        Ok(Ok(mut checks)) => {
            if caller.bounds.scope.names_all() {
                return Ok(Json(Diagnosis { checks }));
            }
            for check in &mut checks {
                if check.verdict != Verdict::Ok && NAMING_CHECKS.contains(&&*check.name) {
                    check.detail =
                        "not shown: it may name what is outside of the key's bounds".to_owned();
                }
            }
            Ok(Json(Diagnosis { checks }))
        }
        Ok(Err(gone)) => Err(Refused::new(Code::Stopping, gone.to_string())),
        Err(_) => {
            let ms = EXAMINATION_MAX.as_millis();
            let detail = format!("the examination of the store did not end within {ms} ms");
            Err(Refused::new(Code::UpstreamUnavailable, detail))
        }
    }
}
