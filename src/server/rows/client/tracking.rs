//! CLIENT TRACKING and its kin.

use crate::resp::{Error, Request, Result};
use crate::server::client::line::redirection;
use crate::server::client::tracks::{Mode, Tracks};
use crate::server::run::rights::may_reach;
use crate::server::state::{Server, SessionCtx, TaskCtx};
use crate::server::told::tracking;
use std::collections::BTreeSet;

const SWITCHED_BROADCAST: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
                                  then re-enabling it with a different mode.";
const SWITCHED_OPTIONS: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                                re-enabling it with a different mode.";

/// What CLIENT TRACKING is asked for.
#[derive(Default)]
struct Options<'r> {
    redirect: Option<(u64, usize)>,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
    prefixes: Vec<&'r [u8]>,
}

impl<'r> Options<'r> {
    async fn parse(ctx: &TaskCtx, request: Request<'r>) -> Result<Options<'r>> {
        let mut options = Options::default();
        let mut index = 3;
        while index < request.len() {
            let has_value = index + 1 < request.len();
            if request.is(index, "redirect") && has_value {
                index += 1;
                if options.redirect.is_some() {
                    return Err(Error::text("ERR A client can only redirect to a single other client"));
                }
                options.redirect = redirect(ctx, request.int(index)?).await?;
            } else if request.is(index, "bcast") {
                options.broadcast = true;
            } else if request.is(index, "optin") {
                options.opt_in = true;
            } else if request.is(index, "optout") {
                options.opt_out = true;
            } else if request.is(index, "noloop") {
                options.no_loop = true;
            } else if request.is(index, "prefix") && has_value {
                index += 1;
                options.prefixes.push(request.arg(index));
            } else {
                return Err(Error::Syntax);
            }
            index += 1;
        }
        Ok(options)
    }

    fn mode(&self) -> Mode {
        match self {
            Options { broadcast: true, .. } => Mode::Broadcast,
            Options { opt_in: true, .. } => Mode::OptIn,
            Options { opt_out: true, .. } => Mode::OptOut,
            _ => Mode::All,
        }
    }

    /// How the connection tracks from now on, but for its prefixes, and which of these are new; `before` is how it does
    /// already.
    fn tracks(&self, before: Option<&Tracks>) -> Result<(Tracks, Vec<Box<[u8]>>)> {
        let mode = self.mode();
        if !self.broadcast && !self.prefixes.is_empty() {
            return Err(Error::text("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if before.is_some_and(|before| (before.mode == Mode::Broadcast) != self.broadcast) {
            return Err(Error::text(SWITCHED_BROADCAST));
        }
        if self.broadcast && (self.opt_in || self.opt_out) {
            return Err(Error::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.opt_in && self.opt_out {
            return Err(Error::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        if before.is_some_and(|before| {
            matches!((before.mode, mode), (Mode::OptIn, Mode::OptOut) | (Mode::OptOut, Mode::OptIn))
        }) {
            return Err(Error::text(SWITCHED_OPTIONS));
        }
        let tracks = Tracks {
            mode,
            no_loop: self.no_loop,
            redirect: self.redirect,
            is_broken: false,
            caching: before.is_some_and(|before| before.caching),
            prefixes: BTreeSet::new(),
        };
        if let Some((prefix, other, exists)) = before.unwrap_or(&tracks).collision(&self.prefixes) {
            let with: &[u8] = if exists { b"an existing" } else { b"another provided" };
            let end = b"'. Prefixes for a single client must not overlap.";
            return Err(Error::quoting(&[
                b"ERR Prefix '",
                prefix,
                b"' overlaps with ",
                with,
                b" prefix '",
                other,
                end,
            ]));
        }
        let mut added: Vec<Box<[u8]>> = self.prefixes.iter().map(|prefix| Box::from(*prefix)).collect();
        if self.broadcast && self.prefixes.is_empty() {
            added.push(Box::default());
        }
        Ok((tracks, added))
    }
}

/// The connection to be told instead, with its shard.
async fn redirect(ctx: &TaskCtx, id: i64) -> Result<Option<(u64, usize)>> {
    let unknown = Error::text("ERR The client ID you want redirect to does not exist");
    let Ok(id) = u64::try_from(id) else { return Err(unknown) };
    let is_here = ctx.server.shard.call_all(move |shard| Server::of(shard).client(id).is_some()).await;
    match is_here.iter().position(|is_here| *is_here) {
        Some(shard) => Ok(Some((id, shard))),
        None => Err(unknown),
    }
}

pub async fn tracking(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let options = Options::parse(&ctx, request).await?;
    if request.is(2, "on") {
        let (tracks, added) = options.tracks(ctx.client.state.borrow().session.tracks.as_deref())?;
        // Who is told of changes learns the names of keys.
        if options.broadcast {
            added.iter().try_for_each(|prefix| may_reach(&ctx, prefix, |selector| selector.reads_prefix(prefix)))?;
        }
        tracking::start(&ctx.server, &ctx.client, tracks, added).await;
    } else if request.is(2, "off") {
        tracking::stop(&ctx.server, &ctx.client).await;
    } else {
        return Err(Error::Syntax);
    }
    Ok(ctx.reply(|reply| reply.ok()))
}

pub fn caching(ctx: &mut SessionCtx, request: Request) -> Result {
    let Some(tracks) = &ctx.session.tracks else {
        return Err(Error::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    let mode = if request.is(2, "yes") {
        Mode::OptIn
    } else if request.is(2, "no") {
        Mode::OptOut
    } else {
        return Err(Error::Syntax);
    };
    if tracks.mode != mode {
        return Err(Error::text(match mode {
            Mode::OptIn => "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            _ => "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        }));
    }
    ctx.session.set_caching(true, ctx.server.shard.id);
    ctx.reply.ok();
    Ok(())
}

pub fn getredir(ctx: &mut SessionCtx, _: Request) -> Result {
    ctx.reply.int(redirection(ctx.session.tracks.as_deref()));
    Ok(())
}

pub fn trackinginfo(ctx: &mut SessionCtx, _: Request) -> Result {
    let tracks = ctx.session.tracks.as_deref();
    let has = |says: fn(&Tracks) -> bool| tracks.is_some_and(says);
    let flags = [
        (tracks.is_none(), "off"),
        (tracks.is_some(), "on"),
        (has(|tracks| tracks.mode == Mode::Broadcast), "bcast"),
        (has(|tracks| tracks.mode == Mode::OptIn), "optin"),
        (has(|tracks| tracks.mode == Mode::OptIn && tracks.caching), "caching-yes"),
        (has(|tracks| tracks.mode == Mode::OptOut), "optout"),
        (has(|tracks| tracks.mode == Mode::OptOut && tracks.caching), "caching-no"),
        (has(|tracks| tracks.no_loop), "noloop"),
        (has(|tracks| tracks.is_broken), "broken_redirect"),
    ];
    let flags: Vec<&str> = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    let reply = &mut ctx.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.int(redirection(tracks));
    reply.bulk(b"prefixes");
    reply.array(tracks.map_or(0, |tracks| tracks.prefixes.len()));
    tracks.iter().flat_map(|tracks| &tracks.prefixes).for_each(|prefix| reply.bulk(prefix));
    Ok(())
}
