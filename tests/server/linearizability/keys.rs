//! Keys on known shards. A server hashes with a seed of its own, so where a key lives has to be asked.

use super::history::Key;
use crate::common::{Client, Kind, Server, int};

/// Tags that are tried until each shard has one: of a million servers with four shards
/// not one is left without.
const TAGS_MAX: usize = 60;

/// The same number of keys on every shard.
pub struct Keys {
    on_the_wire: Vec<String>,
    per_shard: usize,
}

/// A tag for each shard of a server that is empty: keys with `{tag}` in their names live there.
pub fn tags(server: &Server) -> Vec<String> {
    let Kind::Ember { shards } = server.kind() else {
        return vec!["0".to_string()];
    };
    let mut client = server.client();
    let mut found = vec![None; shards];
    for tag in (0..TAGS_MAX).map(|number| number.to_string()) {
        let shard = shard_of(&mut client, &format!("{{{tag}}}"), shards);
        found[shard].get_or_insert(tag);
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.into_iter().map(|tag| tag.expect("a tag for every shard")).collect()
}

/// The only key there is shows in INFO on its shard.
fn shard_of(client: &mut Client, key: &str, shards: usize) -> usize {
    client.call(&format!("SET {key} 1"));
    let info = client.call("INFO shards").text();
    assert_eq!(client.call(&format!("DEL {key}")), int(1));
    let holds = |shard: &usize| info.contains(&format!("shard{shard}:keys=1,"));
    (0..shards).find(holds).unwrap_or_else(|| panic!("{key} is on no shard:\n{info}"))
}

impl Keys {
    pub fn on_every_shard(server: &Server, count: usize) -> Keys {
        let tags = tags(server);
        let per_shard = count.div_ceil(tags.len());
        let on_shard = |tag: &String| (0..per_shard).map(|key| format!("{{{tag}}}{}", letter(key))).collect::<Vec<_>>();
        Keys { on_the_wire: tags.iter().flat_map(on_shard).collect(), per_shard }
    }

    pub fn len(&self) -> Key {
        self.on_the_wire.len() as Key
    }

    pub fn on_the_wire(&self, key: Key) -> &str {
        &self.on_the_wire[usize::from(key)]
    }

    /// As in a history: the number of the shard and a letter.
    pub fn names(&self) -> Vec<String> {
        (0..self.on_the_wire.len())
            .map(|key| format!("{}{}", key / self.per_shard, letter(key % self.per_shard)))
            .collect()
    }
}

fn letter(key: usize) -> char {
    char::from(b'a' + key as u8)
}
