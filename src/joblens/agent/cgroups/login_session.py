"""Logout and shutdown by systemd: which background processes they kill, and whether one is in progress.

A process belongs to the first unit of its control group's path. That is the scope of a login session,
which logind stops at logout only with KillUserProcesses=yes; the user manager, which stops with the
user's last session unless the user lingers; or a unit of the machine, which no logout affects. A process
that stays in a session's scope keeps the session, and with it the user manager, alive.
"""

import contextlib
import os
import signal
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.cgroups.systemd_scope import is_lingering, scope_terms
from joblens.analysis.findings.job import with_ending
from joblens.model.jobs.job import LOGOUT, SHUTDOWN, Outcome, Record, Status
from joblens.probes.proc.kernel_files import read_text

_SYSTEMD, _SYSTEMD_PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_LOGIN = "org.freedesktop.login1"
_BUS = "/run/dbus/system_bus_socket"
_TIMEOUT_S = 1.0
_POLKIT = "/usr/share/dbus-1/system-services/org.freedesktop.PolicyKit1.service"
_ERRORS = {
    LOGOUT: "the login session ended, and systemd stopped its processes",
    SHUTDOWN: "the machine was shut down",
}
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
_STOPPED = ("deactivating", "inactive", "failed")


class SystemBus:
    """Properties of the machine's systemd and logind over the system bus. None: no answer."""

    def __init__(self, socket: str = _BUS) -> None:
        self._socket = socket

    def unit_state(self, unit: str) -> Any:
        from joblens.agent.cgroups.systemd_manager import unit_path

        return self._get(_SYSTEMD, unit_path(unit), f"{_SYSTEMD}.Unit", "ActiveState")

    def machine_state(self) -> Any:
        return self._get(_SYSTEMD, _SYSTEMD_PATH, f"{_SYSTEMD}.Manager", "SystemState")

    def login(self, name: str) -> Any:
        return self._get(_LOGIN, "/org/freedesktop/login1", f"{_LOGIN}.Manager", name)

    def _get(self, service: str, path: str, interface: str, name: str) -> Any:
        if not os.path.exists(self._socket):
            return None
        from joblens.agent.cgroups.systemd_manager import ManagerError, SystemdManager

        try:
            manager = SystemdManager([self._socket], _TIMEOUT_S)
            return manager.object_property(path, interface, name, destination=service)
        except ManagerError:
            return None


class LoginRules(Struct, frozen=True, kw_only=True):
    """Rules of logind for this user's logout."""

    is_lingering: bool
    kills_processes: bool  # with the session


