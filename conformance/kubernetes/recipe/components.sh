# Starting parts of the cluster and waiting for them.
# shellcheck shell=bash disable=SC2154

# In the background, as a child of the cluster's PID 1.
start() { # name, command...
    start_at 0 "$@"
}

# The same in the network of a node.
start_at() { # node's number, name, command...
    local node=$1 part=$2
    shift 2
    local network=()
    # Not `ip netns exec`, which mounts /sys anew, without cgroups.
    [ "$node" -ne 0 ] && network=(nsenter --net="/run/netns/$(node_name "$node")" --)
    inside setsid --fork "$recipe/component" "$run" "$part" "${network[@]}" "$@" 7>&- >/dev/null 2>&1
}

# Waits until a command succeeds. Ends with the part's last words where it takes too long or the part has ended.
until_true() { # seconds, what for, the part that is to do it, command...
    local limit=$1 what=$2 part=$3 begun=$SECONDS guard=(timeout -k 2 20)
    shift 3
    say "waiting for $what"
    until "$@" >/dev/null 2>&1; do
        [ -e "$run/ended/$part" ] && explain "$part" "$part ended with $(cat "$run/ended/$part")"
        [ $((SECONDS - begun)) -ge "$limit" ] && explain "$part" "$what: not within $limit s"
        sleep 0.2
    done
}

# What `down` removes is of use to whoever asks afterwards why. Of the last ten clusters, and no more.
keep_logs() {
    mkdir -p "$cache/logs"
    rm -rf "$cache/logs/$name"
    cp -r "$run/logs" "$cache/logs/$name"
    find "$cache/logs" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +11 | cut -d ' ' -f 2- | xargs -r rm -rf
}

# The parts that have ended by themselves, a line each.
ended_parts() {
    local ended
    for ended in "$run"/ended/*; do
        [ -e "$ended" ] && echo "ENDED: ${ended##*/} with $(cat "$ended")"
    done
    return 0
}

explain() { # part, words
    {
        printf -- '-- last lines of %s\n' "$run/logs/$1.log"
        tail -n 30 "$run/logs/$1.log" | cut -c 1-400 || true
        keep_logs && echo "-- all logs: $cache/logs/$name"
    } >&2
    die 70 "$2"
}
