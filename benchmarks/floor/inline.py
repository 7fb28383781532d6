"""The ceiling of one process: aiohttp with the model in the handler, nothing checked, nobody to talk to."""

from __future__ import annotations

import argparse
import json

from aiohttp import web

from benchmarks.floor import loop
from benchmarks.floor.work import decide


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--busy-ms", type=float, default=0.0)
    loop.add_argument(parser)
    arguments = parser.parse_args()
    busy_s = arguments.busy_ms / 1000

    async def handle(request: web.Request) -> web.Response:
        return web.json_response(decide(json.loads(await request.read()), busy_s))

    app = web.Application()
    app.router.add_post("/v1/systemone", handle)
    web.run_app(app, host="127.0.0.1", port=arguments.port, print=None, access_log=None, loop=loop.make(arguments))


if __name__ == "__main__":
    main()
