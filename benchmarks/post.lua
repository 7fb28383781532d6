-- The requests come from a file, one in each line, and are sent in turn; the results are printed as one line that a
-- program can read exactly. wrk's own table rounds latencies and hides the errors it did not see.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local requests, number = {}, 0

function init(arguments)
  for body in io.lines(os.getenv("BENCH_BODY")) do
    requests[#requests + 1] = wrk.format(nil, nil, nil, body)
  end
  -- Where to begin: what was sent in an earlier run should not come again before the others have.
  number = tonumber(os.getenv("BENCH_FIRST") or "0")
end

function request()
  number = number + 1
  return requests[(number - 1) % #requests + 1]
end

function done(summary, latency, requests)
  local e = summary.errors
  print(string.format(
    "BENCH requests=%d duration_us=%d p50_us=%d p99_us=%d max_us=%d connect=%d read=%d write=%d status=%d timeout=%d",
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    e.connect, e.read, e.write, e.status, e.timeout))
end