def system_unit(pid: int | str = "self", proc: str = "/proc") -> str:
    """Returns the unit of the machine's manager that contains a process; empty: none."""
    for line in (read_text(f"{proc}/{pid}/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        # On a hybrid machine systemd has its own hierarchy.
        if len(fields) == 3 and fields[1] in ("", "name=systemd"):
            unit = unit_of_path(fields[2])
            if unit:
                return unit
    return ""


def unit_of_path(path: str) -> str:
    """Returns the unit of the machine's manager that contains a control group, by its path."""
    return next((part for part in path.split("/") if part.endswith((".service", ".scope"))), "")


def is_session(unit: str) -> bool:
    return unit.startswith("session-") and unit.endswith(".scope")


def is_user_manager(unit: str) -> bool:
    return unit.startswith("user@") and unit.endswith(".service")


def read_login_rules(user: str, bus: SystemBus | None = None) -> LoginRules:
    bus = bus or SystemBus()
    return LoginRules(is_lingering=is_lingering(user), kills_processes=_kills_processes(user, bus))


def _kills_processes(user: str, bus: SystemBus) -> bool:
    """Decides like logind: the exceptions first, then the list of users, then the switch for all others."""
    if user in (bus.login("KillExcludeUsers") or ()):
        return False
    only = bus.login("KillOnlyUsers")
    return user in only if only else bool(bus.login("KillUserProcesses"))


def ends_at_logout(unit: str, rules: LoginRules) -> bool:
    """Returns whether a process in that unit, and its jobs, are stopped when the user logs out."""
    if is_user_manager(unit):
        return not rules.is_lingering
    return is_session(unit) and rules.kills_processes


def logout_warning(pid: int, user: str, what: str, bus: SystemBus | None = None, proc: str = "/proc") -> str:
    """Returns a warning for a user who gave something (such as 'this job') to that background process;
    empty: it survives a logout."""
    service = _shared_service(pid, proc)
    if service:
        return f"the end of {service} ends {what}, unless the service has KillMode=process"
    unit = system_unit(pid, proc)
    if os.geteuid() == 0 or not (is_session(unit) or is_user_manager(unit)):
        return ""
    rules = read_login_rules(user, bus)
    if not ends_at_logout(unit, rules):
        return ""
    if is_user_manager(unit):
        return f"logging out stops {what}; enable lingering to keep it running: {linger_command(user)}"
    why = "logind has KillUserProcesses=yes"
    if rules.is_lingering:  # it was started before that, or the user manager did not answer
        return f"logging out stops {what}, as {why}"
    return f"logging out stops {what}, as {why}; enable lingering and submit again: {linger_command(user)}"


def _shared_service(pid: int, proc: str) -> str:
    """Returns the service that contains both that background process and this one: systemd stops all its
    processes with the main one. Empty: there is none."""
    own, other = (read_text(f"{proc}/{name}/cgroup") or "" for name in ("self", pid))
    path = own.strip().rpartition(":")[2]
    return os.path.basename(path) if own == other and path.endswith(".service") else ""


def leave_session(user: str) -> None:
    """Moves this process, which should outlive its login session, into a scope of the user manager; only
    if logind would stop it with the session and the user lingers."""
    if os.geteuid() == 0 or not is_lingering(user) or not is_session(system_unit()):
        return
    if not read_login_rules(user).kills_processes:
        return
    from joblens.agent.cgroups.systemd_manager import NO_LIMIT, ManagerError, Scope, SystemdManager
    from joblens.probes.cgroup.layout import read_layout

    terms = scope_terms(read_layout())
    if terms.refusal:
        return
    scope = Scope(
        unit=f"joblens-background-{os.getpid()}.scope",
        slice=terms.slice,
        tasks_max=NO_LIMIT if terms.tasks_max is None else terms.tasks_max,
        description="joblens in the background",
    )
    with contextlib.suppress(ManagerError):  # then it stops with the session, and the next submit warns
        SystemdManager().start_scope(scope, os.getpid(), lambda: is_user_manager(system_unit()))


def linger_command(user: str) -> str:
    """Returns the command. Users may run it for themselves where polkit is installed."""
    return "loginctl enable-linger" if os.path.exists(_POLKIT) else f"sudo loginctl enable-linger {user}"


def stop_reason(units: set[str], bus: SystemBus | None = None) -> str:
    """Returns why systemd is stopping processes of these units now: LOGOUT, SHUTDOWN, or empty."""
    watched = [unit for unit in units if unit]
    if not watched:
        return ""
    bus = bus or SystemBus()
    state = bus.machine_state()
    if state == "stopping":
        return SHUTDOWN
    logins = [unit for unit in watched if is_session(unit) or is_user_manager(unit)]
    return LOGOUT if state and any(bus.unit_state(unit) in _STOPPED for unit in logins) else ""


def name_stop(record: Record, bus: SystemBus | None = None) -> Record:
    """Returns the record with the logout or shutdown that stopped its job. Other records are returned
    unchanged, at no cost."""
    outcome = record.outcome
    if outcome is None or not _was_stopped(outcome):
        return record
    groups = record.attempt.groups.values() if record.attempt is not None else ()
    reason = stop_reason({system_unit(), *map(unit_of_path, groups)}, bus)
    if not reason:
        return record
    outcome = replace(outcome, status=Status.CANCELLED, reason=reason, error=_ERRORS[reason])
    return replace(record, status=outcome.status, outcome=with_ending(record.job, outcome))


def _was_stopped(outcome: Outcome) -> bool:
    """Returns whether this process or a signal like systemd's stopped it; a shell shows such signals as
    exit codes."""
    if outcome.status is Status.CANCELLED:
        return outcome.reason == "cancelled"
    codes = [128 + number for number in _STOP_SIGNALS]
    return (
        outcome.status is Status.FAILED
        and outcome.reason in ("signal", "exited")
        and outcome.exit_code in codes
    )
