//! Machines that cannot be enrolled, permanently or for now.

use anyhow::ensure;

use super::{
    PATIENCE,
    clock::OtherClock,
    said::{Said, in_shell, says},
    table::Told,
    world::{World, must_be_untouched},
};

/// More than the tolerated five minutes.
const TEN_MINUTES: &str = "+10m";
/// Hides dpkg within a mount namespace, so that the machine seems to take no Debian packages.
const WITHOUT_DPKG: &str = "mount --bind /bin/false /usr/bin/dpkg-query";

/// The enrollment command runs as an ordinary user.
pub(super) fn not_root(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let (_, enrollment) = world.line("not-root")?;
    let nobody = |text: &str| {
        let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", text];
        anyhow::Ok(Said::from(node.run(&words)?))
    };
    let outcome = nobody(&enrollment.command)?.refused("install_not_root", 6, "run it as root")?;
    must_be_untouched(&node)?;
    Told::new(outcome, [format!("id: {}", nobody("id")?.well()?)])
}

/// The machine seems to be booted without systemd: systemd's files under `/run` are hidden.
pub(super) fn no_systemd(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let (_, enrollment) = world.line("no-systemd")?;
    let hidden = |text: &str| {
        let text = format!("mount -t tmpfs tmpfs /run/systemd && {{ {text}; }}");
        anyhow::Ok(Said::from(node.run(&["unshare", "--mount", "sh", "-c", &text])?))
    };
    let outcome =
        hidden(&enrollment.command)?.refused("install_no_systemd", 4, "bring in a machine that runs systemd")?;
    must_be_untouched(&node)?;
    let says = hidden("systemctl is-system-running; ls -d /run/systemd/system")?;
    ensure!(says.status != Some(0), "systemd is there all the same: {says:?}");
    Told::new(outcome, [format!("systemctl: {}; ls: {}", says.out, says.err)])
}

/// The machine's architecture has no package: it reports a 32-bit one, and dpkg, which knows the real one, is hidden.
pub(super) fn wrong_architecture(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let (_, enrollment) = world.line("wrong-arch")?;
    let as_other = |text: &str| {
        let text = format!("{WITHOUT_DPKG} && {text}");
        anyhow::Ok(Said::from(node.run(&["unshare", "--mount", "setarch", "i686", "sh", "-c", &text])?))
    };
    let outcome = as_other(&enrollment.command)?.refused(
        "install_architecture_unsupported",
        4,
        "the control plane has one for: ",
    )?;
    must_be_untouched(&node)?;
    let machine = as_other("uname --machine")?.well()?.to_owned();
    ensure!(machine != says(&node, "uname --machine")?, "it is what it always is: {machine}");
    Told::new(outcome, [format!("uname: {machine}")])
}

/// The machine's clock is ten minutes ahead; once it is right, the same command enrolls the machine.
pub(super) fn clock_off(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (node, clock) = (world.machine()?, OtherClock::at(TEN_MINUTES)?);
    let (name, enrollment) = world.line("clock-off")?;
    let said = clock.in_shell(&node, &enrollment.command)?;
    let outcome = said.refused("clock_skewed", 5, "set this machine's clock")?;
    ensure!(said.err.contains("s ahead of the control plane's"), "it does not say which way: {}", said.err);
    must_be_untouched(&node)?;
    let theirs = format!("curl -skI {}/livez | sed -n 's/^[Dd]ate: *//p' | tr -d '\\r'", world.platform.url());
    let proof = format!(
        "date under libfaketime: {}, control plane: {}",
        clock.in_shell(&node, "date -u")?.well()?,
        says(&node, &theirs)?
    );
    in_shell(&node, &enrollment.command)?.well_with(&["connected to "])?;
    world.platform.connects(&name)?;
    Told::new(format!("{outcome}; set right, it came in"), [proof])
}

/// The folder for programs is read-only.
pub(super) fn folder_read_only(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let (_, enrollment) = world.line("read-only")?;
    says(&node, "mount --bind /usr/bin /usr/bin && mount -o remount,bind,ro /usr/bin")?;
    let outcome = in_shell(&node, &enrollment.command)?.refused("install_folder_read_only", 4, "make it writable")?;
    must_be_untouched(&node)?;
    let options = says(&node, "findmnt --noheadings --output TARGET,OPTIONS /usr/bin")?;
    ensure!(options.split([' ', ',']).any(|option| option == "ro"), "it is writable: {options}");
    // Lazy, because `umount` itself runs from there.
    says(&node, "umount --lazy /usr/bin")?;
    in_shell(&node, &enrollment.command)?.well_with(&["connected to "])?;
    Told::new(format!("{outcome}; writable, it came in"), [format!("findmnt: {options}")])
}

/// The folder for an archive's programs is mounted `noexec`. dpkg, whose target folder cannot be `noexec`, is hidden.
pub(super) fn folder_noexec(world: &mut World<'_>) -> anyhow::Result<Told> {
    let node = world.machine()?;
    let (_, enrollment) = world.line("noexec")?;
    let mounted = |text: &str| {
        let text = format!("{WITHOUT_DPKG} && mount -t tmpfs -o noexec tmpfs /usr/local/bin && {text}");
        anyhow::Ok(Said::from(node.run(&["unshare", "--mount", "sh", "-c", &text])?))
    };
    let outcome = mounted(&enrollment.command)?.refused("install_folder_noexec", 4, "mount it without noexec")?;
    must_be_untouched(&node)?;
    let options = mounted("findmnt --noheadings --output TARGET,OPTIONS /usr/local/bin")?;
    let options = options.well_with(&["noexec"])?;
    Told::new(outcome, [format!("findmnt: {options}")])
}

/// The agent's unit is masked.
pub(super) fn unit_masked(world: &mut World<'_>) -> anyhow::Result<Told> {
    let member = world.enrolled("masked")?;
    says(&member.node, "systemctl mask --now gpuaas-agent.service")?;
    world.platform.until("the node is away", PATIENCE, || {
        Ok((world.platform.shown(&member.name)?.connectivity == "unreachable").then_some(()))
    })?;
    let outcome =
        in_shell(&member.node, &member.enrollment.command)?.refused("install_unit_masked", 4, "systemctl unmask")?;
    let state = in_shell(&member.node, "systemctl is-enabled gpuaas-agent.service")?.out;
    ensure!(state == "masked", "it is {state}");
    says(&member.node, "systemctl unmask gpuaas-agent.service")?;
    in_shell(&member.node, &member.enrollment.command)?.well_with(&["already enrolled as ", "connected to "])?;
    world.platform.connects(&member.name)?;
    Told::new(format!("unreachable; {outcome}; unmasked, it came back"), [format!("systemctl is-enabled: {state}")])
}
