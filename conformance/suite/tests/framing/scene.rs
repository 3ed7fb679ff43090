//! One conversation: what each side writes, what of it must arrive, and what the agent says that it has heard.

use std::collections::BTreeSet;

use casemate_suite::recipe::{Heard, Order, Part, Recipe, Side, sha256};
use serde_json::Value;

use crate::peer::Peer;

/// Where the id of a message stands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    First,
    Last,
    /// In between, by another spelling, after ids that are none.
    Odd,
}

/// What the agent should have heard.
#[derive(Debug)]
enum Wanted {
    /// A line, whose id is one that the worker gave it.
    Line(Recipe),
    /// A line under an id of the agent's own, or under none.
    Named(Recipe, String),
    /// An error under an id of its own, with this code.
    Refusal(String, i64),
}

/// A line that the agent is told to write.
#[derive(Debug)]
enum Fate {
    Arrives,
    /// Under an id, and is answered with this.
    Asks(String, Recipe),
    /// The same, with an answer that is refused.
    AsksInVain(Recipe),
    Vanishes,
}

/// See the module.
pub(crate) struct Scene {
    pub(crate) peer: Peer,
    lines: Vec<(Recipe, String, Fate)>,
    wanted: Vec<Wanted>,
    given: BTreeSet<u64>,
    /// The lines of the set-up are not looked at.
    begun: bool,
}

/// A message of these members and an id.
pub(crate) fn message(shape: Shape, members: &str, unit: &str, times: usize) -> Recipe {
    let text = match shape {
        Shape::First => format!("{{\"id\":$ID,\"jsonrpc\":\"2.0\",{members}}}"),
        Shape::Last => format!("{{\"jsonrpc\":\"2.0\",{members},\"id\":$ID}}"),
        Shape::Odd => format!(
            " {{\"x\":{{\"id\":1,\"id\":\"2\"}},\t\"\\u0069d\" : $ID , \"ids\":[{{\"id\":3}}],{members} ,\"jsonrpc\":\"2.0\" ,\"x\":[] }} "
        ),
    };
    Recipe::of(&text, unit, times)
}

/// An update.
pub(crate) fn chunk(unit: &str, times: usize) -> Recipe {
    let text = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":$SESSION,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"$FILL"}}}}"#;
    Recipe::of(text, unit, times)
}

/// A request of the agent's under its own id.
pub(crate) fn permission(own: &str, unit: &str, times: usize) -> Recipe {
    let text = r#"{"jsonrpc":"2.0","params":{"x":"$FILL","options":[], "sessionId":$SESSION},"id":OWN ,"method":"session/request_permission"}"#;
    Recipe::of(text, unit, times).with("OWN", Part::Own(own.to_owned()))
}

/// The same with as much more fill as gives it this length, as its writer renders it with an id and a session of no length.
pub(crate) fn exact(recipe: &Recipe, length: usize) -> Recipe {
    let mut recipe = recipe.clone();
    let side = Side { id: "", session: casemate_suite::recipe::SPELLED, line_break: "" };
    let more = length - recipe.render(side).len();
    let at = recipe.0.iter().position(|part| matches!(part, Part::Fill(..)));
    match at {
        Some(at) => recipe.0.insert(at, Part::Fill("y".into(), more)),
        None => recipe = recipe.with("\"x\":\"x\"", Part::Text("\"x\":\"".into())).filled(more),
    }
    recipe
}

trait Filled {
    fn filled(self, more: usize) -> Self;
}

impl Filled for Recipe {
    fn filled(mut self, more: usize) -> Self {
        let open = |part: &Part| matches!(part, Part::Text(text) if text == "\"x\":\"");
        let at = self.0.iter().position(open).expect("it was just put there");
        self.0.splice(at + 1..at + 1, [Part::Fill("y".into(), more + 1), Part::Text("\"".into())]);
        self
    }
}

/// Shows two lines that should be one, where they part.
fn same(got: &[u8], wanted: &[u8], what: &str) {
    if sha256(got) == sha256(wanted) {
        return;
    }
    let at = got.iter().zip(wanted).take_while(|(a, b)| a == b).count();
    let show = |line: &[u8]| {
        let end = line.len().min(at + 200);
        String::from_utf8_lossy(&line[at.saturating_sub(100).min(end)..end]).into_owned()
    };
    panic!(
        "{what}: {} bytes for {}, from byte {at} on:\n{}\nfor\n{}",
        got.len(),
        wanted.len(),
        show(got),
        show(wanted)
    );
}

fn id_of(line: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        id: &'a serde_json::value::RawValue,
    }
    let head: Head<'_> = serde_json::from_slice(line).expect("a message with an id");
    head.id.get().to_owned()
}

// === impl Scene ===

