# What `up`, `down`, `env` and `status` do.
# shellcheck shell=bash disable=SC2154

# One `up` or `down` of a cluster at a time.
take_turn() {
    mkdir -p "$cache/run"
    lock=$cache/run/$name.lock
    # `down` takes the file away, so the one that was waited for may not be the one that is there now.
    until
        exec 7>"$lock"
        flock --wait 1200 7 || die 75 "another up or down of $name takes more than 20 minutes"
        [ "$lock" -ef /dev/fd/7 ]
    do :; done
}

up() { # nodes
    build
    take_turn
    local state
    state=$(recipe_state)
    if running && [ "$(cat "$run/ready" 2>/dev/null)" = "$state" ]; then
        say "$name runs already"
    else
        if running && [ -e "$run/ready" ]; then say "$name runs as an earlier recipe said: starting it anew"; fi
        # Of one that was stopped half-way, or whose machine went down.
        remove_all
        trap 'remove_all' EXIT
        start_namespaces
        make_cgroup "$cgroup"
        start_control_plane
    fi
    local number
    for number in $(seq 0 $(($1 - 1))); do
        add_node "$number"
    done
    until_true 60 'names inside the cluster' kubelet-node0 names_available
    echo "$built" >"$run/built"
    echo "$state" >"$run/ready"
    trap - EXIT
    say "$name is ready: conformance/cluster kubectl --name $name get nodes"
}

names_available() {
    as_administrator kubectl --namespace kube-system wait --for=condition=Available deployment/dns --timeout=10s
}

# What decides how a cluster comes up.
recipe_state() {
    cd "$here/kubernetes" && find modules recipe manifests -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c 1-16
}

add_node() { # number
    local folder
    folder=$run/nodes/$(node_name "$1")
    [ -e "$folder/ready" ] && return
    [ -d "$folder" ] && die 70 "$(node_name "$1") was left half-way: conformance/cluster down --name $name, then up"
    start_node "$1"
    touch "$folder/ready"
}

down() {
    take_turn
    if [ -d "$run" ]; then
        ended_parts
        [ ! -d "$run/logs" ] || keep_logs || say 'its logs could not be kept'
        remove_all
        say "$name is down, its logs are in $cache/logs/$name"
    else
        say "$name does not run"
    fi
    rm "$lock"
}

remove_all() {
    trap - EXIT
    end_namespaces
    remove_cgroups
    # Mounts went with their namespace, so that nothing below is anything but files.
    rm -rf "$run"
}

# What a test needs to find this cluster. The network can be entered by its path, as long as the cluster runs.
print_environment() {
    printf 'export CASEMATE_KUBECONFIG=%q CASEMATE_KUBECTL=%q CASEMATE_HELM=%q\n' "$kubeconfig" "$bin/kubectl" "$bin/helm"
    printf 'export CASEMATE_CLUSTER_NETWORK=%q CASEMATE_CLUSTER_AUDIT=%q\n' "/proc/$(holder)/ns/net" "$run/audit.log"
}

print_status() {
    if ! running; then
        echo "$name does not run"
        exit 3
    fi
    if ! [ -e "$run/ready" ]; then
        echo "$name was started and is not ready: conformance/cluster up --name $name starts it anew"
        exit 3
    fi
    need_running
    echo "$name runs: PID 1 is process $(holder), kubeconfig $kubeconfig, audit log $run/audit.log, logs $run/logs"
    local guard=(timeout -k 5 30)
    as_administrator kubectl get nodes --output wide
    # A cluster that a part is missing of answers for a while as if nothing were.
    if [ -n "$(ended_parts)" ]; then
        ended_parts
        exit 4
    fi
}
