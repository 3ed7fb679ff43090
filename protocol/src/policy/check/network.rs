//! The rules of the network: ports, sockets, hosts, and that they do not contradict each other.

use std::collections::HashMap;

use toml::Spanned;

use super::{Checked, Checker, file};
use crate::policy::egress::{Egress, HostPattern, HostRule, Mode, Reach};
use crate::policy::{Port, PortRule, SocketCall, SocketFamily, SocketRule, SocketType};
use crate::ports;

/// Landlock's ABI that has UDP rules (landlock(7)).
const UDP_ABI: u32 = 10;

/// Sockets of these can carry something off the machine.
const LEAVES: [SocketFamily; 3] = [SocketFamily::Inet, SocketFamily::Inet6, SocketFamily::Vsock];

// === impl Checker ===

impl Checker<'_> {
    pub(super) fn ports(&self, rule: Spanned<file::Ports>) -> Checked<PortRule> {
        if rule.get_ref().connect.is_empty() && rule.get_ref().bind.is_empty() {
            return Err(
                self.wrong(&rule, "this rule names no port: add connect or bind, or remove it")
            );
        }
        let line = self.line(&rule);
        let file::Ports { connect, bind, reason } = rule.into_inner();
        let ports = |values: Vec<Spanned<toml::Value>>| -> Checked<Vec<Port>> {
            values.iter().map(|value| self.port(value)).collect()
        };
        Ok(PortRule {
            connect: ports(connect)?,
            bind: ports(bind)?,
            reason: self.reason(reason)?,
            line,
        })
    }

    fn port(&self, value: &Spanned<toml::Value>) -> Checked<Port> {
        let port = match value.get_ref() {
            toml::Value::Integer(number) => u16::try_from(*number).ok().map(Port::Number),
            toml::Value::String(word) if word == "{ports}" => Some(Port::Own),
            toml::Value::String(word) if word == "{connect}" => Some(Port::Connect),
            _ => None,
        };
        if let Some(Port::Number(number)) = port
            && let Some(why) = ports::foreign(number)
        {
            return Err(self.wrong(value, why));
        }
        port.ok_or_else(|| {
            self.wrong(value, "not a port: write 0 to 65535, \"{ports}\" or \"{connect}\"")
        })
    }

    pub(super) fn socket(&self, rule: Spanned<file::Socket>) -> Checked<SocketRule> {
        let line = self.line(&rule);
        let file::Socket { family, types, protocols, calls, tier, abi, reason } = rule.into_inner();
        if types.get_ref().is_empty() {
            return Err(self.wrong(&types, "types is empty: name a type or remove the rule"));
        }
        if protocols.get_ref().is_empty() {
            return Err(
                self.wrong(&protocols, "protocols is empty: name one (0 is the default protocol)")
            );
        }
        let calls = match calls {
            None => SocketCall::ALL.to_vec(),
            Some(named) => {
                let mut calls = named.get_ref().clone();
                calls.sort_unstable();
                calls.dedup();
                if calls.is_empty() || calls.len() != named.get_ref().len() {
                    return Err(
                        self.wrong(&named, "calls names each of socket and socketpair once at most: name one, or leave it out for both")
                    );
                }
                calls
            }
        };
        Ok(SocketRule {
            family,
            types: types.into_inner(),
            protocols: protocols.into_inner(),
            calls,
            tier,
            landlock_abi: abi,
            reason: self.reason(reason)?,
            line,
        })
    }

    pub(super) fn egress(
        &self,
        section: Option<Spanned<file::Egress>>,
        hosts: Vec<Spanned<file::Host>>,
    ) -> Checked<Option<Egress>> {
        let Some(section) = section else {
            return match hosts.first() {
                None => Ok(None),
                Some(host) => Err(self.wrong(
                    host,
                    "hosts mean nothing without a mode: add [egress] with mode = \"allow-list\"",
                )),
            };
        };
        let line = self.line(&section);
        let file::Egress { mode, reason } = section.into_inner();
        if let Some(host) = hosts.first().filter(|_| *mode.get_ref() != Mode::AllowList) {
            let mode = mode.get_ref();
            return Err(self.wrong(
                host,
                format!("egress is {mode} (line {line}), so hosts mean nothing: write mode = \"allow-list\" or remove them"),
            ));
        }
        let mut seen = HashMap::new();
        Ok(Some(Egress {
            mode: mode.into_inner(),
            reason: self.reason(reason)?,
            line,
            hosts: hosts
                .into_iter()
                .map(|rule| self.host(&mut seen, rule))
                .collect::<Checked<_>>()?,
        }))
    }

    fn host(
        &self,
        seen: &mut HashMap<HostPattern, usize>,
        rule: Spanned<file::Host>,
    ) -> Checked<HostRule> {
        let line = self.line(&rule);
        let file::Host { names, reach, reason } = rule.into_inner();
        if names.get_ref().is_empty() {
            return Err(self.wrong(&names, "names is empty: name a host or remove the rule"));
        }
        let mut patterns = Vec::with_capacity(names.get_ref().len());
        for name in names.get_ref() {
            let pattern =
                HostPattern::parse(name.get_ref()).map_err(|why| self.wrong(name, why))?;
            self.once(seen, pattern.clone(), name, &format!("host {pattern}"))?;
            patterns.push(pattern);
        }
        let reach = match reach {
            None => vec![Reach::Public],
            Some(named) => self.each_once(&named, "reach")?,
        };
        Ok(HostRule { names: patterns, reach, reason: self.reason(reason)?, line })
    }

    /// Egress `none` is held by what the other rules leave out, so they have to leave it out.
    pub(super) fn none_is_none(&self, egress: Option<&Egress>, file: &file::File) -> Checked<()> {
        let Some(Egress { line, .. }) = egress.filter(|egress| egress.mode == Mode::None) else {
            return Ok(());
        };
        for rule in file.tcp.iter().chain(&file.udp) {
            if let Some(port) = rule.get_ref().connect.first() {
                return Err(self.wrong(
                    port,
                    format!("egress is none (line {line}) and this lets ports be connected to: remove one of the two"),
                ));
            }
        }
        for rule in &file.socket {
            let family = rule.get_ref().family;
            if LEAVES.contains(&family) {
                return Err(self.wrong(
                    rule,
                    format!("egress is none (line {line}) and {family} sockets leave the machine: remove one of the two"),
                ));
            }
        }
        Ok(())
    }

    /// Rules for UDP ports, without sockets to use them or on a kernel that does not know them, would be idle or a hole.
    pub(super) fn udp_is_restricted(&self, file: &file::File) -> Checked<()> {
        let Some(first) = file.udp.first() else { return Ok(()) };
        let mut datagrams = file
            .socket
            .iter()
            .map(Spanned::get_ref)
            .filter(|rule| matches!(rule.family, SocketFamily::Inet | SocketFamily::Inet6))
            .filter(|rule| rule.types.get_ref().contains(&SocketType::Dgram))
            .peekable();
        if datagrams.peek().is_none() {
            return Err(self.wrong(
                first,
                "no [[socket]] rule lists inet or inet6 dgram, so there is nothing that could use these ports: add one or remove this",
            ));
        }
        let abi = &file.landlock.get_ref().abi;
        if datagrams.any(|rule| rule.abi.max(*abi.get_ref()) < UDP_ABI) {
            return Err(self.wrong(
                abi,
                format!("[[udp]] rules need Landlock ABI {UDP_ABI}: write abi = {UDP_ABI} here, or in the [[socket]] rules that list dgram"),
            ));
        }
        Ok(())
    }
}
