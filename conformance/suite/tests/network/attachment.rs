//! A host, its bridge, its worker, and the network between the two.

use casemate_protocol::api::Endpoint;
use casemate_suite::detour::Detour;
use casemate_suite::place::Place;
use casemate_suite::raw_host::RawHost;

/// One of a place.
pub(crate) struct Attachment<'a> {
    pub(crate) place: &'a Place,
    pub(crate) detour: Detour,
    pub(crate) host: RawHost,
    pub(crate) session: String,
}

impl<'a> Attachment<'a> {
    /// A new session of the allocator at `endpoint`, over a network that does as it is told.
    pub(crate) fn begin(place: &'a Place, endpoint: &Endpoint, number: u64) -> Self {
        let home = place.path().join(format!("detour-{number}"));
        let detour =
            Detour::start(endpoint.clone(), &home, 7 + number).expect("a port is to be had");
        let repository = place.repository().display().to_string();
        let mut command = place.bridge(&["--repo", &repository]);
        let mut host =
            RawHost::start(command.env("CASEMATE_HOME", &home)).expect("the bridge starts");
        host.initialize().expect("initialize is answered");
        let session = host.new_session(place).expect("there is a session");
        Self { place, detour, host, session }
    }
}
