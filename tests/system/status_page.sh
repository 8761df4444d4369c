#!/usr/bin/env bash
# The page at / of the core: what is served, and in a headless Chromium (tests/system/status_page.py) what it shows, to whom, and how fast.
# Without a Chromium only the first part is tested. With SHOTS=DIR it leaves the screenshots of the documentation there; with
# AXE=FILE (axe.min.js, of npm's axe-core) the page is looked over with that, too: without, where npm has one.
# usage: BIN=build/release/bin DIR=build/status-page tests/system/status_page.sh
. "$(dirname "$0")/lib.sh"
read -r c1 c2 c3 c4 c5 p1 p2 p3 p4 p5 < <(free_ports 10)
CLUSTER=x1=http://127.0.0.1:$p1,x2=http://127.0.0.1:$p2,x3=http://127.0.0.1:$p3
COMMAND=("$BIN/tenure-core" --name x1 --data-dir "$DIR/x1" --listen-client-urls "http://127.0.0.1:$c1" --listen-peer-urls "http://127.0.0.1:$p1" --initial-cluster "$CLUSTER")
start x1 "${COMMAND[@]}" # status_page.py does it, too
X1=$PID
start_replica x2 "$c2" "$p2" --initial-cluster "$CLUSTER"
start_replica x3 "$c3" "$p3" --initial-cluster "$CLUSTER"
until_ok 20 curl -sf -m 5 "http://127.0.0.1:$c1/readyz" || { not_ok "the core serves" "$(tail -n 3 "$DIR/x1.log")"; finish; exit 1; }

# ---- what is served ----
U=http://127.0.0.1:$c1
SOURCE=$SYSTEM/../../conf/page
for f in /:index.html:text/html /page.css:page.css:text/css /page.js:page.js:text/javascript /page.svg:icon.svg:image/svg+xml; do
	IFS=: read -r path file type <<<"$f"
	head=$(curl -s -m 10 -D - -o "$DIR/got" "$U$path" | tr -d '\r')
	has "$path" "$head" '^HTTP/1.1 200 OK$'
	has "$path: its type" "$head" "^Content-Type: ${type//+/\\+}"
	cmp -s "$DIR/got" "$SOURCE/$file" && ok "$path: the file as it is" || not_ok "$path: the file as it is"
	has "$path: nothing from elsewhere" "$head" "^Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
	is "$path: nothing inline" "$(grep -c unsafe <<<"$head")" 0
	for h in 'X-Content-Type-Options: nosniff' 'X-Frame-Options: DENY' 'Referrer-Policy: no-referrer' 'Cache-Control: no-cache'; do has "$path: $h" "$head" "^$h$"; done
done
SIZE=$(cat "$SOURCE"/{index.html,page.css,page.js,icon.svg} | wc -c)
[ "$SIZE" -lt 100000 ] && ok "all of it: $SIZE bytes, less than 100 KB" || not_ok "less than 100 KB" "$SIZE bytes"
is "no address of elsewhere in it" "$(cat "$SOURCE"/{index.html,page.css,page.js} | grep -oE 'https?://[a-z0-9]|@import|url\(' | head -n 1)" ""
is "HEAD" "$(curl -s -m 10 -I -o /dev/null -w '%{http_code} %{size_download}' "$U/")" "200 0"
is "no other method" "$(for m in PUT DELETE PATCH OPTIONS POST; do curl -s -m 10 -X $m -o /dev/null -w '%{http_code} ' "$U/"; done)" "405 405 405 405 405 "
is "a path below the page's is not found" "$(curl -s -m 10 -o /dev/null -w '%{http_code}' "$U/page")" 404
# TLS as browsers speak it: they offer HTTP/2 as well, which is gRPC alone here. And without the page.
make_certificates
start tls "$BIN/tenure-core" --name t --data-dir "$DIR/t" --listen-client-urls "https://127.0.0.1:$c4" --listen-peer-urls "http://127.0.0.1:$p4" --initial-cluster "t=http://127.0.0.1:$p4" \
	--cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --listen-metrics-urls "http://127.0.0.1:$p5"
start_replica off "$c5" 0 --status-page=no
https() { curl -s -m 10 --cacert "$DIR/ca.pem" -o /dev/null -w '%{http_code} %{http_version}' "https://127.0.0.1:$c4/" | grep -x '200 1.1'; }
until_ok 20 https && ok "with TLS, to who offers HTTP/2 and HTTP/1.1" || not_ok "with TLS, to who offers HTTP/2 and HTTP/1.1" "$(https)"
is "gRPC on the same port" "$(timeout 10 etcdctl --endpoints "https://127.0.0.1:$c4" --cacert "$DIR/ca.pem" put a b 2>&1)" OK
is "the port for probes has none" "$(curl -s -m 10 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$p5/")" 404
until_ok 20 curl -sf -m 5 "http://127.0.0.1:$c5/readyz"
is "--status-page=no" "$(for p in / /page.css /page.js /page.svg; do curl -s -m 10 -o /dev/null -w '%{http_code} ' "http://127.0.0.1:$c5$p"; done)" "404 404 404 404 "

# ---- in a browser ----
if ! /usr/bin/python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import browser; sys.exit(not browser.program())' "$SYSTEM"; then
	skip "the page in a browser" "no chromium-headless-shell, no chromium here"
	finish
	exit
fi
if [ -z "${AXE:-}" ] && command -v npm >/dev/null; then
	mkdir -p "$DIR/npm" && (cd "$DIR/npm" && timeout 60 npm install --silent --no-fund --no-audit --ignore-scripts axe-core@4.14.1 >npm.log 2>&1)
	AXE=$DIR/npm/node_modules/axe-core/axe.min.js
fi
[ -f "${AXE:-}" ] || { skip "axe-core" "it is not here, and npm does not bring it"; AXE=; }
# The page's own replica is ended and started by the test.
kill "$X1"
wait "$X1"
timeout -k 5 600 /usr/bin/python3 "$SYSTEM/status_page.py" --dir "$DIR" --url "$U" --others "http://127.0.0.1:$c2,http://127.0.0.1:$c3" --axe "$AXE" --shots "${SHOTS:-}" \
	--agent "$BIN/tenured" -- "${COMMAND[@]}" >"$DIR/browser.out" 2>"$DIR/browser.err"
while read -r line; do
	case $line in "ok "*) ok "${line#ok }" ;; "not ok "*) not_ok "${line#not ok }" ;; "end") ;; *) echo "    $line" ;; esac
done <"$DIR/browser.out"
grep -qx end "$DIR/browser.out" && ok "the browser's test, to its end" || not_ok "the browser's test, to its end" "$(tail -n 3 "$DIR/browser.err")"
finish
