#!/usr/bin/env bash
# Serves the bundled demo model and shows a short conversation with it over HTTP.
# usage: demo.sh AVOCET_BINARY [PORT]     stays up at a terminal until Ctrl-C; otherwise ends after the conversation
set -euo pipefail
avocet=$1
port=${2:-8000}
log=$(mktemp)
base=http://127.0.0.1:$port

"$avocet" serve models/demo --served-model-name demo --host 127.0.0.1 --port "$port" 2>"$log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$log"' EXIT

for _ in $(seq 300); do
  if curl -fs "$base/health" >/dev/null 2>&1; then break; fi
  if ! kill -0 "$server" 2>/dev/null; then
    echo "the server did not start; its log:" >&2
    cat "$log" >&2
    exit 1
  fi
  sleep 0.1
done
cat "$log"

ask() {
  printf '\n\033[1myou>\033[0m %s\n\033[1mdemo>\033[0m ' "$1"
  # Each streamed event is one line "data: {...}"; print the text as it arrives.
  curl -sN "$base/v1/chat/completions" -H 'Content-Type: application/json' \
    -d "$(python3 -c 'import json,sys; print(json.dumps({"model": "demo", "stream": True, "temperature": 0, "max_tokens": 200,
          "chat_template_kwargs": {"enable_thinking": False}, "messages": [{"role": "user", "content": sys.argv[1]}]}))' "$1")" |
    python3 -c '
import json, sys
for line in sys.stdin:
    if not line.startswith("data: {"): continue
    event = json.loads(line[6:])
    if "error" in event: sys.exit("\nerror: " + event["error"]["message"])
    for choice in event["choices"]:
        print(choice["delta"].get("content") or "", end="", flush=True)
print()'
}

ask "What is the capital of Poland?"
ask "Give a JSON object for Dora, aged 39, who lives in Copenhagen."
ask "Tell me a story."

cat <<TEXT

The server is at $base, with the OpenAI API below $base/v1. Talk to it with any client:

  curl $base/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model": "demo", "messages": [{"role": "user", "content": "What is the capital of Poland?"}]}'

or in a terminal, without a server:  $avocet chat
It is a 2.7-million-parameter model trained on 26 small tasks (models/README.md); a real one is served with
  $avocet serve /path/to/Qwen3.5-0.8B
TEXT
if [ -t 0 ]; then
  echo
  echo "Ctrl-C stops the server."
  wait "$server"
fi
