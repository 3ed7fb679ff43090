# etcd, API server, controller manager and scheduler.
# shellcheck shell=bash disable=SC2154

start_control_plane() {
    say 'certificates'
    make_authority
    certificate api-server /CN=kube-apiserver extendedKeyUsage=serverAuth \
        "subjectAltName=IP:$api_address,IP:$first_service,IP:127.0.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost"
    certificate api-server-client /CN=kube-apiserver/O=system:masters extendedKeyUsage=clientAuth
    client admin /CN=admin/O=system:masters "$kubeconfig"
    client controller-manager /CN=system:kube-controller-manager "$run/controller-manager.kubeconfig"
    client scheduler /CN=system:kube-scheduler "$run/scheduler.kubeconfig"
    client proxy /CN=system:kube-proxy "$run/proxy.kubeconfig"
    client router /CN=casemate-conformance:router "$run/router.kubeconfig"
    client storage /CN=casemate-conformance:storage "$run/storage.kubeconfig"

    # No more durable than the cluster: its data goes with `down`.
    start etcd etcd --data-dir "$run/etcd" --unsafe-no-fsync \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
        --initial-cluster default=http://127.0.0.1:2380
    local pki=$run/pki
    start api-server kube-apiserver --etcd-servers http://127.0.0.1:2379 \
        --bind-address 0.0.0.0 --advertise-address "$api_address" --secure-port 6443 --service-cluster-ip-range "$services" \
        --tls-cert-file "$pki/api-server.crt" --tls-private-key-file "$pki/api-server.key" --client-ca-file "$pki/ca.crt" \
        --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/tokens.pub" \
        --service-account-signing-key-file "$pki/tokens.key" \
        --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged --anonymous-auth=false --profiling=false \
        --kubelet-client-certificate "$pki/api-server-client.crt" --kubelet-client-key "$pki/api-server-client.key" \
        --kubelet-certificate-authority "$pki/ca.crt" --kubelet-preferred-address-types InternalIP \
        --audit-policy-file "$manifests/audit-policy.yaml" --audit-log-path "$run/audit.log" --audit-log-maxsize 1024
    until_true 90 'the API server' api-server as_administrator kubectl get --raw /readyz

    start controller-manager kube-controller-manager --kubeconfig "$run/controller-manager.kubeconfig" --leader-elect=false \
        --use-service-account-credentials --service-account-private-key-file "$pki/tokens.key" --root-ca-file "$pki/ca.crt" \
        --cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" \
        --flex-volume-plugin-dir "$run/no-plugins"
    start scheduler kube-scheduler --kubeconfig "$run/scheduler.kubeconfig" --leader-elect=false
    start storage storage --kubeconfig "$run/storage.kubeconfig" --folder "$run/volumes"
    local guard=(timeout -k 5 60) manifest
    for manifest in rights storage-class dns; do
        as_administrator kubectl apply --filename "$manifests/$manifest.yaml" >>"$run/logs/apply.log" 2>&1 ||
            explain apply "$manifest.yaml was not taken"
    done
    guard=()
    # Pods are refused before their namespace has one.
    until_true 60 'the default ServiceAccount' controller-manager as_administrator kubectl get serviceaccount default
}
