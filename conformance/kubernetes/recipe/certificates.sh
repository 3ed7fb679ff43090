# One authority for the cluster; a certificate for each that serves and for each that calls.
# shellcheck shell=bash disable=SC2154

make_authority() {
    mkdir "$run/pki"
    chmod 700 "$run/pki"
    new_key ca
    openssl req -x509 -new -key "$run/pki/ca.key" -subj "/CN=casemate conformance" -days 365 -out "$run/pki/ca.crt" \
        -addext keyUsage=critical,keyCertSign,cRLSign 2>>"$run/logs/openssl.log"
    # Signs ServiceAccounts' tokens.
    new_key tokens
    openssl ec -in "$run/pki/tokens.key" -pubout -out "$run/pki/tokens.pub" 2>>"$run/logs/openssl.log"
}

new_key() { # name
    openssl ecparam -name prime256v1 -genkey -noout -out "$run/pki/$1.key"
}

certificate() { # name, subject, extensions...
    local name=$1 subject=$2
    shift 2
    new_key "$name"
    openssl req -new -key "$run/pki/$name.key" -subj "$subject" -out "$run/pki/$name.csr"
    openssl x509 -req -in "$run/pki/$name.csr" -CA "$run/pki/ca.crt" -CAkey "$run/pki/ca.key" -CAcreateserial -days 365 \
        -extfile <(printf '%s\n' keyUsage=critical,digitalSignature "$@") -out "$run/pki/$name.crt" 2>>"$run/logs/openssl.log"
    rm "$run/pki/$name.csr"
}

# A certificate of a client and a kubeconfig that holds all it needs. The API server takes a user's name from CN and groups from O.
client() { # name, subject, kubeconfig
    certificate "$1" "$2" extendedKeyUsage=clientAuth
    encoded() { base64 -w 0 "$run/pki/$1"; }
    (umask 077 && cat >"$3") <<END
apiVersion: v1
kind: Config
clusters:
  - name: $name
    cluster: {server: "$api_server", certificate-authority-data: "$(encoded ca.crt)"}
users:
  - name: $1
    user: {client-certificate-data: "$(encoded "$1.crt")", client-key-data: "$(encoded "$1.key")"}
contexts:
  - name: $name
    context: {cluster: $name, user: $1}
current-context: $name
END
}
