//! What is read of a cluster's objects in the core's words, and what is written back.

use casemate_allocator_core::end::Ending;
use casemate_allocator_core::record::Storage;
use casemate_allocator_core::slot::{Cause, PodState, VolumeNeed, WorkerSeen};
use casemate_kubernetes::allocate::{self, Allocation, Call, Refusal, Wanted};
use casemate_kubernetes::kept::{self, Judged};
use casemate_kubernetes::ledger;
use casemate_kubernetes::observe::{Looked, Objects, Patience, cause, world};
use casemate_kubernetes::resource::session::{Phase, StorageState};
use casemate_kubernetes::resource::{WorkerProfile, WorkerSession, WorkerSessionSpec};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SlotId;
use casemate_protocol::key::Key;
use casemate_protocol::worker::Evidence;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

const SLOT: &str = "w-aaaaaaaaaaaaaaaaaaaaaaaaaa";
const SESSION: &str = "s-aaaaaaaaaaaaaaaaaaaaaaaaaa";

fn profile() -> WorkerProfile {
    serde_json::from_value(json!({
        "apiVersion": "casemate.dev/v1alpha1", "kind": "WorkerProfile",
        "metadata": {"name": "default", "namespace": "agents", "uid": "u1", "generation": 3},
        "spec": {
            "image": {"reference": "worker:1", "allowTag": true},
            "agent": {"name": "opencode", "command": ["opencode", "acp"]},
            "resources": {"limits": {"memory": "1Gi", "ephemeral-storage": "1Gi"}},
            "storage": {"new": {"size": "1Gi"}},
            "workspaces": {"app": {"repository": "https://git.example/app.git"}},
        },
    }))
    .expect("as it is written above")
}

fn key() -> Key {
    Key { tenant: "t".into(), agent: "opencode".into(), platform: "p".into(), thread: "1".into() }
}

fn call(request: &str, digest: char) -> Call {
    Call {
        request: request.into(),
        digest: digest.to_string().repeat(64).parse().expect("as it is written above"),
    }
}

fn first() -> WorkerSessionSpec {
    let profile = profile();
    let wanted = Wanted { profile: &profile, workspace: None };
    allocate::first(key().try_into().expect("as it is written above"), &call("r1", 'a'), wanted)
}

fn stands(phase: Phase) -> WorkerSessionSpec {
    let mut spec = first();
    spec.phase = phase;
    spec.served = true;
    let mut session = ledger::read(&spec).expect("as it is written above");
    session.volume = VolumeNeed::Have("v1".into());
    session.pod = Some("p1".into());
    ledger::written(&spec, &session, "")
}

#[test]
fn what_was_read_is_written_as_it_was() {
    for phase in [Phase::Starting, Phase::Active, Phase::Asleep, Phase::Ended] {
        let spec = stands(phase);
        assert_eq!(
            ledger::written(&spec, &ledger::read(&spec).expect("as it is written above"), "x"),
            spec,
            "{phase:?}"
        );
    }
}

#[test]
fn a_stop_and_its_end_keep_the_words_that_it_was_asked_for_with() {
    let spec = stands(Phase::Active);
    let ending = Ending {
        reason: EndReason::Idle,
        close: false,
        discard: false,
        force: false,
        evidence: None,
    };
    let stopping = ledger::written(
        &spec,
        &ledger::read(&spec).expect("as it is written above").stopping(ending),
        "idle for 9 s",
    );
    assert_eq!(stopping.ending.as_ref().expect("as it is written above").detail, "idle for 9 s");
    let evidence = Evidence { dirty: 1, ..Evidence::default() };
    let quiet = ledger::read(&stopping)
        .expect("as it is written above")
        .was_quiesced(Some(evidence.clone()));
    let quiet = ledger::written(&stopping, &quiet, "");
    assert!(quiet.ending.as_ref().expect("as it is written above").quiesced);
    assert_eq!(quiet.ending.as_ref().expect("as it is written above").detail, "idle for 9 s");
    let asleep = ledger::written(
        &quiet,
        &ledger::read(&quiet).expect("as it is written above").stopped(7),
        "",
    );
    let last = asleep.last_end.as_ref().expect("as it is written above");
    assert_eq!((last.detail.as_str(), last.evidence.as_ref()), ("idle for 9 s", Some(&evidence)));
    assert_eq!((asleep.phase, asleep.ending.is_none()), (Phase::Asleep, true));
    assert_eq!(asleep.slot.as_ref().expect("as it is written above").pod_uid, None);
    assert_eq!(asleep.volume, spec.volume, "its volume stays");
}

