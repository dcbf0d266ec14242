-- Load for wrk: batches of two messages with steps and calls, and every fourth request reads a page.
-- Names of messages that were acknowledged go to the file ACKNOWLEDGED.<thread>, one a line; KEY is an API key.
--
--   KEY=ts_... ACKNOWLEDGED=acknowledged wrk -t 2 -c 16 -d 10s -s benchmarks/restart/load.lua http://127.0.0.1:8000

local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  sent = 0
  run = os.time()
  acknowledged = io.open(os.getenv("ACKNOWLEDGED") .. "." .. number, "w")
  headers = { ["Authorization"] = "Bearer " .. os.getenv("KEY"), ["Content-Type"] = "application/json" }
end

local message = [[{"external_id": "%s", "role": "assistant", "content": "done", "agent_steps": [{"iteration": 0,
  "thought": "look it up", "tool_calls": [{"id": "c", "name": "lookup", "args": {"order": "%s"}, "duration": 7,
  "result": {"status": "success", "output": "shipped"}}]}]}]]

function request()
  sent = sent + 1
  if sent % 4 == 0 then
    return wrk.format("GET", "/api/v1/messages/?limit=10", headers)
  end
  local first, second = "wrk-" .. run .. "-" .. number .. "-" .. sent .. "-a", "wrk-" .. run .. "-" .. number .. "-" .. sent .. "-b"
  local body = '{"sessions": [{"external_id": "wrk-' .. run .. "-" .. number .. '", "messages": [' ..
    message:format(first, first) .. "," .. message:format(second, second) .. "]}]}"
  return wrk.format("POST", "/api/v1/ingest/", headers, body)
end

function response(status, headers, body)
  for name in body:gmatch('"external_id": ?"(wrk%-[%w-]+%-[ab])", ?"state": ?"created"') do
    acknowledged:write(name, "\n")
  end
  acknowledged:flush()
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("requests %d failed %d connect %d read %d write %d timeout %d\n", summary.requests,
    errors.status, errors.connect, errors.read, errors.write, errors.timeout))
end
