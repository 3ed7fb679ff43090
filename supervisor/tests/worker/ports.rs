//! Ports are the machine's: workers that know nothing of each other never share one.

use std::net::{SocketAddr, TcpListener};

use casemate_protocol::ports::PortPool;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::StartError;

use crate::client::Client;
use crate::harness::{ALL, Slot, Who, Worker};

/// A served worker with a client of its own and the ports that its agent was told.
struct House {
    worker: Worker,
    address: SocketAddr,
    client: Client,
    session: String,
    ports: (u16, u16),
}

fn house(slot: &Slot) -> House {
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    let said = client.shell(&session, "echo ports=$CASEMATE_PORTS.");
    let (_, said) = said.split_once("ports=").unwrap();
    let (first, last) = said.split('.').next().unwrap().split_once('-').unwrap();
    let ports = (first.parse().unwrap(), last.parse().unwrap());
    House { worker, address, client, session, ports }
}

/// A pool that the machine's own workers do not use: below theirs, by process and first range of a test.
fn pool(test: u16, ranges: u16) -> PortPool {
    let place = u16::try_from(std::process::id() % 60).unwrap();
    PortPool { first: 16_000 + (place * 5 + test) * 16, ranges, preferred: 0 }
}

/// What a shell inside says to a connection.
fn connect(house: &mut House, port: u16) -> String {
    let tried = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo REACHED' 2>&1");
    house.client.shell(&house.session, &tried)
}

#[test]
fn sessions_of_two_homes_and_users_that_prefer_the_same_ports_reach_nothing_of_each_other() {
    let homes: Vec<Slot> = ALL.into_iter().map(|(tier, who)| Slot::new(tier, who)).collect();
    let mut houses: Vec<House> = homes.iter().map(house).collect();
    for (at, house) in houses.iter().enumerate() {
        let (first, last) = house.ports;
        assert_eq!(last - first, 14);
        let others = houses.iter().enumerate().filter(|(other, _)| *other != at);
        for (_, other) in others {
            assert!(last < other.ports.0 || other.ports.1 < first, "{first} {:?}", other.ports);
        }
    }
    // Each one listens, is reached by itself, and by nobody else.
    let listening: Vec<u16> = houses
        .iter_mut()
        .map(|house| {
            let port = house.ports.0;
            let said = house.client.turn(&house.session, &format!("!listen {port}")).1;
            assert!(said.contains("listening"), "{said}");
            port
        })
        .collect();
    for (at, house) in houses.iter_mut().enumerate() {
        for (owner, port) in listening.iter().enumerate() {
            let said = connect(house, *port);
            if owner == at {
                assert!(said.contains("REACHED"), "{said}");
            } else {
                assert!(said.contains("Permission denied"), "{at} on {owner}: {said}");
            }
        }
    }
    houses.into_iter().for_each(|house| house.worker.stop());
}

#[test]
fn the_claim_is_not_the_agents_and_a_generation_takes_the_next_range_where_its_own_is_taken() {
    for tier in [Tier::Domain, Tier::Namespace] {
        let mut slot = Slot::new(tier, Who::User);
        slot.config.ports = pool(0, 2);
        let claim = slot.config.ports.first;
        let mut first = house(&slot);
        assert_eq!(first.ports, (claim + 1, claim + 15));
        // The worker's door is there as well: no agent can stand at it, now or when the worker is gone.
        assert_eq!(first.address, SocketAddr::from(([127, 0, 0, 1], claim)));
        let said = connect(&mut first, claim);
        assert!(said.contains("Permission denied"), "{said}");
        let said = first.client.turn(&first.session, &format!("!listen {claim}")).1;
        assert!(said.contains("cannot listen"), "{said}");
        first.worker.stop();
        // Released in order: the range is there again, and a stranger takes a port of it.
        let stranger = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], claim + 7))).unwrap();
        slot.config.generation = slot.config.generation.next();
        let second = house(&slot);
        assert_eq!(second.ports, (claim + 17, claim + 31));
        second.worker.stop();
        drop(stranger);
        slot.config.generation = slot.config.generation.next();
        let third = house(&slot);
        assert_eq!(third.ports, first.ports);
        third.worker.stop();
    }
}

#[test]
fn where_every_range_is_taken_the_start_is_refused_and_named() {
    for (test, tier) in [(3, Tier::Domain), (4, Tier::Namespace)] {
        let mut slots = [Slot::new(tier, Who::Own), Slot::new(tier, Who::User)];
        for slot in &mut slots {
            slot.config.ports = pool(test, 1);
        }
        let (worker, _) = slots[0].serve();
        let (error, status) = slots[1].fails();
        assert!(matches!(error, StartError::Ports { .. }), "{error}");
        assert!(error.to_string().contains("stop sessions"), "{error}");
        assert_eq!(status.code(), Some(75));
        worker.stop();
        slots[1].serve().0.stop();
    }
}

#[test]
fn a_pool_whose_ranges_could_overlap_anothers_in_part_is_refused() {
    let mut slot = Slot::new(Tier::Namespace, Who::User);
    slot.config.ports = PortPool { first: 21_000, ranges: 4, preferred: 0 };
    let (error, status) = slot.fails();
    assert!(
        matches!(&error, StartError::Config { message } if message.contains("ports")),
        "{error}"
    );
    assert_eq!(status.code(), Some(64));
}
