#!/usr/bin/env bash
# Makes a corpus small: of what was found (FOUND/<fuzzer>/*), the inputs that reach something of their own, the short ones first; what has a name
# of its own (found-*) stays. tests/fuzz/minimise.sh FUZZ FOUND CORPUS FUZZER...; LEN=n leaves longer inputs out (4096).
set -eu
fuzz=$1 found=$2 corpus=$3
shift 3
export ASAN_OPTIONS=malloc_context_size=0:quarantine_size_mb=16:detect_leaks=0
for f in "$@"; do
	tmp=$(mktemp -d)
	mkdir -p "$tmp/in" "$tmp/out" "$corpus/$f"
	find "$found/$f" "$corpus/$f" -type f -not -name 'found-*' -size "-$((${LEN:-4096} + 1))c" -exec cp -t "$tmp/in" {} +
	FUZZER=$f "$fuzz" -merge=1 -use_value_profile=0 "$tmp/out" "$tmp/in" >"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log"; exit 1; }
	find "$corpus/$f" -type f -not -name 'found-*' -delete
	find "$tmp/out" -type f -exec mv -t "$corpus/$f" {} +
	printf '%-12s %5d inputs, %7d bytes\n' "$f" "$(find "$corpus/$f" -type f | wc -l)" "$(find "$corpus/$f" -type f -printf '%s\n' | paste -sd+ | bc)"
	rm -rf "$tmp"
done
