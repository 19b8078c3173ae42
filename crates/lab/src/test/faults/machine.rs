//! Machines that cannot be enrolled, permanently or for now.

use anyhow::ensure;

use super::{
    WAIT_MAX,
    clock::ShiftedClock,
    command_output::{CommandOutput, capture_script, run_script},
    environment::{Environment, check_unchanged},
    table::CellResult,
};

/// More than the tolerated five minutes.
const TEN_MINUTES: &str = "+10m";
/// Hides dpkg within a mount namespace, so that the machine seems to take no Debian packages.
const WITHOUT_DPKG: &str = "mount --bind /bin/false /usr/bin/dpkg-query";

/// The enrollment command runs as an ordinary user.
pub(super) fn not_root(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let (_, enrollment) = environment.register("not-root")?;
    let nobody = |text: &str| {
        let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", text];
        anyhow::Ok(CommandOutput::from(node.run(&words)?))
    };
    let outcome = nobody(&enrollment.command)?.expect_refusal("install_not_root", 6, "run it as root")?;
    check_unchanged(&node)?;
    CellResult::new(outcome, [format!("id: {}", nobody("id")?.expect_success()?)])
}

/// The machine seems to be booted without systemd: systemd's files under `/run` are hidden.
pub(super) fn no_systemd(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
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

/// The machine's architecture has no package: it reports a 32-bit one, and dpkg, which knows the real one, is hidden.
pub(super) fn wrong_architecture(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let (_, enrollment) = environment.register("wrong-arch")?;
    let as_other = |text: &str| {
        let text = format!("{WITHOUT_DPKG} && {text}");
        anyhow::Ok(CommandOutput::from(node.run(&["unshare", "--mount", "setarch", "i686", "sh", "-c", &text])?))
    };
    let outcome = as_other(&enrollment.command)?.expect_refusal(
        "install_architecture_unsupported",
        4,
        "the control plane has one for: ",
    )?;
    check_unchanged(&node)?;
    let machine = as_other("uname --machine")?.expect_success()?.to_owned();
    ensure!(machine != capture_script(&node, "uname --machine")?, "the reported architecture is still {machine}");
    CellResult::new(outcome, [format!("uname: {machine}")])
}

/// The machine's clock is ten minutes ahead; once it is right, the same command enrolls the machine.
pub(super) fn clock_off(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let (node, clock) = (environment.machine()?, ShiftedClock::at(TEN_MINUTES)?);
    let (name, enrollment) = environment.register("clock-off")?;
    let output = clock.run_script(&node, &enrollment.command)?;
    let outcome = output.expect_refusal("clock_skewed", 5, "set this machine's clock")?;
    ensure!(
        output.err.contains("s ahead of the control plane's"),
        "the error does not state the direction: {}",
        output.err
    );
    check_unchanged(&node)?;
    let theirs = format!("curl -skI {}/livez | sed -n 's/^[Dd]ate: *//p' | tr -d '\\r'", environment.platform.url());
    let proof = format!(
        "date under libfaketime: {}, control plane: {}",
        clock.run_script(&node, "date -u")?.expect_success()?,
        capture_script(&node, &theirs)?
    );
    run_script(&node, &enrollment.command)?.expect_success_with(&["connected to "])?;
    environment.platform.wait_connected(&name)?;
    CellResult::new(format!("{outcome}; with the right time, it enrolled"), [proof])
}

/// The folder for programs is read-only.
pub(super) fn folder_read_only(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
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

/// The folder for an archive's programs is mounted `noexec`. dpkg, whose target folder cannot be `noexec`, is hidden.
pub(super) fn folder_noexec(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
    let node = environment.machine()?;
    let (_, enrollment) = environment.register("noexec")?;
    let mounted = |text: &str| {
        let text = format!("{WITHOUT_DPKG} && mount -t tmpfs -o noexec tmpfs /usr/local/bin && {text}");
        anyhow::Ok(CommandOutput::from(node.run(&["unshare", "--mount", "sh", "-c", &text])?))
    };
    let outcome =
        mounted(&enrollment.command)?.expect_refusal("install_folder_noexec", 4, "mount it without noexec")?;
    check_unchanged(&node)?;
    let options = mounted("findmnt --noheadings --output TARGET,OPTIONS /usr/local/bin")?;
    let options = options.expect_success_with(&["noexec"])?;
    CellResult::new(outcome, [format!("findmnt: {options}")])
}

/// The agent's unit is masked.
pub(super) fn unit_masked(environment: &mut Environment<'_>) -> anyhow::Result<CellResult> {
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