#[test]
fn only_what_changes_is_in_a_patch_with_what_it_was_decided_about() {
    let mut object = WorkerSession::new("k-aaaaaaaaaaaaaaaaaaaaaaaaaa", stands(Phase::Asleep));
    assert!(
        ledger::session_patch(&object, &object.spec).is_none(),
        "it was not read from a cluster"
    );
    object.metadata.uid = Some("u".into());
    object.metadata.resource_version = Some("5".into());
    let patch = ledger::session_patch(&object, &allocate::wake(&object.spec))
        .expect("as it is written above");
    let expected = json!({
        "metadata": {"uid": "u", "resourceVersion": "5"},
        "spec": {"phase": "Starting", "generation": 2, "slot": {"podUid": null}},
    });
    assert_eq!(patch, expected);
}

#[test]
fn a_field_of_a_newer_version_is_no_reason_not_to_read_a_session() {
    let object = WorkerSession::new("k-aaaaaaaaaaaaaaaaaaaaaaaaaa", stands(Phase::Active));
    let mut value = serde_json::to_value(&object).expect("as it is written above");
    value["spec"]["newer"] = json!(1);
    value["spec"]["slot"]["newer"] = json!(1);
    assert_eq!(
        serde_json::from_value::<WorkerSession>(value).expect("as it is written above").spec,
        object.spec
    );
    let mut profile = serde_json::to_value(profile()).expect("as it is written above");
    profile["spec"]["network"]["newer"] = json!(1);
    // It may be a restriction.
    assert!(serde_json::from_value::<WorkerProfile>(profile).is_err());
}

// === allocate ===

fn write(allocation: Allocation) -> WorkerSessionSpec {
    match allocation {
        Allocation::Write(spec) => *spec,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_allocate_is_answered_as_its_like_was() {
    let profile = profile();
    let wanted = Wanted { profile: &profile, workspace: None };
    let decide =
        |spec: &WorkerSessionSpec, call: &Call| allocate::allocate(Some(spec), call, wanted);
    assert_eq!(allocate::allocate(None, &call("r1", 'a'), wanted), Allocation::Create);
    let spec = first();
    assert_eq!(decide(&spec, &call("r1", 'a')), Allocation::Known { created: true });
    let reused = Allocation::Refuse(Refusal::RequestReused);
    assert_eq!(decide(&spec, &call("r1", 'b')), reused);
    // Another call finds the same session, and is remembered.
    let second = write(decide(&spec, &call("r2", 'b')));
    assert_eq!((&second.session, second.generation), (&spec.session, spec.generation));
    assert_eq!(decide(&second, &call("r2", 'b')), Allocation::Known { created: false });
    // A sleeping one wakes, with the next generation, the same slot and the same volume.
    let asleep = stands(Phase::Asleep);
    let woken = write(decide(&asleep, &call("r3", 'c')));
    assert_eq!((woken.phase, woken.generation), (Phase::Starting, asleep.generation.next()));
    assert_eq!(woken.volume, asleep.volume);
    assert_eq!(
        woken.slot.expect("as it is written above").name,
        asleep.slot.expect("as it is written above").name
    );
}

#[test]
fn an_ended_session_goes_on_in_no_repeated_call_and_its_volume_is_kept() {
    let profile = profile();
    let wanted = Wanted { profile: &profile, workspace: None };
    let mut ended = stands(Phase::Ended);
    ended.storage.state = StorageState::Retained;
    let again = allocate::allocate(Some(&ended), &call("r1", 'a'), wanted);
    assert_eq!(again, Allocation::Refuse(Refusal::Ended(ended.session.clone())));
    let next = write(allocate::allocate(Some(&ended), &call("r2", 'a'), wanted));
    assert_eq!((next.incarnation.0, next.generation.0, next.phase), (2, 2, Phase::Starting));
    assert_ne!(next.session, ended.session);
    assert_ne!(
        next.slot.as_ref().expect("as it is written above").name,
        ended.slot.as_ref().expect("as it is written above").name
    );
    assert!(next.volume.is_none() && next.last_end.is_none() && !next.served);
    assert_eq!(next.kept.len(), 1);
    assert_eq!(next.kept[0].volume, ended.volume.clone().expect("as it is written above"));
    assert_eq!((next.kept[0].incarnation, next.kept[0].seconds_left), (ended.incarnation, None));
    // What the request named then is over for ever.
    let late = allocate::allocate(Some(&next), &call("r1", 'a'), wanted);
    assert_eq!(late, Allocation::Refuse(Refusal::Ended(ended.session.clone())));
    ended.storage.state = StorageState::Deleted;
    ended.volume = None;
    let next = write(allocate::allocate(Some(&ended), &call("r2", 'a'), wanted));
    assert!(next.kept.is_empty());
}

// === retention ===

#[test]
fn kept_volumes_age_by_running_time_and_are_deleted_by_their_marks_alone() {
    let mut spec = stands(Phase::Ended);
    (spec.storage.state, spec.storage.seconds_left) = (StorageState::Retained, Some(90));
    let aged = kept::aged(&spec, 60);
    assert_eq!((aged.storage.state, aged.storage.seconds_left), (StorageState::Retained, Some(30)));
    assert_eq!(
        ledger::read(&kept::aged(&aged, 60)).expect("as it is written above").storage,
        Storage::Deleting
    );
    spec.storage.seconds_left = None;
    assert_eq!(kept::aged(&spec, 1_000_000), spec, "what has no date stays");

    let volume = kept::keep(&aged).expect("as it is written above");
    let claim = |key: &str, made_by: &str, uid: &str| -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {
            "name": volume.volume.claim, "uid": uid, "resourceVersion": "9",
            "annotations": {
                "casemate.dev/key": key, "casemate.dev/incarnation": "1", "casemate.dev/made-by": made_by,
            },
        }}))
        .expect("as it is written above")
    };
    let made_by = format!("i-1/{}", volume.volume.claim);
    let judge = |found: Option<PersistentVolumeClaim>| {
        kept::judge("i-1", &spec.key, &volume, found.as_ref())
    };
    let digest = key().digest();
    assert_eq!(judge(None), Judged::Gone);
    assert_eq!(judge(Some(claim(&digest, &made_by, "v2"))), Judged::Gone);
    let ours = Judged::Ours { uid: "v1".into(), version: "9".into() };
    assert_eq!(judge(Some(claim(&digest, &made_by, "v1"))), ours);
    assert_eq!(judge(Some(claim("other", &made_by, "v1"))), Judged::Foreign);
    assert_eq!(judge(Some(claim(&digest, "i-2/x", "v1"))), Judged::Foreign);
    let mut going = claim(&digest, &made_by, "v1");
    going.metadata.deletion_timestamp = Some(ledger::time(1));
    assert_eq!(judge(Some(going)), Judged::Going);
}

