# Cgroups of the cluster's Pods: one folder of our own at the top of each hierarchy, version 1, 2 or both.
# shellcheck shell=bash disable=SC2154

# Mount points, one a line.
cgroup_hierarchies() {
    awk '$3 == "cgroup" || $3 == "cgroup2" {print $2}' /proc/self/mounts | sort -u
}

make_cgroup() { # path below the top, its parent exists
    local top
    while read -r top; do
        # Version 2 hands controllers down by request; some may not be given, and the kubelet says which it misses.
        if [ -e "$top/cgroup.subtree_control" ]; then
            local controller
            for controller in cpu cpuset io memory pids; do
                echo "+$controller" 2>/dev/null >"$(dirname "$top/$1")/cgroup.subtree_control" || true
            done
        fi
        mkdir -p "$top/$1"
        # Version 1 gives a new set no processors, and nothing may run in it.
        if [ -e "$top/$1/cpuset.mems" ] && [ ! -e "$top/cgroup.subtree_control" ]; then
            cat "$top/cpuset.cpus" >"$top/$1/cpuset.cpus"
            cat "$top/cpuset.mems" >"$top/$1/cpuset.mems"
        fi
    done < <(cgroup_hierarchies)
}

# To be called when no process of the cluster is left; the kernel takes a moment to let go of the last ones.
remove_cgroups() {
    local top left
    for _ in $(seq 100); do
        left=
        while read -r top; do
            [ -d "$top/$cgroup" ] || continue
            find "$top/$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || left=$top/$cgroup
        done < <(cgroup_hierarchies)
        [ -z "$left" ] && return
        sleep 0.1
    done
    die 70 "$left does not go away: cat $left/cgroup.procs"
}
