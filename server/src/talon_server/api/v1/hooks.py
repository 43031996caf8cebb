"""Lifecycle hooks of OpenSandbox as a shell script that ends in the entry process. Pure; called by `translate`.

preStart runs first, and the sandbox ends when it fails; periodic hooks run beside the entry process, each never twice at
once. They live in the sandbox, so they go on without the server, pause with it and end with it. Needs `sh`, `date`
and `timeout` in the image.
"""

import shlex
from collections.abc import Sequence

from talon_server.api.v1.schemas import Hooks, Periodic, PreStart

_MATCHES = r"""matches() {
  old=$IFS; IFS=,; set -f
  for part in $1; do
    step=1 range=$part
    case $part in */*) step=${part#*/} range=${part%%/*} ;; esac
    case $range in
      '*') low=$3 high=99 ;;
      *-*) low=${range%%-*} high=${range#*-} ;;
      *) low=$range high=$range; [ "$part" = "$range" ] || high=99 ;;
    esac
    if [ "$2" -ge "$low" ] && [ "$2" -le "$high" ] && [ $((($2 - low) % step)) -eq 0 ]; then IFS=$old; return 0; fi
  done
  IFS=$old; return 1
}
due() {
  set -- "$@" $(date '+%-M %-H %-d %-m %w')
  [ "${10}" = 0 ] && seventh=7 || seventh=${10}
  matches "$1" "$6" 0 && matches "$2" "$7" 0 && matches "$3" "$8" 1 && matches "$4" "$9" 1 &&
    { matches "$5" "${10}" 0 || matches "$5" "$seventh" 0; }
}
"""
_UNITS = {"s": 1, "m": 60, "h": 3600}


def entrypoint(hooks: Hooks | None, asked: Sequence[str]) -> tuple[str, ...]:
    """The entry process with its hooks around it; as asked when there are none."""
    if hooks is None or not (hooks.pre_start or hooks.periodic):
        return tuple(asked)
    parts = [_MATCHES] if any(not hook.schedule.startswith("@every") for hook in hooks.periodic) else []
    if hooks.pre_start is not None:
        parts.append(_first(hooks.pre_start))
    parts += [_again(hook) for hook in hooks.periodic]
    return ("/bin/sh", "-c", "".join(parts) + f"exec {shlex.join(asked)}")


def _first(hook: PreStart) -> str:
    return f"{_bounded(hook.command, hook.timeout_seconds)} || {{ echo 'the preStart hook failed' >&2; exit 126; }}\n"


def _again(hook: Periodic) -> str:
    work = _bounded(hook.command, hook.timeout_seconds)
    said = f"{work} || echo {shlex.quote(f'the periodic hook {hook.name} failed')} >&2"
    if hook.schedule.startswith("@every"):
        every = hook.schedule.removeprefix("@every").strip()
        return f"(while sleep {int(every[:-1]) * _UNITS[every[-1]]}; do {said}; done) &\n"
    fields = " ".join(shlex.quote(field) for field in hook.schedule.split())
    return f"(while sleep $((60 - $(date +%-S))); do if due {fields}; then {said}; fi; done) &\n"


def _bounded(command: Sequence[str], seconds: int) -> str:
    return f"timeout -k 1 {seconds} {shlex.join(command)}"
