# The cluster's network, mount and PID namespaces: one process holds them, and all of the cluster ends with it.
# shellcheck shell=bash disable=SC2154

start_namespaces() {
    case $run/ in
    /run/* | /var/log/* | /var/lib/*) die 73 "this checkout lies below /run, /var/log or /var/lib, which a cluster has its own of: move it" ;;
    esac
    mkdir -p "$run"/{logs,pids,ended,var-log,volumes,nodes}
    # Its parent tells this shell nothing: the holder is to outlive it. It has none of the shell's locks.
    setsid unshare --net --mount --pid --fork --kill-child --propagation private -- \
        "$recipe/init" "$run" "$api_address" >"$run/logs/init.log" 2>&1 </dev/null 7>&- &
    until_true 20 'the namespaces' init test -s "$run/init"
}

# Is the process that `init` names the one it named? A pid alone may be somebody else's by now.
running() {
    [ -s "$run/init" ] || return
    local pid started stat
    read -r pid started <"$run/init"
    { read -r -a stat <"/proc/$pid/stat"; } 2>/dev/null || return
    # Field 3 is the state: one that was killed and not yet reaped is not there any more.
    [ "${stat[21]}" = "$started" ] && [ "${stat[2]}" != Z ]
}

need_running() {
    running && [ -e "$run/ready" ] || die 3 "$name does not run: conformance/cluster up --name $name"
    # Its programs may be gone by now.
    [ "$(cat "$run/ready")" = "$(recipe_state)" ] && read -r built <"$run/built" && [ -d "$built" ] ||
        die 3 "$name runs as an earlier recipe said: conformance/cluster up --name $name starts it anew"
    bin=$built/bin
}

holder() { cut -d ' ' -f 1 "$run/init"; }

# How long what is started in the cluster may take: a command line to put before, which callers set for what they call.
guard=()

# A program in all namespaces, with the cluster's programs in PATH.
inside() { # command...
    "${guard[@]}" nsenter --target "$(holder)" --net --mount --pid --wdns="$PWD" -- \
        env PATH="$bin:$PATH" KUBECONFIG="$kubeconfig" KUBECACHEDIR="$run/kubectl" "$@"
}

# kubectl needs the network alone, and sees files as its caller does.
as_administrator() { # kubectl ARGUMENT...
    local program=$1
    shift
    "${guard[@]}" env KUBECONFIG="$kubeconfig" KUBECACHEDIR="$run/kubectl" nsenter --target "$(holder)" --net -- "$bin/$program" "$@"
}

end_namespaces() {
    running || return 0
    local pid
    pid=$(holder)
    kill -KILL "$pid"
    # It is gone only when the last process of the namespace is.
    for _ in $(seq 200); do
        running || return 0
        sleep 0.05
    done
    die 70 "process $pid does not end: look at /proc/$pid/stack"
}
