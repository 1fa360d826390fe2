//! All users at a moment.

use super::rule::ModifierError;
use super::user::User;
use super::vocabulary::Vocabulary;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The user that connections have which have not said who they are. It is always there.
pub const DEFAULT: &[u8] = b"default";

/// The users by name. A change makes another of it, whose unchanged users are the same as before.
#[derive(Clone, Debug)]
pub struct Users {
    pub(super) by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    pub(super) next_id: u64,
}

impl Users {
    /// The default user alone, who may do everything.
    pub fn new(vocabulary: &Vocabulary) -> Users {
        let default = Arc::new(User::everything(vocabulary, 0, DEFAULT));
        Users { by_name: BTreeMap::from([(DEFAULT.into(), default)]), next_id: 1 }
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    pub fn default_user(&self) -> &Arc<User> {
        self.get(DEFAULT).expect("the default user is never removed")
    }

    /// By their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// Makes or modifies a user by rules, all or none of them. The name was looked at before.
    pub fn modify(
        &mut self,
        vocabulary: &Vocabulary,
        name: &[u8],
        rules: &[&[u8]],
        all_channels: bool,
    ) -> Result<(), ModifierError> {
        let mut user = match self.get(name) {
            Some(user) => (**user).clone(),
            None => User::new(vocabulary, self.next_id, name, all_channels),
        };
        user.modify(vocabulary, rules, all_channels)?;
        self.put(user);
        Ok(())
    }

    pub(super) fn put(&mut self, user: User) {
        self.next_id = self.next_id.max(user.id + 1);
        self.by_name.insert(user.name.clone(), Arc::new(user));
    }

    /// Puts others in the place of all. Numbers that were given meanwhile are not given again.
    pub fn replace_by(&mut self, others: Users) {
        let next_id = self.next_id.max(others.next_id);
        *self = Users { next_id, ..others };
    }

    /// Makes the default user what it was before.
    pub fn put_default_back(&mut self, user: Arc<User>) {
        self.by_name.insert(DEFAULT.into(), user);
    }

    /// Removes a user, who is not the default one; whether there was such a user.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT && self.by_name.remove(name).is_some()
    }

    /// The only password of the default user is this one from now on; none where it is empty.
    pub fn require(&mut self, password: &[u8]) {
        let mut user = (**self.default_user()).clone();
        user.require(password);
        self.put(user);
    }
}
