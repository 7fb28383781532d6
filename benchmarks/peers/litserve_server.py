"""LitServe: a front with FastAPI, one worker. `--work WORK --batch N --port PORT`."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import arguments
from benchmarks.peers.work import loaded

arguments.find_packages()
import litserve  # noqa: E402

ASKED = arguments.parse()


class Decisions(litserve.LitAPI):  # type: ignore[misc]
    """The worker; a batch of one is no list there."""

    def setup(self, device: str) -> None:
        self._decide = loaded(ASKED.work)

    # Its front reads the annotation, and would ask for a query parameter.
    def decode_request(self, request):  # type: ignore[no-untyped-def]
        return request

    def predict(self, inputs: Any) -> Any:
        return self._decide(inputs) if ASKED.batch > 1 else self._decide([inputs])[0]

    def encode_response(self, output: Any) -> Any:
        return output


if __name__ == "__main__":
    wait_s = 0.002 if ASKED.batch > 1 else 0.0
    api = Decisions(max_batch_size=ASKED.batch, batch_timeout=wait_s, api_path="/v1/systemone")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(
        host="127.0.0.1", port=ASKED.port, num_api_servers=1, generate_client_file=False, log_level="warning",
        access_log=False,
    )  # fmt: skip
