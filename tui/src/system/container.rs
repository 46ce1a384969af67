//! Which container and pod a process is in, from the names that runtimes give to cgroups and mounts.

use std::fs;

/// Where a process lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The path of its cgroup.
    pub cgroup: String,
    /// Container id, 64 hexadecimal digits.
    pub container: Option<String>,
    /// Pod id.
    pub pod: Option<String>,
}

/// Where this process lives, as far as can be seen.
#[must_use]
pub fn place(pid: u32) -> Place {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    from_texts(&read("cgroup"), &read("mountinfo"))
}

/// The same from what the two files in `/proc/PID` hold.
#[must_use]
pub fn from_texts(cgroup: &str, mountinfo: &str) -> Place {
    // `hierarchy:controllers:path`; version 2 is the one without controllers, and the longest path says most.
    let paths = || cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let container = paths().find_map(container_in).or_else(|| mounted(mountinfo)).map(str::to_owned);
    Place {
        cgroup: paths().max_by_key(|path| path.len()).unwrap_or_default().to_owned(),
        container,
        pod: paths().find_map(pod_in),
    }
}

/// In a cgroup namespace the path says nothing, but files the runtime mounts lie in the container's folder.
fn mounted(mountinfo: &str) -> Option<&str> {
    let files = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (source, target) = (fields.next()?, fields.next()?);
        files.contains(&target).then(|| container_in(source))?
    })
}

/// The first run of exactly 64 hexadecimal digits.
fn container_in(path: &str) -> Option<&str> {
    let is_id = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    path.split(|character: char| !character.is_ascii_alphanumeric()).find(is_id)
}

/// The id behind `pod` (systemd writes its dashes as underscores).
fn pod_in(path: &str) -> Option<String> {
    path.match_indices("pod").find_map(|(at, found)| {
        let rest = path.get(at + found.len()..)?;
        let end = rest.find(|c: char| !c.is_ascii_hexdigit() && c != '-' && c != '_').unwrap_or(rest.len());
        let id = rest.get(..end)?.replace('_', "-");
        let groups: Vec<usize> = id.split('-').map(str::len).collect();
        // Pods that come from a file (static pods) have 32 digits without dashes.
        (groups == [8, 4, 4, 4, 12] || groups == [32]).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const POD: &str = "1a2b3c4d-0000-1111-2222-0123456789ab";

    fn of(cgroup: &str) -> (Option<String>, Option<String>) {
        let place = from_texts(cgroup, "");
        (place.container, place.pod)
    }

    #[test]
    fn runtimes_name_their_cgroups_in_many_ways() {
        let id = Some(ID.to_owned());
        let pod = Some(POD.to_owned());
        let under = POD.replace('-', "_");
        assert_eq!(of(&format!("0::/system.slice/docker-{ID}.scope\n")), (id.clone(), None));
        assert_eq!(of(&format!("12:pids:/docker/{ID}\n0::/\n")), (id.clone(), None));
        assert_eq!(of(&format!("0::/machine.slice/libpod-{ID}.scope/container\n")), (id.clone(), None));
        let systemd = format!("0::/kubepods.slice/kubepods-pod{under}.slice/cri-containerd-{ID}.scope\n");
        assert_eq!(of(&systemd), (id.clone(), pod.clone()));
        assert_eq!(of(&format!("4:memory:/kubepods/burstable/pod{POD}/{ID}\n")), (id, pod));
    }

    #[test]
    fn no_container_is_none() {
        for plain in ["", "0::/\n", "0::/user.slice/user-1000.slice/session-2.scope\n", "0::/podman/podium\n"]
        {
            assert_eq!(of(plain), (None, None), "{plain}");
        }
        assert_eq!(of(&format!("0::/x/{ID}0\n")), (None, None), "65 digits are no id");
    }

    #[test]
    fn a_namespaced_cgroup_leaves_the_mounts() {
        let layer = ID.replace('0', "f");
        let mountinfo = format!(
            "1 2 0:30 / / rw - overlay overlay rw,upperdir=/var/lib/docker/overlay2/{layer}/diff\n\
             3 2 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"
        );
        assert_eq!(from_texts("0::/\n", &mountinfo).container.as_deref(), Some(ID));
    }

    #[test]
    fn the_longest_path_is_the_cgroup() {
        assert_eq!(from_texts("4:memory:/a/b\n1:cpu:/\n0::/\n", "").cgroup, "/a/b");
        let own = place(std::process::id());
        assert!(own.cgroup.starts_with('/'), "{own:?}");
    }
}
