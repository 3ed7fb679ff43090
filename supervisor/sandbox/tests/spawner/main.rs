//! The spawner from the agent's side: what a process behind a wall can do to the spawner, the supervisor and another
//! session, and what it inherits.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod ends;
mod inherited;
mod shield;
mod start;
#[path = "../support/mod.rs"]
mod support;
mod upwards;
mod walls;

use std::fs;
use std::time::Duration;

use nix::errno::Errno;

const TESTS: &[support::Test] = &[
    ("a_command_runs_behind_the_wall_and_its_exit_code_reaches_us_alone", start::exit_codes),
    ("the_agent_starts_with_a_clean_process_state", start::clean_state),
    ("a_file_is_linked_and_moved_from_one_folder_to_another", walls::moved),
    ("the_agent_inherits_three_descriptors_and_nothing_else", inherited::descriptors),
    ("the_agent_gets_exactly_the_given_environment", inherited::environment),
    ("the_agent_cannot_touch_spawner_or_supervisor", upwards::attacks_upwards),
    ("the_shield_holds_and_stays_with_the_supervisor", shield::shield_stays),
    ("without_a_signal_scope_there_is_no_session", shield::no_scope_no_session),
    ("kill_all_ends_daemons_of_its_session_and_nothing_else", ends::kill_all),
    ("dropping_a_session_ends_its_processes", ends::dropped_session),
    ("a_killed_supervisor_leaves_neither_agents_nor_spawner", ends::killed_supervisor),
    ("neither_spawner_nor_agents_hold_what_they_were_not_given", inherited::not_given),
    ("the_spawner_alone_keeps_what_it_is_given_and_to_its_end", inherited::kept),
    ("a_terminal_that_is_handed_over_is_the_commands_own", start::terminal),
    ("a_failed_start_names_step_and_errno", start::failures),
    ("no_exit_code_is_lost_among_failing_and_fast_starts", start::no_lost_exit),
    ("a_probe_answers_what_the_agent_would_get", walls::probe),
    ("large_arguments_pass_and_too_large_ones_are_refused", start::large_arguments),
    ("more_walls_than_are_kept_still_each_hold", walls::many_walls),
    ("a_wall_is_opened_in_the_parent_and_put_on_in_the_child", walls::opened_before),
    ("the_spawner_is_not_started_beside_threads", start::threads_refused),
];

fn main() {
    support::main(TESTS, agent);
}

fn agent(verb: &str, arguments: &[String]) {
    match verb {
        "exit" => std::process::exit(arguments[0].parse().unwrap()),
        "parent" => println!("{}", nix::unistd::getppid()),
        "abort" => std::process::abort(),
        "sleep" => std::thread::sleep(Duration::from_secs(300)),
        "state" => {
            println!("{}", fs::read_to_string("/proc/self/status").unwrap());
            let leader = nix::unistd::getsid(None).unwrap() == nix::unistd::getpid();
            println!("leader: {leader}");
        }
        "descriptors" => {
            for entry in fs::read_dir("/proc/self/fd").unwrap() {
                let entry = entry.unwrap();
                let target = fs::read_link(entry.path()).unwrap();
                println!("{} {}", entry.file_name().display(), target.display());
            }
        }
        "create" => match fs::File::create(&arguments[0]) {
            Ok(_) => println!("ok"),
            Err(error) => println!("{:?}", Errno::from_raw(error.raw_os_error().unwrap())),
        },
        "attack" => upwards::attack(arguments[0].parse().unwrap()),
        "daemon" => ends::daemonize(),
        "attacked" => upwards::attacked(),
        "shielded" => shield::shielded(),
        "without-landlock" => shield::without_landlock(),
        "jit" => println!("{}", shield::executable_memory()),
        "supervisor" => ends::supervise(),
        other => panic!("no verb {other}"),
    }
}
