"""The options of `framehost serve`, and the configuration that they make; what is done with it is the supervisor's."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from frontend.cli.models import Recognize
from frontend.cli.orders import setting
from frontend.configuration import endpoints, fetched, keys
from frontend.configuration import load as config
from frontend.configuration.model import Configuration
from frontend.configuration.toml_file import ConfigurationError
from protocol import families
from protocol.exits import ServeExit

_MEANT: Final = {
    ServeExit.CLEAN: "a requested stop",
    ServeExit.FAILED: "an error of framehost's own",
    ServeExit.CONFIGURATION: "a mistake in the options or the configuration",
    ServeExit.PORT_IN_USE: "the port is taken",
    ServeExit.MODEL_FAILED: "a model cannot be served",
    ServeExit.FRONT_FAILED: "the front cannot be kept running",
    ServeExit.NOT_DRAINED: "a requested stop that took too long",
    ServeExit.INTERRUPTED: "a second signal",
}


def add_to(commands: Any, run: Callable[[argparse.Namespace], int], recognize: Recognize) -> None:
    """Add the command's parser. `run`: what serves, the caller's, as is `recognize`."""
    serve = commands.add_parser(
        "serve",
        help="serve models over HTTP",
        description="Serve models over HTTP, until Ctrl-C or SIGTERM. Exit status: "
        + "; ".join(f"{status.value} {_MEANT[status]}" for status in ServeExit)
        + ".",
        epilog=f"families: {', '.join(families.BUILT_IN)}. "
        "example: framehost serve --model router=sparrow --model judge=decider:/models/decider-4b",
    )
    serve.add_argument(
        "--model", action="append", default=[], metavar="NAME=FAMILY[:PATH]",
        help="a model to serve: the name that requests say, its family, and its checkpoint where the family brings no "
        "weights; may be given several times (default: minilm=embedding:minilm if it has been fetched, else "
        "sparrow=sparrow)",
    )  # fmt: skip
    serve.add_argument(
        "path", nargs="?", metavar="PATH", help="a checkpoint to serve, or the name of a bundled or fetched model: its "
        "family is found as `check` finds it, and it is called by the last part of its path",
    )  # fmt: skip
    serve.add_argument("--config", metavar="FILE", help="a TOML file instead of PATH, --model and --option")
    serve.add_argument(
        "--option", action="append", default=[], metavar="NAME.KEY=VALUE",
        help="an option of a model's family, the value as in JSON or a plain text; may be given several times",
    )  # fmt: skip
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (default 8080; 0: any free one)")
    serve.add_argument("--health", metavar="ADDRESS:PORT", help="answer probes here: /livez, /startupz, /readyz")
    serve.add_argument("--access-log", action="store_true", help="log a line for every request")
    serve.add_argument("--keys", metavar="FILE", help="a TOML file with the API keys that may ask")
    serve.add_argument(
        "--insecure", action="store_true", help="allow an address that other machines can reach without API keys"
    )
    serve.set_defaults(run=run, recognize=recognize)


def hint(arguments: argparse.Namespace) -> str | None:
    """What to say before a start that serves the tiny model because no other one was asked for and the better one is
    not there; None otherwise."""
    if arguments.config is not None or arguments.model or arguments.path or config.default_model() != "sparrow=sparrow":
        return None
    return (
        f"no model was named: serving {config.EMBEDDED_MODEL}, the tiny one. A better one, 84 MB: "
        f"framehost fetch {config.BEST_MODEL}, then start again"
    )


def configured(arguments: argparse.Namespace) -> Configuration:
    """The configuration of the file or of the path and the --model options, with the other options on top.

    Raises `ConfigurationError`.
    """
    if arguments.config is not None and (arguments.model or arguments.path or arguments.option):
        raise ConfigurationError("give either --config, or PATH, --model and --option, not both")
    configuration = (
        config.from_models(arguments.model, _found(arguments), _options(arguments.option))
        if arguments.config is None
        else config.load(Path(arguments.config))
    )
    if arguments.host is not None:
        configuration = dataclasses.replace(configuration, host=endpoints.check_host(arguments.host))
    if arguments.health is not None:
        try:
            configuration = dataclasses.replace(configuration, health=endpoints.endpoint(arguments.health))
        except ConfigurationError as error:
            raise ConfigurationError(f"--health: {error}") from error
    if arguments.access_log:
        configuration = dataclasses.replace(configuration, access_log=True)
    if arguments.keys is not None:
        configuration = dataclasses.replace(configuration, keys=config.check_keys(Path(arguments.keys)))
    else:
        keys.from_environment()  # what is wrong with it is told now, and not by the front
    if arguments.port is not None:
        if not 0 <= arguments.port <= 65535:
            raise ConfigurationError(f"--port {arguments.port}: a port is 0..65535")
        configuration = dataclasses.replace(configuration, port=arguments.port)
    return configuration


def _found(arguments: argparse.Namespace) -> dict[str, dict[str, str]]:
    """The table of the model that PATH leads to, by its name; empty without one. Raises `ConfigurationError`."""
    path = arguments.path
    if path is None:
        return {}
    for family in families.BUILT_IN.values():
        if path in family.bundled:
            return {path: {"family": family.name, "path": path}}
    if (known := fetched.MODELS.get(path)) is not None:
        return {path: {"family": known.family, "path": path}}
    found = arguments.recognize(path)
    if found.problem:
        raise ConfigurationError(f"{path}: {found.problem.replace('--family', '--model NAME=FAMILY:PATH')}")
    whole = Path(path).absolute()
    if whole.name == "..":
        whole = whole.resolve()
    return {whole.name if whole.is_dir() else whole.stem: {"family": found.family, "path": path}}


def _options(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The --option arguments by model and key. Raises `ConfigurationError`."""
    options: dict[str, dict[str, Any]] = {}
    for text in given:
        place, value = setting(text)
        name, dot, key = place.rpartition(".")
        if not (dot and name and key and "=" in text):
            raise ConfigurationError(f"--option {text}: expected NAME.KEY=VALUE")
        if key in options.setdefault(name, {}):
            raise ConfigurationError(f"--option {text}: {place} is given twice")
        options[name][key] = value
    return options
