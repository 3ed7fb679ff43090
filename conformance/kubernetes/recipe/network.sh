# Services, network policy, and the links between nodes.
# shellcheck shell=bash disable=SC2154

# A node of its own hangs on the first by a pair of links, and each has a route to the other's Pods.
join_network() { # number
    local number=$1 node address link
    node=$(node_name "$number") address=$(node_address "$number") link=$(link_address "$number")
    inside ip netns add "$node"
    inside ip link add "to-$node" type veth peer name to-node0 netns "$node"
    inside ip address add "$link/30" dev "to-$node"
    inside ip link set "to-$node" up
    inside ip route add "$(node_pods "$number")" via "$address"
    inside ip -n "$node" address add "$address/30" dev to-node0
    inside ip -n "$node" link set to-node0 up
    inside ip -n "$node" link set lo up
    inside ip -n "$node" route add default via "$link"
    inside nsenter --net="/run/netns/$node" -- sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
}

start_network_parts() { # number
    local number=$1 node
    node=$(node_name "$number")
    # The machine's table of connections is not ours to size.
    cat >"$run/nodes/$node/proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: $pods
hostnameOverride: $node
clientConnection: {kubeconfig: $run/proxy.kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}
END
    start_at "$number" "proxy-$node" kube-proxy --config "$run/nodes/$node/proxy.yaml"
    start_at "$number" "router-$node" kube-router --kubeconfig "$run/router.kubeconfig" --hostname-override "$node" \
        --run-firewall=true --run-router=false --run-service-proxy=false --enable-cni=false \
        --service-cluster-ip-range "$services" --health-port 0
}
