# Names, addresses and places. 198.18.0.0/15 is set aside for tests of networks (RFC 2544), so it is nobody's.
# shellcheck shell=bash disable=SC2034

modules=$here/kubernetes/modules
manifests=$here/kubernetes/manifests
cache=$here/.cache/cluster

services=198.19.0.0/24
first_service=198.19.0.1
pods=198.18.0.0/16
api_address=198.18.255.1
api_server=https://$api_address:6443

node_name() { echo "node$1"; } # number
node_pods() { echo "198.18.$1.0/24"; } # number
# The first node is where the control plane is; others hang on it by a link of their own, a /30 each.
node_address() { if [ "$1" -eq 0 ]; then echo "$api_address"; else echo "198.18.254.$((4 * $1 + 2))"; fi; } # number
link_address() { echo "198.18.254.$((4 * $1 + 1))"; } # number

say() { printf '== %s (%ds)\n' "$*" "$SECONDS"; }
die() { # exit code, words
    local code=$1
    shift
    printf 'conformance/cluster: %s\n' "$*" >&2
    exit "$code"
}

need_root() {
    [ "$(id -u)" -eq 0 ] || die 77 'needs root, for namespaces, cgroups and mounts. Run it as root, or in a virtual machine of yours'
}

need_namespaces() {
    unshare --net --mount --pid --fork --mount-proc --propagation private -- mount -t tmpfs tmpfs /run 2>/dev/null ||
        die 71 'this root may not make namespaces and mounts (in a container it needs CAP_SYS_ADMIN)'
}

# All that depends on the cluster's name.
settle_names() {
    [[ $name =~ ^[a-z0-9-]{1,20}$ ]] || die 64 "--name $name: lower-case letters, digits and -, 20 at most"
    [[ ${nodes:-1} =~ ^[1-8]$ ]] || die 64 "--nodes $nodes: a number from 1 to 8"
    run=$cache/run/$name
    # Two checkouts may have clusters of one name: the machine's cgroups are shared by all of them.
    cgroup=casemate-$name-$(printf %s "$run" | sha256sum | cut -c 1-8)
    kubeconfig=$run/admin.kubeconfig
}
