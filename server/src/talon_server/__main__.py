"""The command `talon-server`: run it, look at its host, its configuration and its keys."""

import argparse
import logging
import sys
from importlib.metadata import version
from pathlib import Path

from talon_server import compose, doctor
from talon_server.config import Config, load
from talon_server.control.keys import Keys
from talon_server.errors import TalonError
from talon_server.store.database import Database


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        config = load({"home": options.home, **_overrides(options)})
        code: int = options.run(config, options)
    except TalonError as error:
        print(f"talon-server: {error}", file=sys.stderr)
        if error.remedy:
            print(error.remedy, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("talon-server", description=__doc__)
    parser.add_argument("--version", action="version", version=version("talon-sandbox-server"))
    commands = parser.add_subparsers(required=True)
    run = _command(commands, "all", _run, "run API, control plane and worker in this process")
    run.add_argument("--host", help="address to listen on (127.0.0.1)")
    run.add_argument("--port", type=int, help="port to listen on (8080)")
    run.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    _command(commands, "doctor", _doctor, "what this host lacks, and what each lack costs")
    _command(commands, "config", _config, "print the configuration in force")
    keys = _command(commands, "keys", _keys, "create an API key")
    keys.add_argument("name", help="what the key is for")
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, run: object, about: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    parser.add_argument("--home", help="directory of the server's state (/var/lib/talon)")
    parser.set_defaults(run=run)
    return parser


def _overrides(options: argparse.Namespace) -> dict[str, object]:
    return {"listen.host": getattr(options, "host", None), "listen.port": getattr(options, "port", None)}


def _run(config: Config, options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    compose.run(config)
    return 0


def _doctor(config: Config, _options: argparse.Namespace) -> int:
    subject = doctor.Subject(config.home, config.agent or compose.DEFAULT_AGENT, config.runtime)
    findings = doctor.run(subject)
    for finding in findings:
        print(f"{finding.level:5} {finding.name}: {finding.found}")
        if finding.cost:
            print(f"      {finding.cost}")
        if finding.remedy:
            print(f"      {finding.remedy}")
    return 1 if any(finding.level == doctor.FAIL for finding in findings) else 0


def _config(config: Config, _options: argparse.Namespace) -> int:
    print(config.model_dump_json(indent=2))
    return 0


def _keys(config: Config, options: argparse.Namespace) -> int:
    database = Database.open(Path(config.home))
    try:
        _, raw = Keys(database).create(options.name)
    finally:
        database.close()
    print(raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
