//! Collecting what scripts and functions have left, while others have their turns.

use super::Server;
use super::scripting::collect;
use crate::executor;
use crate::net::note_woken;
use futures_lite::future::yield_now;
use std::rc::Rc;

/// Begins to collect, if there is much.
pub fn tidy(server: &Rc<Server>) {
    let scripting = &server.scripting;
    if scripting.untidy().is_none() || scripting.is_collecting.replace(true) {
        return;
    }
    let server = server.clone();
    note_woken();
    executor::spawn(async move {
        yield_now().await;
        while let Some(machine) = server.scripting.untidy() {
            collect(&machine).await;
        }
        server.scripting.is_collecting.set(false);
    });
}
