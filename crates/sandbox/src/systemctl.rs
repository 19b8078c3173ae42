//! The sandbox's `systemctl`: the verbs that RKE2's scripts and units use, with systemd's exit codes.

use gpuaas_host::{
    HostError, UnitFileState,
    sandbox::{
        InitClient, SandboxEnvironment,
        protocol::{Reply, Request},
    },
};

/// `systemctl`'s exit code for a unit that is not active.
const NOT_ACTIVE: u8 = 3;
/// `systemctl`'s exit code for an unknown unit.
const NO_SUCH_UNIT: u8 = 5;

/// Runs a verb and returns `systemctl`'s exit code.
pub async fn run(arguments: &[String]) -> u8 {
    let environment = match SandboxEnvironment::from_process() {
        Ok(Some(environment)) => environment,
        Ok(None) => {
            eprintln!("this systemctl works only in a sandbox");
            return 1;
        }
        Err(error) => {
            eprintln!("{error}");
            return 1;
        }
    };
    let client = InitClient::new(environment.socket);
    let quiet = arguments.iter().any(|argument| argument == "-q" || argument == "--quiet");
    let no_block = arguments.iter().any(|argument| argument == "--no-block");
    let mut words = arguments.iter().filter(|argument| !argument.starts_with('-'));
    let verb = words.next().map(String::as_str).unwrap_or_default();
    let units: Vec<String> =
        words.map(|unit| if unit.contains('.') { unit.clone() } else { format!("{unit}.service") }).collect();
    if verb == "daemon-reload" {
        return exit_code(client.ask(Request::DaemonReload).await);
    }
    let mut code = 0;
    for unit in units {
        code = code.max(run_verb(&client, verb, unit, quiet, no_block).await);
    }
    code
}

async fn run_verb(client: &InitClient, verb: &str, unit: String, quiet: bool, no_block: bool) -> u8 {
    let print = |text: &str| {
        if !quiet {
            println!("{text}");
        }
    };
    match verb {
        "start" => exit_code(client.ask(Request::Start { unit, wait: !no_block }).await),
        "stop" => exit_code(client.ask(Request::Stop { unit }).await),
        "restart" => {
            let _ = client.ask(Request::Stop { unit: unit.clone() }).await;
            exit_code(client.ask(Request::Start { unit, wait: !no_block }).await)
        }
        "enable" | "disable" => match client.ask(Request::Enable { unit, enabled: verb == "enable" }).await {
            // `systemctl` prints this message and succeeds.
            Err(HostError::Unit { message, .. }) if message.contains("[Install]") => {
                eprintln!("{message}");
                0
            }
            reply => exit_code(reply),
        },
        "mask" | "unmask" => exit_code(client.ask(Request::Mask { unit, masked: verb == "mask" }).await),
        "reset-failed" => exit_code(client.ask(Request::ResetFailed { unit }).await),
        "is-active" => match client.ask(Request::Status { unit }).await {
            Ok(Reply::Status(Some(status))) => {
                print(&status.active);
                if status.active == "active" { 0 } else { NOT_ACTIVE }
            }
            _ => {
                print("inactive");
                NOT_ACTIVE
            }
        },
        "is-enabled" => {
            let state = match client.ask(Request::UnitFileState { unit }).await {
                Ok(Reply::UnitFileState(state)) => state,
                _ => UnitFileState::Missing,
            };
            print(match state {
                UnitFileState::Enabled => "enabled",
                UnitFileState::Disabled => "disabled",
                UnitFileState::Masked => "masked",
                UnitFileState::Missing => "not-found",
            });
            u8::from(state != UnitFileState::Enabled)
        }
        "show" => match client.ask(Request::Status { unit }).await {
            Ok(Reply::Status(Some(status))) => {
                println!(
                    "ActiveState={}\nSubState={}\nResult={}\nNRestarts={}\nExecMainStatus={}\nMainPID={}",
                    status.active,
                    status.sub,
                    status.result,
                    status.n_restarts,
                    status.exec_main_status,
                    status.main_pid
                );
                0
            }
            _ => NO_SUCH_UNIT,
        },
        other => {
            eprintln!("Unknown command verb {other}.");
            1
        }
    }
}

fn exit_code(reply: Result<Reply, HostError>) -> u8 {
    match reply {
        Ok(_) => 0,
        Err(HostError::Unit { message, .. }) => {
            eprintln!("{message}");
            if message.contains("not found") || message.contains("not loaded") { NO_SUCH_UNIT } else { 1 }
        }
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}
