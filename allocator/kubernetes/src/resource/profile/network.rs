//! Whom a worker reaches and who reaches it.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::text::{Cidr, DataKey, ObjectName, ProxyUrl};

/// A key of a Secret or ConfigMap in this namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyOf {
    /// The object.
    pub name: ObjectName,
    /// The key in it.
    pub key: DataKey,
}

/// A worker's network. The policy says what its *agent* reaches; this is what the *Pod* reaches, and closes the rest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Network {
    /// Whom the Pod reaches.
    pub egress: Egress,
    /// Who may connect to workers besides the allocator and its gateway. Others are refused before they can show a token.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub callers: Vec<Caller>,
    /// Pages that may attach from a browser: `https://app.example`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 256), regex(pattern = r"^https?://[^/\s]+$")))]
    pub origins: Vec<String>,
    /// A certificate authority that HTTPS clients in the worker believe besides the image's own: PEM in a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_ca: Option<KeyOf>,
    /// The proxy that the network demands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
}

/// Whom the Pod reaches. Nothing is reached that no rule names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!self.open || self.to.size() == 0",
    "message": "`open` reaches every public address: leave `to` out, or set `open: false`",
    "fieldPath": ".to"
}]))]
pub struct Egress {
    /// The cluster's DNS.
    pub dns: bool,
    /// Every address that is not private, link-local or the cluster's own.
    pub open: bool,
    /// These.
    #[schemars(length(max = 64))]
    pub to: Vec<Destination>,
}

impl Default for Egress {
    fn default() -> Self {
        Self { dns: true, open: false, to: Vec::new() }
    }
}

/// Where a Pod may connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("has(self.cidr) != (has(self.namespaces) || has(self.pods))")
        .message("name either a range of addresses, or Pods by labels"),
    validation = Rule::new("!has(self.cidr) || !['169.254.0.0/16', 'fe80::/10'].exists(l, cidr(self.cidr).containsCIDR(l) || cidr(l).containsCIDR(self.cidr))")
        .message("link-local addresses are nobody's but the node's, and a cloud's metadata service gives its identity away there: name narrower ranges, or set `open: true` for every public address")
        .field_path(".cidr")
)]
pub struct Destination {
    /// A range of addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr: Option<Cidr>,
    /// Labels of namespaces; `{}` is every one. Absent with `pods`: this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub namespaces: Option<BTreeMap<String, String>>,
    /// Labels of Pods in these; absent: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub pods: Option<BTreeMap<String, String>>,
    /// The ports there. Absent or empty: every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ports: Vec<Port>,
}

/// A port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Port {
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Its protocol.
    #[serde(default)]
    pub protocol: Protocol,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// Pods that may connect to a worker's door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.pods.size() > 0")
        .message("every Pod of a namespace is more than a caller: name the labels of its Pods")
        .field_path(".pods")
)]
pub struct Caller {
    /// Labels of their namespaces. Absent: this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub namespaces: Option<BTreeMap<String, String>>,
    /// Their labels.
    #[schemars(extend("maxProperties" = 16))]
    pub pods: BTreeMap<String, String>,
}

/// A proxy that the network demands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Proxy {
    /// Its URL, without credentials.
    pub url: ProxyUrl,
    /// Hosts and ranges that are reached without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), regex(pattern = r"^[^,\s]+$")))]
    pub except: Vec<String>,
}
