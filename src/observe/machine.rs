//! What the machine has, as far as this process may use it.

use std::fs::read_to_string;

/// Bytes of memory of the machine, or of the process's control group, where that has fewer.
pub fn memory_bytes() -> u64 {
    let of_group = read_to_string("/proc/self/cgroup").ok().and_then(|groups| group_memory_bytes(&groups, read));
    of_group.unwrap_or(u64::MAX).min(physical_bytes())
}

pub fn physical_bytes() -> u64 {
    system(libc::_SC_PHYS_PAGES) * system(libc::_SC_PAGESIZE)
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> u64 {
    let statm = read("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * system(libc::_SC_PAGESIZE)
}

/// A number that the system knows; 0 where it does not.
pub fn system(name: libc::c_int) -> u64 {
    // SAFETY: takes a number, touches no memory of ours.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0)
}

fn read(path: &str) -> Option<String> {
    read_to_string(path).ok()
}

/// The least limit of the groups in which `/proc/self/cgroup` says that the process is, and of those around them.
fn group_memory_bytes(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let limits = ends.filter_map(|end| read(&format!("{root}{}/{file}", &path[..end]))?.trim().parse::<u64>().ok());
        limits.collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_around_it_counts() {
        let files = |path: &str| {
            Some(match path {
                "/sys/fs/cgroup/memory.max" => "max\n".to_owned(),
                "/sys/fs/cgroup/a/memory.max" => "5000\n".to_owned(),
                "/sys/fs/cgroup/a/b/memory.max" => "7000\n".to_owned(),
                "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => "6000\n".to_owned(),
                _ => return None,
            })
        };
        assert_eq!(group_memory_bytes("0::/a/b\n", files), Some(5000));
        assert_eq!(group_memory_bytes("0::/\n", files), None);
        assert_eq!(group_memory_bytes("12:cpu:/c\n4:hugetlb,memory:/c\n0::/\n", files), Some(6000));
        assert_eq!(group_memory_bytes("no such line", files), None);
        assert!(memory_bytes() > 0 && memory_bytes() <= physical_bytes());
    }
}
