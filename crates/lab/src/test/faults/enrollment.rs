//! Enrollments that are refused for a reason that only a booted machine shows: its systemd, its packages, its agent, a second machine.

use anyhow::{Context, ensure};

use super::{
    WAIT_MAX,
    command_output::{CommandOutput, capture_script, run_script},
    environment::{Environment, check_unchanged},
    table::CellResult,
};
use crate::node::Node;

/// The machine is already enrolled as another node.
pub(super) fn for_another_node(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let member = environment.enrolled("settled")?;
    let (name, enrollment) = environment.register("elsewhere")?;
    let output = run_script(&member.node, &enrollment.command)?;
    let outcome = output.expect_refusal("install_already_enrolled", 5, "install.sh --uninstall")?;
    let status = capture_script(&member.node, "gpuaas-agent status")?;
    ensure!(
        status.lines().any(|line| line == format!("name {}", member.name)),
        "the agent is another node now: {status}"
    );
    ensure!(environment.platform.show_node(&name)?.state == "registered", "another machine enrolled as {name}");
    CellResult::new(outcome, [format!("gpuaas-agent status: {status}")])
}

/// Two machines use the string at the same time.
pub(super) fn at_two_machines_at_once(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let (one, other) = (environment.machine()?, environment.machine()?);
    let (name, enrollment) = environment.register("one-of-two")?;
    let timed = format!("b=$(date +%s%3N); {}; s=$?; echo $b $(date +%s%3N) >/tmp/ran; exit $s", enrollment.command);
    let (first, second, timed): (&Node, &Node, &str) = (&one, &other, &timed);
    let ends = std::thread::scope(|scope| {
        let runs = [first, second].map(|node| scope.spawn(move || run_script(node, timed)));
        runs.map(|run| run.join().map_err(|_| anyhow::anyhow!("a run panicked")))
    });
    let [first_output, second_output] = ends;
    let both = [(first, first_output??), (second, second_output??)];
    let (won, lost): (Vec<_>, Vec<_>) = both.iter().partition(|(_, output)| output.status == Some(0));
    let ([(winner, output)], [(loser, refused)]) = (won.as_slice(), lost.as_slice()) else {
        anyhow::bail!(
            "not exactly one of the two enrolled: {both:?}",
            both = both.iter().map(|(_, output)| output).collect::<Vec<_>>()
        );
    };
    output.expect_success_with(&["enrolled as ", "connected to "])?;
    let outcome = refused.expect_refusal("enrollment_used", 4, "gpuaas node enroll")?;
    ensure!(
        environment.platform.show_node(&name)?.state == "active",
        "{name} is {}",
        environment.platform.show_node(&name)?.state
    );
    let ran = |node: &Node| -> anyhow::Result<(u64, u64)> {
        let output = capture_script(node, "cat /tmp/ran")?;
        let (began, ended) = output.split_once(' ').context("parsing two times")?;
        Ok((began.parse()?, ended.parse()?))
    };
    let (winning, losing) = (ran(winner)?, ran(loser)?);
    ensure!(winning.0 < losing.1 && losing.0 < winning.1, "the two runs did not overlap: {winning:?} {losing:?}");
    let since = winning.0.min(losing.0);
    let describe =
        |node: &Node, ran: (u64, u64)| format!("{} ran from {} to {} ms", node.name(), ran.0 - since, ran.1 - since);
    CellResult::new(
        format!("{} enrolled; {}: {outcome}", winner.name(), loser.name()),
        [format!("date: {}, {}", describe(winner, winning), describe(loser, losing))],
    )
}

/// The machine seems to be booted without systemd: systemd's files under `/run` are hidden.
pub(super) fn no_systemd(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let (_, enrollment) = environment.register("no-systemd")?;
    let hidden = |text: &str| {
        let text = format!("mount -t tmpfs tmpfs /run/systemd && {{ {text}; }}");
        anyhow::Ok(CommandOutput::from(node.run(&["unshare", "--mount", "sh", "-c", &text])?))
    };
    let outcome =
        hidden(&enrollment.command)?.expect_refusal("install_no_systemd", 4, "use a machine that runs systemd")?;
    check_unchanged(&node)?;
    let output = hidden("systemctl is-system-running; ls -d /run/systemd/system")?;
    ensure!(output.status != Some(0), "systemd is still visible: {output:?}");
    CellResult::new(outcome, [format!("systemctl: {}; ls: {}", output.out, output.err)])
}

/// The folder for programs is read-only.
pub(super) fn folder_read_only(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let (_, enrollment) = environment.register("read-only")?;
    capture_script(&node, "mount --bind /usr/bin /usr/bin && mount -o remount,bind,ro /usr/bin")?;
    let outcome =
        run_script(&node, &enrollment.command)?.expect_refusal("install_folder_read_only", 4, "make it writable")?;
    check_unchanged(&node)?;
    let options = capture_script(&node, "findmnt --noheadings --output TARGET,OPTIONS /usr/bin")?;
    ensure!(options.split([' ', ',']).any(|option| option == "ro"), "/usr/bin is writable: {options}");
    // Lazy, because `umount` itself runs from there.
    capture_script(&node, "umount --lazy /usr/bin")?;
    run_script(&node, &enrollment.command)?.expect_success_with(&["connected to "])?;
    CellResult::new(format!("{outcome}; made writable, it enrolled"), [format!("findmnt: {options}")])
}

/// The agent's unit is masked.
pub(super) fn unit_masked(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let member = environment.enrolled("masked")?;
    capture_script(&member.node, "systemctl mask --now gpuaas-agent.service")?;
    environment.platform.until("the node is unreachable", WAIT_MAX, || {
        Ok((environment.platform.show_node(&member.name)?.connectivity == "unreachable").then_some(()))
    })?;
    let outcome = run_script(&member.node, &member.enrollment.command)?.expect_refusal(
        "install_unit_masked",
        4,
        "systemctl unmask",
    )?;
    let state = run_script(&member.node, "systemctl is-enabled gpuaas-agent.service")?.out;
    ensure!(state == "masked", "the unit is {state}");
    capture_script(&member.node, "systemctl unmask gpuaas-agent.service")?;
    run_script(&member.node, &member.enrollment.command)?
        .expect_success_with(&["already enrolled as ", "connected to "])?;
    environment.platform.wait_connected(&member.name)?;
    CellResult::new(
        format!("unreachable; {outcome}; unmasked, it reconnected"),
        [format!("systemctl is-enabled: {state}")],
    )
}
