//! What it costs that a key lives on another shard than its connection (`foreign-key`): the same reads over
//! connections of one shard, of keys of that shard (`local`) and of keys of another one (`foreign`), in turn.
//!
//! Keys of one hash tag live on one shard. INFO says which that is, and which shard serves a connection: a shard's
//! `keys` rise when a key is set there, its `commands` with what its connections ask. Nobody else may use the server
//! meanwhile.

use crate::encode::KeyForm;
use crate::failure::{Failure, Result};
use crate::flags::Flags;
use crate::load;
use crate::metric::LOAD;
use crate::report::{Report, Rounds};
use crate::round::Plan;
use emberdb::measure::client::{Client, Login};
use emberdb::measure::target::Target;
use serde_json::json;

/// Tags tried for each shard; that one is left without a key has no chance.
const TAGS_A_SHARD: usize = 100;
/// Connections opened for each that is wanted, a shard.
const OPENED_A_SHARD: usize = 10;
/// Commands by which a connection is told from what else happens.
const KNOCKS: usize = 100;

/// Rounds on each shard in turn: a server's shards may differ in what else their cores do.
pub fn run(flags: &Flags) -> Result<Report<'_>> {
    let plan = Plan::new(flags);
    let target = &flags.targets[0];
    let mut client = Client::open(target, &plan.login)?;
    let tags = tags(&mut client, target)?;
    let prefix = plan.recipe.form.prefix.clone();
    let of_shard = |shard: usize| {
        let mut plan = plan.clone();
        plan.recipe.form = KeyForm::new(&format!("{{{}}}{prefix}", tags[shard]), flags.key_size as usize, flags.keys());
        plan
    };
    let mut plans: Vec<Plan> = (0..tags.len()).map(of_shard).collect();
    if flags.loads() {
        for plan in &plans {
            load::keys(plan, target, &plan.recipe.load())?;
        }
    }
    plans[0].set_rate(flags.rate, target)?;
    let rate = plans[0].rate;
    plans.iter_mut().for_each(|plan| plan.rate = rate);
    let mut targets = ["local", "foreign"].map(|name| Rounds::new(&Target { name: name.into(), ..target.clone() }));
    for round in 0..flags.rounds() as usize {
        let home = round % plans.len();
        for (rounds, keys) in targets.iter_mut().zip([home, (home + 1) % plans.len()]) {
            // Those of other shards stay open, silent, until the round is over.
            let (connections, _others) = connect(&mut client, target, &plan.login, home, plan.connections)?;
            let result = plans[keys].run_over(target, connections)?;
            load::keep(rounds, &plans[keys], result, json!({ "connections_on_shard": home, "keys_on_shard": keys }));
        }
    }
    let remarks = vec![
        "Local: keys of the shard that serves the connections; foreign: keys of another. Rounds take turns among the \
         shards."
            .to_owned(),
    ];
    Ok(Report { flags, title: load::title(flags, &plans[0]), metrics: LOAD, targets: targets.into(), remarks })
}

/// A hash tag for each shard, all of one length.
fn tags(client: &mut Client, target: &Target) -> Result<Vec<String>> {
    let shards = by_shard(client, "keys")?.len();
    if shards < 2 {
        return Err(Failure::Unfit(format!("{target} does not tell of two shards or more in INFO (shard0:keys=...)")));
    }
    let mut tags = vec![None; shards];
    for number in 0..TAGS_A_SHARD * shards {
        let tag = format!("{number:05}");
        let probe = format!("{{{tag}}}probe");
        client.call(&[b"DEL", probe.as_bytes()])?;
        let before = by_shard(client, "keys")?;
        client.call(&[b"SET", probe.as_bytes(), b""])?;
        let after = by_shard(client, "keys")?;
        client.call(&[b"DEL", probe.as_bytes()])?;
        if let Some(shard) = risen(&before, &after, 1) {
            tags[shard] = Some(tag);
        }
        if tags.iter().all(Option::is_some) {
            return Ok(tags.into_iter().flatten().collect());
        }
    }
    Err(Failure::Unfit(format!("{target}: cannot tell where keys live; somebody else is using it")))
}

/// As many connections as are wanted that one shard serves, and others that came along.
fn connect(
    client: &mut Client,
    target: &Target,
    login: &Login,
    home: usize,
    wanted: usize,
) -> Result<(Vec<Client>, Vec<Client>)> {
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    let mut shards = 1;
    while here.len() < wanted {
        if here.len() + elsewhere.len() == wanted * shards * OPENED_A_SHARD {
            return Err(Failure::Unfit(format!("{target}: too few connections on shard {home}")));
        }
        let mut connection = Client::open(target, login)?;
        let before = by_shard(client, "commands")?;
        for _ in 0..KNOCKS {
            connection.call(&[b"PING"])?;
        }
        let after = by_shard(client, "commands")?;
        shards = after.len();
        let served_here = risen(&before, &after, KNOCKS as u64) == Some(home);
        if served_here { here.push(connection) } else { elsewhere.push(connection) }
    }
    Ok((here, elsewhere))
}

/// The shard whose count rose by so much or more, if that is one alone.
fn risen(before: &[u64], after: &[u64], by: u64) -> Option<usize> {
    let mut risen = (0..before.len()).filter(|&shard| after[shard] >= before[shard] + by);
    risen.next().filter(|_| risen.next().is_none())
}

/// A field of every shard's line in INFO; nothing where there are no such lines.
fn by_shard(client: &mut Client, field: &str) -> Result<Vec<u64>> {
    let info = client.info("everything")?;
    let lines = (0..).map_while(|shard| info.get(&format!("shard{shard}")));
    Ok(lines.map_while(|line| field_of(line, field)).collect())
}

/// `keys` of `keys=3,expires=0`.
fn field_of(line: &str, field: &str) -> Option<u64> {
    line.split(',').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == field)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_alone_has_risen() {
        assert_eq!(risen(&[5, 7], &[5, 8], 1), Some(1));
        assert_eq!(risen(&[5, 7], &[107, 8], 100), Some(0));
        assert_eq!(risen(&[5, 7], &[6, 8], 1), None);
        assert_eq!(risen(&[5, 7], &[5, 7], 1), None);
    }

    #[test]
    fn fields_of_a_shard() {
        let line = "keys=3,expires=0,bytes=12,connections=2,commands=77";
        assert_eq!((field_of(line, "keys"), field_of(line, "commands")), (Some(3), Some(77)));
        assert_eq!(field_of(line, "expire"), None);
    }
}
