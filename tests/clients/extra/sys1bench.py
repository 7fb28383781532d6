"""sys1bench: all of its suites, a few items of each. What the model can read is answered, longer states are 400."""

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path

url = sys.argv[1]
ITEMS = 5
CONFIG = f"""
adapter: jev_typesafe
model_id: sparrow
url: {url}/v1/systemone
api_key: any
allow_alias: true
probe_models: true
deployment: local
timeout_s: 120
max_retries: 3
"""


def ended() -> Counter[str]:
    """Requests that have ended, by status."""
    with urllib.request.urlopen(f"{url}/metrics") as response:
        text = response.read().decode()
    counts: Counter[str] = Counter()
    for status, count in re.findall(r'^framehost_requests_total\{.*status="(\d+)"\} ([0-9.]+)$', text, re.MULTILINE):
        counts[status] += int(float(count))
    return counts


before = ended()
with tempfile.TemporaryDirectory() as folder:
    config, out = Path(folder, "local.yaml"), Path(folder, "out")
    config.write_text(CONFIG)
    program = Path(sys.executable).with_name("sys1bench")
    arguments = ["suite", "all", out, "--config", config, "--n", str(ITEMS), "--perms", "1"]
    subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for file in out.glob("preds_*.jsonl") for line in file.read_text().splitlines()]
assert rows
assert [row for row in rows if row["error"] is not None] == []
counts = ended() - before
assert set(counts) <= {"200", "400"}, counts
assert counts["200"] > 1000, counts
