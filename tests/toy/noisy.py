"""A child that is no host: it writes what a test wants and ends, or does not. Started by the launcher's tests."""

import os
import subprocess
import sys

how, *rest = sys.argv[1:]
if how == "megabytes":
    sys.stdout.buffer.write(b"x" * int(rest[0]) * 2**20)
    sys.stdout.buffer.write(b"\nthe end\n")
elif how == "invalid":
    sys.stdout.buffer.write(b"caf\xe9 \xff\xfe\x00\r\nno newline at the end")
elif how == "child":
    child = subprocess.Popen(["sleep", "1000"], start_new_session=rest == ["session"])
    print(child.pid)
elif how == "exit":
    sys.exit(int(rest[0]))
elif how == "wait":
    print("waiting", flush=True)
    sys.stdin.read()
    os.read(os.pipe()[0], 1)
sys.stdout.flush()