impl Scene {
    pub(crate) fn new(peer: Peer) -> Self {
        let (lines, wanted) = (Vec::new(), Vec::new());
        let mut scene = Self { peer, lines, wanted, given: BTreeSet::new(), begun: false };
        scene.report("\"begin\"", Shape::First, &[]);
        scene
    }

    /// In the next turn the agent writes a line, which arrives.
    pub(crate) fn arrives(&mut self, line: Recipe, end: &str) {
        self.lines.push((line, end.to_owned(), Fate::Arrives));
    }

    /// One that does not, since it is no message.
    pub(crate) fn noise(&mut self, line: &[u8], end: &str) {
        self.dropped(Recipe(vec![Part::Bytes(line.to_vec())]), end);
    }

    /// One that does not.
    pub(crate) fn dropped(&mut self, line: Recipe, end: &str) {
        self.lines.push((line, end.to_owned(), Fate::Vanishes));
    }

    /// A request, which arrives and is answered.
    pub(crate) fn asks(&mut self, line: Recipe, answer: Recipe, end: &str) {
        let own = own(&line);
        self.lines.push((line, end.to_owned(), Fate::Asks(own, answer)));
    }

    /// A request, which arrives and is answered by what goes no further: this is said to whom it comes from and to the agent.
    pub(crate) fn asks_in_vain(&mut self, line: Recipe, answer: Recipe) {
        self.lines.push((line, "\n".to_owned(), Fate::AsksInVain(answer)));
    }

    /// The turn: prompts, reads all that must arrive, in its order, and nothing else, up to the answer.
    pub(crate) fn turn(
        &mut self,
        id: &str,
        shape: Shape,
        answer: Option<Recipe>,
        pieces: &[usize],
    ) {
        let reports = answer.is_none();
        let wanted = answer.clone();
        let vain =
            self.lines.iter().filter(|(.., fate)| matches!(fate, Fate::AsksInVain(_))).count();
        self.send_turn(id, shape, answer, pieces);
        let mut lines: Vec<_> = (0..=vain).map(|_| self.peer.read()).collect();
        let answer = lines.iter().position(|line| id_of(line) == id).expect("the answer comes");
        let line = lines.remove(answer);
        for line in lines {
            let told: Value = serde_json::from_slice(&line).expect("it is JSON");
            assert!(told["id"].is_null() && told["error"].is_object(), "{told}");
        }
        match wanted {
            Some(answer) => same(&line, &answer.render(self.here(id)), "the answer"),
            None if reports => self.check_report(id, &line),
            None => {}
        }
    }

    /// The same up to before the answer.
    pub(crate) fn send_turn(
        &mut self,
        id: &str,
        shape: Shape,
        answer: Option<Recipe>,
        pieces: &[usize],
    ) {
        let lines = std::mem::take(&mut self.lines);
        let ordered = lines.iter().map(|(line, end, _)| (line.clone(), end.clone())).collect();
        let order = Order { lines: ordered, answer, pieces: pieces.to_vec() };
        let order = Value::from(serde_json::to_string(&order).expect("it is data")).to_string();
        let members = "\"method\":\"session/prompt\",\"params\":{\"prompt\":[{\"text\":ORDER,\"type\":\"text\"}],\"sessionId\":$SESSION}";
        let prompt = message(shape, members, "", 0).with("ORDER", Part::Text(order));
        self.says_alone(&prompt, id, "\n", pieces);
        for (line, _, fate) in lines {
            match fate {
                Fate::Vanishes => {}
                Fate::Arrives => {
                    let got = self.peer.read();
                    same(&got, &line.render(self.here(id)), "an update");
                }
                Fate::Asks(own, answer) => {
                    let named = self.is_asked(&line);
                    self.peer.write(&answer.render(self.there(&named)), "\r\n", pieces);
                    self.wanted.push(Wanted::Named(answer, own));
                }
                Fate::AsksInVain(answer) => {
                    let named = self.is_asked(&line);
                    self.peer.write(&answer.render(self.there(&named)), "\n", &[]);
                }
            }
        }
    }

    fn is_asked(&mut self, line: &Recipe) -> String {
        let got = self.peer.read();
        let named = id_of(&got);
        let line = if self.peer.renames { line.renamed() } else { line.clone() };
        same(&got, &line.render(self.here(&named)), "a request");
        named
    }

    /// The client says something and gets the agent's answer to it.
    pub(crate) fn says(&mut self, line: &Recipe, id: &str, end: &str, pieces: &[usize]) {
        self.says_alone(line, id, end, pieces);
        let wanted = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        same(&self.peer.read(), wanted.as_bytes(), "the answer to a request");
    }

