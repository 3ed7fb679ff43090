# A node: containerd, kubelet, kube-proxy and kube-router, in a network of its own.
# shellcheck shell=bash disable=SC2154

start_node() { # number
    local number=$1 node folder address sockets guard=()
    node=$(node_name "$number") address=$(node_address "$number")
    folder=$run/nodes/$node
    # The same folder by its short name inside.
    sockets=/run/nodes/$node
    mkdir -p "$folder"
    [ "$number" -eq 0 ] || join_network "$number"
    make_cgroup "$cgroup/$node"
    node_configuration "$folder" "$number"
    certificate "$node-serving" "/CN=system:node:$node/O=system:nodes" extendedKeyUsage=serverAuth "subjectAltName=IP:$address,DNS:$node"
    client "$node" "/CN=system:node:$node/O=system:nodes" "$folder/kubeconfig"

    start_at "$number" "containerd-$node" containerd --config "$folder/containerd.toml"
    until_true 60 "$node's containerd" "containerd-$node" inside ctr --address "$sockets/containerd.sock" version
    local image
    guard=(timeout -k 5 120)
    for image in "$built"/images/*.tar; do
        inside ctr --address "$sockets/containerd.sock" --namespace k8s.io images import "$image" >>"$run/logs/images.log" 2>&1 ||
            explain images "$node's containerd does not take $image"
    done
    guard=()
    start_at "$number" "kubelet-$node" kubelet --config "$folder/kubelet.yaml" --kubeconfig "$folder/kubeconfig" \
        --hostname-override "$node" --node-ip "$address" --root-dir "$sockets/kubelet" --cert-dir "$folder/kubelet/pki"
    until_true 90 "$node to be registered" "kubelet-$node" as_administrator kubectl get node "$node"
    guard=(timeout -k 5 60)
    as_administrator kubectl patch node "$node" --patch "{\"spec\":{\"podCIDR\":\"$(node_pods "$number")\"}}" >>"$run/logs/apply.log" 2>&1 ||
        explain apply "$node does not take its podCIDR"
    guard=()
    start_network_parts "$number"
    until_true 90 "$node to be Ready" "kubelet-$node" as_administrator kubectl wait --for=condition=Ready "node/$node" --timeout=5s
}

# What its programs read.
node_configuration() { # folder, number
    local folder=$1 number=$2 node sockets snapshotter=overlayfs
    node=$(node_name "$number") sockets=/run/nodes/$node
    # Where the checkout lies on an overlay itself, a second one on top may be refused.
    mkdir -p "$folder/overlay"/{lower,upper,work,merged} "$folder/cni"
    inside sh -c "mount -t overlay -o lowerdir=$folder/overlay/lower,upperdir=$folder/overlay/upper,workdir=$folder/overlay/work overlay $folder/overlay/merged && umount $folder/overlay/merged" 2>/dev/null ||
        snapshotter=native
    # ptp: every packet between Pods is routed, so network policy needs no bridge that filters.
    cat >"$folder/cni/pods.conflist" <<END
{"cniVersion": "1.0.0", "name": "pods-$node", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "$folder/addresses",
    "ranges": [[{"subnet": "$(node_pods "$number")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
    # restrict_oom_score_adj: root of a container may not lower the score, and runc gives up where it cannot.
    cat >"$folder/containerd.toml" <<END
version = 3
root = "$folder/containerd"
state = "/run/$node"
[plugins."io.containerd.internal.v1.opt"]
  path = "$folder/opt"
[grpc]
  address = "$sockets/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "$snapshotter"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "$folder/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
END
    cat >"$folder/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: $run/pki/ca.crt}, anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
tlsCertFile: $run/pki/$node-serving.crt
tlsPrivateKeyFile: $run/pki/$node-serving.key
containerRuntimeEndpoint: unix://$sockets/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup/$node
failCgroupV1: false
failSwapOn: false
clusterDNS: [198.19.0.10]
clusterDomain: cluster.local
resolvConf: ""
volumePluginDir: $run/no-plugins
# Each kubelet deletes the logs of Pods that it does not know.
podLogsDir: /var/log/$node
# The disk is the machine's: what others fill it with is no reason to evict Pods.
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: "100Mi"}
imageGCHighThresholdPercent: 100
END
}
