"""The options of `framehost serve`, and the configuration that they make; what is done with it is the supervisor's."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

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


def add_to(commands: Any, run: Callable[[argparse.Namespace], int], detect: Callable[[Path], str]) -> None:
    """Add the command's parser. `run`: what serves, and `detect`: the family of a checkpoint, the caller's."""
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
        "path",
        nargs="?",
        metavar="PATH",
        help="a checkpoint, whose files say of which family it is, or a bundled or fetched model by its name",
    )
    serve.add_argument(
        "--option", action="append", default=[], metavar="[NAME.]KEY=VALUE",
        help="an option of a model's family, the value as in JSON or a plain text; may be given several times",
    )  # fmt: skip
    serve.add_argument("--config", metavar="FILE", help="a TOML file instead of PATH and --model")
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (default 8080; 0: any free one)")
    serve.add_argument("--health", metavar="ADDRESS:PORT", help="answer probes here: /livez, /startupz, /readyz")
    serve.add_argument("--access-log", action="store_true", help="log a line for every request")
    serve.add_argument("--keys", metavar="FILE", help="a TOML file with the API keys that may ask")
    serve.add_argument(
        "--insecure", action="store_true", help="allow an address that other machines can reach without API keys"
    )
    serve.set_defaults(run=run, detect=detect)


def _of_path(arguments: argparse.Namespace) -> list[str]:
    """The checkpoint PATH as a --model option: its name is that of the folder, or of the file without its ending.
    What is bundled or can be fetched has its own name. Raises `ConfigurationError`."""
    if arguments.path is None:
        return []
    for family in families.BUILT_IN.values():
        if arguments.path in (*family.bundled, *fetched.names(family.name)):
            return [f"{arguments.path}={family.name}:{arguments.path}"]
    path = Path(arguments.path)
    try:
        found = arguments.detect(path)
    except ValueError as error:
        raise ConfigurationError(f"{arguments.path} {error}") from error
    whole = path.absolute()
    if whole.name == "..":
        whole = whole.resolve()
    name = (whole.stem if whole.is_file() else whole.name).partition("=")[0] or "model"
    return [f"{name}={found}:{arguments.path}"]


def hint(arguments: argparse.Namespace) -> str | None:
    """What to say before a start that serves the tiny model because no other one was asked for and the better one is
    not there; None otherwise."""
    named = arguments.config is not None or arguments.model or arguments.path is not None
    if named or config.default_model() != "sparrow=sparrow":
        return None
    return (
        f"no model was named: serving {config.EMBEDDED_MODEL}, the tiny one. A better one, 84 MB: "
        f"framehost fetch {config.BEST_MODEL}, then start again"
    )


def configured(arguments: argparse.Namespace) -> Configuration:
    """The configuration of the file or of the --model options, with the other options on top.

    Raises `ConfigurationError`.
    """
    if arguments.config is not None and (arguments.model or arguments.path or arguments.option):
        raise ConfigurationError("give either --config, or PATH, --model and --option, not both")
    if arguments.config is None:
        configuration = config.from_models([*_of_path(arguments), *arguments.model], arguments.option)
    else:
        configuration = config.load(Path(arguments.config))
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