    fn says_alone(&mut self, line: &Recipe, id: &str, end: &str, pieces: &[usize]) {
        self.peer.write(&line.render(self.there(id)), end, pieces);
        self.wanted.push(Wanted::Line(line.clone()));
    }

    /// The client notifies the agent.
    pub(crate) fn notes(&mut self, line: &Recipe, end: &str, pieces: &[usize]) {
        self.peer.write(&line.render(self.there("")), end, pieces);
        self.wanted.push(Wanted::Named(line.clone(), String::new()));
    }

    /// The client says what does not reach the agent.
    pub(crate) fn goes_no_further(&mut self, line: &Recipe, id: &str) {
        self.peer.write(&line.render(self.there(id)), "\n", &[]);
    }

    /// The agent was refused a request of its own.
    pub(crate) fn hears_refusal(&mut self, own: &str, code: i64) {
        // Before the prompt that asks it.
        self.wanted.push(Wanted::Refusal(own.to_owned(), code));
    }

    /// A prompt of about this length.
    pub(crate) fn arrives_nothing_but_a_long_prompt(&mut self, length: usize) {
        let members = "\"method\":\"session/prompt\",\"params\":{\"sessionId\":$SESSION,\"prompt\":[{\"type\":\"text\",\"text\":\"{}\",\"x\":\"x\"}]}";
        let prompt = exact(&message(Shape::First, members, "", 0), length);
        self.says_alone(&prompt, "\"long\"", "\n", &[]);
        let line = self.peer.read();
        self.check_report("\"long\"", &line);
    }

    /// A turn in which the agent tells what it has heard, which is held against what was said.
    pub(crate) fn report(&mut self, id: &str, shape: Shape, pieces: &[usize]) {
        self.turn(id, shape, None, pieces);
    }

    fn check_report(&mut self, id: &str, line: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Report<'a> {
            #[serde(borrow)]
            result: &'a serde_json::value::RawValue,
        }
        // Its id may be more than a number that there is a type for.
        let report: Report<'_> = serde_json::from_slice(line).expect("it is an answer");
        let report: Value = serde_json::from_str(report.result.get()).expect("it is JSON");
        let heard: Vec<Heard> = serde_json::from_value(report["_meta"]["heard"].clone())
            .unwrap_or_else(|error| panic!("no report, {error}: {report}"));
        let mut wanted = std::mem::take(&mut self.wanted);
        if !std::mem::replace(&mut self.begun, true) {
            return;
        }
        assert_eq!(id_of(line), id);
        // What is refused the agent is told at once, before or after what was in the making.
        wanted.retain(|wanted| match wanted {
            Wanted::Refusal(own, code) => {
                let told = (Some(own), Some(code));
                let told = |heard: &&Heard| (heard.id.as_ref(), heard.code.as_ref()) == told;
                let count = heard.iter().filter(told).count();
                assert_eq!(count, 1, "the agent hears once of {own}: {heard:#?}");
                false
            }
            _ => true,
        });
        let refused = heard.len() - wanted.len();
        let mut heard = heard.into_iter();
        let mut passed = 0;
        for wanted in wanted {
            let next = heard.by_ref().find(|heard| {
                let fits = self.fits(&wanted, heard);
                passed += usize::from(!fits);
                fits
            });
            assert!(next.is_some(), "the agent has not heard {wanted:?}");
        }
        assert_eq!(passed + heard.count(), refused, "the agent has heard something else as well");
    }

    fn fits(&mut self, wanted: &Wanted, heard: &Heard) -> bool {
        let id = heard.id.clone().unwrap_or_default();
        let (recipe, id) = match wanted {
            Wanted::Line(recipe) => (recipe, id),
            Wanted::Named(recipe, own) => (recipe, own.clone()),
            Wanted::Refusal(..) => return false,
        };
        let side = Side { id: &id, session: &self.peer.agent_reads, line_break: " " };
        let line = recipe.render(side);
        let fits = (line.len(), sha256(&line)) == (heard.length, heard.sha256.clone());
        if let (Wanted::Line(_), true) = (wanted, fits) {
            let number = id.parse().expect("workers number requests");
            assert!(self.given.insert(number), "{number} was given twice");
        }
        fits
    }

    /// As it is written and read at the client's end.
    fn there<'a>(&'a self, id: &'a str) -> Side<'a> {
        Side { id, session: &self.peer.spells, line_break: "\r" }
    }

    fn here<'a>(&'a self, id: &'a str) -> Side<'a> {
        Side { id, session: &self.peer.reads, line_break: " " }
    }
}

fn own(line: &Recipe) -> String {
    let own = line
        .0
        .iter()
        .find_map(|part| if let Part::Own(id) = part { Some(id.clone()) } else { None });
    own.expect("it has an id of its own")
}
