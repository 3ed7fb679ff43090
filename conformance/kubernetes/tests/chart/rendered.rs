//! What the chart renders, and refuses to.

use casemate_cluster::{Cluster, Helm, Namespace};

use crate::DIGEST;

/// The kinds of what is rendered, and all of it.
fn render(helm: &Helm<'_>, namespace: &str, more: &[&str]) -> (Vec<String>, String) {
    let chart = Helm::chart();
    let mut words = vec!["template", "casemate", chart.to_str().unwrap(), "--namespace", namespace];
    words.extend(["--set", DIGEST]);
    words.extend(more.iter().flat_map(|value| ["--set", value]));
    let text = helm.must(&words, "");
    let kinds = text.lines().filter_map(|line| line.strip_prefix("kind: ")).map(str::to_owned);
    (kinds.collect(), text)
}

#[test]
fn it_is_without_fault_and_refuses_values_that_mean_nothing() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let Some(helm) = cluster.helm() else { return };
    let chart = Helm::chart();
    let chart = chart.to_str().unwrap();
    let _ = helm.must(&["lint", "--strict", chart, "--set", DIGEST], "");
    for (values, words) in [
        (&["image.tag=latest"][..], "image.digest is needed"),
        (&[DIGEST, "signingKeys.sign=2"], "none of signingKeys.known"),
        (&[DIGEST, "allocator.replicas=0"], "replicas"),
        (&[DIGEST, "allocator.replica=3"], "replica"),
        (&[DIGEST, "workers.credentials={NOT A NAME}"], "credentials"),
        (&[DIGEST, "image.digest=latest"], "digest"),
        (&[DIGEST, "sampleProfile.create=true"], "definitions"),
    ] {
        let mut arguments = vec!["template", "casemate", chart];
        arguments.extend(values.iter().flat_map(|value| ["--set", value]));
        let said = helm.run(&arguments, "");
        assert!(!said.success && said.err.contains(words), "{values:?}: {said:?}");
    }
}

#[test]
fn the_clusters_part_and_the_namespaces_are_apart() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let Some(helm) = cluster.helm() else { return };
    let whole = |kind: &String| {
        kind.starts_with("Cluster")
            || kind.starts_with("Validating")
            || kind == "CustomResourceDefinition"
    };
    let (kinds, _) = render(&helm, "agents", &["namespaced.create=false"]);
    assert!(kinds.len() > 10 && kinds.iter().all(whole), "{kinds:?}");
    let (kinds, text) = render(&helm, "agents", &["cluster.create=false"]);
    assert!(kinds.len() > 6 && !kinds.iter().any(whole), "{kinds:?}");
    // Nobody's Secret is read, whatever its name.
    let rules = text.split("kind: Role\n").nth(1).unwrap().split("\n---").next().unwrap();
    let secrets = rules.lines().find(|line| line.contains("resources: [secrets]")).unwrap();
    assert!(secrets.ends_with("verbs: [create]}"), "{secrets}");
    assert!(!rules.contains('*'), "{rules}");
}

#[test]
fn a_real_server_takes_all_of_it_under_restricted() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let Some(helm) = cluster.helm() else { return };
    let namespace = Namespace::new(&cluster, "chart");
    // Applied, not created: the cluster's part may be there already, of another test.
    let tried = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--validate=strict",
        "--dry-run=server",
        "--filename",
        "-",
    ];
    for part in ["cluster.create=false", "namespaced.create=false"] {
        let (kinds, text) = render(&helm, namespace.name(), &[part]);
        let taken = namespace.must(&tried, &text);
        assert_eq!(taken.lines().count(), kinds.len(), "{taken}");
    }
    let (_, text) = render(&helm, namespace.name(), &["cluster.create=false"]);
    // A Deployment is taken whatever its Pods are: the Pods are what Pod Security looks at.
    let deployment =
        text.split("\n---\n").find(|object| object.contains("kind: Deployment")).unwrap();
    let said = namespace.kubectl(&tried, deployment);
    assert!(said.success && !said.err.contains("would violate PodSecurity"), "{said:?}");
}
