//! A slot's NetworkPolicy: closed both ways but for what is named.

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::owned::anchored;
use super::{DOOR, Labels, Slot, Unbuildable};
use crate::resource::profile::{Caller, Destination, Port, Protocol};

/// Addresses that are not the public network's, by version of the protocol (IANA special-purpose registries): this host, private,
/// shared, loopback, link-local (a cloud's metadata service), benchmarking, multicast and reserved ones.
/// IPv4-mapped addresses (::ffff:0:0/96) are missing because the API server refuses to hear of them; none is ever on a wire (RFC 6890).
const NOT_PUBLIC: [(&str, &[&str]); 2] = [
    (
        "0.0.0.0/0",
        &[
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ],
    ),
    ("::/0", &["::1/128", "64:ff9b::/96", "fc00::/7", "fe80::/10", "ff00::/8"]),
];

/// The policy of a slot's Pod. `anchor`: the ServiceAccount's UID.
///
/// # Errors
/// [`Unbuildable::OpenCaller`].
pub fn network_policy(slot: Slot<'_>, anchor: &str) -> Result<NetworkPolicy, Unbuildable> {
    let network = &slot.profile.spec.network;
    let callers = slot.installation.own.iter().chain(&network.callers);
    // A selector without labels selects all.
    if callers.clone().any(|caller| caller.pods.is_empty()) {
        return Err(Unbuildable::OpenCaller);
    }
    let from: Vec<_> = callers.map(caller).collect();
    // A rule without a peer lets everybody in: where nobody may, there is none.
    let ingress = if from.is_empty() {
        Vec::new()
    } else {
        vec![NetworkPolicyIngressRule {
            from: Some(from),
            ports: Some(vec![port(Port { port: DOOR, protocol: Protocol::Tcp })]),
        }]
    };
    let mut egress: Vec<NetworkPolicyEgressRule> =
        network.egress.to.iter().map(destination).collect();
    if network.egress.dns {
        egress.extend(slot.installation.dns.iter().map(destination));
    }
    if network.egress.open {
        egress.extend(NOT_PUBLIC.map(|(all, except)| public(slot, all, except)));
    }
    Ok(NetworkPolicy {
        metadata: anchored(slot, anchor),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(&slot.selector())),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: Some(ingress),
            egress: Some(egress),
        }),
    })
}

fn selector(labels: &Labels) -> LabelSelector {
    LabelSelector { match_labels: Some(labels.clone()), match_expressions: None }
}

fn caller(caller: &Caller) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: caller.namespaces.as_ref().map(selector),
        pod_selector: Some(selector(&caller.pods)),
        ip_block: None,
    }
}

fn destination(to: &Destination) -> NetworkPolicyEgressRule {
    let peer = NetworkPolicyPeer {
        ip_block: to.cidr.as_ref().map(|range| IPBlock { cidr: range.to_string(), except: None }),
        namespace_selector: to.namespaces.as_ref().map(selector),
        pod_selector: to.pods.as_ref().map(selector),
    };
    let ports: Vec<_> = to.ports.iter().copied().map(port).collect();
    NetworkPolicyEgressRule { to: Some(vec![peer]), ports: (!ports.is_empty()).then_some(ports) }
}

fn public(slot: Slot<'_>, all: &str, except: &[&str]) -> NetworkPolicyEgressRule {
    let six = all.contains(':');
    let own = slot.installation.cluster.iter().map(|range| range.as_str());
    let except = except.iter().copied().chain(own.filter(|range| range.contains(':') == six));
    let block = IPBlock { cidr: all.to_owned(), except: Some(except.map(str::to_owned).collect()) };
    NetworkPolicyEgressRule {
        to: Some(vec![NetworkPolicyPeer { ip_block: Some(block), ..NetworkPolicyPeer::default() }]),
        ports: None,
    }
}

fn port(port: Port) -> NetworkPolicyPort {
    let protocol = match port.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    };
    NetworkPolicyPort {
        port: Some(IntOrString::Int(port.port.into())),
        protocol: Some(protocol.to_owned()),
        end_port: None,
    }
}