// === what is seen ===

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": SLOT, "uid": "p1", "resourceVersion": "3",
            "labels": {"casemate.dev/slot": SLOT, "casemate.dev/installation": "i-1"},
            "annotations": {
                "casemate.dev/session": SESSION, "casemate.dev/incarnation": "1", "casemate.dev/generation": "2",
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "ServiceAccount", "name": SLOT, "uid": "a1", "controller": true}],
        },
        "status": status,
    }))
    .expect("as it is written above")
}

fn state(status: Value, worker: WorkerSeen, patience: Patience) -> PodState {
    let slot: SlotId = SLOT.parse().expect("as it is written above");
    let objects = Objects { pod: Some(pod(status)), ..Objects::default() };
    let of = Looked { installation: "i-1", slot: &slot };
    world(of, &objects, worker, patience).pod.expect("as it is written above").state
}

#[test]
fn a_pod_is_ours_and_claimed_by_its_marks() {
    let slot: SlotId = SLOT.parse().expect("as it is written above");
    let objects = Objects { pod: Some(pod(json!({}))), ..Objects::default() };
    let seen = |installation| {
        let of = Looked { installation, slot: &slot };
        world(of, &objects, WorkerSeen::Silent, Patience::Waits)
            .pod
            .expect("as it is written above")
    };
    let own = seen("i-1");
    assert!(own.object.ours && !seen("i-2").object.ours);
    assert_eq!((own.object.owner.as_deref(), own.object.version.as_str()), (Some("a1"), "3"));
    let claim = own.claim.expect("as it is written above");
    assert_eq!((claim.session.as_str(), claim.incarnation.0, claim.generation.0), (SESSION, 1, 2));
    let mut half = pod(json!({}));
    half.metadata
        .annotations
        .as_mut()
        .expect("as it is written above")
        .remove("casemate.dev/generation");
    let objects = Objects { pod: Some(half), ..Objects::default() };
    let of = Looked { installation: "i-1", slot: &slot };
    assert_eq!(
        world(of, &objects, WorkerSeen::Silent, Patience::Waits)
            .pod
            .expect("as it is written above")
            .claim,
        None
    );
}

