//! A network that breaks all the time: what was lost, doubled and out of order.

use std::time::{Duration, Instant};

use casemate_suite::fault_proxy::FaultProxy;
use casemate_suite::raw_host::RawHost;
use serde_json::{Value, json};

use crate::attachment::Attachment;

/// How many updates a turn of the counting kind has.
const UPDATES: usize = 40;
/// Texts that are said and come back, and how many times as long as others the connections live that have to carry them.
const BODIES: [(usize, u64); 2] = [(20_000, 8), (3_000_000, 400)];
/// So many bytes wait for the network before a cancel that has to go ahead of them; the connections that carry them live as much longer.
const AHEAD_OF: (usize, u64) = (100_000, 40);

/// What a turn is.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// The agent counts the prompt.
    Counted,
    /// It says numbers.
    Numbers,
    /// It says what it is told.
    Body((usize, u64)),
    /// It is cancelled, ahead of what waits.
    Cancelled,
}

impl Turn {
    fn of(round: u64) -> Self {
        match round % 10 {
            3 | 7 => Self::Body(BODIES[usize::from(round % 100 == 3)]),
            5 => Self::Cancelled,
            odd if odd % 2 == 1 => Self::Numbers,
            _ => Self::Counted,
        }
    }
}

/// What was seen of one attachment.
#[derive(Debug, Default)]
struct Seen {
    cuts: u64,
    turns: u64,
    updates: usize,
    /// Long texts that came back as they were said, and turns that ended cancelled.
    bodies: usize,
    cancelled: usize,
    /// Prompts that were sent, and those that the agent has counted.
    prompts: Vec<u64>,
    counted: Vec<u64>,
    lost: usize,
    doubled: usize,
    out_of_order: usize,
}

/// The numbers of a turn's updates, held against what the agent sent.
fn count(seen: &mut Seen, updates: &[Value]) {
    let number = |message: &Value| {
        let text = message["params"]["update"]["content"]["text"].as_str()?;
        text.split(' ').next()?.parse::<usize>().ok()
    };
    let numbers: Vec<usize> = updates.iter().filter_map(number).collect();
    seen.updates += numbers.len();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    seen.out_of_order += usize::from(numbers != sorted);
    let before = sorted.len();
    sorted.dedup();
    seen.doubled += before - sorted.len();
    seen.lost += UPDATES - sorted.len();
}

/// The agent's words.
fn said(updates: &[Value]) -> String {
    let update = |message: &Value| message["params"]["update"].clone();
    updates
        .iter()
        .map(update)
        .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
        .filter_map(|update| update["content"]["text"].as_str().map(str::to_owned))
        .collect()
}

/// The answer to a turn. On a machine that has other work a message takes longer, and needs connections that live longer.
fn answer(host: &mut RawHost, proxy: &FaultProxy, id: u64, mut room: u64) -> Value {
    for again in 0..10 {
        if let Some(answer) = host.answered(id, Duration::from_secs(15)) {
            return answer.expect("no turn fails");
        }
        room *= if again < 3 { 2 } else { 1 };
        proxy.room(room);
    }
    panic!("no answer to request {id}, with {room} times as much room");
}

/// Turns over a network that is cut again and again, until there were so many cuts; what was seen.
fn run(attachment: Attachment<'_>, wanted: u64) -> Seen {
    let Attachment { place, detour, mut host, session } = attachment;
    let proxy = &detour.proxy;
    proxy.faults(true);
    let mut seen = Seen::default();
    let mut round = 0;
    let mut quiet = 0;
    let mut room = 1;
    while proxy.cuts() < wanted {
        let before = proxy.cuts();
        host.others.clear();
        let before_it = std::mem::replace(&mut room, 1);
        let turn = Turn::of(round);
        let text = match turn {
            Turn::Counted => {
                seen.prompts.push(round);
                format!("!sh echo {round} >> prompts")
            }
            Turn::Numbers => format!("!updates {UPDATES} 300"),
            Turn::Body((length, longer)) => {
                room = longer;
                format!("{round} ").repeat(length / 4)
            }
            Turn::Cancelled => {
                room = AHEAD_OF.1;
                "!sleep 600".to_owned()
            }
        };
        // What a cancel went ahead of may still be on its way.
        proxy.room(room.max(before_it));
        let id = host.send("session/prompt", &RawHost::prompt(&session, &text));
        if matches!(turn, Turn::Cancelled) {
            let text = "x".repeat(AHEAD_OF.0);
            host.write(&json!({"jsonrpc": "2.0", "method": "_test/note", "params": {"sessionId": session, "text": text}}));
            host.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}));
        }
        let answer = answer(&mut host, proxy, id, room.max(before_it));
        let ends = if matches!(turn, Turn::Cancelled) { "cancelled" } else { "end_turn" };
        assert_eq!(answer["stopReason"], ends, "{turn:?}");
        match turn {
            Turn::Counted => {}
            Turn::Numbers => count(&mut seen, &host.others),
            Turn::Body(_) => {
                assert!(said(&host.others) == format!("echo: {text}"), "another text");
                seen.bodies += 1;
            }
            Turn::Cancelled => seen.cancelled += 1,
        }
        round += 1;
        quiet = if proxy.cuts() == before { quiet + 1 } else { 0 };
        assert!(quiet < 500, "nothing is cut any more");
    }
    proxy.room(1);
    proxy.faults(false);
    let told = host.say(&session, "!sh cat prompts").expect("the last turn");
    seen.counted = told.lines().filter_map(|line| line.parse().ok()).collect();
    (seen.cuts, seen.turns) = (proxy.cuts(), round);
    host.quit(place);
    seen
}

/// So many cuts in all of these attachments, at the same time.
pub(crate) fn nothing_is_lost_doubled_or_out_of_order(attachments: Vec<Attachment<'_>>, cuts: u64) {
    let count = attachments.len();
    let wanted = cuts.div_ceil(count as u64);
    let started = Instant::now();
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            attachments.into_iter().map(|one| scope.spawn(move || run(one, wanted))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it came to its end")).collect()
    });
    let sum = |of: fn(&Seen) -> usize| seen.iter().map(of).sum::<usize>();
    println!(
        "{} cuts of {count} attachments, {} turns, {} updates, {} long texts, {} cancels in {:.0} s: {} updates lost, {} \
         doubled, {} turns out of order, {} of {} counted prompts",
        seen.iter().map(|seen| seen.cuts).sum::<u64>(),
        seen.iter().map(|seen| seen.turns).sum::<u64>(),
        sum(|seen| seen.updates),
        sum(|seen| seen.bodies),
        sum(|seen| seen.cancelled),
        started.elapsed().as_secs_f32(),
        sum(|seen| seen.lost),
        sum(|seen| seen.doubled),
        sum(|seen| seen.out_of_order),
        sum(|seen| seen.counted.len()),
        sum(|seen| seen.prompts.len()),
    );
    for seen in seen {
        assert_eq!((seen.lost, seen.doubled, seen.out_of_order), (0, 0, 0));
        assert_eq!(seen.counted, seen.prompts);
    }
}