#[test]
fn a_volumes_labels_do_not_make_it_ours() {
    let slot: SlotId = SLOT.parse().expect("as it is written above");
    let mut volume: PersistentVolumeClaim = serde_json::from_value(json!({"metadata": {
        "name": SLOT, "uid": "v1", "resourceVersion": "1",
        "labels": {"casemate.dev/slot": SLOT, "casemate.dev/installation": "i-1"},
        "annotations": {
            "casemate.dev/made-by": format!("i-1/{SLOT}"), "casemate.dev/key": "k",
            "casemate.dev/incarnation": "2", "casemate.dev/generation": "5", "casemate.dev/opened-to": "p1",
        },
    }}))
    .expect("as it is written above");
    let of = Looked { installation: "i-1", slot: &slot };
    let seen = |volume: &PersistentVolumeClaim| {
        let objects = Objects { volume: Some(volume.clone()), ..Objects::default() };
        world(of, &objects, WorkerSeen::Silent, Patience::Waits)
            .volume
            .expect("as it is written above")
    };
    let own = seen(&volume);
    assert!(own.object.ours);
    assert_eq!((own.incarnation.0, own.floor.0, own.opened_to.as_deref()), (2, 5, Some("p1")));
    volume
        .metadata
        .annotations
        .as_mut()
        .expect("as it is written above")
        .remove("casemate.dev/made-by");
    assert!(!seen(&volume).object.ours, "somebody else's with our labels");
}

#[test]
fn how_far_a_pod_is() {
    let waits = |status| state(status, WorkerSeen::Silent, Patience::Waits);
    let over = |status| state(status, WorkerSeen::Silent, Patience::Over);
    let unplaced = || {
        json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"},
        ]})
    };
    let words = "a node: 0/3 nodes are available";
    assert_eq!(waits(unplaced()), PodState::Pending(words.into()));
    assert_eq!(over(unplaced()), PodState::Ended(Cause::StartTimeout(words.into())));
    let pull = |reason: &str| {
        json!({"phase": "Pending", "containerStatuses": [
            {"name": "worker", "image": "", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"waiting": {"reason": reason, "message": "no such image"}}},
        ]})
    };
    let words = |reason: &str| format!("{reason}: no such image");
    assert_eq!(waits(pull("ImagePullBackOff")), PodState::Pending(words("ImagePullBackOff")));
    let given_up = PodState::Ended(Cause::ImagePull(words("ImagePullBackOff")));
    assert_eq!(over(pull("ImagePullBackOff")), given_up);
    let never = PodState::Ended(Cause::ImagePull(words("InvalidImageName")));
    assert_eq!(waits(pull("InvalidImageName")), never);
    let running = || json!({"phase": "Running"});
    assert_eq!(waits(running()), PodState::Running(WorkerSeen::Silent));
    assert!(matches!(over(running()), PodState::Ended(Cause::StartTimeout(_))));
    let unbound = state(running(), WorkerSeen::Unbound, Patience::Over);
    assert_eq!(unbound, PodState::Running(WorkerSeen::Unbound));
    assert_eq!(waits(json!({"phase": "Unknown"})), PodState::Unknown);
}

#[test]
fn why_a_pod_ended() {
    let ended = |reason: &str, code: i32| {
        json!({"phase": "Failed", "containerStatuses": [
            {"name": "worker", "image": "", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"terminated": {"reason": reason, "exitCode": code}}},
        ]})
    };
    let disrupted = |reason: &str| {
        json!({"phase": "Failed", "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "memory"},
        ]})
    };
    let evicted =
        |message: &str| json!({"phase": "Failed", "reason": "Evicted", "message": message});
    for (status, expected) in [
        (ended("OOMKilled", 137), Cause::OutOfMemory),
        (ended("Error", 3), Cause::Exit(3)),
        (ended("Completed", 0), Cause::Exit(0)),
        (
            evicted("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."),
            Cause::DiskLimit,
        ),
        (
            evicted("The node was low on resource: memory."),
            Cause::Evicted("The node was low on resource: memory.".into()),
        ),
        (disrupted("PreemptionByScheduler"), Cause::Preempted),
        (disrupted("DeletionByPodGC"), Cause::NodeLost),
        (disrupted("TerminationByKubelet"), Cause::Evicted("memory".into())),
        (disrupted("EvictionByEvictionAPI"), Cause::Deleted),
        (json!({"phase": "Failed", "reason": "NodeLost"}), Cause::NodeLost),
    ] {
        assert_eq!(cause(&pod(status.clone())), expected, "{status}");
    }
}
